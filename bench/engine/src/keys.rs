//! Keys and TIDs, made on the fly: a list of them would take cache from what is measured.

/// A bijection on 64 bits: different numbers are different keys, in an order without pattern.
#[inline]
pub fn key(i: u64) -> u64 {
    let mut z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc_def1);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The heap TID of row `i` in a table with 200 rows on a page.
#[inline]
pub fn tid(i: u64) -> u64 {
    (i / 200) << 16 | (i % 200 + 1)
}

/// A sequence of row numbers without pattern.
pub struct Rows {
    state: u64,
    n: u64,
}

impl Rows {
    /// Numbers in `0..n`; another `seed`, another sequence.
    pub fn new(seed: u64, n: u64) -> Rows {
        Rows { state: key(seed) | 1, n }
    }
}

impl Iterator for Rows {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        Some(((u128::from(self.state) * u128::from(self.n)) >> 64) as u64)
    }
}

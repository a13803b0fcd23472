//! Keys and TIDs, made on the fly: a list of them would take cache from what is measured.

/// What is looked up. Those that compare the bytes see the same order.
pub trait Key: Ord + Clone + Send + Sync + 'static {
    /// The key of a number; keys have the order of their numbers.
    fn of(number: u64) -> Self;
    fn bytes(&self) -> impl AsRef<[u8]>;
}

impl Key for u64 {
    #[inline]
    fn of(number: u64) -> u64 {
        number
    }

    #[inline]
    fn bytes(&self) -> impl AsRef<[u8]> {
        self.to_be_bytes()
    }
}

/// Nine bytes: a number as the access method stores large integers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Marked(u64);

impl Key for Marked {
    #[inline]
    fn of(number: u64) -> Marked {
        Marked(number)
    }

    #[inline]
    fn bytes(&self) -> impl AsRef<[u8]> {
        let mut bytes = [0xc8; 9];
        bytes[1..].copy_from_slice(&self.0.to_be_bytes());
        bytes
    }
}

/// A string of `N` letters and digits, of which the first 25 look random; then they repeat.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text<const N: usize>([u8; N]);

const RANDOM: usize = 25;

impl<const N: usize> Key for Text<N> {
    #[inline]
    fn of(number: u64) -> Text<N> {
        const LETTERS: &[u8; 32] = b"234567abcdefghijklmnopqrstuvwxyz";
        let second = key(number);
        let mut bytes = [0; N];
        for (i, byte) in bytes.iter_mut().take(RANDOM).enumerate() {
            // Thirteen of the number, which tell it from all others, and twelve more.
            let bits = match i {
                0..12 => number >> (59 - 5 * i),
                12 => number,
                _ => second >> (5 * (i - 13)),
            };
            *byte = LETTERS[(bits % 32) as usize];
        }
        for begin in (RANDOM..N).step_by(RANDOM) {
            bytes.copy_within(..RANDOM.min(N - begin), begin);
        }
        Text(bytes)
    }

    #[inline]
    fn bytes(&self) -> impl AsRef<[u8]> {
        &self.0
    }
}

/// A bijection on 64 bits: different numbers are different keys, in an order without pattern.
#[inline]
pub fn key(i: u64) -> u64 {
    let mut z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc_def1);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The key of row `i` where keys come without order.
#[inline]
pub fn random<K: Key>(i: u64) -> K {
    K::of(key(i))
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

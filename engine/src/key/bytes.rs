//! Keys as bytes.

/// Returns eight key bytes from `at`, zero padded, as a number that compares like them.
#[inline]
pub(crate) fn prefix_at(key: &[u8], at: usize) -> u64 {
    let rest = key.get(at..).unwrap_or_default();
    if let Some(eight) = rest.first_chunk::<8>() {
        return u64::from_be_bytes(*eight);
    }
    if let Some(eight) = key.last_chunk::<8>() {
        // Those before `at` are shifted out.
        let before = 8 * (8 - rest.len()) as u32;
        return u64::from_be_bytes(*eight).checked_shl(before).unwrap_or(0);
    }
    rest.iter().enumerate().fold(0, |p, (i, &byte)| p | u64::from(byte) << (56 - 8 * i))
}

/// Returns the number of leading bytes that two keys share.
pub(crate) fn common(a: &[u8], b: &[u8]) -> usize {
    let (a8, b8) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    for (i, (x, y)) in a8.iter().zip(b8).enumerate() {
        let differ = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differ != 0 {
            return 8 * i + differ.trailing_zeros() as usize / 8;
        }
    }
    let eights = 8 * a8.len().min(b8.len());
    eights + a[eights..].iter().zip(&b[eights..]).take_while(|(x, y)| x == y).count()
}

//! Reading bytes that a latch holder may be changing.
//!
//! A reader copies or compares first and validates the block's version afterwards; what it read is
//! thrown away when the validation fails. The bytes are read and written as whole aligned words, by
//! relaxed atomic accesses, like every other field that changes beside its readers: a race is no
//! undefined behaviour, and a torn value can be wrong but never out of the block. (Blocks are
//! multiples of 64 bytes, so a word that has one byte in a block is all in it.)

use core::cmp::Ordering;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The word at an aligned address, its first byte the lowest.
///
/// # Safety
/// The word is in a mapped block.
#[inline]
unsafe fn word(at: *const u8) -> u64 {
    // SAFETY: by the contract.
    u64::from_le(unsafe { &*at.cast::<AtomicU64>() }.load(Relaxed))
}

/// 1 to 8 bytes at any address, the first one the lowest, zero padded.
///
/// # Safety
/// `src .. src + n` is inside one mapped block.
#[inline]
unsafe fn bytes(src: *const u8, n: usize) -> u64 {
    debug_assert!((1..=8).contains(&n));
    let offset = src.addr() % 8;
    let first = src.wrapping_sub(offset);
    // SAFETY: it has the byte at `src`.
    let mut number = unsafe { word(first) } >> (8 * offset);
    if offset + n > 8 {
        // SAFETY: it has the byte at `src + n - 1`.
        number |= unsafe { word(first.wrapping_add(8)) } << (64 - 8 * offset);
    }
    number & (u64::MAX >> (64 - 8 * n))
}

/// Copies `len` bytes.
///
/// # Safety
/// `src .. src + len` is inside one mapped block, `dst .. dst + len` is private to the caller.
#[inline]
pub(crate) unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    let mut at = 0;
    while at + 8 <= len {
        // SAFETY: at + 8 <= len.
        unsafe { dst.add(at).cast::<[u8; 8]>().write(bytes(src.add(at), 8).to_le_bytes()) };
        at += 8;
    }
    if at < len {
        // SAFETY: the rest, less than 8 bytes.
        unsafe {
            let rest = bytes(src.add(at), len - at).to_le_bytes();
            core::ptr::copy_nonoverlapping(rest.as_ptr(), dst.add(at), len - at);
        }
    }
}

/// Writes `src` over bytes that readers may be reading (latch held).
///
/// # Safety
/// `dst .. dst + src.len()` is inside one mapped block whose latch the caller holds: nobody else writes
/// to the words that the ends are in.
#[inline]
pub(crate) unsafe fn write(src: &[u8], dst: *mut u8) {
    let (mut at, mut rest) = (dst, src);
    while !rest.is_empty() {
        let offset = at.addr() % 8;
        let (part, more) = rest.split_at(rest.len().min(8 - offset));
        // SAFETY: it has the byte at `at`, which is inside the block.
        let word = unsafe { &*at.wrapping_sub(offset).cast::<AtomicU64>() };
        let mut bytes = if part.len() == 8 { [0; 8] } else { word.load(Relaxed).to_ne_bytes() };
        bytes[offset..offset + part.len()].copy_from_slice(part);
        word.store(u64::from_ne_bytes(bytes), Relaxed);
        (at, rest) = (at.wrapping_add(part.len()), more);
    }
}

/// A little-endian number of `N` <= 8 bytes at any address.
///
/// # Safety
/// `src .. src + N` is inside one mapped block.
#[inline]
pub(crate) unsafe fn number<const N: usize>(src: *const u8) -> u64 {
    // SAFETY: by the contract.
    unsafe { bytes(src, N) }
}

/// Compares `mine` with the `len` bytes at `src` as byte strings.
///
/// # Safety
/// `src .. src + len` is inside one mapped block.
#[inline]
pub(crate) unsafe fn compare(mine: &[u8], src: *const u8, len: usize) -> Ordering {
    let common = mine.len().min(len);
    let mut at = 0;
    while at < common {
        let n = (common - at).min(8);
        // SAFETY: at + n <= len.
        let theirs = unsafe { bytes(src.add(at), n) }.swap_bytes();
        let mut ours = [0; 8];
        if n == 8 {
            ours.copy_from_slice(&mine[at..at + 8]);
        } else {
            ours[..n].copy_from_slice(&mine[at..at + n]);
        }
        let ours = u64::from_be_bytes(ours);
        if ours != theirs {
            return ours.cmp(&theirs);
        }
        at += n;
    }
    mine.len().cmp(&len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A block of four words with `bytes` from `offset` on, and a neighbour on each side.
    fn block(offset: usize, bytes: &[u8]) -> [u64; 8] {
        let mut block = [u64::MAX; 8];
        // SAFETY: inside the array, which nobody else knows; 8 + 15 + 40 <= 64.
        unsafe { write(bytes, block.as_mut_ptr().cast::<u8>().add(8 + offset)) };
        block
    }

    proptest! {
        #[test]
        fn compares_and_copies_as_slices_do(
            a in prop::collection::vec(0u8..3, 0..40),
            b in prop::collection::vec(0u8..3, 0..40),
            offset in 0usize..16,
        ) {
            let block = block(offset, &b);
            let src = block.as_ptr().cast::<u8>().wrapping_add(8 + offset);
            // SAFETY: the bytes of `b`.
            let ordering = unsafe { compare(&a, src, b.len()) };
            prop_assert_eq!(ordering, a.cmp(&b));
            let mut copied = vec![9; b.len() + 1];
            // SAFETY: as above, into a longer vector.
            unsafe { copy(src, copied.as_mut_ptr(), b.len()) };
            prop_assert_eq!(&copied[..b.len()], &b[..]);
            prop_assert_eq!(copied[b.len()], 9);
            let all: Vec<u8> = block.iter().flat_map(|word| word.to_ne_bytes()).collect();
            prop_assert!(all[..8 + offset].iter().all(|&byte| byte == 255));
            prop_assert!(all[8 + offset + b.len()..].iter().all(|&byte| byte == 255));
        }
    }
}

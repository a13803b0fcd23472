//! Reading bytes that a latch holder may be changing.
//!
//! A reader copies or compares first and validates the version of the block afterwards. If the
//! validation fails, it throws its reading away.
//!
//! The bytes are written as whole aligned words, by relaxed atomic accesses, like every other field
//! that changes beside its readers. (Blocks are multiples of 64 bytes, so a word with one byte in a
//! block is all in it.)
//!
//! The language has no atomic load at any address. On x86-64 an instruction in `asm!` reads eight
//! bytes at a time, and the compiler knows only that it reads memory. Elsewhere the aligned words
//! are loaded. So a race is no undefined behaviour. A torn value can be wrong, but never from
//! outside the block. If fewer bytes are wanted, those before are read with them, and dropped. They
//! are mapped whatever a torn offset says: before a block is another one of its extent, or the
//! header of that.

use core::cmp::Ordering;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Reads 8 bytes at any address, the first one the lowest.
///
/// # Safety
/// The bytes are inside one mapped extent.
#[inline]
unsafe fn eight(at: *const u8) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let number: u64;
        // SAFETY: reads 8 bytes, by the contract, as eight relaxed loads of an AtomicU8 would.
        unsafe {
            core::arch::asm!(
                "mov {number}, [{at}]",
                number = out(reg) number,
                at = in(reg) at,
                options(pure, readonly, nostack, preserves_flags)
            );
        }
        number
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's contract.
    unsafe {
        eight_portable(at)
    }
}

/// Reads 8 bytes from byte `at` of these words on, the first one the lowest. Returns None if they
/// are not all in them.
#[inline(always)]
pub(crate) fn eight_of(words: &[AtomicU64], at: usize) -> Option<u64> {
    let inside = size_of_val(words).checked_sub(8).is_some_and(|last| at <= last);
    // SAFETY: these bytes are in the words.
    inside.then(|| unsafe { eight(words.as_ptr().cast::<u8>().add(at)) })
}

/// Reads them on any processor: by the one or two aligned words that have them.
///
/// # Safety
/// As [`eight`].
#[cfg(any(test, not(target_arch = "x86_64")))]
unsafe fn eight_portable(at: *const u8) -> u64 {
    let offset = at.addr() % 8;
    let word = |at: *const u8| {
        let aligned = at.wrapping_sub(at.addr() % 8).cast::<AtomicU64>();
        // SAFETY: a word with a byte of the extent is in the extent.
        u64::from_le(unsafe { &*aligned }.load(Relaxed))
    };
    // If they are one word, nothing is left of the second.
    word(at) >> (8 * offset) | word(at.wrapping_add(7)) << (63 - 8 * offset) << 1
}

/// Reads 1 to 8 bytes at any address, the first one the lowest, zero padded.
///
/// # Safety
/// `src .. src + n` is inside one mapped block of an extent.
#[inline]
unsafe fn bytes(src: *const u8, n: usize) -> u64 {
    debug_assert!((1..=8).contains(&n));
    // SAFETY: the bytes before them are in the extent, too.
    unsafe { eight(src.wrapping_add(n).wrapping_sub(8)) >> (64 - 8 * n) }
}

/// Reads up to 8 private bytes, the first one the lowest, zero padded. It calls no function. A copy
/// of unknown length would.
#[inline]
fn few(bytes: &[u8]) -> u64 {
    let (four, rest) = bytes.split_at(bytes.len() & 4);
    let (two, one) = rest.split_at(rest.len() & 2);
    let mut number = one.first().map_or(0, |&byte| u64::from(byte));
    if let Ok(two) = two.try_into() {
        number = number << 16 | u64::from(u16::from_le_bytes(two));
    }
    if let Ok(four) = four.try_into() {
        number = number << 32 | u64::from(u32::from_le_bytes(four));
    }
    number
}

/// Copies `len` bytes.
///
/// # Safety
/// `src .. src + len` is inside one mapped block. `dst` is private to the caller and has room for
/// `len`, rounded up to a multiple of 8. The bytes behind `len` may become anything.
#[inline]
pub(crate) unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    for at in (0..len).step_by(8) {
        let n = (len - at).min(8);
        // SAFETY: at + n <= len, and there is room for 8 bytes.
        unsafe { dst.add(at).cast::<[u8; 8]>().write(bytes(src.add(at), n).to_le_bytes()) };
    }
}

/// Writes `src` over bytes that readers may be reading (latch held).
///
/// # Safety
/// `dst .. dst + src.len()` is inside one mapped block whose latch the caller holds. So no other
/// process writes to the words with its ends.
#[inline]
pub(crate) unsafe fn write(src: &[u8], dst: *mut u8) {
    let (mut at, mut rest) = (dst, src);
    while !rest.is_empty() {
        let offset = at.addr() % 8;
        let (part, more) = rest.split_at(rest.len().min(8 - offset));
        // SAFETY: it has the byte at `at`, which is inside the block.
        let word = unsafe { &*at.wrapping_sub(offset).cast::<AtomicU64>() };
        let new = match part.first_chunk::<8>() {
            Some(eight) => u64::from_le_bytes(*eight),
            None => {
                let mask = (1 << (8 * part.len())) - 1;
                let old = u64::from_le(word.load(Relaxed));
                old & !(mask << (8 * offset)) | few(part) << (8 * offset)
            }
        };
        word.store(new.to_le(), Relaxed);
        (at, rest) = (at.wrapping_add(part.len()), more);
    }
}

/// Reads a little-endian number of `N` <= 8 bytes at any address.
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
    for (part, at) in mine[..common].chunks(8).zip((0..).step_by(8)) {
        let ours = part.first_chunk::<8>().map_or_else(|| few(part), |e| u64::from_le_bytes(*e));
        // SAFETY: at + part.len() <= common.
        let theirs = unsafe { bytes(src.add(at), part.len()) };
        if ours != theirs {
            return ours.swap_bytes().cmp(&theirs.swap_bytes());
        }
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
        // SAFETY: inside the array, which no other process knows; 8 + 15 + 40 <= 64.
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
            // SAFETY: 8 + 15 + 8 <= 64.
            prop_assert_eq!(unsafe { eight(src) }, unsafe { eight_portable(src) });
            let words = block.map(AtomicU64::new);
            let within = block.as_ptr().cast::<[u8; 64]>();
            // SAFETY: 64 bytes that do not change.
            let within = unsafe { *within };
            for at in 0..80 {
                let eight = within.get(at..).and_then(<[u8]>::first_chunk::<8>);
                prop_assert_eq!(eight_of(&words, at), eight.map(|&eight| u64::from_le_bytes(eight)));
            }
            // SAFETY: the bytes of `b`.
            let ordering = unsafe { compare(&a, src, b.len()) };
            prop_assert_eq!(ordering, a.cmp(&b));
            let room = b.len().next_multiple_of(8);
            let mut copied = vec![9; room + 1];
            // SAFETY: as above, into a longer vector.
            unsafe { copy(src, copied.as_mut_ptr(), b.len()) };
            prop_assert_eq!(&copied[..b.len()], &b[..]);
            prop_assert_eq!(copied[room], 9);
            let all: Vec<u8> = block.iter().flat_map(|word| word.to_ne_bytes()).collect();
            prop_assert!(all[..8 + offset].iter().all(|&byte| byte == 255));
            prop_assert!(all[8 + offset + b.len()..].iter().all(|&byte| byte == 255));
        }
    }
}

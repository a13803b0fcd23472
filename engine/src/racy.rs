//! Reading bytes that a latch holder may be changing.
//!
//! A reader copies or compares first and validates the block's version afterwards; what it read is
//! thrown away when the validation fails. The bytes are read through raw pointers with bounds that
//! hold whatever the block contains, so a torn value can be wrong but never out of the block.
//! With the feature `atomic-bytes` every such read is an atomic one (for ThreadSanitizer, which
//! cannot know about the validation).

use core::cmp::Ordering;

#[cfg(feature = "atomic-bytes")]
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Copies `len` bytes.
///
/// # Safety
/// `src .. src + len` is inside one mapped block, `dst .. dst + len` is private to the caller.
#[inline]
pub(crate) unsafe fn copy(src: *const u8, dst: *mut u8, len: usize) {
    #[cfg(not(feature = "atomic-bytes"))]
    // SAFETY: by the contract; disjoint because `dst` is private.
    unsafe {
        core::ptr::copy_nonoverlapping(src, dst, len);
    }
    #[cfg(feature = "atomic-bytes")]
    for i in 0..len {
        // SAFETY: by the contract.
        unsafe { *dst.add(i) = (*src.add(i).cast::<AtomicU8>()).load(Relaxed) };
    }
}

/// Writes `src` over bytes that readers may be reading (latch held).
///
/// # Safety
/// `dst .. dst + src.len()` is inside one mapped block whose latch the caller holds.
#[inline]
pub(crate) unsafe fn write(src: &[u8], dst: *mut u8) {
    #[cfg(not(feature = "atomic-bytes"))]
    // SAFETY: by the contract.
    unsafe {
        core::ptr::copy_nonoverlapping(src.as_ptr(), dst, src.len());
    }
    #[cfg(feature = "atomic-bytes")]
    for (i, &byte) in src.iter().enumerate() {
        // SAFETY: by the contract.
        unsafe { (*dst.add(i).cast::<AtomicU8>()).store(byte, Relaxed) };
    }
}

/// A byte.
///
/// # Safety
/// `src` is inside a mapped block.
#[inline]
unsafe fn byte(src: *const u8) -> u8 {
    #[cfg(not(feature = "atomic-bytes"))]
    // SAFETY: by the contract.
    return unsafe { src.read() };
    #[cfg(feature = "atomic-bytes")]
    // SAFETY: by the contract.
    return unsafe { (*src.cast::<AtomicU8>()).load(Relaxed) };
}

/// A little-endian number of `N` <= 8 bytes at any address.
///
/// # Safety
/// `src .. src + N` is inside one mapped block.
#[inline]
pub(crate) unsafe fn number<const N: usize>(src: *const u8) -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: by the contract.
    unsafe { copy(src, bytes.as_mut_ptr(), N) };
    u64::from_le_bytes(bytes)
}

/// Compares `mine` with the `len` bytes at `src` as byte strings.
///
/// # Safety
/// `src .. src + len` is inside one mapped block.
#[inline]
pub(crate) unsafe fn compare(mine: &[u8], src: *const u8, len: usize) -> Ordering {
    let common = mine.len().min(len);
    let mut at = 0;
    while at + 8 <= common {
        // SAFETY: at + 8 <= len.
        let theirs = u64::from_be(unsafe { number_ne(src.add(at)) });
        let ours = u64::from_be_bytes(mine[at..at + 8].try_into().expect("eight bytes"));
        if ours != theirs {
            return ours.cmp(&theirs);
        }
        at += 8;
    }
    while at < common {
        // SAFETY: at < len.
        let theirs = unsafe { byte(src.add(at)) };
        if mine[at] != theirs {
            return mine[at].cmp(&theirs);
        }
        at += 1;
    }
    mine.len().cmp(&len)
}

/// Eight bytes in memory order.
///
/// # Safety
/// As [`number`] for 8 bytes.
#[inline]
unsafe fn number_ne(src: *const u8) -> u64 {
    // SAFETY: by the contract.
    u64::to_le(unsafe { number::<8>(src) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn compares_as_slices_do(a in prop::collection::vec(0u8..3, 0..40), b in prop::collection::vec(0u8..3, 0..40)) {
            // SAFETY: the bytes of `b`.
            let ordering = unsafe { compare(&a, b.as_ptr(), b.len()) };
            prop_assert_eq!(ordering, a.cmp(&b));
        }
    }
}

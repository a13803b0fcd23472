//! The words of a block.

use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::atomic::plain::AtomicU64;

/// The words of a block, which a writer may be changing. Everything outside reads as zeros. So any
/// number from a torn block leads only here.
#[derive(Clone, Copy)]
pub(super) struct Words<'a>(pub(super) &'a [AtomicU64]);

impl Words<'_> {
    /// Returns the bytes of the block.
    pub(super) fn size(self) -> usize {
        8 * self.0.len()
    }

    #[inline]
    pub(super) fn word(self, i: usize) -> u64 {
        match self.0.get(i) {
            Some(word) => u64::from_le(word.load(Relaxed)),
            None => 0,
        }
    }

    /// Copies words from one on, as far as the block has them.
    #[inline(always)]
    pub(super) fn copy(self, from: usize, to: &mut [u64]) {
        for (to, word) in to.iter_mut().zip(self.0.get(from..).unwrap_or_default()) {
            *to = u64::from_le(word.load(Relaxed));
        }
    }

    /// Returns the 64 bits from bit `at` on.
    #[inline]
    pub(super) fn bits(self, at: usize) -> u64 {
        let word = at / 64;
        let [low, high] = match self.0.get(word..).and_then(<[_]>::first_chunk::<2>) {
            Some(two) => two.each_ref().map(|word| u64::from_le(word.load(Relaxed))),
            None => [0, 1].map(|i| self.word(word + i)),
        };
        low >> (at % 64) | high << 1 << (63 - at % 64)
    }

    /// Returns the 57 bits from bit `at` on, with others above them. At the first bit of a byte all
    /// 64 are right.
    #[inline(always)]
    pub(super) fn near(self, at: usize) -> u64 {
        #[cfg(not(loom))]
        if let Some(eight) = crate::sync::racy::eight_of(self.0, at / 8) {
            return eight >> (at % 8);
        }
        self.near_the_end(at)
    }

    #[cold]
    #[inline(never)]
    fn near_the_end(self, at: usize) -> u64 {
        self.bits(at)
    }

    /// Returns sixteen bytes from byte `at` on.
    #[inline(always)]
    pub(super) fn sixteen(self, at: usize) -> [u8; 16] {
        let (word, shift) = (at / 8, 8 * (at % 8));
        let [a, b, c] = match self.0.get(word..).and_then(<[_]>::first_chunk::<3>) {
            Some(three) => three.each_ref().map(|word| u64::from_le(word.load(Relaxed))),
            None => [0, 1, 2].map(|i| self.word(word + i)),
        };
        let low = a >> shift | b << 1 << (63 - shift);
        let high = b >> shift | c << 1 << (63 - shift);
        (u128::from(low) | u128::from(high) << 64).to_le_bytes()
    }

    /// Returns eight bytes from byte `at` on, the first one the highest.
    #[inline]
    pub(super) fn big_endian(self, at: usize) -> u64 {
        self.near(8 * at).swap_bytes()
    }
}

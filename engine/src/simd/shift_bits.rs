//! Moving the words of a block by some bits: most of the work of inserts into packed leaves and of
//! removals.
//!
//! The words may be changing (the caller validates the version afterwards). Four are loaded at once
//! as in [`crate::simd::search`]: the compiler knows of the instruction only that it reads memory.

use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::atomic::plain::AtomicU64;

/// Makes each word of `to` the 64 bits from bit `by` <= 64 on of two neighbouring words of `from`:
/// the one at its place and the next. `from` has one word more.
#[inline]
pub(crate) fn copy(from: &[AtomicU64], by: usize, to: &mut [u64]) {
    assert!(from.len() == to.len() + 1 && by <= 64);
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    if crate::simd::search::has_avx2() {
        // SAFETY: the processor has it, and there are as many words as was asserted.
        return unsafe { x86::copy(from, by, to) };
    }
    portable(from, by, to);
}

fn portable(from: &[AtomicU64], by: usize, to: &mut [u64]) {
    let of = |word: &AtomicU64| u128::from(u64::from_le(word.load(Relaxed)));
    let Some((first, rest)) = from.split_first() else { return };
    let mut low = of(first);
    for (to, next) in to.iter_mut().zip(rest) {
        let high = of(next);
        *to = ((high << 64 | low) >> by) as u64;
        low = high;
    }
}

#[cfg(all(target_arch = "x86_64", not(loom)))]
mod x86 {
    use super::AtomicU64;
    use crate::simd::search::load;
    use core::arch::x86_64::*;

    /// # Safety
    /// As [`super::copy`] asserts, and the processor has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn copy(from: &[AtomicU64], by: usize, to: &mut [u64]) {
        // A shift by 64 or more leaves nothing.
        let down = _mm_cvtsi64_si128(by as i64);
        let up = _mm_cvtsi64_si128(64 - by as i64);
        let (fours, rest) = to.as_chunks_mut::<4>();
        let n = fours.len();
        let words: *const u64 = from.as_ptr().cast();
        for (i, four) in fours.iter_mut().enumerate() {
            // SAFETY: `from` has a word more than `to`.
            let (low, high) = unsafe { (load(words.add(4 * i)), load(words.add(4 * i + 1))) };
            let both = _mm256_or_si256(_mm256_srl_epi64(low, down), _mm256_sll_epi64(high, up));
            // SAFETY: place for four.
            unsafe { _mm256_storeu_si256(four.as_mut_ptr().cast(), both) };
        }
        super::portable(&from[4 * n..], by, rest);
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_are_those_of_the_words(words in prop::collection::vec(any::<u64>(), 1..40), by in 0usize..=64) {
            let from: Vec<AtomicU64> = words.iter().map(|&word| AtomicU64::new(word.to_le())).collect();
            let bit = |i: usize| words[i / 64] >> (i % 64) & 1;
            let n = words.len() - 1;
            let expected: Vec<u64> =
                (0..n).map(|i| (0..64).map(|b| bit(64 * i + by + b) << b).sum()).collect();
            let mut to = vec![7; n];
            copy(&from, by, &mut to);
            prop_assert_eq!(&to, &expected);
            portable(&from, by, &mut to);
            prop_assert_eq!(&to, &expected);
        }
    }
}

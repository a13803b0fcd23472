//! Searching the 64 prefixes of a node at once. No sorted order and no binary search is needed:
//! the number of live slots below the key is its rank.
//!
//! The prefixes may be changing under the search (a free slot being filled, an exclusive rewrite).
//! The caller validates the version afterwards. The language has no atomic vector. So an
//! instruction loads the vectors, and the compiler knows only that it reads memory. Each number in
//! them is 8-byte aligned, and no machine tears it. The result is bounded for all numbers.

/// Slots of a node. All their prefixes are searched at once.
pub(crate) const SLOTS: usize = 64;

/// Counts the slots in `live` with a prefix below `p`.
///
/// # Safety
/// `prefixes` points to 64 mapped, aligned numbers.
#[inline]
pub(crate) unsafe fn rank(prefixes: *const u64, p: u64, live: u64) -> usize {
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the processor has these features; the rest is the caller's contract.
        return unsafe { x86::rank(prefixes, p, live) };
    }
    // SAFETY: the caller's contract.
    unsafe { rank_portable(prefixes, p, live) }
}

/// Counts the numbers below `p` among `len` ascending ones. `len` is a multiple of 8.
///
/// # Safety
/// `numbers` points to `len` mapped, aligned numbers, which do not change.
#[inline]
pub(crate) unsafe fn below(numbers: *const u64, len: usize, p: u64) -> usize {
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the processor has these features; the rest is the caller's contract.
        return unsafe { x86::below(numbers, len, p) };
    }
    // SAFETY: the caller's contract.
    unsafe { core::slice::from_raw_parts(numbers, len) }.iter().filter(|&&x| x < p).count()
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::has_avx2;
#[cfg(all(target_arch = "x86_64", not(loom)))]
pub(crate) use x86::load;

/// Counts on any processor, by a loop without branches. The compiler turns it into vector
/// instructions of the target.
///
/// # Safety
/// As [`rank`].
unsafe fn rank_portable(prefixes: *const u64, p: u64, live: u64) -> usize {
    let mut below = 0u64;
    for i in 0..SLOTS {
        // SAFETY: i < 64.
        let prefix = unsafe { &*prefixes.add(i).cast::<core::sync::atomic::AtomicU64>() }
            .load(core::sync::atomic::Ordering::Relaxed);
        below |= u64::from(prefix < p) << i;
    }
    (below & live).count_ones() as usize
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use core::arch::x86_64::*;
    use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

    const UNKNOWN: u8 = 0;
    const ABSENT: u8 = 1;
    const PRESENT: u8 = 2;

    /// Detected at first use; every thread finds the same.
    static AVX2: AtomicU8 = AtomicU8::new(UNKNOWN);

    /// Returns true if the processor has AVX2 and POPCNT, and no measurement forbids them.
    #[inline]
    pub(crate) fn has_avx2() -> bool {
        match AVX2.load(Relaxed) {
            UNKNOWN => detect(),
            known => known == PRESENT,
        }
    }

    #[cold]
    fn detect() -> bool {
        let has = is_x86_feature_detected!("popcnt") && is_x86_feature_detected!("avx2");
        #[cfg(feature = "bench")]
        let has = has && !forbidden();
        AVX2.store(if has { PRESENT } else { ABSENT }, Relaxed);
        has
    }

    #[cfg(feature = "bench")]
    fn forbidden() -> bool {
        match std::env::var("NITRO_SIMD").as_deref() {
            Err(_) => false,
            Ok("none") => true,
            Ok(other) => panic!("NITRO_SIMD is none, not {other}"),
        }
    }

    /// Loads four numbers that may be changing.
    ///
    /// # Safety
    /// `numbers` points to four mapped, aligned numbers.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(crate) unsafe fn load(numbers: *const u64) -> __m256i {
        let v: __m256i;
        // SAFETY: reads 32 bytes, by the contract; such a load exists since AVX.
        unsafe {
            core::arch::asm!(
                "vmovdqu {v}, [{numbers}]",
                v = out(ymm_reg) v,
                numbers = in(reg) numbers,
                options(pure, readonly, nostack, preserves_flags)
            );
        }
        v
    }

    /// # Safety
    /// As [`super::below`], and the processor has AVX2.
    #[target_feature(enable = "avx2,popcnt")]
    pub(super) unsafe fn below(numbers: *const u64, len: usize, p: u64) -> usize {
        let flip = _mm256_set1_epi64x(i64::MIN);
        let key = _mm256_xor_si256(_mm256_set1_epi64x(p as i64), flip);
        // A comparison that holds is -1. Two counters do not wait for each other.
        let mut sums = [_mm256_setzero_si256(); 2];
        for i in 0..len / 8 {
            for (half, sum) in sums.iter_mut().enumerate() {
                // SAFETY: 8 * i + 8 <= len.
                let v = unsafe { load(numbers.add(8 * i + 4 * half)) };
                *sum = _mm256_sub_epi64(*sum, _mm256_cmpgt_epi64(key, _mm256_xor_si256(v, flip)));
            }
        }
        total(sums[0], sums[1])
    }

    /// Returns the sum of eight counts.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn total(a: __m256i, b: __m256i) -> usize {
        let sum = _mm256_add_epi64(a, b);
        let sum = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
        (_mm_cvtsi128_si64(sum) + _mm_extract_epi64::<1>(sum)) as usize
    }

    /// # Safety
    /// As [`super::rank`], and the processor has AVX2.
    #[target_feature(enable = "avx2,popcnt")]
    pub(super) unsafe fn rank(prefixes: *const u64, p: u64, live: u64) -> usize {
        // There is only a signed comparison: flip the sign bits.
        let flip = _mm256_set1_epi64x(i64::MIN);
        let key = _mm256_xor_si256(_mm256_set1_epi64x(p as i64), flip);
        let mut below = 0u64;
        for half in 0..2 {
            let below_key = |i: usize| {
                // SAFETY: 4 * (8 * half + i) + 4 <= 64.
                let v = unsafe { load(prefixes.add(32 * half + 4 * i)) };
                _mm256_cmpgt_epi64(key, _mm256_xor_si256(v, flip))
            };
            below |= u64::from(bits(core::array::from_fn(below_key))) << (32 * half);
        }
        (below & live).count_ones() as usize
    }

    /// Returns one bit for each of 32 comparisons. Narrowing to bytes leaves pairs of them
    /// alternately in the low and the high half of the vector.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn bits(m: [__m256i; 8]) -> u32 {
        let two = |a, b| {
            let (a, b) = (_mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
            _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(a, b))
        };
        let low = _mm256_packs_epi32(two(m[0], m[1]), two(m[2], m[3]));
        let high = _mm256_packs_epi32(two(m[4], m[5]), two(m[6], m[7]));
        let bytes = _mm256_packs_epi16(low, high);
        let (a, b) = (_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes));
        let first = _mm_movemask_epi8(_mm_unpacklo_epi16(a, b)) as u32;
        let second = _mm_movemask_epi8(_mm_unpackhi_epi16(a, b)) as u32;
        first | second << 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition of the search.
    fn expected(prefixes: &[u64; SLOTS], p: u64, live: u64) -> usize {
        (0..SLOTS).filter(|&i| live >> i & 1 == 1 && prefixes[i] < p).count()
    }

    proptest! {
        #[test]
        fn all_paths_agree(
            values in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..4, Just(u64::MAX), Just(1 << 63)], SLOTS),
            p in prop_oneof![any::<u64>(), 0u64..4, Just(u64::MAX), Just(1 << 63)],
            live: u64,
        ) {
            let prefixes: [u64; SLOTS] = values.try_into().unwrap();
            let want = expected(&prefixes, p, live);
            let mut sorted = prefixes;
            sorted.sort_unstable();
            for len in [0, 8, 16, 64] {
                let want = sorted[..len].iter().filter(|&&x| x < p).count();
                // SAFETY: at most 64 numbers.
                unsafe { prop_assert_eq!(below(sorted.as_ptr(), len, p), want) };
            }
            // SAFETY: 64 numbers.
            unsafe {
                prop_assert_eq!(rank(prefixes.as_ptr(), p, live), want);
                prop_assert_eq!(rank_portable(prefixes.as_ptr(), p, live), want);
            }
        }
    }
}

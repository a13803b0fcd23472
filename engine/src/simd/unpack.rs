//! Reading packed numbers of a few bits, eight at once. Eight numbers of any width begin at the
//! same bits of their bytes as the next eight. These are as many bytes further as one number has
//! bits.

/// Most words that the numbers may be in.
pub(crate) const WORDS: usize = 64;
/// Most bits of a number. It is then inside eight bytes, wherever it begins.
pub(crate) const WIDEST: usize = 57;
/// Most numbers that are read.
const MOST: usize = 64;

/// Reads numbers of `width` bits from bit `at` on, and stores the value that is made of each, until
/// the output is full.
///
/// # Panics
/// A number is too wide, or is behind the end of these words.
#[inline(always)]
pub(crate) fn unpack(
    words: &[u64; WORDS],
    at: usize,
    width: usize,
    out: &mut [u64],
    make: impl Fn(u64) -> u64,
) {
    assert!(at < 64 && width <= WIDEST && out.len() <= MOST);
    #[cfg(target_arch = "x86_64")]
    if crate::simd::search::has_avx2() {
        // SAFETY: the processor has it, and numbers are as was asserted.
        return unsafe { x86::unpack(words, at, width, out, make) };
    }
    portable(words, at, width, out, make);
}

#[inline(always)]
fn portable(
    words: &[u64; WORDS],
    mut at: usize,
    width: usize,
    out: &mut [u64],
    make: impl Fn(u64) -> u64,
) {
    let mask = (1 << width) - 1;
    for to in out {
        let [low, high] = [0, 1].map(|i| words[(at / 64 + i) % WORDS]);
        *to = make((low >> (at % 64) | high << 1 << (63 - at % 64)) & mask);
        at += width;
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{MOST, WIDEST, WORDS};
    use core::arch::x86_64::*;

    // The last number begins in this byte at the latest, and is read with seven more.
    const _: () = assert!((63 + (MOST - 1) * WIDEST) / 8 + 8 <= 8 * WORDS);

    /// # Safety
    /// `at` < 64, `width` <= [`WIDEST`], and there is place for at most [`MOST`].
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn unpack(
        words: &[u64; WORDS],
        at: usize,
        width: usize,
        out: &mut [u64],
        make: impl Fn(u64) -> u64,
    ) {
        let begins: [usize; 8] = core::array::from_fn(|i| (at + i * width) / 8);
        let shifts: [i64; 8] = core::array::from_fn(|i| ((at + i * width) % 8) as i64);
        let shifts = [four(|i| shifts[i], 0), four(|i| shifts[i], 4)];
        let mask = _mm256_set1_epi64x((1 << width) - 1);
        let bytes: *const u8 = words.as_ptr().cast();
        let number = |at: usize| {
            debug_assert!(at + 8 <= 8 * WORDS);
            // SAFETY: inside the words, as is said where it is called.
            unsafe { bytes.add(at).cast::<i64>().read_unaligned() }
        };
        let (eights, rest) = out.as_chunks_mut::<8>();
        let n = eights.len();
        for (step, to) in eights.iter_mut().enumerate() {
            // There is place for these, so they are inside.
            let of = |i: usize| number(step * width + begins[i]);
            store(to, [four(of, 0), four(of, 4)], shifts, mask);
        }
        if !rest.is_empty() {
            // Those for which there is no place need not be.
            let of = |i: usize| number((n * width + begins[i]).min(8 * WORDS - 8));
            let mut last = [0; 8];
            store(&mut last, [four(of, 0), four(of, 4)], shifts, mask);
            rest.copy_from_slice(&last[..rest.len()]);
        }
        for number in out {
            *number = make(*number);
        }
    }

    #[target_feature(enable = "avx2")]
    fn store(to: &mut [u64; 8], from: [__m256i; 2], shifts: [__m256i; 2], mask: __m256i) {
        let to: *mut __m256i = to.as_mut_ptr().cast();
        for (half, (from, by)) in from.into_iter().zip(shifts).enumerate() {
            let four = _mm256_and_si256(_mm256_srlv_epi64(from, by), mask);
            // SAFETY: place for eight.
            unsafe { _mm256_storeu_si256(to.add(half), four) };
        }
    }

    #[target_feature(enable = "avx2")]
    fn four(of: impl Fn(usize) -> i64, from: usize) -> __m256i {
        _mm256_set_epi64x(of(from + 3), of(from + 2), of(from + 1), of(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_one_by_one() {
        let mut x = 1u64;
        let words = core::array::from_fn(|_| {
            x = x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            x ^ x >> 29
        });
        for width in 0..=WIDEST {
            for at in 0..64 {
                for n in [0, 1, 7, 8, 9, 15, 16, 31, 40, 63, 64] {
                    let [mut all, mut each] = [[0; MOST]; 2];
                    unpack(&words, at, width, &mut all[..n], |number| number ^ 5);
                    portable(&words, at, width, &mut each[..n], |number| number ^ 5);
                    assert_eq!(all, each, "{n} of {width} bits from {at} on");
                }
            }
        }
    }
}

//! The bytes that symbols of few bits stand for (`packed/alphabet.rs`), eight symbols at once.
//!
//! A reader of many keys uses a decoding function for this processor. The function is made here,
//! where the processor's instructions are known. The caller's work is compiled around it.

/// Work with symbols. It is compiled once for each way to decode them.
pub(crate) trait Work {
    type Done;

    /// Does the work. `spell` makes bytes, the lowest first, of the eight symbols in the lowest
    /// bits. It must be inlined, or each eight symbols are a call.
    fn with(self, spell: impl Fn(u64) -> u64) -> Self::Done;
}

/// Does the work with symbols of `width` <= 8 bits. Symbols from `used` on stand for anything. They
/// occur in torn leaves.
#[inline]
pub(crate) fn with_table<W: Work>(
    table: &[u8; 128],
    used: usize,
    width: usize,
    work: W,
) -> W::Done {
    #[cfg(target_arch = "x86_64")]
    if crate::simd::search::has_avx2() {
        // SAFETY: the processor has it.
        return unsafe { x86::with_table(table, used, width, work) };
    }
    let _ = used;
    work.with(|symbols| portable(table, symbols, width))
}

/// Decodes one symbol after the other.
#[inline]
pub(crate) fn portable(table: &[u8; 128], symbols: u64, width: usize) -> u64 {
    let mask = (1 << width) - 1;
    let byte = |i: usize| table[(symbols >> (i * width) & mask) as usize % table.len()];
    u64::from_le_bytes(core::array::from_fn(byte))
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Work;
    use core::arch::x86_64::*;

    /// Does the same as [`super::with_table`], without a look-up in memory.
    #[target_feature(enable = "avx2")]
    pub(super) fn with_table<W: Work>(
        table: &[u8; 128],
        used: usize,
        width: usize,
        work: W,
    ) -> W::Done {
        let (sixteens, _) = table.as_chunks::<16>();
        let sixteens: [__m128i; 8] = core::array::from_fn(|i| load(&sixteens[i]));
        let sixteens = &sixteens[..used.div_ceil(16).min(8)];
        // Each symbol gets a lane of 16 bits, with the two bytes that have it. A multiplication
        // removes the bits above it. A shift removes those below.
        let pick = core::array::from_fn(|i| (i / 2 * width / 8 + i % 2) as u8);
        let up = |i: usize| 16usize.saturating_sub(width + i * width % 8);
        let lanes: [[u8; 2]; 8] = core::array::from_fn(|i| (1u16 << up(i).min(15)).to_le_bytes());
        let mut factors = [0; 16];
        factors.copy_from_slice(lanes.as_flattened());
        let (pick, factors) = (load(&pick), load(&factors));
        let down = _mm_cvtsi64_si128(16i64.saturating_sub(width as i64));
        work.with(|symbols| {
            let lanes = _mm_shuffle_epi8(_mm_cvtsi64_si128(symbols as i64), pick);
            let lanes = _mm_srl_epi16(_mm_mullo_epi16(lanes, factors), down);
            let symbols = _mm_packus_epi16(lanes, lanes);
            let mut bytes = _mm_setzero_si128();
            for (i, &sixteen) in sixteens.iter().enumerate() {
                // Of the other sixteens they become 0x80 and more, for which there is nothing.
                let here = _mm_xor_si128(symbols, _mm_set1_epi8(16 * i as i8));
                let here = _mm_adds_epu8(here, _mm_set1_epi8(0x70));
                bytes = _mm_or_si128(bytes, _mm_shuffle_epi8(sixteen, here));
            }
            _mm_cvtsi128_si64(bytes) as u64
        })
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(bytes: &[u8; 16]) -> __m128i {
        // SAFETY: sixteen bytes; the load asks for no alignment.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Each<'s>(&'s [u64]);

    impl Work for Each<'_> {
        type Done = Vec<u64>;

        fn with(self, spell: impl Fn(u64) -> u64) -> Vec<u64> {
            self.0.iter().map(|&symbols| spell(symbols)).collect()
        }
    }

    proptest! {
        /// As one symbol after the other, whatever is above the eight.
        #[test]
        fn all_ways_agree(
            width in 4usize..=7,
            used in 1usize..=128,
            table in prop::collection::vec(any::<u8>(), 128),
            numbers in prop::collection::vec(prop::collection::vec(any::<u8>(), 8), 1..20),
            above: u8,
        ) {
            let (used, table): (_, [u8; 128]) = (used.min(1 << width), table.try_into().unwrap());
            let above = u64::from(above).checked_shl(8 * width as u32).unwrap_or(0);
            let symbols: Vec<u64> = numbers
                .iter()
                .map(|eight| {
                    let each = eight.iter().rev().map(|&byte| u64::from(byte) % used as u64);
                    above | each.fold(0, |all, symbol| all << width | symbol)
                })
                .collect();
            let expected: Vec<u64> = symbols.iter().map(|&s| portable(&table, s, width)).collect();
            prop_assert_eq!(with_table(&table, used, width, Each(&symbols)), expected);
        }
    }
}

//! Orders and sets of slots.

use super::{Block, PERM, Perm, SLOTS};
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

impl Block {
    #[inline]
    pub(crate) fn perm(self, side: usize) -> Perm {
        let mut perm = [0; SLOTS];
        for (i, word) in perm.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *word = self.word(PERM, 8 * (side & 1) + i).load(Relaxed).to_ne_bytes();
        }
        perm
    }
    #[inline]
    pub(crate) fn set_perm(self, side: usize, perm: &Perm) {
        for (i, word) in perm.as_chunks::<8>().0.iter().enumerate() {
            let cell = self.word(PERM, 8 * (side & 1) + i);
            cell.store(u64::from_ne_bytes(*word), Relaxed);
        }
    }
    /// Returns the slot at `rank`.
    #[inline]
    pub(crate) fn slot(self, side: usize, rank: usize) -> usize {
        (self.perm_word(side, rank) >> (8 * (rank % 8))) as usize % SLOTS
    }
    /// Returns the slots at these ranks.
    #[inline]
    pub(crate) fn slots(self, side: usize, ranks: Range<usize>) -> impl Iterator<Item = usize> {
        let mut word = self.perm_word(side, ranks.start) >> (8 * (ranks.start % 8));
        ranks.map(move |rank| {
            let slot = word as usize % SLOTS;
            word >>= 8;
            if rank % 8 == 7 {
                word = self.perm_word(side, rank + 1);
            }
            slot
        })
    }
    /// Reads the word with the slots of `rank` and its neighbours, the lowest first.
    #[inline]
    fn perm_word(self, side: usize, rank: usize) -> u64 {
        let index = 8 * (side & 1) + rank % SLOTS / 8;
        self.word(PERM, index).load(Relaxed).to_le()
    }
}

/// Returns `perm` with `slot` inserted at `rank`.
#[inline]
pub(crate) fn insert_slot(perm: &Perm, rank: usize, slot: usize) -> Perm {
    let mut shifted = [0; SLOTS + 1];
    shifted[1..].copy_from_slice(perm);
    let mut out = [0; SLOTS];
    // Without a branch, so that it becomes vector instructions.
    for i in 0..SLOTS {
        let keep = u8::from((i as u8) < rank as u8).wrapping_neg();
        out[i] = perm[i] & keep | shifted[i] & !keep;
    }
    out[rank] = slot as u8;
    out
}

/// Returns the mask of the lowest `n` slots.
pub(crate) fn full_mask(n: usize) -> u64 {
    if n == SLOTS { u64::MAX } else { (1 << n) - 1 }
}

/// Returns those of the first `n` slots of `perm` that are in `keep`, in order, and their number.
pub(crate) fn keep_slots(perm: &Perm, n: usize, keep: u64) -> (Perm, usize) {
    let mut out = [0; SLOTS];
    let mut kept = 0;
    for &slot in &perm[..n] {
        out[kept % SLOTS] = slot;
        kept += (keep >> slot & 1) as usize;
    }
    if kept < SLOTS {
        out[kept] = 0;
    }
    (out, kept)
}

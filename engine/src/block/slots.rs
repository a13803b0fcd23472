//! Orders and sets of slots.

use super::{Perm, SLOTS};

/// `perm` with `slot` at `rank`, everything from there on one further.
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

/// The lowest `n` slots.
pub(crate) fn full_mask(n: usize) -> u64 {
    if n == SLOTS { u64::MAX } else { (1 << n) - 1 }
}

/// The slots of `perm`'s first `n` that are in `keep`, in order, and how many.
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

//! Removing entries of a batch from their leaf, if it has not changed since the copy.

use super::{Cursor, NONE, State};
use crate::index::root::Index;
use crate::memory::process::Process;
use crate::node::block::{SLOTS, View};
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;
use crate::tree::reserve::Spare;
use crate::tree::{packed, remove};

/// Stands for the rank of an entry that an earlier call has removed.
const GONE: u8 = u8::MAX;

impl Cursor {
    /// Removes entries from the index by their positions in the batch, if their leaf has not
    /// changed since it was copied. Returns how many this call has removed. Beside a snapshot, a
    /// leaf that would need another form to keep removed entries stays as it is.
    ///
    /// # Panics
    /// The batch does not have one of the positions.
    pub fn remove(&mut self, p: &Process, index: Index, which: &[u16]) -> usize {
        if self.n == 0 || which.is_empty() || self.of != Some(index.identity()) {
            return 0;
        }
        assert!(which.iter().all(|&i| usize::from(i) < self.n), "no such position");
        stop!("cursor remove: begins");
        if self.packed {
            return self.remove_packed(p, index, which).unwrap_or(0);
        }
        let slots = which.iter().map(|&i| self.slots[i as usize]);
        let wanted = slots.fold(0, |mask, slot| mask | 1u64 << (slot % SLOTS as u8));
        let writer = index.enter_writer(p);
        self.forget_what_left(&index);
        let State::Batch { leaf, ver, next, first, last, from, to, n } = self.state else {
            return 0;
        };
        // In one epoch the memory keeps its type, and a version does not come back. So if this
        // succeeds, the leaf is the one that was copied, and it has not changed.
        let changed = mutant!("a cursor removes from the leaf that it copied");
        let ver = if changed { index.block(leaf).view().ver } else { ver };
        if ver == NONE {
            return 0;
        }
        stop!("cursor remove: of this epoch");
        let Some(latch) = (View { b: index.block(leaf), ver }).latch() else { return 0 };
        stop!("cursor remove: latched");
        // Not what was removed by an earlier call.
        let gone = match mutant!("a cursor removes what is not dead") {
            true => wanted & latch.v.mask(),
            false => latch.b().not_dead(wanted & latch.v.mask()),
        };
        let before = latch.v.mask().count_ones() as usize;
        let latch = remove::remove_slots(&index, latch, leaf, gone, writer.term());
        // All that went away was in the batch.
        let less = before - latch.v.mask().count_ones() as usize;
        let (ver, to, n) = (latch.v.ver, to - less, n - less);
        self.state = State::Batch { leaf, ver, next, first, last, from, to, n };
        stop!("cursor remove: removed");
        latch.release();
        let removed = gone.count_ones() as usize;
        index.shared().counters.removed(p, removed as u64);
        removed
    }

    /// Removes entries from a packed leaf. Returns None if it is not in that state any more.
    fn remove_packed(&mut self, p: &Process, index: Index, which: &[u16]) -> Option<usize> {
        let wanted = which.iter().fold(0, |set, &i| set | 1u64 << i);
        let ranks = self.slots;
        let mine = |i: &usize| wanted >> i & 1 != 0 && ranks[*i] != GONE;
        // Before the latch: it may have to be allocated.
        let mut spare = Spare::take();
        let draft = spare.draft();
        let _writer = index.enter_writer(p);
        self.forget_what_left(&index);
        let State::Batch { leaf, ver, next, first, last, from, to, n } = self.state else {
            return None;
        };
        if ver == NONE {
            return None;
        }
        let (mut gone, mut removed) = ([0; SLOTS], 0);
        for i in (0..self.n).filter(mine) {
            gone[removed] = (from + ranks[i] as usize) as u16;
            removed += 1;
        }
        let v = View { b: index.block(leaf), ver };
        let latch = packed::remove_ranks(&index, leaf, v, &gone[..removed], draft)?;
        let mut less = 0;
        for (i, rank) in self.slots[..self.n].iter_mut().enumerate() {
            if mine(&i) {
                *rank = GONE;
                less += 1;
            } else if *rank != GONE {
                *rank -= less;
            }
        }
        let (ver, to, n) = (latch.v.ver, to - removed, n - removed);
        self.state = State::Batch { leaf, ver, next, first, last, from, to, n };
        stop!("cursor remove: removed");
        latch.release();
        index.shared().counters.removed(p, removed as u64);
        Some(removed)
    }
}

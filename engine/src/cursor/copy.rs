//! Copying a batch out of one state of a leaf.

use super::{Cursor, Outside};
use crate::block::{View, tid_of};
use crate::key::{Retry, append_key};
use crate::root::Index;

impl Cursor {
    /// Copies the visible entries of these ranks, and the first and the last of all of them.
    pub(super) fn copy(
        &mut self,
        index: Index,
        v: &View,
        from: usize,
        to: usize,
    ) -> Result<(), Retry> {
        let copied = self.copy_unchecked(index, v, from, to);
        if copied.is_err() || !v.valid() {
            self.n = 0;
            self.keys.clear();
            return Err(Retry);
        }
        if from < to {
            core::mem::swap(&mut self.first, &mut self.new_first);
            core::mem::swap(&mut self.last, &mut self.new_last);
        }
        Ok(())
    }

    /// If nothing was copied: what is outside of the range, `rank` being the place of the nearest entry if
    /// it is in this leaf.
    pub(super) fn look_outside(
        &mut self,
        index: Index,
        v: &View,
        rank: Option<usize>,
    ) -> Result<Outside, Retry> {
        let Some(rank) = rank.filter(|_| self.n == 0) else { return Ok(Outside::Nothing) };
        let slot = v.slot(rank);
        self.nearest.clear();
        append_key(index.area, v, slot, v.b.tid_word(slot), &mut self.nearest)?;
        if v.valid() { Ok(Outside::Nearest) } else { Err(Retry) }
    }

    fn copy_unchecked(
        &mut self,
        index: Index,
        v: &View,
        from: usize,
        to: usize,
    ) -> Result<(), Retry> {
        let b = v.b;
        self.n = 0;
        self.keys.clear();
        if from >= to {
            return Ok(());
        }
        let all = b.ndead() == 0 && b.max_born() <= self.sn;
        let mut n = 0;
        for slot in v.slots(from..to) {
            if !all && !b.visible(slot, self.sn) {
                continue;
            }
            let word = b.tid_word(slot);
            self.tids[n] = tid_of(word);
            self.slots[n] = slot as u8;
            if self.want_keys {
                append_key(index.area, v, slot, word, &mut self.keys)?;
                self.ends[n] = self.keys.len() as u32;
            }
            n += 1;
        }
        self.n = n;
        for (bound, rank) in [(&mut self.new_first, from), (&mut self.new_last, to - 1)] {
            let slot = v.slot(rank);
            let word = b.tid_word(slot);
            bound.key.clear();
            append_key(index.area, v, slot, word, &mut bound.key)?;
            bound.tid = tid_of(word);
        }
        Ok(())
    }
}

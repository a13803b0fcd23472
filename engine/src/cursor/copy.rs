//! Copying a batch out of one state of a leaf.

use super::Cursor;
use crate::block::{SLOTS, View, tid_of};
use crate::key::{Retry, append_key};
use crate::packed::Leaf;
use crate::root::Index;

/// The slots of a batch of a packed leaf.
const IN_ORDER: [u8; SLOTS] = {
    let mut slots = [0; SLOTS];
    let mut i = 0;
    while i < SLOTS {
        slots[i] = i as u8;
        i += 1;
    }
    slots
};

impl Cursor {
    /// Copies the visible entries of these ranks, and the first and the last of all of them.
    pub(super) fn copy(
        &mut self,
        index: Index,
        v: &View,
        packed: Option<&Leaf<'_>>,
        from: usize,
        to: usize,
    ) -> Result<(), Retry> {
        let copied = self.copy_unchecked(index, v, packed, from, to);
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

    fn copy_unchecked(
        &mut self,
        index: Index,
        v: &View,
        packed: Option<&Leaf<'_>>,
        from: usize,
        to: usize,
    ) -> Result<(), Retry> {
        let b = v.b;
        self.n = 0;
        self.keys.clear();
        if from >= to {
            return Ok(());
        }
        self.packed = false;
        if let Some(leaf) = packed {
            self.packed = true;
            self.slots = IN_ORDER;
            self.n = leaf.tids(from..to, &mut self.tids);
            self.new_first.key.clear();
            self.new_last.key.clear();
            if self.want_keys && self.n > 0 {
                // Less than there are TIDs only of what is torn.
                let n = leaf.keys(from..to, &mut self.keys, &mut self.ends).max(1);
                let start = if n == 1 { 0 } else { self.ends[n - 2] as usize };
                let (first, last) = (..self.ends[0] as usize, start..self.ends[n - 1] as usize);
                self.new_first.key.extend_from_slice(self.keys.get(first).unwrap_or_default());
                self.new_last.key.extend_from_slice(self.keys.get(last).unwrap_or_default());
                (self.new_first.tid, self.new_last.tid) = (self.tids[0], self.tids[n - 1]);
                return Ok(());
            }
            self.new_first.tid = leaf.entry(from, &mut self.new_first.key);
            if to - from == 1 {
                self.new_last.tid = self.new_first.tid;
                self.new_last.key.clone_from(&self.new_first.key);
            } else {
                self.new_last.tid = leaf.entry(to - 1, &mut self.new_last.key);
            }
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
                self.abbrevs[n] = b.prefix(slot);
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

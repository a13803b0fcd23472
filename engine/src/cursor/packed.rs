//! Removing entries of a batch from a packed leaf.

use super::{Cursor, NONE, Remove, State};
use crate::KeyOrder;
use crate::barrier::Process;
use crate::block::{SLOTS, View};
use crate::reserve::Spare;
use crate::root::Index;
use crate::stop::stop;

/// In place of a rank: removed by an earlier call.
const GONE: u8 = u8::MAX;

impl Cursor {
    /// Removes entries from the leaf in the state in which it was copied; returns how many, or None if it
    /// is in that state no more.
    pub(super) fn remove_packed<O: KeyOrder>(
        &mut self,
        p: &Process,
        index: Index,
        order: &O,
        which: &[u16],
        kind: Remove,
    ) -> Option<usize> {
        let wanted = which.iter().fold(0, |set, &i| set | 1u64 << i);
        let ranks = self.slots;
        let mine = |i: &usize| wanted >> i & 1 != 0 && ranks[*i] != GONE;
        // Before the latch: it may have to be allocated.
        let mut spare = Spare::take();
        let image = spare.image();
        let writer = index.enter_writer(p);
        self.forget_what_left(&index);
        let State::Batch { leaf, ver, next, first, last, from, to, n } = self.state else {
            return None;
        };
        if ver == NONE {
            return None;
        }
        let v = View { b: index.block(leaf), ver };
        if index.shared().snapshots.quiet() {
            let mut latch = v.latch()?;
            stop!("cursor remove: latched");
            // Also of those who came meanwhile: what a snapshot sees stays.
            if index.shared().snapshots.quiet() {
                let (mut removed, mut sparse) = (0, false);
                for i in (0..self.n).rev().filter(mine) {
                    let arranged = match latch.v.packed() {
                        Ok(Some(leaf)) => {
                            sparse = leaf.is_sparse();
                            leaf.remove(from + ranks[i] as usize, image)
                        }
                        _ => false,
                    };
                    if arranged {
                        latch.exclude();
                        image.store(v.b.words());
                        latch = latch.finish_latched();
                        self.slots[i] = GONE;
                        removed += 1;
                        for rank in self.slots[i + 1..self.n].iter_mut().filter(|r| **r != GONE) {
                            *rank -= 1;
                        }
                    }
                }
                let (ver, to, n) = (latch.v.ver, to - removed, n - removed);
                self.state = State::Batch { leaf, ver, next, first, last, from, to, n };
                if sparse {
                    index.sparse(&latch, leaf);
                }
                stop!("cursor remove: removed");
                latch.release();
                index.shared().counters.removed(p, removed as u64);
                return Some(removed);
            }
            latch.release();
        }
        // Not out of the section: what is remembered holds in it.
        let section = writer.into_reader();
        if kind == Remove::IfUnchanged {
            return Some(0);
        }
        // Each by its key, and the leaf gets slots.
        let mut entries = Vec::new();
        for i in (0..self.n).filter(mine) {
            let (mut key, mut ends) = (Vec::new(), [0; SLOTS]);
            let rank = from + ranks[i] as usize;
            v.packed().ok()??.keys(rank..rank + 1, &mut key, &mut ends);
            entries.push((key, self.tids[i]));
        }
        if !index.block(leaf).is_at(ver) || !v.valid() {
            return None;
        }
        drop(section);
        Some(entries.iter().filter(|(key, tid)| index.remove(p, order, key, *tid)).count())
    }
}

//! Removing entries of a batch, from the leaf that they were copied from if it is as it was.

use super::{Cursor, NONE, State};
use crate::barrier::Process;
use crate::block::{SLOTS, View};
use crate::merge::SPARSE;
use crate::mutants::mutant;
use crate::reserve::Spare;
use crate::root::{CURRENT, Index};
use crate::stop::stop;
use crate::{KeyOrder, Tid};
use core::cmp::Ordering;

/// What [`Cursor::remove`] does when the leaf has changed since its batch was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remove {
    /// Nothing. The same beside a snapshot, if the leaf had to change before it could keep what goes.
    IfUnchanged,
    /// Searches the entries. Without keys in the batch, all entries with these TIDs in the range
    /// that the batch covered are removed.
    Always,
}

/// In place of a rank: removed by an earlier call.
const GONE: u8 = u8::MAX;

impl Cursor {
    /// Removes entries of the batch from the index that it is from, by their positions in the batch;
    /// returns how many were removed by this call.
    ///
    /// # Panics
    /// The batch has no such position.
    pub fn remove<O: KeyOrder>(
        &mut self,
        p: &Process,
        index: Index,
        order: &O,
        which: &[u16],
        kind: Remove,
    ) -> usize {
        index.check_order::<O>();
        if self.n == 0 || which.is_empty() || self.of != Some(index.identity()) {
            return 0;
        }
        assert!(which.iter().all(|&i| usize::from(i) < self.n), "no such position");
        stop!("cursor remove: begins");
        if self.packed
            && let Some(removed) = self.remove_packed(p, index, order, which, kind)
        {
            return removed;
        }
        let slots = which.iter().map(|&i| self.slots[i as usize]);
        let wanted = slots.fold(0, |mask, slot| mask | 1u64 << (slot % SLOTS as u8));
        let writer = index.enter_writer(p);
        self.forget_what_left(&index);
        let State::Batch { leaf, ver, next, first, last, from, to, n } = self.state else {
            return 0;
        };
        // In one epoch the memory keeps its type, and a version does not come back: if this succeeds, the
        // leaf is the one that was copied and has not changed.
        let changed = mutant!("a cursor removes from the leaf that it copied");
        let ver = if changed { index.block(leaf).view().ver } else { ver };
        if ver != NONE
            && !self.packed
            && let Some(latch) = (View { b: index.block(leaf), ver }).latch()
        {
            stop!("cursor remove: latched");
            // Not what was removed by an earlier call.
            let gone = match mutant!("a cursor removes what is not dead") {
                true => wanted & latch.v.mask(),
                false => latch.b().not_dead(wanted & latch.v.mask()),
            };
            let before = latch.v.mask().count_ones() as usize;
            let latch = index.remove_slots(latch, leaf, gone, writer.term());
            // All that went away was in the batch.
            let less = before - latch.v.mask().count_ones() as usize;
            let (ver, to, n) = (latch.v.ver, to - less, n - less);
            self.state = State::Batch { leaf, ver, next, first, last, from, to, n };
            stop!("cursor remove: removed");
            latch.release();
            let removed = gone.count_ones() as usize;
            index.shared().counters.removed(p, removed as u64);
            return removed;
        }
        drop(writer);
        match kind {
            Remove::IfUnchanged => 0,
            Remove::Always if self.want_keys => {
                let search =
                    |&&i: &&u16| index.remove(p, order, self.key(i as usize), self.tid(i as usize));
                which.iter().filter(search).count()
            }
            Remove::Always => self.remove_by_tid(p, index, order, which),
        }
    }

    /// Removes all entries with these TIDs from the range that the batch covered.
    fn remove_by_tid<O: KeyOrder>(
        &self,
        p: &Process,
        index: Index,
        order: &O,
        which: &[u16],
    ) -> usize {
        let mut victims: Vec<Tid> = which.iter().map(|&i| self.tid(i as usize)).collect();
        victims.sort_unstable();
        let mut cursor = Cursor::new(true);
        cursor.set_range(&self.first.key, None, CURRENT);
        // Of a key with many entries only those that the batch had.
        cursor.lower_tid = self.first.tid;
        let mut removed = 0;
        while cursor.next(p, index, order) > 0 {
            for i in 0..cursor.len() {
                let (key, tid) = (cursor.key(i), cursor.tid(i));
                let ordering = crate::compare(order, key, &self.last.key);
                if ordering.then(tid.cmp(&self.last.tid)) == Ordering::Greater {
                    return removed;
                }
                if victims.binary_search(&tid).is_ok() {
                    removed += usize::from(index.remove(p, order, key, tid));
                }
            }
        }
        removed
    }

    /// Removes entries from a packed leaf in the state in which it was copied; returns how many, or None if it
    /// is in that state no more.
    fn remove_packed<O: KeyOrder>(
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
                let mut gone = [0; SLOTS];
                let mut removed = 0;
                for i in (0..self.n).filter(mine) {
                    gone[removed] = from + ranks[i] as usize;
                    removed += 1;
                }
                let arranged = match latch.v.packed() {
                    Ok(Some(leaf)) => leaf.remove_all(&gone[..removed], image),
                    _ => false,
                };
                if !arranged {
                    latch.release();
                    return Some(0);
                }
                latch.exclude();
                image.store(v.b.words());
                latch = latch.finish_latched();
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
                if latch.v.is_sparse(SPARSE) {
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

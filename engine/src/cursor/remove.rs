//! Removing entries of a batch.

use super::{Cursor, NONE, State};
use crate::barrier::Process;
use crate::block::View;
use crate::mutants::mutant;
use crate::root::{CURRENT, Index};
use crate::stop::stop;
use crate::{KeyOrder, Tid};
use core::cmp::Ordering;

/// What [`Cursor::remove`] does when the leaf has changed since its batch was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remove {
    /// Nothing.
    IfUnchanged,
    /// Searches the entries. Without keys in the batch, all entries with these TIDs in the range
    /// that the batch covered are removed.
    Always,
}

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
        // Before the latch is taken, under which nothing may panic.
        let slots = which.iter().map(|&i| self.slots[..self.n][i as usize]);
        let wanted = slots.fold(0, |mask, slot| mask | 1u64 << slot);
        stop!("cursor remove: begins");
        let writer = index.enter_writer(p);
        self.forget_what_left(&index);
        let State::Batch { leaf, ver, next, first, last, part } = self.state else { return 0 };
        // In one epoch the memory keeps its type, and a version does not come back: if this succeeds, the
        // leaf is the one that was copied and has not changed.
        let changed = mutant!("a cursor removes from the leaf that it copied");
        let ver = if changed { index.block(leaf).view().ver } else { ver };
        if ver != NONE
            && let Some(latch) = (View { b: index.block(leaf), ver }).latch()
        {
            stop!("cursor remove: latched");
            // Not what was removed by an earlier call.
            let gone = match mutant!("a cursor removes what is not dead") {
                true => wanted & latch.v.mask(),
                false => latch.b().not_dead(wanted & latch.v.mask()),
            };
            let latch = index.remove_slots(latch, leaf, gone, writer.term());
            self.state = State::Batch { leaf, ver: latch.v.ver, next, first, last, part };
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
}

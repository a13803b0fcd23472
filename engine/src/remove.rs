//! Removing entries, and looking for one.
//!
//! An entry that some snapshot sees is marked dead with the term, without a new version of the leaf:
//! `dead` goes 0 -> t once, which readers may see at any time. Its leaf goes onto the dirty list. An
//! entry that no snapshot sees is dropped from the permutation at once.

use crate::area::Ref;
use crate::barrier::Process;
use crate::block::{DIRTY, LEFTMOST, Latch, PACKED, SLOTS, Tail, keep_slots};
use crate::insert::Step;
use crate::key::{Probe, chunk_refs};
use crate::merge::SPARSE;
use crate::mutants::mutant;
use crate::repack::Cutting;
use crate::reserve::Reserve;
use crate::root::Index;
use crate::stop::stop;
use crate::sync::Backoff;
use crate::{KeyOrder, Tid};
use core::sync::atomic::Ordering::*;

impl Index {
    /// Is (key, tid) there, and alive?
    pub fn contains<O: KeyOrder>(&self, p: &Process, order: &O, key: &[u8], tid: Tid) -> bool {
        self.check_order::<O>();
        let probe = Probe::new(order, key, tid);
        let _section = self.enter(p);
        loop {
            let spot = self.seek(&probe, true);
            let Some(slot) = spot.place.hit else { return false };
            let alive = spot.v.died(slot) == 0;
            // Otherwise another process has changed the leaf, and the slot may have another entry.
            if spot.v.valid() || mutant!("an entry that was found is validated") {
                return alive;
            }
        }
    }

    /// Removes (key, tid); false if it was not there, or dead.
    pub fn remove<O: KeyOrder>(&self, p: &Process, order: &O, key: &[u8], tid: Tid) -> bool {
        self.check_order::<O>();
        let probe = Probe::new(order, key, tid);
        let mut backoff = Backoff::default();
        let mut relieved = false;
        // Ends: a latch fails only where another process made progress. A packed leaf gets slots around
        // the entry once, unless another process packs it again. Without memory for slots, snapshots
        // are lost, and then the removal needs no slots.
        loop {
            let (_section, early) = if O::MEMCMP {
                (None, Some(self.enter_writer(p)))
            } else {
                (Some(self.enter(p)), None)
            };
            let spot = self.seek_to_write(&probe);
            let Some(slot) = spot.place.hit else { return false };
            stop!("remove: searched");
            let writer = early.unwrap_or_else(|| self.enter_writer(p));
            if spot.v.b.has(PACKED) {
                match self.remove_packed(&spot) {
                    Step::Done(_) => {
                        self.shared().counters.removed(p, 1);
                        return true;
                    }
                    Step::Slots => {
                        let section = writer.into_reader();
                        let reserve = &mut Reserve::new(self);
                        let step = self.cut_packed(&Cutting::of(&probe, &spot), true, reserve);
                        drop(section);
                        if matches!(step, Step::NoMemory(_) | Step::Crowded) {
                            // Once more, after the retired blocks were freed.
                            if relieved || !self.relieve() {
                                self.lose_snapshots();
                            }
                            relieved = true;
                        }
                    }
                    _ => {}
                }
                backoff.wait();
                continue;
            }
            let Some(latch) = spot.v.latch() else {
                // Its holder may have been descheduled. Snapshots need not wait meanwhile.
                drop(writer);
                backoff.wait();
                continue;
            };
            stop!("remove: latched");
            if spot.v.b.dead(slot) != 0 && !mutant!("a removal looks whether the entry is dead") {
                latch.release();
                return false;
            }
            self.remove_slots(latch, spot.leaf, 1 << slot, writer.term()).release();
            self.shared().counters.removed(p, 1);
            return true;
        }
    }

    /// Removes the live, not dead slots in `gone` from a latched leaf.
    pub(crate) fn remove_slots(&self, latch: Latch, leaf: Ref, gone: u64, term: u32) -> Latch {
        let b = latch.b();
        let horizon = self.shared().snapshots.horizon();
        stop!("remove: horizon read");
        let (mut drop, mut marked) = (0u64, 0u8);
        let mut rest = gone;
        while rest != 0 {
            let slot = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let born = b.born(slot);
            if horizon.needs(born, term)
                && !mutant!("snapshots are asked before an entry is dropped")
            {
                b.set_dead(slot, term);
                marked += 1;
                stop!("remove: marked");
            } else {
                drop |= 1 << slot;
            }
        }
        if marked > 0 {
            // Who sees the dead and not yet this, reads from before the removal.
            b.set_ndead(b.ndead() + marked);
            stop!("remove: dead counted");
            self.shared().counters.dead.fetch_add(marked.into(), Relaxed);
            self.make_dirty(&latch, leaf);
        }
        if drop == 0 {
            return latch;
        }
        let latch = self.drop_slots(latch, drop);
        if latch.v.mask().count_ones() as usize <= SPARSE {
            self.sparse(&latch, leaf);
        }
        latch
    }

    /// Puts a latched leaf that has become sparse on the list, for the collector to merge, unless it is the only
    /// one.
    pub(crate) fn sparse(&self, latch: &Latch, leaf: Ref) {
        let b = latch.b();
        if b.next() != 0 || !b.has(LEFTMOST) {
            self.make_dirty(latch, leaf);
        }
    }

    /// Puts a latched leaf with dead entries on the dirty list.
    pub(crate) fn make_dirty(&self, latch: &Latch, leaf: Ref) {
        let b = latch.b();
        if !b.has(DIRTY) {
            b.set_flag(DIRTY, true);
            self.shared().dirty.push(self.area, leaf);
        }
    }

    /// Takes the slots in `gone` out of a latched leaf. What they occupied in the heap comes back
    /// when the leaf is rewritten.
    pub(crate) fn drop_slots(&self, latch: Latch, gone: u64) -> Latch {
        let b = latch.b();
        let (side, other) = (latch.v.side(), latch.other());
        let mask = b.mask(side);
        let n = mask.count_ones() as usize;
        let keep = mask & !gone;
        let mut chunks = [0 as Ref; SLOTS];
        let mut n_chunks = 0;
        let (mut rest, mut ndead) = (gone, b.ndead());
        while rest != 0 {
            let slot = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            ndead -= u8::from(b.dead(slot) != 0);
            if let Tail::Chunk(chunk) = b.tail(b.tid_word(slot)) {
                chunks[n_chunks] = chunk;
                n_chunks += 1;
            }
        }
        b.set_perm(other, &keep_slots(&b.perm(side), n, keep).0);
        b.set_mask(other, keep);
        stop!("drop: other side written");
        let latch = if mutant!("the count of the dead falls in an exclusive phase") {
            self.shared().counters.dead.fetch_sub((b.ndead() - ndead).into(), Relaxed);
            b.set_ndead(ndead);
            latch.publish_latched()
        } else if ndead == b.ndead() {
            latch.publish_latched()
        } else {
            // A reader of the side before must not find "nothing dead" with the dead still in its
            // mask, so this is not a publication that it may overlook.
            self.shared().counters.dead.fetch_sub((b.ndead() - ndead).into(), Relaxed);
            latch.exclude();
            stop!("drop: excluded");
            b.set_ndead(ndead);
            latch.finish_latched()
        };
        stop!("drop: published");
        for &chunk in &chunks[..n_chunks] {
            self.unref_chunk(chunk);
        }
        latch
    }

    /// One entry or low key less refers to the chunk; after the last one it goes to the barrier.
    pub(crate) fn unref_chunk(&self, chunk: Ref) {
        if chunk_refs(self.area, chunk).fetch_sub(1, AcqRel) == 1
            || mutant!("a chunk goes with its last reference")
        {
            self.retire_chunk(chunk);
        }
    }
}

//! Removing entries, and looking for one.
//!
//! An entry that some snapshot sees is marked dead with the term, without a new version of the
//! leaf. `dead` goes 0 -> t once, and readers may see that at any time. Its leaf goes onto the
//! dirty list. An entry that no snapshot sees is dropped from the permutation at once.

use crate::index::reclaim;
use crate::index::root::Index;
use crate::key::order::{KeyOrder, Tid};
use crate::memory::place::Ref;
use crate::memory::process::Process;
use crate::node::block::{Latch, PACKED};
use crate::node::probe::Probe;
use crate::sync::lock::Backoff;
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;
use crate::tree::cutting::Cutting;
use crate::tree::drop::SPARSE;
use crate::tree::outcome::Outcome;
use crate::tree::reserve::Reserve;
use crate::tree::{drop, packed, seek};
use core::sync::atomic::Ordering::*;

/// Removing entries, and looking for one.
pub trait Remove {
    /// Returns true if (key, tid) is in the index and alive.
    fn contains<O: KeyOrder>(&self, p: &Process, order: &O, key: &[u8], tid: Tid) -> bool;

    /// Removes (key, tid). Returns false if it was not in the index, or dead.
    fn remove<O: KeyOrder>(&self, p: &Process, order: &O, key: &[u8], tid: Tid) -> bool;
}

impl Remove for Index {
    fn contains<O: KeyOrder>(&self, p: &Process, order: &O, key: &[u8], tid: Tid) -> bool {
        self.check_order::<O>();
        let probe = Probe::new(order, key, tid);
        let _section = self.enter(p);
        loop {
            let spot = seek::seek(self, &probe, true);
            let Some(slot) = spot.place.hit else { return false };
            let alive = spot.v.died(slot) == 0;
            // Otherwise another process has changed the leaf, and the slot may have another entry.
            if spot.v.valid() || mutant!("an entry that was found is validated") {
                return alive;
            }
        }
    }

    fn remove<O: KeyOrder>(&self, p: &Process, order: &O, key: &[u8], tid: Tid) -> bool {
        self.check_order::<O>();
        let probe = Probe::new(order, key, tid);
        let mut backoff = Backoff::default();
        let mut relieved = false;
        // Ends: a latch fails only where another process made progress. A packed leaf gets slots
        // around the entry once, unless another process packs it again. Without memory for slots,
        // snapshots are lost, and then the removal needs no slots.
        loop {
            let (_section, early) = if O::MEMCMP {
                (None, Some(self.enter_writer(p)))
            } else {
                (Some(self.enter(p)), None)
            };
            let spot = seek::seek_to_write(self, &probe);
            let Some(slot) = spot.place.hit else { return false };
            stop!("remove: searched");
            let writer = early.unwrap_or_else(|| self.enter_writer(p));
            if spot.v.b.has(PACKED) {
                match packed::remove_packed(self, &spot) {
                    Outcome::Done(_) => {
                        self.shared().counters.removed(p, 1);
                        return true;
                    }
                    Outcome::Slots => {
                        let section = writer.into_reader();
                        let reserve = &mut Reserve::new(self);
                        let step =
                            packed::cut_packed(self, &Cutting::of(&probe, &spot), true, reserve);
                        drop(section);
                        if matches!(step, Outcome::NoMemory(_) | Outcome::Crowded) {
                            // Once more, after the retired blocks were freed.
                            if relieved || !reclaim::relieve(self) {
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
            remove_slots(self, latch, spot.leaf, 1 << slot, writer.term()).release();
            self.shared().counters.removed(p, 1);
            return true;
        }
    }
}

/// Removes the slots in `gone` from a latched leaf. They are live and not dead.
pub(crate) fn remove_slots(index: &Index, latch: Latch, leaf: Ref, gone: u64, term: u32) -> Latch {
    let b = latch.b();
    let horizon = index.shared().snapshots.horizon();
    stop!("remove: horizon read");
    let (mut drop, mut marked) = (0u64, 0u8);
    let mut rest = gone;
    while rest != 0 {
        let slot = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        let born = b.born(slot);
        if horizon.needs(born, term) && !mutant!("snapshots are asked before an entry is dropped") {
            b.set_dead(slot, term);
            marked += 1;
            stop!("remove: marked");
        } else {
            drop |= 1 << slot;
        }
    }
    if marked > 0 {
        // A reader that sees the mark but not yet this count has read the state before the removal.
        b.set_ndead(b.ndead() + marked);
        stop!("remove: dead counted");
        index.shared().counters.dead.fetch_add(marked.into(), Relaxed);
        drop::make_dirty(index, &latch, leaf);
    }
    if drop == 0 {
        return latch;
    }
    let latch = drop::drop_slots(index, latch, drop);
    if latch.v.mask().count_ones() as usize <= SPARSE {
        drop::sparse(index, &latch, leaf);
    }
    latch
}

//! Taking out of an index what somebody knows to be dead by its TID (VACUUM), leaf by leaf.
//!
//! The TIDs of a leaf are copied and shown to the caller outside of all sections: who is asked may wait, unwind, or take
//! long. What is dead then goes at once, if the leaf is in the state that was copied; otherwise the leaf is asked about
//! anew, and after some vain attempts, or beside a snapshot, which packed leaves cannot tell what it may see, each entry
//! is searched by its key.
//!
//! *Invariant*: every entry below [`Prune::at`] that was there when the pass began has been asked about, and is gone if
//! it was dead. A leaf that is asked about has every entry from `at` up to the low key of its right neighbour, read in
//! the same state, to which `at` then goes. Whatever splits and merges, an entry keeps its place in the order.

use crate::area::Ref;
use crate::barrier::Process;
use crate::block::{Latch, View, tid_of};
use crate::cursor::{Cursor, Separator};
use crate::key::{Probe, Retry};
use crate::merge::SPARSE;
use crate::mutants::mutant;
use crate::packed::{Draft, PART};
use crate::prefetch;
use crate::range::LowBuf;
use crate::reserve::Spare;
use crate::root::{CURRENT, Index};
use crate::stop::stop;
use crate::sync::Backoff;
use crate::{KeyOrder, Tid};
use core::sync::atomic::Ordering::Acquire;

/// So often a leaf that changes is asked about anew.
const TRIES: u32 = 4;

/// How far a pass has come, and what it has found. A new one begins at the first leaf.
#[derive(Debug, Default)]
pub struct Prune {
    /// Where the leaf begins that is next; of a pass that has not begun, nowhere.
    at: Option<Separator>,
    kept: u64,
    removed: u64,
    leaf: Copied,
}

/// What was copied of a leaf.
#[derive(Debug, Default)]
struct Copied {
    /// The leaf and its version, to be looked at in this epoch alone.
    leaf: Ref,
    ver: u64,
    epoch: u64,
    packed: bool,
    /// Of the entries that were not dead, in order.
    tids: Vec<Tid>,
    /// Where they are: ranks, or slots.
    places: Vec<u16>,
    /// Which of them are dead.
    dead: Vec<bool>,
    /// The low key of its right neighbour; None: it is the last one.
    end: Option<Separator>,
}

impl Prune {
    /// How many entries stay, and how many were removed, so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.kept, self.removed)
    }
}

impl Index {
    /// Asks about the entries of one leaf, and removes those that are dead; false if it was the last one. `dead` is given
    /// TIDs, and says of each whether its entries are to go. It may be asked about one several times, and may unwind: then
    /// the pass can go on.
    pub fn prune<O: KeyOrder>(
        &self,
        p: &Process,
        order: &O,
        pass: &mut Prune,
        dead: &mut dyn FnMut(&[Tid], &mut [bool]),
    ) -> bool {
        self.check_area(p);
        self.check_order::<O>();
        let mut backoff = Backoff::default();
        let Prune { at, kept, removed, leaf } = pass;
        for tries in 0.. {
            self.copy_tids(p, order, at.as_ref(), leaf);
            stop!("prune: copied");
            leaf.dead.clear();
            leaf.dead.resize(leaf.tids.len(), false);
            dead(&leaf.tids, &mut leaf.dead);
            let n = leaf.dead.iter().filter(|&&dead| dead).count();
            let snapshot = leaf.packed && !self.shared().snapshots.quiet();
            let gone = match n {
                0 => Some(0),
                _ if tries == TRIES || snapshot => {
                    Some(self.remove_by_key(p, order, at.as_ref(), leaf))
                }
                _ => self.remove_copied(p, leaf),
            };
            if let Some(gone) = gone {
                *kept += (leaf.tids.len() - n) as u64;
                *removed += gone;
                break;
            }
            backoff.wait();
        }
        match leaf.end.take() {
            Some(end) => {
                *at = Some(end);
                true
            }
            None => false,
        }
    }

    /// Copies the leaf in whose range `at` is.
    fn copy_tids<O: KeyOrder>(
        &self,
        p: &Process,
        order: &O,
        at: Option<&Separator>,
        to: &mut Copied,
    ) {
        let mut backoff = Backoff::default();
        loop {
            {
                let _section = self.enter(p);
                to.epoch = self.heap().epoch();
                // A comparator is asked while nobody can wait for what it does.
                let (leaf, v, rank) = match at {
                    None => {
                        let leaf = self.shared().leaf.load(Acquire);
                        (leaf, self.block(leaf).view(), 0)
                    }
                    Some(at) => {
                        let spot = self.seek(&Probe::new(order, &at.key, at.tid), false);
                        (spot.leaf, spot.v, spot.place.rank)
                    }
                };
                stop!("prune: leaf found");
                if self.try_copy_tids(leaf, &v, rank, to).is_ok() {
                    return;
                }
            }
            backoff.wait();
        }
    }

    /// What is before `rank` came from another leaf, and somebody has been asked about it there.
    fn try_copy_tids(
        &self,
        leaf: Ref,
        v: &View,
        rank: usize,
        to: &mut Copied,
    ) -> Result<(), Retry> {
        (to.leaf, to.ver) = (leaf, v.ver);
        to.tids.clear();
        to.places.clear();
        let packed = v.packed()?;
        to.packed = packed.is_some();
        if let Some(packed) = packed {
            let (mut part, n) = ([0; PART], packed.len());
            for rank in (rank..n).step_by(PART) {
                let n = packed.tids(rank..rank + PART, &mut part);
                to.tids.extend_from_slice(&part[..n]);
            }
            to.places.extend(rank.min(n) as u16..n as u16);
        } else {
            let n = v.mask().count_ones() as usize;
            for slot in v.slots(rank.min(n)..n).filter(|&slot| v.b.dead(slot) == 0) {
                to.tids.push(tid_of(v.b.tid_word(slot)));
                to.places.push(slot as u16);
            }
        }
        let next = v.b.next();
        if v.dead() || !v.valid() {
            return Err(Retry);
        }
        to.end = match next {
            0 => None,
            next => {
                prefetch::scan(self.area, next);
                let mut low = LowBuf::new(self.area);
                // None: it was absorbed meanwhile, or gave its entries to others.
                Some(Separator::of(&low.load(next).ok_or(Retry)?))
            }
        };
        Ok(())
    }

    /// Removes what is dead from the leaf, if it is as it was copied; returns how many.
    fn remove_copied(&self, p: &Process, copied: &Copied) -> Option<u64> {
        let gone = || {
            let both = copied.places.iter().zip(&copied.dead);
            both.filter(|&(_, &dead)| dead).map(|(&place, _)| place)
        };
        let mut spare = Spare::take();
        // Before the latch: it may have to be allocated.
        let ranks: Vec<u16> = if copied.packed { gone().collect() } else { Vec::new() };
        let draft = spare.draft();
        let writer = self.enter_writer(p);
        let left = self.heap().epoch() != copied.epoch;
        if left && !mutant!("a pass looks whether its leaf's memory has left") {
            return None;
        }
        let v = View { b: self.block(copied.leaf), ver: copied.ver };
        stop!("prune: found again");
        let (latch, removed) = if copied.packed {
            (self.remove_ranks(copied.leaf, v, &ranks, draft)?, ranks.len())
        } else {
            let latch = v.latch()?;
            // Somebody may have marked one without making another state.
            let gone = latch.b().not_dead(gone().fold(0, |set, slot| set | 1 << slot));
            (self.remove_slots(latch, copied.leaf, gone, writer.term()), gone.count_ones() as usize)
        };
        stop!("prune: removed");
        latch.release();
        self.shared().counters.removed(p, removed as u64);
        Some(removed as u64)
    }

    /// Removes the entries with these TIDs between `at` and the end of what was copied, each by its key.
    fn remove_by_key<O: KeyOrder>(
        &self,
        p: &Process,
        order: &O,
        at: Option<&Separator>,
        copied: &Copied,
    ) -> u64 {
        let both = copied.tids.iter().zip(&copied.dead);
        let mut gone: Vec<Tid> = both.filter(|&(_, &dead)| dead).map(|(&tid, _)| tid).collect();
        gone.sort_unstable();
        let mut cursor = Cursor::new(true);
        cursor.set_range(&[], None, CURRENT);
        if let Some(at) = at {
            cursor.begin_at(at);
        }
        if let Some(end) = &copied.end {
            cursor.end_at(end);
        }
        let mut removed = 0;
        while cursor.next(p, *self, order) > 0 {
            for i in 0..cursor.len() {
                let (key, tid) = (cursor.key(i), cursor.tid(i));
                removed +=
                    u64::from(gone.binary_search(&tid).is_ok() && self.remove(p, order, key, tid));
            }
        }
        removed
    }

    /// Takes these ranks, which ascend, out of a packed leaf in this state, and keeps its latch. None: it is not in this
    /// state any more, or snapshots see what would go. Under a term.
    pub(crate) fn remove_ranks(
        &self,
        leaf: Ref,
        v: View,
        ranks: &[u16],
        draft: &mut Draft,
    ) -> Option<Latch> {
        // The term was announced before: a snapshot that sees what goes is seen here. One that comes later closes this
        // term, and waits for its end.
        let quiet = self.shared().snapshots.quiet()
            || mutant!("a batch that goes from a packed leaf looks for snapshots");
        let packed = v.packed().ok()?.filter(|_| quiet)?;
        if !packed.remove_all(ranks, draft) {
            return None;
        }
        let latch = v.latch()?;
        stop!("remove ranks: latched");
        latch.rewrite(draft);
        let latch = latch.finish_latched();
        if latch.v.is_sparse(SPARSE) {
            self.sparse(&latch, leaf);
        }
        Some(latch)
    }
}

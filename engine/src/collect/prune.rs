//! VACUUM's pass: it removes entries by their TIDs, leaf by leaf.
//!
//! The pass copies the TIDs of a leaf and asks the caller about them, outside of all sections: the
//! caller may wait, unwind, or take long. Then the pass removes the dead entries by their places,
//! if the leaf is still in the copied state. Otherwise it asks about the leaf anew. After some vain
//! attempts it removes the entries by their TIDs, in whatever state their leaves are. It also does
//! so beside a snapshot, because a packed leaf cannot tell the entries that a snapshot sees.
//!
//! No key is compared. Neither the next place of the pass ([`Place`]) nor the removed entries
//! depend on an order.
//!
//! *Invariant*: the pass has asked about every entry in front of its place that was there when it
//! began. It has removed those that were dead.
//!
//! The entries of a leaf that is asked about are those between its beginning and the leaf that is
//! pinned ahead, in one state. They stay between the two, so the pass finds them there by their
//! TIDs:
//! * The leaf is split. The pass goes from leaf to leaf up to the one that is pinned ahead.
//! * One of these leaves is absorbed, or gives its entries away. It is DEAD and leads to a leaf
//!   further left, at most to the one where the pass stands. The pass looks at that one again,
//!   whole.
//!
//! The pass ends as the walk does (`scan/place.rs`). It leaves each leaf between the two by `next`,
//! and looks at one again only if a leaf has died since.

use crate::index::reclaim;
use crate::index::root::Index;
use crate::key::order::Tid;
use crate::memory::place::Ref;
use crate::memory::process::Process;
use crate::node::block::{Retry, SLOTS, View, tid_of};
use crate::packed::{Draft, MAX_ENTRIES, PART};
use crate::scan::place::Place;
use crate::sync::lock::Backoff;
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;
use crate::tree::cutting::Cutting;
use crate::tree::outcome::Outcome;
use crate::tree::reserve::{Reserve, Spare};
use crate::tree::{packed, remove};

/// Number of attempts with a leaf that changes, before entries are removed by their TIDs. One in
/// tests, whose schedules change a leaf once.
const TRIES: u32 = if cfg!(test) { 1 } else { 4 };

/// A pass over the leaves of an index, and its counts.
pub struct Prune<'p> {
    place: Place<'p>,
    kept: u64,
    removed: u64,
    leaf: Copied,
}

/// The copied state of a leaf.
#[derive(Default)]
struct Copied {
    leaf: Ref,
    ver: u64,
    packed: bool,
    /// TIDs of the entries that were not dead, in order.
    tids: Vec<Tid>,
    /// Their places: ranks, or slots.
    places: Vec<u16>,
    /// Which of them are dead.
    dead: Vec<bool>,
}

/// Why entries could not be removed by their TIDs yet.
enum Not {
    /// A leaf was changed or latched by another process.
    Now,
    /// There is no memory for the leaves that a snapshot needs.
    Memory,
}

impl<'p> Prune<'p> {
    /// Begins a pass at the first leaf.
    ///
    /// # Panics
    /// The process is one of another area.
    pub fn new(p: &'p Process, index: Index) -> Prune<'p> {
        let place = Place::new(p, index);
        Prune { place, kept: 0, removed: 0, leaf: Copied::default() }
    }

    /// Returns how many entries stayed, and how many were removed, so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.kept, self.removed)
    }

    /// Asks about the entries of the next leaf, and removes those that are dead. Returns false if
    /// it was the last leaf. A leaf that changes all the time is left to the next call.
    ///
    /// `dead` gets TIDs, and marks those whose entries are to be removed. It may get a TID several
    /// times. It may unwind: then the pass can go on.
    pub fn next_leaf(&mut self, dead: &mut dyn FnMut(&[Tid], &mut [bool])) -> bool {
        if self.place.has_ended() {
            return false;
        }
        let mut backoff = Backoff::default();
        for tries in 0.. {
            let leaf = &mut self.leaf;
            if self.place.read(|at, v| leaf.copy(at, v)).is_none() {
                return true;
            }
            stop!("prune: copied");
            leaf.dead.clear();
            leaf.dead.resize(leaf.tids.len(), false);
            dead(&leaf.tids, &mut leaf.dead);
            let gone = leaf.gone().count();
            let removed = match gone {
                0 => Some(0),
                _ if tries < TRIES && self.can_keep_form() => self.remove_copied(),
                _ => self.remove_by_tids(),
            };
            if let Some(removed) = removed {
                self.kept += (self.leaf.tids.len() - gone) as u64;
                self.removed += removed;
                break;
            }
            backoff.wait();
        }
        self.place.go_on()
    }

    /// Returns true if the copied leaf can keep its form when the entries are removed, as far as is
    /// known.
    fn can_keep_form(&self) -> bool {
        !self.leaf.packed || self.place.index().shared().snapshots.quiet()
    }

    /// Removes the dead entries from the leaf, if it is still in the copied state. Returns how
    /// many.
    fn remove_copied(&self) -> Option<u64> {
        let (index, p, copied) = (self.place.index(), self.place.process(), &self.leaf);
        let places = || copied.gone().map(|i| copied.places[i]);
        let mut spare = Spare::take();
        // Before the latch: it may have to be allocated.
        let ranks: Vec<u16> = if copied.packed { places().collect() } else { Vec::new() };
        let draft = spare.draft();
        let writer = index.enter_writer(p);
        // It is pinned: a process that was not abandoned finds the leaf that it copied, in that
        // state or another one.
        self.place.here().filter(|&leaf| leaf == copied.leaf)?;
        let v = View { b: index.block(copied.leaf), ver: copied.ver };
        stop!("prune: found again");
        let (latch, removed) = if copied.packed {
            (packed::remove_ranks(&index, copied.leaf, v, &ranks, draft)?, ranks.len())
        } else {
            let latch = v.latch()?;
            let wanted = places().fold(0, |set, slot| set | 1 << slot);
            debug_assert_eq!(u64::count_ones(wanted) as usize, copied.gone().count());
            // An entry may have been marked without another state.
            let gone = latch.b().not_dead(wanted);
            let before = if cfg!(debug_assertions) { packed::alive(&latch) } else { 0 };
            let latch = remove::remove_slots(&index, latch, copied.leaf, gone, writer.term());
            let removed = gone.count_ones() as usize;
            debug_assert_eq!(
                before - packed::alive(&latch),
                removed,
                "all that was asked for has gone"
            );
            (latch, removed)
        };
        stop!("prune: removed");
        latch.release();
        index.shared().counters.removed(p, removed as u64);
        Some(removed as u64)
    }

    /// Removes the dead entries by their TIDs, from all leaves up to the one that is pinned ahead.
    /// Returns how many. Returns None if the process was abandoned: the pass begins anew.
    fn remove_by_tids(&self) -> Option<u64> {
        let (index, p) = (self.place.index(), self.place.process());
        let mut gone: Vec<Tid> = self.leaf.gone().map(|i| self.leaf.tids[i]).collect();
        gone.sort_unstable();
        let (mut removed, mut relieved) = (0, false);
        let mut backoff = Backoff::default();
        // Ends: a leaf dies, or a cut fails, only where another process made progress. Without
        // memory for slots, snapshots are lost, and then none are needed.
        loop {
            let why = {
                let _section = index.enter(p);
                let leaf = self.place.here()?;
                match remove_tids(&index, p, leaf, self.place.ahead(), &gone, &mut removed) {
                    Ok(()) => return Some(removed),
                    Err(why) => why,
                }
            };
            if matches!(why, Not::Memory) {
                // Once more, after freeing retired blocks.
                if relieved || !reclaim::relieve(&index) {
                    index.lose_snapshots();
                }
                relieved = true;
            }
            backoff.wait();
        }
    }
}

impl Copied {
    /// Copies one state of a leaf.
    fn copy(&mut self, leaf: Ref, v: &View) -> Result<(), Retry> {
        (self.leaf, self.ver) = (leaf, v.ver);
        self.tids.clear();
        self.places.clear();
        let packed = v.packed()?;
        self.packed = packed.is_some();
        if let Some(packed) = packed {
            let mut part = [0; PART];
            for rank in (0..packed.len()).step_by(PART) {
                let n = packed.tids(rank..rank + PART, &mut part);
                self.tids.extend_from_slice(&part[..n]);
            }
            self.places.extend(0..self.tids.len() as u16);
        } else {
            let n = v.mask().count_ones() as usize;
            for slot in v.slots(0..n).filter(|&slot| v.b.dead(slot) == 0) {
                self.tids.push(tid_of(v.b.tid_word(slot)));
                self.places.push(slot as u16);
            }
        }
        Ok(())
    }

    /// Returns the numbers of the entries that are to be removed.
    fn gone(&self) -> impl Iterator<Item = usize> {
        (0..self.dead.len()).filter(|&i| self.dead[i])
    }
}

/// Removes the entries with these ascending TIDs from `leaf` and the leaves behind it, up to `end`
/// (0: all). Both are pinned. The caller is inside the barrier.
fn remove_tids(
    index: &Index,
    p: &Process,
    mut leaf: Ref,
    end: Ref,
    gone: &[Tid],
    removed: &mut u64,
) -> Result<(), Not> {
    let mut spare = Spare::take();
    // Ends: each step leads to the right, but for one through a leaf that is DEAD, to which no leaf
    // leads any more.
    while leaf != end {
        if index.block(leaf).view().dead() {
            leaf = index.block(leaf).prev();
            continue;
        }
        let next = remove_tids_of(index, p, leaf, gone, spare.draft(), removed)?;
        if mutant!("a pass goes through all leaves that it has asked about") {
            break;
        }
        leaf = next;
    }
    Ok(())
}

/// Removes the entries with these TIDs from one leaf. Returns the leaf behind it.
fn remove_tids_of(
    index: &Index,
    p: &Process,
    leaf: Ref,
    gone: &[Tid],
    draft: &mut Draft,
    removed: &mut u64,
) -> Result<Ref, Not> {
    let writer = index.enter_writer(p);
    // In whatever state it is.
    let Some(latch) = index.block(leaf).latch() else { return Err(Not::Now) };
    let v = latch.v;
    stop!("prune: latched");
    let next = v.b.next();
    let is_gone = |tid: Tid| gone.binary_search(&tid).is_ok();
    let (latch, n) = match v.packed() {
        Ok(Some(packed)) => {
            let (mut ranks, n) = ranks_of(&packed, is_gone);
            let ranks = &mut ranks[..n];
            if n > 0 && !index.shared().snapshots.quiet() {
                let cutting = Cutting::to_remove(leaf, v, ranks[0].into());
                latch.release();
                let _section = writer.into_reader();
                return Err(
                    match packed::cut_packed(index, &cutting, true, &mut Reserve::new(index)) {
                        Outcome::NoMemory(_) | Outcome::Crowded => Not::Memory,
                        _ => Not::Now,
                    },
                );
            }
            if n > 0 && packed.remove_all(ranks, draft) {
                (packed::take_out(index, latch, leaf, draft), n)
            } else {
                debug_assert_eq!(n, 0, "what a leaf has can be taken out");
                (latch, 0)
            }
        }
        Ok(None) => {
            let slots = (0..SLOTS).filter(|&slot| v.mask() >> slot & 1 != 0);
            let slots = slots.filter(|&slot| is_gone(tid_of(v.b.tid_word(slot))));
            let slots = v.b.not_dead(slots.fold(0, |set, slot| set | 1 << slot));
            let n = slots.count_ones() as usize;
            (remove::remove_slots(index, latch, leaf, slots, writer.term()), n)
        }
        Err(Retry) => unreachable!("a latched leaf is not torn"),
    };
    latch.release();
    index.shared().counters.removed(p, n as u64);
    *removed += n as u64;
    Ok(next)
}

/// Finds the ranks of a packed leaf whose TIDs are to be removed, and counts them. The caller has
/// the latch, so nothing is allocated.
fn ranks_of(
    packed: &crate::packed::Leaf<'_>,
    is_gone: impl Fn(Tid) -> bool,
) -> ([u16; MAX_ENTRIES], usize) {
    let (mut ranks, mut n, mut part) = ([0; MAX_ENTRIES], 0, [0; PART]);
    for first in (0..packed.len().min(MAX_ENTRIES)).step_by(PART) {
        let m = packed.tids(first..first + PART, &mut part);
        for i in (0..m).filter(|&i| is_gone(part[i])) {
            ranks[n] = (first + i) as u16;
            n += 1;
        }
    }
    (ranks, n)
}

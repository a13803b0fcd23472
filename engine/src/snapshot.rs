//! Snapshots: O(1) to create, reference counted, released in any order.
//!
//! A snapshot of term s sees what was born in a term <= s and is not dead in one. Creating it closes
//! the term and waits for the writers that announced it (writer terms, see barrier.rs), so that it
//! may run beside writers. The descriptor is there *before* the term moves, as PENDING with the term
//! it will at least have: who removes an entry that died in a later term has seen the new term and
//! therefore sees the descriptor, so nothing is removed that a snapshot in the making will see.
//! If the wait unwinds, the descriptor is freed and an unused term number has passed.

use crate::barrier::Process;
use crate::block::CAPACITY;
use crate::dirty::BlockList;
use crate::mutants::mutant;
use crate::root::{CURRENT, Identity, Index};
use crate::stop::stop;
use crate::sync::SpinLock;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering::*, fence};
use std::fmt;

/// Fewer than slots in a node: versions of one (key, TID) that live snapshots need always fit.
pub(crate) const MAX_SNAPSHOTS: usize = if cfg!(loom) { 1 } else { CAPACITY / 2 };

/// The term that no snapshot closes: readers of the current state ask for a term above all others.
const LAST_TERM: u32 = CURRENT - 1;

const FREE: u64 = 0;
const PENDING: u64 = 1 << 32;
const LIVE: u64 = 2 << 32;
/// Nothing is kept for it any more, and its holder has not given it back yet.
const LOST: u64 = 3 << 32;
const STATE: u64 = 3 << 32;

#[repr(C)]
#[cfg_attr(loom, derive(Default))]
pub(crate) struct Descriptor {
    /// State in the high half; in the low half its term, a lower bound while PENDING.
    word: AtomicU64,
    references: AtomicU32,
    _pad: u32,
    holder: AtomicU64,
    /// Blocks with entries that died between the snapshot before it and this one.
    pub(crate) dead: BlockList,
}

impl Descriptor {
    fn is_live(&self) -> bool {
        self.word.load(Acquire) & STATE == LIVE
    }

    fn sn(&self) -> u32 {
        self.word.load(Relaxed) as u32
    }
}

#[repr(C)]
#[cfg_attr(loom, derive(Default))]
pub(crate) struct Descriptors {
    /// Descriptors that are PENDING or LIVE, or about to be.
    used: AtomicU32,
    /// Taking a descriptor.
    taking: SpinLock,
    table: [Descriptor; MAX_SNAPSHOTS],
}

/// Why there is no snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotError {
    /// All descriptors are in use.
    TooMany,
    /// The index has closed as many terms as there are numbers.
    NoMoreTerms,
    /// Meanwhile there was no memory to keep what was removed.
    Lost,
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotError::TooMany => write!(f, "the index has {MAX_SNAPSHOTS} snapshots already"),
            SnapshotError::NoMoreTerms => {
                f.write_str("the index has had as many snapshots as it can in its life")
            }
            SnapshotError::Lost => f.write_str("no memory was left for what the snapshot sees"),
        }
    }
}

impl std::error::Error for SnapshotError {}

/// One reference to a snapshot, to be given back with [`Index::release`]; the snapshot stays if it is
/// dropped, until [`Index::release_all`] of its holder.
#[must_use]
#[derive(Debug, PartialEq)]
pub struct Snapshot {
    of: Identity,
    /// Terms are not reused: this tells it from an earlier one in the same slot.
    sn: u32,
    slot: u32,
}

impl Snapshot {
    /// What a cursor takes to read it.
    pub fn sn(&self) -> u32 {
        self.sn
    }
}

/// One live snapshot, for monitoring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its term.
    pub sn: u32,
    /// How often it is referenced.
    pub references: u32,
    /// As given when it was created.
    pub holder: u64,
}

/// Which entries the snapshots of one moment need.
pub(crate) struct Horizon {
    n: usize,
    sns: [u32; MAX_SNAPSHOTS],
    /// The lowest bound of a snapshot in the making.
    pending: u32,
}

impl Horizon {
    /// Does a snapshot see an entry that lived from `born` until `dead`? No future one will, if the
    /// entry is dead already. Nobody sees one that was born in the term it died in.
    #[inline]
    pub(crate) fn needs(&self, born: u32, dead: u32) -> bool {
        let mut sns = self.sns[..self.n].iter();
        let pending = dead > self.pending && !mutant!("a snapshot in the making has a bound");
        born < dead && (pending || sns.any(|&sn| born <= sn && sn < dead))
    }
}

impl Descriptors {
    /// To be called after the death of the entry in question was read (under the latch of its
    /// block) or its term was announced.
    #[inline]
    pub(crate) fn horizon(&self) -> Horizon {
        let mut horizon = Horizon { n: 0, sns: [0; MAX_SNAPSHOTS], pending: u32::MAX };
        fence(SeqCst);
        if self.used.load(SeqCst) == 0 {
            return horizon;
        }
        for descriptor in &self.table {
            let word = descriptor.word.load(SeqCst);
            match word & STATE {
                PENDING => horizon.pending = horizon.pending.min(word as u32),
                LIVE => {
                    horizon.sns[horizon.n] = word as u32;
                    horizon.n += 1;
                }
                _ => {}
            }
        }
        horizon
    }

    /// The oldest snapshot, if there is one; not one in the making.
    pub(crate) fn oldest(&self) -> Option<&Descriptor> {
        self.table.iter().filter(|d| d.is_live()).min_by_key(|d| d.sn())
    }

    /// There is no snapshot that could tell what happens now from what was before: to be called in the
    /// same place as `horizon`.
    pub(crate) fn quiet(&self) -> bool {
        fence(SeqCst);
        self.none()
    }

    /// Takes a free descriptor. It is PENDING under the current term: its snapshot will have this term
    /// or a later one. None: all are in use.
    fn take(&self, holder: u64, term: &AtomicU32) -> Option<Making<'_>> {
        self.used.fetch_add(1, SeqCst);
        let taken = {
            let _taking = self.taking.lock();
            let slot = self.table.iter().position(|d| d.word.load(Relaxed) & STATE == FREE);
            slot.map(|slot| {
                let pending = PENDING | u64::from(term.load(Acquire));
                self.table[slot].holder.store(holder, Relaxed);
                self.table[slot].word.store(pending, SeqCst);
                Making { of: self, slot, pending }
            })
        };
        if taken.is_none() {
            self.used.fetch_sub(1, SeqCst);
        }
        taken
    }

    /// Exactly one of those who end a descriptor takes it out of the count: who finds it in use.
    fn free(&self, descriptor: &Descriptor) {
        if descriptor.word.swap(FREE, SeqCst) & STATE != LOST {
            self.used.fetch_sub(1, SeqCst);
        }
    }

    /// Nobody needs anything that is dead.
    pub(crate) fn none(&self) -> bool {
        self.used.load(SeqCst) == 0
    }

    /// Dirty blocks on the lists of snapshots.
    pub(crate) fn dirty(&self) -> u32 {
        self.table.iter().map(|d| d.dead.len()).sum()
    }

    pub(crate) fn list(&self) -> Vec<SnapshotInfo> {
        let live = self.table.iter().filter(|d| d.is_live());
        let mut list: Vec<_> = live
            .map(|d| SnapshotInfo {
                sn: d.sn(),
                references: d.references.load(Relaxed),
                holder: d.holder.load(Relaxed),
            })
            .collect();
        list.sort_unstable_by_key(|info| info.sn);
        list
    }
}

/// A descriptor in the making; freed if the wait unwinds.
struct Making<'a> {
    of: &'a Descriptors,
    slot: usize,
    /// The word of the descriptor.
    pending: u64,
}

impl Making<'_> {
    fn descriptor(&self) -> &Descriptor {
        &self.of.table[self.slot]
    }

    /// Closes the term and returns it. Terms are not reused: an index that has closed four billion of
    /// them takes no more snapshots.
    fn close(&self, term: &AtomicU32) -> Result<u32, SnapshotError> {
        let more = |term| (term < LAST_TERM).then_some(term + 1);
        term.fetch_update(SeqCst, Acquire, more).map_err(|_| SnapshotError::NoMoreTerms)
    }

    /// Makes the descriptor that of the snapshot of this term. Err: the snapshot has been lost
    /// meanwhile.
    fn live(self, sn: u32) -> Result<(), Self> {
        let (word, live) = (&self.descriptor().word, LIVE | u64::from(sn));
        if word.compare_exchange(self.pending, live, SeqCst, Relaxed).is_err() {
            return Err(self);
        }
        core::mem::forget(self);
        Ok(())
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.of.free(self.descriptor());
    }
}

impl Index {
    /// Creates a snapshot of this moment. `wait` is called while writers that began before are
    /// awaited; it may unwind.
    pub fn create_snapshot(
        &self,
        p: &Process,
        holder: u64,
        wait: &mut dyn FnMut(),
    ) -> Result<Snapshot, SnapshotError> {
        self.check_area(p);
        let area = p.area();
        let root = self.shared();
        let making = root.snapshots.take(holder, &root.term).ok_or(SnapshotError::TooMany)?;
        stop!("snapshot: pending");
        let sn = making.close(&root.term)?;
        stop!("snapshot: term closed");
        // Ends: no writer calls a comparison function in its section.
        while !area.writers_passed(self.root, sn) && !mutant!("a snapshot waits for writers") {
            wait();
        }
        stop!("snapshot: writers passed");
        let (slot, descriptor) = (making.slot, &root.snapshots.table[making.slot]);
        descriptor.references.store(1, Relaxed);
        descriptor.dead.splice(area, root.dirty.take());
        stop!("snapshot: list moved");
        if let Err(_lost) = making.live(sn) {
            root.work.splice(area, descriptor.dead.take());
            return Err(SnapshotError::Lost);
        }
        stop!("snapshot: live");
        Ok(Snapshot { of: self.identity(), sn, slot: slot as u32 })
    }

    /// One more reference to a snapshot.
    ///
    /// # Panics
    /// It is one of another index.
    pub fn retain(&self, snapshot: &Snapshot) -> Snapshot {
        if let Some(descriptor) = self.descriptor(snapshot) {
            descriptor.references.fetch_add(1, Relaxed);
        }
        Snapshot { ..*snapshot }
    }

    /// Gives a reference back. With the last one the snapshot ends, and the entries that only it
    /// needed are collected, a part of them in this call. One that has ended with its holder is ignored.
    ///
    /// # Panics
    /// It is one of another index.
    pub fn release(&self, p: &Process, snapshot: Snapshot) {
        let Some(descriptor) = self.descriptor(&snapshot) else { return };
        if descriptor.references.fetch_sub(1, AcqRel) == 1 {
            self.end_snapshot(descriptor);
            self.collect(p, 64);
        }
    }

    /// Ends all snapshots of a holder that is going away, however often they are referenced, and the
    /// one that it was making: a process that ends inside `wait` does not unwind. Nobody may be
    /// reading them or use this holder's name meanwhile.
    pub fn release_all(&self, p: &Process, holder: u64) {
        for descriptor in &self.shared().snapshots.table {
            // The state first: the holder belongs to it, or to a later owner, who is not this one.
            let used = descriptor.word.load(Acquire) & STATE != FREE;
            if used && descriptor.holder.load(Relaxed) == holder {
                self.end_snapshot(descriptor);
            }
        }
        self.collect(p, 64);
    }

    fn end_snapshot(&self, descriptor: &Descriptor) {
        let root = self.shared();
        let dead = descriptor.dead.take();
        stop!("snapshot end: list taken");
        root.snapshots.free(descriptor);
        root.work.splice(self.area, dead);
        stop!("snapshot end: free");
    }

    /// All snapshots end, and those in the making come to nothing: a removal that would have to keep what it
    /// removes has no memory for that, and must not fail. Who reads one is told by [`keeps`](Self::keeps).
    ///
    /// * beside the end of one, or its coming to life: one exchange of the word wins. A snapshot that came to
    ///   life meanwhile is met by the next attempt of the removal.
    /// * beside a removal that still met it: that has marked its entry, which the collector then drops.
    pub(crate) fn lose_snapshots(&self) {
        let root = self.shared();
        for descriptor in &root.snapshots.table {
            let word = descriptor.word.load(SeqCst);
            let in_use = matches!(word & STATE, PENDING | LIVE);
            let lost = LOST | word & !STATE;
            stop!("snapshot lost: word read");
            if in_use && descriptor.word.compare_exchange(word, lost, SeqCst, Relaxed).is_ok() {
                root.snapshots.used.fetch_sub(1, SeqCst);
                root.work.splice(self.area, descriptor.dead.take());
            }
        }
    }

    /// Has everything that was read of this snapshot until now been there? Not, if removals had no memory to
    /// keep what it sees; it may be given back all the same.
    ///
    /// # Panics
    /// It is one of another index.
    pub fn keeps(&self, snapshot: &Snapshot) -> bool {
        fence(Acquire);
        self.descriptor(snapshot).is_some_and(Descriptor::is_live)
    }

    /// The descriptor of a snapshot that has not been given back.
    fn descriptor(&self, snapshot: &Snapshot) -> Option<&Descriptor> {
        assert!(snapshot.of == self.identity(), "a snapshot of another index");
        let descriptor = &self.shared().snapshots.table[snapshot.slot as usize];
        let word = descriptor.word.load(Acquire);
        let held = [LIVE, LOST].map(|state| state | u64::from(snapshot.sn));
        held.contains(&word).then_some(descriptor)
    }
}

#[cfg(all(test, not(loom)))]
#[path = "snapshot_tests.rs"]
mod tests;

#[cfg(all(test, loom))]
#[path = "snapshot_models.rs"]
mod models;

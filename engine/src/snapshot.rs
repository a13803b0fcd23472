//! Snapshots: O(1) to create, reference counted, released in any order.
//!
//! A snapshot of term s sees what was born in a term <= s and is not dead in one. Creating it closes
//! the term and waits for the writers that announced it (writer terms, see barrier.rs), so that it
//! may run beside writers. The descriptor is there *before* the term moves, as PENDING with the term
//! it will at least have: who removes an entry that died in a later term has seen the new term and
//! therefore sees the descriptor, so nothing is removed that a snapshot in the making will see.
//! If the wait unwinds, the descriptor is freed and an unused term number has passed.

use crate::barrier::Process;
use crate::dirty::BlockList;
use crate::root::Index;
use crate::sync::SpinLock;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*, fence};
use std::fmt;

/// Fewer than slots in a node: versions of one (key, TID) that live snapshots need always fit.
pub(crate) const MAX_SNAPSHOTS: usize = 32;

const FREE: u64 = 0;
const PENDING: u64 = 1 << 32;
const LIVE: u64 = 2 << 32;
const STATE: u64 = 3 << 32;

#[repr(C)]
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
pub(crate) struct Descriptors {
    /// Descriptors that are not FREE.
    used: AtomicU32,
    /// Taking a descriptor.
    taking: SpinLock,
    table: [Descriptor; MAX_SNAPSHOTS],
}

/// All descriptors are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManySnapshots;

impl fmt::Display for TooManySnapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the index has {MAX_SNAPSHOTS} snapshots already")
    }
}

impl std::error::Error for TooManySnapshots {}

/// A reference to a snapshot. Not released by dropping it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// What a cursor takes to read it.
    pub sn: u32,
    slot: u32,
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
        born < dead && (dead > self.pending || sns.any(|&sn| born <= sn && sn < dead))
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
struct Making<'a>(&'a Descriptors, &'a Descriptor);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.1.word.store(FREE, Release);
        self.0.used.fetch_sub(1, SeqCst);
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
    ) -> Result<Snapshot, TooManySnapshots> {
        let area = p.area();
        let root = self.shared();
        let descriptors = &root.snapshots;
        let term = &root.term;
        // Terms are not reused: an index that has closed four billion of them takes no more.
        if term.load(Acquire) >= u32::MAX - 2 * MAX_SNAPSHOTS as u32 {
            return Err(TooManySnapshots);
        }
        descriptors.used.fetch_add(1, SeqCst);
        let taken = {
            let _taking = descriptors.taking.lock();
            let mut table = descriptors.table.iter().enumerate();
            let free = table.find(|(_, d)| d.word.load(Relaxed) & STATE == FREE);
            free.inspect(|(_, d)| {
                d.holder.store(holder, Relaxed);
                d.word.store(PENDING | u64::from(term.load(Acquire)), SeqCst);
            })
        };
        let Some((slot, descriptor)) = taken else {
            descriptors.used.fetch_sub(1, SeqCst);
            return Err(TooManySnapshots);
        };
        let making = Making(descriptors, descriptor);
        let sn = term.fetch_add(1, SeqCst);
        while !area.writers_passed(self.root, sn) {
            wait();
        }
        core::mem::forget(making);
        descriptor.references.store(1, Relaxed);
        descriptor.dead.splice(area, root.dirty.take());
        descriptor.word.store(LIVE | u64::from(sn), SeqCst);
        Ok(Snapshot { sn, slot: slot as u32 })
    }

    /// One more reference to a snapshot that the caller has a reference to.
    pub fn retain(&self, snapshot: &Snapshot) {
        self.descriptor(snapshot).references.fetch_add(1, Relaxed);
    }

    /// Gives a reference back. With the last one the snapshot ends, and the entries that only it
    /// needed are collected, a part of them in this call.
    pub fn release(&self, p: &Process, snapshot: Snapshot) {
        let descriptor = self.descriptor(&snapshot);
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
        descriptor.word.store(FREE, SeqCst);
        root.snapshots.used.fetch_sub(1, SeqCst);
        root.work.splice(self.area, dead);
    }

    fn descriptor(&self, snapshot: &Snapshot) -> &Descriptor {
        let descriptor = &self.shared().snapshots.table[snapshot.slot as usize];
        debug_assert_eq!(descriptor.sn(), snapshot.sn);
        descriptor
    }
}

#[cfg(all(test, not(loom)))]
#[path = "snapshot_tests.rs"]
mod tests;

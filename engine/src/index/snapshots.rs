//! Snapshots: O(1) to create, reference counted, released in any order.
//!
//! A snapshot of term s sees the entries that were born in a term <= s and did not die in one.
//! Creating it closes the term and waits for the writers that announced it (writer terms, see
//! `memory/barrier.rs`). So it may run beside writers. The descriptor is there *before* the term
//! moves, as PENDING with a lower bound of its term. A process that removes an entry that died in a
//! later term has seen the new term. So it sees the descriptor, and keeps every entry that a
//! snapshot in the making will see. If the wait unwinds, the descriptor is freed, and one term
//! number is unused.

use crate::index::identity::Identity;
use crate::node::block::CAPACITY;
use crate::sync::atomic::Ordering::*;
use crate::sync::atomic::{AtomicU32, AtomicU64, fence};
use crate::sync::lock::SpinLock;
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;
use std::fmt;

/// The term for readers of the current state.
pub(crate) const CURRENT: u32 = u32::MAX - 1;

/// Most snapshots of an index. Fewer than slots in a node, so all lives of one (key, TID) that
/// snapshots need fit into one leaf.
pub(crate) const MAX_SNAPSHOTS: usize = if cfg!(loom) { 1 } else { CAPACITY / 2 };

/// The term that no snapshot closes. Readers of the current state use a term above all others.
const LAST_TERM: u32 = CURRENT - 1;

const FREE: u64 = 0;
const PENDING: u64 = 1 << 32;
const LIVE: u64 = 2 << 32;
/// The snapshot has ended: no entry is kept for it. Its holder has not released it yet.
const LOST: u64 = 3 << 32;
const STATE: u64 = 3 << 32;

#[repr(C)]
#[cfg_attr(loom, derive(Default))]
pub(crate) struct Descriptor {
    /// State in the high half, term in the low half. While PENDING the term is a lower bound.
    word: AtomicU64,
    pub(crate) references: AtomicU32,
    _pad: u32,
    holder: AtomicU64,
}

impl Descriptor {
    pub(crate) fn is_live(&self) -> bool {
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
    /// Held while a descriptor is taken.
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
    /// A removal found no memory to keep the entries of the snapshot.
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

/// One reference to a snapshot. `release` gives it back. If it is only dropped, the snapshot stays
/// until `release_all` of its holder.
#[must_use]
#[derive(Debug, PartialEq)]
pub struct Snapshot {
    pub(crate) of: Identity,
    /// Its term. Terms are not reused, so the term tells it from an earlier one in the same slot.
    pub(crate) sn: u32,
    pub(crate) slot: u32,
}

impl Snapshot {
    /// Returns the number by which a cursor reads the snapshot.
    pub fn sn(&self) -> u32 {
        self.sn
    }
}

/// One live snapshot, for monitoring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its term.
    pub sn: u32,
    /// The number of references.
    pub references: u32,
    /// The holder that was named when it was created.
    pub holder: u64,
}

/// The entries that the snapshots of one moment need.
pub(crate) struct Horizon {
    n: usize,
    sns: [u32; MAX_SNAPSHOTS],
    /// The lowest bound of the snapshots in the making.
    pending: u32,
}

impl Horizon {
    /// Returns true if a snapshot sees an entry that lived from `born` until `dead`. If the entry
    /// is dead already, no future snapshot will see it. No snapshot sees an entry that was born in
    /// the term in which it died.
    #[inline]
    pub(crate) fn needs(&self, born: u32, dead: u32) -> bool {
        let mut sns = self.sns[..self.n].iter();
        let pending = dead > self.pending && !mutant!("a snapshot in the making has a bound");
        born < dead && (pending || sns.any(|&sn| born <= sn && sn < dead))
    }
}

impl Descriptors {
    /// Returns the entries that are needed. The caller has read the death of the entry in question
    /// under the latch of its block, or has announced its term.
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

    /// Returns true if there is no snapshot, so that no reader tells a present change from earlier
    /// ones. The caller stands where it could call `horizon`. Or it has read a term, and changes
    /// something only if its announcement finds this term.
    pub(crate) fn quiet(&self) -> bool {
        fence(SeqCst);
        self.none()
    }

    /// Takes a free descriptor. It is PENDING under the current term: its snapshot will have this
    /// term or a later one. Returns None if all are in use.
    pub(crate) fn take(&self, holder: u64, term: &AtomicU32) -> Option<Making<'_>> {
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

    /// Frees a descriptor. If several processes do so, only the one that finds it in use changes
    /// the count.
    pub(crate) fn free(&self, descriptor: &Descriptor) {
        if descriptor.word.swap(FREE, SeqCst) & STATE != LOST {
            self.used.fetch_sub(1, SeqCst);
        }
    }

    /// Returns the descriptor of a snapshot that has not been released.
    pub(crate) fn of(&self, snapshot: &Snapshot) -> Option<&Descriptor> {
        let descriptor = &self.table[snapshot.slot as usize];
        let word = descriptor.word.load(Acquire);
        let held = [LIVE, LOST].map(|state| state | u64::from(snapshot.sn));
        held.contains(&word).then_some(descriptor)
    }

    /// Returns the descriptors of a holder, in whatever state.
    pub(crate) fn held_by(&self, holder: u64) -> impl Iterator<Item = &Descriptor> {
        self.table.iter().filter(move |descriptor| {
            // The state is read first. The holder then belongs to it, or to a later owner, which is
            // another one.
            let used = descriptor.word.load(Acquire) & STATE != FREE;
            used && descriptor.holder.load(Relaxed) == holder
        })
    }

    /// Ends all snapshots, also those in the making. A removal calls this if it has no memory to
    /// keep the entries that they see: it must not fail. `keeps` tells the readers of a snapshot.
    ///
    /// * Another process ends a snapshot, or makes it live, at the same time. One exchange of the
    ///   word wins. If a snapshot became live, the next attempt of the removal meets it.
    /// * Another removal still met the snapshot. It has marked its entry, and the collector drops
    ///   that.
    pub(crate) fn lose(&self) {
        for descriptor in &self.table {
            let word = descriptor.word.load(SeqCst);
            let in_use = matches!(word & STATE, PENDING | LIVE);
            let lost = LOST | word & !STATE;
            stop!("snapshot lost: word read");
            if in_use && descriptor.word.compare_exchange(word, lost, SeqCst, Relaxed).is_ok() {
                self.used.fetch_sub(1, SeqCst);
            }
        }
    }

    /// Returns true if no snapshot needs a dead entry.
    pub(crate) fn none(&self) -> bool {
        self.used.load(SeqCst) == 0
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

/// A descriptor in the making. It is freed if the wait unwinds.
pub(crate) struct Making<'a> {
    of: &'a Descriptors,
    pub(crate) slot: usize,
    /// The word of the descriptor.
    pending: u64,
}

impl<'a> Making<'a> {
    pub(crate) fn descriptor(&self) -> &'a Descriptor {
        &self.of.table[self.slot]
    }

    /// Closes the term and returns it. Terms are not reused: an index that has closed four billion
    /// of them takes no more snapshots.
    pub(crate) fn close(&self, term: &AtomicU32) -> Result<u32, SnapshotError> {
        let more = |term| (term < LAST_TERM).then_some(term + 1);
        term.fetch_update(SeqCst, Acquire, more).map_err(|_| SnapshotError::NoMoreTerms)
    }

    /// Makes the descriptor that of the snapshot of this term. Returns Err if the snapshot has been
    /// lost meanwhile.
    pub(crate) fn live(self, sn: u32) -> Result<(), Self> {
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

#[cfg(all(test, not(loom)))]
#[path = "../tests/snapshots.rs"]
mod tests;

#[cfg(all(test, loom))]
#[path = "../tests/snapshot_models.rs"]
mod models;

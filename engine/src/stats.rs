//! Counters and what they say.

use crate::barrier::Process;
use crate::root::Index;
use crate::snapshot::SnapshotInfo;
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::*};

const STRIPES: usize = 16;

/// What inserts and removals count, on a line that few processes share.
#[repr(C, align(64))]
pub(crate) struct Stripe {
    inserted: AtomicU64,
    removed: AtomicU64,
}

/// Zeroed = nothing.
#[repr(C)]
pub(crate) struct Counters {
    pub(crate) leaves: AtomicU32,
    pub(crate) splits: AtomicU32,
    pub(crate) merges: AtomicU32,
    /// Entries that are marked dead and not collected yet.
    pub(crate) dead: AtomicU32,
    /// Entries that `adopt` brought.
    pub(crate) built: AtomicI64,
    pub(crate) stripes: [Stripe; STRIPES],
}

impl Counters {
    #[inline]
    fn stripe(&self, p: &Process) -> &Stripe {
        &self.stripes[p.slot_number() as usize % STRIPES]
    }
    #[inline]
    pub(crate) fn inserted(&self, p: &Process) {
        self.stripe(p).inserted.fetch_add(1, Relaxed);
    }
    pub(crate) fn removed(&self, p: &Process, n: u64) {
        self.stripe(p).removed.fetch_add(n, Relaxed);
    }
    pub(crate) fn leaf_split(&self) {
        self.splits.fetch_add(1, Relaxed);
        self.leaves.fetch_add(1, Relaxed);
    }
    fn sum(&self, of: impl Fn(&Stripe) -> &AtomicU64) -> u64 {
        self.stripes.iter().map(|s| of(s).load(Relaxed)).sum()
    }
}

/// State and history of an index; not from one moment if others are using it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexStats {
    /// Entries that are there and not removed.
    pub live: u64,
    /// Entries that were removed, but that a snapshot may still see, or that wait for the collector.
    pub dead: u32,
    /// Bytes of the area that the index holds.
    pub bytes: usize,
    /// Of these, what blocks take that nobody uses: they are filled before the index takes more.
    pub idle: usize,
    /// Leaves, index nodes, and whether there is a flat top.
    pub blocks: [u32; 3],
    /// The current term.
    pub term: u32,
    /// Unlinked blocks that wait for the barrier.
    pub garbage: u32,
    /// Blocks that have dead entries for the collector.
    pub dirty: u32,
    /// Live snapshots, oldest first.
    pub snapshots: Vec<SnapshotInfo>,
    /// Entries inserted (bottom-up built ones not counted).
    pub inserts: u64,
    /// Entries removed.
    pub removes: u64,
    /// Leaf splits.
    pub splits: u32,
    /// Nodes absorbed by their left neighbours.
    pub merges: u32,
}

impl Index {
    /// State and history of the index; cheap.
    pub fn stats(&self) -> IndexStats {
        let root = self.shared();
        let counters = &root.counters;
        let (inserts, removes) = (counters.sum(|s| &s.inserted), counters.sum(|s| &s.removed));
        let live = (counters.built.load(Relaxed) as u64 + inserts).saturating_sub(removes);
        IndexStats {
            live,
            dead: counters.dead.load(Relaxed),
            bytes: self.heap().bytes(),
            idle: self.heap().idle(),
            blocks: [
                counters.leaves.load(Relaxed),
                root.top_state.nodes.load(Relaxed),
                u32::from(root.top.load(Relaxed) != 0),
            ],
            term: self.term(),
            garbage: self.garbage(),
            dirty: root.dirty.len() + root.work.len() + root.snapshots.dirty(),
            snapshots: root.snapshots.list(),
            inserts,
            removes,
            splits: counters.splits.load(Relaxed),
            merges: counters.merges.load(Relaxed),
        }
    }
}

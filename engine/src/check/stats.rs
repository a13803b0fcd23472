//! Statistics of an index.

use crate::index::root::Index;
use crate::index::snapshots::SnapshotInfo;
use core::sync::atomic::Ordering::*;

/// State and history of an index. Not of one moment if other processes use the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexStats {
    /// Entries that are there and not removed.
    pub live: u64,
    /// Entries that were removed, but that a snapshot may still see, or that wait for the
    /// collector.
    pub dead: u32,
    /// Bytes of the area that the index holds.
    pub bytes: usize,
    /// Bytes of free blocks among these. The index fills them before it takes more.
    pub idle: usize,
    /// Leaves, index nodes, and whether there is a flat top.
    pub blocks: [u32; 3],
    /// The current term.
    pub term: u32,
    /// Unlinked blocks that wait for the barrier.
    pub garbage: u32,
    /// Blocks that have dead entries for the collector.
    pub dirty: u32,
    /// The live snapshots, the oldest first.
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

/// How large an index is.
#[derive(Clone, Copy, Debug)]
pub struct IndexSize {
    /// Bytes of the area that it holds.
    pub bytes: usize,
    /// Levels above the leaves.
    pub levels: usize,
}

/// The statistics of an index.
pub trait Statistics {
    /// Returns the size of the index. It reads four words, where [`Statistics::stats`] reads
    /// hundreds.
    fn size(&self) -> IndexSize;

    /// Entries that are there and not removed.
    fn live(&self) -> u64;

    /// Returns state and history of the index. This is cheap.
    fn stats(&self) -> IndexStats;
}

impl Statistics for Index {
    fn size(&self) -> IndexSize {
        let levels = self.blocks().iter().skip(1).filter(|&&n| n > 0).count();
        IndexSize { bytes: self.allocator().bytes(), levels }
    }

    fn live(&self) -> u64 {
        let counters = &self.shared().counters;
        let (inserts, removes) = (counters.sum(|s| &s.inserted), counters.sum(|s| &s.removed));
        (counters.built.load(Relaxed) as u64 + inserts).saturating_sub(removes)
    }

    fn stats(&self) -> IndexStats {
        let root = self.shared();
        let counters = &root.counters;
        let (inserts, removes) = (counters.sum(|s| &s.inserted), counters.sum(|s| &s.removed));
        IndexStats {
            live: self.live(),
            dead: counters.dead.load(Relaxed),
            bytes: self.allocator().bytes(),
            idle: self.allocator().idle(),
            blocks: self.blocks(),
            term: self.term(),
            garbage: self.garbage(),
            dirty: root.dirty.len() + root.kept.len(),
            snapshots: root.snapshots.list(),
            inserts,
            removes,
            splits: counters.splits.load(Relaxed),
            merges: counters.merges.load(Relaxed),
        }
    }
}

//! The packing of an index, as the directory knows it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// When an index was packed last. Counts are of inserts and removals since its memory was made.
#[repr(C)]
#[derive(Default)]
pub struct PackedState {
    /// The count when the index was packed last.
    pub changes: AtomicU64,
    /// The count when the keeper looked last.
    pub seen: AtomicU64,
    /// Not 0: a builder is to pack the index.
    pub wanted: AtomicU32,
}

impl PackedState {
    /// Begins the counts anew, for new memory. A builder of tables and images packs it.
    pub fn reset(&self) {
        self.changes.store(0, Relaxed);
        self.seen.store(0, Relaxed);
        self.wanted.store(0, Relaxed);
    }
}

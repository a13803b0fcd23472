//! Counters of an index.

use crate::memory::process::Process;
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::*};

const STRIPES: usize = 16;

/// Counts of inserts and removals, on a cache line that few processes share.
#[repr(C, align(64))]
pub(crate) struct Stripe {
    pub(crate) inserted: AtomicU64,
    pub(crate) removed: AtomicU64,
}

/// Zeroed = nothing.
#[repr(C)]
pub(crate) struct Counters {
    pub(crate) leaves: AtomicU32,
    pub(crate) splits: AtomicU32,
    pub(crate) merges: AtomicU32,
    /// Entries that are marked dead and not removed yet.
    pub(crate) dead: AtomicU32,
    /// Entries that `adopt` brought.
    pub(crate) built: AtomicI64,
    pub(crate) stripes: [Stripe; STRIPES],
}

impl Counters {
    #[inline]
    pub(crate) fn stripe(&self, p: &Process) -> &Stripe {
        &self.stripes[p.slot_number() as usize % STRIPES]
    }
    #[inline]
    pub(crate) fn inserted(&self, p: &Process, n: u64) {
        self.stripe(p).inserted.fetch_add(n, Relaxed);
    }
    pub(crate) fn removed(&self, p: &Process, n: u64) {
        self.stripe(p).removed.fetch_add(n, Relaxed);
    }
    pub(crate) fn leaf_split(&self) {
        self.splits.fetch_add(1, Relaxed);
        self.leaves.fetch_add(1, Relaxed);
    }
    pub(crate) fn sum(&self, of: impl Fn(&Stripe) -> &AtomicU64) -> u64 {
        self.stripes.iter().map(|s| of(s).load(Relaxed)).sum()
    }
}

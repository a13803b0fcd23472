//! Counts of events of an index, for the views.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Counts since an index got its memory's entry in the directory (CREATE INDEX, REINDEX, TRUNCATE,
/// a start of the server), or since [`Counters::reset`].
#[repr(C)]
#[derive(Default)]
pub struct Counters {
    /// Index scans started, counted when they are over.
    pub scans: Spread,
    /// Walks over the table that made it ready, that of CREATE INDEX among them.
    pub builds: AtomicU64,
    /// Images that made it ready.
    pub loads: AtomicU64,
    /// How often it was given up for lack of memory.
    pub given_up: AtomicU64,
    /// How often memory was refused: SQLSTATE 53200, or 53400 of a limit, as an ERROR or a WARNING.
    pub refused: AtomicU64,
    /// Images that were made, or found to be as good as new.
    pub images: AtomicU64,
    /// Images that were begun and not made, for an error or a cancel.
    pub images_failed: AtomicU64,
    /// When the counts were last taken back, in seconds since 1970; 0 = never.
    pub reset_at: AtomicI64,
}

impl Counters {
    fn words(&self) -> impl Iterator<Item = &AtomicU64> {
        let Counters { scans, builds, loads, given_up, refused, images, images_failed, .. } = self;
        [builds, loads, given_up, refused, images, images_failed].into_iter().chain(scans.words())
    }

    /// Sets all counts to zero at `now` (0 for a new index). Events that are counted meanwhile may
    /// be lost.
    pub fn reset(&self, now: i64) {
        for word in self.words() {
            word.store(0, Relaxed);
        }
        self.reset_at.store(now, Relaxed);
    }
}

/// A count of all processes. It is on several cache lines, so that few processes write to the same
/// one.
#[derive(Default)]
pub struct Spread([Line; 8]);

/// One line: `CachePadded` takes two, and there are eight of these for each index.
#[repr(C, align(64))]
#[derive(Default)]
struct Line(AtomicU64);

impl Spread {
    /// Adds to the count, for the process with this number.
    #[inline]
    pub fn add(&self, process: u32, n: u64) {
        self.0[process as usize % self.0.len()].0.fetch_add(n, Relaxed);
    }

    /// All together.
    pub fn sum(&self) -> u64 {
        self.words().map(|word| word.load(Relaxed)).sum()
    }

    fn words(&self) -> impl Iterator<Item = &AtomicU64> {
        self.0.iter().map(|line| &line.0)
    }
}

/// One more.
#[inline]
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

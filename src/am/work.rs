//! The work of a scan, for EXPLAIN.

use std::cell::Cell;

/// Counts over all its rescans.
#[derive(Default)]
pub struct Work {
    leaves: Cell<u64>,
    entries: Cell<u64>,
    asked: Cell<u64>,
    looked_up: Cell<u64>,
}

impl Work {
    /// Entries of one more leaf were copied.
    #[inline]
    pub fn add(&self, entries: usize) {
        self.leaves.set(self.leaves.get() + u64::from(entries > 0));
        self.entries.set(self.entries.get() + entries as u64);
    }

    /// Returns how often a leaf with entries for the scan was read. A leaf that is read in parts,
    /// or again because it changed, counts each time.
    pub fn leaves(&self) -> u64 {
        self.leaves.get()
    }

    /// Adds rows of the table that were prefetched.
    pub fn asked(&self, rows: usize) {
        self.asked.set(self.asked.get() + rows as u64);
    }

    /// Rows that were asked for before they were fetched, if they were.
    pub fn ahead(&self) -> u64 {
        self.asked.get()
    }

    /// The scan was started once more for a range that was looked up before, together with others.
    #[inline]
    pub fn looked_up(&self) {
        self.looked_up.set(self.looked_up.get() + 1);
    }

    /// How often it was.
    pub fn batched(&self) -> u64 {
        self.looked_up.get()
    }

    /// Entries that were read, also those that a filter then passed over.
    pub fn entries(&self) -> u64 {
        self.entries.get()
    }
}

//! What a scan reads.

use nitro_engine::Tid;

use crate::am::whole;

/// What a scan reads. Known once it was started.
pub(super) enum Source {
    /// Entries of the index, through the scan's cursor.
    Entries,
    /// Rows of an index with an element column.
    Elements(Collected),
    /// Rows of the table, where the index cannot be brought up.
    Table(whole::Rows),
}

/// Rows that were collected at the start of a scan, and the current one of them.
#[derive(Default)]
pub(super) struct Collected {
    tids: Vec<Tid>,
    at: isize,
}

impl Collected {
    /// Stands at the first row, or at the last one for a scan that goes backward.
    pub(super) fn new(tids: Vec<Tid>, forward: bool) -> Collected {
        let at = if forward { 0 } else { tids.len() as isize - 1 };
        Collected { tids, at }
    }

    /// Moves to the next row, by one place behind the end at most.
    pub(super) fn step(&mut self, forward: bool) {
        let next = self.at + if forward { 1 } else { -1 };
        self.at = next.clamp(-1, self.tids.len() as isize);
    }

    /// Returns the current row, or nothing behind either end.
    pub(super) fn current(&self) -> Option<Tid> {
        usize::try_from(self.at).ok().and_then(|i| self.tids.get(i)).copied()
    }
}

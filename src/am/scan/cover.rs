//! The protection of a batch whose rows are not read from the table: the token, and the bits of the
//! visibility map that count (`token`). Both are obtained before the entries are copied.

use std::ops::Range;

use nitro_engine::Index;
use pgrx::pg_sys::{self, IndexScanDesc, Relation};

use super::Scan;
use crate::am::token::Trust;
use crate::pg::compat;
use crate::pg::guc::{self, Mechanism};
use crate::state::directory::State;
use crate::state::given_up;

impl Scan {
    /// Call before entries are read: returns which bits of the visibility map count for them.
    pub(super) fn cover(&mut self, engine: Index) -> Trust {
        let trust = self.token.renew(self.process, engine, self.handle.entry);
        self.check_given_up();
        trust
    }

    /// Raises an ERROR if the index was given up. VACUUM does not wait for a token that was taken
    /// after that. Scans from recovery go by the LSN that the index reflects.
    pub(super) fn check_given_up(&self) {
        use State::{CatchingUp, Following, Ready};
        if self.token.needed
            && !self.token.of_recovery
            && !matches!(self.handle.entry.state(), Ready | CatchingUp | Following)
            && guc::holds(Mechanism::GivenUp)
        {
            // SAFETY: a scan's index is open.
            unsafe { given_up::scan_ends(self.index) };
        }
    }

    /// Whether the row of the current entry is known to be visible.
    #[inline]
    pub(super) fn is_known_visible(&self) -> bool {
        let place = &self.place;
        let known = match place.trust.is_whole() {
            true => self.visibility.known((self.tid() >> 16) as pg_sys::BlockNumber),
            false => place.answers.of(place.pos as usize),
        };
        known == Some(true)
    }

    /// Which rows of these entries of the batch are known to be visible, a bit each.
    #[inline]
    pub(super) fn known_visible(&self, entries: Range<usize>) -> u64 {
        let Range { start, end } = entries;
        match self.place.trust.is_whole() {
            true => self.visibility.known_of(&self.place.cursor.tids()[start..end]),
            false => {
                let wanted = u64::MAX.checked_shr(64 - (end - start) as u32).unwrap_or(0);
                self.place.answers.from(start) & wanted
            }
        }
    }

    /// Whether the row of the current entry is all-visible by a bit that counts for it.
    ///
    /// # Safety
    /// `heap` is the open table of the scan, which stands on an entry.
    pub(in crate::am) unsafe fn is_all_visible(&mut self, heap: Relation) -> bool {
        let place = &mut self.place;
        let trust = place.trust.planted(self.handle.entry);
        let row = (place.cursor.tids(), place.pos as usize);
        // SAFETY: by contract.
        unsafe { self.visibility.ask_of(heap, trust, row, &mut place.answers) }
    }

    /// Asks the map for the rows of the batch that follow, where it is asked for many together.
    ///
    /// # Safety
    /// `heap` is the open table of the scan.
    pub(in crate::am) unsafe fn ask_ahead(&mut self, heap: Relation, forward: bool) {
        let place = &mut self.place;
        let next = if forward { place.pos + 1 } else { place.pos - 1 };
        if place.trust.is_whole()
            || !self.started
            || next < 0
            || next >= place.cursor.len() as isize
        {
            return;
        }
        let trust = place.trust.planted(self.handle.entry);
        let row = (place.cursor.tids(), next as usize);
        // SAFETY: by contract.
        unsafe { self.visibility.ask_of(heap, trust, row, &mut place.answers) };
    }

    /// Returns true if an entry may be handed up to a function of the server, which reads the map
    /// by itself. Returns false if it would trust a bit that does not count, and the snapshot sees
    /// no row.
    pub(super) unsafe fn may_be_handed_up(&mut self, scan: IndexScanDesc) -> bool {
        if self.place.trust.is_whole() {
            return true;
        }
        // SAFETY: the server's descriptor, at an entry; the table of a scan is open.
        unsafe {
            let (heap, tid) = ((*scan).heapRelation, self.tid());
            let mut seen = self.is_all_visible(heap);
            if !seen {
                let block = (tid >> 16) as pg_sys::BlockNumber;
                compat::look_up(heap, block, (*scan).xs_snapshot, |visible| seen = visible(tid));
            }
            seen
        }
    }

    /// Returns the index that was read before, if that has all that the snapshot sees.
    ///
    /// Returns the index of a scan that began in recovery. An MVCC snapshot stays the same for all
    /// starts of a scan. The rows that it sees keep their entries in memory, whatever the state of
    /// the index is later. As long as the scan has its lock, no process frees this memory.
    pub(super) fn reached(&self) -> Option<Index> {
        let (root, entry) = (self.reached, self.handle.entry);
        self.engine.filter(|_| self.token.of_recovery && root != 0 && entry.root() == root)
    }
}

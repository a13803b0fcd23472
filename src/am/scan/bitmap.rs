//! Bitmap scans, and counting their rows.

use pgrx::pg_sys::IndexScanDesc;
use pgrx::prelude::*;

use nitro_engine::Tid;

use super::streams;
use super::{Scan, state};
use crate::am::token::Trust;
use crate::pg::compat;
use crate::state::follow;

/// Adds all matches to a bitmap (`amgetbitmap`).
#[pg_guard]
pub unsafe extern "C-unwind" fn get_bitmap(
    scan: IndexScanDesc,
    bitmap: *mut pg_sys::TIDBitmap,
) -> i64 {
    crate::pg::witness!();
    // SAFETY: see `state`; bitmap scans are MVCC only, so no token is needed.
    unsafe {
        let state = state(scan);
        state.not_bounded = follow::is_not_bounded();
        state.start(scan, true, false);
        let end = state.look_again();
        // Until 17 the server may leave rows of all-visible pages unread. In recovery nothing keeps
        // a TID from being freed between the entry and the map.
        state.plan.lossy |= compat::bitmap_scans_trust_the_map() && state.token.of_recovery;
        if state.reads_elements() {
            return state.reader().map_or(0, |(r, plan)| streams::fill(&r, plan, bitmap, end));
        }
        let mut tids = [pg_sys::ItemPointerData::default(); 64];
        let (mut n, mut total) = (0, 0);
        while state.advance(scan, true) {
            let tid = state.tid();
            tids[n] = compat::u64_to_tid(tid);
            n += usize::from(tid < end);
            if n == tids.len() {
                pg_sys::tbm_add_tuples(bitmap, tids.as_mut_ptr(), n as i32, state.plan.lossy);
                total += n as i64;
                n = 0;
            }
        }
        pg_sys::tbm_add_tuples(bitmap, tids.as_mut_ptr(), n as i32, state.plan.lossy);
        compat::count_searches(scan, std::mem::take(&mut state.searches));
        total + n as i64
    }
}

impl Scan {
    /// The snapshot that says how far an index of a standby has to be; null if any state will do.
    ///
    /// # Safety
    /// `scan` is the descriptor that this is the state of.
    pub(super) unsafe fn bounding(&self, scan: IndexScanDesc) -> pg_sys::Snapshot {
        // SAFETY: by contract.
        if self.not_bounded { std::ptr::null_mut() } else { unsafe { (*scan).xs_snapshot } }
    }

    /// Where entries may lead to other rows than those that they were made for, lets the heap scan
    /// look at each row again. Returns the TID that is behind the table's end.
    unsafe fn look_again(&mut self) -> Tid {
        if !self.not_bounded {
            return Tid::MAX;
        }
        self.plan.lossy = true;
        // SAFETY: a scan of the index has a lock on its table, so the table does not get shorter.
        unsafe {
            let mode = pg_sys::NoLock as pg_sys::LOCKMODE;
            let heap = pg_sys::table_open((*(*self.index).rd_index).indrelid, mode);
            let blocks = compat::blocks(heap);
            pg_sys::table_close(heap, mode);
            Tid::from(blocks) << 16
        }
    }

    /// Starts the scan of an index with an element column and passes its rows to `f`, each once,
    /// some at a time, with their trust in the visibility map. A token is held meanwhile. Returns
    /// false, and passes none, if rows must be rechecked, or if more than `limit` would have to be
    /// held.
    ///
    /// # Safety
    /// `scan` is the descriptor that this is the state of, with the keys of its last rescan and a
    /// snapshot of MVCC.
    pub(in crate::am) unsafe fn each_row(
        &mut self,
        scan: IndexScanDesc,
        limit: usize,
        mut f: impl FnMut(Trust, &[Tid]),
    ) -> bool {
        // None is looked at again.
        self.not_bounded = false;
        // SAFETY: by contract.
        unsafe { self.start(scan, true, true) };
        let exact = self.reads_elements() && !self.plan.lossy;
        let trust = self.place.trust.planted(self.handle.entry);
        let f = |tids: &[Tid]| f(trust, tids);
        let given = exact
            && self.reader().is_none_or(|(reader, plan)| streams::each(&reader, plan, limit, f));
        self.token.rest(self.process);
        given
    }
}

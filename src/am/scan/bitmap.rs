//! Bitmap scans, and what counts their rows instead.

use pgrx::pg_sys::IndexScanDesc;
use pgrx::prelude::*;

use nitro_engine::Tid;

use super::{Scan, state};
use crate::elements::streams;
use crate::pg::compat;

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
        state.start(scan, true, false);
        // Until 17 the server may leave rows of all-visible pages unread. On a standby nothing keeps a TID from being
        // freed between the entry and the map.
        state.plan.lossy |= compat::bitmap_scans_trust_the_map() && pg_sys::RecoveryInProgress();
        if state.handle.desc.element.is_some() {
            return state.reader().map_or(0, |(r, plan)| streams::fill(&r, plan, bitmap));
        }
        let mut tids = [pg_sys::ItemPointerData::default(); 64];
        let (mut n, mut total) = (0, 0);
        while state.advance(scan, true) {
            tids[n] = compat::u64_to_tid(state.place.cursor.tid(state.place.pos as usize));
            n += 1;
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
    /// Starts the scan of an index with an element column and gives its rows away, each once, some at a time, under a token
    /// that is held meanwhile. False, and none was: they have to be looked at, or more than `limit` would have to be held.
    ///
    /// # Safety
    /// `scan` is the descriptor that this is the state of, with the keys of its last rescan and a snapshot of MVCC.
    pub(in crate::am) unsafe fn each_row(
        &mut self,
        scan: IndexScanDesc,
        limit: usize,
        f: impl FnMut(&[Tid]),
    ) -> bool {
        // SAFETY: by contract.
        unsafe { self.start(scan, true, true) };
        let exact = self.whole.is_none() && !self.plan.lossy;
        let given = exact
            && self.reader().is_none_or(|(reader, plan)| streams::each(&reader, plan, limit, f));
        self.token.rest(self.process);
        given
    }
}

//! Bitmap scans.

use pgrx::pg_sys::IndexScanDesc;
use pgrx::prelude::*;

use super::state;
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

//! `EXPLAIN (NITRO)`, from 18 on: the state and the size of the index behind a node, and with ANALYZE what was read.

use std::ffi::{CStr, CString};
use std::sync::atomic::Ordering::Relaxed;

use pgrx::pg_sys::{self, IndexScanDesc, NodeTag, Oid, PlanState};

use crate::am;
use crate::pg::compat::{self, Explanation};
use crate::state::handle::Handle;
use crate::state::{options, shmem};

/// Gives EXPLAIN its option.
pub fn install_hooks() {
    // SAFETY: runs once, when the library is loaded.
    unsafe { compat::explain_option(explain) }
}

/// The index of a node and its scan, which there is once the plan has been started.
unsafe fn index_of(node: *mut PlanState) -> Option<(Oid, IndexScanDesc)> {
    // SAFETY: a live node and its plan, of the types that their tags say.
    unsafe {
        let plan = (*node).plan;
        match (*node).type_ {
            NodeTag::T_IndexScanState => {
                let scan = (*node.cast::<pg_sys::IndexScanState>()).iss_ScanDesc;
                Some(((*plan.cast::<pg_sys::IndexScan>()).indexid, scan))
            }
            NodeTag::T_IndexOnlyScanState => {
                let scan = (*node.cast::<pg_sys::IndexOnlyScanState>()).ioss_ScanDesc;
                Some(((*plan.cast::<pg_sys::IndexOnlyScan>()).indexid, scan))
            }
            NodeTag::T_BitmapIndexScanState => {
                let scan = (*node.cast::<pg_sys::BitmapIndexScanState>()).biss_ScanDesc;
                Some(((*plan.cast::<pg_sys::BitmapIndexScan>()).indexid, scan))
            }
            _ => None,
        }
    }
}

unsafe fn explain(node: *mut PlanState, to: &Explanation) {
    // SAFETY: the server's node. The index may be a hypothetical one, and so none that can be opened; a
    // cached plan holds no lock on its indexes.
    unsafe {
        let Some((relid, scan)) = index_of(node) else { return };
        let lock = pg_sys::AccessShareLock as i32;
        let index = pg_sys::try_relation_open(relid, lock);
        if index.is_null() {
            return;
        }
        if options::is_nitro(index) {
            describe(index, to);
            if !scan.is_null() && !(*node).instrument.is_null() {
                let work = am::work(scan);
                to.number(c"Nitro Entries Read", None, work.entries() as i64);
                to.number(c"Nitro Leaves Read", None, work.leaves() as i64);
                if work.batched() > 0 {
                    to.number(c"Nitro Batched Searches", None, work.batched() as i64);
                }
                if work.ahead() > 0 {
                    to.number(c"Nitro Rows Prefetched", None, work.ahead() as i64);
                }
            }
        }
        pg_sys::relation_close(index, lock);
    }
}

/// # Safety
/// An open nitro index.
unsafe fn describe(index: pg_sys::Relation, to: &Explanation) {
    // SAFETY: by contract.
    let Some(handle) = (unsafe { Handle::try_open(index) }) else { return };
    let (state, stats) = {
        // State first, inside: see `nitro_index_stats`.
        let _inside = shmem::process().enter();
        let state = handle.entry.state();
        let engine = if state.publishes() { handle.index() } else { None };
        (state, engine.map(|engine| engine.stats()))
    };
    let text = |text: &str| CString::new(text).unwrap_or_default();
    to.text(c"Nitro State", &text(state.name()));
    if let Some(stats) = stats {
        to.number(c"Nitro Entries", None, stats.live as i64);
        to.number(c"Nitro Memory", Some(c"kB"), (stats.bytes / 1024) as i64);
    }
    let lsn = handle.entry.image.saved_lsn.load(Relaxed);
    let image: &CStr = if lsn == 0 { c"none" } else { &text(&compat::lsn_text(lsn)) };
    to.text(c"Nitro Image", image);
}

//! `EXPLAIN (NITRO)`, from 18 on: the state and the size of the index behind a node, and with
//! ANALYZE what was read.

use nitro_engine::prelude::*;
use std::ffi::{CStr, CString};
use std::sync::atomic::Ordering::Relaxed;

use pgrx::PgList;
use pgrx::pg_sys::{self, IndexScanDesc, NodeTag, Oid, PlanState, Relation};

use crate::am;
use crate::pg::compat::{self, Explanation};
use crate::pg::guc;
use crate::state::directory::State;
use crate::state::follow;
use crate::state::handle::Handle;
use crate::state::{hosts, options, shmem};

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
    // SAFETY: the server's node. The index may be a hypothetical one, and so none that can be
    // opened; a cached plan holds no lock on its indexes.
    unsafe {
        if let Some(table) = table_of(node) {
            hidden(table, to);
        }
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

/// The open table that a node reads.
unsafe fn table_of(node: *mut PlanState) -> Option<Relation> {
    // SAFETY: a live node, of the type that its tag says. The types begin alike.
    unsafe {
        let reads = matches!(
            (*node).type_,
            NodeTag::T_SeqScanState
                | NodeTag::T_IndexScanState
                | NodeTag::T_IndexOnlyScanState
                | NodeTag::T_BitmapHeapScanState
        );
        let table = reads.then(|| (*node.cast::<pg_sys::ScanState>()).ss_currentRelation);
        table.filter(|table| !table.is_null())
    }
}

/// Names the valid nitro indexes of a table that plans cannot use now, and the state of each.
///
/// # Safety
/// `table` must be open.
unsafe fn hidden(table: Relation, to: &Explanation) {
    let lock = pg_sys::AccessShareLock as i32;
    let mut all = Vec::new();
    // SAFETY: by contract; the names are the server's.
    unsafe {
        for relid in PgList::<Oid>::from_pg(pg_sys::RelationGetIndexList(table)).iter_oid() {
            let index = pg_sys::try_relation_open(relid, lock);
            if index.is_null() {
                continue;
            }
            if options::is_nitro(index) && (*(*index).rd_index).indisvalid {
                let why = why_hidden(index);
                if let Some(why) = why {
                    all.extend(if all.is_empty() { "" } else { ", " }.bytes());
                    all.extend(CStr::from_ptr((*(*index).rd_rel).relname.data.as_ptr()).to_bytes());
                    all.extend(format!(" ({why})").bytes());
                }
            }
            pg_sys::relation_close(index, lock);
        }
    }
    if !all.is_empty() {
        to.text(c"Nitro Indexes Hidden", &CString::new(all).unwrap_or_default());
    }
}

/// Why plans cannot use an index now; `None` if they can.
///
/// # Safety
/// `index` must be an open and locked nitro index, with an active snapshot.
unsafe fn why_hidden(index: Relation) -> Option<&'static str> {
    // SAFETY: by contract.
    unsafe {
        if !guc::ENABLE_SCAN.get() {
            return Some("nitro.enable_scan is off");
        }
        let Some(handle) = Handle::try_open(index) else { return Some("too many indexes") };
        let state = handle.entry.state();
        let usable = match pg_sys::RecoveryInProgress() {
            true => follow::offers(handle.entry, follow::made_by(index)),
            false => state == State::Ready,
        };
        (!usable).then(|| hosts::shown(index, state))
    }
}

/// # Safety
/// An open nitro index.
unsafe fn describe(index: Relation, to: &Explanation) {
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
    // SAFETY: by contract.
    let shown = unsafe { hosts::shown(index, state) };
    to.text(c"Nitro State", &text(shown));
    if let Some(stats) = stats {
        to.number(c"Nitro Entries", None, stats.live as i64);
        to.number(c"Nitro Memory", Some(c"kB"), (stats.bytes / 1024) as i64);
    }
    let lsn = handle.entry.image.saved_lsn.load(Relaxed);
    let image: &CStr = if lsn == 0 { c"none" } else { &text(&compat::lsn_text(lsn)) };
    to.text(c"Nitro Image", image);
}

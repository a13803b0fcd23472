//! Index-only scans without the parts of the executor's that cost most: `nitro.enable_fast_scan`.
//!
//! The plan, its node and its state are the server's. When a plan is started, an Index Only Scan
//! over a nitro index gets another function for its next row, the one here (`ExecSetExecProcNode`
//! is meant for that). It does what `ExecIndexOnlyScan` does (nodeIndexonlyscan.c), but
//! - asks pinned pages of the visibility map (`visibility`), on a standby for the rows of a batch
//!   together,
//! - puts values into the slot, not into an index tuple first,
//! - and, where a row needs nothing else, does so without a call of the server.
//!
//! The place of the scan is the access method's, as without this. So rescans, marks and backward
//! fetches need no care. The server's own function begins the scan and works out run-time keys. It
//! does the whole scan in two cases. Under serializable isolation it locks a page of the table for
//! each row. Rechecks of EvalPlanQual start nodes of their own.

use std::sync::OnceLock;

use pgrx::pg_sys::{self, IndexOnlyScanState, IndexScanDesc, PlanState, TupleTableSlot};
use pgrx::prelude::*;

use super::scan::{self, Found, Scan};
use super::stock;
use crate::pg::compat;
use crate::state::options;

/// The server's `ExecIndexOnlyScan`, once known.
static STOCK: OnceLock<pg_sys::ExecProcNodeMtd> = OnceLock::new();

/// Returns true if the rows of a started node may be read by [`access`] and from the batch of its
/// scan. It is then an index-only scan of nitro that has begun. It has the server's function or
/// nitro's, and no condition of its own.
pub(super) unsafe fn may_go_direct(node: *mut PlanState) -> bool {
    // SAFETY: a live node of the type that its tag says.
    unsafe {
        if (*node).type_ != pg_sys::NodeTag::T_IndexOnlyScanState || !(*node).qual.is_null() {
            return false;
        }
        let state = node.cast::<IndexOnlyScanState>();
        let (index, estate) = ((*state).ioss_RelationDesc, (*node).state);
        let own = |f: unsafe extern "C-unwind" fn(*mut PlanState) -> *mut TupleTableSlot| {
            f as usize == next as *const () as usize
        };
        !(*state).ioss_ScanDesc.is_null()
            && ((*state).ioss_NumRuntimeKeys == 0 || (*state).ioss_RuntimeKeysReady)
            && (*estate).es_epq_active.is_null()
            && stock::is_allowed((*estate).es_snapshot)
            && options::is_nitro(index)
            && ((*node).ExecProcNodeReal.is_some_and(own) || is_stock(node))
    }
}

/// Exchanges the function of a started node, if it is an index-only scan of ours.
///
/// # Safety
/// A live node.
pub(super) unsafe fn exchange(node: *mut PlanState) {
    // SAFETY: by contract; the node is of the type that its tag says.
    unsafe {
        if (*node).type_ == pg_sys::NodeTag::T_IndexOnlyScanState {
            let index = (*node.cast::<IndexOnlyScanState>()).ioss_RelationDesc;
            if !index.is_null() && options::is_nitro(index) && is_stock(node) {
                pg_sys::ExecSetExecProcNode(node, Some(next));
            }
        }
    }
}

/// Whether a node still has the server's own function: another extension's is left alone.
unsafe fn is_stock(node: *mut PlanState) -> bool {
    // SAFETY: an initialized node.
    unsafe { stock::is_servers(node, &STOCK) }
}

/// The next row of an index-only scan (`ExecProcNode`).
///
/// Returns the next row. Most rows are in the present batch, all-visible, and of values that are
/// passed as they are. These rows call nothing of the server and cannot fail. So they need no guard
/// that turns panics into ERRORs. The server's own function, which checks conditions of the node,
/// has no guard either: its ERRORs pass over a frame that has nothing to drop.
unsafe extern "C-unwind" fn next(node: *mut PlanState) -> *mut TupleTableSlot {
    // SAFETY: a node that `exchange` has seen.
    unsafe {
        let state = node.cast::<IndexOnlyScanState>();
        let descriptor = (*state).ioss_ScanDesc;
        // The scan hands rows up once it has been started with its keys. Since then a change of the
        // keys starts it again.
        if descriptor.is_null() || !scan::state(descriptor).hands_up() {
            return next_guarded(node);
        }
        if (*node).qual.is_null() && (*node).ps_ProjInfo.is_null() {
            return access_quickly(node.cast());
        }
        compat::exec_scan(node.cast(), access_quickly, recheck)
    }
}

/// `access`, without its guard where that does nothing that can fail.
unsafe extern "C-unwind" fn access_quickly(node: *mut pg_sys::ScanState) -> *mut TupleTableSlot {
    // SAFETY: the node that `next` passed.
    unsafe {
        let state = node.cast::<IndexOnlyScanState>();
        let (scan, slot) = ((*state).ioss_ScanDesc, (*node).ss_ScanTupleSlot);
        let own = scan::state(scan);
        let simple = !(*scan).kill_prior_tuple
            && u32::from((*slot).tts_flags) & pg_sys::TTS_FLAG_SHOULDFREE == 0
            && own.step_plain(slot, compat::is_forward(state));
        if !simple {
            return access_guarded(node);
        }
        (*scan).xs_heaptid = compat::u64_to_tid(own.tid());
        compat::count_index_tuples((*scan).indexRelation, 1);
        compat::store_values(slot);
        slot
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn next_guarded(node: *mut PlanState) -> *mut TupleTableSlot {
    crate::pg::witness!();
    // SAFETY: as `next`.
    unsafe {
        let state = node.cast::<IndexOnlyScanState>();
        let begun = !(*state).ioss_ScanDesc.is_null();
        if !begun || ((*state).ioss_NumRuntimeKeys != 0 && !(*state).ioss_RuntimeKeysReady) {
            return compat::exec_proc_node(STOCK.get().copied().flatten(), node);
        }
        scan::state((*state).ioss_ScanDesc).hand_up_values((*state).ioss_RelationDesc);
        if (*node).qual.is_null() && (*node).ps_ProjInfo.is_null() {
            return access(state);
        }
        pg_sys::ExecScan(&raw mut (*state).ss, Some(access_guarded), Some(recheck))
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn access_guarded(node: *mut pg_sys::ScanState) -> *mut TupleTableSlot {
    crate::pg::witness!();
    // SAFETY: the node that `next_guarded` passed.
    unsafe { access(node.cast()) }
}

/// Never called: EvalPlanQual starts nodes of its own, which have the server's function.
#[pg_guard]
unsafe extern "C-unwind" fn recheck(
    _node: *mut pg_sys::ScanState,
    _slot: *mut TupleTableSlot,
) -> bool {
    crate::pg::witness!();
    crate::pg::error::Failure::new(
        PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
        "an index-only scan cannot recheck a row",
    )
    .raise()
}

/// `IndexOnlyNext`.
pub(super) unsafe fn access(node: *mut IndexOnlyScanState) -> *mut TupleTableSlot {
    // SAFETY: a node whose scan has begun; its slot has the columns of the index.
    unsafe {
        let scan = (*node).ioss_ScanDesc;
        let slot = (*node).ss.ss_ScanTupleSlot;
        compat::clear_slot(slot);
        while let Some(all_visible) = step(node) {
            if !all_visible && !fetch(node) {
                continue;
            }
            scan::state(scan).write_values(slot, (*(*node).ss.ps.state).es_query_cxt);
            compat::store_values(slot);
            if (*scan).xs_recheck && !passes(node, slot) {
                if let Some(instrument) = (*node).ss.ps.instrument.as_mut() {
                    instrument.nfiltered2 += 1.0;
                }
                compat::clear_slot(slot);
                continue;
            }
            return slot;
        }
        slot
    }
}

/// Moves to the next entry; says whether its block is all-visible.
pub(super) unsafe fn step(node: *mut IndexOnlyScanState) -> Option<bool> {
    // SAFETY: a node whose scan has begun.
    unsafe {
        let scan = (*node).ioss_ScanDesc;
        let own = scan::state(scan);
        if !advance(own, scan, compat::is_forward(node)) {
            return None;
        }
        crate::pg::wait::interrupts();
        Some(own.is_all_visible((*scan).heapRelation))
    }
}

/// Whether the table has a visible row for the current entry.
pub(super) unsafe fn fetch(node: *mut IndexOnlyScanState) -> bool {
    // SAFETY: a node whose scan has moved to an entry.
    unsafe {
        if let Some(instrument) = (*node).ss.ps.instrument.as_mut() {
            instrument.ntuples2 += 1.0;
        }
        let scan = (*node).ioss_ScanDesc;
        let found = pg_sys::index_fetch_heap(scan, (*node).ioss_TableSlot);
        if found {
            compat::clear_slot((*node).ioss_TableSlot);
        }
        // Here the scan still stands at the entry in question. An aggregate passes others before it
        // asks for the next one.
        if std::mem::take(&mut (*scan).kill_prior_tuple) {
            scan::state(scan).kill();
        }
        found
    }
}

/// `index_getnext_tid`.
unsafe fn advance(own: &mut Scan, scan: IndexScanDesc, forward: bool) -> bool {
    // SAFETY: the scan of a node.
    unsafe {
        let found = own.next(scan, forward);
        (*scan).kill_prior_tuple = false;
        (*scan).xs_heap_continue = false;
        if found == Found::Nothing {
            compat::reset_fetch(scan);
            return false;
        }
        compat::count_index_tuples((*scan).indexRelation, 1);
        true
    }
}

/// Whether the row in the slot passes the conditions that the index could not decide.
unsafe fn passes(node: *mut IndexOnlyScanState, slot: *mut TupleTableSlot) -> bool {
    // SAFETY: the node's own expression and context.
    unsafe {
        let context = (*node).ss.ps.ps_ExprContext;
        (*context).ecxt_scantuple = slot;
        compat::qual_passes((*node).recheckqual, context)
    }
}

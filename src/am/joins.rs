//! Nested loops that look many outer rows up at once: `nitro.enable_batched_joins`.
//!
//! The plan, its nodes and their state are the server's. Some nested loops have a plain scan of a
//! nitro index as inner side. When a plan is started, the function that returns their next row is
//! exchanged for the one here. It does the same as `ExecNestLoop` (nodeNestloop.c), but reads some
//! outer rows ahead. The scan looks up all their ranges together (`scan::batched`). So their waits
//! for memory overlap, and they share other costs of a look-up. The scan is then started for one
//! after the other, without its run-time keys.
//!
//! Reading ahead has two visible effects below a LIMIT, or a cursor that is closed early, as
//! parallel workers have. A row that was not asked for may raise its ERROR, and EXPLAIN ANALYZE
//! counts it. Nothing else may be noticed:
//! - The outer side has only nodes that do nothing but return rows. Their expressions and
//!   aggregates' functions are not volatile, and they have no subplans. (The CHECK of a domain
//!   counts as immutable, as everywhere in the server, and so do the functions of operator
//!   classes.) Nor are they stable if something in the query could change their answers, as
//!   `set_config` does for `current_setting`. (Commands between two FETCHes from a cursor may come
//!   too late for a stable function.) The outer side reads by the snapshot of the query. So it does
//!   not see the changes of commands, functions and triggers meanwhile. Copies of its rows own
//!   their values.
//! - The first row is not read ahead, and no more rows than were used so far: LIMIT 1 pays for
//!   nothing.
//! - Keys are parameters, not expressions: none is evaluated early. An outer row is a parameter's
//!   value again before anything else is evaluated for it.
//! - Under serializable isolation the server's function runs; so it does for rechecks of
//!   EvalPlanQual, which start nodes of their own.
//!
//! A new start of the node sets `nl_NeedNewOuter`. Rows that are held are then not wanted any more.
//! Between two rows [`Batch::between`] stands for it. The held rows live with the inner scan, which
//! the first row begins. An ERROR ends the query, and with it both.

mod outer;

use std::sync::OnceLock;

use pgrx::pg_sys::{
    self, ExprContext, IndexRuntimeKeyInfo, IndexScanDesc, JoinType, NestLoopState, NodeTag,
    PlanState, ScanDirection, TupleTableSlot,
};
use pgrx::prelude::*;

use super::scan::{self, Batch};
use super::stock::is_servers;
use crate::pg::compat;
use crate::state::options;

/// Outer rows that are read ahead, at most, and bytes of them.
const MOST: usize = 32;
const MOST_BYTES: usize = 256 << 10;

/// The server's `ExecNestLoop`, once known.
static STOCK: OnceLock<pg_sys::ExecProcNodeMtd> = OnceLock::new();

/// The inner side of a nested loop: a scan of an index, with or without fetches from the table.
struct Inner {
    scan: IndexScanDesc,
    index: pg_sys::Relation,
    scan_keys: *const pg_sys::ScanKeyData,
    keys: *mut IndexRuntimeKeyInfo,
    n_keys: i32,
    context: *mut ExprContext,
}

impl Inner {
    #[inline]
    unsafe fn of(node: *mut NestLoopState) -> Option<Inner> {
        // SAFETY: a started node; its child is of the type that its tag says.
        unsafe {
            let inner = (*node).js.ps.righttree;
            match (*inner).type_ {
                NodeTag::T_IndexScanState => {
                    let state = inner.cast::<pg_sys::IndexScanState>();
                    Some(Inner {
                        scan: (*state).iss_ScanDesc,
                        index: (*state).iss_RelationDesc,
                        scan_keys: (*state).iss_ScanKeys,
                        keys: (*state).iss_RuntimeKeys,
                        n_keys: (*state).iss_NumRuntimeKeys,
                        context: (*state).iss_RuntimeContext,
                    })
                }
                NodeTag::T_IndexOnlyScanState => {
                    let state = inner.cast::<pg_sys::IndexOnlyScanState>();
                    Some(Inner {
                        scan: (*state).ioss_ScanDesc,
                        index: (*state).ioss_RelationDesc,
                        scan_keys: (*state).ioss_ScanKeys,
                        keys: (*state).ioss_RuntimeKeys,
                        n_keys: (*state).ioss_NumRuntimeKeys,
                        context: (*state).ioss_RuntimeContext,
                    })
                }
                _ => None,
            }
        }
    }
}

/// Exchanges the function of a started node, if it is a nested loop of this kind. `query`: the
/// query of the node, if known.
pub(super) unsafe fn exchange(node: *mut PlanState, query: *mut PlanState) {
    // SAFETY: a live node of the type that its tag says.
    unsafe {
        if (*node).type_ == NodeTag::T_NestLoopState
            && is_ours(node.cast())
            && outer::may_be_read_ahead((*node).lefttree, query)
            && is_servers(node, &STOCK)
        {
            pg_sys::ExecSetExecProcNode(node, Some(next));
        }
    }
}

/// Whether the inner side is a plain scan of ours whose keys come from parameters.
unsafe fn is_ours(node: *mut NestLoopState) -> bool {
    // SAFETY: as `exchange`.
    unsafe {
        let (plan, inner) = ((*node).js.ps.plan, (*node).js.ps.righttree);
        let Some(Inner { index, keys, n_keys, .. }) = Inner::of(node) else { return false };
        let direction = match (*inner).type_ {
            NodeTag::T_IndexScanState => {
                let plan = (*inner).plan.cast::<pg_sys::IndexScan>();
                if !(*plan).indexorderby.is_null() {
                    return false;
                }
                (*plan).indexorderdir
            }
            _ => (*(*inner).plan.cast::<pg_sys::IndexOnlyScan>()).indexorderdir,
        };
        let is_parameter = |i: i32| {
            let mut expression = (*(*keys.add(i as usize)).key_expr).expr.cast::<pg_sys::Node>();
            while (*expression).type_ == NodeTag::T_RelabelType {
                expression = (*expression.cast::<pg_sys::RelabelType>()).arg.cast();
            }
            (*expression).type_ == NodeTag::T_Param
        };
        !(*plan.cast::<pg_sys::NestLoop>()).nestParams.is_null()
            && direction != ScanDirection::BackwardScanDirection
            && !index.is_null()
            && options::is_nitro(index)
            && (*inner).initPlan.is_null()
            && (*inner).subPlan.is_null()
            && !(*(*inner).plan).parallel_aware
            && n_keys > 0
            && (0..n_keys).all(is_parameter)
    }
}

/// Does the same as `ExecNestLoop`. It has no guard: nothing in it can panic. An ERROR of a called
/// function passes over its frame, which holds nothing.
unsafe extern "C-unwind" fn next(node: *mut PlanState) -> *mut TupleTableSlot {
    // SAFETY: a node that `exchange` has seen, with its own expressions, slots and context.
    unsafe {
        let state = node.cast::<NestLoopState>();
        let (context, projection) = ((*node).ps_ExprContext, (*node).ps_ProjInfo);
        compat::bare_interrupts();
        compat::bare_reset(context);
        loop {
            if wants_outer(state) && !next_outer(state) {
                return std::ptr::null_mut();
            }
            let inner = compat::bare_next((*node).righttree);
            (*context).ecxt_innertuple = inner;
            if compat::is_end(inner) {
                leave_outer(state);
                let kind = (*state).js.jointype;
                let alone = [JoinType::JOIN_LEFT, JoinType::JOIN_ANTI].contains(&kind);
                if alone && !(*state).nl_MatchedOuter {
                    (*context).ecxt_innertuple = (*state).nl_NullInnerTupleSlot;
                    if compat::bare_passes((*node).qual, context) {
                        return compat::bare_project(projection);
                    }
                    count_filtered(node, true);
                }
                continue;
            }
            if compat::bare_passes((*state).js.joinqual, context) {
                (*state).nl_MatchedOuter = true;
                if (*state).js.jointype == JoinType::JOIN_ANTI {
                    leave_outer(state);
                    continue;
                }
                if (*state).js.single_match {
                    leave_outer(state);
                }
                if compat::bare_passes((*node).qual, context) {
                    return compat::bare_project(projection);
                }
                count_filtered(node, true);
            } else {
                count_filtered(node, false);
            }
            compat::bare_reset(context);
        }
    }
}

/// `InstrCountFiltered1`, `InstrCountFiltered2`
unsafe fn count_filtered(node: *mut PlanState, second: bool) {
    // SAFETY: a live node.
    unsafe {
        match (*node).instrument.as_mut() {
            Some(instrument) if second => instrument.nfiltered2 += 1.0,
            Some(instrument) => instrument.nfiltered1 += 1.0,
            None => (),
        }
    }
}

/// Returns the inner scan, once it has begun. The held rows live with it.
#[inline]
unsafe fn begun(node: *mut NestLoopState) -> Option<IndexScanDesc> {
    // SAFETY: a node that `exchange` has seen.
    unsafe { Inner::of(node) }.map(|inner| inner.scan).filter(|scan| !scan.is_null())
}

#[inline]
unsafe fn wants_outer(node: *mut NestLoopState) -> bool {
    // SAFETY: as `begun`.
    unsafe {
        (*node).nl_NeedNewOuter || begun(node).is_some_and(|scan| scan::state(scan).batch.between)
    }
}

/// The current outer row is done.
#[inline]
unsafe fn leave_outer(node: *mut NestLoopState) {
    // SAFETY: as `begun`.
    unsafe {
        match begun(node) {
            Some(scan) => scan::state(scan).batch.between = true,
            None => (*node).nl_NeedNewOuter = true,
        }
    }
}

/// Goes to the next outer row and starts the inner side for it; false: there is none.
unsafe fn next_outer(node: *mut NestLoopState) -> bool {
    // SAFETY: as `next`. Each borrow of the scan's state ends before the next call of the server.
    unsafe {
        let (outer, inner) = ((*node).js.ps.lefttree, (*node).js.ps.righttree);
        let context = (*node).js.ps.ps_ExprContext;
        let params = (*(*node).js.ps.plan.cast::<pg_sys::NestLoop>()).nestParams;
        let mut looked_up = None;
        let row = match begun(node) {
            None => compat::bare_next(outer),
            Some(scan) => {
                if (*node).nl_NeedNewOuter {
                    forget(scan);
                }
                if scan::state(scan).batch.is_used_up() {
                    fill(node, scan);
                }
                let own = scan::state(scan);
                let batch = &mut own.batch;
                let i = batch.begun;
                if i == batch.held {
                    // The outer side must not be asked once more, even if another row is asked for.
                    batch.between = true;
                    (*node).nl_NeedNewOuter = false;
                    forget_ranges(scan);
                    return false;
                }
                batch.begun += 1;
                batch.between = false;
                let row = match batch.one {
                    Some(row) => row,
                    None => *batch.slots.as_ptr().add(i),
                };
                if (*inner).chgParam.is_null() && own.has_range(i) {
                    looked_up = Some((scan, i));
                }
                row
            }
        };
        if compat::is_end(row) {
            return false;
        }
        (*context).ecxt_outertuple = row;
        (*node).nl_NeedNewOuter = false;
        (*node).nl_MatchedOuter = false;
        compat::bare_params(params, context, row);
        match looked_up {
            Some((scan, i)) => {
                compat::bare_restart(inner.cast());
                start_range(scan, i);
            }
            None => compat::bare_rescan(params, inner),
        }
        true
    }
}

/// Reads the next outer rows, and looks their ranges up if they are several.
unsafe fn fill(node: *mut NestLoopState, scan: IndexScanDesc) {
    // SAFETY: as `next_outer`. The slots are there until the query ends.
    unsafe {
        let outer = (*node).js.ps.lefttree;
        let batch = &raw mut scan::state(scan).batch;
        let size = (*batch).more + 1;
        ((*batch).begun, (*batch).held, (*batch).one) = (0, 0, None);
        if size > 1 {
            make_slots(node, scan, size);
        }
        let (mut n, mut bytes) = (0, 0);
        while n < size && bytes < MOST_BYTES {
            let row = compat::bare_next(outer);
            if compat::is_end(row) {
                (*batch).ended = true;
                break;
            }
            if size == 1 {
                (*batch).one = Some(row);
            } else {
                bytes += compat::bare_copy(*(*batch).slots.as_ptr().add(n), row);
            }
            n += 1;
        }
        (*batch).held = n;
        (*batch).more = (2 * size).min(MOST) - 1;
        if size > 1 && n > 0 && begin_ranges(scan) {
            let Some(inner) = Inner::of(node) else { return };
            let params = (*(*node).js.ps.plan.cast::<pg_sys::NestLoop>()).nestParams;
            for i in 0..n {
                let row = *(*batch).slots.as_ptr().add(i);
                compat::bare_params(params, (*node).js.ps.ps_ExprContext, row);
                compat::bare_runtime_keys(inner.context, inner.keys, inner.n_keys);
                if !add_range(scan, inner.scan_keys) {
                    break;
                }
            }
            look_up(scan);
        }
    }
}

/// Makes slots for this number of copies of outer rows.
#[pg_guard]
unsafe extern "C-unwind" fn make_slots(node: *mut NestLoopState, scan: IndexScanDesc, size: usize) {
    crate::pg::witness!();
    // SAFETY: as `fill`; the slots are in the query's list and memory.
    unsafe {
        let (outer, estate) = ((*node).js.ps.lefttree, (*node).js.ps.state);
        let slots = &mut scan::state(scan).batch.slots;
        let (columns, kind) = (pg_sys::ExecGetResultType(outer), compat::kind_of_copies(outer));
        let previous = pg_sys::MemoryContextSwitchTo((*estate).es_query_cxt);
        while slots.len() < size {
            slots.push(pg_sys::ExecInitExtraTupleSlot(estate, columns, kind));
        }
        pg_sys::MemoryContextSwitchTo(previous);
    }
}

/// Begins to look up ranges; false: the scan looks each up when it is started.
#[pg_guard]
unsafe extern "C-unwind" fn begin_ranges(scan: IndexScanDesc) -> bool {
    crate::pg::witness!();
    // SAFETY: as `fill`.
    unsafe { scan::state(scan).begin_ranges(scan) }
}

/// Adds the range of scan keys that have been evaluated; false: it is none of these.
#[pg_guard]
unsafe extern "C-unwind" fn add_range(
    scan: IndexScanDesc,
    keys: *const pg_sys::ScanKeyData,
) -> bool {
    crate::pg::witness!();
    // SAFETY: as `fill`; the keys are those of the scan's node.
    unsafe {
        let keys = std::slice::from_raw_parts(keys, (*scan).numberOfKeys as usize);
        scan::state(scan).add_range(scan, keys)
    }
}

/// Looks up what was added.
#[pg_guard]
unsafe extern "C-unwind" fn look_up(scan: IndexScanDesc) {
    crate::pg::witness!();
    // SAFETY: as `fill`.
    unsafe {
        scan::state(scan).look_ranges_up();
        scan::ask_for_first_rows(scan);
    }
}

/// Starts the scan for a row whose range was looked up (`amrescan`, `index_rescan`).
#[pg_guard]
unsafe extern "C-unwind" fn start_range(scan: IndexScanDesc, i: usize) {
    crate::pg::witness!();
    // SAFETY: as `fill`.
    unsafe {
        (*scan).kill_prior_tuple = false;
        (*scan).xs_heap_continue = false;
        // No range that is looked up so is approximate, and entries of the batch are handed up
        // without a word on it.
        (*scan).xs_recheck = false;
        scan::state(scan).start_range(scan, i);
    }
}

/// The rows that are held are not wanted: the nested loop is started again.
#[pg_guard]
unsafe extern "C-unwind" fn forget(scan: IndexScanDesc) {
    crate::pg::witness!();
    // SAFETY: as `fill`.
    unsafe {
        let own = scan::state(scan);
        own.forget_ranges();
        own.batch = Batch { slots: std::mem::take(&mut own.batch.slots), ..Batch::default() };
    }
}

/// The last range has been read.
#[pg_guard]
unsafe extern "C-unwind" fn forget_ranges(scan: IndexScanDesc) {
    crate::pg::witness!();
    // SAFETY: as `fill`.
    unsafe { scan::state(scan).forget_ranges() }
}

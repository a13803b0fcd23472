//! Whether the outer side of a nested loop may be read ahead: see `joins`.

use std::ffi::c_void;

use pgrx::pg_sys::{self, NodeTag, PlanState};
use pgrx::prelude::*;

use crate::pg::compat;

/// Returns true if the time at which the rows of a started node are read changes nothing. The node
/// is part of `query` (null: not known).
pub(super) unsafe fn may_be_read_ahead(node: *mut PlanState, query: *mut PlanState) -> bool {
    let mut stable = false;
    // SAFETY: live nodes.
    unsafe {
        let told = hinders(node, (&raw mut stable).cast())
            || stable && (query.is_null() || changes(query, std::ptr::null_mut()));
        !told
    }
}

/// The expressions of a node that does nothing but return rows; `None`: of another one.
unsafe fn expressions(node: *mut PlanState) -> Option<[*mut pg_sys::Node; 4]> {
    // SAFETY: a live node and its plan, of the types that their tags say.
    unsafe {
        let plan = (*node).plan;
        let none = std::ptr::null_mut();
        let more: [*mut c_void; 2] = match (*node).type_ {
            NodeTag::T_SeqScanState
            | NodeTag::T_BitmapHeapScanState
            | NodeTag::T_BitmapAndState
            | NodeTag::T_BitmapOrState
            | NodeTag::T_SubqueryScanState
            | NodeTag::T_MaterialState
            | NodeTag::T_SortState
            | NodeTag::T_IncrementalSortState
            | NodeTag::T_HashState
            | NodeTag::T_AggState
            | NodeTag::T_GroupState
            | NodeTag::T_UniqueState
            | NodeTag::T_AppendState
            | NodeTag::T_MergeAppendState => [none, none],
            NodeTag::T_IndexScanState => {
                let plan = plan.cast::<pg_sys::IndexScan>();
                [(*plan).indexqual.cast(), (*plan).indexorderby.cast()]
            }
            NodeTag::T_IndexOnlyScanState => {
                let plan = plan.cast::<pg_sys::IndexOnlyScan>();
                [(*plan).indexqual.cast(), (*plan).indexorderby.cast()]
            }
            NodeTag::T_BitmapIndexScanState => {
                [(*plan.cast::<pg_sys::BitmapIndexScan>()).indexqual.cast(), none]
            }
            NodeTag::T_NestLoopState => [(*plan.cast::<pg_sys::Join>()).joinqual.cast(), none],
            NodeTag::T_MergeJoinState => {
                let plan = plan.cast::<pg_sys::MergeJoin>();
                [(*plan).join.joinqual.cast(), (*plan).mergeclauses.cast()]
            }
            NodeTag::T_HashJoinState => {
                let plan = plan.cast::<pg_sys::HashJoin>();
                [(*plan).join.joinqual.cast(), (*plan).hashclauses.cast()]
            }
            NodeTag::T_ValuesScanState => {
                [(*plan.cast::<pg_sys::ValuesScan>()).values_lists.cast(), none]
            }
            NodeTag::T_FunctionScanState => {
                [(*plan.cast::<pg_sys::FunctionScan>()).functions.cast(), none]
            }
            NodeTag::T_ResultState => {
                [(*plan.cast::<pg_sys::Result>()).resconstantqual.cast(), none]
            }
            NodeTag::T_LimitState => {
                let plan = plan.cast::<pg_sys::Limit>();
                [(*plan).limitOffset.cast(), (*plan).limitCount.cast()]
            }
            _ => return None,
        };
        Some([(*plan).targetlist.cast(), (*plan).qual.cast(), more[0].cast(), more[1].cast()])
    }
}

/// Whether some node of an outer side keeps it from being read ahead. The context, a `bool`, is set
/// if expressions are no more than stable.
#[pg_guard]
unsafe extern "C-unwind" fn hinders(node: *mut PlanState, stable: *mut c_void) -> bool {
    crate::pg::witness!();
    // SAFETY: live nodes and plans of the types that their tags say.
    unsafe {
        if node.is_null() {
            return false;
        }
        let Some(expressions) = expressions(node) else { return true };
        let mut all = expressions.into_iter().filter(|all| !all.is_null());
        if all.clone().any(|all| pg_sys::contain_volatile_functions(all)) {
            return true;
        }
        let least = least_of_functions(node);
        if least != pg_sys::PROVOLATILE_IMMUTABLE
            || all.any(|all| pg_sys::contain_mutable_functions(all))
        {
            *stable.cast::<bool>() = true;
        }
        least == pg_sys::PROVOLATILE_VOLATILE
            || !(*node).initPlan.is_null()
            || !(*node).subPlan.is_null()
            || compat::walk_plan_state(node, Some(hinders), stable)
    }
}

/// Whether some node of a query may do more than to return rows.
#[pg_guard]
unsafe extern "C-unwind" fn changes(node: *mut PlanState, context: *mut c_void) -> bool {
    crate::pg::witness!();
    // SAFETY: as `hinders`.
    unsafe {
        if node.is_null() {
            return false;
        }
        let plan = (*node).plan;
        let expressions = match (*node).type_ {
            NodeTag::T_GatherState
            | NodeTag::T_GatherMergeState
            | NodeTag::T_MemoizeState
            | NodeTag::T_LockRowsState
            | NodeTag::T_ProjectSetState
            | NodeTag::T_SetOpState
            | NodeTag::T_CteScanState => {
                let none = std::ptr::null_mut();
                [(*plan).targetlist.cast(), (*plan).qual.cast(), none, none]
            }
            _ => match expressions(node) {
                Some(expressions) => expressions,
                None => return true,
            },
        };
        let volatile = |all: *mut pg_sys::Node| pg_sys::contain_volatile_functions(all);
        expressions.into_iter().any(|all| !all.is_null() && volatile(all))
            || least_of_functions(node) == pg_sys::PROVOLATILE_VOLATILE
            || compat::walk_plan_state(node, Some(changes), context)
    }
}

/// Returns the weakest volatility of the functions that a node calls besides its expressions.
unsafe fn least_of_functions(node: *mut PlanState) -> u8 {
    // SAFETY: a started node of the type that its tag says.
    unsafe {
        let pruned = match (*node).type_ {
            // The aggregate itself is always called immutable.
            NodeTag::T_AggState => return least_of_steps(node.cast()),
            // Which of its parts are read is asked again and again, by expressions that are not
            // volatile.
            NodeTag::T_AppendState => {
                !(*node.cast::<pg_sys::AppendState>()).as_prune_state.is_null()
            }
            NodeTag::T_MergeAppendState => {
                !(*node.cast::<pg_sys::MergeAppendState>()).ms_prune_state.is_null()
            }
            _ => false,
        };
        if pruned { pg_sys::PROVOLATILE_STABLE } else { pg_sys::PROVOLATILE_IMMUTABLE }
    }
}

unsafe fn least_of_steps(node: *mut pg_sys::AggState) -> u8 {
    // SAFETY: a started node, with these numbers of aggregates and transitions.
    unsafe {
        let transitions =
            (0..(*node).numtrans as usize).map(|i| (*(*node).pertrans.add(i)).transfn_oid);
        let ends = (0..(*node).numaggs as usize).map(|i| (*(*node).peragg.add(i)).finalfn_oid);
        let functions = transitions.chain(ends).filter(|&f| f != pg_sys::Oid::INVALID);
        functions.fold(pg_sys::PROVOLATILE_IMMUTABLE, |least, function| {
            match (least, pg_sys::func_volatile(function) as u8) {
                (pg_sys::PROVOLATILE_VOLATILE, _) => least,
                (_, pg_sys::PROVOLATILE_IMMUTABLE) => least,
                (_, more) => more,
            }
        })
    }
}

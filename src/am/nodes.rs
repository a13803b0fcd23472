//! What the nodes of a started plan get from here (`ExecutorStart_hook`).

use std::ffi::c_void;

use pgrx::pg_sys::{self, PlanState};
use pgrx::prelude::*;

use super::stock;
use super::{index_only, joins, statements};
use crate::pg::{compat, guc};

static mut PREVIOUS: pg_sys::ExecutorStart_hook_type = None;

/// Chains the hook.
pub fn install_hooks() {
    // SAFETY: runs once, when the library is loaded.
    unsafe {
        PREVIOUS = pg_sys::ExecutorStart_hook;
        pg_sys::ExecutorStart_hook = Some(on_start);
    }
}

/// `ExecutorStart_hook`
#[pg_guard]
unsafe extern "C-unwind" fn on_start(query: *mut pg_sys::QueryDesc, flags: i32) {
    crate::pg::witness!();
    // SAFETY: what the server passes; the state tree is there after the start.
    unsafe {
        match PREVIOUS {
            Some(previous) => previous(query, flags),
            None => pg_sys::standard_ExecutorStart(query, flags),
        }
        if flags & pg_sys::EXEC_FLAG_EXPLAIN_ONLY as i32 == 0 {
            statements::started(query);
            let plain = stock::is_plain((*query).snapshot);
            let mut ways = Ways {
                scans: plain && guc::ENABLE_FAST_SCAN.get(),
                joins: plain && guc::ENABLE_BATCHED_JOINS.get(),
                query: if is_in_another(query) { std::ptr::null_mut() } else { (*query).planstate },
            };
            prepare((*query).planstate, (&raw mut ways).cast());
        }
    }
}

/// The functions that nodes may get.
struct Ways {
    /// Of index-only scans, see `index_only`.
    scans: bool,
    /// Of nested loops, see `joins`.
    joins: bool,
    /// All that may run between two of its rows; null: that is not known.
    query: *mut PlanState,
}

/// Whether a query is that of an SQL function, whose rows may be asked for one by one while the one
/// that calls it runs.
unsafe fn is_in_another(query: *mut pg_sys::QueryDesc) -> bool {
    // SAFETY: what the server passes.
    unsafe {
        let to = (*query).dest;
        !to.is_null() && (*to).mydest == pg_sys::CommandDest::DestSQLFunction
    }
}

/// Gives a started node conditions that the server does not make itself, and a function of nitro if
/// the context, [`Ways`], says so.
#[pg_guard]
unsafe extern "C-unwind" fn prepare(node: *mut PlanState, ways: *mut c_void) -> bool {
    crate::pg::witness!();
    // SAFETY: live nodes of the types that their tags say.
    unsafe {
        if node.is_null() {
            return false;
        }
        compat::compare_rows(node);
        let Ways { scans, joins, query } = *ways.cast::<Ways>();
        if joins {
            joins::exchange(node, query);
        }
        if scans {
            index_only::exchange(node);
        }
        compat::walk_plan_state(node, Some(prepare), ways)
    }
}

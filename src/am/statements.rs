//! The hooks by which statements that write are known, and drained at their ends: see `deferred`.
//!
//! Entries of a plan with ON CONFLICT never wait. The server may give up one of its rows and use
//! the TID for another one while the transaction goes on.

use std::ffi::c_void;

use pgrx::pg_sys::{self, NodeTag, QueryDesc};
use pgrx::prelude::*;

use super::deferred;
use super::deferred::running;
use crate::pg::guc::{self, Mechanism};

static mut PREVIOUS_FINISH: pg_sys::ExecutorFinish_hook_type = None;

/// Chains the hooks and registers the callbacks; only while `shared_preload_libraries` are loaded.
pub fn install_hooks() {
    // SAFETY: runs once, in the single-threaded postmaster; children inherit the registrations.
    unsafe {
        PREVIOUS_FINISH = pg_sys::ExecutorFinish_hook;
        pg_sys::ExecutorFinish_hook = Some(on_finish);
        pg_sys::RegisterXactCallback(Some(at_transaction_end), std::ptr::null_mut());
        pg_sys::RegisterSubXactCallback(Some(at_subtransaction_end), std::ptr::null_mut());
    }
}

/// Looks at a query that was started.
///
/// # Safety
/// What the server passes to `ExecutorStart_hook`, after the start.
pub unsafe fn started(query: *mut QueryDesc) {
    // SAFETY: by contract; the plan's nodes are of the types that their tags say.
    unsafe {
        let plan = (*query).plannedstmt;
        if (*plan).parallelModeNeeded {
            deferred::drain_all();
        }
        let writes = !matches!(
            (*query).operation,
            pg_sys::CmdType::CMD_SELECT | pg_sys::CmdType::CMD_DELETE
        );
        if !writes && !(*plan).hasModifyingCTE {
            return;
        }
        let estate = (*query).estate;
        let may = guc::insert_memory() > 0
            && may_wait((*plan).planTree)
            && nodes((*plan).subplans).all(|node| may_wait(node));
        let command = (*estate).es_output_cid;
        let size = size_of::<pg_sys::MemoryContextCallback>();
        let callback: *mut pg_sys::MemoryContextCallback =
            pg_sys::MemoryContextAllocZero((*estate).es_query_cxt, size).cast();
        (*callback).func = Some(query_ended);
        (*callback).arg = (*estate).es_query_cxt.cast();
        pg_sys::MemoryContextRegisterResetCallback((*estate).es_query_cxt, callback);
        running::run((*estate).es_query_cxt, command, may);
    }
}

/// The plans in a list; none if it is null.
unsafe fn nodes(list: *mut pg_sys::List) -> impl Iterator<Item = *mut pg_sys::Plan> {
    // SAFETY: by the caller's contract, a list of plans.
    let n = unsafe { pg_sys::list_length(list) };
    // SAFETY: as above.
    (0..n).map(move |i| unsafe { pg_sys::list_nth(list, i).cast() })
}

/// Whether rows of a plan cannot be given up one by one. A plan that writes is the top of a tree.
unsafe fn may_wait(plan: *mut pg_sys::Plan) -> bool {
    // SAFETY: a plan or null, by the caller's contract.
    unsafe {
        plan.is_null()
            || (*plan).type_ != NodeTag::T_ModifyTable
            || (*plan.cast::<pg_sys::ModifyTable>()).onConflictAction
                == pg_sys::OnConflictAction::ONCONFLICT_NONE
    }
}

/// Forgets the statement of a query whose memory goes. Nothing here fails.
#[pg_guard]
unsafe extern "C-unwind" fn query_ended(query: *mut c_void) {
    crate::pg::witness!();
    running::forget(query.cast());
}

/// `ExecutorFinish_hook`
#[pg_guard]
unsafe extern "C-unwind" fn on_finish(query: *mut QueryDesc) {
    crate::pg::witness!();
    // SAFETY: what the server passes.
    unsafe {
        let context = (*(*query).estate).es_query_cxt;
        match PREVIOUS_FINISH {
            Some(previous) => previous(query),
            None => pg_sys::standard_ExecutorFinish(query),
        }
        // That ran AFTER triggers, and the parts of WITH that nothing has read to their ends.
        ends(context);
    }
}

/// Drains the indexes for which entries of a statement have waited.
unsafe fn ends(query: pg_sys::MemoryContext) {
    if !guc::holds(Mechanism::StatementEnds) {
        return;
    }
    // SAFETY: by the caller's contract, inside a transaction.
    unsafe { deferred::drain_these(running::take_indexes(query)) };
}

/// Runs COPY FROM as a statement whose entries may wait.
///
/// # Safety
/// Inside a transaction; `work` is the server's part of the statement.
pub unsafe fn copy(work: &mut dyn FnMut()) {
    /// Forgets the statement, also when an ERROR ends it.
    struct Copy(usize);
    impl Drop for Copy {
        fn drop(&mut self) {
            running::truncate(self.0);
        }
    }
    let copy = Copy(running::depth());
    // Every snapshot of the transaction sees frozen rows (COPY FREEZE), so each reader drains.
    let (query, command) = (std::ptr::null_mut(), 0);
    running::run(query, command, guc::insert_memory() > 0);
    work();
    // SAFETY: inside the transaction of the statement, which holds a lock of the table.
    unsafe { ends(query) };
    drop(copy);
}

#[pg_guard]
unsafe extern "C-unwind" fn at_transaction_end(event: pg_sys::XactEvent::Type, _arg: *mut c_void) {
    crate::pg::witness!();
    use pg_sys::XactEvent::*;
    match event {
        XACT_EVENT_PRE_COMMIT | XACT_EVENT_PRE_PREPARE => {
            // The ends of statements have left nothing.
            // SAFETY: still inside the transaction.
            unsafe { deferred::drain_all() };
        }
        XACT_EVENT_COMMIT | XACT_EVENT_ABORT | XACT_EVENT_PREPARE => {
            deferred::forget_all();
        }
        _ => (),
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn at_subtransaction_end(
    event: pg_sys::SubXactEvent::Type,
    this: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _arg: *mut c_void,
) {
    crate::pg::witness!();
    if event == pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB {
        deferred::subtransaction_aborted(this);
    }
}

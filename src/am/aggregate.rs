//! Aggregates over an index without a row that is handed up: `nitro.enable_aggregate`.
//!
//! The node is a CustomScan under the server's Finalize Aggregate. It gives a row of partial
//! aggregates for each group, in the order of the index, or one row if there is no GROUP BY. Its
//! child is a real Index Only Scan, made and started by the server. Conditions, run-time keys,
//! locks, permissions and rescans are the server's.
//! - Rows of the child's batch whose block is known to be all-visible are added up in place, under
//!   the token of the batch.
//! - Every other row waits in a queue until the table is read (`queue`).
//! - In some cases neither is allowed: serializable isolation, EvalPlanQual, a snapshot that is not
//!   MVCC, a condition of the child's own. Then the child is run row by row, as by any node.
//!
//! In each case the scan stands at the entry of the row, and takes the wanted values from its key.
//!
//! An index with an element column is read by another child, see `elements`.

use std::ffi::{CStr, c_void};

use pgrx::pg_sys::{
    self, CustomScan, CustomScanState, IndexOnlyScanState, NodeTag, PlanState, TupleTableSlot,
};
use pgrx::prelude::*;

use super::index_only;
use super::scan::{self, Scan};
use crate::pg::compat;
use crate::pg::error::Failure;
use crate::pg::stop::{self, Point};

mod elements;
mod functions;
mod groups;
mod leaf;
mod queue;
mod run;

pub use elements::most_rows;
pub use functions::Function;
use run::Run;

fn broken(message: impl Into<String>) -> ! {
    Failure::new(PgSqlErrorCode::ERRCODE_INTERNAL_ERROR, message).raise()
}

/// The state of a node: the server's part first.
#[repr(C)]
struct Node {
    custom: CustomScanState,
    run: *mut Run,
    /// Frees it: the server does not end nodes after an ERROR.
    callback: pg_sys::MemoryContextCallback,
}

const NAME: &CStr = c"NitroAggregate";

/// Tables of functions that only the server reads.
struct Methods<T>(T);
// SAFETY: never written; the server's pointers to constants keep them from being so by themselves.
unsafe impl<T> Sync for Methods<T> {}

static SCAN: Methods<pg_sys::CustomScanMethods> = Methods(pg_sys::CustomScanMethods {
    CustomName: NAME.as_ptr(),
    CreateCustomScanState: Some(create),
});

static EXEC: Methods<pg_sys::CustomExecMethods> = Methods(pg_sys::CustomExecMethods {
    CustomName: NAME.as_ptr(),
    BeginCustomScan: Some(begin),
    ExecCustomScan: Some(exec),
    EndCustomScan: Some(end),
    ReScanCustomScan: Some(rescan),
    MarkPosCustomScan: None,
    RestrPosCustomScan: None,
    EstimateDSMCustomScan: None,
    InitializeDSMCustomScan: None,
    ReInitializeDSMCustomScan: None,
    InitializeWorkerCustomScan: None,
    ShutdownCustomScan: None,
    ExplainCustomScan: None,
});

/// Makes the node known by its name, under which workers get it.
pub fn register() {
    // SAFETY: the table lives as long as the process.
    unsafe { pg_sys::RegisterCustomScanMethods(&raw const SCAN.0) };
}

/// The methods of the node in a plan. Its `custom_private` has numbers. The first is the number of
/// the index' first columns that make a group, or -1 without GROUP BY. Then for each column of its
/// row the aggregate function (0: none) and the column of the index, from 0.
pub fn methods() -> *const pg_sys::CustomScanMethods {
    &raw const SCAN.0
}

/// `CreateCustomScanState`
#[pg_guard]
unsafe extern "C-unwind" fn create(_plan: *mut CustomScan) -> *mut pg_sys::Node {
    crate::pg::witness!();
    // SAFETY: zeroed memory is a node that has not begun.
    unsafe {
        let node: *mut Node = pg_sys::palloc0(size_of::<Node>()).cast();
        (*node).custom.ss.ps.type_ = NodeTag::T_CustomScanState;
        (*node).custom.methods = &raw const EXEC.0;
        node.cast()
    }
}

/// `BeginCustomScan`
#[pg_guard]
unsafe extern "C-unwind" fn begin(
    custom: *mut CustomScanState,
    estate: *mut pg_sys::EState,
    flags: i32,
) {
    crate::pg::witness!();
    // SAFETY: a node that `create` made, in the memory of its query, as the values made here. Its
    // plan is one of nitro, with one child.
    unsafe {
        let node = custom.cast::<Node>();
        let plan = (*custom).ss.ps.plan.cast::<CustomScan>();
        if !(*custom).ss.ps.ps_ProjInfo.is_null() {
            broken("a partial aggregate of an index has a projection")
        }
        let list = (*plan).custom_private;
        let numbers: Vec<i32> =
            (0..pg_sys::list_length(list)).map(|i| pg_sys::list_nth_int(list, i)).collect();
        (*node).run = Box::into_raw(Box::new(Run::new(&numbers)));
        (*node).callback.func = Some(forget);
        (*node).callback.arg = node.cast();
        pg_sys::MemoryContextRegisterResetCallback(
            (*estate).es_query_cxt,
            &raw mut (*node).callback,
        );
        let child = pg_sys::list_nth((*plan).custom_plans, 0).cast();
        (*custom).custom_ps = pg_sys::lappend(
            std::ptr::null_mut(),
            pg_sys::ExecInitNode(child, estate, flags).cast(),
        );
    }
}

/// Frees what a node has of Rust's memory, once.
#[pg_guard]
unsafe extern "C-unwind" fn forget(node: *mut c_void) {
    crate::pg::witness!();
    // SAFETY: the node that `begin` has registered; its memory goes away after this.
    unsafe {
        let run = std::mem::replace(&mut (*node.cast::<Node>()).run, std::ptr::null_mut());
        if !run.is_null() {
            drop(Box::from_raw(run));
        }
    }
}

/// `EndCustomScan`
#[pg_guard]
unsafe extern "C-unwind" fn end(custom: *mut CustomScanState) {
    crate::pg::witness!();
    // SAFETY: a node that `begin` has seen.
    unsafe {
        pg_sys::ExecEndNode(child(custom));
        forget(custom.cast());
    }
}

/// `ReScanCustomScan`. The server does nothing for the child.
#[pg_guard]
unsafe extern "C-unwind" fn rescan(custom: *mut CustomScanState) {
    crate::pg::witness!();
    // SAFETY: a node that `begin` has seen.
    unsafe {
        let child = child(custom);
        let changed = (*custom).ss.ps.chgParam;
        if !changed.is_null() {
            pg_sys::UpdateChangedParamSet(child, changed);
        }
        if (*child).chgParam.is_null() {
            pg_sys::ExecReScan(child);
        }
        (*(*custom.cast::<Node>()).run).restart();
    }
}

unsafe fn child(custom: *mut CustomScanState) -> *mut PlanState {
    // SAFETY: `begin` made the list.
    unsafe { pg_sys::list_nth((*custom).custom_ps, 0).cast() }
}

/// `ExecCustomScan`: the next group, or nothing.
#[pg_guard]
unsafe extern "C-unwind" fn exec(custom: *mut CustomScanState) -> *mut TupleTableSlot {
    crate::pg::witness!();
    // SAFETY: a node that `begin` has seen.
    unsafe {
        let (slot, child) = ((*custom).ss.ss_ScanTupleSlot, child(custom));
        let run = &mut *(*custom.cast::<Node>()).run;
        compat::clear_slot(slot);
        run.pass_empty();
        while !run.has_complete() && !run.ended {
            if run.given > 0 {
                run.groups.keep_last();
                run.given = 0;
            }
            read(child, run);
            run.pass_empty();
        }
        if run.has_complete() {
            // Its values live until the node is asked again.
            let memory = (*(*custom).ss.ps.ps_ExprContext).ecxt_per_tuple_memory;
            pg_sys::MemoryContextReset(memory);
            let previous = pg_sys::MemoryContextSwitchTo(memory);
            run.give(entry_of(child).desc(), slot);
            pg_sys::MemoryContextSwitchTo(previous);
        }
        slot
    }
}

/// The scan of a child that was asked for a row.
unsafe fn entry_of<'a>(child: *mut PlanState) -> &'a mut Scan {
    // SAFETY: the plan is of an Index Only Scan over an index of ours, or of a Bitmap Heap Scan
    // over one.
    unsafe {
        let descriptor = match elements::is_of(child) {
            true => elements::descriptor(child),
            false => (*child.cast::<IndexOnlyScanState>()).ioss_ScanDesc,
        };
        if descriptor.is_null() {
            broken("an index-only scan has not begun");
        }
        scan::state(descriptor)
    }
}

/// Reads rows of the child until a group is complete or there are no more.
unsafe fn read(child: *mut PlanState, run: &mut Run) {
    // SAFETY: a started node.
    unsafe {
        if elements::is_of(child) {
            return elements::count(child, run);
        }
        // Where the server does so for a node that it asks for a row.
        if !(*child).chgParam.is_null() {
            pg_sys::ExecReScan(child);
        }
        while !index_only::may_go_direct(child) {
            // The server's own function begins the scan: it comes to the first row.
            if compat::is_end(compat::exec_proc_node((*child).ExecProcNode, child)) {
                return run.end();
            }
            run.add(entry_of(child));
            if run.has_complete() {
                return;
            }
        }
        let instrument = (*child).instrument;
        if !instrument.is_null() {
            pg_sys::InstrStartNode(instrument);
        }
        let rows = read_direct(child.cast(), run);
        if !instrument.is_null() {
            pg_sys::InstrStopNode(instrument, rows as f64);
        }
    }
}

/// Counts rows from the place of the child's scan, without its function. Returns how many.
unsafe fn read_direct(child: *mut IndexOnlyScanState, run: &mut Run) -> u64 {
    // SAFETY: `may_go_direct` has said that the scan has begun.
    unsafe {
        let descriptor = (*child).ioss_ScanDesc;
        let own = scan::state(descriptor);
        let forward = compat::is_forward(child);
        let asks_again = own.asks_again(descriptor, forward);
        let heap =
            Some((*descriptor).heapRelation).filter(|&heap| !asks_again && compat::is_heap(heap));
        let mut rows = 0;
        compat::clear_slot((*child).ss.ss_ScanTupleSlot);
        loop {
            let (seen, entries) = run.walk(own, heap, forward);
            compat::count_index_tuples((*descriptor).indexRelation, entries as i64);
            rows += seen;
            if run.queue.is_full(&run.groups) {
                rows += flush(child, run);
            }
            if run.has_complete() {
                return rows;
            }
            let found = match heap {
                Some(_) => index_only::step(child),
                None => (!compat::is_end(index_only::access(child))).then_some(true),
            };
            match found {
                None => {
                    rows += flush(child, run);
                    run.end();
                    return rows;
                }
                Some(false) if run.wait(own) => (),
                Some(false) if !index_only::fetch(child) => (),
                _ => {
                    run.add(own);
                    rows += 1;
                }
            }
            stop::at(Point::AggregateAdds);
            if run.has_complete() {
                return rows;
            }
        }
    }
}

/// Looks for the rows of the queue in the table; says how many are visible.
unsafe fn flush(child: *mut IndexOnlyScanState, run: &mut Run) -> u64 {
    // SAFETY: a scan that has begun, under a snapshot of MVCC, as `may_go_direct` has seen.
    unsafe {
        let scan = (*child).ioss_ScanDesc;
        if run.queue.is_empty() {
            return 0;
        }
        stop::at(Point::AggregateLooks);
        let (all, seen) =
            run.queue.flush((*scan).heapRelation, (*scan).xs_snapshot, &mut run.groups);
        if let Some(instrument) = (*child).ss.ps.instrument.as_mut() {
            instrument.ntuples2 += all as f64;
        }
        compat::count_heap_fetches((*scan).indexRelation, seen as i64);
        seen
    }
}

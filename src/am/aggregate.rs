//! Aggregates over an index without a row that is handed up: `nitro.enable_aggregate`.
//!
//! The node is a CustomScan under the server's Finalize Aggregate, and gives one row of partial aggregates. Its child
//! is a real Index Only Scan, made and started by the server: conditions, run-time keys, locks, permissions and rescans are
//! the server's. Rows of the child's batch whose block is known to be all-visible are added up where they are, under the
//! token under which they were read; every other row comes by `index_only`, which asks the table. And where that may not be
//! (serializable isolation, EvalPlanQual, a snapshot that is not MVCC, a condition of the child's own), the
//! child is run row by row, as any node would do.

use std::ffi::CStr;

use pgrx::pg_sys::{
    self, CustomScan, CustomScanState, Datum, IndexOnlyScanState, List, NodeTag, Oid, PlanState,
    TupleTableSlot,
};
use pgrx::prelude::*;

use super::{index_only, scan};
use crate::pg::compat;
use crate::pg::stop::{self, Point};

/// How the values of a type are read, as numbers in the order of the type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Number {
    /// Of any type: only whether it is NULL matters.
    None,
    Int2,
    Int4,
    Int8,
    Unsigned,
    Bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rows,
    Values,
    /// The state is the sum.
    Sum,
    /// The state is an array of the count and the sum.
    Average,
    /// The state is the count and the sum, serialized.
    LongSum,
    Min,
    Max,
}

/// An aggregate function of the server that can be computed here.
pub struct Function {
    oid: u32,
    /// What the column must be of, exactly; 0: anything.
    argument: Oid,
    number: Number,
    kind: Kind,
}

const fn function(oid: u32, argument: Oid, number: Number, kind: Kind) -> Function {
    Function { oid, argument, number, kind }
}

/// Not floating-point numbers: their sums depend on the order, and `-0` is as large as `0`.
static FUNCTIONS: &[Function] = &[
    function(pg_sys::F_COUNT_, pg_sys::InvalidOid, Number::None, Kind::Rows),
    function(pg_sys::F_COUNT_ANY, pg_sys::InvalidOid, Number::None, Kind::Values),
    function(pg_sys::F_SUM_INT2, pg_sys::INT2OID, Number::Int2, Kind::Sum),
    function(pg_sys::F_SUM_INT4, pg_sys::INT4OID, Number::Int4, Kind::Sum),
    function(pg_sys::F_SUM_INT8, pg_sys::INT8OID, Number::Int8, Kind::LongSum),
    function(pg_sys::F_AVG_INT2, pg_sys::INT2OID, Number::Int2, Kind::Average),
    function(pg_sys::F_AVG_INT4, pg_sys::INT4OID, Number::Int4, Kind::Average),
    function(pg_sys::F_AVG_INT8, pg_sys::INT8OID, Number::Int8, Kind::LongSum),
    function(pg_sys::F_MIN_INT2, pg_sys::INT2OID, Number::Int2, Kind::Min),
    function(pg_sys::F_MAX_INT2, pg_sys::INT2OID, Number::Int2, Kind::Max),
    function(pg_sys::F_MIN_INT4, pg_sys::INT4OID, Number::Int4, Kind::Min),
    function(pg_sys::F_MAX_INT4, pg_sys::INT4OID, Number::Int4, Kind::Max),
    function(pg_sys::F_MIN_INT8, pg_sys::INT8OID, Number::Int8, Kind::Min),
    function(pg_sys::F_MAX_INT8, pg_sys::INT8OID, Number::Int8, Kind::Max),
    function(pg_sys::F_MIN_OID.to_u32(), pg_sys::OIDOID, Number::Unsigned, Kind::Min),
    function(pg_sys::F_MAX_OID.to_u32(), pg_sys::OIDOID, Number::Unsigned, Kind::Max),
    function(pg_sys::F_MIN_DATE, pg_sys::DATEOID, Number::Int4, Kind::Min),
    function(pg_sys::F_MAX_DATE, pg_sys::DATEOID, Number::Int4, Kind::Max),
    function(pg_sys::F_MIN_TIME, pg_sys::TIMEOID, Number::Int8, Kind::Min),
    function(pg_sys::F_MAX_TIME, pg_sys::TIMEOID, Number::Int8, Kind::Max),
    function(pg_sys::F_MIN_TIMESTAMP, pg_sys::TIMESTAMPOID, Number::Int8, Kind::Min),
    function(pg_sys::F_MAX_TIMESTAMP, pg_sys::TIMESTAMPOID, Number::Int8, Kind::Max),
    function(pg_sys::F_MIN_TIMESTAMPTZ, pg_sys::TIMESTAMPTZOID, Number::Int8, Kind::Min),
    function(pg_sys::F_MAX_TIMESTAMPTZ, pg_sys::TIMESTAMPTZOID, Number::Int8, Kind::Max),
    function(pg_sys::F_BOOL_AND, pg_sys::BOOLOID, Number::Bool, Kind::Min),
    function(pg_sys::F_EVERY, pg_sys::BOOLOID, Number::Bool, Kind::Min),
    function(pg_sys::F_BOOL_OR, pg_sys::BOOLOID, Number::Bool, Kind::Max),
];

impl Function {
    /// The function of this OID, if it is computed here.
    pub fn of(oid: Oid) -> Option<&'static Function> {
        let known = FUNCTIONS.iter().find(|f| f.oid == oid.to_u32());
        known.filter(|f| f.kind != Kind::LongSum || compat::KNOWS_LONG_SUMS)
    }

    /// Whether it counts rows, and so has no argument.
    pub fn counts_rows(&self) -> bool {
        self.kind == Kind::Rows
    }

    /// Whether it takes a column of this type.
    pub fn takes(&self, column: Oid) -> bool {
        self.argument == pg_sys::InvalidOid || self.argument == column
    }
}

/// One aggregate of a node, and what it has seen. The server's memory is aligned to eight bytes only.
#[repr(C, packed(8))]
struct Aggregate {
    function: &'static Function,
    /// Its column in the index.
    column: usize,
    /// Its column in a row of the child.
    place: usize,
    count: i64,
    sum: i128,
    /// The least or largest number, and the value that it is of.
    best: i64,
    value: Datum,
}

impl Aggregate {
    #[inline]
    fn add(&mut self, value: Datum, isnull: bool) {
        if isnull {
            return;
        }
        self.count += 1;
        let bits = value.value();
        let number = match self.function.number {
            Number::None => return,
            Number::Int2 => i64::from(bits as i16),
            Number::Int4 => i64::from(bits as i32),
            Number::Int8 => bits as i64,
            Number::Unsigned => i64::from(bits as u32),
            Number::Bool => i64::from(bits as u8 != 0),
        };
        let better = match self.function.kind {
            Kind::Min => number < self.best,
            Kind::Max => number > self.best,
            _ => {
                self.sum += i128::from(number);
                return;
            }
        };
        if better || self.count == 1 {
            (self.best, self.value) = (number, value);
        }
    }

    /// The state as the server's own function would leave it, serialized; None for NULL.
    unsafe fn state(&self) -> Option<Datum> {
        match self.function.kind {
            Kind::Rows | Kind::Values => Some(Datum::from(self.count)),
            // SAFETY: allocates in the current memory context.
            Kind::Average => Some(unsafe { compat::array_of_two(self.count, self.sum as i64) }),
            _ if self.count == 0 => None,
            Kind::Sum => Some(Datum::from(self.sum as i64)),
            // SAFETY: as above.
            Kind::LongSum => Some(unsafe { compat::long_sum(self.count, self.sum) }),
            Kind::Min | Kind::Max => Some(self.value),
        }
    }
}

/// The state of a node: the server's part first.
#[repr(C)]
struct Node {
    custom: CustomScanState,
    aggregates: *mut Aggregate,
    n: usize,
    done: bool,
}

const NAME: &CStr = c"NitroAggregate";

/// Tables of functions, which the server reads from any thread of control that it has: one.
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

/// What a plan's node runs by. Its `custom_private` has three numbers for each column of its row: the aggregate
/// function, the column in the index, and the column in a row of the child, both from 0.
pub fn methods() -> *const pg_sys::CustomScanMethods {
    &raw const SCAN.0
}

/// `CreateCustomScanState`
#[pg_guard]
unsafe extern "C-unwind" fn create(_plan: *mut CustomScan) -> *mut pg_sys::Node {
    crate::pg::witness!();
    // SAFETY: zeroed memory is a node without aggregates.
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
    // SAFETY: a node that `create` made, and a plan of ours, whose child is the only one.
    unsafe {
        let node = &mut *custom.cast::<Node>();
        let plan = (*custom).ss.ps.plan.cast::<CustomScan>();
        let numbers = (*plan).custom_private;
        node.n = pg_sys::list_length(numbers) as usize / 3;
        node.aggregates = pg_sys::palloc0((node.n * size_of::<Aggregate>()).max(1)).cast();
        for i in 0..node.n {
            let number = |k: usize| pg_sys::list_nth_int(numbers, (i * 3 + k) as i32);
            let oid = Oid::from(number(0) as u32);
            let Some(function) = Function::of(oid) else {
                crate::pg::error::Failure::new(
                    PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
                    format!("unknown aggregate function {} in a plan", oid.to_u32()),
                )
                .raise()
            };
            node.aggregates.add(i).write(Aggregate {
                function,
                column: number(1) as usize,
                place: number(2) as usize,
                count: 0,
                sum: 0,
                best: 0,
                value: Datum::from(0),
            });
        }
        if !(*custom).ss.ps.ps_ProjInfo.is_null() {
            crate::pg::error::Failure::new(
                PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
                "a partial aggregate of an index has a projection",
            )
            .raise();
        }
        let child = pg_sys::list_nth((*plan).custom_plans, 0).cast();
        (*custom).custom_ps = pg_sys::lappend(
            std::ptr::null_mut(),
            pg_sys::ExecInitNode(child, estate, flags).cast(),
        );
    }
}

/// `EndCustomScan`
#[pg_guard]
unsafe extern "C-unwind" fn end(custom: *mut CustomScanState) {
    crate::pg::witness!();
    // SAFETY: a node that `begin` has seen.
    unsafe { pg_sys::ExecEndNode(child(custom)) };
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
        (*custom.cast::<Node>()).done = false;
    }
}

unsafe fn child(custom: *mut CustomScanState) -> *mut PlanState {
    // SAFETY: `begin` made the list.
    unsafe { pg_sys::list_nth((*custom).custom_ps, 0).cast() }
}

/// `ExecCustomScan`: the one row, then nothing.
#[pg_guard]
unsafe extern "C-unwind" fn exec(custom: *mut CustomScanState) -> *mut TupleTableSlot {
    crate::pg::witness!();
    // SAFETY: a node that `begin` has seen. Its slot has a column for each aggregate: the planner gives a node of ours no
    // projection.
    unsafe {
        let slot = (*custom).ss.ss_ScanTupleSlot;
        compat::clear_slot(slot);
        let node = &mut *custom.cast::<Node>();
        if std::mem::replace(&mut node.done, true) {
            return slot;
        }
        let aggregates = aggregates(node);
        for aggregate in aggregates.iter_mut() {
            (aggregate.count, aggregate.sum) = (0, 0);
        }
        run(child(custom), aggregates);
        // The states live until the node is asked again.
        let memory = (*(*custom).ss.ps.ps_ExprContext).ecxt_per_tuple_memory;
        pg_sys::MemoryContextReset(memory);
        let previous = pg_sys::MemoryContextSwitchTo(memory);
        for (i, aggregate) in aggregates.iter().enumerate() {
            let state = aggregate.state();
            *(*slot).tts_isnull.add(i) = state.is_none();
            *(*slot).tts_values.add(i) = state.unwrap_or(Datum::from(0));
        }
        pg_sys::MemoryContextSwitchTo(previous);
        index_only::filled(slot);
        slot
    }
}

unsafe fn aggregates<'a>(node: &mut Node) -> &'a mut [Aggregate] {
    // SAFETY: `begin` has written so many; they live as long as the node.
    unsafe { std::slice::from_raw_parts_mut(node.aggregates, node.n) }
}

/// Reads all rows of the child.
unsafe fn run(child: *mut PlanState, aggregates: &mut [Aggregate]) {
    // SAFETY: a started node.
    unsafe {
        // Where the server does so for a node that it asks for a row.
        if !(*child).chgParam.is_null() {
            pg_sys::ExecReScan(child);
        }
        while !index_only::may_go_direct(child) {
            // The server's own function begins the scan: it comes to the first row.
            let slot = compat::exec_proc_node((*child).ExecProcNode, child);
            if is_empty(slot) {
                return;
            }
            let columns = aggregates.iter().filter(|a| !a.function.counts_rows());
            if let Some(last) = columns.map(|a| a.place).max() {
                compat::fetch_columns(slot, last + 1);
            }
            add_all(aggregates, slot, |a| a.place);
        }
        let instrument = (*child).instrument;
        if !instrument.is_null() {
            pg_sys::InstrStartNode(instrument);
        }
        let rows = run_direct(child.cast(), aggregates);
        if !instrument.is_null() {
            pg_sys::InstrStopNode(instrument, rows as f64);
        }
    }
}

/// Reads the rest of the child's rows from where its scan stands; says how many.
unsafe fn run_direct(child: *mut IndexOnlyScanState, aggregates: &mut [Aggregate]) -> u64 {
    // SAFETY: `may_go_direct` has said that the scan has begun.
    unsafe {
        let descriptor = (*child).ioss_ScanDesc;
        let own = scan::state(descriptor);
        own.hand_up_values((*child).ioss_RelationDesc);
        let forward = index_only::forward(child);
        let counts = aggregates.iter().all(|a| a.function.counts_rows()) && own.hand_up_nothing();
        let slot = (*child).ss.ss_ScanTupleSlot;
        let mut rows = 0;
        compat::clear_slot(slot);
        loop {
            let mut seen = 0;
            if counts {
                seen = own.count_plain(forward);
                aggregates.iter_mut().for_each(|a| a.count += seen as i64);
            } else {
                while own.step_plain(slot, forward) {
                    add_all(aggregates, slot, |a| a.column);
                    seen += 1;
                }
            }
            compat::count_index_tuples((*descriptor).indexRelation, seen as i64);
            rows += seen;
            if is_empty(index_only::access(child, !counts)) {
                return rows;
            }
            add_all(aggregates, slot, |a| a.column);
            rows += 1;
            stop::at(Point::AggregateAdds);
        }
    }
}

/// Adds the row in a slot, where `column` says which is that of an aggregate.
#[inline]
unsafe fn add_all(
    aggregates: &mut [Aggregate],
    slot: *mut TupleTableSlot,
    column: impl Fn(&Aggregate) -> usize,
) {
    for aggregate in aggregates {
        if aggregate.function.counts_rows() {
            aggregate.count += 1;
            continue;
        }
        // SAFETY: the slot has the column, by the plan.
        unsafe {
            let at = column(aggregate);
            aggregate.add(*(*slot).tts_values.add(at), *(*slot).tts_isnull.add(at));
        }
    }
}

unsafe fn is_empty(slot: *mut TupleTableSlot) -> bool {
    // SAFETY: what a node has returned.
    unsafe { slot.is_null() || u32::from((*slot).tts_flags) & pg_sys::TTS_FLAG_EMPTY != 0 }
}

/// A list of these numbers.
///
/// # Safety
/// Allocates in the current memory context.
pub unsafe fn list_of(numbers: impl IntoIterator<Item = i32>) -> *mut List {
    let add = |list, number| {
        // SAFETY: by contract; a list of integers, or none yet.
        unsafe { pg_sys::lappend_int(list, number) }
    };
    numbers.into_iter().fold(std::ptr::null_mut(), add)
}

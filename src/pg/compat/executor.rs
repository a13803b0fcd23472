//! Inline functions and macros of the server for nodes of the executor.

use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::pg_sys::{self, ExprContext, ExprState, IndexScanDesc, PlanState, TupleTableSlot};
use std::ffi::c_void;

/// Looks at a node of a running plan; true ends the walk.
pub type Visit = unsafe extern "C-unwind" fn(*mut PlanState, *mut c_void) -> bool;

/// Calls `visit` for each child of a node, init plans and subplans included.
///
/// # Safety
/// A live node.
pub unsafe fn walk_plan_state(
    node: *mut PlanState,
    visit: Option<Visit>,
    context: *mut c_void,
) -> bool {
    #[cfg(feature = "pg15")]
    {
        unsafe extern "C-unwind" {
            fn planstate_tree_walker(
                node: *mut PlanState,
                visit: Option<Visit>,
                context: *mut c_void,
            ) -> bool;
        }
        // SAFETY: the server's own function, with an ERROR caught at the boundary.
        unsafe { pg_guard_ffi_boundary(|| planstate_tree_walker(node, visit, context)) }
    }
    #[cfg(not(feature = "pg15"))]
    // SAFETY: by contract.
    unsafe {
        pg_sys::planstate_tree_walker_impl(node, visit, context)
    }
}

/// `RelationGetIndexScan`, and a cell beside it, null, with which `forget` is called when the
/// memory of both goes.
///
/// # Safety
/// `index` must be open. `forget` may raise no ERROR.
pub unsafe fn begin_index_scan(
    index: pg_sys::Relation,
    keys: i32,
    order_bys: i32,
    forget: unsafe extern "C-unwind" fn(*mut c_void),
) -> (IndexScanDesc, *mut c_void) {
    use pg_sys::{MemoryContext, MemoryContextCallback};
    unsafe extern "C-unwind" {
        fn RelationGetIndexScan(
            index: pg_sys::Relation,
            keys: i32,
            order_bys: i32,
        ) -> IndexScanDesc;
        fn palloc0(bytes: usize) -> *mut c_void;
        fn MemoryContextRegisterResetCallback(
            context: MemoryContext,
            callback: *mut MemoryContextCallback,
        );
    }
    #[repr(C)]
    struct Cell {
        at: *mut c_void,
        callback: MemoryContextCallback,
    }
    // SAFETY: the server's own functions, behind one boundary for all. Nothing here has to be
    // dropped.
    unsafe {
        pg_guard_ffi_boundary(|| {
            let scan = RelationGetIndexScan(index, keys, order_bys);
            let cell: *mut Cell = palloc0(size_of::<Cell>()).cast();
            (*cell).callback.func = Some(forget);
            (*cell).callback.arg = cell.cast();
            let callback = &raw mut (*cell).callback;
            MemoryContextRegisterResetCallback(pg_sys::CurrentMemoryContext, callback);
            (scan, cell.cast())
        })
    }
}

/// Calls a function of the server for the next row of a node.
///
/// # Safety
/// `function` is one that nodes of this type have had.
pub unsafe fn exec_proc_node(
    function: pg_sys::ExecProcNodeMtd,
    node: *mut PlanState,
) -> *mut TupleTableSlot {
    match function {
        // SAFETY: by contract.
        Some(function) => unsafe { pg_guard_ffi_boundary(|| function(node)) },
        None => std::ptr::null_mut(),
    }
}

/// `ExecScan`, without what would turn its ERRORs into panics: at each row that costs more than all
/// else here.
///
/// # Safety
/// A started node. An ERROR jumps over the caller's frame and those up to the server, which must
/// have nothing to drop.
pub unsafe fn exec_scan(
    node: *mut pg_sys::ScanState,
    access: unsafe extern "C-unwind" fn(*mut pg_sys::ScanState) -> *mut TupleTableSlot,
    recheck: unsafe extern "C-unwind" fn(*mut pg_sys::ScanState, *mut TupleTableSlot) -> bool,
) -> *mut TupleTableSlot {
    unsafe extern "C-unwind" {
        fn ExecScan(
            node: *mut pg_sys::ScanState,
            access: pg_sys::ExecScanAccessMtd,
            recheck: pg_sys::ExecScanRecheckMtd,
        ) -> *mut TupleTableSlot;
    }
    // SAFETY: by contract.
    unsafe { ExecScan(node, Some(access), Some(recheck)) }
}

/// `ExecClearTuple`, of a slot that has something.
///
/// # Safety
/// A live slot.
pub unsafe fn clear_slot(slot: *mut TupleTableSlot) {
    // SAFETY: by contract; every kind of slot can be cleared. Most that are cleared here are
    // virtual ones that own nothing: `tts_virtual_clear`, without a boundary.
    unsafe {
        let flags = u32::from((*slot).tts_flags);
        if flags & pg_sys::TTS_FLAG_EMPTY != 0 {
            return;
        }
        if std::ptr::eq((*slot).tts_ops, &raw const pg_sys::TTSOpsVirtual)
            && flags & pg_sys::TTS_FLAG_SHOULDFREE == 0
        {
            (*slot).tts_nvalid = 0;
            (*slot).tts_flags |= pg_sys::TTS_FLAG_EMPTY as u16;
            let nowhere = pg_sys::BlockIdData { bi_hi: u16::MAX, bi_lo: u16::MAX };
            (*slot).tts_tid = pg_sys::ItemPointerData { ip_blkid: nowhere, ip_posid: 0 };
            return;
        }
        if let Some(clear) = (*(*slot).tts_ops).clear {
            pg_guard_ffi_boundary(|| clear(slot));
        }
    }
}

/// `table_index_fetch_reset`: a scan that is at its end pins no page of the table.
///
/// # Safety
/// An open scan.
pub unsafe fn reset_fetch(scan: IndexScanDesc) {
    // SAFETY: by contract; the fetch is null or of the table's own access method, which is heap
    // under indexes of ours. Up to 18 it has nothing but this page.
    unsafe {
        let fetch = (*scan).xs_heapfetch;
        #[cfg(not(feature = "pg19"))]
        if !fetch.is_null() && (*fetch.cast::<pg_sys::IndexFetchHeapData>()).xs_cbuf == 0 {
            return;
        }
        if !fetch.is_null()
            && let Some(reset) = (*(*(*fetch).rel).rd_tableam).index_fetch_reset
        {
            pg_guard_ffi_boundary(|| reset(fetch));
        }
    }
}

/// `ExecQualAndReset`
///
/// # Safety
/// An expression of a node, or null, and the node's context.
pub unsafe fn qual_passes(qual: *mut ExprState, context: *mut ExprContext) -> bool {
    if qual.is_null() {
        return true;
    }
    // SAFETY: by contract; the context of before is back afterwards, and by abort on ERROR.
    unsafe {
        let Some(evaluate) = (*qual).evalfunc else { return true };
        let memory = (*context).ecxt_per_tuple_memory;
        let previous = pg_sys::MemoryContextSwitchTo(memory);
        let mut isnull = false;
        let value = pg_guard_ffi_boundary(|| evaluate(qual, context, &mut isnull));
        pg_sys::MemoryContextSwitchTo(previous);
        pg_sys::MemoryContextReset(memory);
        value.value() as u8 != 0
    }
}

/// `pgstat_count_index_tuples`
///
/// # Safety
/// An open relation.
#[inline]
pub unsafe fn count_index_tuples(index: pg_sys::Relation, n: i64) {
    // SAFETY: the statistics were asked for when the scan was counted, see `count_index_scan`.
    unsafe {
        if let Some(info) = (*index).pgstat_info.as_mut() {
            #[cfg(feature = "pg15")]
            {
                info.t_counts.t_tuples_returned += n;
            }
            #[cfg(not(feature = "pg15"))]
            {
                info.counts.tuples_returned += n;
            }
        }
    }
}

/// `pgstat_count_heap_fetch`, for many rows.
///
/// # Safety
/// An open relation.
pub unsafe fn count_heap_fetches(index: pg_sys::Relation, n: i64) {
    // SAFETY: as above.
    unsafe {
        if let Some(info) = (*index).pgstat_info.as_mut() {
            #[cfg(feature = "pg15")]
            {
                info.t_counts.t_tuples_fetched += n;
            }
            #[cfg(not(feature = "pg15"))]
            {
                info.counts.tuples_fetched += n;
            }
        }
    }
}

/// `int8_avg_serialize`: the count and the sum.
///
/// # Safety
/// Allocates in the current memory context.
#[cfg(feature = "pg19")]
pub unsafe fn long_sum(count: i64, sum: i128) -> pg_sys::Datum {
    let mut bytes = [0; 8 + 16];
    bytes[..8].copy_from_slice(&count.to_be_bytes());
    bytes[8..].copy_from_slice(&sum.to_be_bytes());
    // SAFETY: copied into memory of the context.
    unsafe { pg_sys::cstring_to_text_with_len(bytes.as_ptr().cast(), bytes.len() as i32).into() }
}

/// `int8_avg_serialize`: the count and, as the digits of a numeric, the sum.
///
/// # Safety
/// Allocates in the current memory context.
#[cfg(not(feature = "pg19"))]
pub unsafe fn long_sum(count: i64, sum: i128) -> pg_sys::Datum {
    const SIGN_OF_NEGATIVES: i32 = 0x4000;
    // As many as a number of 128 bits has, from the last one on.
    let (mut digits, mut n) = ([0; 10], 0);
    let mut rest = sum.unsigned_abs();
    while rest > u64::MAX.into() {
        digits[n] = (rest % 10_000) as i16;
        (rest, n) = (rest / 10_000, n + 1);
    }
    // Most are this short, and to divide them takes far less.
    let mut rest = rest as u64;
    while rest != 0 {
        digits[n] = (rest % 10_000) as i16;
        (rest, n) = (rest / 10_000, n + 1);
    }
    let weight = (n as i32 - 1).max(0);
    let sign = if sum < 0 { SIGN_OF_NEGATIVES } else { 0 };
    let (mut bytes, mut at) = ([0; 8 + 4 * 4 + 2 * 10], 0);
    let mut put = |number: &[u8]| {
        bytes[at..at + number.len()].copy_from_slice(number);
        at += number.len();
    };
    put(&count.to_be_bytes());
    [n as i32, weight, sign, 0].iter().for_each(|number| put(&number.to_be_bytes()));
    digits[..n].iter().rev().for_each(|digit| put(&digit.to_be_bytes()));
    // SAFETY: copied into memory of the context.
    unsafe { pg_sys::cstring_to_text_with_len(bytes.as_ptr().cast(), at as i32).into() }
}

/// An array of int8 with two elements.
///
/// # Safety
/// Allocates in the current memory context.
pub unsafe fn array_of_two(first: i64, second: i64) -> pg_sys::Datum {
    let mut elements = [pg_sys::Datum::from(first), pg_sys::Datum::from(second)];
    // SAFETY: by contract; int8 is passed by value, and aligned as a double.
    unsafe {
        let array =
            pg_sys::construct_array(elements.as_mut_ptr(), 2, pg_sys::INT8OID, 8, true, b'd' as _);
        pg_sys::Datum::from(array)
    }
}

/// Whether an index-only scan goes from the lowest keys to the highest now.
///
/// # Safety
/// A started node.
#[inline]
pub unsafe fn is_forward(node: *mut pg_sys::IndexOnlyScanState) -> bool {
    // SAFETY: a started node and its plan.
    unsafe {
        let plan = (*node).ss.ps.plan.cast::<pg_sys::IndexOnlyScan>();
        let backward = pg_sys::ScanDirection::BackwardScanDirection;
        ((*(*node).ss.ps.state).es_direction == backward) == ((*plan).indexorderdir == backward)
    }
}

/// `ExecStoreVirtualTuple`: the values are in a slot that was cleared.
///
/// # Safety
/// The virtual slot of a node, with a value for each column.
#[inline]
pub unsafe fn store_values(slot: *mut TupleTableSlot) {
    // SAFETY: the virtual slot of a node, whose descriptor has as many columns as were written.
    unsafe {
        (*slot).tts_flags &= !(pg_sys::TTS_FLAG_EMPTY as u16);
        (*slot).tts_nvalid = (*(*slot).tts_tupleDescriptor).natts as i16;
    }
}

/// Whether a node has come to its end.
///
/// # Safety
/// What a node has returned.
#[inline]
pub unsafe fn is_end(slot: *mut TupleTableSlot) -> bool {
    // SAFETY: what a node has returned.
    unsafe { slot.is_null() || u32::from((*slot).tts_flags) & pg_sys::TTS_FLAG_EMPTY != 0 }
}

/// The memory context of a chunk.
///
/// # Safety
/// `chunk` was allocated in one by the server.
#[inline]
pub unsafe fn context_of(chunk: *mut c_void) -> pg_sys::MemoryContext {
    #[cfg(feature = "pg15")]
    // SAFETY: the server has the context in front of each chunk.
    unsafe {
        *chunk.cast::<pg_sys::MemoryContext>().sub(1)
    }
    #[cfg(not(feature = "pg15"))]
    {
        unsafe extern "C-unwind" {
            fn GetMemoryChunkContext(chunk: *mut c_void) -> pg_sys::MemoryContext;
        }
        // SAFETY: by contract; it raises no ERROR for a chunk of the server.
        unsafe { GetMemoryChunkContext(chunk) }
    }
}

//! The functions of an access method, as each version of the server calls them.

use std::ffi::{CStr, c_int, c_void};

use pgrx::{AllocatedByRust, PgBox, pg_sys};

/// btree's support functions, by btree's numbers, so that operator classes mirror btree's.
#[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
pub const SUPPORT_FUNCTIONS: u16 = 5;
/// btree's support functions, by btree's numbers, so that operator classes mirror btree's.
#[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
pub const SUPPORT_FUNCTIONS: u16 = 6;

/// Whether the server supports unique indexes of other access methods than btree (18+). Before, its
/// ON CONFLICT, foreign keys and partitioned tables raise internal errors when they meet one.
pub const MAY_BE_UNIQUE: bool = !cfg!(any(feature = "pg15", feature = "pg16", feature = "pg17"));

/// `amgettreeheight`.
pub type TreeHeight = unsafe extern "C-unwind" fn(pg_sys::Relation) -> c_int;
/// `amtranslatecmptype`: the strategy of a comparison, from "<" (1) to ">" (5); 0 is none.
pub type StrategyOf = unsafe extern "C-unwind" fn(u32, pg_sys::Oid) -> pg_sys::StrategyNumber;

/// Sets the routines that the planner asks from 18 on.
pub fn answer_planner(
    am: &mut pg_sys::IndexAmRoutine,
    tree_height: TreeHeight,
    strategy_of: StrategyOf,
) {
    #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
    {
        am.amgettreeheight = Some(tree_height);
        am.amtranslatecmptype = Some(strategy_of);
    }
    #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
    let _ = (am, tree_height, strategy_of);
}

/// Declares that indexes are built by several processes (17+).
pub fn build_in_parallel(am: &mut pg_sys::IndexAmRoutine) {
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    {
        am.amcanbuildparallel = true;
    }
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    let _ = am;
}

/// Returns how many workers a build may ask for. The server decides by the size of the table, the
/// settings, and whether expressions and predicate are parallel safe. Before 17 it decides for
/// btrees alone, so this asks for it.
///
/// # Safety
/// The open relations and the description of a build.
pub unsafe fn build_workers(
    heap: pg_sys::Relation,
    index: pg_sys::Relation,
    info: *const pg_sys::IndexInfo,
) -> c_int {
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    // SAFETY: both are locked by contract.
    unsafe {
        let _ = info;
        pg_sys::plan_create_index_workers((*heap).rd_id, (*index).rd_id)
    }
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    // SAFETY: by contract.
    unsafe {
        let _ = (heap, index);
        (*info).ii_ParallelWorkers
    }
}

/// `table_beginscan_parallel`.
///
/// # Safety
/// An open table, and a shared scan of it that was initialized.
pub unsafe fn begin_parallel_scan(
    heap: pg_sys::Relation,
    shared: pg_sys::ParallelTableScanDesc,
) -> pg_sys::TableScanDesc {
    // SAFETY: by contract.
    unsafe {
        #[cfg(feature = "pg19")]
        return pg_sys::table_beginscan_parallel(heap, shared, 0);
        #[cfg(not(feature = "pg19"))]
        pg_sys::table_beginscan_parallel(heap, shared)
    }
}

/// Whether a function is the comparison of `oid8`, a type that there is from 19 on.
pub fn compares_oid8(function: u32) -> bool {
    #[cfg(feature = "pg19")]
    return function == pg_sys::F_BTOID8CMP;
    #[cfg(not(feature = "pg19"))]
    {
        let _ = function;
        false
    }
}

/// The result of a handler: a new structure, which the server frees.
#[cfg(not(feature = "pg19"))]
pub fn routine(
    make: impl FnOnce() -> PgBox<pg_sys::IndexAmRoutine, AllocatedByRust>,
) -> PgBox<pg_sys::IndexAmRoutine> {
    make().into_pg_boxed()
}

/// The result of a handler: one structure for the life of the process, for from 19 on the server
/// keeps the pointer and frees nothing.
#[cfg(feature = "pg19")]
pub fn routine(
    make: impl FnOnce() -> PgBox<pg_sys::IndexAmRoutine, AllocatedByRust>,
) -> PgBox<pg_sys::IndexAmRoutine> {
    use std::cell::Cell;
    use std::ptr::null_mut;
    thread_local! {
        static ROUTINE: Cell<*mut pg_sys::IndexAmRoutine> = const { Cell::new(null_mut()) };
    }
    if ROUTINE.get().is_null() {
        // SAFETY: a plain structure is copied; the one that `make` made is freed as it is dropped.
        ROUTINE.set(Box::leak(Box::new(unsafe { make().as_ptr().read() })));
    }
    // SAFETY: a node that lives as long as the process and is never written again.
    unsafe { PgBox::from_pg(ROUTINE.get()) }
}

/// One storage parameter.
pub fn storage_parameter(
    name: &'static CStr,
    kind: pg_sys::relopt_type::Type,
    offset: usize,
) -> pg_sys::relopt_parse_elt {
    pg_sys::relopt_parse_elt {
        optname: name.as_ptr(),
        opttype: kind,
        offset: offset as c_int,
        #[cfg(feature = "pg18")]
        isset_offset: 0,
    }
}

/// `amestimateparallelscan`: the same for all scans.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub unsafe extern "C-unwind" fn parallel_memory_of<const SIZE: usize>() -> pg_sys::Size {
    SIZE
}

/// `amestimateparallelscan`: the same for all scans.
#[cfg(feature = "pg17")]
pub unsafe extern "C-unwind" fn parallel_memory_of<const SIZE: usize>(
    _keys: c_int,
    _order_bys: c_int,
) -> pg_sys::Size {
    SIZE
}

/// `amestimateparallelscan`: the same for all scans.
#[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
pub unsafe extern "C-unwind" fn parallel_memory_of<const SIZE: usize>(
    _index: pg_sys::Relation,
    _keys: c_int,
    _order_bys: c_int,
) -> pg_sys::Size {
    SIZE
}

/// The access method's part of the memory that the processes of a parallel scan share; null for
/// other scans.
///
/// # Safety
/// A live scan.
pub unsafe fn parallel_memory(scan: pg_sys::IndexScanDesc) -> *mut c_void {
    // SAFETY: by contract; the offset is the server's.
    unsafe {
        let shared = (*scan).parallel_scan;
        if shared.is_null() {
            return std::ptr::null_mut();
        }
        #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
        let offset = (*shared).ps_offset;
        #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
        let offset = (*shared).ps_offset_am;
        shared.byte_add(offset).cast()
    }
}

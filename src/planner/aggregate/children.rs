//! The scans over which aggregates are computed in an index: paths that the server makes, and their
//! costs without the handing up of rows.

use pgrx::PgList;
use pgrx::pg_sys::{self, IndexOptInfo, IndexPath, NodeTag, Path, PlannerInfo, RelOptInfo};

use crate::am::{self, aggregate};

/// A scan whose rows are not handed up.
pub struct Child {
    pub scan: *mut Path,
    /// Of the index, by which it reads.
    pub path: *mut IndexPath,
    /// The cost without handing the rows up.
    pub reading: f64,
    /// Rows of all processes that share it.
    pub all_rows: f64,
}

impl Child {
    unsafe fn of_index(path: *mut IndexPath) -> Child {
        // SAFETY: the planner's own live structures.
        unsafe {
            let scan = &raw mut (*path).path;
            let handing_up = (*scan).rows * pg_sys::cpu_tuple_cost;
            // The server divides the cost of rows among workers, but not the cost of reading the
            // index, which it weighs as if leaves came from disk. That is left as it is: workers
            // save the adding up.
            let reading = ((*scan).total_cost - handing_up).max((*path).indextotalcost);
            let all_rows = (*(*path).path.parent).rows;
            Child { scan, path, reading, all_rows }
        }
    }

    /// The rows are put in the order of the table.
    unsafe fn of_bitmap(path: *mut pg_sys::BitmapHeapPath) -> Child {
        // SAFETY: the planner's own live structures.
        unsafe {
            let (scan, index) = (&raw mut (*path).path, (*path).bitmapqual.cast::<IndexPath>());
            let sorting = (*scan).rows * pg_sys::cpu_operator_cost;
            let reading = (*index).indextotalcost + sorting;
            Child { scan, path: index, reading, all_rows: (*scan).rows }
        }
    }
}

/// Index Only Scans of the table by indexes of ours that have no condition of their own; with those
/// that workers would share, if `shares`.
///
/// # Safety
/// The planner's own live structures: a query that is being planned, and a table of it.
pub unsafe fn scans(root: *mut PlannerInfo, input: *mut RelOptInfo, shares: bool) -> Vec<Child> {
    let fits = |path: &Path| {
        // SAFETY: a path of the type that its tag says.
        path.type_ == NodeTag::T_IndexPath
            && (shares || path.parallel_workers == 0)
            && path.pathtype == NodeTag::T_IndexOnlyScan
            && unsafe { decides_all(&*std::ptr::from_ref(path).cast()) }
    };
    // SAFETY: by contract; see `fits`.
    unsafe {
        let paths = paths_by(root, input, true, fits);
        paths.into_iter().map(|path| Child::of_index(path.cast())).collect()
    }
}

/// Returns Bitmap Heap Scans by a nitro index with an element column, whose rows need no recheck.
/// If rows must be held, they are not too many.
///
/// # Safety
/// As `scans`.
pub unsafe fn bitmap_scans(root: *mut PlannerInfo, input: *mut RelOptInfo) -> Vec<Child> {
    // SAFETY: a plain global. The costs of the path do not show a setting that is off.
    if unsafe { !pg_sys::enable_bitmapscan } {
        return Vec::new();
    }
    let most = aggregate::most_rows() as f64;
    let fits = |path: &Path| {
        // SAFETY: a path with the type of its tag, and the path of one index for its bitmap.
        path.type_ == NodeTag::T_BitmapHeapPath
            && path.parallel_workers == 0
            && unsafe {
                let below = (*std::ptr::from_ref(path).cast::<pg_sys::BitmapHeapPath>()).bitmapqual;
                (*below).type_ == NodeTag::T_IndexPath
                    && decides_all(&*below.cast::<IndexPath>())
                    && (path.rows <= most || am::reads_one_key(root, &*below.cast()))
            }
    };
    // SAFETY: by contract; see `fits`.
    unsafe {
        let paths = paths_by(root, input, false, fits);
        paths.into_iter().map(|path| Child::of_bitmap(path.cast())).collect()
    }
}

/// Returns paths over the table by one nitro index, from those that hand up rows or from the
/// others. Each index is tried alone: a path that costs more than one by another index may be the
/// only one with these groups.
unsafe fn paths_by(
    root: *mut PlannerInfo,
    input: *mut RelOptInfo,
    hands_up: bool,
    fits: impl Fn(&Path) -> bool,
) -> Vec<*mut Path> {
    let mut all = Vec::new();
    // SAFETY: the planner's own live structures. Additions go to the copy.
    unsafe {
        for info in PgList::<IndexOptInfo>::from_pg((*input).indexlist).iter_ptr() {
            if !am::describes_nitro(&*info) || (*info).amhasgettuple != hands_up {
                continue;
            }
            let mut copy = *input;
            copy.indexlist = pg_sys::lappend(std::ptr::null_mut(), info.cast());
            copy.pathlist = std::ptr::null_mut();
            copy.partial_pathlist = std::ptr::null_mut();
            copy.joininfo = std::ptr::null_mut();
            copy.has_eclass_joins = false;
            pg_sys::create_index_paths(root, &mut copy);
            let paths = PgList::<Path>::from_pg(copy.pathlist);
            let shared = PgList::<Path>::from_pg(copy.partial_pathlist);
            for path in paths.iter_ptr().chain(shared.iter_ptr()) {
                if (*path).param_info.is_null() && fits(&*path) {
                    // Not the copy, which is gone when the path is used.
                    (*path).parent = input;
                    all.push(path);
                }
            }
        }
    }
    all
}

/// Whether the index decides every condition (as `is_redundant_with_indexclauses`); those that its
/// predicate implies are not in the list.
unsafe fn decides_all(path: &IndexPath) -> bool {
    // SAFETY: lists of the planner of these types.
    unsafe {
        let clauses = PgList::<pg_sys::IndexClause>::from_pg(path.indexclauses);
        PgList::<pg_sys::RestrictInfo>::from_pg((*path.indexinfo).indrestrictinfo).iter_ptr().all(
            |condition| {
                clauses.iter_ptr().any(|clause| !(*clause).lossy && (*clause).rinfo == condition)
            },
        )
    }
}

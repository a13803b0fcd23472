//! Aggregates of a scan that several processes share (`am::scan::parallel`).

use pgrx::pg_sys::{self, Path, PlannerInfo, RelOptInfo, RelOptKind};

/// Whether rows of the input may be shared among workers. Of a partition they are not: it is the
/// whole that is gathered.
pub fn is_possible(input: &RelOptInfo, grouped: &RelOptInfo) -> bool {
    input.reloptkind == RelOptKind::RELOPT_BASEREL
        && input.consider_parallel
        && grouped.consider_parallel
}

/// Makes the path that gathers the rows of all processes, in the order of the path if it has one.
///
/// # Safety
/// The planner's own live structures, and a path for workers.
pub unsafe fn over(root: *mut PlannerInfo, grouped: *mut RelOptInfo, path: *mut Path) -> *mut Path {
    // SAFETY: by contract.
    unsafe {
        let (target, nobody) = ((*path).pathtarget, std::ptr::null_mut());
        let mut rows = (*path).rows * f64::from((*path).parallel_workers);
        match (*path).pathkeys {
            keys if keys.is_null() => {
                pg_sys::create_gather_path(root, grouped, path, target, nobody, &mut rows).cast()
            }
            keys => {
                let (rel, rows) = (grouped, &mut rows);
                pg_sys::create_gather_merge_path(root, rel, path, target, keys, nobody, rows).cast()
            }
        }
    }
}

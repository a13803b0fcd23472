//! Whole aggregates over partial ones.

use pgrx::pg_sys::{self, List, Path, PlannerInfo, RelOptInfo};

/// Adds a path to `grouped` that makes whole aggregates, or groups, of the partial ones of `path`.
/// `clause`: what the rows of `path` are grouped and sorted by, if they are.
///
/// # Safety
/// The planner's own live structures.
pub(super) unsafe fn over(
    root: *mut PlannerInfo,
    grouped: *mut RelOptInfo,
    path: *mut Path,
    groups: f64,
    clause: Option<*mut List>,
    having: *mut List,
    costs: &pg_sys::AggClauseCosts,
) {
    // SAFETY: by contract.
    unsafe {
        let strategy = match clause {
            Some(_) => pg_sys::AggStrategy::AGG_SORTED,
            None => pg_sys::AggStrategy::AGG_PLAIN,
        };
        let clause = clause.unwrap_or(std::ptr::null_mut());
        let finalize: *mut Path = if (*(*root).parse).hasAggs {
            pg_sys::create_agg_path(
                root,
                grouped,
                path,
                (*grouped).reltarget,
                strategy,
                pg_sys::AggSplit::AGGSPLIT_FINAL_DESERIAL,
                clause,
                having,
                costs,
                groups,
            )
            .cast()
        } else {
            pg_sys::create_group_path(root, grouped, path, clause, having, groups).cast()
        };
        pg_sys::add_path(grouped, finalize);
    }
}

//! The hook by which the planner shows what it knows of a relation.

use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::pg_sys::{self, PlannerInfo, RelOptInfo};
use pgrx::prelude::*;
use std::ffi::c_void;
use std::sync::OnceLock;

/// Edits what the planner knows of a relation; `true` for the parent of an inheritance tree.
pub type Edit = unsafe fn(*mut PlannerInfo, bool, *mut RelOptInfo);

static EDIT: OnceLock<Edit> = OnceLock::new();

#[cfg(not(feature = "pg19"))]
static mut PREVIOUS: pg_sys::get_relation_info_hook_type = None;
#[cfg(feature = "pg19")]
static mut PREVIOUS: pg_sys::build_simple_rel_hook_type = None;

/// Calls `edit` for each relation of a query, after the hooks that were there before.
///
/// # Safety
/// Once, when the library is loaded. `edit` gets live planner structures.
pub unsafe fn hook_relations(edit: Edit) {
    EDIT.get_or_init(|| edit);
    // SAFETY: plain globals; children of the postmaster inherit them.
    unsafe {
        #[cfg(not(feature = "pg19"))]
        {
            PREVIOUS = pg_sys::get_relation_info_hook;
            pg_sys::get_relation_info_hook = Some(on_relation);
        }
        #[cfg(feature = "pg19")]
        {
            PREVIOUS = pg_sys::build_simple_rel_hook;
            pg_sys::build_simple_rel_hook = Some(on_relation);
        }
    }
}

/// `get_relation_info_hook`
#[cfg(not(feature = "pg19"))]
#[pg_guard]
unsafe extern "C-unwind" fn on_relation(
    root: *mut PlannerInfo,
    relation: pg_sys::Oid,
    is_parent: bool,
    rel: *mut RelOptInfo,
) {
    crate::pg::witness!();
    // SAFETY: what the server passes goes on to both.
    unsafe {
        if let Some(previous) = PREVIOUS {
            previous(root, relation, is_parent, rel);
        }
        if let Some(edit) = EDIT.get() {
            edit(root, is_parent, rel);
        }
    }
}

/// `build_simple_rel_hook`, which is called for subqueries, functions and the like, too.
#[cfg(feature = "pg19")]
#[pg_guard]
unsafe extern "C-unwind" fn on_relation(
    root: *mut PlannerInfo,
    rel: *mut RelOptInfo,
    entry: *mut pg_sys::RangeTblEntry,
) {
    crate::pg::witness!();
    // SAFETY: what the server passes goes on to both.
    unsafe {
        if let Some(previous) = PREVIOUS {
            previous(root, rel, entry);
        }
        if (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION
            && let Some(edit) = EDIT.get()
        {
            edit(root, (*entry).inh, rel);
        }
    }
}

/// Facts that a plan asks the server about each table with nitro indexes.
pub struct PlanFacts {
    /// The server is in recovery.
    pub in_recovery: bool,
    /// The snapshot was taken in recovery.
    pub of_recovery: bool,
    /// Memory of the planner.
    pub memory: *mut c_void,
}

/// Asks all of it behind one boundary, which costs more than the answers. `bytes`: of memory.
///
/// # Safety
/// Inside of a transaction that plans.
pub unsafe fn plan_facts(bytes: usize) -> PlanFacts {
    unsafe extern "C-unwind" {
        fn RecoveryInProgress() -> bool;
        fn ActiveSnapshotSet() -> bool;
        fn GetActiveSnapshot() -> pg_sys::Snapshot;
        fn palloc(bytes: usize) -> *mut c_void;
    }
    // SAFETY: the server's own functions; an active snapshot is live. Nothing here has to be
    // dropped.
    unsafe {
        pg_guard_ffi_boundary(|| PlanFacts {
            in_recovery: RecoveryInProgress(),
            of_recovery: ActiveSnapshotSet() && (*GetActiveSnapshot()).takenDuringRecovery,
            memory: palloc(bytes),
        })
    }
}

/// Facts for the cost of an index path.
pub struct PathFacts {
    /// The conditions of the path: RestrictInfos.
    pub quals: *mut pg_sys::List,
    /// The part of the table's rows that pass them.
    pub fraction: f64,
    /// The cost of computing the values that they compare with.
    pub arguments: f64,
}

/// Asks all of it behind one boundary.
///
/// # Safety
/// The planner's own live structures.
pub unsafe fn path_facts(root: *mut PlannerInfo, path: *mut pg_sys::IndexPath) -> PathFacts {
    use pg_sys::{JoinType, List, SpecialJoinInfo};
    unsafe extern "C-unwind" {
        fn get_quals_from_indexclauses(clauses: *mut List) -> *mut List;
        fn clauselist_selectivity(
            root: *mut PlannerInfo,
            clauses: *mut List,
            relid: i32,
            kind: JoinType::Type,
            special: *mut SpecialJoinInfo,
        ) -> f64;
        fn index_other_operands_eval_cost(root: *mut PlannerInfo, quals: *mut List) -> f64;
    }
    // SAFETY: the server's own functions, by contract. Nothing here has to be dropped.
    unsafe {
        let (relid, kind) = ((*(*(*path).indexinfo).rel).relid, JoinType::JOIN_INNER);
        pg_guard_ffi_boundary(|| {
            let quals = get_quals_from_indexclauses((*path).indexclauses);
            let none = std::ptr::null_mut();
            PathFacts {
                quals,
                fraction: clauselist_selectivity(root, quals, relid as i32, kind, none),
                arguments: index_other_operands_eval_cost(root, quals),
            }
        })
    }
}

/// A path over another one has as many disabled nodes (from 18 on; before, they are in the costs).
pub fn inherit_disabled_nodes(path: &mut pg_sys::Path, of: &pg_sys::Path) {
    #[cfg(any(feature = "pg18", feature = "pg19"))]
    {
        path.disabled_nodes = of.disabled_nodes;
    }
    #[cfg(not(any(feature = "pg18", feature = "pg19")))]
    let _ = (path, of);
}

/// Returns the grouping of a query, without columns that are the same in all rows (from 16 on).
///
/// # Safety
/// A query that is being planned, whose groups have been looked at.
pub unsafe fn group_clause(root: *mut PlannerInfo) -> *mut pg_sys::List {
    // SAFETY: by contract.
    unsafe {
        #[cfg(feature = "pg15")]
        return (*(*root).parse).groupClause;
        #[cfg(not(feature = "pg15"))]
        return (*root).processed_groupClause;
    }
}

/// Returns the grouping as an order of rows. From 16 on the order of ordered aggregates may follow.
///
/// # Safety
/// As [`group_clause`].
pub unsafe fn group_pathkeys(root: *mut PlannerInfo) -> Vec<*mut pg_sys::PathKey> {
    // SAFETY: by contract.
    unsafe {
        let keys = pgrx::PgList::<pg_sys::PathKey>::from_pg((*root).group_pathkeys);
        #[cfg(feature = "pg15")]
        let n = keys.len();
        #[cfg(not(feature = "pg15"))]
        let n = (*root).num_groupby_pathkeys as usize;
        keys.iter_ptr().take(n).collect()
    }
}

/// Whether the server sees to it that a column of a table is never NULL. Since 18 there are
/// constraints that rows of before need not fulfil.
///
/// # Safety
/// A table that is locked, and one of its columns.
pub unsafe fn has_no_null(table: pg_sys::Oid, column: i16) -> bool {
    // SAFETY: by contract. The description is the cache's, which the open table keeps.
    unsafe {
        let relation = pg_sys::relation_open(table, pg_sys::NoLock as pg_sys::LOCKMODE);
        let (columns, i) = (&*(*relation).rd_att, column as usize - 1);
        #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
        let never = columns.attrs.as_slice(columns.natts as usize)[i].attnotnull;
        #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
        let never = columns.compact_attrs.as_slice(columns.natts as usize)[i].attnullability as u8
            == pg_sys::ATTNULLABLE_VALID;
        pg_sys::relation_close(relation, pg_sys::NoLock as pg_sys::LOCKMODE);
        never
    }
}

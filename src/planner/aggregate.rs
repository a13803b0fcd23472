//! Offers the planner aggregates that are computed in an index (`am::aggregate`), beside the paths that it has.
//!
//! The server matches conditions with the index: it makes index paths for a copy of the table's description, of
//! which an Index Only Scan without a condition of its own becomes the child. The path gives partial
//! aggregates; the server's Finalize Aggregate does the rest (HAVING, expressions, final functions). No path of others
//! is changed or taken away.

use pgrx::PgList;
use pgrx::pg_sys::{
    self, Aggref, CustomPath, IndexOptInfo, IndexPath, List, NodeTag, Path, PathTarget,
    PlannerInfo, RelOptInfo, TargetEntry, Var,
};
use pgrx::prelude::*;

use crate::am::{self, aggregate::Function};
use crate::pg::{compat, guc};
use crate::state::shmem;

static mut PREVIOUS: pg_sys::create_upper_paths_hook_type = None;

/// Chains the hook.
pub fn install_hook() {
    // SAFETY: runs once, when the library is loaded.
    unsafe {
        PREVIOUS = pg_sys::create_upper_paths_hook;
        pg_sys::create_upper_paths_hook = Some(on_upper_paths);
    }
}

/// `create_upper_paths_hook`
#[pg_guard]
unsafe extern "C-unwind" fn on_upper_paths(
    root: *mut PlannerInfo,
    stage: pg_sys::UpperRelationKind::Type,
    input: *mut RelOptInfo,
    output: *mut RelOptInfo,
    extra: *mut std::ffi::c_void,
) {
    crate::pg::witness!();
    // SAFETY: what the server passes; at this stage `extra` is of this type.
    unsafe {
        if let Some(previous) = PREVIOUS {
            previous(root, stage, input, output, extra);
        }
        if stage == pg_sys::UpperRelationKind::UPPERREL_GROUP_AGG
            && guc::ENABLE_AGGREGATE.get()
            && guc::ENABLE_FAST_SCAN.get()
            && pg_sys::XactIsoLevel != pg_sys::XACT_SERIALIZABLE as i32
            && shmem::directory_if_loaded().is_some()
            && !extra.is_null()
            && is_candidate(root, input)
        {
            offer(root, input, output, &*extra.cast());
        }
    }
}

/// Whether the input is a table with an index of ours, and the query one for which a path could be made.
unsafe fn is_candidate(root: *mut PlannerInfo, input: *mut RelOptInfo) -> bool {
    use pg_sys::RelOptKind::{RELOPT_BASEREL, RELOPT_OTHER_MEMBER_REL};
    // SAFETY: the planner's own live structures.
    unsafe {
        let (query, rel) = (&*(*root).parse, &*input);
        if !matches!(rel.reloptkind, RELOPT_BASEREL | RELOPT_OTHER_MEMBER_REL)
            || rel.rtekind != pg_sys::RTEKind::RTE_RELATION
            || rel.indexlist.is_null()
            || !query.hasAggs
            || !query.groupClause.is_null()
            || !query.groupingSets.is_null()
            || (*root).hasPseudoConstantQuals
            // Its pages are not among those that index paths are weighed with.
            || pg_sys::is_dummy_rel(input)
        {
            return false;
        }
        let entry = &**(*root).simple_rte_array.add(rel.relid as usize);
        !entry.inh && entry.tablesample.is_null() && matches!(entry.relkind as u8, b'r' | b'm')
    }
}

/// An aggregate of the query: its function, and the column that it takes, 0 for none.
struct Wanted {
    function: pg_sys::Oid,
    column: i16,
}

unsafe fn offer(
    root: *mut PlannerInfo,
    input: *mut RelOptInfo,
    grouped: *mut RelOptInfo,
    extra: &pg_sys::GroupPathExtraData,
) {
    // SAFETY: the planner's own live structures.
    unsafe {
        if extra.flags as u32 & pg_sys::GROUPING_CAN_PARTIAL_AGG == 0 {
            return;
        }
        let Some((target, wanted)) =
            partial_target(&*input, &*(*grouped).reltarget, extra.havingQual)
        else {
            return;
        };
        let Some(child) = cheapest_scan(root, input) else { return };
        let Some(columns) = columns_of(&*(*child).indexinfo, &wanted) else { return };
        let path = path_over(child, grouped, target, &wanted, columns);
        let mut costs = pg_sys::AggClauseCosts::default();
        pg_sys::get_agg_clause_costs(root, pg_sys::AggSplit::AGGSPLIT_FINAL_DESERIAL, &mut costs);
        let finalize = pg_sys::create_agg_path(
            root,
            grouped,
            path.cast(),
            (*grouped).reltarget,
            pg_sys::AggStrategy::AGG_PLAIN,
            pg_sys::AggSplit::AGGSPLIT_FINAL_DESERIAL,
            std::ptr::null_mut(),
            extra.havingQual.cast(),
            &costs,
            1.0,
        );
        pg_sys::add_path(grouped, finalize.cast());
    }
}

/// The row of partial aggregates from which the target and HAVING are made (as `make_partial_grouping_target`), and
/// what is in its columns; None if something else than aggregates that are computed here is needed.
unsafe fn partial_target(
    input: &RelOptInfo,
    target: &PathTarget,
    having: *mut pg_sys::Node,
) -> Option<(*mut PathTarget, Vec<Wanted>)> {
    // SAFETY: expressions of the query, which are not changed: aggregates are copied before they are marked.
    unsafe {
        let flags = pg_sys::PVC_INCLUDE_AGGREGATES
            | pg_sys::PVC_RECURSE_WINDOWFUNCS
            | pg_sys::PVC_INCLUDE_PLACEHOLDERS;
        let parts = pg_sys::list_concat(
            pg_sys::pull_var_clause(target.exprs.cast(), flags as i32),
            pg_sys::pull_var_clause(having, flags as i32),
        );
        let partial = pg_sys::create_empty_pathtarget();
        pg_sys::add_new_columns_to_pathtarget(partial, parts);
        let (mut wanted, mut marked) = (Vec::new(), std::ptr::null_mut());
        for part in PgList::<pg_sys::Node>::from_pg((*partial).exprs).iter_ptr() {
            if (*part).type_ != NodeTag::T_Aggref {
                return None;
            }
            let aggregate = part.cast::<Aggref>();
            wanted.push(wanted_by(input, &*aggregate)?);
            let copy: *mut Aggref = pg_sys::palloc(size_of::<Aggref>()).cast();
            copy.copy_from_nonoverlapping(aggregate, 1);
            pg_sys::mark_partial_aggref(copy, pg_sys::AggSplit::AGGSPLIT_INITIAL_SERIAL);
            marked = pg_sys::lappend(marked, copy.cast());
        }
        if wanted.is_empty() {
            return None;
        }
        (*partial).exprs = marked;
        Some((partial, wanted))
    }
}

/// What an aggregate wants, if it is computed here: of a column as it is, of exactly the type of the function.
unsafe fn wanted_by(input: &RelOptInfo, aggregate: &Aggref) -> Option<Wanted> {
    let plain = aggregate.aggfilter.is_null()
        && aggregate.aggorder.is_null()
        && aggregate.aggdistinct.is_null()
        && aggregate.aggdirectargs.is_null()
        && !aggregate.aggvariadic
        && aggregate.agglevelsup == 0
        && aggregate.aggkind as u8 == pg_sys::AGGKIND_NORMAL;
    let function = Function::of(aggregate.aggfnoid).filter(|_| plain)?;
    let wanted = |column| Some(Wanted { function: aggregate.aggfnoid, column });
    if function.counts_rows() {
        return wanted(0);
    }
    // SAFETY: the arguments of an aggregate are target entries.
    unsafe {
        let arguments = PgList::<TargetEntry>::from_pg(aggregate.args);
        let argument = arguments.get_ptr(0).filter(|_| arguments.len() == 1)?;
        let var = (*argument).expr.cast::<Var>();
        let fits = !(*argument).resjunk
            && (*var.cast::<pg_sys::Node>()).type_ == NodeTag::T_Var
            && (*var).varno as u32 == input.relid
            && (*var).varlevelsup == 0
            && (*var).varattno > 0
            && function.takes((*var).vartype);
        if fits { wanted((*var).varattno) } else { None }
    }
}

/// The cheapest Index Only Scan of the table by an index of ours that has no condition of its own.
unsafe fn cheapest_scan(root: *mut PlannerInfo, input: *mut RelOptInfo) -> Option<*mut IndexPath> {
    // SAFETY: the planner's own live structures; what it adds goes to the copy.
    unsafe {
        let mut indexes = std::ptr::null_mut();
        for info in PgList::<IndexOptInfo>::from_pg((*input).indexlist).iter_ptr() {
            if am::describes_nitro(&*info) && (*info).amhasgettuple {
                indexes = pg_sys::lappend(indexes, info.cast());
            }
        }
        if indexes.is_null() {
            return None;
        }
        let mut copy = *input;
        copy.indexlist = indexes;
        copy.pathlist = std::ptr::null_mut();
        copy.partial_pathlist = std::ptr::null_mut();
        copy.joininfo = std::ptr::null_mut();
        copy.has_eclass_joins = false;
        pg_sys::create_index_paths(root, &mut copy);
        PgList::<Path>::from_pg(copy.pathlist)
            .iter_ptr()
            .filter(|&path| {
                (*path).type_ == NodeTag::T_IndexPath
                    && (*path).pathtype == NodeTag::T_IndexOnlyScan
                    && (*path).param_info.is_null()
                    && decides_all(&*path.cast::<IndexPath>())
            })
            .min_by(|&a, &b| (*a).total_cost.total_cmp(&(*b).total_cost))
            .map(<*mut Path>::cast)
    }
}

/// Whether the index decides every condition (as `is_redundant_with_indexclauses`); those that its predicate implies are
/// not in the list.
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

/// Where the columns are in the index.
unsafe fn columns_of(index: &IndexOptInfo, wanted: &[Wanted]) -> Option<Vec<i32>> {
    // SAFETY: arrays with an element for each column.
    let place = |column: i16| unsafe {
        (0..index.ncolumns as usize)
            .find(|&i| *index.indexkeys.add(i) == i32::from(column) && *index.canreturn.add(i))
    };
    wanted
        .iter()
        .map(|w| if w.column == 0 { Some(0) } else { place(w.column).map(|i| i as i32) })
        .collect()
}

const METHODS: *const pg_sys::CustomPathMethods = {
    struct Methods(pg_sys::CustomPathMethods);
    // SAFETY: never written.
    unsafe impl Sync for Methods {}
    static TABLE: Methods = Methods(pg_sys::CustomPathMethods {
        CustomName: c"NitroAggregate".as_ptr(),
        PlanCustomPath: Some(plan),
        ReparameterizeCustomPathByChild: None,
    });
    &raw const TABLE.0
};

/// The path of one row over the rows of a scan. What it costs is the scan without the handing up of its rows, and an
/// operator for each value.
unsafe fn path_over(
    child: *mut IndexPath,
    grouped: *mut RelOptInfo,
    target: *mut PathTarget,
    wanted: &[Wanted],
    columns: Vec<i32>,
) -> *mut CustomPath {
    // SAFETY: the planner's own live structures; nodes in its memory.
    unsafe {
        let scan = &(*child).path;
        let rows = scan.rows;
        let reading =
            (scan.total_cost - rows * pg_sys::cpu_tuple_cost).max((*child).indextotalcost);
        let values = wanted.iter().filter(|w| w.column != 0).count() as f64;
        let adding =
            rows * (0.5 * pg_sys::cpu_index_tuple_cost + values * pg_sys::cpu_operator_cost);
        let total = reading + adding;

        let node: *mut CustomPath = pg_sys::palloc0(size_of::<CustomPath>()).cast();
        let path = &mut (*node).path;
        path.type_ = NodeTag::T_CustomPath;
        path.pathtype = NodeTag::T_CustomScan;
        path.parent = grouped;
        path.pathtarget = target;
        path.parallel_safe = scan.parallel_safe;
        compat::inherit_disabled_nodes(path, scan);
        path.rows = 1.0;
        path.startup_cost = total;
        path.total_cost = total + pg_sys::cpu_tuple_cost;
        let private = wanted
            .iter()
            .zip(columns)
            .flat_map(|(w, column)| [w.function.to_u32() as i32, column, i32::from(w.column)]);
        (*node).custom_private = am::aggregate::list_of(private);
        (*node).custom_paths = pg_sys::lappend(std::ptr::null_mut(), child.cast());
        (*node).methods = METHODS;
        node
    }
}

/// `PlanCustomPath`
#[pg_guard]
unsafe extern "C-unwind" fn plan(
    _root: *mut PlannerInfo,
    _rel: *mut RelOptInfo,
    path: *mut CustomPath,
    tlist: *mut List,
    _clauses: *mut List,
    children: *mut List,
) -> *mut pg_sys::Plan {
    crate::pg::witness!();
    // SAFETY: a path of `path_over`, and the plan of its only child, whose target list has columns of the table.
    unsafe {
        let child = pg_sys::list_nth(children, 0).cast::<pg_sys::Plan>();
        let rows = PgList::<TargetEntry>::from_pg((*child).targetlist);
        let place = |column: i32| {
            rows.iter_ptr().position(|entry| {
                let var = (*entry).expr.cast::<Var>();
                (*var.cast::<pg_sys::Node>()).type_ == NodeTag::T_Var
                    && i32::from((*var).varattno) == column
            })
        };
        let private = (*path).custom_private;
        let mut numbers = Vec::new();
        for i in (0..pg_sys::list_length(private)).step_by(3) {
            let number = |k| pg_sys::list_nth_int(private, i + k);
            let column = number(2);
            let at = if column == 0 { Some(0) } else { place(column) };
            let Some(at) = at else {
                crate::pg::error::Failure::new(
                    PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
                    format!("column {column} is not in the rows of an index-only scan"),
                )
                .raise()
            };
            numbers.extend([number(0), number(1), at as i32]);
        }
        let node: *mut pg_sys::CustomScan = pg_sys::palloc0(size_of::<pg_sys::CustomScan>()).cast();
        (*node).scan.plan.type_ = NodeTag::T_CustomScan;
        (*node).scan.plan.targetlist = tlist;
        (*node).flags = (*path).flags;
        (*node).custom_plans = children;
        (*node).custom_private = am::aggregate::list_of(numbers);
        (*node).custom_scan_tlist = tlist;
        (*node).methods = am::aggregate::methods();
        node.cast()
    }
}

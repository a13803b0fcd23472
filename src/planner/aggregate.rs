//! Offers the planner aggregates that are computed in an index (`am::aggregate`), beside the paths
//! that it has.
//!
//! The server matches conditions with the index: it makes index paths for a copy of the table's
//! description. Index Only Scans without a condition of their own become children. Groups are of
//! the first columns of an index, in its order. The path gives partial aggregates. The server's
//! Finalize Aggregate does the rest (HAVING, expressions, final functions). Other paths are not
//! changed or removed.
//!
//! If the server would share a scan among workers, each of them makes partial aggregates of its
//! rows, in the order of the index as well. A Gather, or for groups a Gather Merge, comes between.

use pgrx::PgList;
use pgrx::pg_sys::{
    self, Aggref, CustomPath, IndexOptInfo, IndexPath, List, NodeTag, Path, PathTarget,
    PlannerInfo, RelOptInfo, TargetEntry, Var,
};
use pgrx::prelude::*;

use children::Child;

use crate::am::{self, aggregate::Function};
use crate::pg::{compat, guc};
use crate::state::directory;
use crate::state::follow;
use crate::state::known;

mod children;
mod finish;
mod gathered;

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
            && directory::if_loaded().is_some()
            && !follow::is_not_bounded()
            && !extra.is_null()
            && is_candidate(root, input)
        {
            offer(root, input, output, &*extra.cast());
        }
    }
}

/// Whether the input is a table with an index of ours, and the query one for which a path could be
/// made.
unsafe fn is_candidate(root: *mut PlannerInfo, input: *mut RelOptInfo) -> bool {
    use pg_sys::RelOptKind::{RELOPT_BASEREL, RELOPT_OTHER_MEMBER_REL};
    // SAFETY: the planner's own live structures.
    unsafe {
        let (query, rel) = (&*(*root).parse, &*input);
        if !matches!(rel.reloptkind, RELOPT_BASEREL | RELOPT_OTHER_MEMBER_REL)
            || rel.rtekind != pg_sys::RTEKind::RTE_RELATION
            || rel.indexlist.is_null()
            || (!query.hasAggs && query.groupClause.is_null())
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

/// A column of the path's rows: an aggregate function, or `InvalidOid` for a plain column, and the
/// column of the table that it takes (0: none).
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
        let query = &*(*root).parse;
        let groups = !query.groupClause.is_null();
        let flags = extra.flags as u32;
        if flags & pg_sys::GROUPING_CAN_PARTIAL_AGG == 0
            || (groups && flags & pg_sys::GROUPING_CAN_USE_SORT == 0)
        {
            return;
        }
        let clause = compat::group_clause(root);
        let target = &*(*grouped).reltarget;
        let Some((partial, wanted)) =
            partial_target(root, &*input, target, extra.havingQual, clause)
        else {
            return;
        };
        let mut costs = pg_sys::AggClauseCosts::default();
        pg_sys::get_agg_clause_costs(root, pg_sys::AggSplit::AGGSPLIT_FINAL_DESERIAL, &mut costs);
        let finish = |path: *mut Path, groups: f64, clause: Option<*mut List>| {
            finish::over(root, grouped, path, groups, clause, extra.havingQual.cast(), &costs)
        };
        let shares = gathered::is_possible(&*input, &*grouped);
        for child in children::scans(root, input, shares) {
            let grouping = match groups {
                true => prefix_of(root, &*child.path).map(Some),
                false => Some(None),
            };
            let Some(grouping) = grouping else { continue };
            let columns = grouping.map_or(0, |(columns, _)| columns);
            let Some(places) = places_of(&*(*child.path).indexinfo, columns, &wanted) else {
                continue;
            };
            let groups_of = |rows| match groups {
                true => number_of_groups(root, clause, target, rows),
                false => 1.0,
            };
            let rows = groups_of((*child.scan).rows);
            let path = path_over(&child, grouped, partial, rows, grouping, &wanted, places);
            let clause = grouping.map(|_| clause);
            match (*path).path.parallel_workers {
                0 => finish(path.cast(), rows, clause),
                _ => {
                    let path = gathered::over(root, grouped, path.cast());
                    finish(path, groups_of(child.all_rows), clause)
                }
            }
        }
        if !groups
            && wanted.iter().all(|w| Function::of(w.function).is_some_and(|f| f.counts_rows()))
        {
            for child in children::bitmap_scans(root, input) {
                let places = vec![0; wanted.len()];
                let path = path_over(&child, grouped, partial, 1.0, None, &wanted, places);
                finish(path.cast(), 1.0, None);
            }
        }
    }
}

/// How many groups the rows of a scan have.
unsafe fn number_of_groups(
    root: *mut PlannerInfo,
    clause: *mut List,
    target: &PathTarget,
    rows: f64,
) -> f64 {
    // SAFETY: the clauses of the query, and a target in which their expressions are.
    unsafe {
        let mut keys = std::ptr::null_mut();
        for (i, expression) in expressions(target) {
            if !group_of(target, i, clause).is_null() {
                keys = pg_sys::lappend(keys, expression.cast());
            }
        }
        let (pages, info) = (std::ptr::null_mut(), std::ptr::null_mut());
        pg_sys::estimate_num_groups(root, keys, rows, pages, info)
    }
}

/// The expressions of a target, with their places.
unsafe fn expressions(target: &PathTarget) -> impl Iterator<Item = (usize, *mut pg_sys::Node)> {
    // SAFETY: a list of nodes.
    unsafe { PgList::<pg_sys::Node>::from_pg(target.exprs).iter_ptr().collect::<Vec<_>>() }
        .into_iter()
        .enumerate()
}

/// The clause by which an expression of a target is grouped, or null.
unsafe fn group_of(
    target: &PathTarget,
    i: usize,
    clause: *mut List,
) -> *mut pg_sys::SortGroupClause {
    // SAFETY: the array, if there is one, has a number for each expression.
    unsafe {
        match target.sortgrouprefs.is_null() || *target.sortgrouprefs.add(i) == 0 {
            true => std::ptr::null_mut(),
            false => pg_sys::get_sortgroupref_clause_noerr(*target.sortgrouprefs.add(i), clause),
        }
    }
}

/// Returns the row of partial aggregates from which the target and HAVING are made (as
/// `make_partial_grouping_target`), and the content of its columns. Returns None if anything else
/// is needed than columns and aggregates that are computed here.
unsafe fn partial_target(
    root: *mut PlannerInfo,
    input: &RelOptInfo,
    target: &PathTarget,
    having: *mut pg_sys::Node,
    clause: *mut List,
) -> Option<(*mut PathTarget, Vec<Wanted>)> {
    // SAFETY: expressions of the query, which are not changed: aggregates are copied before they
    // are marked.
    unsafe {
        let flags = pg_sys::PVC_INCLUDE_AGGREGATES
            | pg_sys::PVC_RECURSE_WINDOWFUNCS
            | pg_sys::PVC_INCLUDE_PLACEHOLDERS;
        let partial = pg_sys::create_empty_pathtarget();
        let mut others = std::ptr::null_mut();
        for (i, expression) in expressions(target) {
            if group_of(target, i, clause).is_null() {
                others = pg_sys::lappend(others, expression.cast());
            } else {
                let number = *target.sortgrouprefs.add(i);
                pg_sys::add_column_to_pathtarget(partial, expression.cast(), number);
            }
        }
        let parts = pg_sys::list_concat(
            pg_sys::pull_var_clause(others.cast(), flags as i32),
            pg_sys::pull_var_clause(having, flags as i32),
        );
        pg_sys::add_new_columns_to_pathtarget(partial, parts);
        let (mut wanted, mut marked) = (Vec::new(), std::ptr::null_mut());
        for (_, part) in expressions(&*partial) {
            if (*part).type_ != NodeTag::T_Aggref {
                let column = column_of(input, part)?;
                wanted.push(Wanted { function: pg_sys::InvalidOid, column: (*column).varattno });
                marked = pg_sys::lappend(marked, part.cast());
                continue;
            }
            let aggregate = part.cast::<Aggref>();
            wanted.push(wanted_by(root, input, &*aggregate)?);
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

/// The column of the table that an expression is, if it is one as it is.
unsafe fn column_of(input: &RelOptInfo, expression: *mut pg_sys::Node) -> Option<*mut Var> {
    // SAFETY: an expression of the query.
    unsafe {
        let var = expression.cast::<Var>();
        ((*expression).type_ == NodeTag::T_Var
            && (*var).varno as u32 == input.relid
            && (*var).varlevelsup == 0
            && (*var).varattno > 0)
            .then_some(var)
    }
}

/// Returns the input of an aggregate that is computed here: a plain column of exactly the
/// function's type. A count of a column without NULLs counts rows.
unsafe fn wanted_by(
    root: *mut PlannerInfo,
    input: &RelOptInfo,
    aggregate: &Aggref,
) -> Option<Wanted> {
    let plain = aggregate.aggfilter.is_null()
        && aggregate.aggorder.is_null()
        && aggregate.aggdistinct.is_null()
        && aggregate.aggdirectargs.is_null()
        && !aggregate.aggvariadic
        && aggregate.agglevelsup == 0
        && aggregate.aggkind as u8 == pg_sys::AGGKIND_NORMAL;
    let function = Function::of(aggregate.aggfnoid).filter(|_| plain)?;
    let rows = Wanted { function: pg_sys::Oid::from(pg_sys::F_COUNT_), column: 0 };
    if function.counts_rows() {
        return Some(rows);
    }
    // SAFETY: the arguments of an aggregate are target entries.
    unsafe {
        let arguments = PgList::<TargetEntry>::from_pg(aggregate.args);
        let argument = arguments.get_ptr(0).filter(|_| arguments.len() == 1)?;
        let column = column_of(input, (*argument).expr.cast())?;
        if (*argument).resjunk || !function.takes((*column).vartype) {
            return None;
        }
        let (table, column) =
            ((**(*root).simple_rte_array.add(input.relid as usize)).relid, (*column).varattno);
        if function.counts_values() && compat::has_no_null(table, column) {
            return Some(rows);
        }
        Some(Wanted { function: aggregate.aggfnoid, column })
    }
}

/// Returns how many of the first columns of an index make the groups of the query, if some do, and
/// the order of the groups. Columns for which the query knows one value are skipped, as the planner
/// does it.
unsafe fn prefix_of(root: *mut PlannerInfo, path: &IndexPath) -> Option<(usize, *mut List)> {
    // SAFETY: the planner's own live structures. The description of an index with fewer columns is
    // a copy.
    unsafe {
        let wanted = compat::group_pathkeys(root);
        let class = |key: &*mut pg_sys::PathKey| (**key).pk_eclass;
        let mut cut = *path.indexinfo;
        for n in 0..=(*path.indexinfo).nkeycolumns {
            cut.nkeycolumns = n;
            let order = pg_sys::build_index_pathkeys(root, &mut cut, path.indexscandir);
            let keys: Vec<_> = PgList::<pg_sys::PathKey>::from_pg(order).iter_ptr().collect();
            if keys.len() == wanted.len() {
                let all = wanted.iter().all(|key| keys.iter().any(|own| class(own) == class(key)));
                return all.then_some((n as usize, order));
            }
        }
        None
    }
}

/// Returns the places of the columns in the index. Returns None if one is missing, or if its keys
/// do not tell groups of this number of columns apart, or lack the input of an aggregate.
unsafe fn places_of(index: &IndexOptInfo, columns: usize, wanted: &[Wanted]) -> Option<Vec<i32>> {
    // SAFETY: arrays with an element for each column.
    let place = |column: i16| unsafe {
        (0..index.ncolumns as usize)
            .find(|&i| *index.indexkeys.add(i) == i32::from(column) && *index.canreturn.add(i))
    };
    let places: Option<Vec<usize>> =
        wanted.iter().map(|w| if w.column == 0 { Some(0) } else { place(w.column) }).collect();
    let places = places?;
    // SAFETY: the planner holds a lock on the index.
    let known = unsafe { known::get(index.indexoid) }?;
    let desc = &known.handle.desc;
    let reads = |(w, &place): (&Wanted, &usize)| {
        Function::of(w.function).is_none_or(|f| f.reads(desc.columns[place].codec))
    };
    (desc.equal_by_bytes(columns) && wanted.iter().zip(&places).all(reads))
        .then(|| places.iter().map(|&place| place as i32).collect())
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

/// The cost of reading a row from the table, in units of `cpu_tuple_cost`. It is 0.2 us if the row
/// is in memory: eight times as long as a sequential scan takes.
const ASKING: f64 = 10.0;

/// The additional cost of a row if processes share a scan, in units of `cpu_index_tuple_cost`: 2.5
/// ns. Parts must be cut, and each process maps the memory of its parts for the first time. Before
/// the first row that takes as long again as the server expects for their start. Computed in the
/// index, a million rows take one process 5 to 8 ms.
const SHARING: f64 = 0.25;

/// Makes the path of the groups of a scan's rows, or of one row over all. Its cost is the scan
/// without the handing up of its rows, an operator for each value, the look at rows of pages that
/// are not all-visible, and the groups.
unsafe fn path_over(
    child: &Child,
    grouped: *mut RelOptInfo,
    target: *mut PathTarget,
    groups: f64,
    grouping: Option<(usize, *mut List)>,
    wanted: &[Wanted],
    places: Vec<i32>,
) -> *mut CustomPath {
    // SAFETY: the planner's own live structures; nodes in its memory.
    unsafe {
        let scan = &*child.scan;
        let rows = scan.rows;
        let takes = |w: &&Wanted| w.function != pg_sys::InvalidOid && w.column != 0;
        // However many aggregates there are of a column, it is read once.
        let columns = wanted.iter().filter(takes).map(|w| w.column);
        let values = columns.collect::<std::collections::BTreeSet<_>>().len() as f64;
        let asked = 1.0 - (*(*child.path).indexinfo).rel.as_ref().map_or(0.0, |rel| rel.allvisfrac);
        let adding = rows
            * (0.5 * pg_sys::cpu_index_tuple_cost
                + values * pg_sys::cpu_operator_cost
                + asked * ASKING * pg_sys::cpu_tuple_cost);
        let (beginning, sharing) = match scan.parallel_workers {
            0 => (0.0, 0.0),
            _ => (
                pg_sys::parallel_setup_cost,
                child.all_rows * SHARING * pg_sys::cpu_index_tuple_cost,
            ),
        };
        let total = child.reading + adding + beginning + sharing;

        let node: *mut CustomPath = pg_sys::palloc0(size_of::<CustomPath>()).cast();
        let path = &mut (*node).path;
        path.type_ = NodeTag::T_CustomPath;
        path.pathtype = NodeTag::T_CustomScan;
        path.parent = grouped;
        path.pathtarget = target;
        path.parallel_safe = scan.parallel_safe;
        path.parallel_workers = scan.parallel_workers;
        compat::inherit_disabled_nodes(path, scan);
        path.rows = groups;
        path.startup_cost = if grouping.is_some() { scan.startup_cost + beginning } else { total };
        path.total_cost = total + groups * pg_sys::cpu_tuple_cost;
        path.pathkeys = grouping.map_or(std::ptr::null_mut(), |(_, order)| order);
        let columns = grouping.map_or(-1, |(columns, _)| columns as i32);
        let outputs = wanted.iter().zip(places);
        let outputs = outputs.flat_map(|(w, place)| [w.function.to_u32() as i32, place]);
        (*node).custom_private = list_of(std::iter::once(columns).chain(outputs));
        (*node).custom_paths = pg_sys::lappend(std::ptr::null_mut(), child.scan.cast());
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
    // SAFETY: a path of `path_over`, and the plan of its only child.
    unsafe {
        let node: *mut pg_sys::CustomScan = pg_sys::palloc0(size_of::<pg_sys::CustomScan>()).cast();
        (*node).scan.plan.type_ = NodeTag::T_CustomScan;
        (*node).scan.plan.targetlist = tlist;
        (*node).flags = (*path).flags;
        (*node).custom_plans = children;
        (*node).custom_private = (*path).custom_private;
        (*node).custom_scan_tlist = tlist;
        (*node).methods = am::aggregate::methods();
        node.cast()
    }
}

/// A list of these numbers, in the current memory context.
unsafe fn list_of(numbers: impl IntoIterator<Item = i32>) -> *mut List {
    let add = |list, number| {
        // SAFETY: a list of integers, or none yet.
        unsafe { pg_sys::lappend_int(list, number) }
    };
    numbers.into_iter().fold(std::ptr::null_mut(), add)
}

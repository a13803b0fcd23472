//! What a scan costs (`amcostestimate`).
//!
//! The selectivity and correlation estimates are btree's: the same columns, the same statistics. The
//! prices differ, because the index is memory of this server and never read from disk: there is no
//! page I/O, a descent is a handful of comparisons and copying an entry costs about half of what
//! btree charges. So nitro wins over a btree on the same columns, and loses to a btree whose columns
//! let it read fewer entries.
//!
//! Which conditions bound the scan: those on leading columns as long as every column before has an
//! equality. A column without one is skipped over (the scan jumps to the next useful prefix, see
//! `quals`), which costs one descent per distinct value; worthwhile only while there are fewer of them
//! than blocks.

use pgrx::PgList;
use pgrx::pg_sys::{self, IndexOptInfo, IndexPath, Oid, PlannerInfo};
use pgrx::prelude::*;

use super::STRATEGIES;
use crate::elements::strategy;
use crate::pg::compat;
use crate::state::handle::Handle;

/// Operators that one level of a descent counts for.
const DESCENT_OPERATORS_PER_LEVEL: f64 = 15.0;
/// Reading an entry against btree's `cpu_index_tuple_cost`, and a condition against an operator call:
/// ranges are compared block by block.
const ENTRY_FACTOR: f64 = 0.5;
/// The same for an entry that conditions are asked about which do not bound the scan: its key is taken apart up
/// to their columns, and the scan searches anew behind each block that ends with one they refuse. That takes 0.7
/// to 1.9 times as long as a row takes a sequential scan (integers, text in byte order).
const FILTER_FACTOR: f64 = 3.0;
/// And where keys are compared by functions, each search calls some twenty of them: 1.5 to 3.4 times (text under
/// a linguistic collation).
const COMPARED_FILTER_FACTOR: f64 = 7.0;
/// Operators that a page of an index counts for, beside its entries: of two indexes that would do, the planner takes the one of
/// less memory.
const OPERATORS_PER_PAGE: f64 = 15.0;
/// Levels of a large index: leaf blocks, inner nodes, flat top.
const LEVELS: f64 = 3.0;
/// The server's default estimate for an inequality (selfuncs.h).
const DEFAULT_RANGE_SELECTIVITY: f64 = 0.333_333_333_333_333_3;

/// Whether the planner describes a nitro index of this library.
pub fn describes_nitro(info: &IndexOptInfo) -> bool {
    info.amcostestimate.is_some_and(|f| f as *const () == OWN)
}

/// The planner copies this routine of ours into its descriptions.
const OWN: *const () = estimate as *const ();

/// Height reported to the planner (`amgettreeheight`); the planner hook refines it.
#[pg_guard]
pub unsafe extern "C-unwind" fn tree_height(_index: pg_sys::Relation) -> i32 {
    crate::pg::witness!();
    LEVELS as i32 - 1
}

/// Estimates an index path (`amcostestimate`).
#[allow(clippy::too_many_arguments, reason = "the server's callback")]
#[pg_guard]
pub unsafe extern "C-unwind" fn estimate(
    root: *mut PlannerInfo,
    path: *mut IndexPath,
    _loop_count: f64,
    startup_cost: *mut pg_sys::Cost,
    total_cost: *mut pg_sys::Cost,
    selectivity: *mut pg_sys::Selectivity,
    correlation: *mut f64,
    pages: *mut f64,
) {
    crate::pg::witness!();
    // SAFETY: the planner passes its own live structures and out parameters.
    unsafe {
        let index = &*(*path).indexinfo;
        let quals = pg_sys::get_quals_from_indexclauses((*path).indexclauses);
        let fraction = selectivity_of(root, index, quals);
        let bounds = Bounds::of(root, index, (*path).indexclauses);

        // One list is priced as btree prices it, so that the two stay comparable.
        let descents = match bounds.lists {
            0 | 1 => bounds.descents.min((f64::from(index.pages) / 3.0).ceil()).max(1.0),
            _ => bounds.descents,
        };
        let rows = (*index.rel).tuples;
        let fraction_read = selectivity_of(root, index, bounds.quals);
        // Rows that have all of n elements are found by reading the entries of about one element n times.
        let per_element = fraction_read.powf(1.0 / bounds.elements) * bounds.elements;
        let candidates = if bounds.any_element { index.tuples } else { rows };
        let entries =
            (per_element * candidates).round().min(index.tuples * bounds.elements).max(1.0);

        let price = |factor: f64, conditions: usize| {
            let operators = conditions as f64 * pg_sys::cpu_operator_cost;
            factor * (pg_sys::cpu_index_tuple_cost + operators)
        };
        let conditions = |list| PgList::<pg_sys::RestrictInfo>::from_pg(list).len();
        let bounding = conditions(bounds.quals);
        let mut per_entry = price(ENTRY_FACTOR, bounding);
        let filters = conditions(quals).saturating_sub(bounding);
        if filters > 0 {
            let factor = if in_byte_order(index) { FILTER_FACTOR } else { COMPARED_FILTER_FACTOR };
            per_entry += price(factor, filters);
        }
        let levels =
            if index.tree_height >= 0 { f64::from(index.tree_height) + 1.0 } else { LEVELS };
        let descent = levels * DESCENT_OPERATORS_PER_LEVEL * pg_sys::cpu_operator_cost;
        let arguments = pg_sys::index_other_operands_eval_cost(root, quals);

        // Consistent with the virtual size that the planner hook reports.
        *pages = if index.pages > 1 && index.tuples > 1.0 {
            (entries * f64::from(index.pages) / index.tuples).ceil()
        } else {
            1.0
        };
        let per_page = OPERATORS_PER_PAGE * pg_sys::cpu_operator_cost;

        *startup_cost = arguments + descent;
        *total_cost = arguments + descents * descent + entries * per_entry + *pages * per_page;
        *selectivity = fraction;
        *correlation = bounds.correlation.unwrap_or_else(|| first_column(root, index).correlation);
    }
}

/// Whether the conditions of a path on an index with an element column are for one element, and one value of each column beside
/// it, so that the rows come one after the other.
///
/// # Safety
/// The planner's own path, of an index of ours.
pub unsafe fn reads_one_key(root: *mut PlannerInfo, path: &IndexPath) -> bool {
    // SAFETY: by contract.
    unsafe {
        let index = &*path.indexinfo;
        let bounds = Bounds::of(root, index, path.indexclauses);
        let columns = PgList::<pg_sys::IndexClause>::from_pg(path.indexclauses);
        let last = columns.iter_ptr().map(|clause| i32::from((*clause).indexcol) + 1).max();
        bounds.points && !bounds.any_element && last == Some(index.nkeycolumns)
    }
}

/// Whether keys of an index are compared without functions of operator classes.
///
/// # Safety
/// The planner's own description of an index that it may scan.
unsafe fn in_byte_order(index: &IndexOptInfo) -> bool {
    // SAFETY: the planner holds a lock on the index, so it can be opened without one.
    unsafe {
        let relation = pg_sys::index_open(index.indexoid, pg_sys::NoLock as pg_sys::LOCKMODE);
        let handle = Handle::try_open(relation);
        pg_sys::index_close(relation, pg_sys::NoLock as pg_sys::LOCKMODE);
        handle.is_none_or(|handle| handle.desc.is_memcmp())
    }
}

/// The fraction of the table's rows that pass `quals` and the predicate of a partial index.
unsafe fn selectivity_of(
    root: *mut PlannerInfo,
    index: &IndexOptInfo,
    quals: *mut pg_sys::List,
) -> f64 {
    // SAFETY: planner structures by the caller's contract.
    unsafe {
        let info = std::ptr::from_ref(index).cast_mut();
        let all = pg_sys::add_predicate_to_index_quals(info, quals);
        pg_sys::clauselist_selectivity(
            root,
            all,
            (*index.rel).relid as i32,
            pg_sys::JoinType::JOIN_INNER,
            std::ptr::null_mut(),
        )
    }
}

/// The conditions that limit what a scan reads.
struct Bounds {
    /// RestrictInfos.
    quals: *mut pg_sys::List,
    /// How often the scan starts anew, for array elements and skipped values.
    descents: f64,
    /// Conditions and skipped columns that let it start anew.
    lists: u32,
    /// Elements that a row must have together (see `elements`).
    elements: f64,
    /// Rows have many entries, and no condition names their elements.
    any_element: bool,
    /// Every condition is for one value, and no column is skipped over.
    points: bool,
    /// Correlation of the first column, if its statistics had to be read.
    correlation: Option<f64>,
}

impl Bounds {
    /// # Safety
    /// `clauses` must be the IndexClauses of a path of `index`, in column order as the planner
    /// keeps them.
    unsafe fn of(
        root: *mut PlannerInfo,
        index: &IndexOptInfo,
        clauses: *mut pg_sys::List,
    ) -> Bounds {
        let mut bounds = Bounds {
            quals: std::ptr::null_mut(),
            descents: 1.0,
            lists: 0,
            elements: 1.0,
            any_element: !index.amhasgettuple,
            points: true,
            correlation: None,
        };
        // SAFETY: by contract.
        unsafe {
            let mut column = 0;
            let mut equality = false;
            // Conditions on `column` while it has no equality.
            let mut range: *mut pg_sys::List = std::ptr::null_mut();
            for clause in PgList::<pg_sys::IndexClause>::from_pg(clauses).iter_ptr() {
                let target = i32::from((*clause).indexcol);
                if target > column {
                    if equality {
                        column += 1;
                        range = std::ptr::null_mut();
                    }
                    equality = false;
                    let before = (bounds.descents, bounds.lists);
                    bounds.points &= column == target;
                    while column < target {
                        if !bounds.skip(root, index, column, range) {
                            (bounds.descents, bounds.lists) = before;
                            return bounds;
                        }
                        column += 1;
                        range = std::ptr::null_mut();
                    }
                }
                for qual in PgList::<pg_sys::RestrictInfo>::from_pg((*clause).indexquals).iter_ptr()
                {
                    let kind = Condition::of(root, index, column, (*qual).clause.cast());
                    bounds.list(root, index, kind.descents);
                    bounds.elements *= kind.elements;
                    bounds.any_element &= !kind.on_elements;
                    bounds.points &= kind.equality && kind.descents <= 1.0;
                    bounds.quals = pg_sys::lappend(bounds.quals, qual.cast());
                    equality |= kind.equality;
                    range = pg_sys::lappend(range, qual.cast());
                }
            }
        }
        bounds
    }

    /// Adds the descents for a list of `n` values. The second of two lists is not looked through for each
    /// value of the first: no two empty ranges are visited between the same two of the entries that the
    /// conditions so far leave (see `quals`).
    ///
    /// # Safety
    /// As `of`.
    unsafe fn list(&mut self, root: *mut PlannerInfo, index: &IndexOptInfo, n: f64) {
        if n <= 1.0 {
            return;
        }
        let all = self.descents * n;
        self.descents = match self.lists {
            0 => all,
            // SAFETY: by contract.
            _ => unsafe {
                let entries = selectivity_of(root, index, self.quals) * index.tuples;
                all.min(self.descents + 2.0 * entries.max(1.0))
            },
        };
        self.lists += 1;
    }

    /// Whether skipping over the values of `column` pays off; adds its descents.
    ///
    /// # Safety
    /// As `of`; `range` lists conditions on that column.
    unsafe fn skip(
        &mut self,
        root: *mut PlannerInfo,
        index: &IndexOptInfo,
        column: i32,
        range: *mut pg_sys::List,
    ) -> bool {
        // SAFETY: by contract.
        unsafe {
            let statistics = column_statistics(root, index, column);
            if column == 0 {
                self.correlation = Some(statistics.correlation);
            }
            let Some(mut distinct) = statistics.distinct else { return false };
            if range.is_null() {
                distinct += 1.0;
            } else {
                let part = selectivity_of(root, index, range);
                if part < DEFAULT_RANGE_SELECTIVITY {
                    return false;
                }
                distinct = (distinct * part).round().max(1.0);
            }
            self.list(root, index, distinct);
            self.descents <= f64::from(index.pages)
        }
    }
}

/// What one index condition does for the scan.
struct Condition {
    equality: bool,
    descents: f64,
    elements: f64,
    on_elements: bool,
}

impl Condition {
    /// # Safety
    /// `clause` must be an index condition on `column`.
    unsafe fn of(
        root: *mut PlannerInfo,
        index: &IndexOptInfo,
        column: i32,
        clause: *mut pg_sys::Node,
    ) -> Condition {
        // SAFETY: the tag says what the node is.
        unsafe {
            let (mut descents, mut elements) = (1.0, 1.0);
            let mut argument = std::ptr::null_mut();
            let operator = match (*clause).type_ {
                pg_sys::NodeTag::T_OpExpr => {
                    let operation = clause.cast::<pg_sys::OpExpr>();
                    let arguments = PgList::<pg_sys::Node>::from_pg((*operation).args);
                    argument = arguments.get_ptr(1).unwrap_or(argument);
                    (*operation).opno
                }
                pg_sys::NodeTag::T_ScalarArrayOpExpr => {
                    let array = clause.cast::<pg_sys::ScalarArrayOpExpr>();
                    if let Some(elements) =
                        PgList::<pg_sys::Node>::from_pg((*array).args).get_ptr(1)
                    {
                        descents = compat::estimate_array_length(root, elements).max(1.0);
                    }
                    (*array).opno
                }
                pg_sys::NodeTag::T_NullTest => {
                    let test = clause.cast::<pg_sys::NullTest>();
                    let equality = (*test).nulltesttype == pg_sys::NullTestType::IS_NULL;
                    return Condition { equality, descents, elements, on_elements: false };
                }
                // A row comparison is a range on its first column.
                _ => {
                    return Condition { equality: false, descents, elements, on_elements: false };
                }
            };
            let family = *index.opfamily.add(column as usize);
            let strategy = pg_sys::get_op_opfamily_strategy(operator, family) as u16;
            let names = strategy::names_elements(strategy);
            if strategy::takes_array(strategy)
                && !argument.is_null()
                && pg_sys::get_base_element_type(pg_sys::exprType(argument)) != Oid::INVALID
            {
                let n = compat::estimate_array_length(root, argument).max(1.0);
                descents *= n;
                if strategy::asks_for_all(strategy) {
                    elements = n;
                }
            }
            let equality = names || strategy == pg_sys::BTEqualStrategyNumber as u16;
            let on_elements = strategy > STRATEGIES;
            Condition { equality, descents, elements, on_elements }
        }
    }
}

struct ColumnStatistics {
    /// Number of distinct values, unless it is a mere default.
    distinct: Option<f64>,
    /// Between index order and heap order.
    correlation: f64,
}

unsafe fn first_column(root: *mut PlannerInfo, index: &IndexOptInfo) -> ColumnStatistics {
    // SAFETY: every index has a first column.
    unsafe { column_statistics(root, index, 0) }
}

unsafe fn column_statistics(
    root: *mut PlannerInfo,
    index: &IndexOptInfo,
    column: i32,
) -> ColumnStatistics {
    // SAFETY: `indextlist` has one TargetEntry per column; statistics are released after reading.
    unsafe {
        let mut variable = pg_sys::VariableStatData::default();
        let columns = PgList::<pg_sys::TargetEntry>::from_pg(index.indextlist);
        let Some(entry) = columns.get_ptr(column as usize) else {
            return ColumnStatistics { distinct: None, correlation: 0.0 };
        };
        pg_sys::examine_variable(root, (*entry).expr.cast(), 0, &mut variable);
        let mut is_default = true;
        let distinct = pg_sys::get_variable_numdistinct(&mut variable, &mut is_default);
        let mut correlation = 0.0;
        if !variable.statsTuple.is_null() {
            correlation = correlation_of(index, column as usize, variable.statsTuple);
            if let Some(free) = variable.freefunc {
                free(variable.statsTuple);
            }
        }
        if index.nkeycolumns > 1 {
            // Further columns dilute the order of the first one.
            correlation *= 0.75;
        }
        ColumnStatistics { distinct: (!is_default).then_some(distinct), correlation }
    }
}

unsafe fn correlation_of(
    index: &IndexOptInfo,
    column: usize,
    statistics: pg_sys::HeapTuple,
) -> f64 {
    // SAFETY: arrays of the index info have one element per key column; the slot is freed.
    unsafe {
        let kind = *index.opcintype.add(column);
        let less = pg_sys::get_opfamily_member(
            *index.opfamily.add(column),
            kind,
            kind,
            pg_sys::BTLessStrategyNumber as i16,
        );
        let mut slot = pg_sys::AttStatsSlot::default();
        if less == pg_sys::InvalidOid
            || !pg_sys::get_attstatsslot(
                &mut slot,
                statistics,
                pg_sys::STATISTIC_KIND_CORRELATION as i32,
                less,
                pg_sys::ATTSTATSSLOT_NUMBERS as i32,
            )
        {
            return 0.0;
        }
        let correlation = if slot.nnumbers > 0 { f64::from(*slot.numbers) } else { 0.0 };
        pg_sys::free_attstatsslot(&mut slot);
        let descending = !index.reverse_sort.is_null() && *index.reverse_sort.add(column);
        if descending { -correlation } else { correlation }
    }
}

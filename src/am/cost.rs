//! What a scan costs (`amcostestimate`).
//!
//! The selectivity and correlation estimates are btree's: the same columns, the same statistics.
//! The prices differ, because the index is memory of this server and never read from disk. There is
//! no page I/O. A descent is a handful of comparisons. Copying an entry costs about half of btree's
//! price. So nitro wins over a btree on the same columns, and loses to a btree whose columns let it
//! read fewer entries.
//!
//! A condition bounds the scan if every column before its own has an equality. A column without one
//! may be skipped over: the scan jumps to the next useful prefix (see `quals`). That costs one
//! descent per distinct value, and pays only while the column has fewer distinct values than the
//! index has blocks.

use nitro_engine::Statistics;
use pgrx::pg_sys::{self, IndexOptInfo, IndexPath, Oid, PlannerInfo};
use pgrx::prelude::*;

use crate::key::elements::strategy;
use crate::pg::compat;
use crate::state::known;

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

/// Finds the size of an index, once a query can use it, in pages of memory. The number of rows of a
/// complete index stays the table's estimate, as the server has it for every index, so that paths
/// are comparable; a partial index has its own. Of an index that has bitmaps alone it is that of
/// entries.
///
/// # Safety
/// The planner's own description of an index that it may scan.
unsafe fn find_size(info: &mut IndexOptInfo) {
    // SAFETY: the planner's description of the table.
    let table = unsafe { &*info.rel };
    let complete = info.amhasgettuple && info.indpred.is_null();
    let known = known::find(info.indexoid).filter(|_| complete);
    match known.and_then(|known| known.size_beside((table.pages, table.tuples))) {
        Some(size) => (info.pages, info.tree_height) = (size.pages, size.height),
        // SAFETY: by contract.
        None => unsafe { ask_for_size(info) },
    }
}

/// Asks the engine.
///
/// # Safety
/// As [`find_size`].
#[cold]
unsafe fn ask_for_size(info: &mut IndexOptInfo) {
    info.tree_height = LEVELS as i32 - 1;
    // SAFETY: by contract the planner holds a lock on the index, and has the description of the
    // table.
    let (known, table) = unsafe { (known::get(info.indexoid), &*info.rel) };
    let Some(known) = known else { return };
    let Some(engine) = known.handle.readable_index() else { return };
    let size = engine.size();
    let pages = size.bytes / pg_sys::BLCKSZ as usize;
    info.pages = pages.clamp(1, u32::MAX as usize - 1) as pg_sys::BlockNumber;
    info.tree_height = size.levels as i32;
    if !info.amhasgettuple {
        info.tuples = (engine.live() as f64).max(1.0);
    } else if !info.indpred.is_null() {
        info.tuples = (engine.live() as f64).min(table.tuples);
    }
    let size = known::Size { pages: info.pages, height: info.tree_height };
    known.has_size((table.pages, table.tuples), size);
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
        if (*(*path).indexinfo).tree_height < 0 {
            find_size(&mut *(*path).indexinfo);
        }
        let index = &*(*path).indexinfo;
        let compat::PathFacts { quals, mut fraction, arguments } = compat::path_facts(root, path);
        if !index.indpred.is_null() {
            fraction = selectivity_of(root, index, quals);
        }
        let bounds = Bounds::of(root, index, (*path).indexclauses, quals);
        let bounding = bounds.bounding;
        let filters = compat::elements::<pg_sys::RestrictInfo>(quals).len() - bounding;

        // One list is priced as btree prices it, so that the two stay comparable.
        let descents = match bounds.lists {
            0 | 1 => bounds.descents.min((f64::from(index.pages) / 3.0).ceil()).max(1.0),
            _ => bounds.descents,
        };
        let table = &*index.rel;
        let fraction_read = match filters {
            0 => fraction,
            _ => selectivity_of(root, index, bounds.quals()),
        };
        // Rows that have all of n elements are found by reading the entries of about one element n times.
        let per_element = match bounds.elements {
            1.0 => fraction_read,
            n => fraction_read.powf(1.0 / n) * n,
        };
        let candidates = if bounds.any_element { index.tuples } else { table.tuples };
        let entries =
            (per_element * candidates).round().min(index.tuples * bounds.elements).max(1.0);

        let price = |factor: f64, conditions: usize| {
            let operators = conditions as f64 * pg_sys::cpu_operator_cost;
            factor * (pg_sys::cpu_index_tuple_cost + operators)
        };
        let mut per_entry = price(ENTRY_FACTOR, bounding);
        if filters > 0 {
            let factor = if in_byte_order(index) { FILTER_FACTOR } else { COMPARED_FILTER_FACTOR };
            per_entry += price(factor, filters);
        }
        let levels = f64::from(index.tree_height) + 1.0;
        let descent = levels * DESCENT_OPERATORS_PER_LEVEL * pg_sys::cpu_operator_cost;

        // Consistent with the size that `find_size` has found.
        *pages = if index.pages > 1 && index.tuples > 1.0 {
            (entries * f64::from(index.pages) / index.tuples).ceil()
        } else {
            1.0
        };
        let per_page = OPERATORS_PER_PAGE * pg_sys::cpu_operator_cost;

        *startup_cost = arguments + descent;
        *total_cost = arguments + descents * descent + entries * per_entry + *pages * per_page;
        *selectivity = fraction;
        *correlation = match bounds.correlation {
            Some(known) => known,
            // One row is on one page of the table, in whatever order the rows are.
            None if reads_one_row(table, fraction) => 0.0,
            None => column_statistics(root, index, 0).correlation,
        };
    }
}

/// Whether the server takes a fraction of a table for one row, on one page.
fn reads_one_row(table: &pg_sys::RelOptInfo, fraction: f64) -> bool {
    fraction * table.tuples < 1.5 && fraction * f64::from(table.pages) <= 1.0
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
        let quals = pg_sys::get_quals_from_indexclauses(path.indexclauses);
        let bounds = Bounds::of(root, index, path.indexclauses, quals);
        let columns = compat::elements::<pg_sys::IndexClause>(path.indexclauses);
        let last = columns.iter().map(|&clause| i32::from((*clause).indexcol) + 1).max();
        bounds.points && !bounds.any_element && last == Some(index.nkeycolumns)
    }
}

/// Whether keys of an index are compared without functions of operator classes.
///
/// # Safety
/// The planner's own description of an index that it may scan.
#[cold]
unsafe fn in_byte_order(index: &IndexOptInfo) -> bool {
    // SAFETY: by contract the planner holds a lock on the index.
    unsafe { known::get(index.indexoid) }.is_none_or(|known| known.handle.desc.is_memcmp())
}

/// The fraction of the table's rows that pass `quals` and the predicate of a partial index.
#[cold]
unsafe fn selectivity_of(
    root: *mut PlannerInfo,
    index: &IndexOptInfo,
    quals: *mut pg_sys::List,
) -> f64 {
    // SAFETY: planner structures by the caller's contract.
    unsafe {
        let info = std::ptr::from_ref(index).cast_mut();
        let all = pg_sys::add_predicate_to_index_quals(info, quals);
        let (relid, kind) = ((*index.rel).relid as i32, pg_sys::JoinType::JOIN_INNER);
        pg_sys::clauselist_selectivity(root, all, relid, kind, std::ptr::null_mut())
    }
}

/// The conditions that limit what a scan reads.
struct Bounds {
    /// All conditions of the path: RestrictInfos.
    all: *mut pg_sys::List,
    /// How many of them, from the first on, limit what a scan reads.
    bounding: usize,
    /// How often the scan starts anew, for array elements and skipped values.
    descents: f64,
    /// Conditions and skipped columns that let it start anew.
    lists: u32,
    /// Elements that a row must have together (see `key::elements`).
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
    /// keeps them, and `all` their conditions.
    unsafe fn of(
        root: *mut PlannerInfo,
        index: &IndexOptInfo,
        clauses: *mut pg_sys::List,
        all: *mut pg_sys::List,
    ) -> Bounds {
        let mut bounds = Bounds {
            all,
            bounding: 0,
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
            for &clause in compat::elements::<pg_sys::IndexClause>(clauses) {
                let target = i32::from((*clause).indexcol);
                if target > column {
                    if equality {
                        column += 1;
                    }
                    equality = false;
                    let before = (bounds.descents, bounds.lists);
                    bounds.points &= column == target;
                    while column < target {
                        if !bounds.skip(root, index, column, range_of(clauses, column)) {
                            (bounds.descents, bounds.lists) = before;
                            return bounds;
                        }
                        column += 1;
                    }
                }
                for &qual in compat::elements::<pg_sys::RestrictInfo>((*clause).indexquals) {
                    let kind = Condition::of(root, index, column, (*qual).clause.cast());
                    if kind.descents > 1.0 {
                        bounds.list(root, index, kind.descents);
                    }
                    bounds.elements *= kind.elements;
                    bounds.any_element &= !kind.on_elements;
                    bounds.points &= kind.equality && kind.descents <= 1.0;
                    bounds.bounding += 1;
                    equality |= kind.equality;
                }
            }
        }
        bounds
    }

    /// The conditions that limit what a scan reads.
    unsafe fn quals(&self) -> *mut pg_sys::List {
        // SAFETY: a list of the planner.
        unsafe { pg_sys::list_truncate(pg_sys::list_copy(self.all), self.bounding as i32) }
    }

    /// Adds the descents for a list of `n` values. The second of two lists is not looked through for each
    /// value of the first: no two empty ranges are visited between the same two of the entries that the
    /// conditions so far leave (see `quals`).
    ///
    /// # Safety
    /// As `of`.
    #[cold]
    unsafe fn list(&mut self, root: *mut PlannerInfo, index: &IndexOptInfo, n: f64) {
        if n <= 1.0 {
            return;
        }
        let all = self.descents * n;
        self.descents = match self.lists {
            0 => all,
            // SAFETY: by contract.
            _ => unsafe {
                let entries = selectivity_of(root, index, self.quals()) * index.tuples;
                all.min(self.descents + 2.0 * entries.max(1.0))
            },
        };
        self.lists += 1;
    }

    /// Whether skipping over the values of `column` pays off; adds its descents.
    ///
    /// # Safety
    /// As `of`; `range` lists conditions on that column.
    #[cold]
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

/// The conditions on one column of an index: RestrictInfos.
#[cold]
unsafe fn range_of(clauses: *mut pg_sys::List, column: i32) -> *mut pg_sys::List {
    let mut range = std::ptr::null_mut();
    // SAFETY: a list of IndexClauses, and their lists.
    unsafe {
        for &clause in compat::elements::<pg_sys::IndexClause>(clauses) {
            if i32::from((*clause).indexcol) == column {
                for &qual in compat::elements::<pg_sys::RestrictInfo>((*clause).indexquals) {
                    range = pg_sys::lappend(range, qual.cast());
                }
            }
        }
    }
    range
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
                    let arguments = compat::elements::<pg_sys::Node>((*operation).args);
                    argument = arguments.get(1).copied().unwrap_or(argument);
                    (*operation).opno
                }
                pg_sys::NodeTag::T_ScalarArrayOpExpr => {
                    let array = clause.cast::<pg_sys::ScalarArrayOpExpr>();
                    let arguments = compat::elements::<pg_sys::Node>((*array).args);
                    if let Some(&elements) = arguments.get(1) {
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
            let on_elements = strategy > strategy::LAST_OF_BTREE;
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

#[inline(never)]
unsafe fn column_statistics(
    root: *mut PlannerInfo,
    index: &IndexOptInfo,
    column: i32,
) -> ColumnStatistics {
    // SAFETY: `indextlist` has one TargetEntry per column; statistics are released after reading.
    unsafe {
        let mut variable = pg_sys::VariableStatData::default();
        let columns = compat::elements::<pg_sys::TargetEntry>(index.indextlist);
        let Some(&entry) = columns.get(column as usize) else {
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

//! The cost of a scan (`amcostestimate`).
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

mod bounds;
mod statistics;

use nitro_engine::Statistics;
use pgrx::pg_sys::{self, IndexOptInfo, IndexPath, PlannerInfo};
use pgrx::prelude::*;

use crate::pg::compat;
use crate::state::known;
use bounds::Bounds;
use statistics::{column_statistics, selectivity_of};

/// Operators that one level of a descent counts for.
const DESCENT_OPERATORS_PER_LEVEL: f64 = 15.0;
/// Reading an entry against btree's `cpu_index_tuple_cost`, and a condition against an operator
/// call: ranges are compared block by block.
const ENTRY_FACTOR: f64 = 0.5;
/// The same for an entry that is checked by conditions that do not bound the scan. Its key is taken
/// apart up to their columns. The scan searches anew behind each block that ends with a refused
/// entry. That takes 0.7 to 1.9 times as long as a sequential scan takes for a row (integers, text
/// in byte order).
const FILTER_FACTOR: f64 = 3.0;
/// And where keys are compared by functions, each search calls some twenty of them: 1.5 to 3.4
/// times (text under a linguistic collation).
const COMPARED_FILTER_FACTOR: f64 = 7.0;
/// Number of operator calls that a page of an index costs, beside its entries. So the planner takes
/// the smaller one of two suitable indexes.
const OPERATORS_PER_PAGE: f64 = 15.0;
/// Levels of a large index: leaf blocks, inner nodes, flat top.
const LEVELS: f64 = 3.0;
/// Whether the planner describes a nitro index of this library.
pub fn describes_nitro(info: &IndexOptInfo) -> bool {
    info.amcostestimate.is_some_and(|f| f as *const () == OWN)
}

/// The planner copies this routine of ours into its descriptions.
const OWN: *const () = estimate as *const ();

/// Finds the size of an index in pages of memory, once a query can use it. For a complete index the
/// number of rows stays the table's estimate, as for every index of the server, so that paths are
/// comparable. A partial index has its own number. For an index with bitmap scans only it is the
/// number of entries.
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
        // Rows that have all of n elements are found by reading the entries of about one element n
        // times.
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

/// Returns true if the conditions of a path on an element column are for one element, and for one
/// value of each other column. The rows then come one after the other.
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

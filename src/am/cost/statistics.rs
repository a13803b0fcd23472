//! Statistics of an index, as btree asks for them.

use pgrx::pg_sys::{self, IndexOptInfo, PlannerInfo};

use crate::pg::compat;

/// The fraction of the table's rows that pass `quals` and the predicate of a partial index.
#[cold]
pub(super) unsafe fn selectivity_of(
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

/// What the server's statistics say of a column.
pub(super) struct ColumnStatistics {
    /// Number of distinct values, unless it is a mere default.
    pub(super) distinct: Option<f64>,
    /// Between index order and heap order.
    pub(super) correlation: f64,
}

/// Reads the statistics of a column of an index.
#[inline(never)]
pub(super) unsafe fn column_statistics(
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

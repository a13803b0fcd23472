//! Indexes with an element column, and their restrictions.

use pgrx::pg_sys::{self, Oid};

use super::strategy;
use crate::key::refuse::refuse;
use crate::pg::catalog;

/// Returns the element column of an open index, if any. Its operator class is for arrays or jsonb
/// and has no comparison function.
///
/// # Safety
/// `rel` must be an open index (a partitioned one will do).
pub unsafe fn element_column(rel: pg_sys::Relation) -> Option<usize> {
    // SAFETY: by contract.
    unsafe {
        let n = (*(*rel).rd_index).indnkeyatts as usize;
        (0..n).find(|&i| holds_elements(rel, i))
    }
}

/// Whether an open index has columns of a type that has elements. Calls nothing of the server.
///
/// # Safety
/// As [`element_column`].
pub unsafe fn may_hold_elements(rel: pg_sys::Relation) -> bool {
    // SAFETY: an open index has a type for each key column.
    unsafe { (0..(*(*rel).rd_index).indnkeyatts as usize).any(|i| has_elements(rel, i)) }
}

unsafe fn has_elements(rel: pg_sys::Relation, i: usize) -> bool {
    // SAFETY: `i` is a key column of an open index.
    let input = unsafe { *(*rel).rd_opcintype.add(i) };
    input == pg_sys::ANYARRAYOID || input == pg_sys::JSONBOID
}

unsafe fn holds_elements(rel: pg_sys::Relation, i: usize) -> bool {
    // SAFETY: `i` is a key column of an open index.
    unsafe { has_elements(rel, i) && pg_sys::index_getprocid(rel, i as i16 + 1, 1) == Oid::INVALID }
}

/// An operator class with operators of something else is an ERROR.
unsafe fn check_class(rel: pg_sys::Relation, i: usize) {
    // SAFETY: `i` is a key column of an open index.
    unsafe {
        let known = strategy::range(*(*rel).rd_opcintype.add(i) == pg_sys::JSONBOID);
        let family = *(*rel).rd_opfamily.add(i);
        let members = catalog::members::<pg_sys::FormData_pg_amop>(
            pg_sys::SysCacheIdentifier::AMOPSTRATEGY,
            family,
        );
        let mut strategies = members.iter().map(|member| member.amopstrategy as u16);
        if let Some(other) = strategies.find(|strategy| !known.contains(strategy)) {
            strategy::unknown(i, other);
        }
    }
}

/// The operator class for whole values of the type of an element column.
unsafe fn class_of_values(rel: pg_sys::Relation, i: usize) -> &'static str {
    // SAFETY: `i` is a key column of an open index.
    match unsafe { *(*rel).rd_opcintype.add(i) } {
        pg_sys::JSONBOID => "jsonb_ops",
        _ => "array_order_ops",
    }
}

/// Raises an ERROR if an index with an element column has a property that is not supported.
///
/// # Safety
/// `rel` must be an open index.
pub unsafe fn check_index(rel: pg_sys::Relation) {
    // SAFETY: by contract.
    let (elements, keys, columns, unique) = unsafe {
        let form = &*(*rel).rd_index;
        let keys = form.indnkeyatts as usize;
        let elements: Vec<usize> = (0..keys).filter(|&i| holds_elements(rel, i)).collect();
        elements.iter().for_each(|&i| check_class(rel, i));
        (elements, keys, form.indnatts as usize, form.indisunique)
    };
    let Some(&last) = elements.last() else { return };
    // SAFETY: by contract.
    let class = unsafe { class_of_values(rel, last) };
    if elements.len() > 1 {
        refuse(
            "nitro index cannot have more than one column with an entry per element".into(),
            "A row would need an entry for each combination of elements.".into(),
            format!(
                "Create an index for each column; the planner can combine them. Operator class \"{class}\" orders whole values of column {}.",
                last + 1
            ),
        );
    }
    if unique {
        let exclusion = match class {
            "array_order_ops" => {
                " An exclusion constraint with operator && keeps rows from sharing elements."
            }
            _ => "",
        };
        refuse(
            "nitro index with an entry per element cannot be unique".into(),
            "A row has as many entries as elements.".into(),
            format!(
                "Use operator class \"{class}\" to keep rows from having equal values.{exclusion}"
            ),
        );
    }
    if columns > keys {
        refuse(
            "nitro index with an entry per element cannot have INCLUDE columns".into(),
            "Such an index is not used for index-only scans.".into(),
            format!(
                "Use operator class \"{class}\" for an index on whole values, or leave the INCLUDE columns out."
            ),
        );
    }
}

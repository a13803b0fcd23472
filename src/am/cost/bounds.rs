//! The conditions of a path that limit what its scan reads.

use pgrx::pg_sys::{self, IndexOptInfo, Oid, PlannerInfo};

use super::statistics::{column_statistics, selectivity_of};
use crate::key::elements::strategy;
use crate::pg::compat;

/// The server's default estimate for an inequality (selfuncs.h).
const DEFAULT_RANGE_SELECTIVITY: f64 = 0.333_333_333_333_333_3;

/// The conditions that limit what a scan reads.
pub(super) struct Bounds {
    /// All conditions of the path: RestrictInfos.
    all: *mut pg_sys::List,
    /// How many of them, from the first on, limit what a scan reads.
    pub(super) bounding: usize,
    /// How often the scan starts anew, for array elements and skipped values.
    pub(super) descents: f64,
    /// Conditions and skipped columns that let it start anew.
    pub(super) lists: u32,
    /// Elements that a row must have together (see `key::elements`).
    pub(super) elements: f64,
    /// Rows have many entries, and no condition names their elements.
    pub(super) any_element: bool,
    /// Every condition is for one value, and no column is skipped over.
    pub(super) points: bool,
    /// Correlation of the first column, if its statistics had to be read.
    pub(super) correlation: Option<f64>,
}

impl Bounds {
    /// # Safety
    /// `clauses` must be the IndexClauses of a path of `index`, in column order as the planner
    /// keeps them, and `all` their conditions.
    pub(super) unsafe fn of(
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
    pub(super) unsafe fn quals(&self) -> *mut pg_sys::List {
        // SAFETY: a list of the planner.
        unsafe { pg_sys::list_truncate(pg_sys::list_copy(self.all), self.bounding as i32) }
    }

    /// Adds the descents for a list of `n` values. The scan does not try the whole second list for
    /// each value of the first. It never visits two empty ranges between the same two entries that
    /// the conditions so far leave (see `quals`).
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

/// The effect of one index condition on the scan.
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

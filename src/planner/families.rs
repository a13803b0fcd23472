//! Which btree families an index is shown with, and how it is ordered in their words.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};

use pgrx::pg_sys::{self, IndexOptInfo, Oid, SysCacheIdentifier};
use pgrx::prelude::*;

use super::elements::rewrite;
use crate::key::KeyDesc;
use crate::key::column::Column;
use crate::pg::{catalog, compat};
use crate::state::known::{ColumnOrder, Order};

thread_local! {
    /// (operator family, input type) -> the btree family to show. Emptied when any operator family
    /// changes.
    static TWINS: RefCell<HashMap<(u32, u32), Oid>> = RefCell::default();
    /// How often it was emptied.
    static CHANGES: Cell<u64> = const { Cell::new(0) };
}

/// Shows btree families, and btree's access method.
///
/// The planner derives two more things from `relam`. It rejects equivalence classes early whose
/// families do not contain those of the index, which is exact with btree families. It translates
/// strategies for `get_actual_variable_range` (18+, the same 1..5). The executor never sees
/// `relam`.
/// # Safety
/// A query that is being planned, an index of it, and its order.
pub unsafe fn show_btree(root: *mut pg_sys::PlannerInfo, info: &mut IndexOptInfo, order: &Order) {
    for (i, column) in order.columns.iter().enumerate() {
        // SAFETY: an array of the planner with an element for each key column.
        unsafe { *info.opfamily.add(i) = column.shown };
    }
    // SAFETY: live planner structures.
    let rows_only = || info.amhasgettuple && unsafe { rewrite::compares_rows(root) };
    if (order.all_shown || rows_only()) && compat::may_compare_rows() {
        info.relam = pg_sys::BTREE_AM_OID;
    }
}

/// The order of an index whose own families are in its description.
///
/// # Safety
/// The planner's own description, inside a transaction.
#[cold]
pub unsafe fn order_of(info: &IndexOptInfo, desc: &KeyDesc) -> Order {
    let (mut all_shown, mut is_sorted) = (true, true);
    // SAFETY: arrays of the planner with an element for each key column; catalogue access.
    let column = |(i, column): (usize, &Column)| unsafe {
        let (family, input) = (*info.opfamily.add(i), *info.opcintype.add(i));
        let twin = twin(family, input);
        all_shown &= twin.is_some();
        let less = pg_sys::BTLessStrategyNumber as i16;
        let less = pg_sys::get_opfamily_member(family, input, input, less);
        let sorted = compat::ordering_family(less, input);
        is_sorted &= sorted.is_some();
        ColumnOrder {
            shown: twin.unwrap_or(family),
            sorted: sorted.unwrap_or(Oid::INVALID),
            descending: column.desc,
            nulls_first: column.nulls_first,
        }
    };
    let columns: Box<[_]> = desc.columns[..desc.nkeys].iter().enumerate().map(column).collect();
    let plain = |c: &ColumnOrder| c.sorted == c.shown && !c.descending && !c.nulls_first;
    let is_plain = is_sorted && columns.iter().all(plain);
    Order { columns, all_shown, is_sorted, is_plain, of_elements: desc.element.is_some() }
}

/// The btree family that a family mirrors for columns of type `input`.
unsafe fn twin(family: Oid, input: Oid) -> Option<Oid> {
    watch_families();
    let key = (family.to_u32(), input.to_u32());
    let known = TWINS.with_borrow(|all| all.get(&key).copied());
    let btree = known.unwrap_or_else(|| {
        let before = CHANGES.get();
        // SAFETY: the planner runs inside a transaction with catalogue access.
        let found = unsafe { find_twin(family, input) }.unwrap_or(pg_sys::InvalidOid);
        // A family may have changed while it was read.
        if CHANGES.get() == before {
            TWINS.with_borrow_mut(|all| all.insert(key, found));
        }
        found
    });
    (btree != pg_sys::InvalidOid).then_some(btree)
}

/// The btree family that has our "<" operator, if we have all of its operators.
unsafe fn find_twin(family: Oid, input: Oid) -> Option<Oid> {
    // SAFETY: catalogue access by the caller's contract.
    unsafe {
        let less =
            pg_sys::get_opfamily_member(family, input, input, pg_sys::BTLessStrategyNumber as i16);
        let btree =
            catalog::members::<pg_sys::FormData_pg_amop>(SysCacheIdentifier::AMOPOPID, less)
                .into_iter()
                .find(|op| {
                    op.amopmethod == pg_sys::BTREE_AM_OID
                        && op.amopstrategy == pg_sys::BTLessStrategyNumber as i16
                        && (op.amoplefttype, op.amoprighttype) == (input, input)
                })?
                .amopfamily;
        operators(btree).is_subset(&operators(family)).then_some(btree)
    }
}

/// (operator, strategy) of a family.
unsafe fn operators(family: Oid) -> BTreeSet<(u32, i16)> {
    // SAFETY: catalogue access by the caller's contract.
    unsafe {
        catalog::members::<pg_sys::FormData_pg_amop>(SysCacheIdentifier::AMOPSTRATEGY, family)
    }
    .into_iter()
    .map(|op| (op.amopopr.to_u32(), op.amopstrategy))
    .collect()
}

/// Forgets what is known about families whenever one changes.
fn watch_families() {
    #[pg_guard]
    unsafe extern "C-unwind" fn forget(_argument: pg_sys::Datum, _cache: i32, _hash: u32) {
        crate::pg::witness!();
        CHANGES.set(CHANGES.get() + 1);
        TWINS.with_borrow_mut(HashMap::clear);
    }
    thread_local! {
        static WATCHING: Cell<bool> = const { Cell::new(false) };
    }
    if !WATCHING.replace(true) {
        // SAFETY: registers a callback for the life of the process.
        unsafe {
            pg_sys::CacheRegisterSyscacheCallback(
                SysCacheIdentifier::AMOPOPID as _,
                Some(forget),
                pg_sys::Datum::from(0),
            );
        }
    }
}

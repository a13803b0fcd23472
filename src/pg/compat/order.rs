//! The order of an index, hidden from the server while a plan describes the index (18+).
//!
//! For each column of an index that is no btree the server asks the operator families how it is
//! ordered, in each plan anew. That takes longer than all else that a plan does for an index. A
//! plan that knows the order from the last one hides it, and gives it afterwards.
//!
//! `get_relation_info` (plancat.c) takes these steps for an index:
//! 1. It asks `amcanreturn` for each column. The answer for the last column hides the order.
//! 2. It copies the fields of the index' routine, among them `amcanorder`.
//! 3. It prepares expressions and predicate.
//! 4. It asks `amgettreeheight`. The answer shows the order again.
//!
//! No other code of the server asks `amcanreturn` of an index whose `amproperty` answers for it.
//!
//! Functions in a predicate may be folded in step 3. The server keeps the result, but not that of a
//! predicate that is always true: it folds that one in each plan. CREATE TABLE ... LIKE in a
//! function would copy the index without its order. So the order of a partial index is not hidden.
//!
//! Functions in expressions may be folded there too, and may plan queries. The server keeps the
//! result, mostly from a plan that did not know the order yet. A query of the same index plans with the hidden order as with the order itself. A query of another index
//! shows the order of the first one again: the server is past step 2 of the first one. If an ERROR
//! comes in between, the end of the (sub)transaction shows the order.
//!
//! All nitro indexes have the same routine, that of the access method. So the order is hidden and
//! shown by one pair of routines of this process.

use pgrx::pg_sys::{Oid, Relation};

/// Hides the order of an index whose columns have been looked at.
///
/// # Safety
/// `index` must be an open nitro index that is being described.
pub unsafe fn hide_order(index: Relation) {
    #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
    // SAFETY: by contract.
    unsafe {
        from_18::hide(index);
    }
    #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
    let _ = index;
}

/// Shows the order of an index again.
///
/// # Safety
/// `index` must be an open nitro index.
pub unsafe fn show_order(index: Relation) {
    #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
    // SAFETY: by contract.
    unsafe {
        from_18::show(index);
    }
    #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
    let _ = index;
}

/// Shows an order that an ERROR has left hidden.
///
/// # Safety
/// While a (sub)transaction aborts that still has its relations open.
pub unsafe fn show_order_after_error() {
    #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
    // SAFETY: by contract.
    unsafe {
        from_18::show_after_error();
    }
}

/// The server forgets a relation, or, without an OID, all. What was hidden of it is gone, or is
/// shown by the next plan.
pub fn forget_hidden_order(relation: Oid) {
    #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
    from_18::forget(relation);
    #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
    let _ = relation;
}

/// The btree family that says how an operator "<" for values of a type orders them, as
/// `get_relation_info` finds it. `None` before 18, where the server finds it for each plan.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn ordering_family(less: Oid, input: Oid) -> Option<Oid> {
    #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
    // SAFETY: by contract.
    return unsafe { from_18::family(less, input) };
    #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
    {
        let _ = (less, input);
        None
    }
}

#[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
mod from_18 {
    use std::cell::Cell;
    use std::ptr::null_mut;

    use pgrx::pg_sys::{self, CompareType, IndexAmRoutine, Oid, Relation};

    thread_local! {
        /// The routine of all nitro indexes, and the same without an order.
        static ROUTINES: Cell<Option<&'static [IndexAmRoutine; 2]>> = const { Cell::new(None) };
        /// The index whose order is hidden, or null.
        static HIDDEN: Cell<(Relation, Oid)> = const { Cell::new((null_mut(), Oid::INVALID)) };
    }

    pub unsafe fn hide(index: Relation) {
        // SAFETY: by contract of the caller. What is leaked is of this process, once.
        unsafe {
            let routines = ROUTINES.get().unwrap_or_else(|| {
                let mut both = [*(*index).rd_indam; 2];
                both[0].amcanorder = true;
                both[1].amcanorder = false;
                let both: &'static [IndexAmRoutine; 2] = Box::leak(Box::new(both));
                ROUTINES.set(Some(both));
                both
            });
            let (outer, _) = HIDDEN.get();
            if !outer.is_null() {
                // It is open: the description of it goes on when that of this index has ended.
                show(outer);
            }
            (*index).rd_indam = (&raw const routines[1]).cast_mut();
            HIDDEN.set((index, (*index).rd_id));
        }
    }

    pub unsafe fn show(index: Relation) {
        // SAFETY: by contract of the caller.
        unsafe {
            if let Some(routines) = ROUTINES.get()
                && std::ptr::eq((*index).rd_indam, &routines[1])
            {
                (*index).rd_indam = (&raw const routines[0]).cast_mut();
            }
        }
        HIDDEN.set((null_mut(), Oid::INVALID));
    }

    pub unsafe fn show_after_error() {
        let (index, _) = HIDDEN.get();
        if !index.is_null() {
            // SAFETY: it was open when the ERROR came, and was not forgotten since.
            unsafe { show(index) };
        }
    }

    pub fn forget(relation: Oid) {
        let (_, hidden) = HIDDEN.get();
        if relation == Oid::INVALID || relation == hidden {
            HIDDEN.set((null_mut(), Oid::INVALID));
        }
    }

    pub unsafe fn family(less: Oid, input: Oid) -> Option<Oid> {
        let (mut family, mut of) = (Oid::INVALID, Oid::INVALID);
        let mut comparison = CompareType::COMPARE_INVALID;
        // SAFETY: catalogue access by contract of the caller.
        let found = less != Oid::INVALID
            && unsafe {
                pg_sys::get_ordering_op_properties(less, &mut family, &mut of, &mut comparison)
            };
        (found && of == input && comparison == CompareType::COMPARE_LT).then_some(family)
    }
}

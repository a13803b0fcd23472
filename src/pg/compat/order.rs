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
//! *Invariant*: no code of users runs while an order is hidden. CREATE TABLE ... LIKE in a function
//! would copy the index without its order. Functions in expressions and predicates are folded in
//! step 3, so the order of an index with one of these is not hidden. An ERROR in step 3 or 4 ends
//! the (sub)transaction, and its end shows the order.
//!
//! All nitro indexes have the same routine, that of the access method. Each index whose order was
//! hidden once has a copy that this process keeps, and the order is a flag of the copy.

use pgrx::pg_sys::{Oid, Relation};

/// Hides the order of all nitro indexes of this process, while an index is described whose columns
/// have been looked at.
///
/// # Safety
/// `index` must be an open nitro index without expressions and predicate.
pub unsafe fn hide_order(index: Relation) {
    #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
    // SAFETY: by contract.
    unsafe {
        from_18::hide(index);
    }
    #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
    let _ = index;
}

/// Shows the order again: the index is described, or an ERROR has ended that.
pub fn show_order() {
    #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
    from_18::show();
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
        /// The copy of the routine, or null. It stays as long as the process.
        static ROUTINE: Cell<*mut IndexAmRoutine> = const { Cell::new(null_mut()) };
    }

    pub unsafe fn hide(index: Relation) {
        // SAFETY: by contract of the caller an open index of ours, which has the routine of its
        // access method. The copy is this process's alone.
        unsafe {
            if ROUTINE.get().is_null() {
                ROUTINE.set(Box::into_raw(Box::new(*(*index).rd_indam)));
            }
            (*ROUTINE.get()).amcanorder = false;
            (*index).rd_indam = ROUTINE.get();
        }
    }

    pub fn show() {
        // SAFETY: null, or the copy, which is not freed. The server reads it between two calls.
        if let Some(routine) = unsafe { ROUTINE.get().as_mut() } {
            routine.amcanorder = true;
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

//! The operators on elements as ordinary expressions: what a sequential scan and a recheck
//! evaluate.
//!
//! `array OP x` is true if some element that is not NULL is less than x, in a range, and so on. The
//! order is that of the elements' default btree operator class and the collation of the expression.
//! All functions are strict.

use std::cmp::Ordering;

use pgrx::fcinfo::pg_getarg_datum_raw;
use pgrx::pg_sys::{self, Datum, FunctionCallInfo, FunctionCallInfoBaseData, Oid};
use pgrx::prelude::*;
use pgrx::varlena;

use crate::key::elements::range::{Range, bounds};
use crate::key::elements::source::Shape;
use crate::pg::error::Failure;

/// Compares values of one type.
struct Order {
    function: *mut pg_sys::FmgrInfo,
    collation: Oid,
}

impl Order {
    unsafe fn compare(&self, a: Datum, b: Datum) -> Ordering {
        // SAFETY: a comparison function that lives in the type cache, values of its type.
        let order = unsafe { pg_sys::FunctionCall2Coll(self.function, self.collation, a, b) };
        (order.value() as i32).cmp(&0)
    }
}

/// The first argument of a function on arrays.
struct Array {
    flat: *mut pg_sys::ArrayType,
    shape: Shape,
    order: Order,
}

impl Array {
    /// # Safety
    /// The first argument must be an array, not NULL.
    unsafe fn argument(fcinfo: FunctionCallInfo) -> Array {
        // SAFETY: by contract; a detoasted copy stays in the function's memory context.
        unsafe {
            let flat: *mut pg_sys::ArrayType =
                pg_sys::pg_detoast_datum(pg_getarg_datum_raw(fcinfo, 0).cast_mut_ptr()).cast();
            let (shape, cache) = Shape::of_elements((*flat).elemtype);
            if shape.compare == Oid::INVALID {
                let name = crate::pg::text::from_pointer(pg_sys::format_type_be((*flat).elemtype));
                Failure::new(
                    PgSqlErrorCode::ERRCODE_UNDEFINED_FUNCTION,
                    format!("could not identify a comparison function for type {name}"),
                )
                .raise();
            }
            let collation = (*fcinfo).fncollation;
            let order = Order { function: &raw mut (*cache).cmp_proc_finfo, collation };
            Array { flat, shape, order }
        }
    }

    /// Whether an element fulfils a condition.
    unsafe fn any(&self, mut condition: impl FnMut(Datum) -> bool) -> bool {
        // SAFETY: made by `argument`.
        unsafe { self.shape.any(self.flat, |element| element.is_some_and(&mut condition)) }
    }

    /// Whether an element lies between two values. `None` is an open end.
    unsafe fn any_between(&self, low: Option<Datum>, high: Option<Datum>) -> bool {
        // SAFETY: values of the elements' type, by the caller's contract.
        unsafe {
            self.any(|element| {
                low.is_none_or(|low| self.order.compare(low, element).is_le())
                    && high.is_none_or(|high| self.order.compare(element, high).is_le())
            })
        }
    }

    /// Whether an element compares with the second argument in this way.
    unsafe fn any_compared(
        fcinfo: *mut FunctionCallInfoBaseData,
        accept: fn(Ordering) -> bool,
    ) -> bool {
        // SAFETY: a strict function of an array and an element.
        unsafe {
            let array = Array::argument(fcinfo);
            let other = pg_getarg_datum_raw(fcinfo, 1);
            array.any(|element| accept(array.order.compare(element, other)))
        }
    }
}

#[pg_extern]
fn nitro_array_any_lt(fcinfo: FunctionCallInfo) -> bool {
    crate::pg::witness!();
    // SAFETY: declared strict for (anycompatiblearray, anycompatible).
    unsafe { Array::any_compared(fcinfo, Ordering::is_lt) }
}

#[pg_extern]
fn nitro_array_any_le(fcinfo: FunctionCallInfo) -> bool {
    crate::pg::witness!();
    // SAFETY: declared strict for (anycompatiblearray, anycompatible).
    unsafe { Array::any_compared(fcinfo, Ordering::is_le) }
}

#[pg_extern]
fn nitro_array_any_ge(fcinfo: FunctionCallInfo) -> bool {
    crate::pg::witness!();
    // SAFETY: declared strict for (anycompatiblearray, anycompatible).
    unsafe { Array::any_compared(fcinfo, Ordering::is_ge) }
}

#[pg_extern]
fn nitro_array_any_gt(fcinfo: FunctionCallInfo) -> bool {
    crate::pg::witness!();
    // SAFETY: declared strict for (anycompatiblearray, anycompatible).
    unsafe { Array::any_compared(fcinfo, Ordering::is_gt) }
}

#[pg_extern]
fn nitro_array_any_between(fcinfo: FunctionCallInfo) -> bool {
    crate::pg::witness!();
    // SAFETY: declared strict for two arrays.
    unsafe {
        let array = Array::argument(fcinfo);
        let (low, high) = bounds(&array.shape, pg_getarg_datum_raw(fcinfo, 1));
        array.any_between(low, high)
    }
}

/// `nitro_any_between`, whose bounds are arguments of their own.
#[pg_extern]
fn nitro_any_between(fcinfo: FunctionCallInfo) -> Option<bool> {
    crate::pg::witness!();
    // SAFETY: declared for (anycompatiblearray, anycompatible, anycompatible); the array is read if
    // it is not NULL.
    unsafe {
        let given = |n: usize| {
            let argument = (*fcinfo).args.as_slice((*fcinfo).nargs as usize)[n];
            (!argument.isnull).then_some(argument.value)
        };
        given(0)?;
        let (low, high) = (given(1), given(2));
        Some(Array::argument(fcinfo).any_between(low, high))
    }
}

#[pg_extern]
fn nitro_array_any_in_range(fcinfo: FunctionCallInfo) -> bool {
    crate::pg::witness!();
    // SAFETY: declared strict for (anycompatiblearray, anycompatiblerange); the range type brings
    // its own order.
    unsafe {
        let array = Array::argument(fcinfo);
        let range = Range::of(pg_getarg_datum_raw(fcinfo, 1));
        if range.empty {
            return false;
        }
        let order = Order {
            function: &raw mut (*range.cache).rng_cmp_proc_finfo,
            collation: (*range.cache).rng_collation,
        };
        let (lower, upper) = (range.lower, range.upper);
        array.any(|element| {
            let above = match order.compare_bound(&lower, element) {
                Some(Ordering::Equal) => lower.inclusive,
                side => side.is_none_or(Ordering::is_lt),
            };
            above
                && match order.compare_bound(&upper, element) {
                    Some(Ordering::Equal) => upper.inclusive,
                    side => side.is_none_or(Ordering::is_gt),
                }
        })
    }
}

impl Order {
    /// Where a bound is, seen from an element; `None`: at infinity.
    unsafe fn compare_bound(&self, bound: &pg_sys::RangeBound, element: Datum) -> Option<Ordering> {
        // SAFETY: a bound's value is of the element type.
        (!bound.infinite).then(|| unsafe { self.compare(bound.val, element) })
    }
}

#[pg_extern]
fn nitro_array_any_prefix(fcinfo: FunctionCallInfo) -> bool {
    crate::pg::witness!();
    // SAFETY: declared strict for (text[], text); detoasted copies stay in the function's context.
    unsafe {
        let bytes = |text: Datum| {
            let flat = pg_sys::pg_detoast_datum_packed(text.cast_mut_ptr());
            let data = varlena::vardata_any(flat).cast::<u8>();
            std::slice::from_raw_parts(data, varlena::varsize_any_exhdr(flat))
        };
        let array = Array::argument(fcinfo);
        let prefix = bytes(pg_getarg_datum_raw(fcinfo, 1));
        array.any(|element| bytes(element).starts_with(prefix))
    }
}

//! The arguments of conditions on a range of elements.

use super::source::Shape;
use crate::pg::error::Failure;
use pgrx::PgSqlErrorCode;
use pgrx::pg_sys::{self, Datum};

/// The two elements of the argument of `&<>`, NULL for no bound. They live in the argument.
///
/// # Safety
/// `argument` must be an array with elements of this shape. The result may point into a detoasted
/// copy that stays in the current memory context.
pub unsafe fn bounds(shape: &Shape, argument: Datum) -> (Option<Datum>, Option<Datum>) {
    let mut found = Vec::with_capacity(2);
    // SAFETY: by contract.
    unsafe {
        let flat = pg_sys::pg_detoast_datum(argument.cast_mut_ptr());
        shape.any(flat.cast(), |element| {
            found.push(element);
            found.len() > 2
        });
    }
    match found[..] {
        [low, high] => (low, high),
        _ => Failure::new(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            "the bounds of operator &<> must be an array of two elements",
        )
        .hint("Write ARRAY[low, high], with NULL for a bound that is open.")
        .raise(),
    }
}

/// A range, taken apart.
pub struct Range {
    /// Its type's cached properties.
    pub cache: *mut pg_sys::TypeCacheEntry,
    /// Lower bound, unless it is empty.
    pub lower: pg_sys::RangeBound,
    /// Upper bound, unless it is empty.
    pub upper: pg_sys::RangeBound,
    /// Nothing is in it.
    pub empty: bool,
}

impl Range {
    /// # Safety
    /// `range` must be a range; what the bounds point to stays in the current memory context.
    pub unsafe fn of(range: Datum) -> Range {
        // SAFETY: by contract; entries of the type cache are never freed.
        unsafe {
            let range: *const pg_sys::RangeType =
                pg_sys::pg_detoast_datum(range.cast_mut_ptr()).cast();
            let cache =
                pg_sys::lookup_type_cache((*range).rangetypid, pg_sys::TYPECACHE_RANGE_INFO as i32);
            let mut parts = Range {
                cache,
                lower: pg_sys::RangeBound::default(),
                upper: pg_sys::RangeBound::default(),
                empty: false,
            };
            let Range { lower, upper, empty, .. } = &mut parts;
            pg_sys::range_deserialize(cache, range, lower, upper, empty);
            parts
        }
    }

    /// Whether the range has the order of the index.
    pub fn is_ordered_like(&self, shape: &Shape, collation: pg_sys::Oid) -> bool {
        // SAFETY: an entry of the type cache with the properties of a range.
        unsafe {
            (*self.cache).rng_cmp_proc_finfo.fn_oid == shape.compare
                && (*self.cache).rng_collation == collation
        }
    }
}

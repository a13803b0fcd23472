//! Where the elements of a column come from, and how they lie in an array.

use pgrx::pg_sys::{self, ArrayType, Datum, Oid};
use pgrx::varlena;

/// Where the elements of a column come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// An array.
    Array(Shape),
    /// A jsonb document, see `json`.
    Json,
}

/// How the elements of an array type lie in it and are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Comparison function of the elements' default btree operator class.
    pub compare: Oid,
    /// Whether segments have the order of the comparison function.
    pub ordered: bool,
    length: i16,
    by_value: bool,
    align: usize,
}

impl Shape {
    /// The shape of elements whose type is in the type cache with its comparison function.
    pub(super) fn new(element: &pg_sys::TypeCacheEntry, ordered: bool) -> Shape {
        Shape {
            compare: element.cmp_proc,
            ordered,
            length: element.typlen,
            by_value: element.typbyval,
            align: match element.typalign as u8 {
                pg_sys::TYPALIGN_CHAR => 1,
                pg_sys::TYPALIGN_SHORT => 2,
                pg_sys::TYPALIGN_INT => 4,
                _ => 8,
            },
        }
    }

    /// The shape of an array type's elements, for a function that has an array and no index.
    ///
    /// # Safety
    /// Needs catalogue access.
    pub unsafe fn of_elements(element: Oid) -> (Shape, *mut pg_sys::TypeCacheEntry) {
        // SAFETY: catalogue access by contract; entries of the type cache are never freed.
        unsafe {
            let cache = pg_sys::lookup_type_cache(element, pg_sys::TYPECACHE_CMP_PROC_FINFO as i32);
            (Shape::new(&*cache, true), cache)
        }
    }

    /// Calls `f` with each element, `None` for NULL, until it returns true; whether it did.
    ///
    /// # Safety
    /// `array` must be a flat array with elements of this shape.
    pub unsafe fn any(
        &self,
        array: *const ArrayType,
        mut f: impl FnMut(Option<Datum>) -> bool,
    ) -> bool {
        // SAFETY: the layout of arrays (utils/array.h): header, dimensions and lower bounds, a
        // bitmap if `dataoffset` is set, then aligned elements.
        unsafe {
            let base = array.cast::<u8>();
            let dimensions = (*array).ndim as usize;
            let sizes = base.add(size_of::<ArrayType>()).cast::<i32>();
            let n: usize = match dimensions {
                0 => 0,
                _ => (0..dimensions).map(|d| *sizes.add(d) as usize).product(),
            };
            let header = size_of::<ArrayType>() + dimensions * 2 * size_of::<i32>();
            let (bitmap, mut at) = match (*array).dataoffset {
                0 => (None, base.add(header.next_multiple_of(8))),
                offset => (Some(base.add(header)), base.add(offset as usize)),
            };
            for i in 0..n {
                if bitmap.is_some_and(|bits| *bits.add(i / 8) & 1 << (i % 8) == 0) {
                    if f(None) {
                        return true;
                    }
                    continue;
                }
                at = at.add(at.align_offset(self.align));
                let (element, size) = match (self.length, self.by_value) {
                    (1, true) => (Datum::from(at.cast::<i8>().read() as isize as usize), 1),
                    (2, true) => (Datum::from(at.cast::<i16>().read() as isize as usize), 2),
                    (4, true) => (Datum::from(at.cast::<i32>().read() as isize as usize), 4),
                    (_, true) => (Datum::from(at.cast::<i64>().read() as usize), 8),
                    (-1, _) => (Datum::from(at.cast_mut()), varlena::varsize_any(at.cast())),
                    (-2, _) => {
                        let size = std::ffi::CStr::from_ptr(at.cast()).count_bytes() + 1;
                        (Datum::from(at.cast_mut()), size)
                    }
                    (size, _) => (Datum::from(at.cast_mut()), size as usize),
                };
                if f(Some(element)) {
                    return true;
                }
                at = at.add(size);
            }
            false
        }
    }

    /// [`Shape::any`] for a datum, which is detoasted.
    ///
    /// # Safety
    /// `array` must be an array with elements of this shape.
    pub unsafe fn any_of(&self, array: Datum, f: impl FnMut(Option<Datum>) -> bool) -> bool {
        // SAFETY: by contract; if `f` unwinds, the copy stays with its memory context.
        unsafe {
            let image = array.cast_mut_ptr::<pg_sys::varlena>();
            let flat = pg_sys::pg_detoast_datum(image);
            let found = self.any(flat.cast(), f);
            if flat != image {
                pg_sys::pfree(flat.cast());
            }
            found
        }
    }
}

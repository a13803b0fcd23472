//! Element columns: an array or a document that has one entry per distinct element.
//!
//! ```text
//! row (a, {y,x,y}, b)  ->  keys (a, x, b), (a, y, b)
//! ```
//! A row without elements has one key with a placeholder in their place, so that every row is in the
//! index: [`codec::EMPTY`] for `{}`, [`codec::NULL_ELEMENT`] for a NULL among the elements, and the
//! marker of NULL for a column that is NULL. They sort behind all elements.
//!
//! Strings are kept in byte order whatever their collation: equality and prefixes need no other, and
//! bytes are compared many times faster. Only a range of strings depends on the collation; it is
//! answered by the operator alone, unless the collation's order is that of the bytes.
//!
//! Nothing is read back from such an index: keys have no payload, and there are no INCLUDE columns.

use super::json;
use crate::key::bound::Edge;
use crate::key::codec::{self, Codec, Layout};
use crate::key::collation;
use crate::key::compare::Comparator;
use crate::key::datum;
use crate::key::desc::{self, Column, KeyDesc, refuse};
use pgrx::pg_sys::{self, ArrayType, Datum, Oid};
use pgrx::{PgSqlErrorCode, varlena};

use crate::pg::error::{self, Failure};
use crate::pg::memory;
use crate::pg::text;

/// Bytes that the keys of one row may have together.
const MAX_ROW_BYTES: usize = 256 << 20;

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

/// Describes an element column: its key column and where its elements come from.
///
/// # Safety
/// `rel` must be an open index, `i` its element column; `context` as for `Comparator::new`.
pub unsafe fn column(
    rel: pg_sys::Relation,
    i: usize,
    attr: &pg_sys::FormData_pg_attribute,
    context: impl FnOnce() -> pg_sys::MemoryContext,
) -> (Column, Source) {
    let json = Column {
        // The direction of the elements has no meaning.
        desc: false,
        nulls_first: false,
        typid: attr.atttypid,
        own_type: attr.atttypid,
        collation: Oid::INVALID,
        codec: Codec::Bytes(Layout::Varlena),
        short: false,
        comparator: None,
    };
    // SAFETY: catalogue access; `i` is a key column.
    unsafe {
        if *(*rel).rd_opcintype.add(i) == pg_sys::JSONBOID {
            return (json, Source::Json);
        }
        let collation = *(*rel).rd_indcollation.add(i);
        if !collation::is_deterministic(collation) {
            let name = text::from_pointer(pg_sys::get_collation_name(collation));
            refuse(
                format!(
                    "arrays under nondeterministic collation \"{name}\" cannot be indexed by access method \"nitro\""
                ),
                "Elements with different bytes may be equal under this collation.".into(),
                "Use a deterministic collation, or array_order_ops for comparisons of whole arrays.",
            );
        }
        let element = pg_sys::get_base_element_type(attr.atttypid);
        let cache = pg_sys::lookup_type_cache(element, pg_sys::TYPECACHE_CMP_PROC as i32);
        let compare = (*cache).cmp_proc;
        if compare == Oid::INVALID {
            let name = pg_sys::format_type_be(element);
            let name = text::from_pointer(name);
            refuse(
                format!("arrays of type {name} cannot be indexed by access method \"nitro\""),
                format!("Type {name} has no default btree operator class, and so no order."),
                "Index an expression whose elements have an ordered type.",
            );
        }
        let (length, by_value) = ((*cache).typlen, (*cache).typbyval);
        let layout = desc::layout(element, length, by_value);
        let exact = desc::key_codec(compare, collation, layout);
        let (codec, ordered) = match (compare.to_u32(), exact) {
            (pg_sys::F_BPCHARCMP, Codec::Raw(_)) => (Codec::Bytes(Layout::BlankPadded), false),
            (_, Codec::Raw(_)) if collation::collated(compare, collation) => {
                (Codec::Bytes(layout), false)
            }
            _ => (exact, true),
        };
        let comparator =
            matches!(codec, Codec::Raw(_)).then(|| Comparator::new(compare, collation, context()));
        let own_type = element;
        let column = Column { typid: element, own_type, collation, codec, comparator, ..json };
        (column, Source::Array(Shape::new(&*cache, ordered)))
    }
}

impl Shape {
    /// The shape of elements whose type is in the type cache with its comparison function.
    fn new(element: &pg_sys::TypeCacheEntry, ordered: bool) -> Shape {
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
        // SAFETY: the layout of arrays (utils/array.h): header, dimensions and lower bounds, a bitmap if
        // `dataoffset` is set, then aligned elements.
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

impl KeyDesc {
    /// The segment of an element of the element column.
    ///
    /// # Safety
    /// `element` must be a value of the column's element type.
    pub unsafe fn element_segment(&self, column: usize, element: Datum) -> Vec<u8> {
        let mut segment = Vec::new();
        // SAFETY: by contract.
        unsafe { datum::put(self.columns[column].codec, element, &mut segment, |_| ()) };
        segment
    }

    /// Where the strings with a prefix begin and end among the segments of a column of strings.
    ///
    /// # Safety
    /// `prefix` must be a text.
    pub unsafe fn prefix_edges(prefix: Datum) -> (Edge, Edge) {
        let mut lower = Vec::new();
        // SAFETY: by contract.
        unsafe { datum::with_bytes(Layout::Varlena, prefix, |b| codec::put_bytes(&mut lower, b)) };
        // Without the end of the string.
        lower.pop();
        let mut upper = lower.clone();
        while upper.last() == Some(&0xFF) {
            upper.pop();
        }
        if let Some(last) = upper.last_mut() {
            *last += 1;
        }
        (Edge::Before(lower), Edge::Before(upper))
    }

    /// The segment of an entry of a document.
    pub fn json_segment(entry: &[u8]) -> Vec<u8> {
        let mut segment = Vec::new();
        codec::put_bytes(&mut segment, entry);
        segment
    }
}

/// The keys of one row, one after the other. Made as a whole before the first of them is used.
#[derive(Default)]
pub struct Keys {
    bytes: Vec<u8>,
    /// Where each key ends.
    ends: Vec<usize>,
    /// Segments of the elements, in no order.
    segments: Vec<u8>,
    /// Begin and end of each.
    pieces: Vec<(usize, usize)>,
}

impl Keys {
    /// Makes the keys of a row. May raise an ERROR (detoasting, too many elements).
    ///
    /// # Safety
    /// As [`KeyDesc::encode`].
    pub unsafe fn set(&mut self, desc: &KeyDesc, values: *const Datum, isnull: *const bool) {
        self.bytes.clear();
        self.ends.clear();
        // SAFETY: by contract.
        unsafe {
            match desc.element {
                None => {
                    desc.encode(values, isnull, &mut self.bytes);
                    self.ends.push(self.bytes.len());
                }
                Some((column, source)) => {
                    self.extract(
                        desc,
                        source,
                        column,
                        (!*isnull.add(column)).then(|| *values.add(column)),
                    );
                    self.combine(desc, column, values, isnull);
                }
            }
        }
    }

    /// Collects the distinct segments of the elements, sorted.
    unsafe fn extract(
        &mut self,
        desc: &KeyDesc,
        source: Source,
        column: usize,
        value: Option<Datum>,
    ) {
        let Keys { segments, pieces, .. } = self;
        segments.clear();
        pieces.clear();
        let codec = desc.columns[column].codec;
        let mut nulls = false;
        // SAFETY: a value of the column, by the caller's contract.
        unsafe {
            match (value, source) {
                (None, _) => {
                    segments.push(desc.columns[column].null_marker());
                    pieces.push((0, 1));
                }
                (Some(array), Source::Array(shape)) => {
                    shape.any_of(array, |element| {
                        let start = segments.len();
                        memory::reserve(segments, codec::LONGEST_FIXED);
                        memory::reserve(pieces, 1);
                        match element {
                            None if nulls => return false,
                            None => {
                                nulls = true;
                                segments.push(codec::NULL_ELEMENT);
                            }
                            Some(element) => datum::put(codec, element, segments, |_| ()),
                        }
                        pieces.push((start, segments.len()));
                        check_size(segments.len() + pieces.len() * size_of::<(usize, usize)>());
                        false
                    });
                }
                (Some(document), Source::Json) => json::entries(document, &mut |entry| {
                    let start = segments.len();
                    codec::put_bytes(segments, entry);
                    memory::reserve(pieces, 1);
                    pieces.push((start, segments.len()));
                    check_size(segments.len() + pieces.len() * size_of::<(usize, usize)>());
                }),
            }
        }
        if pieces.is_empty() {
            segments.push(codec::EMPTY);
            pieces.push((0, 1));
        }
        pieces.sort_unstable_by(|a, b| segments[a.0..a.1].cmp(&segments[b.0..b.1]));
        pieces.dedup_by(|a, b| segments[a.0..a.1] == segments[b.0..b.1]);
    }

    unsafe fn combine(
        &mut self,
        desc: &KeyDesc,
        column: usize,
        values: *const Datum,
        isnull: *const bool,
    ) {
        let mut others = Vec::new();
        // SAFETY: by the caller's contract.
        let mut put = |columns: std::ops::Range<usize>| unsafe {
            columns.for_each(|i| {
                desc.put(i, *values.add(i), *isnull.add(i), &mut others, &mut Vec::new())
            });
            others.len()
        };
        let before = put(0..column);
        put(column + 1..desc.nkeys);
        let (before, behind) = others.split_at(before);
        let total = self.segments.len() + self.pieces.len() * (others.len() + 1);
        check_size(total);
        memory::reserve(&mut self.bytes, total);
        memory::reserve(&mut self.ends, self.pieces.len());
        for &(start, end) in &self.pieces {
            self.bytes.extend_from_slice(before);
            self.bytes.extend_from_slice(&self.segments[start..end]);
            self.bytes.extend_from_slice(behind);
            if desc.closed {
                self.bytes.push(0);
            }
            self.ends.push(self.bytes.len());
        }
    }

    /// The keys, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }

    /// Gives memory back that only an unusual row needs.
    pub fn trim(&mut self) {
        if self.bytes.capacity() + self.segments.capacity() > 1 << 20 {
            *self = Keys::default();
        }
    }

    /// A key that is longer than the engine stores is an ERROR.
    ///
    /// # Safety
    /// `index` must be open, inside a transaction.
    pub unsafe fn check_length(&self, index: pg_sys::Relation) {
        if let Some(key) = self.iter().find(|key| key.len() > nitro_engine::MAX_KEY_LEN) {
            // SAFETY: by contract.
            unsafe { error::key_too_long(index, key.len()) };
        }
    }
}

/// Memory of this process that does not come from the server: a limit in front of it.
fn check_size(bytes: usize) {
    if bytes > MAX_ROW_BYTES {
        Failure::new(
            PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
            "row has too many elements for a nitro index",
        )
        .detail(format!(
            "The index entries of a row cannot exceed {} MB together.",
            MAX_ROW_BYTES >> 20
        ))
        .hint("Index an expression that selects fewer elements, or exclude such rows by the predicate of a partial index.")
        .raise();
    }
}

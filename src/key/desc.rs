//! The description of an index's keys, made once per relation and process.

mod compare;

pub use compare::KeyRef;

use super::codec::{self, Codec, Layout, NULL_FIRST, NULL_LAST};
use super::collation::{collated, is_deterministic};
use super::column::{Column, include_codec, key_codec, layout};
use super::comparator::Comparator;
use super::datum;
use super::elements::column as element;
use super::elements::index as element_index;
use super::elements::source::Source;
use super::refuse::refuse;
use crate::pg::memory;
use pgrx::pg_sys::{Datum, Oid};
use pgrx::{PgTupleDesc, pg_sys};

/// How the rows of one index become keys. Owned by the process, valid until the index is changed.
pub struct KeyDesc {
    /// Key columns in index order, then INCLUDE columns.
    pub columns: Vec<Column>,
    /// Number of key columns.
    pub nkeys: usize,
    /// The column whose elements have entries of their own, and where they come from.
    pub element: Option<(usize, Source)>,
    /// Whether entries end with a zero byte, because some comparator may call different bytes
    /// equal. A search key must sort before every entry that it is equal to, whatever bytes the
    /// entry has.
    pub closed: bool,
    /// The context of the comparators' FmgrInfo; null if there are none.
    context: pg_sys::MemoryContext,
}

impl Drop for KeyDesc {
    fn drop(&mut self) {
        if !self.context.is_null() {
            // SAFETY: made by `for_index`, used by nothing but the comparators dropped with it.
            unsafe { pg_sys::MemoryContextDelete(self.context) };
        }
    }
}

impl KeyDesc {
    /// Reads the description from an index. An unsupported index is an ERROR.
    ///
    /// # Safety
    /// `rel` must be an open index; needs catalogue access.
    pub unsafe fn for_index(rel: pg_sys::Relation) -> KeyDesc {
        // SAFETY: an open index has its tuple descriptor and pg_index row.
        let (attrs, nkeys) = unsafe {
            (PgTupleDesc::from_pg_unchecked((*rel).rd_att), (*(*rel).rd_index).indnkeyatts as usize)
        };
        let mut desc = KeyDesc {
            columns: Vec::with_capacity(attrs.len()),
            nkeys,
            element: None,
            closed: false,
            context: std::ptr::null_mut(),
        };
        // SAFETY: an open index by contract.
        let elements = unsafe {
            element_index::check_index(rel);
            element_index::element_column(rel)
        };
        for (i, attr) in attrs.iter().enumerate() {
            let layout = layout(attr.atttypid, attr.attlen, attr.attbyval);
            let column = if elements == Some(i) {
                // SAFETY: `i` is the element column of an open index.
                unsafe { desc.element_column(rel, i, attr) }
            } else if i < nkeys {
                // SAFETY: `i` is a key column of an open index.
                unsafe { desc.key_column(rel, i, attr.atttypid, layout) }
            } else {
                Column {
                    desc: false,
                    nulls_first: false,
                    typid: attr.atttypid,
                    own_type: attr.atttypid,
                    collation: attr.attcollation,
                    codec: include_codec(attr.atttypid, layout),
                    short: false,
                    comparator: None,
                }
            };
            desc.columns.push(Column { short: has_short_headers(attr), ..column });
        }
        desc
    }

    /// # Safety
    /// `i` must be the element column of the open index `rel`.
    unsafe fn element_column(
        &mut self,
        rel: pg_sys::Relation,
        i: usize,
        attr: &pg_sys::FormData_pg_attribute,
    ) -> Column {
        // SAFETY: by contract; the context lives as long as this description.
        let (column, source) =
            unsafe { element::describe(rel, i, attr, || self.comparator_context()) };
        if let Source::Array(shape) = source {
            self.closed |=
                column.comparator.is_some() && !collated(shape.compare, column.collation);
        }
        self.element = Some((i, source));
        column
    }

    /// # Safety
    /// `i` must be a key column of the open index `rel`.
    unsafe fn key_column(
        &mut self,
        rel: pg_sys::Relation,
        i: usize,
        own_type: Oid,
        layout: Layout,
    ) -> Column {
        // SAFETY: these arrays have one element per key column.
        let (option, typid, collation, compare) = unsafe {
            (
                *(*rel).rd_indoption.add(i) as u32,
                *(*rel).rd_opcintype.add(i),
                *(*rel).rd_indcollation.add(i),
                pg_sys::index_getprocid(rel, i as i16 + 1, 1),
            )
        };
        if compare == Oid::INVALID {
            refuse(
                format!("index column {} cannot be ordered by access method \"nitro\"", i + 1),
                "Its operator class has no comparison function (support function 1).".into(),
                "Use an operator class that orders its type.",
            );
        }
        // SAFETY: catalogue access by contract.
        let codec = unsafe { key_codec(compare, collation, layout) };
        // As core refuses it for btree: under it = is not the equality of the class.
        if !is_deterministic(collation) && !matches!(codec, Codec::Raw(_)) {
            refuse(
                format!(
                    "index column {} orders strings by their bytes, and its collation is nondeterministic",
                    i + 1
                ),
                "Strings with different bytes may be equal under this collation.".into(),
                "Use the default operator class, or a deterministic collation.",
            );
        }
        let comparator = matches!(codec, Codec::Raw(_)).then(|| {
            // SAFETY: `compare` is the opclass's comparison function, the context lives as long as
            // this description.
            unsafe { Comparator::new(compare, collation, self.comparator_context()) }
        });
        self.closed |= comparator.is_some() && !collated(compare, collation);
        Column {
            desc: option & pg_sys::INDOPTION_DESC != 0,
            nulls_first: option & pg_sys::INDOPTION_NULLS_FIRST != 0,
            typid,
            own_type,
            collation,
            codec,
            short: false,
            comparator,
        }
    }

    fn comparator_context(&mut self) -> pg_sys::MemoryContext {
        if self.context.is_null() {
            // SAFETY: plain allocation of a context; the name is a constant.
            self.context = unsafe {
                pg_sys::AllocSetContextCreateExtended(
                    pg_sys::CacheMemoryContext,
                    c"nitro comparators".as_ptr(),
                    0,
                    1024,
                    pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
                )
            };
        }
        self.context
    }

    /// Whether a column is the element column.
    pub fn is_element(&self, column: usize) -> bool {
        self.element.is_some_and(|(element, _)| element == column)
    }

    /// Whether the bytes of the keys have the order of the index.
    pub fn is_memcmp(&self) -> bool {
        self.columns.iter().all(|c| c.comparator.is_none())
    }

    /// Whether rows are equal exactly if their keys have the same bytes: all columns are key
    /// columns, and nothing else is stored.
    pub fn keys_are_bytes(&self) -> bool {
        self.columns.len() == self.nkeys && self.keys_begin_with_bytes()
    }

    /// Whether rows are equal exactly if their keys have the same bytes up to the end of the key
    /// columns.
    pub fn keys_begin_with_bytes(&self) -> bool {
        let exact = |column: &Column| column.codec.is_exact();
        !self.closed && self.columns[..self.nkeys].iter().all(exact)
    }

    /// A key up to the end of the key columns.
    pub fn key_columns<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        &key[..self.split(key, self.nkeys).map(<[u8]>::len).sum()]
    }

    /// Appends the key of a row.
    ///
    /// # Safety
    /// `values` and `isnull` must have one valid element per column.
    pub unsafe fn encode(&self, values: *const Datum, isnull: *const bool, out: &mut Vec<u8>) {
        let mut payload = Vec::new();
        for i in 0..self.columns.len() {
            // SAFETY: by contract.
            unsafe { self.put(i, *values.add(i), *isnull.add(i), out, &mut payload) };
        }
        memory::reserve(out, payload.len() + 1);
        out.extend_from_slice(&payload);
        if self.closed {
            out.push(0);
        }
    }

    /// Appends the segment of a column's value, and to `payload` what that cannot give back.
    ///
    /// # Safety
    /// `value` must be one of the column, unless it is NULL.
    #[inline]
    pub unsafe fn put(
        &self,
        i: usize,
        value: Datum,
        isnull: bool,
        out: &mut Vec<u8>,
        payload: &mut Vec<u8>,
    ) {
        let column = &self.columns[i];
        // Whatever came before may be long and fill the memory that it has.
        memory::reserve(out, codec::LONGEST_FIXED);
        if isnull {
            out.push(column.null_marker());
            return;
        }
        let start = out.len();
        // SAFETY: a non-null value of the column's type.
        unsafe {
            datum::put(column.codec, value, out, |extra| codec::put_extra(payload, i, extra))
        };
        if column.flip() != 0 {
            codec::invert(&mut out[start..]);
        }
    }

    /// The segments of the first `n` columns (fewer if a search key has fewer).
    pub fn split<'k>(&self, key: &'k [u8], n: usize) -> impl Iterator<Item = &'k [u8]> {
        let mut rest = key;
        self.columns[..n].iter().map_while(move |column| {
            if rest.first().is_none_or(|&b| b == codec::SENTINEL) {
                return None;
            }
            let (segment, tail) = rest.split_at(column.segment_len(rest));
            rest = tail;
            Some(segment)
        })
    }

    /// Decodes the row of an entry, as many of its first columns as the output has room for. Values
    /// are allocated in the current memory context. An element column is NULL.
    ///
    /// # Safety
    /// `key` must have been made by [`KeyDesc::encode`] for the same index.
    pub unsafe fn decode(&self, key: &[u8], values: &mut [Datum], isnull: &mut [bool]) {
        let mut rest = key;
        let wanted = values.len();
        for (i, column) in self.columns.iter().enumerate() {
            if i >= wanted {
                rest = &rest[column.segment_len(rest)..];
                continue;
            }
            isnull[i] = rest[0] == NULL_FIRST || rest[0] == NULL_LAST || self.is_element(i);
            if isnull[i] {
                values[i] = Datum::from(0);
                rest = &rest[column.segment_len(rest)..];
            } else if let codec::Codec::Int(kind) = column.codec {
                // The usual column, and most of the work of an index-only scan: read in one pass.
                let mut reader = codec::Reader::new(rest, column.flip());
                values[i] = datum::from_int(kind, codec::get_int(&mut reader));
                rest = reader.rest();
            } else {
                let (segment, behind) = rest.split_at(column.segment_len(rest));
                // SAFETY: a segment of this column, by contract.
                values[i] = unsafe { self.value(i, segment, None) };
                rest = behind;
            }
        }
        // Few values have a payload: they are made a second time.
        for (i, extra) in codec::extras(rest).filter(|&(i, _)| i < wanted) {
            if let Some(segment) = self.split(key, i + 1).last() {
                // SAFETY: a segment of this column and its payload, by contract.
                values[i] = unsafe { self.value(i, segment, Some(extra)) };
            }
        }
    }

    /// Whether rows are equal in the first `n` columns just if their keys begin with the same
    /// segments.
    pub fn equal_by_bytes(&self, n: usize) -> bool {
        self.element.is_none()
            && (!self.closed || self.columns[..n].iter().all(|c| c.comparator.is_none()))
    }

    /// # Safety
    /// `segment` and `extra` must have been made by `datum::put` for this column.
    unsafe fn value(&self, i: usize, segment: &[u8], extra: Option<&[u8]>) -> Datum {
        let column = &self.columns[i];
        // SAFETY: by contract.
        unsafe { datum::get(column.codec, segment, column.flip(), extra, column.short) }
    }
}

/// Whether the server gives short values of a type a header of one byte when it forms a tuple. The
/// storage of a column says less: INSERT forms its tuples by the types.
fn has_short_headers(attr: &pg_sys::FormData_pg_attribute) -> bool {
    // SAFETY: a catalogue look-up of an existing type.
    attr.attlen == -1
        && unsafe { pg_sys::get_typstorage(attr.atttypid) } as u8 != pg_sys::TYPSTORAGE_PLAIN
}

//! The keys of one row.

use super::codec;
use super::datum;
use super::desc::KeyDesc;
use super::elements::json;
use super::elements::source::Source;
use super::refuse;
use crate::pg::error::Failure;
use crate::pg::memory;
use pgrx::PgSqlErrorCode;
use pgrx::pg_sys::{self, Datum};

/// Bytes that the keys of one row may have together.
const MAX_ROW_BYTES: usize = 256 << 20;

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
            unsafe { refuse::key_too_long(index, key.len()) };
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

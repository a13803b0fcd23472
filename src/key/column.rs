//! The description of one column of an index: how its values are written, and their order.

use super::codec::{self, Codec, Int, Layout, NULL_FIRST, NULL_LAST};
use super::collation::byte_order;
use super::comparator::Comparator;
use crate::pg::compat;
use pgrx::pg_sys::{self, Oid};
use std::cmp::Ordering;

/// One column of an index.
pub struct Column {
    /// Sorted in descending order.
    pub desc: bool,
    /// NULLs come first in the index.
    pub nulls_first: bool,
    /// The operator class's input type; the column's own type for an INCLUDE column.
    pub typid: Oid,
    /// The column's own type. Segments of an element column have the type of its elements.
    pub own_type: Oid,
    /// Collation, or `InvalidOid`.
    pub collation: Oid,
    pub codec: Codec,
    /// Short values have a header of one byte in tuples, and so when they are given back.
    pub short: bool,
    /// Orders a column that is stored raw.
    pub comparator: Option<Comparator>,
}

impl Column {
    /// The single byte that stands for NULL.
    pub fn null_marker(&self) -> u8 {
        if self.nulls_first { NULL_FIRST } else { NULL_LAST }
    }

    /// Returns the byte that inverts the column's segments. Raw segments are never inverted.
    pub fn flip(&self) -> u8 {
        if self.desc && self.comparator.is_none() { 0xFF } else { 0 }
    }

    /// How values are written and ordered, in words.
    pub fn describe(&self) -> String {
        format!(
            "{:?}{}{}{}",
            self.codec,
            if self.desc { " desc" } else { "" },
            if self.nulls_first { " nulls first" } else { "" },
            if self.comparator.is_some() { " by comparison, abbreviated" } else { "" },
        )
    }

    #[inline]
    pub fn segment_len(&self, key: &[u8]) -> usize {
        codec::segment_len(self.codec, self.flip(), key)
    }

    /// The order of two segments in the index.
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match (&self.comparator, self.codec) {
            // Different first bytes: one is NULL, whose marker says where it goes.
            (Some(comparator), Codec::Raw(layout)) if a[0] == b[0] => {
                let order = match codec::is_marker(a[0]) {
                    true => Ordering::Equal,
                    false => comparator.compare(layout, codec::get_raw(a), codec::get_raw(b)),
                };
                if self.desc { order.reverse() } else { order }
            }
            _ => a.cmp(b),
        }
    }

    /// Returns the number that `of` gives the value of a raw segment, in index order, with NULLs in
    /// their place.
    pub(super) fn number(&self, segment: &[u8], of: impl FnOnce(Layout, &[u8]) -> u64) -> u64 {
        match (segment[0], self.codec) {
            (NULL_FIRST, _) => 0,
            (first, Codec::Raw(layout)) if !codec::is_marker(first) => {
                let number = of(layout, codec::get_raw(segment));
                if self.desc { !number } else { number }
            }
            _ => u64::MAX,
        }
    }
}

/// How values of a type with this length lie in memory.
pub fn layout(typid: Oid, length: i16, by_value: bool) -> Layout {
    // SAFETY: a catalogue look-up of an existing type.
    let typid = unsafe { pg_sys::getBaseType(typid) };
    match (typid, length) {
        (pg_sys::NAMEOID, _) => Layout::Name,
        (_, -1) => Layout::Varlena,
        (_, -2) => Layout::CString,
        (_, n) if by_value => Layout::Value(n as u8),
        (_, n) => Layout::Fixed(n as u16),
    }
}

/// The codec of a key column: the comparison function says which order it must have. Any function
/// that is not known here compares raw segments.
///
/// # Safety
/// Needs catalogue access.
pub unsafe fn key_codec(compare: Oid, collation: Oid, layout: Layout) -> Codec {
    // SAFETY: catalogue access by contract.
    let text = |layout| match unsafe { byte_order(collation) } {
        true => Codec::Bytes(layout),
        false => Codec::Raw(layout),
    };
    match compare.to_u32() {
        pg_sys::F_BTINT2CMP => Codec::Int(Int::Int2),
        pg_sys::F_BTINT4CMP | pg_sys::F_DATE_CMP => Codec::Int(Int::Int4),
        pg_sys::F_BTINT8CMP
        | pg_sys::F_TIME_CMP
        | pg_sys::F_TIMESTAMP_CMP
        | pg_sys::F_TIMESTAMPTZ_CMP
        | pg_sys::F_CASH_CMP => Codec::Int(Int::Int8),
        pg_sys::F_BTOIDCMP => Codec::Int(Int::Oid),
        pg_sys::F_BTBOOLCMP => Codec::Int(Int::Bool),
        pg_sys::F_BTCHARCMP => Codec::Int(Int::Char),
        pg_sys::F_BTFLOAT4CMP => Codec::Float4,
        pg_sys::F_BTFLOAT8CMP => Codec::Float8,
        pg_sys::F_NUMERIC_CMP => Codec::Numeric,
        pg_sys::F_INTERVAL_CMP => Codec::Interval,
        pg_sys::F_TIMETZ_CMP => Codec::TimeTz,
        pg_sys::F_UUID_CMP => Codec::Fixed(16),
        pg_sys::F_MACADDR_CMP => Codec::Fixed(6),
        pg_sys::F_MACADDR8_CMP => Codec::Fixed(8),
        pg_sys::F_PG_LSN_CMP | pg_sys::F_XID8CMP => Codec::Unsigned,
        function if compat::compares_oid8(function) => Codec::Unsigned,
        pg_sys::F_BTTIDCMP => Codec::Tid,
        pg_sys::F_NETWORK_CMP => Codec::Inet,
        pg_sys::F_BITCMP | pg_sys::F_VARBITCMP => Codec::Bits,
        pg_sys::F_BYTEACMP | pg_sys::F_BTTEXT_PATTERN_CMP => Codec::Bytes(layout),
        pg_sys::F_BTBPCHAR_PATTERN_CMP => Codec::Bytes(Layout::BlankPadded),
        pg_sys::F_BTTEXTCMP | pg_sys::F_BTNAMECMP => text(layout),
        pg_sys::F_BPCHARCMP => text(Layout::BlankPadded),
        _ => Codec::Raw(layout),
    }
}

/// The codec of an INCLUDE column: integers are shortened, everything else is kept as it is.
pub fn include_codec(typid: Oid, layout: Layout) -> Codec {
    match typid {
        pg_sys::INT2OID => Codec::Int(Int::Int2),
        pg_sys::INT4OID | pg_sys::DATEOID => Codec::Int(Int::Int4),
        pg_sys::INT8OID | pg_sys::TIMEOID | pg_sys::TIMESTAMPOID | pg_sys::TIMESTAMPTZOID => {
            Codec::Int(Int::Int8)
        }
        pg_sys::OIDOID => Codec::Int(Int::Oid),
        pg_sys::BOOLOID => Codec::Int(Int::Bool),
        _ => Codec::Raw(layout),
    }
}

//! Order-preserving byte encodings of native values. No PostgreSQL symbol is used here.
//!
//! Every encoding is self-delimiting and prefix-free: no encoded value is a proper prefix of
//! another. So segments can simply be put one after the other, and inverting all bytes reverses the
//! order. First bytes lie in 0x04..=0xFB, before and after inversion. 0x01 and 0xFC..=0xFE stand
//! alone (NULLs, placeholders of element columns). 0xFF is left to search keys ("after everything
//! that starts with this prefix").

mod floats;
mod integers;
mod strings;

use super::{inet, numeric};
use crate::pg::memory;

pub use super::reader::{Reader, invert};
pub use floats::*;
pub use integers::*;
pub use strings::*;
use strings::{get_len, put_len};

/// A NULL that sorts before all values.
pub const NULL_FIRST: u8 = 0x01;
/// A NULL that sorts after all values.
pub const NULL_LAST: u8 = 0xFE;
/// An element column's row that has no elements.
pub const EMPTY: u8 = 0xFD;
/// A NULL element of an element column. Behind all values, as the other two.
pub const NULL_ELEMENT: u8 = 0xFC;
/// Never starts a segment: sorts after everything.
pub const SENTINEL: u8 = 0xFF;

/// Whether a segment that begins with this byte has no other, and no value.
#[inline(always)]
pub const fn is_marker(first: u8) -> bool {
    first == NULL_FIRST || first >= NULL_ELEMENT
}

/// First byte of values whose body says everything.
const PLAIN: u8 = 0x80;

/// How the bytes of a type without an encoding of its own are laid out in a datum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Variable length with a length word.
    Varlena,
    /// `bpchar`: as [`Layout::Varlena`], trailing blanks do not count.
    BlankPadded,
    /// `name`: 64 bytes, padded with zeros.
    Name,
    /// Zero-terminated.
    CString,
    /// Fixed length, by reference.
    Fixed(u16),
    /// 1, 2, 4 or 8 bytes inside the datum.
    Value(u8),
}

/// Which integer a datum holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Int {
    /// `bool`
    Bool,
    /// `"char"`, which sorts as unsigned
    Char,
    /// `int2`
    Int2,
    /// `int4`, `date`
    Int4,
    /// `int8`, `time`, `timestamp`, `timestamptz`, `money`
    Int8,
    /// `oid`
    Oid,
}

impl Int {
    /// The most bytes of a segment.
    pub fn longest(self) -> usize {
        match self {
            Int::Bool => 1,
            Int::Char => 2,
            Int::Int2 => 3,
            Int::Int4 | Int::Oid => 5,
            Int::Int8 => 9,
        }
    }
}

/// How a column is written into the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// By value: equal numbers of all widths have equal segments.
    Int(Int),
    /// `float4`
    Float4,
    /// `float8`
    Float8,
    /// `numeric`
    Numeric,
    /// `interval`: its length, as `interval_cmp` counts it.
    Interval,
    /// `timetz`: the instant, then the zone.
    TimeTz,
    /// This number of bytes in byte order: `uuid`, `macaddr`, `macaddr8`
    Fixed(u16),
    /// Unsigned by value: `pg_lsn`, `xid8`, `oid8`
    Unsigned,
    /// `tid`: the block and the line pointer in it, as one number.
    Tid,
    /// `inet`, `cidr`
    Inet,
    /// `bit`, `varbit`: their bytes, then how many bits there are.
    Bits,
    /// Byte strings in byte order.
    Bytes(Layout),
    /// Bytes without an order: compared by a function, or not at all (INCLUDE columns).
    Raw(Layout),
}

impl Codec {
    /// Whether a segment says all of a value: it never has a payload.
    pub fn is_exact(self) -> bool {
        !matches!(
            self,
            Codec::Float4
                | Codec::Float8
                | Codec::Numeric
                | Codec::Interval
                | Codec::Bytes(Layout::BlankPadded)
                | Codec::Raw(Layout::BlankPadded)
        )
    }
}

/// Length of the segment that `key` starts with. `flip` is 0xFF if the column's bytes are inverted.
#[inline]
pub fn segment_len(codec: Codec, flip: u8, key: &[u8]) -> usize {
    let first = key[0];
    if is_marker(first) {
        return 1;
    }
    match codec {
        Codec::Int(_) | Codec::Interval | Codec::Unsigned | Codec::Tid => int_len(first),
        Codec::TimeTz => {
            let n = int_len(first);
            n + int_len(key[n])
        }
        Codec::Float4 => 5,
        Codec::Float8 => 9,
        Codec::Fixed(n) => 1 + usize::from(n),
        Codec::Inet => inet::segment_len(flip, key),
        Codec::Numeric => {
            let mut r = Reader::new(key, flip);
            numeric::skip(&mut r);
            key.len() - r.rest().len()
        }
        Codec::Bits => 2 + find(key, flip).unwrap_or(key.len() - 2),
        Codec::Bytes(_) => 1 + find(key, flip).unwrap_or(key.len() - 1),
        Codec::Raw(_) => {
            let mut rest = &key[1..];
            let n = get_len(&mut rest);
            key.len() - rest.len() + n
        }
    }
}

/// Where a byte is found first.
fn find(bytes: &[u8], wanted: u8) -> Option<usize> {
    // SAFETY: reads no more than the slice.
    let at = unsafe { libc::memchr(bytes.as_ptr().cast(), i32::from(wanted), bytes.len()) };
    (!at.is_null()).then(|| at.addr() - bytes.as_ptr().addr())
}

// Payload: what an encoding cannot give back, as (column from 1, length, bytes). Sorted by column,
// so equal rows have equal payloads.

/// Appends a payload item for the column with this zero-based number.
pub fn put_extra(payload: &mut Vec<u8>, column: usize, bytes: &[u8]) {
    memory::reserve(payload, bytes.len() + 6);
    payload.push(column as u8 + 1);
    put_len(payload, bytes.len());
    payload.extend_from_slice(bytes);
}

/// The items of a payload, as (zero-based column, bytes). A zero byte ends it.
pub fn extras(mut payload: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    std::iter::from_fn(move || {
        let column = usize::from(*payload.first()?).checked_sub(1)?;
        payload = &payload[1..];
        let n = get_len(&mut payload);
        let (bytes, rest) = payload.split_at(n);
        payload = rest;
        Some((column, bytes))
    })
}

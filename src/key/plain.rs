//! Values of an entry without a call of the server and without memory of its own: for who hands up many rows.

use pgrx::pg_sys::Datum;

use super::codec::{self, Codec, Layout, NULL_FIRST, NULL_LAST};
use super::datum;
use super::desc::{Column, KeyDesc};
use crate::pg::memory;

/// Longest string that has a one-byte header, and the bytes that it takes with it.
const LONGEST: usize = 126;
/// They are written eight bytes at a time.
const ROOM: usize = 1 + (LONGEST + 1).next_multiple_of(8);
/// A `uuid`, which may lie anywhere.
const UUID: u16 = 16;
/// How a column is passed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Passed {
    /// By value.
    Value,
    /// By a pointer to something of varying length, which may have a one-byte header.
    Short,
    /// By another pointer.
    Pointer,
}

/// What is needed for the rows of one index.
pub struct Plain {
    columns: Vec<Passed>,
    /// What pointers point to, each in a place of its own.
    places: Vec<u8>,
}

impl Plain {
    /// For columns that are passed in these ways; None if the values of some cannot be had.
    pub fn new(desc: &KeyDesc, columns: Vec<Passed>) -> Option<Plain> {
        let simple = |(column, &passed): (&Column, &Passed)| match (passed, column.codec) {
            (Passed::Value, _) => true,
            (Passed::Short, Codec::Bytes(Layout::Varlena)) => column.flip() == 0,
            (Passed::Short, Codec::Raw(Layout::Varlena)) => true,
            (Passed::Pointer, Codec::Fixed(UUID)) => true,
            _ => false,
        };
        if columns.len() != desc.columns.len()
            || desc.element.is_some()
            || !desc.columns.iter().zip(&columns).all(simple)
        {
            return None;
        }
        let mut places = Vec::new();
        if columns.iter().any(|&passed| passed != Passed::Value) {
            memory::resize(&mut places, columns.len() * ROOM, 0);
        }
        Some(Plain { columns, places })
    }

    /// [`KeyDesc::decode`], or false for an entry that needs more: a long string, one with bytes that are stored
    /// as two, or a value with a payload. What pointers point to lives until the next call. The key has the first `len`
    /// of these bytes; what is behind it has no meaning, but may be read.
    ///
    /// # Safety
    /// The key must have been made by `encode` for the index that this was made for.
    #[inline]
    pub unsafe fn decode(
        &mut self,
        desc: &KeyDesc,
        (bytes, len): (&[u8], usize),
        values: &mut [Datum],
        isnull: &mut [bool],
    ) -> bool {
        let mut rest = bytes;
        for (i, column) in desc.columns.iter().enumerate() {
            let null = rest[0] == NULL_FIRST || rest[0] == NULL_LAST;
            isnull[i] = null;
            if let (Codec::Int(kind), false) = (column.codec, null) {
                let mut reader = codec::Reader::new(rest, column.flip());
                values[i] = datum::from_int(kind, codec::get_int(&mut reader));
                rest = reader.rest();
                continue;
            }
            if null {
                values[i] = Datum::from(0);
                rest = &rest[1..];
                continue;
            }
            let segment;
            if self.columns[i] == Passed::Value {
                (segment, rest) = rest.split_at(column.segment_len(rest));
                // SAFETY: a segment of this column, by contract; by value, so nothing is allocated.
                values[i] = unsafe { datum::get(column.codec, segment, column.flip(), None) };
                continue;
            }
            let place = &mut self.places[i * ROOM..][..ROOM];
            values[i] = Datum::from(place.as_mut_ptr());
            if let Codec::Bytes(_) = column.codec {
                let Some(n) = copy_string(&rest[1..], &mut place[1..]) else { return false };
                place[0] = short(n);
                rest = &rest[n + 2..];
                continue;
            }
            (segment, rest) = rest.split_at(column.segment_len(rest));
            if let Codec::Fixed(_) = column.codec {
                let flip = column.flip();
                place.iter_mut().zip(&segment[1..]).for_each(|(to, from)| *to = from ^ flip);
                continue;
            }
            let string = codec::get_raw(segment);
            if string.len() > LONGEST {
                return false;
            }
            place[0] = short(string.len());
            place[1..=string.len()].copy_from_slice(string);
        }
        // Nothing else, or the zero that closes it.
        let read = bytes.len() - rest.len();
        read == len || rest[0] == 0
    }
}

/// The one-byte header of so many bytes.
fn short(len: usize) -> u8 {
    ((len + 1) as u8) << 1 | 1
}

/// Copies a string up to its end, and some of what is behind it; returns how long it is. None if it has more than [`LONGEST`]
/// bytes, or some that stand for others (`codec::put_bytes`).
#[inline]
fn copy_string(from: &[u8], to: &mut [u8]) -> Option<usize> {
    let mut at = 0;
    while at <= LONGEST {
        let rest = &from[at..];
        let eight = rest.first_chunk().copied().unwrap_or_else(|| codec::eight(rest).to_be_bytes());
        to[at..][..8].copy_from_slice(&eight);
        let n = at + codec::zeros_or_ones_from(u64::from_le_bytes(eight));
        if n < at + 8 {
            return (eight[n - at] == 0 && n <= LONGEST).then_some(n);
        }
        at += 8;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// As it was written, or not at all; whatever is behind it.
        #[test]
        fn strings_are_copied(
            string in prop::collection::vec(prop_oneof![20 => 2u8.., 1 => 0u8..2], 0..140),
            behind in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut key = Vec::new();
            codec::put_bytes(&mut key, &string);
            key.extend(&behind);
            let mut place = [0x55; ROOM];
            let n = copy_string(&key[1..], &mut place[1..]);
            let simple = string.len() <= LONGEST && string.iter().all(|&b| b > 1);
            prop_assert_eq!(n, simple.then_some(string.len()));
            if simple {
                prop_assert_eq!(&place[1..=string.len()], &string);
            }
        }
    }
}

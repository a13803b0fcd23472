//! Values of an entry without a call of the server and without memory of its own: for who hands up many rows.

use pgrx::pg_sys::Datum;

use super::codec::{self, Codec, Layout, NULL_FIRST, NULL_LAST};
use super::datum;
use super::desc::{Column, KeyDesc};
use crate::pg::memory;

/// Longest string that has a one-byte header, and the bytes that it takes with it.
const LONGEST: usize = 126;
const ROOM: usize = LONGEST + 1;
/// A `uuid`, which may lie anywhere.
const UUID: u16 = 16;
/// The byte that stands for itself and for 0 inside of a string, see `codec::put_bytes`.
const ESCAPE: u8 = 1;

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
    /// as two, or a value with a payload. What pointers point to lives until the next call.
    ///
    /// # Safety
    /// `key` must have been made by `encode` for the index that this was made for.
    #[inline]
    pub unsafe fn decode(
        &mut self,
        desc: &KeyDesc,
        key: &[u8],
        values: &mut [Datum],
        isnull: &mut [bool],
    ) -> bool {
        let mut rest = key;
        for (i, column) in desc.columns.iter().enumerate() {
            let null = rest[0] == NULL_FIRST || rest[0] == NULL_LAST;
            isnull[i] = null;
            if let (Codec::Int(kind), false) = (column.codec, null) {
                let mut reader = codec::Reader::new(rest, column.flip());
                values[i] = datum::from_int(kind, codec::get_int(&mut reader));
                rest = reader.rest();
                continue;
            }
            let (segment, behind) = rest.split_at(column.segment_len(rest));
            rest = behind;
            if null {
                values[i] = Datum::from(0);
                continue;
            }
            if self.columns[i] == Passed::Value {
                // SAFETY: a segment of this column, by contract; by value, so nothing is allocated.
                values[i] = unsafe { datum::get(column.codec, segment, column.flip(), None) };
                continue;
            }
            let place = &mut self.places[i * ROOM..][..ROOM];
            values[i] = Datum::from(place.as_mut_ptr());
            let string = match column.codec {
                Codec::Fixed(_) => {
                    let flip = column.flip();
                    place.iter_mut().zip(&segment[1..]).for_each(|(to, from)| *to = from ^ flip);
                    continue;
                }
                Codec::Raw(_) => codec::get_raw(segment),
                _ => &segment[1..segment.len() - 1],
            };
            let stored_as_is =
                !matches!(column.codec, Codec::Bytes(_)) || !string.contains(&ESCAPE);
            if string.len() > LONGEST || !stored_as_is {
                return false;
            }
            place[0] = ((string.len() + 1) as u8) << 1 | 1;
            place[1..=string.len()].copy_from_slice(string);
        }
        // Nothing else, or the zero that closes it.
        rest.first().is_none_or(|&b| b == 0)
    }
}

//! Values of an entry without a call of the server and without memory of its own, for scans that
//! hand up many rows.

use pgrx::pg_sys::Datum;

use super::codec::{self, Codec, Int, Layout, NULL_FIRST, NULL_LAST};
use super::column::Column;
use super::datum::{self, LONGEST_SHORT as LONGEST};
use super::desc::KeyDesc;
use crate::pg::memory;

/// Bytes of a short string with its header, written eight bytes at a time.
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

/// How a column gets its value.
#[derive(Clone, Copy)]
enum How {
    /// An integer, stored inverted with 0xFF.
    Int(Int, u8),
    /// Another value that is passed by value.
    Value,
    /// A string in byte order.
    String,
    /// Bytes without an order.
    Raw,
    /// With the byte that inverts it.
    Uuid(u8),
}

/// The state for the rows of one index.
pub struct Plain {
    columns: Vec<How>,
    /// The targets of pointers, each in a place of its own.
    places: Vec<u8>,
}

impl Plain {
    /// For columns that are passed in these ways; None if the values of some cannot be had.
    pub fn new(desc: &KeyDesc, passed: Vec<Passed>) -> Option<Plain> {
        let how = |(column, &passed): (&Column, &Passed)| match (passed, column.codec) {
            (Passed::Value, Codec::Int(kind)) => Some(How::Int(kind, column.flip())),
            (Passed::Value, _) => Some(How::Value),
            (Passed::Short, Codec::Bytes(Layout::Varlena)) if column.flip() == 0 => {
                Some(How::String)
            }
            (Passed::Short, Codec::Raw(Layout::Varlena)) => Some(How::Raw),
            (Passed::Pointer, Codec::Fixed(UUID)) => Some(How::Uuid(column.flip())),
            _ => None,
        };
        if passed.len() != desc.columns.len() || desc.element.is_some() {
            return None;
        }
        let columns: Vec<How> = desc.columns.iter().zip(&passed).map(how).collect::<Option<_>>()?;
        let mut places = Vec::new();
        if passed.iter().any(|&passed| passed != Passed::Value) {
            memory::resize(&mut places, columns.len() * ROOM, 0);
        }
        Some(Plain { columns, places })
    }

    /// Does the same as [`KeyDesc::decode`]. Returns false for an entry that needs more: a long
    /// string, one with bytes that are stored as two, or a value with a payload. The targets of
    /// pointers live until the next call. The key has the first `len` of these bytes. The bytes
    /// behind it have no meaning, but may be read.
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
        let mut at = 0;
        let out = values.iter_mut().zip(isnull);
        for ((i, &how), (value, isnull)) in self.columns.iter().enumerate().zip(out) {
            let first = bytes[at];
            *isnull = first == NULL_FIRST || first == NULL_LAST;
            if *isnull {
                *value = Datum::from(0);
                at += 1;
                continue;
            }
            match how {
                How::Int(kind, flip) => {
                    let number = codec::int_of(first, codec::eight(&bytes[at + 1..]), flip);
                    *value = datum::from_int(kind, number);
                    at += codec::int_len(first);
                    continue;
                }
                How::Value => {
                    let column = &desc.columns[i];
                    let segment = &bytes[at..][..column.segment_len(&bytes[at..])];
                    // SAFETY: a segment of this column, by contract; by value, so nothing is
                    // allocated.
                    *value =
                        unsafe { datum::get(column.codec, segment, column.flip(), None, false) };
                    at += segment.len();
                    continue;
                }
                _ => {}
            }
            let place = &mut self.places[i * ROOM..][..ROOM];
            *value = Datum::from(place.as_mut_ptr());
            if let How::Uuid(flip) = how {
                let uuid = &bytes[at + 1..][..UUID.into()];
                place.iter_mut().zip(uuid).for_each(|(to, from)| *to = from ^ flip);
                at += 1 + uuid.len();
            } else if let How::String = how {
                let Some(n) = copy_string(&bytes[at + 1..], &mut place[1..]) else { return false };
                place[0] = short(n);
                at += n + 2;
            } else {
                let segment = &bytes[at..][..desc.columns[i].segment_len(&bytes[at..])];
                let string = codec::get_raw(segment);
                if string.len() > LONGEST {
                    return false;
                }
                place[0] = short(string.len());
                place[1..=string.len()].copy_from_slice(string);
                at += segment.len();
            }
        }
        // Nothing else, or the zero that closes it.
        at == len || bytes[at] == 0
    }
}

/// Returns the one-byte header of a value with this number of bytes.
fn short(len: usize) -> u8 {
    ((len + 1) as u8) << 1 | 1
}

/// Copies a string up to its end, and some bytes behind it. Returns its length. Returns None if it
/// has more than [`LONGEST`] bytes, or bytes that stand for others (`codec::put_bytes`).
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

//! Entries with short keys: an item is key and TID, ten and six bytes. A shorter key has zeros
//! behind it. They change no order, because no key is the beginning of another one.

use super::held::Item;
use super::{look, pause, sort_by_number};
use crate::key::codec::{Codec, int_len};
use crate::key::desc::KeyDesc;
use nitro_engine::Tid;
use std::ops::Deref;

/// The most bytes of a key.
const LONGEST: usize = 10;

/// Keys of integers: each tells by its first byte how long it is.
#[derive(Clone, Copy)]
pub struct Short {
    columns: usize,
}

/// A key of few bytes.
pub struct Key {
    bytes: [u8; 16],
    length: usize,
}

impl Deref for Key {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Short {
    /// For an index all of whose keys are short.
    pub fn of(desc: &KeyDesc) -> Option<Short> {
        let mut longest = 0;
        for column in &desc.columns {
            let Codec::Int(kind) = column.codec else { return None };
            longest += kind.longest();
        }
        (longest <= LONGEST && !desc.closed).then_some(Short { columns: desc.columns.len() })
    }

    /// Returns the item of a short key.
    #[inline]
    pub fn item(key: &[u8], tid: Tid) -> Item {
        assert!(key.len() <= LONGEST, "a key is as long as its columns");
        let mut bytes = [0; 16];
        bytes[..key.len()].copy_from_slice(key);
        let both = u128::from_be_bytes(bytes) | u128::from(tid);
        Item { abbrev: (both >> 64) as u64, at: both as u64 }
    }

    #[inline]
    pub fn entry(self, item: &Item) -> (Key, Tid) {
        let bytes = (u128::from(item.abbrev) << 64 | u128::from(item.at)).to_be_bytes();
        let length = (0..self.columns).fold(0, |at, _| at + int_len(bytes[at]));
        (Key { bytes, length }, item.at & 0xffff_ffff_ffff)
    }
}

/// Puts entries in order that have the same first eight bytes, and follow each other.
pub fn sort_ties(items: &mut [Item]) {
    for (i, ties) in items.chunk_by_mut(|a, b| a.abbrev == b.abbrev).enumerate() {
        look(i);
        if ties.len() > 1 {
            sort_by_number(ties, |item| item.at, pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::codec::{EMPTY, NULL_ELEMENT, NULL_FIRST, NULL_LAST, invert, put_int};
    use proptest::prelude::*;

    /// A segment of at most five bytes, as columns of either direction have them, or of nine.
    fn segment(longest: usize) -> impl Strategy<Value = Vec<u8>> {
        let marker = prop::sample::select(vec![NULL_FIRST, NULL_LAST, NULL_ELEMENT, EMPTY]);
        let number = (any::<i64>(), 0..64, any::<bool>()).prop_map(move |(number, less, desc)| {
            let mut bytes = Vec::new();
            put_int(&mut bytes, if longest < 9 { number >> 32 } else { number } >> (less % 32));
            if desc {
                invert(&mut bytes);
            }
            bytes
        });
        prop_oneof![1 => marker.prop_map(|byte| vec![byte]), 9 => number]
    }

    fn keys() -> impl Strategy<Value = (usize, Vec<(Vec<u8>, Tid)>)> {
        let tid = 0u64..1 << 48;
        let key = prop_oneof![
            Just((1, 9)),
            Just((2, 5)), // as two int4
        ];
        key.prop_flat_map(move |(columns, longest)| {
            let key = prop::collection::vec(segment(longest), columns);
            let entry = (key.prop_map(|columns| columns.concat()), tid.clone());
            prop::collection::vec(entry, 1..300).prop_map(move |entries| (columns, entries))
        })
    }

    proptest! {
        #[test]
        fn items_are_in_the_order_of_their_entries_and_give_them_back((columns, mut entries) in keys()) {
            let short = Short { columns };
            // Some keys several times.
            for i in 0..entries.len() / 3 {
                entries[3 * i].0 = entries[2 * i].0.clone();
            }
            let mut items: Vec<Item> = entries.iter().map(|(key, tid)| Short::item(key, *tid)).collect();
            items.sort_unstable_by_key(|item| (item.abbrev, item.at));
            entries.sort_unstable();
            let given: Vec<(Vec<u8>, Tid)> =
                items.iter().map(|item| { let (key, tid) = short.entry(item); (key.to_vec(), tid) }).collect();
            prop_assert_eq!(given, entries);
        }
    }
}

//! An entry that was copied out of a node.

use crate::key::order::Tid;
use crate::memory::place::Ref;

/// An entry with its whole key.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) key: &'a [u8],
    /// The chunk that holds `key`, or 0.
    pub(crate) chunk: Ref,
    /// The abbreviation of the key under a comparator.
    pub(crate) abbrev: u64,
    pub(crate) tid: Tid,
    pub(crate) born: u32,
    pub(crate) dead: u32,
}

impl Entry<'_> {
    /// Returns the bytes of the key area that this entry takes behind `previous`. Entries with the
    /// same key share a record.
    pub(crate) fn size(&self, previous: Option<&Entry<'_>>, skip: usize, whole: bool) -> usize {
        let inline = if whole { 0 } else { skip + 8 };
        if self.chunk == 0 && !whole && self.key.len() <= inline
            || previous.is_some_and(|p| p.chunk == self.chunk && p.key == self.key)
        {
            0
        } else if self.chunk != 0 {
            6
        } else {
            2 + self.key.len() - inline
        }
    }
}

/// Returns the bytes of the key area that these entries take in one leaf, without the low key.
pub(crate) fn key_area_size<'a>(
    entries: impl Iterator<Item = Entry<'a>>,
    skip: usize,
    whole: bool,
) -> usize {
    let mut previous = None;
    let mut sum = 0;
    for entry in entries {
        sum += entry.size(previous.as_ref(), skip, whole);
        previous = Some(entry);
    }
    sum
}

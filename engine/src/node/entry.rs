//! An entry that was copied out of a node.

use crate::key::order::Tid;
use crate::memory::place::Ref;

/// An entry, its key whole.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) key: &'a [u8],
    /// The chunk that holds `key`, or 0.
    pub(crate) chunk: Ref,
    /// The number of the key under a comparator.
    pub(crate) abbrev: u64,
    pub(crate) tid: Tid,
    pub(crate) born: u32,
    pub(crate) dead: u32,
}

impl Entry<'_> {
    /// Bytes of the key area of this entry behind `previous`, with which it shares a record if the
    /// keys are the same.
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

/// Bytes of the key area of these entries in one leaf, low key not included.
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

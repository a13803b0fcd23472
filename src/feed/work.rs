//! The rows and blocks of one table that records name, and that a follower still has to look at.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use pgrx::pg_sys::{self, BlockNumber, OffsetNumber};

use super::rows::Action;
use crate::pg::guc::{self, Mechanism};

/// Most blocks that are noted for one index, some 100 MB of memory.
const MOST_BLOCKS: usize = 1 << 20;
/// Most blocks that are copied for an index that goes on by itself, some 6 MB of memory.
const MOST_COPIED: usize = MOST_BLOCKS / 16;
/// More line pointers than this have no room in a block: each takes four bytes.
const MOST_ROWS: usize = pg_sys::BLCKSZ as usize / 4;

/// Line pointers of one block.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Offsets(Vec<u64>);

impl Offsets {
    fn add(&mut self, offset: OffsetNumber) {
        let word = usize::from(offset) / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (offset % 64);
    }

    /// Whether this one is among them.
    pub fn has(&self, offset: OffsetNumber) -> bool {
        self.0.get(usize::from(offset) / 64).is_some_and(|word| word >> (offset % 64) & 1 != 0)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = OffsetNumber> {
        (0..self.0.len() * 64)
            .map(|offset| offset as OffsetNumber)
            .filter(|&offset| self.has(offset))
    }
}

/// The work in one block.
#[derive(Clone, Default)]
pub struct Look {
    /// Line pointers whose rows may be new.
    pub rows: Offsets,
    /// Whether the rows under all line pointers.
    pub all: bool,
    /// Whether line pointers may have become free. So it is where the rows under all are looked at.
    pub gone: bool,
}

impl Look {
    /// All that there is to look at.
    pub fn everything() -> Look {
        Look { rows: Offsets::default(), all: true, gone: true }
    }

    /// Whether rows are to be looked at.
    pub fn has_rows(&self) -> bool {
        self.all || !self.rows.is_empty()
    }

    /// Whether the row under a line pointer is to be looked at.
    pub fn wants(&self, offset: OffsetNumber) -> bool {
        self.all || self.rows.has(offset)
    }

    fn add(&mut self, action: Action) {
        match action {
            Action::Gone => self.gone |= guc::holds(Mechanism::FollowGone),
            // No block has this line pointer, so the record has a format that is not known here.
            Action::Row(offset) if usize::from(offset) < MOST_ROWS => self.rows.add(offset),
            Action::Row(_) | Action::Look => (self.all, self.gone) = (true, true),
        }
    }
}

/// The blocks that are to be looked at.
#[derive(Default)]
pub struct Work {
    noted: BTreeMap<BlockNumber, Look>,
    /// The whole table is to be looked at: the next block of it.
    whole: Option<BlockNumber>,
}

impl Work {
    /// The work of an index that has no entries yet: all of its table.
    pub fn of_new() -> Work {
        Work { noted: BTreeMap::new(), whole: Some(0) }
    }

    /// Returns the same work for an index that goes on by itself. Where too many blocks are noted,
    /// the whole table is to be looked at.
    pub fn copy(&self) -> Work {
        if self.noted.len() > MOST_COPIED {
            return Work::of_new();
        }
        Work { noted: self.noted.clone(), whole: self.whole }
    }

    /// Whether there is none.
    pub fn is_done(&self) -> bool {
        self.noted.is_empty() && self.whole.is_none()
    }

    /// Whether it is that of an index that has no entries yet.
    pub fn is_of_new(&self) -> bool {
        self.whole == Some(0) && self.noted.is_empty()
    }

    /// Whether the whole table is to be looked at.
    pub fn is_whole(&self) -> bool {
        self.whole.is_some()
    }

    /// Notes what a record says of a block. Where too many blocks are noted, the whole table is to
    /// be looked at.
    pub fn note(&mut self, block: BlockNumber, action: Action) {
        // A look at the whole table that has not come to the block yet will see what recovery has
        // done there.
        if self.whole.is_some_and(|next| block >= next) {
            return;
        }
        let full = self.noted.len() >= MOST_BLOCKS;
        match self.noted.entry(block) {
            Entry::Occupied(look) => look.into_mut().add(action),
            Entry::Vacant(_) if full => {
                self.noted.clear();
                self.whole = Some(0);
            }
            Entry::Vacant(place) => place.insert(Look::default()).add(action),
        }
    }

    /// Returns the next block of a table of `blocks` blocks and the work there. `None` if there is
    /// none.
    pub fn next(&mut self, blocks: BlockNumber) -> Option<(BlockNumber, Cow<'_, Look>)> {
        self.whole = self.whole.filter(|&next| next < blocks);
        match self.noted.first_key_value() {
            Some((&block, look)) => Some((block, Cow::Borrowed(look))),
            None => self.whole.map(|block| (block, Cow::Owned(Look::everything()))),
        }
    }

    /// The blocks that were noted, unless all of the table is to be looked at.
    pub fn noted(&self) -> Option<impl Iterator<Item = (BlockNumber, &Look)>> {
        self.whole.is_none().then(|| self.noted.iter().map(|(&block, look)| (block, look)))
    }

    /// The block that `next` gave was looked at.
    pub fn done(&mut self, block: BlockNumber) {
        if self.noted.pop_first().is_none() {
            self.whole = Some(block + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(work: &mut Work, blocks: BlockNumber) -> Option<(BlockNumber, Look)> {
        let (block, look) = work.next(blocks)?;
        let all = (block, look.into_owned());
        work.done(all.0);
        Some(all)
    }

    #[test]
    fn rows_of_a_block_are_looked_at_together() {
        let mut work = Work::default();
        assert!(work.is_done());
        for (block, action) in
            [(7, Action::Row(3)), (2, Action::Gone), (7, Action::Row(3)), (7, Action::Row(1))]
        {
            work.note(block, action);
        }
        let (block, look) = next(&mut work, 9).expect("two blocks");
        assert_eq!((block, look.gone, look.all), (2, true, false));
        let (block, look) = next(&mut work, 9).expect("one more");
        assert_eq!((block, look.gone), (7, false));
        assert_eq!(look.rows.iter().collect::<Vec<_>>(), [1, 3]);
        assert!(next(&mut work, 9).is_none() && work.is_done());
    }

    #[test]
    fn a_line_pointer_that_no_block_has_stands_for_all() {
        let mut work = Work::default();
        (1..300).for_each(|offset| work.note(1, Action::Row(offset)));
        work.note(1, Action::Row(u16::MAX));
        let (_, look) = next(&mut work, 2).expect("one block");
        assert!(look.all && look.wants(2000) && look.gone);
        assert_eq!(look.rows.iter().count(), 299);
    }

    #[test]
    fn a_copy_has_the_same_work_or_all_of_the_table() {
        let mut work = Work::default();
        work.note(3, Action::Row(1));
        let mut copy = work.copy();
        assert_eq!(next(&mut copy, 9).map(|(block, look)| (block, look.all)), Some((3, false)));
        assert!(copy.is_done() && !work.is_done());
        (0..=MOST_COPIED as u32).for_each(|block| work.note(block, Action::Gone));
        let mut copy = work.copy();
        assert_eq!(next(&mut copy, 9).map(|(block, look)| (block, look.all)), Some((0, true)));
    }

    #[test]
    fn a_new_index_looks_at_all_blocks_and_again_at_those_behind_it() {
        let mut work = Work::of_new();
        assert_eq!(next(&mut work, 3).map(|(block, look)| (block, look.all)), Some((0, true)));
        assert_eq!(next(&mut work, 3).map(|(block, _)| block), Some(1));
        // It has passed the first, and comes to the third.
        work.note(0, Action::Row(1));
        work.note(2, Action::Row(1));
        assert_eq!(next(&mut work, 3).map(|(block, look)| (block, look.all)), Some((0, false)));
        assert_eq!(next(&mut work, 3).map(|(block, look)| (block, look.all)), Some((2, true)));
        assert!(next(&mut work, 3).is_none() && work.is_done());
        let mut empty = Work::of_new();
        assert!(next(&mut empty, 0).is_none() && empty.is_done());
    }
}

//! The content of leaves: entries copied out, and written into new leaves (split, bottom-up build)
//! or into private memory that then replaces a leaf's content. All of this happens before a latch
//! is taken.

use crate::key::order::Tid;
use crate::memory::area::Area;
use crate::memory::place::Ref;
use crate::node::block::{Retry, SLOTS, Tail, View, tid_of};
use crate::node::chunk::chunk_key;
use crate::node::copy::append_key;
use crate::node::entry::Entry;
use crate::node::writer::LeafWriter;
use crate::packed::{Leaf, PART, Sorted};

/// The entries of one or two leaves, copied out.
pub(crate) struct Entries {
    keys: Vec<u8>,
    list: Vec<Stored>,
    /// Numbers of dead entries in the headers of the leaves, read before the copy.
    ndead: usize,
    area: Area,
    /// Keys are ordered as bytes.
    memcmp: bool,
}

#[derive(Clone, Copy)]
struct Stored {
    start: u32,
    len: u32,
    chunk: Ref,
    abbrev: u64,
    tid: Tid,
    born: u32,
    dead: u32,
}

impl Entries {
    pub(crate) fn new(area: Area, memcmp: bool) -> Entries {
        let (keys, list) = (Vec::with_capacity(4096), Vec::with_capacity(2 * SLOTS));
        Entries { keys, list, ndead: 0, area, memcmp }
    }

    /// Adds the entries of this state of a leaf, in order. A removal that marks an entry dead makes
    /// no new state: see `ndead`.
    pub(crate) fn load(&mut self, v: &View) -> Result<(), Retry> {
        self.ndead += v.b.ndead() as usize;
        if let Some(leaf) = v.packed()? {
            return self.load_packed(v, &leaf);
        }
        for rank in 0..v.mask().count_ones() as usize {
            let slot = v.slot(rank);
            let word = v.b.tid_word(slot);
            let start = self.keys.len();
            let chunk = match v.b.tail(word) {
                Tail::Chunk(chunk) => chunk,
                _ => {
                    append_key(self.area, v, slot, word, &mut self.keys)?;
                    0
                }
            };
            self.list.push(Stored {
                start: start as u32,
                len: (self.keys.len() - start) as u32,
                chunk,
                abbrev: v.b.prefix(slot),
                tid: tid_of(word),
                born: v.b.born(slot),
                dead: v.b.dead(slot),
            });
        }
        if v.valid() { Ok(()) } else { Err(Retry) }
    }

    fn load_packed(&mut self, v: &View, leaf: &Leaf<'_>) -> Result<(), Retry> {
        let (mut tids, mut ends, mut numbers) = ([0; PART], [0; PART], [0; PART]);
        let compared = !self.memcmp;
        for rank in (0..leaf.len()).step_by(PART) {
            let mut start = self.keys.len() as u32;
            let n = leaf.keys(rank..rank + PART, &mut self.keys, &mut ends);
            leaf.tids(rank..rank + PART, &mut tids);
            if compared {
                leaf.numbers(rank..rank + PART, &mut numbers);
            }
            for ((&end, &tid), &abbrev) in ends.iter().zip(&tids).zip(&numbers).take(n) {
                let (chunk, born, dead) = (0, 0, 0);
                self.list.push(Stored { start, len: end - start, chunk, abbrev, tid, born, dead });
                start = end;
            }
        }
        if v.valid() { Ok(()) } else { Err(Retry) }
    }

    /// Returns the number of dead entries at the time of the copy. If the latched leaves still have
    /// this number, all their deaths were copied: the number rises with each death, and falls only
    /// with another state.
    pub(crate) fn ndead(&self) -> usize {
        self.ndead
    }

    /// Adds one entry of a build.
    pub(crate) fn push(&mut self, entry: &Entry<'_>) {
        let start = self.keys.len();
        if entry.chunk == 0 {
            self.keys.extend_from_slice(entry.key);
        }
        self.list.push(Stored {
            start: start as u32,
            len: entry.key.len() as u32,
            chunk: entry.chunk,
            abbrev: entry.abbrev,
            tid: entry.tid,
            born: entry.born,
            dead: entry.dead,
        });
    }

    /// Keeps the entries from the `n`th on.
    pub(crate) fn keep_from(&mut self, n: usize) {
        // Keys that are here are one behind the other.
        let here = self.list[n..].iter().find(|e| e.chunk == 0);
        let start = here.map_or(self.keys.len(), |e| e.start as usize);
        self.keys.drain(..start);
        self.list.drain(..n);
        for e in &mut self.list {
            e.start = e.start.saturating_sub(start as u32);
        }
    }

    /// Keeps the first `n` entries, of leaves without long keys.
    pub(crate) fn truncate(&mut self, n: usize) {
        let Some(first) = self.list.get(n) else { return };
        self.keys.truncate(first.start as usize);
        self.list.truncate(n);
    }

    /// Prepares for entries of an index in this area, ordered as bytes or not.
    pub(crate) fn serve(&mut self, area: Area, memcmp: bool) {
        (self.area, self.memcmp) = (area, memcmp);
    }

    /// Returns true if the memory is small enough to be kept for the next use.
    pub(crate) fn is_small(&self) -> bool {
        self.keys.capacity() <= 1 << 16
    }

    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.list.clear();
        self.ndead = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn get(&self, i: usize) -> Entry<'_> {
        let e = &self.list[i];
        let key = match e.chunk {
            0 => &self.keys[e.start as usize..][..e.len as usize],
            chunk => chunk_key(self.area, chunk),
        };
        Entry { key, chunk: e.chunk, abbrev: e.abbrev, tid: e.tid, born: e.born, dead: e.dead }
    }

    pub(crate) fn tid(&self, i: usize) -> Tid {
        self.list[i].tid
    }

    /// Returns the key of an entry without a chunk.
    #[inline]
    pub(crate) fn key(&self, i: usize) -> &[u8] {
        let e = &self.list[i];
        debug_assert_eq!(e.chunk, 0);
        &self.keys[e.start as usize..][..e.len as usize]
    }

    /// Returns the number of a key, if there is a comparator.
    #[inline]
    pub(crate) fn number(&self, i: usize) -> Option<u64> {
        (!self.memcmp).then(|| self.list[i].abbrev)
    }

    /// Adds a new entry without a chunk at `rank`.
    pub(crate) fn insert(&mut self, rank: usize, key: &[u8], abbrev: u64, tid: Tid) {
        let (start, len) = (self.keys.len() as u32, key.len() as u32);
        self.keys.extend_from_slice(key);
        self.list.insert(rank, Stored { start, len, chunk: 0, abbrev, tid, born: 0, dead: 0 });
    }

    /// Merges new entries in byte order into those of one leaf without chunks. Both ascend, the new
    /// ones strictly. Leaves out entries that the leaf has. Returns for each new entry the number
    /// of entries up to it, and whether it was added.
    pub(crate) fn merge(
        &mut self,
        new: &(impl Sorted + ?Sized),
        range: core::ops::Range<usize>,
    ) -> Vec<(usize, bool)> {
        let room = Vec::with_capacity(self.list.len() + range.len());
        let mut old = core::mem::replace(&mut self.list, room).into_iter().peekable();
        let mut placed = Vec::with_capacity(range.len());
        for i in range {
            let (key, tid) = (new.key(i), new.tid(i));
            let order = |e: &Stored| {
                let here = &self.keys[e.start as usize..][..e.len as usize];
                here.cmp(key).then(e.tid.cmp(&tid))
            };
            while let Some(e) = old.next_if(|e| order(e).is_le()) {
                self.list.push(e);
            }
            let comes = self.list.last().is_none_or(|e| order(e).is_ne());
            if comes {
                let (start, len) = (self.keys.len() as u32, key.len() as u32);
                self.keys.extend_from_slice(key);
                let (chunk, abbrev, born, dead) = (0, 0, 0, 0);
                self.list.push(Stored { start, len, chunk, abbrev, tid, born, dead });
            }
            placed.push((self.list.len(), comes));
        }
        self.list.extend(old);
        placed
    }

    pub(crate) fn range(&self, range: core::ops::Range<usize>) -> impl Iterator<Item = Entry<'_>> {
        range.map(|i| self.get(i))
    }

    /// Builds a leaf from a range of the entries.
    pub(crate) fn write(&self, mut to: LeafWriter, range: core::ops::Range<usize>, side: usize) {
        let mut previous = None;
        for entry in self.range(range) {
            to.push(&entry, previous.as_ref());
            previous = Some(entry);
        }
        to.finish(side);
    }
}

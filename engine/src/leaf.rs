//! The content of leaves: entries copied out, and written into new leaves (split, bottom-up build) or
//! into private memory that then replaces a leaf's content. All of this happens before a latch is taken.

use crate::Tid;
use crate::area::Ref;
use crate::block::{
    Block, LEAF_HEAP, LOWBIG, LOWTID, Latch, SLOTS, Tail, View, WHOLE, full_mask, tid_of,
};
use crate::heap::Class;
use crate::key::{Retry, append_key, chunk_key, prefix_at};
use crate::packed::{Leaf, PART};
use crate::range::{Low, Right};
use crate::root::{Index, init_block};
use crate::stop::stop;

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
    /// Heap bytes of this entry behind `previous`, with which it shares a record if the keys are
    /// the same.
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

/// Heap bytes of these entries in one leaf, low key not included.
pub(crate) fn heap_size<'a>(
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

/// Fills a private leaf with entries in order.
pub(crate) struct LeafWriter {
    b: Block,
    skip: usize,
    whole: bool,
    n: usize,
    ndead: u8,
    max_born: u32,
    /// The tail of the last entry.
    tail: usize,
}

impl LeafWriter {
    /// Begins with an empty leaf of `class`. `flags`: WHOLE, LEFTMOST.
    pub(crate) fn new(b: Block, class: Class, flags: u8, low: Low<'_>, skip: usize) -> LeafWriter {
        init_block(b, class, 0, flags);
        b.set_skip(skip);
        let inline = low.inline(skip);
        let mut at = LEAF_HEAP;
        b.set_low_len(inline.len() as u16);
        b.write_bytes(at, inline);
        at += inline.len();
        if let Some(tid) = low.tid {
            b.write_bytes(at, &tid.to_le_bytes()[..6]);
            at += 6;
            b.set_flag(LOWTID, true);
        }
        if low.chunk != 0 {
            b.write_bytes(at, &low.chunk.to_le_bytes());
            at += 4;
            b.set_flag(LOWBIG, true);
        }
        b.set_heap_top(at as u16);
        LeafWriter { b, skip, whole: flags & WHOLE != 0, n: 0, ndead: 0, max_born: 0, tail: 0 }
    }

    /// Adds the next entry, behind `previous`.
    pub(crate) fn push(&mut self, entry: &Entry<'_>, previous: Option<&Entry<'_>>) {
        let b = self.b;
        let inline = if self.whole { 0 } else { self.skip + 8 };
        let prefix = if self.whole { entry.abbrev } else { prefix_at(entry.key, self.skip) };
        if entry.chunk == 0 && !self.whole && entry.key.len() <= inline {
            self.tail = entry.key.len() - self.skip;
        } else if entry.size(previous, self.skip, self.whole) > 0 {
            self.tail = match entry.chunk {
                0 => b.push_record(&entry.key[inline..]),
                chunk => b.push_chunk(chunk),
            };
        }
        b.set_prefix(self.n, prefix);
        b.set_tid_word(self.n, entry.tid, self.tail);
        b.set_born_dead(self.n, entry.born, entry.dead);
        self.ndead += u8::from(entry.dead != 0);
        self.max_born = self.max_born.max(entry.born);
        self.n += 1;
    }

    /// The leaf is complete on `side`.
    pub(crate) fn finish(self, side: usize) {
        let b = self.b;
        b.set_mask(side, full_mask(self.n));
        b.set_perm(side, &core::array::from_fn(|i| i as u8));
        b.set_ndead(self.ndead);
        b.set_max_born(self.max_born);
    }
}

/// Private memory for a leaf of any class.
#[repr(C, align(64))]
pub(crate) struct Page([u8; 16384]);

impl Page {
    /// A page, and what is to be arranged in it.
    pub(crate) fn with(entries: Entries) -> Box<(Entries, Page)> {
        // In place: the page is larger than what one likes to move.
        let mut new = Box::<(Entries, Page)>::new_zeroed();
        // SAFETY: the entries are initialised here, and zeroes are a page.
        unsafe {
            (&raw mut (*new.as_mut_ptr()).0).write(entries);
            new.assume_init()
        }
    }

    pub(crate) fn block(&mut self) -> Block {
        // SAFETY: aligned, as large as the largest class; the callers keep the page while they use
        // the block.
        unsafe { Block::private(self.0.as_mut_ptr().cast()) }
    }
}

/// The entries of one or two leaves, copied out.
pub(crate) struct Entries {
    keys: Vec<u8>,
    list: Vec<Stored>,
    /// How many dead entries the leaves said they have, before these were copied.
    ndead: usize,
    index: Index,
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
    pub(crate) fn new(index: Index) -> Entries {
        let (keys, list) = (Vec::with_capacity(4096), Vec::with_capacity(2 * SLOTS));
        Entries { keys, list, ndead: 0, index }
    }

    /// Adds the entries of this state of a leaf, in order. A removal marks an entry dead without making
    /// another state: see `ndead`.
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
                    append_key(self.index.area, v, slot, word, &mut self.keys)?;
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
        let compared = !self.index.memcmp();
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

    /// If the latched leaves still have so many dead entries, then the deaths that were copied are all
    /// there are: the number rises with each, under the latch, and falls only with another state.
    pub(crate) fn ndead(&self) -> usize {
        self.ndead
    }

    /// Adds one entry that is to be built.
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

    /// Those to come are of this index.
    pub(crate) fn serve(&mut self, index: Index) {
        self.index = index;
    }

    /// What these take is worth to be kept for others.
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
            chunk => chunk_key(self.index.area, chunk),
        };
        Entry { key, chunk: e.chunk, abbrev: e.abbrev, tid: e.tid, born: e.born, dead: e.dead }
    }

    pub(crate) fn tid(&self, i: usize) -> Tid {
        self.list[i].tid
    }

    /// The key of an entry that has no chunk.
    #[inline]
    pub(crate) fn key(&self, i: usize) -> &[u8] {
        let e = &self.list[i];
        debug_assert_eq!(e.chunk, 0);
        &self.keys[e.start as usize..][..e.len as usize]
    }

    /// The number of a key, if there is a comparator.
    #[inline]
    pub(crate) fn number(&self, i: usize) -> Option<u64> {
        (!self.index.memcmp()).then(|| self.list[i].abbrev)
    }

    /// Adds an entry at `rank`; it has no chunk, and nobody has seen it yet.
    pub(crate) fn insert(&mut self, rank: usize, key: &[u8], abbrev: u64, tid: Tid) {
        let (start, len) = (self.keys.len() as u32, key.len() as u32);
        self.keys.extend_from_slice(key);
        self.list.insert(rank, Stored { start, len, chunk: 0, abbrev, tid, born: 0, dead: 0 });
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

impl Latch {
    /// Replaces the content of the leaf by a private one and what it knows of its neighbour; gives the
    /// latch up.
    pub(crate) fn replace(self, content: Block, right: &Right, next: Ref) {
        self.exclude();
        self.b().copy_from(content, self.other());
        right.store(self.b(), next);
        stop!("split: left excluded");
        self.finish();
    }
}

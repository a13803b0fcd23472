//! Building an index bottom-up from sorted entries.
//!
//! Every worker fills a chain of leaves of its own from one shard of the entries; nobody else sees
//! them, so there are no latches. `adopt` puts the chains in order behind the empty first leaf, makes
//! level 1 over them, and publishes everything by one step: the first leaf's `next`.
//! Memory of chains that are not adopted belongs to the index until it is destroyed.

use crate::area::{Area, OutOfMemory, Ref};
use crate::barrier::Process;
use crate::block::{LEAF_HEAP, SLOTS, WHOLE};
use crate::heap::Class;
use crate::image::{Entries, Entry, Image, Low, MAX_INLINE_LOW, heap_size};
use crate::insert::MAX_RECORD;
use crate::key::{chunk_class, chunk_key, chunk_refs, common, init_chunk};
use crate::node::Separator;
use crate::root::{Index, leaf_class};
use crate::split::{High, MAX_SKIP, MIN_FREE};
use crate::{KeyOrder, MAX_KEY_LEN, Tid};
use core::cmp::Ordering;
use core::sync::atomic::Ordering::*;
use std::fmt;

/// Separators in an index node that is built.
const NODE_FILL: usize = 56;
/// Heap bytes after which a leaf is closed even if it has few entries.
const MAX_HEAP: usize = 12288;

/// Why a bottom-up build failed. The index is as empty as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// The area is full.
    OutOfMemory(OutOfMemory),
    /// The key has this many bytes, more than [`MAX_KEY_LEN`].
    KeyTooLong(usize),
    /// An entry is below its predecessor.
    OutOfOrder,
    /// Chains can only be adopted by an index without entries.
    NotEmpty,
}

impl From<OutOfMemory> for BuildError {
    fn from(e: OutOfMemory) -> Self {
        BuildError::OutOfMemory(e)
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::OutOfMemory(e) => e.fmt(f),
            BuildError::KeyTooLong(len) => {
                write!(f, "a key of {len} bytes is longer than {MAX_KEY_LEN}")
            }
            BuildError::OutOfOrder => f.write_str("entries are not in ascending order"),
            BuildError::NotEmpty => f.write_str("the index has entries"),
        }
    }
}

impl std::error::Error for BuildError {}

/// The low key of the leaf being filled.
#[derive(Default)]
struct OwnLow {
    key: Vec<u8>,
    tid: Option<Tid>,
    chunk: Ref,
}

impl OwnLow {
    fn low(&self, area: Area) -> Low<'_> {
        let key = if self.chunk != 0 { chunk_key(area, self.chunk) } else { &self.key };
        Low { key, tid: self.tid, chunk: self.chunk }
    }

    fn set(&mut self, low: &Low<'_>) {
        self.key.clear();
        if low.chunk == 0 {
            self.key.extend_from_slice(low.key);
        }
        (self.tid, self.chunk) = (low.tid, low.chunk);
    }
}

/// Builds one shard.
pub struct Builder {
    index: Index,
    /// Entries per leaf.
    fill: usize,
    entries: Entries,
    /// About the heap bytes of `entries`.
    heap: usize,
    low: OwnLow,
    leaves: Vec<Ref>,
    count: u64,
}

/// A shard that is built.
pub struct Chain {
    leaves: Vec<Ref>,
    count: u64,
}

impl Chain {
    /// How many entries it has.
    pub fn entries(&self) -> u64 {
        self.count
    }
}

impl Builder {
    /// Begins a shard for an index that has no entries.
    pub fn new(p: &Process, index: Index) -> Builder {
        debug_assert!(core::ptr::eq(p.area().at(index.root), index.area.at(index.root)));
        let fillfactor = index.shared().fillfactor.load(Relaxed) as usize;
        Builder {
            index,
            fill: (SLOTS * fillfactor / 100).max(1),
            entries: Entries::new(index.area),
            heap: 0,
            low: OwnLow::default(),
            leaves: Vec::new(),
            count: 0,
        }
    }

    /// Adds an entry, not below the one before; an equal one is dropped. It is older than every
    /// snapshot.
    pub fn push<O: KeyOrder>(&mut self, order: &O, key: &[u8], tid: Tid) -> Result<(), BuildError> {
        if key.len() > MAX_KEY_LEN {
            return Err(BuildError::KeyTooLong(key.len()));
        }
        let n = self.entries.len();
        let mut chunk = 0;
        if n > 0 {
            let last = self.entries.get(n - 1);
            let by_key = crate::compare(order, last.key, key);
            match by_key.then(last.tid.cmp(&tid)) {
                Ordering::Less => {}
                Ordering::Equal => return Ok(()),
                Ordering::Greater => return Err(BuildError::OutOfOrder),
            }
            if last.key == key && last.chunk != 0 {
                chunk = last.chunk;
                chunk_refs(self.index.area, chunk).fetch_add(1, Relaxed);
            }
        }
        let inline = if O::MEMCMP { 8 } else { 0 };
        if chunk == 0 && key.len() > MAX_RECORD + inline {
            chunk = self.index.heap().alloc(&self.index.area, chunk_class(key.len()))?;
            init_chunk(self.index.area, chunk, key);
        }
        let abbrev = if O::MEMCMP { 0 } else { order.abbrev(key) };
        let entry = Entry { key, chunk, abbrev, tid, born: 0, dead: 0 };
        if n == 0 {
            self.index.note_order::<O>();
            // Above everything in the shards before, whatever that is.
            let tid = Some(tid);
            let low = if key.len() > MAX_INLINE_LOW { chunk } else { 0 };
            self.low.set(&Low { key, tid, chunk: low });
        } else if n == self.fill || self.heap > MAX_HEAP {
            let last = self.entries.get(n - 1);
            let mut sep = Low { key, tid: Some(tid), chunk: 0 };
            if O::MEMCMP && last.key != key {
                sep = Low { key: &key[..common(last.key, key) + 1], tid: None, chunk: 0 };
            }
            if sep.key.len() > MAX_INLINE_LOW {
                (sep.key, sep.chunk) = (key, chunk);
            }
            self.flush(Some((&sep, abbrev)))?;
            self.low.set(&sep);
        }
        // Too much where keys share first bytes; the size is computed exactly in the end.
        self.heap += if chunk != 0 { 6 } else { key.len().saturating_sub(inline) + 2 };
        self.entries.push(&entry);
        self.count += 1;
        Ok(())
    }

    /// Makes a leaf of the entries at hand. `next`: the low key of the leaf to come.
    fn flush(&mut self, next: Option<(&Low<'_>, u64)>) -> Result<(), BuildError> {
        let memcmp = self.index.memcmp();
        let Builder { index, entries, low, leaves, .. } = self;
        let low = low.low(index.area);
        let n = entries.len();
        let skip = if memcmp {
            let last = entries.get(n - 1).key;
            let useful = last.len().saturating_sub(8).min(MAX_SKIP);
            let now = common(low.key, last);
            now.max(next.map_or(0, |(next, _)| common(low.key, next.key))).min(useful)
        } else {
            0
        };
        let need = heap_size(entries.range(0..n), skip, !memcmp);
        let class = leaf_class(low.size(skip) + MIN_FREE + need * SLOTS / self.fill);
        debug_assert!(low.size(skip) + MIN_FREE + need <= class.size() - LEAF_HEAP);
        let r = index.heap().alloc(&index.area, class)?;
        let b = index.block(r);
        let flags = if memcmp { 0 } else { WHOLE };
        let side = b.init_side();
        entries.write(Image::new(b, class, flags, Some(low), skip), 0..n, side);
        if low.chunk != 0 {
            chunk_refs(index.area, low.chunk).fetch_add(1, Relaxed);
        }
        if let Some((next, abbrev)) = next {
            High::new(memcmp, next, abbrev).set(b, 0, low.key);
        }
        if let Some(&prev) = leaves.last() {
            b.set_prev(prev);
            index.block(prev).set_next(r);
        }
        b.init_ver(false);
        leaves.push(r);
        entries.clear();
        self.heap = 0;
        Ok(())
    }

    /// Completes the shard.
    pub fn finish(mut self) -> Result<Chain, BuildError> {
        if self.entries.len() > 0 {
            self.flush(None)?;
        }
        Ok(Chain { leaves: self.leaves, count: self.count })
    }
}

impl Index {
    /// Makes the entries of the chains the content of this index, which has none yet. The chains
    /// are in order, each above the one before it.
    pub fn adopt(&self, p: &Process, chains: Vec<Chain>) -> Result<(), BuildError> {
        let root = self.shared();
        let leaves: Vec<Ref> = chains.iter().flat_map(|chain| &chain.leaves).copied().collect();
        let count: u64 = chains.iter().map(|chain| chain.count).sum();
        let Some(&head) = leaves.first() else { return Ok(()) };
        // Where one chain ends and the next begins.
        for pair in chains.iter().filter(|chain| chain.count > 0).collect::<Vec<_>>().windows(2) {
            let (tail, head) = (pair[0].leaves[pair[0].leaves.len() - 1], pair[1].leaves[0]);
            self.block(head).set_prev(tail);
            let (b, low) = (self.block(tail), self.separator_of((tail, 0)));
            b.set_next(head);
            self.set_node_high(b, &low.key, &self.built_separator(head));
        }
        // Level 1.
        let first_node = root.node.load(Relaxed);
        let mut nodes: Vec<Ref> = Vec::with_capacity(leaves.len() / NODE_FILL + 1);
        for (i, group) in leaves.chunks(NODE_FILL).enumerate() {
            let r = self.heap().alloc(&self.area, Class::INDEX)?;
            let b = self.block(r);
            let children: Vec<_> = group.iter().map(|&leaf| (leaf, self.number_of(leaf))).collect();
            let low = self.built_separator(group[0]);
            let high = leaves.get((i + 1) * NODE_FILL).map(|&leaf| self.built_separator(leaf));
            self.fill_node(b, &children, &low, high.as_ref());
            let prev = nodes.last().copied().unwrap_or(first_node);
            b.set_prev(prev);
            if prev != first_node {
                self.block(prev).set_next(r);
            }
            b.init_ver(false);
            for &leaf in group {
                self.block(leaf).set_parent(r);
            }
            nodes.push(r);
        }
        // Publish: level 0 first.
        let _section = p.enter();
        let leaf = root.leaf.load(Relaxed);
        let Some(latch) = self.block(leaf).latch() else { return Err(BuildError::NotEmpty) };
        let b = latch.b();
        if latch.v.mask() != 0 || b.next() != 0 {
            latch.release();
            return Err(BuildError::NotEmpty);
        }
        // Before leaves show: a separator of a new one, split from them, belongs behind this node.
        let Some(node_latch) = self.block(first_node).latch() else {
            latch.release();
            return Err(BuildError::NotEmpty);
        };
        let low = self.built_separator(head);
        self.block(head).set_prev(leaf);
        latch.exclude();
        b.set_mask(latch.other(), 0);
        b.set_flag(WHOLE, !self.memcmp());
        b.set_next(head);
        self.set_node_high(b, &[], &low);
        latch.finish();
        let m = node_latch.b();
        node_latch.exclude();
        m.set_perm(node_latch.other(), &m.perm(node_latch.v.side()));
        m.set_mask(node_latch.other(), node_latch.v.mask());
        m.set_next(nodes[0]);
        self.set_node_high(m, &[], &low);
        node_latch.finish();
        root.counters.leaves.fetch_add(leaves.len() as u32, Relaxed);
        root.counters.built.fetch_add(count as i64, Relaxed);
        root.top_state.nodes.fetch_add(nodes.len() as u32, Relaxed);
        self.rebuild_top();
        Ok(())
    }

    /// The low key of a leaf that was built.
    fn built_separator(&self, leaf: Ref) -> Separator {
        self.separator_of((leaf, self.number_of(leaf)))
    }

    /// Under a comparator, the number of a built leaf's low key, which is its first entry's.
    fn number_of(&self, leaf: Ref) -> u64 {
        let v = self.block(leaf).view();
        v.b.prefix(v.slot(0))
    }
}

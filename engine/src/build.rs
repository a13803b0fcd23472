//! Building an index bottom-up from sorted entries.
//!
//! Every worker fills a chain of leaves of its own from one shard of the entries; nobody else sees
//! them, so there are no latches. `adopt` puts the chains in order behind the empty first leaf, makes
//! level 1 over them, and publishes everything by one step: the first leaf's `next`.
//! Memory of chains that are not adopted belongs to the index until it is destroyed.

use crate::area::{OutOfMemory, Ref};
use crate::barrier::Process;
use crate::block::{CAPACITY, LEAF_HEAP, PACKED, WHOLE};
use crate::insert::MAX_RECORD;
use crate::key::{chunk_class, chunk_refs};
use crate::leaf::{Entries, Entry, LeafWriter, heap_size};
use crate::node::{Children, node_class};
use crate::pack::{MOST, Of, arrange_shaped, extend, init_packed, packed_class};
use crate::packed::{Draft, Shape};
use crate::range::{Low, LowBuf, MAX_INLINE_LOW, MAX_SKIP, Right, Span, common, likely};
use crate::root::{Identity, Index, init_block, leaf_class};
use crate::split::MIN_FREE;
use crate::{KeyOrder, MAX_KEY_LEN, Tid};
use core::cmp::Ordering;
use core::sync::atomic::Ordering::*;
use std::collections::TryReserveError;
use std::fmt;

/// Separators in an index node that is built.
const NODE_FILL: usize = 56;
/// Heap bytes after which a leaf is closed even if it has few entries.
const MAX_HEAP: usize = 12288;

/// When it is first looked at whether entries fit the first packed leaf.
const FIRST_LOOK: usize = 16;

/// Why a bottom-up build failed. The index is as empty as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// The area is full.
    OutOfMemory(OutOfMemory),
    /// This process gets no more memory for itself.
    NoMemory,
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

impl From<TryReserveError> for BuildError {
    fn from(_: TryReserveError) -> Self {
        BuildError::NoMemory
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::OutOfMemory(e) => e.fmt(f),
            BuildError::NoMemory => write!(f, "out of memory"),
            BuildError::KeyTooLong(len) => {
                write!(f, "a key of {len} bytes is longer than {MAX_KEY_LEN}")
            }
            BuildError::OutOfOrder => f.write_str("entries are not in ascending order"),
            BuildError::NotEmpty => f.write_str("the index has entries"),
        }
    }
}

impl std::error::Error for BuildError {}

/// Builds one shard.
pub struct Builder {
    index: Index,
    /// Entries per leaf.
    fill: usize,
    entries: Entries,
    /// About the heap bytes of `entries`.
    heap: usize,
    /// Leaves are packed where they can be.
    packs: bool,
    /// The leaf of `entries` will be packed,
    packing: bool,
    /// and whether they fit is looked at when there are so many.
    look: usize,
    /// How many the packed leaf before had: as many are likely to fit.
    before: usize,
    /// What the first ones have in common, which do.
    shape: Shape,
    draft: Box<Draft>,
    /// The low keys of the leaf of `entries`, and of the one behind it.
    low: LowBuf,
    high: LowBuf,
    /// How many bytes keys like the first are likely to share.
    likely: usize,
    leaves: Vec<Ref>,
    count: u64,
}

/// A shard that is built.
pub struct Chain {
    /// The index whose memory it is in.
    of: Identity,
    leaves: Vec<Ref>,
    count: u64,
}

/// A chain as plain numbers, by which the process that built it names it to the one that adopts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainName {
    /// Its first leaf; 0 if it has none.
    pub first: u32,
    /// How many leaves it has.
    pub leaves: u32,
    /// How many entries.
    pub entries: u64,
}

impl Chain {
    /// How many entries it has.
    pub fn entries(&self) -> u64 {
        self.count
    }

    /// The name by which other processes open the chain.
    pub fn name(&self) -> ChainName {
        let first = self.leaves.first().copied().unwrap_or(0);
        ChainName { first, leaves: self.leaves.len() as u32, entries: self.count }
    }

    /// The chain that another process has built for an index.
    ///
    /// # Safety
    /// `name` came from [`Chain::name`] of a chain of this index, which nobody has adopted, and what its builder
    /// wrote happened before.
    pub unsafe fn open(index: Index, name: ChainName) -> Result<Chain, BuildError> {
        let mut leaves: Vec<Ref> = Vec::new();
        leaves.try_reserve_exact(name.leaves as usize)?;
        let mut leaf = name.first;
        for _ in 0..name.leaves {
            leaves.push(leaf);
            leaf = index.block(leaf).next();
        }
        assert!(leaf == 0, "a chain has as many leaves as its name says");
        Ok(Chain { of: index.identity(), leaves, count: name.entries })
    }
}

impl Builder {
    /// Begins a shard for an index that has no entries.
    ///
    /// # Panics
    /// The process is one of another area.
    pub fn new(p: &Process, index: Index) -> Builder {
        index.check_area(p);
        let fillfactor = index.shared().fillfactor.load(Relaxed) as usize;
        Builder {
            index,
            fill: (CAPACITY * fillfactor / 100).max(1),
            entries: Entries::new(index),
            heap: 0,
            packs: index.packs(),
            packing: false,
            look: 0,
            before: 0,
            shape: Shape::default(),
            draft: Box::default(),
            low: LowBuf::new(index.area),
            high: LowBuf::new(index.area),
            likely: 0,
            leaves: Vec::new(),
            count: 0,
        }
    }

    /// Adds an entry, not below the one before; an equal one is dropped. It is older than every
    /// snapshot.
    ///
    /// # Panics
    /// The TID has more than 48 bits, or the order is of another kind than before.
    pub fn push<O: KeyOrder>(&mut self, order: &O, key: &[u8], tid: Tid) -> Result<(), BuildError> {
        if key.len() > MAX_KEY_LEN {
            return Err(BuildError::KeyTooLong(key.len()));
        }
        assert!(tid >> 48 == 0, "a TID has 48 bits");
        self.index.note_order::<O>();
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
            if last.chunk != 0 && last.key == key {
                chunk = last.chunk;
                chunk_refs(self.index.area, chunk).fetch_add(1, Relaxed);
            }
        }
        let inline = if O::MEMCMP { 8 } else { 0 };
        if chunk == 0 && key.len() > MAX_RECORD + inline {
            chunk = self.index.fresh(chunk_class(key.len()))?.chunk(key);
        }
        let abbrev = if O::MEMCMP { 0 } else { order.abbrev(key) };
        let entry = Entry { key, chunk, abbrev, tid, born: 0, dead: 0 };
        if n == 0 {
            // Above everything in the shards before, whatever that is.
            let chunk = if key.len() > MAX_INLINE_LOW { chunk } else { 0 };
            self.low.set(&Low { key, tid: Some(tid), chunk, abbrev });
            self.likely = key.len();
        }
        let packable = self.packable(&entry);
        self.entries.push(&entry);
        self.count += 1;
        if n == 0 {
            self.begin(packable);
        } else if self.packing && !packable {
            self.cut_packed(n)?;
            self.close(self.entries.len() - 1)?;
        } else if self.packing && n + 1 >= self.look {
            self.cut_packed(n + 1)?;
        } else if !self.packing && (n == self.fill || self.heap > MAX_HEAP) {
            self.close(n)?;
        }
        // Too much where keys share first bytes; the size is computed exactly in the end.
        self.heap += if chunk != 0 { 6 } else { key.len().saturating_sub(inline) + 2 };
        Ok(())
    }

    fn packable(&self, entry: &Entry<'_>) -> bool {
        self.packs && entry.chunk == 0 && entry.key.len() <= MAX_RECORD
    }

    /// Begins a leaf.
    fn begin(&mut self, packing: bool) {
        (self.packing, self.look, self.heap) = (packing, self.first_look(), 0);
        self.shape = Shape::default();
    }

    fn first_look(&self) -> usize {
        FIRST_LOOK.max(self.before * 7 / 8)
    }

    /// Makes packed leaves of the first `n` entries, until those that are left fit one.
    fn cut_packed(&mut self, mut n: usize) -> Result<(), BuildError> {
        // Each turn takes at least one entry.
        loop {
            let low = self.low.low().size(MAX_SKIP);
            let size = packed_class(low).size();
            let fillfactor = self.index.shared().fillfactor.load(Relaxed) as usize;
            let (entries, room) = (MOST * fillfactor / 100, size * fillfactor / 100);
            let mut used = 0;
            let all = Of(&self.entries, 0..n);
            extend(&mut self.shape, &all, |shape| {
                used = shape.size(&all, low, size);
                // One is taken as it is; if it is too long, it gets slots.
                shape.entries() <= entries.max(1) && used <= room.max(size / 4)
                    || shape.entries() == 1
            });
            let fit = self.shape.entries();
            if fit == n {
                // Not far behind the end: what was added in vain is added again.
                let more = (room.saturating_sub(used) * n * 7 / 8).checked_div(used).unwrap_or(1);
                self.look = self.first_look().max(n + more.clamp(1, n));
                return Ok(());
            }
            self.before = fit;
            self.close(fit)?;
            n -= fit;
        }
    }

    /// Makes a leaf of the first `n` entries; those behind them begin the next one.
    fn close(&mut self, n: usize) -> Result<(), BuildError> {
        let (last, first) = (self.entries.get(n - 1), self.entries.get(n));
        let mut sep = Low { key: first.key, tid: Some(first.tid), chunk: 0, abbrev: first.abbrev };
        if self.index.memcmp() && last.key != first.key {
            (sep.key, sep.tid) = (&first.key[..common(last.key, first.key) + 1], None);
        }
        if sep.key.len() > MAX_INLINE_LOW {
            (sep.key, sep.chunk) = (first.key, first.chunk);
        }
        self.high.set(&sep);
        let likely = likely(last.key, first.key);
        self.flush(n, false)?;
        core::mem::swap(&mut self.low, &mut self.high);
        self.likely = likely;
        self.entries.keep_from(n);
        let packing = self.packable(&self.entries.get(0));
        self.begin(packing);
        Ok(())
    }

    /// Makes a packed leaf of the first `n` entries; false if that cannot be.
    fn flush_packed(&mut self, n: usize, end: bool) -> Result<bool, BuildError> {
        let Builder { index, entries, shape, low, high, leaves, draft, .. } = self;
        let (low, high) = (low.low(), high.low());
        let high = (!end).then_some(&high);
        let class = packed_class(low.size(MAX_SKIP));
        let skip = index.skip_of(&low, high);
        if !arrange_shaped(draft, &Of(entries, 0..n), shape, &low, high, skip, class) {
            return Ok(false);
        }
        leaves.try_reserve(1)?;
        let leaf = index.fresh(class)?;
        let b = leaf.block();
        init_packed(b, draft, class, 0, &low, skip);
        if low.chunk != 0 {
            chunk_refs(index.area, low.chunk).fetch_add(1, Relaxed);
        }
        Right::new(index.memcmp(), low.key, b.skip(), high).store(b, 0);
        let (r, latch) = leaf.latch();
        if let Some(&prev) = leaves.last() {
            b.set_prev(prev);
            index.block(prev).set_next(r);
        }
        latch.release();
        leaves.push(r);
        Ok(true)
    }

    /// Makes a leaf of the first `n` entries, up to `high`, or at the end of the shard.
    fn flush(&mut self, n: usize, end: bool) -> Result<(), BuildError> {
        if self.packing && self.flush_packed(n, end)? {
            return Ok(());
        }
        let memcmp = self.index.memcmp();
        let Builder { index, entries, low, high, likely, leaves, .. } = self;
        let (low, high) = (low.low(), high.low());
        let high = (!end).then_some(&high);
        assert!(n <= CAPACITY, "more entries than slots");
        let skip = if memcmp {
            let last = entries.get(n - 1).key;
            let useful = last.len().saturating_sub(8).min(MAX_SKIP);
            let high = high.map(|high| high.key);
            Span { likely: *likely, low: low.key, last, high }.skip(useful)
        } else {
            0
        };
        let need = heap_size(entries.range(0..n), skip, !memcmp);
        let class = leaf_class(low.size(skip) + MIN_FREE + need * CAPACITY / self.fill);
        debug_assert!(low.size(skip) + MIN_FREE + need <= class.size() - LEAF_HEAP);
        leaves.try_reserve(1)?;
        let leaf = index.fresh(class)?;
        let b = leaf.block();
        let flags = if memcmp { 0 } else { WHOLE };
        let side = b.first_side();
        entries.write(LeafWriter::new(b, class, flags, low, skip), 0..n, side);
        if low.chunk != 0 {
            chunk_refs(index.area, low.chunk).fetch_add(1, Relaxed);
        }
        Right::new(memcmp, low.key, skip, high).store(b, 0);
        let (r, latch) = leaf.latch();
        if let Some(&prev) = leaves.last() {
            b.set_prev(prev);
            index.block(prev).set_next(r);
        }
        latch.release();
        leaves.push(r);
        Ok(())
    }

    /// Completes the shard.
    pub fn finish(mut self) -> Result<Chain, BuildError> {
        if self.packing {
            self.cut_packed(self.entries.len())?;
        }
        if self.entries.len() > 0 {
            self.flush(self.entries.len(), true)?;
        }
        Ok(Chain { of: self.index.identity(), leaves: self.leaves, count: self.count })
    }
}

impl Index {
    /// Makes the entries of the chains the content of this index, which has none yet. The chains
    /// are in order, each above the one before it.
    ///
    /// # Panics
    /// A chain was built for another index, or the process is one of another area.
    pub fn adopt(&self, p: &Process, chains: Vec<Chain>) -> Result<(), BuildError> {
        let root = self.shared();
        self.check_area(p);
        assert!(chains.iter().all(|chain| chain.of == self.identity()), "built for another index");
        // Until they are published, no leaf of the chains may move.
        let _collecting = root.collecting.lock();
        let mut leaves: Vec<Ref> = Vec::new();
        leaves.try_reserve_exact(chains.iter().map(|chain| chain.leaves.len()).sum())?;
        leaves.extend(chains.iter().flat_map(|chain| &chain.leaves));
        let count: u64 = chains.iter().map(|chain| chain.count).sum();
        let Some(&head) = leaves.first() else { return Ok(()) };
        let memcmp = self.memcmp();
        let [left, low, high] = &mut core::array::from_fn(|_| LowBuf::new(self.area));
        // Where one chain ends and the next begins.
        for pair in chains.iter().filter(|chain| chain.count > 0).collect::<Vec<_>>().windows(2) {
            let (tail, head) = (pair[0].leaves[pair[0].leaves.len() - 1], pair[1].leaves[0]);
            self.block(head).set_prev(tail);
            let b = self.block(tail);
            let (low, high) = (self.built_low(tail, low), self.built_low(head, high));
            Right::new(memcmp, low.key, b.skip(), Some(&high)).store(b, head);
        }
        // Level 1.
        let first_node = root.node.load(Relaxed);
        let mut nodes: Vec<Ref> = Vec::new();
        nodes.try_reserve_exact(leaves.len() / NODE_FILL + 1)?;
        for (i, group) in leaves.chunks(NODE_FILL).enumerate() {
            let low = self.built_low(group[0], low);
            let class = node_class(low.key.len());
            let node = self.fresh(class)?;
            let b = node.block();
            let mut children = Children::new();
            for &leaf in group {
                children.push(leaf, self.number_of(leaf));
            }
            let high = leaves.get((i + 1) * NODE_FILL).map(|&leaf| self.built_low(leaf, high));
            let likely = match i {
                0 => low.key.len(),
                _ => likely(self.built_low(leaves[i * NODE_FILL - 1], left).key, low.key),
            };
            init_block(b, class, 1, 0);
            self.fill_node(b, &children, &low, likely, 0, high.as_ref())
                .expect("nobody else knows these leaves");
            let (r, latch) = node.latch();
            let prev = nodes.last().copied().unwrap_or(first_node);
            b.set_prev(prev);
            if prev != first_node {
                self.block(prev).set_next(r);
            }
            for &leaf in group {
                self.block(leaf).set_parent(r);
            }
            latch.release();
            nodes.push(r);
        }
        // Both first nodes are empty in front, and leave nothing out.
        let range_end = Right::new(memcmp, &[], 0, Some(&self.built_low(head, low)));
        let first_built = nodes[0];
        // Publish: level 0 first.
        let _section = self.enter(p);
        let leaf = root.leaf.load(Relaxed);
        let Some(latch) = self.block(leaf).latch() else { return Err(BuildError::NotEmpty) };
        let b = latch.b();
        if !matches!(latch.v.entries(), Ok(0)) || b.next() != 0 {
            latch.release();
            return Err(BuildError::NotEmpty);
        }
        // Before leaves show: a separator of a new one, split from them, belongs behind this node.
        let Some(node_latch) = self.block(first_node).latch() else {
            latch.release();
            return Err(BuildError::NotEmpty);
        };
        self.block(head).set_prev(leaf);
        latch.exclude();
        if !b.has(PACKED) {
            b.set_mask(latch.other(), 0);
        }
        b.set_flag(WHOLE, !memcmp);
        range_end.store(b, head);
        latch.finish();
        let m = node_latch.b();
        node_latch.exclude();
        m.set_perm(node_latch.other(), &m.perm(node_latch.v.side()));
        m.set_mask(node_latch.other(), node_latch.v.mask());
        range_end.store(m, first_built);
        node_latch.finish();
        root.counters.leaves.fetch_add(leaves.len() as u32, Relaxed);
        root.counters.built.fetch_add(count as i64, Relaxed);
        self.nodes_made(nodes.len() as u32);
        self.rebuild_top();
        Ok(())
    }

    /// The low key of a leaf that was built, which nobody else knows.
    fn built_low<'a>(&self, leaf: Ref, to: &'a mut LowBuf) -> Low<'a> {
        let abbrev = self.number_of(leaf);
        to.load(leaf).map_or(Low::FIRST, |low| Low { abbrev, ..low })
    }

    /// Under a comparator, the number of a built leaf's low key, which is its first entry's.
    fn number_of(&self, leaf: Ref) -> u64 {
        let v = self.block(leaf).view();
        match v.packed() {
            Ok(Some(leaf)) => leaf.number(0),
            _ => v.b.prefix(v.slot(0)),
        }
    }
}

//! Building an index bottom-up from sorted entries.
//!
//! Every worker fills a chain of leaves of its own from one shard of the entries. No other process
//! sees the chain, so there are no latches. `adopt` puts the chains in order behind the empty first
//! leaf, makes level 1 over them, and publishes everything by one store: the first leaf's `next`.
//! Memory of chains that are not adopted belongs to the index until it is destroyed.

use crate::index::identity::Identity;
use crate::index::root::Index;
use crate::key::bytes::common;
use crate::key::order::{KeyOrder, Tid};
use crate::memory::area::OutOfMemory;
use crate::memory::place::Ref;
use crate::memory::process::Process;
use crate::node::block::{CAPACITY, LEAF_KEYS, MAX_RECORD, MIN_FREE, WHOLE};
use crate::node::chunk::{MAX_KEY_LEN, chunk_class, chunk_refs};
use crate::node::empty::leaf_class;
use crate::node::entries::Entries;
use crate::node::entry::{Entry, key_area_size};
use crate::node::fresh::Fresh;
use crate::node::low_key::{
    Low, LowKeyCopy, MAX_INLINE_LOW, MAX_SKIP, RangeEnd, SharedBytes, likely,
};
use crate::node::packing;
use crate::node::packing::{EntryRange, MOST, arrange_shaped, extend, init_packed, packed_class};
use crate::node::writer::LeafWriter;
use crate::packed::{Draft, Shape};
use core::cmp::Ordering;
use core::sync::atomic::Ordering::*;
use std::collections::TryReserveError;
use std::fmt;

/// Bytes of the key area after which a leaf is closed even if it has few entries.
const MAX_KEY_AREA: usize = 12288;

/// Number of entries after which the builder first checks whether they fit the first packed leaf.
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
    /// About the bytes of the key area of `entries`.
    key_area: usize,
    /// Whether leaves are packed if they can be.
    packs: bool,
    /// Whether the leaf of `entries` will be packed.
    packing: bool,
    /// The number of entries at which the builder checks next whether they fit.
    look: usize,
    /// The number of entries of the packed leaf before. As many are likely to fit the next one.
    before: usize,
    /// The shape of the first entries, which fit.
    shape: Shape,
    draft: Box<Draft>,
    /// The low key of the leaf of `entries`, and that of the leaf behind it.
    low: LowKeyCopy,
    high: LowKeyCopy,
    /// The number of bytes that keys like the first one are likely to share.
    likely: usize,
    leaves: Vec<Ref>,
    count: u64,
}

/// A shard that is built.
pub struct Chain {
    /// The index whose memory it is in.
    pub(super) of: Identity,
    pub(super) leaves: Vec<Ref>,
    pub(super) count: u64,
}

/// The name of a chain, as plain numbers, from the process that built it to the process that adopts
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainName {
    /// Its first leaf; 0 if it has none.
    pub first: u32,
    /// The number of its leaves.
    pub leaves: u32,
    /// The number of its entries.
    pub entries: u64,
}

impl Chain {
    /// Returns the number of its entries.
    pub fn entries(&self) -> u64 {
        self.count
    }

    /// Returns the name by which other processes open the chain.
    pub fn name(&self) -> ChainName {
        let first = self.leaves.first().copied().unwrap_or(0);
        ChainName { first, leaves: self.leaves.len() as u32, entries: self.count }
    }

    /// Opens a chain that another process has built for an index.
    ///
    /// # Safety
    /// `name` came from [`Chain::name`] of a chain of this index. No process has adopted it, and
    /// the stores of its builder happened before this call.
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
            entries: Entries::new(index.area, index.memcmp()),
            key_area: 0,
            packs: index.packs(),
            packing: false,
            look: 0,
            before: 0,
            shape: Shape::default(),
            draft: Box::default(),
            low: LowKeyCopy::new(index.area),
            high: LowKeyCopy::new(index.area),
            likely: 0,
            leaves: Vec::new(),
            count: 0,
        }
    }

    /// Adds an entry that is not below the one before. An equal one is dropped. The entry is older
    /// than every snapshot.
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
        if n == 0 {
            self.entries.serve(self.index.area, O::MEMCMP);
        } else {
            let last = self.entries.get(n - 1);
            let by_key = crate::key::order::compare(order, last.key, key);
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
        } else if !self.packing && (n == self.fill || self.key_area > MAX_KEY_AREA) {
            self.close(n)?;
        }
        // Too much where keys share first bytes; the size is computed exactly in the end.
        self.key_area += if chunk != 0 { 6 } else { key.len().saturating_sub(inline) + 2 };
        Ok(())
    }

    fn packable(&self, entry: &Entry<'_>) -> bool {
        self.packs && entry.chunk == 0 && entry.key.len() <= MAX_RECORD
    }

    /// Begins a leaf.
    fn begin(&mut self, packing: bool) {
        (self.packing, self.look, self.key_area) = (packing, self.first_look(), 0);
        self.shape = Shape::default();
    }

    fn first_look(&self) -> usize {
        FIRST_LOOK.max(self.before * 7 / 8)
    }

    /// Makes packed leaves of the first `n` entries, until the remaining ones fit one leaf.
    fn cut_packed(&mut self, mut n: usize) -> Result<(), BuildError> {
        // Each turn takes at least one entry.
        loop {
            let low = self.low.low().size(MAX_SKIP);
            let size = packed_class(low).size();
            let fillfactor = self.index.shared().fillfactor.load(Relaxed) as usize;
            let (entries, room) = (MOST * fillfactor / 100, size * fillfactor / 100);
            let mut used = 0;
            let all = EntryRange(&self.entries, 0..n);
            extend(&mut self.shape, &all, |shape| {
                used = shape.size(&all, low, size);
                // One is taken as it is; if it is too long, it gets slots.
                shape.entries() <= entries.max(1) && used <= room.max(size / 4)
                    || shape.entries() == 1
            });
            let fit = self.shape.entries();
            if fit == n {
                // Not far behind the end: entries that were added in vain are added again.
                let more = (room.saturating_sub(used) * n * 7 / 8).checked_div(used).unwrap_or(1);
                self.look = self.first_look().max(n + more.clamp(1, n));
                return Ok(());
            }
            self.before = fit;
            self.close(fit)?;
            n -= fit;
        }
    }

    /// Makes a leaf of the first `n` entries. The entries behind them begin the next one.
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

    /// Makes a packed leaf of the first `n` entries. Returns false if they cannot be packed.
    fn flush_packed(&mut self, n: usize, end: bool) -> Result<bool, BuildError> {
        let Builder { index, entries, shape, low, high, leaves, draft, .. } = self;
        let index = *index;
        let (low, high) = (low.low(), high.low());
        let high = (!end).then_some(&high);
        let class = packed_class(low.size(MAX_SKIP));
        let skip = packing::skip_of(index.memcmp(), &low, high);
        if !arrange_shaped(draft, &EntryRange(entries, 0..n), shape, &low, high, skip, class) {
            return Ok(false);
        }
        leaves.try_reserve(1)?;
        let leaf = index.fresh(class)?;
        init_packed(leaf.block(), draft, class, 0, &low, skip);
        append(index, leaves, leaf, &low, high);
        Ok(true)
    }

    /// Makes a leaf of the first `n` entries, up to `high`, or at the end of the shard.
    fn flush(&mut self, n: usize, end: bool) -> Result<(), BuildError> {
        if self.packing && self.flush_packed(n, end)? {
            return Ok(());
        }
        let memcmp = self.index.memcmp();
        let Builder { index, entries, low, high, likely, leaves, .. } = self;
        let index = *index;
        let (low, high) = (low.low(), high.low());
        let high = (!end).then_some(&high);
        assert!(n <= CAPACITY, "more entries than slots");
        let skip = if memcmp {
            let last = entries.get(n - 1).key;
            let useful = last.len().saturating_sub(8).min(MAX_SKIP);
            let high = high.map(|high| high.key);
            SharedBytes { likely: *likely, low: low.key, last, high }.skip(useful)
        } else {
            0
        };
        let need = key_area_size(entries.range(0..n), skip, !memcmp);
        let class = leaf_class(low.size(skip) + MIN_FREE + need * CAPACITY / self.fill);
        debug_assert!(low.size(skip) + MIN_FREE + need <= class.size() - LEAF_KEYS);
        leaves.try_reserve(1)?;
        let leaf = index.fresh(class)?;
        let b = leaf.block();
        let flags = if memcmp { 0 } else { WHOLE };
        let side = b.first_side();
        entries.write(LeafWriter::new(b, class, flags, low, skip), 0..n, side);
        append(index, leaves, leaf, &low, high);
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

/// Links a leaf with its content behind the last leaf of a chain. `leaves` has room for it.
fn append(
    index: Index,
    leaves: &mut Vec<Ref>,
    leaf: Fresh<'_>,
    low: &Low<'_>,
    high: Option<&Low<'_>>,
) {
    let b = leaf.block();
    if low.chunk != 0 {
        chunk_refs(index.area, low.chunk).fetch_add(1, Relaxed);
    }
    RangeEnd::new(index.memcmp(), low.key, b.skip(), high).store(b, 0);
    let (r, latch) = leaf.latch();
    if let Some(&prev) = leaves.last() {
        b.set_prev(prev);
        index.block(prev).set_next(r);
    }
    latch.release();
    leaves.push(r);
}

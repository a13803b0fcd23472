//! Comparing a searched key with the keys in nodes.
//!
//! A [`Probe`] is a position in the order of all entries, (key, TID). In byte order it is compared
//! with the bytes in the block directly, and the caller validates afterwards. A comparator sees
//! only private copies that have been validated. It may be slow, unwind, or use the engine, and
//! must not meet torn bytes.

use crate::key::bytes::prefix_at;
use crate::key::order::{KeyOrder, Tid};
use crate::memory::area::Area;
use crate::memory::place::Ref;
use crate::node::block::{Block, LEFTMOST, LOWBIG, Retry, SLOTS, Tail, View, tid_of};
use crate::node::chunk::chunk_key;
use crate::node::copy::{copy_key, copy_low_bytes};
use crate::node::low_key::first_child;
use crate::packed::{Found, Leaf};
use crate::sync::mutants::mutant;
use crate::sync::racy;
use core::cell::RefCell;
use core::cmp::Ordering;

/// A position among all entries.
pub(crate) struct Probe<'a, O> {
    pub(crate) order: &'a O,
    pub(crate) key: &'a [u8],
    pub(crate) tid: Tid,
    pub(crate) abbrev: u64,
    /// Above everything; key and TID do not count.
    pub(crate) last: bool,
    scratch: RefCell<Vec<u8>>,
}

impl<'a, O: KeyOrder> Probe<'a, O> {
    #[inline]
    pub(crate) fn new(order: &'a O, key: &'a [u8], tid: Tid) -> Self {
        let abbrev = if O::MEMCMP { 0 } else { order.abbrev(key) };
        Probe { order, key, tid, abbrev, last: false, scratch: RefCell::default() }
    }

    /// Returns the position behind all entries.
    pub(crate) fn end(order: &'a O) -> Self {
        let scratch = RefCell::default();
        Probe { order, key: &[], tid: Tid::MAX, abbrev: u64::MAX, last: true, scratch }
    }

    /// Returns the number by which a node with this `skip` is searched.
    #[inline]
    pub(crate) fn prefix(&self, skip: usize) -> u64 {
        if O::MEMCMP { prefix_at(self.key, skip) } else { self.abbrev }
    }

    /// Compares this key with the private copy of another one, which `copy` makes.
    #[inline]
    fn compare_copy(
        &self,
        copy: impl FnOnce(&mut Vec<u8>) -> Result<(), Retry>,
    ) -> Result<Ordering, Retry> {
        let mut other = self.scratch.take();
        other.clear();
        copy(&mut other)?;
        let ordering = crate::key::order::compare(self.order, self.key, &other);
        self.scratch.replace(other);
        Ok(ordering)
    }

    /// Finds the probe in a packed leaf. The caller validates.
    #[inline(always)]
    pub(crate) fn search_packed(&self, v: &View, leaf: &Leaf<'_>) -> Result<Found, Retry> {
        if O::MEMCMP {
            return Ok(leaf.search(self.key, self.tid));
        }
        leaf.search_by(self.abbrev, self.tid, self.with_keys(v, leaf))
    }

    /// Counts the entries of a packed leaf with a key below the probe's. The result is right if it
    /// is at least `from`. The caller validates.
    #[inline(always)]
    pub(crate) fn bound_packed(
        &self,
        v: &View,
        leaf: &Leaf<'_>,
        from: usize,
    ) -> Result<usize, Retry> {
        if O::MEMCMP {
            return Ok(leaf.lower_bound_from(self.key, from));
        }
        leaf.bound_by(self.abbrev, from, false, self.with_keys(v, leaf))
    }

    /// Under a comparator: returns true if the last key of a packed leaf is above the probe's. The
    /// leaf has entries. The caller validates.
    #[inline(always)]
    pub(crate) fn ends_above(&self, v: &View, leaf: &Leaf<'_>) -> Result<bool, Retry> {
        let n = leaf.len();
        Ok(leaf.bound_by(self.abbrev, n - 1, true, self.with_keys(v, leaf))? < n)
    }

    /// Compares this key with keys of a packed leaf, by private copies from this state.
    fn with_keys(&self, v: &View, leaf: &Leaf<'_>) -> impl FnMut(usize) -> Result<Ordering, Retry> {
        let spelling = leaf.spelling();
        move |k| {
            self.compare_copy(|out| {
                leaf.key(k, spelling.as_ref(), out);
                let valid = v.valid() || mutant!("a comparator gets what was validated");
                if valid { Ok(()) } else { Err(Retry) }
            })
        }
    }

    /// Compares this key with the key at `slot` of a leaf. Their prefixes are equal, and in byte
    /// order their first `skip` bytes, too.
    #[inline]
    pub(crate) fn compare_key(
        &self,
        area: Area,
        v: &View,
        slot: usize,
        word: u64,
    ) -> Result<Ordering, Retry> {
        if !O::MEMCMP {
            return self.compare_copy(|out| copy_key(area, v, slot, out));
        }
        let at = v.b.skip() + 8;
        let mine = self.key.len().saturating_sub(at);
        match v.b.tail(word) {
            // The shorter of two keys with equal padded prefixes lacks only zeros.
            Tail::Inline(len) => Ok(self.key.len().cmp(&(at - 8 + len))),
            Tail::Record(..) if mine == 0 => Ok(Ordering::Less),
            Tail::Record(offset, len) => {
                let (src, len) = v.b.bytes(offset, len);
                // SAFETY: `bytes` clips to the block.
                Ok(unsafe { racy::compare(&self.key[at..], src, len) })
            }
            // Also a key that has become short enough to be inline, since `skip` grew.
            Tail::Chunk(chunk) => {
                if !v.valid() {
                    return Err(Retry);
                }
                Ok(self.key.cmp(chunk_key(area, chunk)))
            }
        }
    }

    /// Compares this position with the low key of the node at `r`. It looks again while other
    /// processes change the node.
    pub(crate) fn compare_low(&self, area: Area, r: Ref) -> Result<Ordering, Retry> {
        let b = Block::at(area, r);
        loop {
            let v = b.view();
            if v.dead() {
                return Err(Retry);
            }
            if b.has(LEFTMOST) || self.last {
                return Ok(Ordering::Greater);
            }
            if b.level() == 1 && (b.has(LOWBIG) || !O::MEMCMP) {
                let first = first_child(&v);
                if !v.valid() {
                    continue;
                }
                return self.compare_low(area, first);
            }
            let ordering = match self.compare_low_key(area, &v) {
                Ok(Ordering::Equal) => self.tid.cmp(&b.low_tid()),
                Ok(unequal) => unequal,
                Err(Retry) => continue,
            };
            if v.valid() {
                return Ok(ordering);
            }
        }
    }

    fn compare_low_key(&self, area: Area, v: &View) -> Result<Ordering, Retry> {
        let b = v.b;
        if !O::MEMCMP {
            return self.compare_copy(|out| copy_low_bytes(area, v, out));
        }
        if b.has(LOWBIG) {
            let chunk = b.low_chunk();
            if !v.valid() {
                return Err(Retry);
            }
            return Ok(self.key.cmp(chunk_key(area, chunk)));
        }
        let (src, len) = b.low_bytes();
        // SAFETY: `low_bytes` clips to the block.
        Ok(unsafe { racy::compare(self.key, src, len) })
    }

    /// Compares the first bytes of this key with those that all keys of the node share (byte
    /// order).
    #[inline]
    pub(crate) fn compare_shared(&self, b: Block, skip: usize) -> Ordering {
        let (src, len) = b.low_bytes();
        let skip = skip.min(len);
        let mine = &self.key[..self.key.len().min(skip)];
        // SAFETY: `low_bytes` clips to the block. A shorter key is below.
        unsafe { racy::compare(mine, src, skip) }
    }
}

/// Where a probe is in a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// How many entries are below the probe (or not above it, if that was asked).
    pub(crate) rank: usize,
    pub(crate) n: usize,
    /// The slot before `rank`, if that entry has the probe's key and TID. (In a packed leaf slots
    /// are ranks.)
    pub(crate) hit: Option<usize>,
    /// A slot with the probe's key; in a packed leaf, the key's number.
    pub(crate) same: Option<usize>,
    /// In a packed leaf: how many keys are below the probe's.
    pub(crate) keys: usize,
}

impl Place {
    /// Makes the place from a search in a packed leaf of `n` entries.
    #[inline]
    pub(crate) fn packed(found: &Found, n: usize, upper: bool) -> Place {
        let equal = if upper { found.equal } else { 0 };
        Place {
            rank: found.rank + equal,
            n,
            hit: (equal > 0).then(|| found.rank + equal - 1),
            same: found.same.then_some(found.key),
            keys: found.key,
        }
    }
}

/// Finds the probe in a leaf by searching its prefixes for `p`. `upper`: entries equal to the probe
/// count as below it. The caller validates.
#[inline]
pub(crate) fn locate<O: KeyOrder>(
    area: Area,
    v: &View,
    probe: &Probe<'_, O>,
    p: u64,
    upper: bool,
) -> Result<Place, Retry> {
    if let Some(leaf) = v.packed()? {
        return Ok(Place::packed(&probe.search_packed(v, &leaf)?, leaf.len(), upper));
    }
    let (below, mut high) = equal_prefixes(v, p);
    let n = v.mask().count_ones() as usize;
    let mut place = Place { rank: below, n, hit: None, same: None, keys: 0 };
    while place.rank < high {
        let middle = place.rank.midpoint(high);
        let slot = v.slot(middle);
        let word = v.b.tid_word(slot);
        let by_key = probe.compare_key(area, v, slot, word)?;
        if by_key.is_eq() {
            place.same = Some(slot);
        }
        let ordering = by_key.then_with(|| probe.tid.cmp(&tid_of(word)));
        if ordering.is_gt() || upper && ordering.is_eq() {
            // The last time this happens it is for the entry just before the rank.
            place.rank = middle + 1;
            place.hit = ordering.is_eq().then_some(slot);
        } else {
            high = middle;
        }
    }
    debug_assert!(!v.valid() || place.rank <= n && n <= SLOTS);
    Ok(place)
}

/// Returns the ranks whose prefix is `p`: from, to. The caller validates.
#[inline]
pub(crate) fn equal_prefixes(v: &View, p: u64) -> (usize, usize) {
    let live = v.mask();
    let n = live.count_ones() as usize;
    // SAFETY: the prefixes of a block.
    let rank = |p| unsafe { crate::simd::search::rank(v.b.prefixes(), p, live) };
    let equal = |rank| rank < n && v.b.prefix(v.slot(rank)) == p;
    let below = rank(p);
    if !equal(below) {
        (below, below)
    } else if !equal(below + 1) {
        (below, below + 1)
    } else {
        (below, if p == u64::MAX { n } else { rank(p + 1) })
    }
}

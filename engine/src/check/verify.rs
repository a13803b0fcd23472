//! Checking the invariants of a whole index.

use crate::check::stats::Statistics;
use crate::index::root::Index;
use crate::index::snapshots::CURRENT;
use crate::key::buffer;
use crate::key::bytes::prefix_at;
use crate::key::order::{KeyOrder, Tid};
use crate::memory::place::Ref;
use crate::memory::process::Process;
use crate::node::block::{
    Block, DIRTY, EXACT, LEAF_KEYS, LEFTMOST, PACKED, SLOTS, Tail, View, WHOLE, tid_of,
};
use crate::node::chunk::{MAX_KEY_LEN, chunk_key};
use crate::node::copy::append_key;
use crate::node::entries::Entries;
use crate::node::low_key::{Low, LowKeyCopy, RangeEnd};
use crate::node::probe::Probe;
use crate::scan::walk::Walk;
use crate::tree::{seek, top};
use core::cmp::Ordering;
use std::fmt;

/// The result of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Live entries.
    pub live: u64,
    /// Dead entries that have not been removed.
    pub dead: u64,
    /// Leaves.
    pub leaves: u32,
    /// Index nodes.
    pub nodes: u32,
    /// Index nodes that the flat top has.
    pub top: u32,
}

/// A violated invariant, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The node, as a reference.
    pub block: u32,
    /// The violation, in words.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}: {}", self.block, self.what)
    }
}

impl std::error::Error for Violation {}

macro_rules! check {
    ($block:expr, $holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err(Violation { block: $block, what: format!($($what)+) });
        }
    };
}

/// Checking an index.
pub trait Verify {
    /// Walks over the index and checks its invariants. Calls `entry` with every live entry in
    /// order. With `strict` the caller is the only user of the index, and the whole structure is
    /// checked. Without it only the order of the entries is checked, which holds beside writers.
    fn verify<O: KeyOrder>(
        &self,
        p: &Process,
        order: &O,
        strict: bool,
        entry: &mut dyn FnMut(&[u8], Tid),
    ) -> Result<VerifyReport, Violation>;
}

impl Verify for Index {
    fn verify<O: KeyOrder>(
        &self,
        p: &Process,
        order: &O,
        strict: bool,
        entry: &mut dyn FnMut(&[u8], Tid),
    ) -> Result<VerifyReport, Violation> {
        let mut report = VerifyReport::default();
        if strict {
            let _section = self.enter(p);
            let leaves = verify_leaves(self, order, &mut report)?;
            verify_nodes(self, order, &leaves, &mut report)?;
            verify_counts(self, &report)?;
        }
        let live = verify_order(self, p, order, entry)?;
        if strict {
            check!(
                self.root,
                live == report.live,
                "a walk found {live} of {} entries",
                report.live
            );
        }
        report.live = live;
        Ok(report)
    }
}

fn verify_order<O: KeyOrder>(
    index: &Index,
    p: &Process,
    order: &O,
    entry: &mut dyn FnMut(&[u8], Tid),
) -> Result<u64, Violation> {
    let mut walk = Walk::new(p, *index, CURRENT);
    let mut last: Option<(Vec<u8>, Tid)> = None;
    let mut live = 0;
    while walk.next_leaf() {
        for i in 0..walk.len() {
            let (key, tid) = (walk.key(i), walk.tid(i));
            if let Some((last_key, last_tid)) = &last {
                let ordering = compare(order, last_key, key).then(last_tid.cmp(&tid));
                check!(index.root, ordering.is_lt(), "entry {key:?} {tid} out of order");
            }
            let (last_key, last_tid) = last.get_or_insert_default();
            buffer::set(last_key, key);
            *last_tid = tid;
            entry(key, tid);
            live += 1;
        }
    }
    Ok(live)
}

/// The entry before: its key, its TID, and the term in which it died, or 0.
type Last = Option<(Vec<u8>, Tid, u32)>;

fn verify_leaves<O: KeyOrder>(
    index: &Index,
    order: &O,
    report: &mut VerifyReport,
) -> Result<Vec<Ref>, Violation> {
    let mut leaves = Vec::new();
    let [low, before] = &mut core::array::from_fn(|_| LowKeyCopy::new(index.area));
    let mut at = index.shared().leaf.load(core::sync::atomic::Ordering::Acquire);
    let mut last: Last = None;
    while at != 0 {
        let b = index.block(at);
        let v = b.view();
        let next = b.next();
        check!(at, !v.dead(), "a dead leaf is linked");
        check!(at, b.level() == 0, "level {} among the leaves", b.level());
        check!(at, b.parent() != 0, "no separator");
        check!(at, b.has(LEFTMOST) == leaves.is_empty(), "leftmost flag");
        let low = low_of(order, at, low);
        check!(at, low.is_first() == leaves.is_empty(), "an empty low key");
        let prev = leaves.last().map_or(0, |&r| r);
        check!(at, b.prev() == prev, "prev is {}, not {prev}", b.prev());
        if prev != 0 {
            let before = before.low();
            let ordering = if before.is_first() {
                Ordering::Less
            } else {
                compare(order, before.key, low.key)
                    .then(before.tid.unwrap_or(0).cmp(&low.tid.unwrap_or(0)))
            };
            check!(at, ordering.is_lt(), "low keys out of order");
            check_high::<O>(prev, index.block(prev), &before, &low)?;
        }
        verify_leaf(index, order, at, &v, &low, &mut last, report)?;
        report.leaves += 1;
        leaves.push(at);
        before.set(&low);
        // A writer beside a strict check is a mistake of the caller, and is reported.
        check!(at, v.valid(), "changed during a strict check");
        at = next;
    }
    Ok(leaves)
}

fn verify_leaf<O: KeyOrder>(
    index: &Index,
    order: &O,
    at: Ref,
    v: &View,
    low: &Low<'_>,
    last: &mut Last,
    report: &mut VerifyReport,
) -> Result<(), Violation> {
    let b = v.b;
    if b.has(PACKED) {
        return verify_packed(index, order, at, v, low, last, report);
    }
    let n = check_perm(at, v)?;
    check!(at, n == 0 || b.has(WHOLE) != O::MEMCMP, "flag WHOLE");
    check!(at, b.keys_top() as usize <= b.size(), "key area beyond the block");
    check!(at, b.skip() <= low.key.len(), "skip {} of {:?}", b.skip(), low.key);
    let mut ndead = 0;
    for rank in 0..n {
        let slot = v.slot(rank);
        let word = b.tid_word(slot);
        let (born, dead) = (b.born(slot), b.dead(slot));
        match b.tail(word) {
            Tail::Inline(_) => check!(at, O::MEMCMP, "an inline key under a comparator"),
            Tail::Record(offset, len) => {
                let key_area = LEAF_KEYS + 2..=b.keys_top() as usize;
                check!(at, key_area.contains(&offset), "record at {offset}");
                check!(at, key_area.contains(&(offset + len)), "record end {}", offset + len);
            }
            Tail::Chunk(chunk) => {
                check!(at, v.valid(), "changed during a strict check");
                let len = chunk_key(index.area, chunk).len();
                check!(at, len <= MAX_KEY_LEN, "a chunk of {len} bytes");
            }
        }
        let mut key = Vec::new();
        let copied = append_key(index.area, v, slot, word, &mut key);
        check!(at, copied.is_ok() && v.valid(), "changed during a strict check");
        let prefix = if O::MEMCMP { prefix_at(&key, b.skip()) } else { order.abbrev(&key) };
        check!(at, b.prefix(slot) == prefix, "prefix of {key:?}");
        check!(
            at,
            key.starts_with(&low.key[..b.skip()]),
            "{key:?} does not share {low:?}",
            low = low.key
        );
        let tid = tid_of(word);
        let found = find(index, order, at, low, (&key, tid))?.map(|slot| b.born(slot) >= born);
        check!(at, found == Some(true), "{key:?} {tid} is not found");
        check_last(order, at, last, (&key, tid), born)?;
        check!(at, born <= b.max_born(), "born {born} after {}", b.max_born());
        check!(at, dead == 0 || dead >= born, "dead {dead} before born {born}");
        ndead += u8::from(dead != 0);
        *last = Some((key, tid, dead));
    }
    check!(at, ndead == b.ndead(), "{ndead} dead entries, not {}", b.ndead());
    check!(at, ndead == 0 || b.has(DIRTY), "dead entries, and not on a list");
    report.dead += u64::from(ndead);
    report.live += n as u64 - u64::from(ndead);
    Ok(())
}

/// Checks a packed leaf.
fn verify_packed<O: KeyOrder>(
    index: &Index,
    order: &O,
    at: Ref,
    v: &View,
    low: &Low<'_>,
    last: &mut Last,
    report: &mut VerifyReport,
) -> Result<(), Violation> {
    let b = v.b;
    check!(at, b.skip() <= low.key.len(), "skip {} of {:?}", b.skip(), low.key);
    check!(at, b.ndead() == 0, "{} dead entries in a packed leaf", b.ndead());
    let mut entries = Entries::new(index.area, index.memcmp());
    let loaded = entries.load(v);
    check!(at, loaded.is_ok(), "no packed leaf, or changed during a strict check");
    for (rank, entry) in entries.range(0..entries.len()).enumerate() {
        let (key, tid) = (entry.key, entry.tid);
        let found = find(index, order, at, low, (key, tid))?;
        check!(at, found == Some(rank), "{key:?} {tid} is not found at {rank}");
        if !O::MEMCMP {
            check!(at, entry.abbrev == order.abbrev(key), "number of {key:?}");
        }
        check_last(order, at, last, (key, tid), 0)?;
        *last = Some((key.to_vec(), tid, 0));
    }
    report.live += entries.len() as u64;
    Ok(())
}

/// Checks that an entry belongs to this leaf: a search leads here, and the entry is not below the
/// low key. Returns the slot or rank that the search finds.
fn find<O: KeyOrder>(
    index: &Index,
    order: &O,
    at: Ref,
    low: &Low<'_>,
    (key, tid): (&[u8], Tid),
) -> Result<Option<usize>, Violation> {
    let spot = seek::seek(index, &Probe::new(order, key, tid), true);
    check!(at, spot.leaf == at, "{key:?} {tid} is searched in {}", spot.leaf);
    let ordering = compare(order, low.key, key).then(low.tid.unwrap_or(0).cmp(&tid));
    let inside = low.is_first() || ordering.is_le();
    check!(at, inside, "{key:?} {tid} below the low key {:?}", low.key);
    Ok(spot.place.hit)
}

/// Checks that an entry, born in the term `born`, is behind the last one, or is its next life.
fn check_last<O: KeyOrder>(
    order: &O,
    at: Ref,
    last: &Last,
    (key, tid): (&[u8], Tid),
    born: u32,
) -> Result<(), Violation> {
    let Some((last_key, last_tid, last_end)) = last else { return Ok(()) };
    let ordering = compare(order, last_key, key).then(last_tid.cmp(&tid));
    check!(at, ordering.is_le(), "{key:?} {tid} behind {last_key:?} {last_tid}");
    let next_life = *last_end != 0 && *last_end <= born;
    check!(at, ordering.is_lt() || next_life, "{key:?} {tid} lives twice");
    Ok(())
}

fn verify_nodes<O: KeyOrder>(
    index: &Index,
    order: &O,
    leaves: &[Ref],
    report: &mut VerifyReport,
) -> Result<(), Violation> {
    let mut rest = leaves;
    let mut at = index.shared().node.load(core::sync::atomic::Ordering::Acquire);
    let mut prev = 0;
    let mut bufs: [LowKeyCopy; 3] = core::array::from_fn(|_| LowKeyCopy::new(index.area));
    let [low, before, leaf_low] = &mut bufs;
    while at != 0 {
        let v = index.block(at).view();
        let b = v.b;
        let next = b.next();
        check!(at, !v.dead(), "a dead index node is linked");
        check!(at, b.level() == 1, "level {} in level 1", b.level());
        let n = check_perm(at, &v)?;
        check!(at, n > 0, "an empty index node");
        check!(at, n <= rest.len(), "more separators than leaves");
        let low = low_of(order, rest[0], low);
        check!(at, b.prev() == prev, "prev is {}, not {prev}", b.prev());
        for (rank, leaf) in rest[..n].iter().enumerate() {
            let leaf_low = low_of(order, *leaf, leaf_low);
            let slot = v.slot(rank);
            let child = b.child(slot);
            check!(at, child & !EXACT == *leaf, "separator {rank} leads to {child}, not {leaf}");
            check!(at, index.block(*leaf).parent() == at, "leaf {leaf} has another parent");
            if leaf_low.is_first() {
                check!(at, b.prefix(slot) == 0 && child & EXACT != 0, "first separator");
            } else {
                let (prefix, exact) = leaf_low.number(O::MEMCMP, b.skip());
                check!(at, b.prefix(slot) == prefix, "prefix of separator {rank}");
                check!(at, (child & EXACT != 0) == exact, "exactness of separator {rank}");
                let shared = &low.key[..b.skip().min(low.key.len())];
                check!(at, leaf_low.key.starts_with(shared), "skip of separator {rank}");
            }
        }
        if prev != 0 {
            check_high::<O>(prev, index.block(prev), &before.low(), &low)?;
            let probe = Probe::new(order, low.key, low.tid.unwrap_or(0));
            check!(at, top_reaches(index, &probe, at), "the flat top leads to the right of it");
        }
        report.nodes += 1;
        before.set(&low);
        prev = at;
        rest = &rest[n..];
        check!(at, v.valid(), "changed during a strict check");
        at = next;
    }
    check!(index.root, rest.is_empty(), "{} leaves without separator", rest.len());
    report.top = top::nodes_in_top(index);
    Ok(())
}

/// Returns the low key of a linked leaf, with its abbreviation.
fn low_of<'a, O: KeyOrder>(order: &O, leaf: Ref, to: &'a mut LowKeyCopy) -> Low<'a> {
    let low = to.load(leaf).unwrap_or(Low::FIRST);
    Low { abbrev: if O::MEMCMP { 0 } else { order.abbrev(low.key) }, ..low }
}

/// Returns true if the flat top leads to `node`, or to a node left of it.
fn top_reaches<O: KeyOrder>(index: &Index, probe: &Probe<'_, O>, node: Ref) -> bool {
    let mut at = top::top(index, probe);
    while at != 0 && at != node {
        let v = index.block(at).view();
        // One that died leads to the left.
        let next = if v.dead() { v.b.prev() } else { v.b.next() };
        if !v.valid() {
            return false;
        }
        at = next;
    }
    at == node
}

fn verify_counts(index: &Index, report: &VerifyReport) -> Result<(), Violation> {
    let stats = index.stats();
    let [leaves, nodes, _] = stats.blocks;
    check!(index.root, leaves == report.leaves, "{leaves} leaves counted, {} found", report.leaves);
    check!(index.root, nodes == report.nodes, "{nodes} nodes counted, {} found", report.nodes);
    check!(
        index.root,
        stats.live == report.live,
        "{} live counted, {} found",
        stats.live,
        report.live
    );
    Ok(())
}

/// Checks that the first slots of the permutation are the live ones, each once.
fn check_perm(at: Ref, v: &View) -> Result<usize, Violation> {
    let n = v.mask().count_ones() as usize;
    let seen = (0..n).fold(0u64, |mask, rank| mask | 1 << v.slot(rank));
    check!(at, n <= SLOTS && seen == v.mask(), "permutation and mask disagree");
    Ok(n)
}

fn check_high<O: KeyOrder>(
    at: Ref,
    b: Block,
    low: &Low<'_>,
    high: &Low<'_>,
) -> Result<(), Violation> {
    let right = RangeEnd::new(O::MEMCMP, low.key, b.skip(), Some(high));
    check!(at, right.is_stored(b), "high is {:x}, not {right:x?}", b.high());
    Ok(())
}

fn compare<O: KeyOrder>(order: &O, a: &[u8], b: &[u8]) -> Ordering {
    crate::key::order::compare(order, a, b)
}

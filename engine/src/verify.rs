//! Walking a whole index and checking what must hold.

use crate::area::Ref;
use crate::barrier::Process;
use crate::block::{
    Block, DIRTY, EXACT, HIGHEXACT, LEAF_HEAP, LEFTMOST, SLOTS, Tail, View, WHOLE, tid_of,
};
use crate::key::{Probe, append_key, chunk_key, low_of, prefix_at};
use crate::root::{CURRENT, Index};
use crate::top::is_exact;
use crate::{Cursor, KeyOrder, MAX_KEY_LEN, Tid};
use core::cmp::Ordering;
use std::fmt;

/// What a walk found.
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
}

/// What does not hold, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The node, as a reference.
    pub block: u32,
    /// What was found.
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

/// A key with a TID that may be missing.
#[derive(Clone, Default)]
struct Low {
    key: Vec<u8>,
    tid: Tid,
    with_tid: bool,
    first: bool,
}

impl Index {
    /// Walks the index and checks its invariants; `entry` is called with every live entry in order.
    /// `strict`: nobody else uses the index, and the whole structure is checked. Otherwise only what
    /// holds beside writers: the order of the entries.
    pub fn verify<O: KeyOrder>(
        &self,
        p: &Process,
        order: &O,
        strict: bool,
        entry: &mut dyn FnMut(&[u8], Tid),
    ) -> Result<VerifyReport, Violation> {
        let mut report = VerifyReport::default();
        if strict {
            let _section = p.enter();
            let leaves = self.verify_leaves(order, &mut report)?;
            self.verify_nodes(order, &leaves, &mut report)?;
            self.verify_counts(&report)?;
        }
        let live = self.verify_order(p, order, entry)?;
        if strict {
            check!(self.root, live == report.live, "scan found {live} of {} entries", report.live);
        }
        report.live = live;
        Ok(report)
    }

    fn verify_order<O: KeyOrder>(
        &self,
        p: &Process,
        order: &O,
        entry: &mut dyn FnMut(&[u8], Tid),
    ) -> Result<u64, Violation> {
        let mut cursor = Cursor::new(true);
        cursor.set_range(&[], None, CURRENT);
        let mut last: Option<(Vec<u8>, Tid)> = None;
        let mut live = 0;
        while cursor.next(p, *self, order) > 0 {
            for i in 0..cursor.len() {
                let (key, tid) = (cursor.key(i), cursor.tid(i));
                if let Some((last_key, last_tid)) = &last {
                    let ordering = compare(order, last_key, key).then(last_tid.cmp(&tid));
                    check!(self.root, ordering.is_lt(), "entry {key:?} {tid} out of order");
                }
                let (last_key, last_tid) = last.get_or_insert_default();
                last_key.clear();
                last_key.extend_from_slice(key);
                *last_tid = tid;
                entry(key, tid);
                live += 1;
            }
        }
        Ok(live)
    }

    fn verify_leaves<O: KeyOrder>(
        &self,
        order: &O,
        report: &mut VerifyReport,
    ) -> Result<Vec<(Ref, Low)>, Violation> {
        let mut leaves: Vec<(Ref, Low)> = Vec::new();
        let mut at = self.shared().leaf.load(core::sync::atomic::Ordering::Acquire);
        let mut last: Option<(Vec<u8>, Tid, u32)> = None;
        while at != 0 {
            let b = self.block(at);
            let v = b.view();
            check!(at, !v.dead(), "a dead leaf is linked");
            check!(at, b.level() == 0, "level {} among the leaves", b.level());
            check!(at, b.parent() != 0, "no separator");
            let mut low = Low { first: leaves.is_empty(), ..Low::default() };
            check!(at, b.has(LEFTMOST) == low.first, "leftmost flag");
            if let Some((tid, with_tid)) = low_of(self.area, at, &mut low.key) {
                (low.tid, low.with_tid) = (tid, with_tid);
            }
            let prev = leaves.last().map_or(0, |&(r, _)| r);
            check!(at, b.prev() == prev, "prev is {}, not {prev}", b.prev());
            if let Some((_, before)) = leaves.last() {
                let ordering = if before.first {
                    Ordering::Less
                } else {
                    compare(order, &before.key, &low.key).then(before.tid.cmp(&low.tid))
                };
                check!(at, ordering.is_lt(), "low keys out of order");
                check_high::<O>(order, prev, self.block(prev), before, &low)?;
            }
            self.verify_leaf(order, at, &v, &low, &mut last, report)?;
            report.leaves += 1;
            leaves.push((at, low));
            at = b.next();
        }
        Ok(leaves)
    }

    fn verify_leaf<O: KeyOrder>(
        &self,
        order: &O,
        at: Ref,
        v: &View,
        low: &Low,
        last: &mut Option<(Vec<u8>, Tid, u32)>,
        report: &mut VerifyReport,
    ) -> Result<(), Violation> {
        let b = v.b;
        let n = check_perm(at, v)?;
        check!(at, n == 0 || b.has(WHOLE) != O::MEMCMP, "flag WHOLE");
        check!(at, b.heap_top() as usize <= b.size(), "heap beyond the block");
        check!(at, b.skip() <= low.key.len(), "skip {} of {:?}", b.skip(), low.key);
        let mut ndead = 0;
        for rank in 0..n {
            let slot = v.slot(rank);
            let word = b.tid_word(slot);
            let (born, dead) = (b.born(slot), b.dead(slot));
            match b.tail(word) {
                Tail::Inline(_) => check!(at, O::MEMCMP, "an inline key under a comparator"),
                Tail::Record(offset, len) => {
                    let heap = LEAF_HEAP + 2..=b.heap_top() as usize;
                    check!(at, heap.contains(&offset), "record at {offset}");
                    check!(at, heap.contains(&(offset + len)), "record end {}", offset + len);
                }
                Tail::Chunk(chunk) => {
                    let len = chunk_key(self.area, chunk).len();
                    check!(at, len <= MAX_KEY_LEN, "a chunk of {len} bytes");
                }
            }
            let mut key = Vec::new();
            let copied = append_key(self.area, v, slot, word, &mut key);
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
            let probe = Probe::new(order, &key, tid);
            let spot = self.seek(&probe, true);
            check!(at, spot.leaf == at, "{key:?} {tid} is searched in {}", spot.leaf);
            let found = spot.place.hit.map(|slot| b.born(slot) >= born);
            check!(at, found == Some(true), "{key:?} {tid} is not found");
            if !low.first {
                let ordering = compare(order, &low.key, &key).then(low.tid.cmp(&tid));
                check!(at, ordering.is_le(), "{key:?} {tid} below the low key {:?}", low.key);
            }
            if let Some((last_key, last_tid, last_end)) = &last {
                let ordering = compare(order, last_key, &key).then(last_tid.cmp(&tid));
                check!(at, ordering.is_le(), "{key:?} {tid} behind {last_key:?} {last_tid}");
                // Two lives of one entry follow each other.
                check!(
                    at,
                    ordering.is_lt() || *last_end != 0 && *last_end <= born,
                    "{key:?} {tid} lives twice"
                );
            }
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

    fn verify_nodes<O: KeyOrder>(
        &self,
        order: &O,
        leaves: &[(Ref, Low)],
        report: &mut VerifyReport,
    ) -> Result<(), Violation> {
        let mut rest = leaves;
        let mut at = self.shared().node.load(core::sync::atomic::Ordering::Acquire);
        let mut before: Option<(Ref, Low)> = None;
        while at != 0 {
            let v = self.block(at).view();
            let b = v.b;
            check!(at, !v.dead(), "a dead index node is linked");
            check!(at, b.level() == 1, "level {} in level 1", b.level());
            let n = check_perm(at, &v)?;
            check!(at, n > 0, "an empty index node");
            check!(at, n <= rest.len(), "more separators than leaves");
            let low = rest[0].1.clone();
            let prev = before.as_ref().map_or(0, |&(r, _)| r);
            check!(at, b.prev() == prev, "prev is {}, not {prev}", b.prev());
            for (rank, (leaf, leaf_low)) in rest[..n].iter().enumerate() {
                let slot = v.slot(rank);
                let child = b.child(slot);
                check!(
                    at,
                    child & !EXACT == *leaf,
                    "separator {rank} leads to {child}, not {leaf}"
                );
                check!(at, self.block(*leaf).parent() == at, "leaf {leaf} has another parent");
                if leaf_low.first {
                    check!(at, b.prefix(slot) == 0 && child & EXACT != 0, "first separator");
                } else {
                    let (prefix, exact) = numbers(order, b, leaf_low);
                    check!(at, b.prefix(slot) == prefix, "prefix of separator {rank}");
                    check!(at, (child & EXACT != 0) == exact, "exactness of separator {rank}");
                    let shared = &low.key[..b.skip().min(low.key.len())];
                    check!(at, leaf_low.key.starts_with(shared), "skip of separator {rank}");
                }
            }
            if let Some((prev, prev_low)) = &before {
                check_high(order, *prev, self.block(*prev), prev_low, &low)?;
                let probe = Probe::new(order, &low.key, low.tid);
                check!(at, self.top_reaches(&probe, at), "the flat top leads to the right of it");
            }
            report.nodes += 1;
            before = Some((at, low));
            rest = &rest[n..];
            at = b.next();
        }
        check!(self.root, rest.is_empty(), "{} leaves without separator", rest.len());
        Ok(())
    }

    /// Does the flat top lead to `node`, or to a node left of it?
    fn top_reaches<O: KeyOrder>(&self, probe: &Probe<'_, O>, node: Ref) -> bool {
        let mut at = self.top(probe);
        while at != 0 && at != node {
            at = self.block(at).next();
        }
        at == node
    }

    fn verify_counts(&self, report: &VerifyReport) -> Result<(), Violation> {
        let stats = self.stats();
        let [leaves, nodes, _] = stats.blocks;
        check!(
            self.root,
            leaves == report.leaves,
            "{leaves} leaves counted, {} found",
            report.leaves
        );
        check!(self.root, nodes == report.nodes, "{nodes} nodes counted, {} found", report.nodes);
        check!(
            self.root,
            stats.live == report.live,
            "{} live counted, {} found",
            stats.live,
            report.live
        );
        Ok(())
    }
}

/// The first slots of the permutation are the live ones, each once.
fn check_perm(at: Ref, v: &View) -> Result<usize, Violation> {
    let n = v.mask().count_ones() as usize;
    let seen = (0..n).fold(0u64, |mask, rank| mask | 1 << v.slot(rank));
    check!(at, n <= SLOTS && seen == v.mask(), "permutation and mask disagree");
    Ok(n)
}

fn check_high<O: KeyOrder>(
    order: &O,
    at: Ref,
    b: Block,
    low: &Low,
    high: &Low,
) -> Result<(), Violation> {
    let (number, exact) = if O::MEMCMP && !high.key.starts_with(&low.key[..b.skip()]) {
        (u64::MAX, false)
    } else {
        numbers(order, b, high)
    };
    check!(at, b.high() == number, "high is {:x}, not {number:x}", b.high());
    check!(at, b.has(HIGHEXACT) == exact, "exactness of high");
    Ok(())
}

/// What a node says of a separator.
fn numbers<O: KeyOrder>(order: &O, b: Block, low: &Low) -> (u64, bool) {
    if O::MEMCMP {
        (prefix_at(&low.key, b.skip()), is_exact(&low.key, low.with_tid, b.skip()))
    } else {
        (order.abbrev(&low.key), false)
    }
}

fn compare<O: KeyOrder>(order: &O, a: &[u8], b: &[u8]) -> Ordering {
    crate::compare(order, a, b)
}

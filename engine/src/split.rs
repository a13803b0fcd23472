//! Making room in a leaf: drop what nobody sees, pack the heap, or split.
//!
//! A split builds the right half R privately, links it behind B in one exclusive phase, and then
//! (outside the latch) promotes R's low key to level 1. Between the two, R is found by moving right.
//! The cut never separates entries of the same key and TID (old and new lives of one entry), so a
//! position (key, TID) always lies in one leaf.

use crate::area::Ref;
use crate::block::{
    Block, DIRTY, HIGHEXACT, LEAF_HEAP, LEFTMOST, LOWBIG, Latch, SLOTS, Tail, WHOLE,
};
use crate::heap::Class;
use crate::image::{Entries, Entry, Image, Low, MAX_INLINE_LOW, Page, heap_size};
use crate::insert::{Form, Step};
use crate::key::{Probe, chunk_key, chunk_refs, common, low_of, prefix_at};
use crate::reserve::{Need, Reserve};
use crate::root::{Index, leaf_class};
use crate::seek::Spot;
use crate::top::is_exact;
use crate::{KeyOrder, Tid};
use core::sync::atomic::Ordering::*;

pub(crate) const MAX_SKIP: usize = u8::MAX as usize;
/// Heap bytes that a leaf has left at least when it is made, merged, or gets another `skip`: some
/// chunk references, so that a single entry never fills it and a full leaf can be split.
pub(crate) const MIN_FREE: usize = 32;
/// For how many entries of average size the heap of a new leaf is made.
const EXPECTED: usize = 52;

/// How a leaf will be split.
struct Plan {
    cut: usize,
    /// The separator is this many bytes of the first key on the right,
    sep_len: usize,
    /// and its TID,
    sep_tid: Option<Tid>,
    /// or all of it, in this chunk.
    sep_chunk: Ref,
    skip: usize,
    class: Class,
}

impl Index {
    /// Changes a leaf in which the new entry has no room so that it has, or says what that takes.
    #[cold]
    pub(crate) fn make_room<O: KeyOrder>(
        &self,
        probe: &Probe<'_, O>,
        spot: &Spot,
        form: Form,
        reserve: &mut Reserve<'_>,
    ) -> Step {
        let Some(mut scratch) = reserve.scratch.take() else {
            // Probably one like the leaf that was made last.
            let hint = self.shared().new_leaf.load(Relaxed);
            return Step::Need(Need::Room(Class::LEAF[hint as usize % Class::LEAF.len()]));
        };
        scratch.0.reserve(&spot.v);
        let step = match spot.v.latch() {
            None => Step::Again,
            Some(latch) => {
                let (entries, page) = &mut *scratch;
                self.make_room_latched(latch, probe, spot, form, reserve, entries, page)
            }
        };
        reserve.scratch = Some(scratch);
        step
    }

    #[expect(clippy::too_many_arguments)]
    fn make_room_latched<O: KeyOrder>(
        &self,
        latch: Latch,
        probe: &Probe<'_, O>,
        spot: &Spot,
        form: Form,
        reserve: &mut Reserve<'_>,
        entries: &mut Entries,
        page: &mut Page,
    ) -> Step {
        let b = latch.b();
        if b.ndead() > 0 {
            let gone = self.removable(&latch);
            if gone != 0 {
                self.drop_slots(latch, gone).release();
                return Step::Again;
            }
        }
        entries.clear();
        entries.load(&latch);
        let n = entries.len();
        let mut low_key = Vec::new();
        let low = self.low(b, &mut low_key);
        let low_size = low.map_or(0, |low| low.size(b.skip()));
        if spot.beyond {
            if n == 0 {
                self.rewrite(latch, entries, 0..0, low, 0, page, None);
                return Step::Again;
            }
        } else if n < SLOTS {
            let used = low_size + heap_size(entries.range(0..n), b.skip(), !O::MEMCMP);
            let wanted = used + form.size(probe.key);
            let slack = if n < 2 { 0 } else { b.heap_size() / 8 };
            if wanted + slack <= b.heap_size() {
                self.rewrite(latch, entries, 0..n, low, b.skip(), page, None);
                return Step::Again;
            }
        }
        let mut high_key = Vec::new();
        let high = match b.next() {
            0 => None,
            next => low_of(self.area, next, &mut high_key).map(|_| &high_key[..]),
        };
        let chunk = match form {
            // An equal key is there.
            Form::Tail(tail) => match b.tail((tail as u64) << 48) {
                Tail::Chunk(chunk) => chunk,
                _ => 0,
            },
            Form::Record(_) => 0,
            Form::Chunk => reserve.chunk().unwrap_or(0),
        };
        let Some(plan) = self.plan(entries, probe, spot, high, b, chunk) else {
            latch.release();
            return Step::Full;
        };
        if reserve.leaf_class() != Some(plan.class) {
            latch.release();
            self.shared().new_leaf.store(plan.class.code(), Relaxed);
            return Step::Need(Need::Room(plan.class));
        }
        self.split::<O>(latch, entries, probe, plan, low, spot.leaf, reserve, page)
    }

    /// `chunk`: where the new key is, if it is too long for the leaf.
    fn plan<O: KeyOrder>(
        &self,
        entries: &Entries,
        probe: &Probe<'_, O>,
        spot: &Spot,
        high: Option<&[u8]>,
        b: Block,
        chunk: Ref,
    ) -> Option<Plan> {
        let n = entries.len();
        let append = spot.beyond || high.is_none() && spot.place.rank == n;
        let fill = self.shared().fillfactor.load(Relaxed) as usize;
        let wanted = match (spot.beyond, append) {
            (true, _) => n,
            // Ascending keys: nobody will come to the left half any more.
            (_, true) => (n * fill / 100).max(1),
            _ => n / 2,
        };
        let new =
            Entry { key: probe.key, chunk, abbrev: probe.abbrev, tid: probe.tid, born: 0, dead: 0 };
        let right_of = |cut: usize| if cut < n { entries.get(cut) } else { new };
        let most = if append { n } else { n.saturating_sub(1) };
        // Same key and TID may not be separated.
        let apart = |cut: usize| {
            let (left, right) = (entries.get(cut - 1), right_of(cut));
            left.tid != right.tid || left.key != right.key
        };
        let last = if append || n == 0 { probe.key } else { entries.get(n - 1).key };
        let plan_at = |cut: usize| {
            let (left, right) = (entries.get(cut - 1), right_of(cut));
            let (mut sep_len, mut sep_tid) = (right.key.len(), Some(right.tid));
            if O::MEMCMP && left.key != right.key {
                sep_len = common(left.key, right.key) + 1;
                sep_tid = None;
            }
            let mut sep_chunk = 0;
            if sep_len > MAX_INLINE_LOW {
                sep_len = right.key.len();
                sep_chunk = right.chunk;
            }
            let sep = &right.key[..sep_len];
            let skip = if O::MEMCMP {
                // What all keys in R share now, but leaving 8 bytes to tell keys to come apart; and
                // what all keys that can ever come share. A key beyond is handled by another split.
                let useful = last.len().saturating_sub(8).max(b.skip()).min(MAX_SKIP);
                let now = common(sep, last);
                now.max(high.map_or(0, |high| common(sep, high))).min(useful)
            } else {
                0
            };
            let low = Low { key: sep, tid: sep_tid, chunk: sep_chunk }.size(skip);
            let need = heap_size(entries.range(cut..n), skip, !O::MEMCMP);
            let average = heap_size(entries.range(0..n), skip, !O::MEMCMP) * EXPECTED / n;
            let class = leaf_class(low + MIN_FREE + need.max(average));
            // The new low key may be longer than the old one: a right part with nearly all of the
            // heap would not fit. One with fewer entries does.
            let fits = low + MIN_FREE + need <= class.size() - LEAF_HEAP;
            fits.then_some(Plan { cut, sep_len, sep_tid, sep_chunk, skip, class })
        };
        (0..=n)
            .flat_map(|d| [wanted.wrapping_sub(d), wanted + d])
            .filter(|&cut| (1..=most).contains(&cut) && apart(cut))
            .find_map(plan_at)
    }

    #[expect(clippy::too_many_arguments)]
    fn split<O: KeyOrder>(
        &self,
        latch: Latch,
        entries: &Entries,
        probe: &Probe<'_, O>,
        plan: Plan,
        low: Option<Low<'_>>,
        leaf: Ref,
        reserve: &mut Reserve<'_>,
        page: &mut Page,
    ) -> Step {
        let b = latch.b();
        let n = entries.len();
        let cut = plan.cut;
        let (right_key, right_abbrev) = match cut < n {
            true => (entries.get(cut).key, entries.get(cut).abbrev),
            false => (probe.key, probe.abbrev),
        };
        let sep = Low { key: &right_key[..plan.sep_len], tid: plan.sep_tid, chunk: plan.sep_chunk };
        let (class, r) = reserve.take_leaf();
        let right = self.block(r);
        let flags = if O::MEMCMP { 0 } else { WHOLE };
        let side = right.init_side();
        let image = Image::new(right, class, flags, Some(sep), plan.skip);
        entries.write(image, cut..n, side);
        if plan.sep_chunk != 0 {
            chunk_refs(self.area, plan.sep_chunk).fetch_add(1, Relaxed);
        }
        let next = b.next();
        right.set_next(next);
        right.set_prev(leaf);
        if next != 0 {
            if O::MEMCMP {
                self.set_high(right, next);
            } else {
                right.set_high(b.high());
            }
            // Under B's latch, and before B shows R: whoever follows it sees that R is not yet B's
            // neighbour and finds another way.
            self.block(next).set_prev(r);
        }
        if right.ndead() > 0 {
            right.set_flag(DIRTY, true);
        }
        // Latched, so that nobody who finds it by N.prev changes what B still shows.
        right.init_ver(true);
        let right_latch = Latch { v: right.view() };

        // The left half is written anew if that gives heap bytes back.
        let heap_used = b.heap_top() as usize - LEAF_HEAP;
        let tails = heap_used > low.map_or(0, |low| low.size(b.skip()));
        let high = High::new(O::MEMCMP, &sep, right_abbrev);
        if tails && cut < n {
            let mut skip = b.skip();
            if O::MEMCMP
                && let Some(low) = low
            {
                let shared = common(low.key, sep.key).min(MAX_SKIP);
                let size = |skip| low.size(skip) + heap_size(entries.range(0..cut), skip, false);
                if shared > skip && size(shared) + MIN_FREE <= b.heap_size() {
                    skip = shared;
                }
            }
            self.rewrite(latch, entries, 0..cut, low, skip, page, Some((r, high)));
        } else {
            let perm = b.perm(latch.v.side());
            let keep = perm[..cut].iter().fold(0, |mask, &slot| mask | 1u64 << slot);
            let ndead = entries.range(0..cut).filter(|entry| entry.dead != 0).count();
            latch.exclude();
            b.set_perm(latch.other(), &perm);
            b.set_mask(latch.other(), keep);
            b.set_ndead(ndead as u8);
            high.set(b, r, low.map_or(&[], |low| low.key));
            latch.finish();
        }
        if right.has(DIRTY) {
            self.shared().dirty.push(self.area, r);
        }
        right_latch.release();
        self.shared().counters.leaf_split();
        Step::Promote(r)
    }

    /// Replaces the content of a latched leaf by a range of its entries, packed, and possibly its
    /// right neighbour; gives the latch up.
    #[expect(clippy::too_many_arguments)]
    pub(crate) fn rewrite(
        &self,
        latch: Latch,
        entries: &Entries,
        range: core::ops::Range<usize>,
        low: Option<Low<'_>>,
        skip: usize,
        page: &mut Page,
        right: Option<(Ref, High<'_>)>,
    ) {
        let b = latch.b();
        let image = page.block();
        let flags = b.flags() & (WHOLE | LEFTMOST);
        entries.write(Image::new(image, b.class(), flags, low, skip), range, 0);
        let mut high_key = Vec::new();
        let right = match right {
            Some(right) => Some(right),
            // Another skip sees another part of the neighbour's low key.
            None if skip != b.skip() && b.next() != 0 => low_of(self.area, b.next(), &mut high_key)
                .map(|(tid, with_tid)| {
                    let tid = with_tid.then_some(tid);
                    (b.next(), High { key: &high_key, exact: tid.is_none(), abbrev: None })
                }),
            None => None,
        };
        latch.exclude();
        b.copy_from(image, latch.other());
        if let Some((next, high)) = right {
            high.set(b, next, low.map_or(&[], |low| low.key));
        }
        latch.finish();
    }

    /// The low key of a latched leaf; None for the first.
    pub(crate) fn low<'a>(&self, b: Block, key: &'a mut Vec<u8>) -> Option<Low<'a>> {
        if b.has(LEFTMOST) {
            return None;
        }
        let tid = b.has(crate::block::LOWTID).then(|| b.low_tid());
        if b.has(LOWBIG) {
            let chunk = b.low_chunk();
            return Some(Low { key: chunk_key(self.area, chunk), tid, chunk });
        }
        let (src, len) = b.low_bytes();
        key.clear();
        key.reserve(len);
        // SAFETY: inside the block; the latch is held, so the bytes do not change.
        key.extend_from_slice(unsafe { core::slice::from_raw_parts(src, len) });
        Some(Low { key, tid, chunk: 0 })
    }

    /// The high number of a private leaf whose right neighbour is `next`.
    pub(crate) fn set_high(&self, b: Block, next: Ref) {
        let (mut low, mut high) = (Vec::new(), Vec::new());
        let low = self.low(b, &mut low);
        if let Some((_, with_tid)) = low_of(self.area, next, &mut high) {
            let high = High { key: &high, exact: !with_tid, abbrev: None };
            high.set(b, next, low.map_or(&[], |low| low.key));
        }
    }

    /// Live slots of a latched leaf that nobody will see again.
    pub(crate) fn removable(&self, latch: &Latch) -> u64 {
        let b = latch.b();
        let mut dead = [(0usize, 0u32); SLOTS];
        let mut n = 0;
        let mut live = latch.v.mask();
        while live != 0 {
            let slot = live.trailing_zeros() as usize;
            live &= live - 1;
            let when = b.dead(slot);
            if when != 0 {
                dead[n] = (slot, when);
                n += 1;
            }
        }
        // After the deaths were read.
        let horizon = self.shared().snapshots.horizon();
        let gone = dead[..n].iter().filter(|&&(slot, when)| !horizon.needs(b.born(slot), when));
        gone.fold(0, |mask, &(slot, _)| mask | 1u64 << slot)
    }
}

/// The right neighbour's low key, seen from its left.
#[derive(Clone, Copy)]
pub(crate) struct High<'a> {
    key: &'a [u8],
    /// It has no TID.
    exact: bool,
    /// Its number under a comparator.
    abbrev: Option<u64>,
}

impl<'a> High<'a> {
    pub(crate) fn new(memcmp: bool, low: &Low<'a>, abbrev: u64) -> High<'a> {
        let abbrev = (!memcmp).then_some(abbrev);
        High { key: low.key, exact: low.tid.is_none(), abbrev }
    }

    /// The low key of a node to the right, of which only this is known.
    pub(crate) fn of(memcmp: bool, key: &'a [u8], with_tid: bool, abbrev: u64) -> High<'a> {
        High { key, exact: !with_tid, abbrev: (!memcmp).then_some(abbrev) }
    }

    /// Stores it, and `next`, in a private or exclusively latched node with the low key `low`.
    pub(crate) fn set(&self, b: Block, next: Ref, low: &[u8]) {
        let skip = b.skip();
        b.set_next(next);
        let (high, exact) = match self.abbrev {
            Some(abbrev) => (abbrev, false),
            // Everything that shares the node's first bytes is below.
            None if common(self.key, low) < skip => (u64::MAX, false),
            None => (prefix_at(self.key, skip), is_exact(self.key, !self.exact, skip)),
        };
        b.set_high(high);
        b.set_flag(HIGHEXACT, exact);
    }
}

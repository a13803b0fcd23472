//! Making room in a leaf: drop unseen entries, compact the key area, or split.
//!
//! Everything is prepared from a copy of the leaf before it is latched. The latch is given only if
//! the leaf is still in the copied state. Under the latch nothing allocates, compares or fails. A
//! split builds the right half privately, and `tree/relink.rs` links it. Then, outside of the
//! latches, its low key is promoted to level 1. Between the two a search finds it by moving right.
//! The cut never separates entries of the same key and TID (old and new lives of one entry). So a
//! position (key, TID) always lies in one leaf.
//!
//! No entry is born or dies in a split: it happens outside the writer section, and no snapshot
//! waits.

use crate::index::root::Index;
use crate::key::bytes::common;
use crate::key::order::{KeyOrder, Tid};
use crate::memory::area::OutOfMemory;
use crate::memory::class::Class;
use crate::memory::place::Ref;
use crate::node::block::{
    CAPACITY, DIRTY, LEAF_KEYS, LEFTMOST, MIN_FREE, Retry, SLOTS, Tail, View, WHOLE,
};
use crate::node::empty::leaf_class;
use crate::node::entries::Entries;
use crate::node::entry::{Entry, key_area_size};
use crate::node::low_key::{
    Low, LowKeyCopy, MAX_INLINE_LOW, MAX_SKIP, RangeEnd, SharedBytes, likely,
};
use crate::node::probe::Probe;
use crate::node::writer;
use crate::node::writer::{LeafWriter, Page};
use crate::packed::Draft;
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;
use crate::tree::copied::Copied;
use crate::tree::outcome::{KeyForm, Outcome};
use crate::tree::relink::{Content, New, Relink, Relinked, relink};
use crate::tree::reserve::Reserve;
use crate::tree::seek::Position;
use crate::tree::{copied, drop, packed, tid_order};
use core::sync::atomic::Ordering::*;

/// Number of entries of average size for which the key area of a new leaf is made.
const EXPECTED: usize = 52;

/// The plan of a split.
struct Plan {
    cut: usize,
    /// The separator is this number of bytes of the first key on the right.
    sep_len: usize,
    /// The TID of the separator, if it needs one.
    sep_tid: Option<Tid>,
    /// The chunk with the whole key, if the separator is in one.
    sep_chunk: Ref,
    skip: usize,
    class: Class,
}

/// The reason why there is no room yet.
enum NoRoom {
    Retry,
    Memory(OutOfMemory),
}

impl From<Retry> for NoRoom {
    fn from(Retry: Retry) -> NoRoom {
        NoRoom::Retry
    }
}

impl From<OutOfMemory> for NoRoom {
    fn from(e: OutOfMemory) -> NoRoom {
        NoRoom::Memory(e)
    }
}

/// Makes room for the new entry in a leaf. Inside the barrier.
#[cold]
pub(crate) fn make_room<O: KeyOrder>(
    index: &Index,
    probe: &Probe<'_, O>,
    spot: &Position,
    form: KeyForm,
    reserve: &mut Reserve<'_>,
) -> Outcome {
    let chunk = match form {
        // An equal key is there.
        KeyForm::Tail(tail) => match spot.v.b.tail((tail as u64) << 48) {
            Tail::Chunk(chunk) => chunk,
            _ => 0,
        },
        KeyForm::Record(_) => 0,
        KeyForm::Chunk => reserve.chunk().unwrap_or(0),
    };
    let size = form.size(probe.key);
    match try_make_room(index, probe, spot, size, chunk, reserve.packing()) {
        Ok(step) => step,
        Err(NoRoom::Retry) => Outcome::Again,
        Err(NoRoom::Memory(e)) => Outcome::NoMemory(e),
    }
}

/// Tries once. `size`: bytes that the new entry takes in the key area. `chunk`: the chunk of its
/// key, if it is too long for the leaf.
fn try_make_room<O: KeyOrder>(
    index: &Index,
    probe: &Probe<'_, O>,
    spot: &Position,
    size: usize,
    chunk: Ref,
    (scratch, draft): (&mut (Entries, Page), &mut Draft),
) -> Result<Outcome, NoRoom> {
    let (v, b) = (spot.v, spot.v.b);
    if b.ndead() > 0 && drop_unseen(index, &v)? {
        return Ok(Outcome::Again);
    }
    let (entries, page) = scratch;
    let (mut low, mut high) = (LowKeyCopy::new(index.area), LowKeyCopy::new(index.area));
    let leaf = copied::copy_leaf(v, entries, &mut low, &mut high)?;
    if let Some(step) = packed::pack_leaf(index, &leaf, probe, draft)? {
        return Ok(step);
    }
    let (n, low, skip) = (leaf.entries.len(), leaf.low, leaf.skip);
    if spot.beyond {
        if n == 0 {
            return Ok(compact(index, &leaf, 0, page)?);
        }
    } else if n < CAPACITY {
        let used = low.size(skip) + key_area_size(leaf.entries.range(0..n), skip, !O::MEMCMP);
        let slack = if n < 2 { 0 } else { b.key_area_size() / 8 };
        if used + size + slack <= b.key_area_size() {
            return Ok(compact(index, &leaf, skip, page)?);
        }
    }
    match plan(index, &leaf, probe, spot, chunk) {
        None => Ok(Outcome::Crowded),
        Some(plan) => split::<O>(index, &leaf, probe, plan, spot.leaf, page),
    }
}

/// Drops the entries that no reader sees from the leaf in this state. Returns true if there were
/// some.
fn drop_unseen(index: &Index, v: &View) -> Result<bool, Retry> {
    let latch = v.latch().ok_or(Retry)?;
    stop!("room: latched");
    let gone = drop::removable(index, &latch);
    let latch = if gone != 0 { drop::drop_slots(index, latch, gone) } else { latch };
    stop!("room: dead dropped");
    latch.release();
    Ok(gone != 0)
}

/// Writes the leaf anew. Room of removed entries in its key area becomes free.
fn compact(
    index: &Index,
    leaf: &Copied<'_>,
    skip: usize,
    page: &mut Page,
) -> Result<Outcome, Retry> {
    let content = leaf.write(0..leaf.entries.len(), skip, page);
    // Another skip sees another part of the neighbour's low key.
    let right = RangeEnd::new(index.memcmp(), leaf.low.key, skip, leaf.high.as_ref());
    writer::replace(leaf.latch()?, content, &right, leaf.next).release();
    Ok(Outcome::Again)
}

/// Returns how many entries should stay on the left.
fn wanted_cut<O: KeyOrder>(
    index: &Index,
    leaf: &Copied<'_>,
    probe: &Probe<'_, O>,
    spot: &Position,
) -> usize {
    let entries = leaf.entries;
    let (n, rank, end) = (entries.len(), spot.place.rank, leaf.high.is_none());
    // No more rows come into the leaf that a run has left behind.
    let run = tid_order::cut(n, rank, probe.tid, |at| entries.tid(at));
    let run = run.filter(|_| !mutant!("a run leaves its leaf full"));
    match run.or((end && rank == n).then_some(n)) {
        _ if spot.beyond => n,
        Some(cut) if end => {
            cut.min(n * index.shared().fillfactor.load(Relaxed) as usize / 100).max(1)
        }
        Some(cut) => cut.max(1),
        None => n / 2,
    }
}

fn plan<O: KeyOrder>(
    index: &Index,
    leaf: &Copied<'_>,
    probe: &Probe<'_, O>,
    spot: &Position,
    chunk: Ref,
) -> Option<Plan> {
    let entries = leaf.entries;
    let n = entries.len();
    let wanted = wanted_cut(index, leaf, probe, spot);
    let end = leaf.high.is_none();
    let append = spot.beyond || spot.place.rank == n && (end || wanted == n);
    let new =
        Entry { key: probe.key, chunk, abbrev: probe.abbrev, tid: probe.tid, born: 0, dead: 0 };
    let right_of = |cut: usize| if cut < n { entries.get(cut) } else { new };
    let most = if append { n } else { n.saturating_sub(1) };
    // Same key and TID may not be separated.
    let apart = |cut: usize| {
        let (left, right) = (entries.get(cut - 1), right_of(cut));
        left.tid != right.tid
            || left.key != right.key
            || mutant!("lives of one entry stay together")
    };
    (0..=n)
        .flat_map(|d| [wanted.wrapping_sub(d), wanted + d])
        .filter(|&cut| (1..=most).contains(&cut) && apart(cut))
        .find_map(|cut| plan_at::<O>(leaf, cut, right_of(cut), append.then_some(probe.key)))
}

/// Plans a cut in front of the entry `right`. Returns None if the right part fits no leaf.
/// `appended`: the key that comes behind all others, as more may.
fn plan_at<O: KeyOrder>(
    leaf: &Copied<'_>,
    cut: usize,
    right: Entry<'_>,
    appended: Option<&[u8]>,
) -> Option<Plan> {
    let (entries, n) = (leaf.entries, leaf.entries.len());
    let left = entries.get(cut - 1);
    let (mut sep_len, mut sep_tid) = (right.key.len(), Some(right.tid));
    if O::MEMCMP && left.key != right.key {
        (sep_len, sep_tid) = (common(left.key, right.key) + 1, None);
    }
    let mut sep_chunk = 0;
    if sep_len > MAX_INLINE_LOW {
        sep_len = right.key.len();
        sep_chunk = right.chunk;
    }
    let sep = &right.key[..sep_len];
    let skip = if O::MEMCMP {
        let last = appended.unwrap_or_else(|| entries.get(n - 1).key);
        // Leaving 8 bytes to tell keys to come apart. A key that does not share what is left
        // out is handled by another split.
        let useful = last.len().saturating_sub(8).max(leaf.skip).min(MAX_SKIP);
        let high = leaf.high.map(|high| high.key);
        // The step of a run is as long as half a leaf of it spans. Its last step does not count: it
        // may be inside a group.
        let known = if appended.is_some() { entries.get(cut / 2).key } else { left.key };
        SharedBytes { likely: likely(known, right.key), low: sep, last, high }.skip(useful)
    } else {
        0
    };
    let low = Low { key: sep, tid: sep_tid, chunk: sep_chunk, abbrev: 0 }.size(skip);
    let need = key_area_size(entries.range(cut..n), skip, !O::MEMCMP);
    let average = key_area_size(entries.range(0..n), skip, !O::MEMCMP) * EXPECTED / n;
    let class = leaf_class(low + MIN_FREE + need.max(average));
    // The new low key may be longer than the old one: a right part with nearly all of the
    // key area would not fit. One with fewer entries does.
    let fits = low + MIN_FREE + need <= class.size() - LEAF_KEYS;
    fits.then_some(Plan { cut, sep_len, sep_tid, sep_chunk, skip, class })
}

fn split<O: KeyOrder>(
    index: &Index,
    leaf: &Copied<'_>,
    probe: &Probe<'_, O>,
    plan: Plan,
    at: Ref,
    page: &mut Page,
) -> Result<Outcome, NoRoom> {
    let fresh = index.fresh(plan.class)?;
    // The new leaf wants a separator, and that perhaps another index node. Without one it would do,
    // found by moving right; but that is for processes that stop half way.
    drop(index.fresh(Class::INDEX)?);
    let Copied { v, entries, low, next, high, .. } = *leaf;
    let (n, cut) = (entries.len(), plan.cut);
    let (key, abbrev) = match cut < n {
        true => (entries.get(cut).key, entries.get(cut).abbrev),
        false => (probe.key, probe.abbrev),
    };
    let sep = Low { key: &key[..plan.sep_len], tid: plan.sep_tid, chunk: plan.sep_chunk, abbrev };
    let right = fresh.block();
    let flags = if O::MEMCMP { 0 } else { WHOLE };
    let side = right.first_side();
    let writer = LeafWriter::new(right, plan.class, flags, sep, plan.skip);
    entries.write(writer, cut..n, side);
    RangeEnd::new(O::MEMCMP, sep.key, plan.skip, high.as_ref()).store(right, next);
    right.set_flag(DIRTY, right.ndead() > 0);
    let (content, skip) = left_part::<O>(leaf, cut, &sep, page);
    let plan = Relink {
        left: (at, v),
        content,
        range_end: RangeEnd::new(O::MEMCMP, low.key, skip, Some(&sep)),
        rights: &[],
        new: Some(New { fresh, low: Some(sep) }),
        next,
        ndead: entries.ndead(),
    };
    // No node dies, so none has to stay.
    let Relinked { new: (new, _), .. } = relink(index, plan)?.ok_or(Retry)?;
    index.shared().counters.leaf_split();
    Ok(Outcome::Promote(new))
}

/// Returns the first `cut` entries as the content of their leaf, in front of `sep`, and its `skip`.
/// They are written anew if that gives bytes of the key area back.
fn left_part<'a, O: KeyOrder>(
    leaf: &Copied<'_>,
    cut: usize,
    sep: &Low<'_>,
    page: &mut Page,
) -> (Content<'a>, usize) {
    let Copied { v, entries, low, mut skip, .. } = *leaf;
    let b = v.b;
    let tails = b.keys_top() as usize - LEAF_KEYS > low.size(skip);
    if tails && cut < entries.len() {
        if O::MEMCMP && !b.has(LEFTMOST) {
            let shared = common(low.key, sep.key).min(MAX_SKIP);
            let size = low.size(shared) + key_area_size(entries.range(0..cut), shared, false);
            if shared > skip && size + MIN_FREE <= b.key_area_size() {
                skip = shared;
            }
        }
        return (Content::Slots(leaf.write(0..cut, skip, page)), skip);
    }
    let perm = b.perm(v.side());
    // If it has been packed meanwhile these are no slots, and the latch is not given.
    let slots = perm[..cut].iter().map(|&slot| slot % SLOTS as u8);
    let mask = slots.fold(0, |mask, slot| mask | 1u64 << slot);
    let ndead = entries.range(0..cut).filter(|entry| entry.dead != 0).count();
    (Content::Kept { perm, mask, ndead: ndead as u8 }, skip)
}

#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "../tests/split.rs"]
mod tests;

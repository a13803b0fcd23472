//! Changes packed leaves: an entry comes or goes in place, or the leaf is encoded anew, or cut.
//!
//! The new content is arranged in private memory, from a view of the leaf. The latch is given only
//! in the state of that view, and readers wait while some words are stored. Some entries need
//! slots: those that a snapshot must not see or still sees, and those with a key that is too long.
//! A part of the leaf around that place then becomes a leaf of slots.

use crate::index::root::Index;
use crate::key::order::KeyOrder;
use crate::memory::class::Class;
use crate::memory::place::Ref;
use crate::memory::process::Process;
use crate::node::block::{CAPACITY, LEFTMOST, Latch, MAX_RECORD, MIN_FREE, Retry, View, WHOLE};
use crate::node::chunk::chunk_class;
use crate::node::empty::leaf_class;
use crate::node::entries::Entries;
use crate::node::entry::{Entry, key_area_size};
use crate::node::low_key::{Low, LowKeyCopy, MAX_INLINE_LOW, RangeEnd};
use crate::node::packing;
use crate::node::packing::{EntryRange, MOST, arrange, init_packed, packable};
use crate::node::probe::Probe;
use crate::node::writer;
use crate::node::writer::{LeafWriter, Page};
use crate::packed::{Draft, Found, Grows};
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;
use crate::tree::copied::Copied;
use crate::tree::cutting::{Cutting, Halves, fresh_half, grows, right_classes, where_to_cut};
use crate::tree::drop::SPARSE;
use crate::tree::outcome::Outcome;
use crate::tree::relink::{Content, New, Relink, Relinked, relink};
use crate::tree::reserve::{Reserve, Spare};
use crate::tree::seek::Position;
use crate::tree::{copied, cutting, drop, finger, separators};
use core::sync::atomic::Ordering::*;

/// Number of entries on either side of a place that become a leaf of slots.
const AROUND: usize = CAPACITY * 3 / 8;
/// Further entries that stay with them, so that no small rest is cut off.
const MORE: usize = CAPACITY / 8;
/// Most bytes that these entries may take in the key area.
const MAX_KEY_AREA: usize = 12288;

/// The kind of a cut.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// In two packed leaves, where the order of rows says, or in the middle.
    Packed,
    /// In the middle in any case.
    Halves,
    /// The place comes into a leaf of slots.
    Slots,
}

/// Inserts into a packed leaf, under a term.
pub(crate) fn insert_packed<O: KeyOrder>(
    index: &Index,
    p: &Process,
    probe: &Probe<'_, O>,
    spot: &Position,
    reserve: &mut Reserve<'_>,
) -> Outcome {
    let v = spot.v;
    let Ok(Some(leaf)) = v.packed() else { return Outcome::Again };
    if spot.place.hit.is_some() {
        return if v.valid() { Outcome::Done(false) } else { Outcome::Again };
    }
    if probe.key.len() > MAX_RECORD || index.unpacks() {
        return Outcome::Slots;
    }
    if leaf.len() >= MOST {
        return Outcome::Cut;
    }
    let place = &spot.place;
    let found = Found { key: place.keys, same: place.same.is_some(), rank: place.rank, equal: 0 };
    if !leaf.insert(&found, probe.key, probe.abbrev, probe.tid, reserve.draft()) {
        if leaf.is_full(!found.same, probe.tid) {
            return Outcome::Cut;
        }
        let (scratch, draft) = reserve.packing();
        let page = scratch.1.block_of(v.b.class()).words();
        let entry = (probe.key, probe.abbrev, probe.tid);
        if !leaf.insert_rearranged(&found, entry, grows(spot), page, draft) {
            let (low, high) = (&mut LowKeyCopy::new(index.area), &mut LowKeyCopy::new(index.area));
            match encode_with(probe, spot, &mut scratch.0, low, high, draft) {
                Ok(true) => {}
                Ok(false) => return Outcome::Cut,
                Err(Retry) => return Outcome::Again,
            }
        }
    }
    let Some(latch) = v.latch() else { return Outcome::Again };
    stop!("packed insert: latched");
    // The term was announced before: a snapshot that must not see the entry is seen here. One that
    // comes later closes this term, and sees it.
    if !index.shared().snapshots.quiet()
        && !mutant!("an insert into a packed leaf looks for snapshots")
    {
        latch.release();
        return Outcome::Slots;
    }
    if found.rank == leaf.len() && v.b.next() == 0 {
        let last = &index.shared().last;
        if last.load(Relaxed) != spot.leaf {
            last.store(spot.leaf, Release);
        }
    }
    packing::rewrite(&latch, reserve.draft());
    stop!("packed insert: excluded");
    latch.finish();
    stop!("packed insert: finished");
    finger::put_finger(index, p, spot.leaf, found.key);
    Outcome::Done(true)
}

/// Arranges the leaf with the new entry, encoded anew. Returns false if it does not fit.
fn encode_with<O: KeyOrder>(
    probe: &Probe<'_, O>,
    spot: &Position,
    entries: &mut Entries,
    low: &mut LowKeyCopy,
    high: &mut LowKeyCopy,
    draft: &mut Draft,
) -> Result<bool, Retry> {
    let (v, next) = (spot.v, spot.v.b.next());
    entries.clear();
    entries.load(&v)?;
    if !low.copy(&v) {
        return Err(Retry);
    }
    let high = match next {
        0 => None,
        next => Some(high.load(next).ok_or(Retry)?),
    };
    entries.insert(spot.place.rank, probe.key, probe.abbrev, probe.tid);
    let (all, grows) = (EntryRange(entries, 0..entries.len()), grows(spot));
    Ok(arrange(draft, &all, &low.low(), high.as_ref(), v.b.skip(), v.b.class(), grows))
}

/// Removes an entry of a packed leaf, in the state in which it was found at `rank`.
pub(crate) fn remove_packed(index: &Index, spot: &Position) -> Outcome {
    let (v, Some(rank)) = (spot.v, spot.place.hit) else { return Outcome::Again };
    let mut spare = Spare::take();
    let draft = spare.draft();
    let sparse = match v.packed() {
        Ok(Some(leaf)) if leaf.remove(rank, draft) => leaf.is_sparse(),
        _ => return Outcome::Again,
    };
    let Some(latch) = v.latch() else { return Outcome::Again };
    stop!("packed remove: latched");
    if !index.shared().snapshots.quiet()
        && !mutant!("a removal from a packed leaf looks for snapshots")
    {
        latch.release();
        return Outcome::Slots;
    }
    packing::rewrite(&latch, draft);
    stop!("packed remove: excluded");
    let latch = latch.finish_latched();
    if sparse {
        drop::sparse(index, &latch, spot.leaf);
    }
    latch.release();
    Outcome::Done(true)
}

/// Cuts a packed leaf in two. `slots`: the place must come into a leaf of slots.
pub(crate) fn cut_packed(
    index: &Index,
    cutting: &Cutting<'_>,
    slots: bool,
    reserve: &mut Reserve<'_>,
) -> Outcome {
    let cut = if slots { Cut::Slots } else { Cut::Packed };
    let mut step = try_cut_packed(index, cutting, cut, reserve).unwrap_or_else(|step| step);
    if matches!(step, Outcome::Crowded) {
        // Keys that share more can have longer heads, so that nearly all of a leaf may take more
        // than all of it. Halves never do.
        step = try_cut_packed(index, cutting, Cut::Halves, reserve).unwrap_or_else(|step| step);
    }
    if let Outcome::Promote(leaf) = step {
        separators::promote(index, leaf);
    }
    step
}

fn try_cut_packed(
    index: &Index,
    cutting: &Cutting<'_>,
    how: Cut,
    reserve: &mut Reserve<'_>,
) -> Result<Outcome, Outcome> {
    let &Cutting { v, rank, .. } = cutting;
    let (scratch, draft) = reserve.packing();
    let (low, high) = (&mut LowKeyCopy::new(index.area), &mut LowKeyCopy::new(index.area));
    if how != Cut::Slots
        && let Some(halves) =
            cutting::by_bits(index, cutting, how == Cut::Halves, low, high, draft)?
    {
        return Ok(link(index, cutting, halves, draft)?);
    }
    let leaf = copied::copy_leaf(v, &mut scratch.0, low, high)?;
    let entries = leaf.entries;
    let n = entries.len();
    let longest = entries.range(0..n).map(|entry| entry.key.len()).max().unwrap_or(0);
    let around = ((MAX_KEY_AREA / (longest + 2)).saturating_sub(MORE) / 2).clamp(1, AROUND);
    let slots = how == Cut::Slots;
    if (n < 2 || slots && n <= 2 * around + MORE)
        && let Some(step) = slots_in_place(index, &leaf, n < 2, &mut scratch.1)?
    {
        return Ok(step);
    }
    // The right part gets slots: it is around the place, or empty and will have the new entry.
    let last = slots && n <= rank + around + MORE;
    let cut = match slots {
        true if last => rank.saturating_sub(around).clamp(1, n - 1),
        true => rank + around,
        false if how == Cut::Halves => n / 2,
        false => where_to_cut(index, cutting, n, |at| entries.tid(at), leaf.next == 0),
    };
    let halves = encoded(index, cutting, &leaf, cut, last || cut == n, draft)?;
    Ok(link(index, cutting, halves, draft)?)
}

/// Prepares the halves of a packed leaf by encoding them, the left one in `draft`. `last`: the
/// right one has slots.
fn encoded<'a, 'l>(
    index: &'a Index,
    cutting: &Cutting<'_>,
    leaf: &Copied<'l>,
    cut: usize,
    last: bool,
    draft: &mut Draft,
) -> Result<Halves<'a, 'l>, Outcome> {
    let (b, entries, memcmp) = (cutting.v.b, leaf.entries, index.memcmp());
    let (n, low, high) = (entries.len(), leaf.low, leaf.high.as_ref());
    // Only an entry that comes has its place behind all others.
    let first = if cut < n { entries.get(cut) } else { cutting.entry };
    let sep = Low::between(memcmp, &entries.get(cut - 1), &first);
    debug_assert!(sep.key.len() <= MAX_INLINE_LOW);
    let skip = packing::skip_of(memcmp, &sep, high);
    let class = if last {
        let key_area = key_area_size(entries.range(cut..n), skip, !memcmp);
        leaf_class(sep.size(skip) + MIN_FREE + 6 + key_area * 5 / 4)
    } else {
        let right = EntryRange(entries, cut..n);
        let coming = cutting.coming_right(cut);
        let fits = |&class: &Class| arrange(draft, &right, &sep, high, skip, class, coming);
        right_classes(&sep, b.class()).into_iter().find(fits).ok_or(Outcome::Crowded)?
    };
    let fresh = fresh_half(index, class)?;
    let new = fresh.block();
    if last {
        let (side, flags) = (new.first_side(), if memcmp { 0 } else { WHOLE });
        entries.write(LeafWriter::new(new, class, flags, sep, skip), cut..n, side);
    } else {
        init_packed(new, draft, class, 0, &sep, skip);
    }
    RangeEnd::new(memcmp, sep.key, new.skip(), high).store(new, leaf.next);
    let skip = packing::skip_of(memcmp, &low, Some(&sep));
    let all = EntryRange(entries, 0..cut);
    if !arrange(draft, &all, &low, Some(&sep), skip, b.class(), cutting.coming_left(cut)) {
        return Err(Outcome::Crowded);
    }
    let range_end = RangeEnd::new(memcmp, low.key, skip, Some(&sep));
    Ok(Halves { fresh, low, skip, range_end, next: leaf.next })
}

/// Makes the leaf the left half, which is in `draft`, and links the right one behind it.
fn link(
    index: &Index,
    cutting: &Cutting<'_>,
    halves: Halves<'_, '_>,
    draft: &Draft,
) -> Result<Outcome, Retry> {
    let Halves { fresh, low, skip, range_end, next } = halves;
    let plan = Relink {
        left: (cutting.leaf, cutting.v),
        content: Content::Packed { draft, low, skip },
        range_end,
        rights: &[],
        new: Some(New { fresh, low: None }),
        next,
        ndead: 0,
    };
    // No node dies, so none has to stay.
    let Relinked { new: (new, _), .. } = relink(index, plan)?.ok_or(Retry)?;
    index.shared().counters.leaf_split();
    Ok(Outcome::Promote(new))
}

/// Gives a packed leaf slots, if they have room in the block. `chunks`: for which keys go
/// elsewhere; one entry then always has room.
fn slots_in_place(
    index: &Index,
    leaf: &Copied<'_>,
    chunks: bool,
    page: &mut Page,
) -> Result<Option<Outcome>, Retry> {
    let (b, n, low) = (leaf.v.b, leaf.entries.len(), leaf.low);
    let skip = packing::skip_of(index.memcmp(), &low, leaf.high.as_ref());
    let whole = !index.memcmp();
    let room = b.key_area_size() - MIN_FREE - low.size(skip);
    let key_area = key_area_size(leaf.entries.range(0..n), skip, whole);
    if key_area > room && !chunks {
        return Ok(None);
    }
    let to = page.block();
    let flags = b.flags() & LEFTMOST | if whole { WHOLE } else { 0 };
    let mut writer = LeafWriter::new(to, b.class(), flags, low, skip);
    let mut chunk = 0;
    if key_area > room {
        let entry = leaf.entries.get(0);
        chunk = match index.fresh(chunk_class(entry.key.len())) {
            Ok(fresh) => fresh.chunk(entry.key),
            Err(e) => return Ok(Some(Outcome::NoMemory(e))),
        };
        writer.push(&Entry { chunk, ..entry }, None);
        writer.finish(0);
    } else {
        leaf.entries.write(writer, 0..n, 0);
    }
    let right = RangeEnd::new(index.memcmp(), low.key, skip, leaf.high.as_ref());
    let Ok(latch) = leaf.latch() else {
        if chunk != 0 {
            drop::unref_chunk(index, chunk);
        }
        return Err(Retry);
    };
    writer::replace(latch, to, &right, leaf.next).release();
    Ok(Some(Outcome::Again))
}

/// Makes a full leaf of slots packed. None: they do not fit, or something needs slots.
///
/// Packed entries have no terms: every snapshot sees all of them. The entries of this state were
/// born in terms that the counter has reached, and a snapshot that has no descriptor yet closes
/// that term or a later one.
pub(crate) fn pack_leaf<O: KeyOrder>(
    index: &Index,
    leaf: &Copied<'_>,
    probe: &Probe<'_, O>,
    draft: &mut Draft,
) -> Result<Option<Outcome>, Retry> {
    let (b, entries, snapshots) = (leaf.v.b, leaf.entries, &index.shared().snapshots);
    let able = index.packs_full() && probe.key.len() <= MAX_RECORD;
    if !able || entries.ndead() > 0 || !snapshots.quiet() || !packable(entries, 0..entries.len()) {
        return Ok(None);
    }
    let (high, skip) =
        (leaf.high.as_ref(), packing::skip_of(index.memcmp(), &leaf.low, leaf.high.as_ref()));
    let all = EntryRange(entries, 0..entries.len());
    if !arrange(draft, &all, &leaf.low, high, skip, b.class(), Grows::Keys) {
        return Ok(None);
    }
    let right = RangeEnd::new(O::MEMCMP, leaf.low.key, skip, high);
    stop!("pack: built");
    let latch = leaf.latch()?;
    stop!("pack: latched");
    if !snapshots.quiet() {
        latch.release();
        return Ok(None);
    }
    packing::pack(latch, draft, &leaf.low, skip, &right, leaf.next).release();
    stop!("pack: finished");
    Ok(Some(Outcome::Again))
}

/// Takes these ranks, which ascend, out of a packed leaf in this state, and keeps its latch. None:
/// it is not in this state any more, or snapshots see what would go. Under a term.
pub(crate) fn remove_ranks(
    index: &Index,
    leaf: Ref,
    v: View,
    ranks: &[u16],
    draft: &mut Draft,
) -> Option<Latch> {
    // The term was announced before: a snapshot that sees what goes is seen here. One that comes
    // later closes this term, and waits for its end.
    let quiet = index.shared().snapshots.quiet()
        || mutant!("a batch that goes from a packed leaf looks for snapshots");
    let packed = v.packed().ok()?.filter(|_| quiet)?;
    if !packed.remove_all(ranks, draft) {
        return None;
    }
    let latch = v.latch()?;
    stop!("remove ranks: latched");
    let before = if cfg!(debug_assertions) { alive(&latch) } else { 0 };
    let latch = take_out(index, latch, leaf, draft);
    debug_assert_eq!(before - alive(&latch), ranks.len(), "all that was asked for has gone");
    Some(latch)
}

/// Stores a packed leaf that was arranged without some entries, and keeps the latch.
pub(crate) fn take_out(index: &Index, latch: Latch, leaf: Ref, draft: &Draft) -> Latch {
    packing::rewrite(&latch, draft);
    let latch = latch.finish_latched();
    if latch.v.is_sparse(SPARSE) {
        drop::sparse(index, &latch, leaf);
    }
    latch
}

/// Returns the number of entries of a latched leaf that are not dead.
pub(crate) fn alive(latch: &Latch) -> usize {
    latch.v.entries().map_or(0, |n| n - latch.b().ndead() as usize)
}

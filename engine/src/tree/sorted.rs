//! Inserting entries that are sorted, leaf by leaf.
//!
//! Entries that belong to one leaf are a *run*. A run that the leaf has room for is inserted in
//! place, all of it under one latch. A run that is larger than that is merged with the leaf, into
//! one leaf or two (`merge`). Everything else takes the way of single inserts: an entry that comes
//! alone, a long key, a comparator, a snapshot that is alive, no memory, a leaf that another
//! process is changing. So a run only ever makes things faster.
//!
//! Invariants:
//! * *A batch is not one change.* It is published leaf by leaf, and each entry is in at most one
//!   leaf at any time. After an error the same batch may be inserted again.
//! * *What belongs to a leaf is decided by its own range.* The low keys of a leaf and of its right
//!   neighbour never change, and the latch is given only in the state that led to that neighbour.
//! * *No latch is held while another leaf is searched*, so two batches cannot wait for each other.
//! * *What is published under one announcement is one run.* No snapshot waits for a batch.

mod merge;

use crate::index::root::Index;
use crate::key::order::KeyOrder;
use crate::memory::place::Ref;
use crate::memory::process::Process;
use crate::node::block::{MAX_RECORD, PACKED, View};
use crate::node::packing::{self, MOST};
use crate::node::prefetch;
use crate::node::probe::Probe;
use crate::packed::Sorted;
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;
use crate::tree::insert::{Asked, InsertError, insert_at, insert_under};
use crate::tree::outcome::Outcome;
use crate::tree::reserve::Reserve;
use crate::tree::seek::{self, Position, Route};
use crate::tree::{separators, top};
use core::ops::Range;

/// Leaves that one call visits inside one section of the barrier: garbage waits for its end.
const LEAVES: usize = 16;
/// Entries after which a call returns. The caller looks for interrupts then.
const ENTRIES: usize = 1024;
/// The most entries of a run. They are more than a leaf and its new neighbour usually have room
/// for.
const RUN: usize = 512;
/// The fewest entries that a leaf of slots is packed with. Fewer fill slots faster.
const FEWEST_TO_PACK: usize = 8;

/// Inserting entries that are sorted.
pub trait InsertSorted {
    /// Inserts entries from number `from` on, unless they are in the index already, under the given
    /// term. They ascend by key and TID. Returns the number of the first entry that this call has
    /// not come to. None: the term is over, and nothing has changed.
    ///
    /// After an error, entries from `from` on may be in the index. They may be inserted again.
    ///
    /// # Panics
    /// A TID has more than 48 bits, or the order is of another kind than before.
    fn insert_sorted<O: KeyOrder>(
        &self,
        p: &Process,
        order: &O,
        entries: &impl Sorted,
        from: usize,
        term: u32,
    ) -> Result<Option<usize>, InsertError>;
}

impl InsertSorted for Index {
    fn insert_sorted<O: KeyOrder>(
        &self,
        p: &Process,
        order: &O,
        entries: &impl Sorted,
        from: usize,
        term: u32,
    ) -> Result<Option<usize>, InsertError> {
        self.note_order::<O>();
        let asked = Asked { term: Some(term), new: false };
        let mut reserve = Reserve::new(self);
        let mut at = from;
        while at < entries.len() && at - from < ENTRIES {
            if O::MEMCMP {
                let before = at;
                at = runs(self, p, order, entries, at, term, &mut reserve);
                if at > before {
                    continue;
                }
            }
            match insert_under(self, p, order, entries.key(at), entries.tid(at), asked)? {
                Some(_) => at += 1,
                None if at == from => return Ok(None),
                None => break,
            }
        }
        Ok(Some(at))
    }
}

/// Inserts runs from entry `at` on, in byte order. Returns the number of the first entry that wants
/// the way of single inserts, or another call.
fn runs<O: KeyOrder>(
    index: &Index,
    p: &Process,
    order: &O,
    entries: &impl Sorted,
    mut at: usize,
    term: u32,
    reserve: &mut Reserve<'_>,
) -> usize {
    let _section = index.enter(p);
    let mut leaf = None;
    for _ in 0..LEAVES {
        if at >= entries.len() || entries.key(at).len() > MAX_RECORD || entries.tid(at) >> 48 != 0 {
            break;
        }
        let probe = Probe::new(order, entries.key(at), entries.tid(at));
        let hinted = leaf.and_then(|leaf| seek::settle(index, &probe, leaf, true));
        let spot = hinted.unwrap_or_else(|| seek::seek(index, &probe, true));
        stop!("sorted: searched");
        if spot.v.b.parent() == 0 {
            // It was just split. A search from above does not find it by its own separator.
            separators::promote(index, spot.leaf);
        }
        let run = match takes_runs(index, &spot.v) {
            true => run_of(index, &spot.v, order, entries, at),
            false => at..at + 1,
        };
        let next = next_leaf(index, order, entries, run.end);
        let done = insert_run(index, p, &probe, &spot, entries, run.clone(), term, reserve);
        if done == 0 {
            break;
        }
        at += done;
        // What is left of a run goes on from its leaf, which is not to the right of its place.
        leaf = if at == run.end { next } else { Some(spot.leaf) };
    }
    at
}

/// Whether a leaf in this state may take several entries at once. To be asked again under its latch.
fn takes_runs(index: &Index, v: &View) -> bool {
    let packed = v.b.has(PACKED) || index.packs();
    packed && !index.unpacks() && index.shared().snapshots.quiet()
}

/// The entries from `at` on, the first of which belongs to the leaf in this state, that all do.
/// To be validated by the caller.
fn run_of<O: KeyOrder>(
    index: &Index,
    v: &View,
    order: &O,
    entries: &impl Sorted,
    at: usize,
) -> Range<usize> {
    let belongs = |i: usize| {
        let (key, tid) = (entries.key(i), entries.tid(i));
        let ascends = (entries.key(i - 1), entries.tid(i - 1)) < (key, tid);
        let probe = Probe::new(order, key, tid);
        let inside = || matches!(seek::route(index, v, &probe), Ok(Route::Here(_)));
        ascends
            && key.len() <= MAX_RECORD
            && tid >> 48 == 0
            && (inside() || mutant!("a run ends with the range of its leaf"))
    };
    let most = entries.len().min(at + RUN);
    at..(at + 1..most).find(|&i| !belongs(i)).unwrap_or(most)
}

/// A leaf at or to the left of that of an entry, which is being fetched from memory.
fn next_leaf<O: KeyOrder>(
    index: &Index,
    order: &O,
    entries: &impl Sorted,
    at: usize,
) -> Option<Ref> {
    if at >= entries.len() {
        return None;
    }
    let probe = Probe::new(order, entries.key(at), entries.tid(at));
    let fetch = |area, leaf| prefetch::whole_leaf(area, leaf);
    seek::descend(index, &probe, top::top(index, &probe), fetch)
}

/// Inserts as much of a run as can be inserted at once. Returns how many entries that are; 0: the
/// first one wants the way of single inserts.
#[allow(clippy::too_many_arguments, reason = "what a single insert takes, and the run")]
fn insert_run<O: KeyOrder>(
    index: &Index,
    p: &Process,
    probe: &Probe<'_, O>,
    spot: &Position,
    entries: &impl Sorted,
    run: Range<usize>,
    term: u32,
    reserve: &mut Reserve<'_>,
) -> usize {
    let writer = index.enter_writer(p);
    let single = |reserve: &mut Reserve<'_>, writer| {
        let asked = Asked { term: Some(term), new: false };
        let step = insert_at(index, p, probe, asked, spot, writer, reserve);
        // The next insert has another key.
        reserve.drop_chunk();
        usize::from(matches!(step, Outcome::Done(_)))
    };
    let late = writer.term() != term && !mutant!("a run is of the term that was asked for");
    if late || run.len() == 1 || !takes_runs(index, &spot.v) {
        return single(reserve, writer);
    }
    let packed = spot.v.b.has(PACKED);
    let merged = match packed {
        true => 2 * run.len() > spot.place.n,
        false => run.len() >= FEWEST_TO_PACK,
    };
    if merged && let Some(merged) = merge::merge(index, spot, entries, run.clone(), reserve) {
        index.shared().counters.inserted(p, merged.inserted as u64);
        if let Some(leaf) = merged.new {
            let _section = writer.into_reader();
            separators::promote(index, leaf);
        }
        return merged.done;
    }
    if packed && let Some(inserted) = in_place(index, spot, entries, run.clone(), reserve) {
        index.shared().counters.inserted(p, inserted.1 as u64);
        return inserted.0;
    }
    single(reserve, writer)
}

/// Inserts the first entries of a run into a packed leaf that has room for them. Returns how many
/// are in the leaf now, and how many of them came. None: the leaf has no room, or has changed.
fn in_place(
    index: &Index,
    spot: &Position,
    entries: &impl Sorted,
    run: Range<usize>,
    reserve: &mut Reserve<'_>,
) -> Option<(usize, usize)> {
    let leaf = spot.v.packed().ok()??;
    let most = run.len().min(MOST.saturating_sub(leaf.len()));
    let draft = reserve.draft();
    let new = (run.start..run.start + most).map(|i| (entries.key(i), entries.tid(i)));
    let (done, came) = leaf.insert_all(new, draft);
    if came == 0 {
        let known = done > 0 && (spot.v.valid() || mutant!("a run that is there is validated"));
        return known.then_some((done, 0));
    }
    let latch = spot.v.latch()?;
    stop!("sorted: latched");
    // As an insert of one entry does it.
    if !index.shared().snapshots.quiet() && !mutant!("a run in place looks for snapshots") {
        latch.release();
        return None;
    }
    packing::rewrite(&latch, draft);
    stop!("sorted: excluded");
    latch.finish();
    stop!("sorted: finished");
    Some((done, came))
}

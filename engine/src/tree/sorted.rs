//! Inserting entries that are sorted, leaf by leaf.
//!
//! Entries that belong to one leaf are a *run*. A run that the leaf has room for is inserted in
//! place, all of it under one latch. A run that is larger than that is merged with the leaf, into
//! one leaf or two (`merge`). In all other cases entries take the way of single inserts:
//! * an entry is alone in its leaf, or its key is long,
//! * a comparator orders the keys,
//! * a snapshot is alive,
//! * there is no memory,
//! * another process is changing the leaf.
//!
//! So nothing depends on runs but speed and memory.
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
        let batch = Batch { index: self, p, order, entries, asked };
        let mut reserve = Reserve::new(self);
        let mut at = from;
        while at < entries.len() && at - from < ENTRIES {
            if O::MEMCMP {
                let before = at;
                at = batch.insert_runs(at, &mut reserve);
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

/// Entries that are inserted together, and how.
struct Batch<'a, O, E> {
    index: &'a Index,
    p: &'a Process,
    order: &'a O,
    entries: &'a E,
    asked: Asked,
}

/// How far a run came.
struct Came {
    /// How many of its entries are in the index now. 0: the first one wants the way of single
    /// inserts.
    done: usize,
    /// The leaf cannot be merged with entries as it is.
    refused: bool,
}

impl<O: KeyOrder, E: Sorted> Batch<'_, O, E> {
    /// Inserts runs from entry `at` on, in byte order. Returns the number of the first entry that
    /// wants the way of single inserts, or another call.
    fn insert_runs(&self, mut at: usize, reserve: &mut Reserve<'_>) -> usize {
        let &Batch { index, p, entries, .. } = self;
        let _section = index.enter(p);
        let (mut leaf, mut refused) = (None, 0);
        for _ in 0..LEAVES {
            if at >= entries.len() || !is_short(entries, at) {
                break;
            }
            let probe = self.probe(at);
            let hinted = leaf.and_then(|leaf| seek::settle(index, &probe, leaf, true));
            let spot = hinted.unwrap_or_else(|| seek::seek(index, &probe, true));
            stop!("sorted: searched");
            if spot.v.b.parent() == 0 {
                // It was just split. A search from above does not find it by its own separator.
                separators::promote(index, spot.leaf);
            }
            let merges = spot.leaf != refused;
            let run = match takes_runs(index, &spot.v, merges) {
                true => self.run_of(&spot.v, at),
                false => at..at + 1,
            };
            let next = self.next_leaf(run.end);
            let came = self.insert_run(&probe, &spot, run.clone(), merges, reserve);
            if came.done == 0 {
                break;
            }
            if came.refused {
                refused = spot.leaf;
            }
            at += came.done;
            // The rest of a run goes on from its leaf, which is not to the right of its place.
            leaf = if at == run.end { next } else { Some(spot.leaf) };
        }
        at
    }

    fn probe(&self, i: usize) -> Probe<'_, O> {
        Probe::new(self.order, self.entries.key(i), self.entries.tid(i))
    }

    /// Returns the entries from `at` on that belong to the leaf in this state. Entry `at` does. The
    /// caller validates the state.
    fn run_of(&self, v: &View, at: usize) -> Range<usize> {
        let entries = self.entries;
        let belongs = |i: usize| {
            let ascends =
                (entries.key(i - 1), entries.tid(i - 1)) < (entries.key(i), entries.tid(i));
            let route = || seek::route(self.index, v, &self.probe(i));
            let inside = || {
                matches!(route(), Ok(Route::Here(_)))
                    || mutant!("a run ends with the range of its leaf")
            };
            ascends && is_short(entries, i) && inside()
        };
        let most = entries.len().min(at + RUN);
        at..(at + 1..most).find(|&i| !belongs(i)).unwrap_or(most)
    }

    /// Returns a leaf that has the place of entry `at`, or is to the left of it, and asks for its
    /// memory.
    fn next_leaf(&self, at: usize) -> Option<Ref> {
        if at >= self.entries.len() {
            return None;
        }
        let probe = self.probe(at);
        let fetch = |area, leaf| prefetch::whole_leaf(area, leaf);
        seek::descend(self.index, &probe, top::top(self.index, &probe), fetch)
    }

    /// Inserts as much of a run as can be inserted at once. `merges`: the leaf has not refused
    /// that.
    fn insert_run(
        &self,
        probe: &Probe<'_, O>,
        spot: &Position,
        run: Range<usize>,
        merges: bool,
        reserve: &mut Reserve<'_>,
    ) -> Came {
        let &Batch { index, p, entries, asked, .. } = self;
        let writer = index.enter_writer(p);
        let late = asked.term.is_some_and(|term| term != writer.term());
        let late = late && !mutant!("a run is of the term that was asked for");
        let packed = spot.v.b.has(PACKED);
        let several = !late && run.len() > 1;
        let most = if packed { spot.place.n / 2 } else { FEWEST_TO_PACK - 1 };
        let merges = several && merges && run.len() > most;
        if merges && let Some(merged) = merge::merge(index, spot, entries, run.clone(), reserve) {
            index.shared().counters.inserted(p, merged.inserted as u64);
            if let Some(leaf) = merged.new {
                let _section = writer.into_reader();
                separators::promote(index, leaf);
            }
            return Came { done: merged.done, refused: false };
        }
        if several
            && packed
            && let Some((done, came)) = in_place(spot, entries, run, reserve)
        {
            index.shared().counters.inserted(p, came as u64);
            return Came { done, refused: merges };
        }
        let step = insert_at(index, p, probe, asked, spot, writer, reserve);
        // The next insert has another key.
        reserve.drop_chunk();
        Came { done: usize::from(matches!(step, Outcome::Done(_))), refused: merges }
    }
}

/// Whether an entry is short enough for a packed leaf. Other ones take the way of single inserts,
/// which also reports those that are not valid.
fn is_short(entries: &impl Sorted, i: usize) -> bool {
    entries.key(i).len() <= MAX_RECORD && entries.tid(i) >> 48 == 0
}

/// Whether a leaf in this state may take several entries at once, under the term that the caller
/// has read before. `merges`: it has not refused to be merged.
///
/// Packed entries have no terms, so there may be no snapshot. One that comes after this question
/// closes the caller's term or a later one. Either it finds the insert announced, and waits for it.
/// Or the insert finds the term over, and changes nothing.
fn takes_runs(index: &Index, v: &View, merges: bool) -> bool {
    let packed = v.b.has(PACKED) || merges && index.packs();
    let quiet = || index.shared().snapshots.quiet() || mutant!("a run looks for snapshots");
    packed && !index.unpacks() && quiet()
}

/// Inserts the first entries of a run into a packed leaf that has room for them. Returns how many
/// are in the leaf now, and how many of them came. None: the leaf has no room, or has changed.
fn in_place(
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
    packing::rewrite(&latch, draft);
    stop!("sorted: excluded");
    latch.finish();
    stop!("sorted: finished");
    Some((done, came))
}

#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "../tests/sorted.rs"]
mod tests;

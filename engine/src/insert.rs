//! Inserting an entry.
//!
//! The place is searched latch-free; the latch is then taken only if the leaf is still in the state
//! that was searched. Under the latch nothing is compared, allocated or called. When something is
//! missing (room, a chunk, blocks for a split), everything is given up, the memory is reserved, and
//! the insert starts again: running out of memory happens there, before anything has changed.

use crate::area::{OutOfMemory, Ref};
use crate::barrier::Process;
use crate::block::{SLOTS, Tail, WHOLE, insert_slot};
use crate::heap::Class;
use crate::key::{Place, Probe, chunk_refs};
use crate::reserve::{Need, Reserve};
use crate::root::Index;
use crate::seek::Spot;
use crate::sync::Backoff;
use crate::{InsertError, KeyOrder, MAX_KEY_LEN, Tid};
use core::sync::atomic::Ordering::*;

/// Longest tail that is stored in a leaf itself.
pub(crate) const MAX_RECORD: usize = 512;

/// How an attempt ended.
pub(crate) enum Step {
    Done(bool),
    /// Somebody was faster, or room has been made.
    Again,
    /// A new leaf wants its separator in level 1.
    Promote(Ref),
    Need(Need),
    /// The leaf is full of lives of one entry, all of which snapshots need.
    Full,
}

/// What the heap of the leaf has to hold for the new key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// Nothing: the key ends inside the prefix, or an equal key is there.
    Tail(usize),
    /// Key bytes from here on.
    Record(usize),
    /// The whole key is in a chunk.
    Chunk,
}

impl Form {
    pub(crate) fn size(self, key: &[u8]) -> usize {
        match self {
            Form::Tail(_) => 0,
            Form::Record(from) => 2 + key.len() - from,
            Form::Chunk => 6,
        }
    }
}

impl Index {
    /// Inserts (key, tid) unless it is there; false if it was.
    pub fn insert<O: KeyOrder>(
        &self,
        p: &Process,
        order: &O,
        key: &[u8],
        tid: Tid,
    ) -> Result<bool, InsertError> {
        let outcome = self.insert_under(p, order, key, tid, None)?;
        Ok(outcome.expect("no term was asked for"))
    }

    /// As [`insert`](Self::insert), but only under the given term; `None`, and nothing has changed, if
    /// it is over. What the caller saw between reading the term and this call is then what a snapshot
    /// that closes the term saw, too: such a snapshot has the entry, or this returns `None`.
    pub fn insert_in_term<O: KeyOrder>(
        &self,
        p: &Process,
        order: &O,
        key: &[u8],
        tid: Tid,
        term: u32,
    ) -> Result<Option<bool>, InsertError> {
        self.insert_under(p, order, key, tid, Some(term))
    }

    fn insert_under<O: KeyOrder>(
        &self,
        p: &Process,
        order: &O,
        key: &[u8],
        tid: Tid,
        term: Option<u32>,
    ) -> Result<Option<bool>, InsertError> {
        if key.len() > MAX_KEY_LEN {
            return Err(InsertError::KeyTooLong(key.len()));
        }
        debug_assert!(tid >> 48 == 0);
        self.note_order::<O>();
        let probe = Probe::new(order, key, tid);
        let mut reserve = Reserve::new(self);
        // Outside every section: the holder of a latch may have been descheduled.
        let mut backoff = Backoff::default();
        loop {
            let step = {
                // A comparator runs outside the writer section, for which snapshots wait.
                let (_section, early) = if O::MEMCMP {
                    (None, Some(self.enter_writer(p)))
                } else {
                    (Some(p.enter()), None)
                };
                let spot = match self.append_spot(&probe) {
                    Some(spot) => spot,
                    None => self.seek_to_write(&probe),
                };
                if spot.v.b.parent() == 0 {
                    // Just split, or an unwinding comparator left it without its separator.
                    self.promote(order, spot.leaf, spot.node, &mut reserve);
                }
                // The tail of an entry with this key is shared.
                let same = spot.place.same.map(|slot| (spot.v.b.tid_word(slot) >> 48) as usize);
                let writer = early.unwrap_or_else(|| self.enter_writer(p));
                if term.is_some_and(|term| term != writer.term()) {
                    return Ok(None);
                }
                let mut step = self.try_insert(writer.term(), &probe, &spot, same, &mut reserve);
                if let Step::Promote(leaf) = step {
                    if !O::MEMCMP {
                        drop(writer);
                    }
                    self.promote(order, leaf, spot.node, &mut reserve);
                    step = Step::Again;
                } else if let Step::Done(true) = step {
                    // Inside the section: a snapshot that has the entry comes after it was counted.
                    self.shared().counters.inserted(p);
                }
                step
            };
            match step {
                Step::Done(inserted) => return Ok(Some(inserted)),
                Step::Again | Step::Promote(_) => backoff.wait(),
                Step::Need(need) => reserve.fill(need, key).map_err(InsertError::OutOfMemory)?,
                Step::Full => {
                    let requested = Class::LEAF[0].size();
                    return Err(InsertError::OutOfMemory(OutOfMemory { requested }));
                }
            }
        }
    }

    /// The end of the last leaf, if the latest insert was an append and this is one again: ascending
    /// keys need no search.
    #[inline]
    fn append_spot<O: KeyOrder>(&self, probe: &Probe<'_, O>) -> Option<Spot> {
        let last = &self.shared().last;
        let leaf = last.load(Acquire);
        if leaf == 0 {
            return None;
        }
        let spot = self.try_append_spot(leaf, probe);
        if spot.is_none() {
            // Not ascending (any more): do not try every time. A leaf that dies is taken out here
            // by the collector, too, before it goes to the barrier.
            let _ = last.compare_exchange(leaf, 0, AcqRel, Relaxed);
        }
        spot
    }

    #[inline]
    fn try_append_spot<O: KeyOrder>(&self, leaf: Ref, probe: &Probe<'_, O>) -> Option<Spot> {
        let b = self.block(leaf);
        let v = b.view();
        let n = v.mask().count_ones() as usize;
        if v.dead() || b.next() != 0 || n == 0 {
            return None;
        }
        let skip = b.skip();
        if O::MEMCMP && skip > 0 && probe.compare_shared(b, skip).is_ne() {
            return None;
        }
        let prefix = probe.prefix(skip);
        let slot = v.slot(n - 1);
        let top = b.prefix(slot);
        let mut same = None;
        if prefix < top {
            return None;
        }
        if prefix == top {
            let word = b.tid_word(slot);
            let by_key = probe.compare_key(self.area, &v, slot, word).ok()?;
            same = by_key.is_eq().then_some(slot);
            let ordering = by_key.then_with(|| probe.tid.cmp(&crate::block::tid_of(word)));
            if ordering.is_le() {
                return None;
            }
        }
        let place = Place { rank: n, n, hit: None, same };
        v.valid().then_some(Spot { v, place, prefix, beyond: false, leaf, node: 0 })
    }

    fn try_insert<O: KeyOrder>(
        &self,
        term: u32,
        probe: &Probe<'_, O>,
        spot: &Spot,
        same: Option<usize>,
        reserve: &mut Reserve<'_>,
    ) -> Step {
        let Spot { v, place, .. } = spot;
        let b = v.b;
        let mut born = term;
        if let Some(slot) = place.hit {
            match b.dead(slot) {
                // Alive, if the slot is still what was found.
                0 => return if v.valid() { Step::Done(false) } else { Step::Again },
                // Removed in a term after the one announced here (a snapshot is being made): the new
                // life begins after the old one.
                dead => born = born.max(dead),
            }
        }
        let form = match same {
            Some(tail) => Form::Tail(tail),
            None => self.form::<O>(probe.key, v, place.n),
        };
        if matches!(form, Form::Chunk) && reserve.chunk().is_none() {
            return Step::Need(Need::Chunk);
        }
        let room = b.size() - (b.heap_top() as usize).min(b.size());
        if spot.beyond || place.n == SLOTS || form.size(probe.key) > room {
            return self.make_room::<O>(probe, spot, form, reserve);
        }
        let Some(latch) = v.latch() else { return Step::Again };
        if !O::MEMCMP && !b.has(WHOLE) {
            // The first entry of the first leaf says what kind of keys there are.
            b.set_flag(WHOLE, true);
        }
        let (side, other) = (v.side(), latch.other());
        let mask = b.mask(side);
        let slot = (!mask).trailing_zeros() as usize;
        let tail = match form {
            Form::Tail(tail) => {
                if let Tail::Chunk(chunk) = b.tail((tail as u64) << 48) {
                    chunk_refs(self.area, chunk).fetch_add(1, Relaxed);
                }
                tail
            }
            Form::Record(from) => b.push_record(&probe.key[from..]),
            Form::Chunk => b.push_chunk(reserve.take_chunk()),
        };
        b.set_prefix(slot, spot.prefix);
        b.set_tid_word(slot, probe.tid, tail);
        b.set_born_dead(slot, born, 0);
        if born > b.max_born() {
            b.set_max_born(born);
        }
        b.set_perm(other, &insert_slot(&b.perm(side), place.rank, slot));
        b.set_mask(other, mask | 1 << slot);
        if place.rank == place.n && b.next() == 0 {
            let last = &self.shared().last;
            if last.load(Relaxed) != spot.leaf {
                last.store(spot.leaf, Release);
            }
        }
        latch.publish();
        Step::Done(true)
    }

    /// How to store a key in this leaf. Records are kept short enough for several to fit, so that a
    /// full leaf can always be split; to a single entry a chunk reference can always be added.
    fn form<O: KeyOrder>(&self, key: &[u8], v: &crate::block::View, n: usize) -> Form {
        let b = v.b;
        let inline = if O::MEMCMP { b.skip() + 8 } else { 0 };
        if O::MEMCMP && key.len() <= inline {
            return Form::Tail(key.len().saturating_sub(inline - 8));
        }
        let low = 10 + b.low_len() as usize;
        let heap = b.heap_size().saturating_sub(low);
        let len = 2 + key.len() - inline;
        let taken = match n {
            0 => 0,
            1 => match b.tail(b.tid_word(v.slot(0))) {
                Tail::Record(_, len) => len + 2,
                _ => 6,
            },
            _ => {
                return if len <= MAX_RECORD.min(heap / 4) {
                    Form::Record(inline)
                } else {
                    Form::Chunk
                };
            }
        };
        if len <= MAX_RECORD.min(heap / 4) && taken + len <= heap {
            Form::Record(inline)
        } else {
            Form::Chunk
        }
    }
}

//! Inserting an entry.
//!
//! The place is searched latch-free; the latch is then taken only if the leaf is still in the state
//! that was searched. Under the latch nothing is compared, allocated or called. When there is no
//! room, the leaf is changed outside the writer section, and the insert starts again. Memory is
//! allocated before the latch, so an insert that finds none has not changed the leaf.

use super::outcome::{KeyForm, Outcome};
use crate::index::reclaim;
use crate::index::root::Index;
use crate::key::order::{KeyOrder, Tid};
use crate::memory::area::OutOfMemory;
use crate::memory::place::Ref;
use crate::memory::process::{Process, WriterGuard};
use crate::node::block::{CAPACITY, MAX_RECORD, PACKED, Tail, WHOLE, insert_slot};
use crate::node::chunk::{MAX_KEY_LEN, chunk_refs};
use crate::node::probe::{Place, Probe};
use crate::sync::lock::Backoff;
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;
use crate::tree::cutting::Cutting;
use crate::tree::reserve::Reserve;
use crate::tree::seek::Position;
use crate::tree::{finger, packed, seek, separators, split};
use core::sync::atomic::Ordering::*;
use std::fmt;

/// Why an entry was not inserted. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertError {
    /// The area is full.
    OutOfMemory(OutOfMemory),
    /// The key has this many bytes, more than [`MAX_KEY_LEN`].
    KeyTooLong(usize),
    /// The entry was removed and inserted more often than a leaf can remember, while a snapshot
    /// that may see any of its lives was being made. Possible again when that is done.
    TooManyLives,
}

impl fmt::Display for InsertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InsertError::OutOfMemory(e) => e.fmt(f),
            InsertError::KeyTooLong(len) => {
                write!(f, "a key of {len} bytes is longer than {MAX_KEY_LEN}")
            }
            InsertError::TooManyLives => {
                f.write_str("a snapshot in the making needs too many lives of this entry")
            }
        }
    }
}

impl std::error::Error for InsertError {}

/// Attempts to find memory while other processes may be about to free some: about 20 ms.
const RELIEFS: u32 = 100;

/// An insert splits at most this many leaves. A split makes room for the entry. If the insert finds
/// none afterwards, other inserts have filled it, or the order leads to another leaf than before.
pub(crate) const MOST_SPLITS: u32 = 100;

/// The conditions of an insert.
#[derive(Clone, Copy, Default)]
pub(super) struct Asked {
    /// This term.
    pub(super) term: Option<u32>,
    /// Whether no entry may have its key.
    pub(super) new: bool,
}

/// Inserting entries.
pub trait Insert {
    /// Inserts (key, tid) unless it is there; false if it was.
    ///
    /// # Panics
    /// The TID has more than 48 bits. This, and all other calls with an order: entries were
    /// inserted with an order of the other kind, or the process is one of another area.
    fn insert<O: KeyOrder>(
        &self,
        p: &Process,
        order: &O,
        key: &[u8],
        tid: Tid,
    ) -> Result<bool, InsertError>;

    /// As [`insert`](Self::insert), but only under the given term. `None`: the term is over, and
    /// nothing has changed. So a snapshot that closes the term has the entry, or this returns
    /// `None`. The caller may rely on things that it saw since it read the term: the snapshot has
    /// seen the same.
    fn insert_in_term<O: KeyOrder>(
        &self,
        p: &Process,
        order: &O,
        key: &[u8],
        tid: Tid,
        term: u32,
    ) -> Result<Option<bool>, InsertError>;

    /// As [`insert_in_term`](Self::insert_in_term), but only if no entry has the key at that
    /// moment: `Some(false)`, and nothing has changed, if one may have it. Of two that insert a key
    /// so, with no entry of it, at most one does. If the key would be the first or the
    /// last in its leaf, the neighbour is not read, so it may have one.
    fn insert_new_in_term<O: KeyOrder>(
        &self,
        p: &Process,
        order: &O,
        key: &[u8],
        tid: Tid,
        term: u32,
    ) -> Result<Option<bool>, InsertError>;
}

impl Insert for Index {
    fn insert<O: KeyOrder>(
        &self,
        p: &Process,
        order: &O,
        key: &[u8],
        tid: Tid,
    ) -> Result<bool, InsertError> {
        let outcome = insert_under(self, p, order, key, tid, Asked::default())?;
        Ok(outcome.expect("no term was asked for"))
    }

    fn insert_in_term<O: KeyOrder>(
        &self,
        p: &Process,
        order: &O,
        key: &[u8],
        tid: Tid,
        term: u32,
    ) -> Result<Option<bool>, InsertError> {
        insert_under(self, p, order, key, tid, Asked { term: Some(term), new: false })
    }

    fn insert_new_in_term<O: KeyOrder>(
        &self,
        p: &Process,
        order: &O,
        key: &[u8],
        tid: Tid,
        term: u32,
    ) -> Result<Option<bool>, InsertError> {
        insert_under(self, p, order, key, tid, Asked { term: Some(term), new: true })
    }
}

pub(super) fn insert_under<O: KeyOrder>(
    index: &Index,
    p: &Process,
    order: &O,
    key: &[u8],
    tid: Tid,
    asked: Asked,
) -> Result<Option<bool>, InsertError> {
    if key.len() > MAX_KEY_LEN {
        return Err(InsertError::KeyTooLong(key.len()));
    }
    assert!(tid >> 48 == 0, "a TID has 48 bits");
    index.note_order::<O>();
    let probe = Probe::new(order, key, tid);
    let mut reserve = Reserve::new(index);
    // Outside every section: the holder of a latch may have been descheduled.
    let mut backoff = Backoff::default();
    let mut reliefs = 0;
    let mut finger = true;
    let mut splits = 0;
    // Ends. A latch fails only where another process made progress. Writing a full leaf anew makes
    // room for the entry, unless other inserts take it. Splits are counted.
    loop {
        if !O::MEMCMP {
            // The process may end inside the comparator: it holds nothing there.
            reserve.drop_chunk();
        }
        let step = attempt(index, p, &probe, asked, finger, &mut reserve);
        finger = false;
        stop!("insert: begins again");
        match step {
            Outcome::Done(inserted) => return Ok(Some(inserted)),
            Outcome::Late => return Ok(None),
            // There may be memory that no process has freed yet, or that is about to be free.
            // Outside of the sections, which would hold it up; those of the caller do.
            Outcome::NoMemory(e) => {
                let more = reclaim::relieve(index) && !p.is_inside();
                if reliefs == RELIEFS || reliefs > 0 && !more {
                    return Err(InsertError::OutOfMemory(e));
                }
                reliefs += 1;
                backoff.wait();
            }
            Outcome::Crowded => return Err(InsertError::TooManyLives),
            Outcome::Promote(_) => {
                splits += 1;
                if splits > MOST_SPLITS {
                    order.inconsistent();
                }
                backoff.wait();
            }
            _ => backoff.wait(),
        }
    }
}

#[inline]
fn attempt<O: KeyOrder>(
    index: &Index,
    p: &Process,
    probe: &Probe<'_, O>,
    asked: Asked,
    finger: bool,
    reserve: &mut Reserve<'_>,
) -> Outcome {
    // A comparator runs outside the writer section, for which snapshots wait.
    let (_section, early) =
        if O::MEMCMP { (None, Some(index.enter_writer(p))) } else { (Some(index.enter(p)), None) };
    let fingered = || finger.then(|| finger::finger_spot(index, p, probe)).flatten();
    let spot = append_spot(index, probe).or_else(fingered);
    let spot = spot.unwrap_or_else(|| seek::seek_to_write(index, probe));
    stop!("insert: searched");
    if spot.v.b.parent() == 0 && reserve.promoted != spot.leaf {
        // Just split, or an unwinding comparator left it without its separator. Tried once: without
        // memory it stays so.
        reserve.promoted = spot.leaf;
        let _section = early.map(WriterGuard::into_reader);
        separators::promote(index, spot.leaf);
        return Outcome::Again;
    }
    let writer = early.unwrap_or_else(|| index.enter_writer(p));
    insert_at(index, p, probe, asked, &spot, writer, reserve)
}

/// Inserts at a place that was searched.
#[inline]
pub(super) fn insert_at<O: KeyOrder>(
    index: &Index,
    p: &Process,
    probe: &Probe<'_, O>,
    asked: Asked,
    spot: &Position,
    writer: WriterGuard<'_>,
    reserve: &mut Reserve<'_>,
) -> Outcome {
    // The latch is given in the searched state only.
    if asked.new && !spot.has_new_key() {
        return Outcome::Done(false);
    }
    // The tail of an entry with this key is shared.
    let same = match spot.v.b.has(PACKED) {
        true => None,
        false => spot.place.same.map(|slot| (spot.v.b.tid_word(slot) >> 48) as usize),
    };
    if asked.term.is_some_and(|term| term != writer.term()) {
        return Outcome::Late;
    }
    let step = match spot.v.b.has(PACKED) {
        true => packed::insert_packed(index, p, probe, spot, reserve),
        false => try_insert(index, writer.term(), probe, spot, same, reserve),
    };
    match step {
        Outcome::Done(true) => {
            // Inside the section: a snapshot that has the entry comes after it was counted.
            index.shared().counters.inserted(p, 1);
            Outcome::Done(true)
        }
        Outcome::Room(form) => {
            let _section = writer.into_reader();
            let step = split::make_room(index, probe, spot, form, reserve);
            if !O::MEMCMP {
                reserve.drop_chunk();
            }
            if let Outcome::Promote(leaf) = step {
                separators::promote(index, leaf);
            }
            step
        }
        Outcome::Cut | Outcome::Slots => {
            let _section = writer.into_reader();
            let slots = matches!(step, Outcome::Slots);
            packed::cut_packed(index, &Cutting::of(probe, spot), slots, reserve)
        }
        step => step,
    }
}

/// The end of the last leaf, if the latest insert was an append and this is one again: ascending
/// keys need no search.
#[inline]
fn append_spot<O: KeyOrder>(index: &Index, probe: &Probe<'_, O>) -> Option<Position> {
    let last = &index.shared().last;
    let leaf = last.load(Acquire);
    if leaf == 0 {
        return None;
    }
    let spot = try_append_spot(index, leaf, probe);
    if spot.is_none() {
        // Not ascending (any more): do not try every time. A leaf that dies is taken out here
        // by the collector, too, before it goes to the barrier.
        let _ = last.compare_exchange(leaf, 0, AcqRel, Relaxed);
    }
    spot
}

#[inline]
fn try_append_spot<O: KeyOrder>(index: &Index, at: Ref, probe: &Probe<'_, O>) -> Option<Position> {
    let b = index.block(at);
    let v = b.view();
    let n = v.mask().count_ones() as usize;
    let dead = v.dead() && !mutant!("an append looks whether its leaf is dead");
    if dead || b.next() != 0 {
        return None;
    }
    if let Some(leaf) = v.packed().ok()? {
        let n = leaf.len();
        if n == 0 || !O::MEMCMP && probe.ends_above(&v, &leaf).ok()? {
            // Found out by one comparison, where each is a call.
            return None;
        }
        let found = probe.search_packed(&v, &leaf).ok()?;
        let same = found.same.then_some(found.key);
        let place = Place { rank: n, n, hit: None, same, keys: found.key };
        let spot = Position { v, place, prefix: 0, beyond: false, leaf: at };
        return (found.rank == n && v.valid()).then_some(spot);
    }
    if n == 0 {
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
        let by_key = probe.compare_key(index.area, &v, slot, word).ok()?;
        same = by_key.is_eq().then_some(slot);
        let ordering = by_key.then_with(|| probe.tid.cmp(&crate::node::block::tid_of(word)));
        if ordering.is_le() {
            return None;
        }
    }
    let place = Place { rank: n, n, hit: None, same, keys: 0 };
    v.valid().then_some(Position { v, place, prefix, beyond: false, leaf: at })
}

fn try_insert<O: KeyOrder>(
    index: &Index,
    term: u32,
    probe: &Probe<'_, O>,
    spot: &Position,
    same: Option<usize>,
    reserve: &mut Reserve<'_>,
) -> Outcome {
    let Position { v, place, .. } = spot;
    let b = v.b;
    let mut born = term;
    if let Some(slot) = place.hit {
        match b.dead(slot) {
            // Alive, if the slot is still what was found.
            0 if mutant!("an entry that was found is validated") => return Outcome::Done(false),
            0 => return if v.valid() { Outcome::Done(false) } else { Outcome::Again },
            // Removed in a term after the one announced here (a snapshot is being made): the new
            // life begins after the old one.
            _ if mutant!("an entry is born after its earlier life") => {}
            dead => born = born.max(dead),
        }
    }
    let form = match same {
        Some(tail) => KeyForm::Tail(tail),
        None => form::<O>(probe.key, v, place.n),
    };
    let chunk = match form {
        KeyForm::Chunk => match reserve.need_chunk(probe.key) {
            Ok(chunk) => chunk,
            Err(e) => return Outcome::NoMemory(e),
        },
        _ => 0,
    };
    let room = b.size() - (b.keys_top() as usize).min(b.size());
    if spot.beyond || place.n == CAPACITY || form.size(probe.key) > room {
        return Outcome::Room(form);
    }
    let Some(latch) = v.latch() else { return Outcome::Again };
    stop!("insert: latched");
    if !O::MEMCMP && !b.has(WHOLE) {
        // The first entry of the first leaf says what kind of keys there are.
        b.set_flag(WHOLE, true);
    }
    let (side, other) = (v.side(), latch.other());
    let mask = b.mask(side);
    let slot = (!mask).trailing_zeros() as usize;
    let tail = match form {
        KeyForm::Tail(tail) => {
            if let Tail::Chunk(shared) = b.tail((tail as u64) << 48) {
                chunk_refs(index.area, shared).fetch_add(1, Relaxed);
            }
            tail
        }
        KeyForm::Record(from) => b.push_record(&probe.key[from..]),
        KeyForm::Chunk => {
            reserve.chunk_is_used();
            b.push_chunk(chunk)
        }
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
        let last = &index.shared().last;
        if last.load(Relaxed) != spot.leaf {
            last.store(spot.leaf, Release);
        }
    }
    stop!("insert: filled");
    latch.publish();
    stop!("insert: published");
    Outcome::Done(true)
}

/// How to store a key in this leaf. Records are kept short enough for several to fit, so that a
/// full leaf can always be split; to a single entry a chunk reference can always be added.
fn form<O: KeyOrder>(key: &[u8], v: &crate::node::block::View, n: usize) -> KeyForm {
    let b = v.b;
    let inline = if O::MEMCMP { b.skip() + 8 } else { 0 };
    if O::MEMCMP && key.len() <= inline {
        return KeyForm::Tail(key.len().saturating_sub(inline - 8));
    }
    let low = 10 + b.low_len() as usize;
    let key_area = b.key_area_size().saturating_sub(low);
    let len = 2 + key.len() - inline;
    let taken = match n {
        0 => 0,
        1 => match b.tail(b.tid_word(v.slot(0))) {
            Tail::Record(_, len) => len + 2,
            _ => 6,
        },
        _ => {
            return if len <= MAX_RECORD.min(key_area / 4) {
                KeyForm::Record(inline)
            } else {
                KeyForm::Chunk
            };
        }
    };
    if len <= MAX_RECORD.min(key_area / 4) && taken + len <= key_area {
        KeyForm::Record(inline)
    } else {
        KeyForm::Chunk
    }
}

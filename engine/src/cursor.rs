//! Reading a range in order, in either direction, a leaf at a time.
//!
//! A batch is copied out of one state of a leaf. Between calls nothing is held: the cursor remembers
//! the leaf, its version and the first and last entry that the batch covered. If the version has not
//! changed, the neighbour is still the neighbour; otherwise the place is searched again by key. In
//! both cases the next batch starts exactly where this one ended, so an entry that lives through the
//! whole scan is neither missed nor repeated:
//! * forward, `next` was read in the same state as the entries, and the neighbour's range begins where
//!   that state's range ended. Entries moved left by a merge changed this leaf's version, or made the
//!   neighbour DEAD;
//! * backward, the left neighbour counts only if its `next`, read in the same state as its entries, is
//!   this leaf. Its range then ends where this leaf's begins. Otherwise it was split (walk right), or
//!   merged (search).

use crate::ahead::Ahead;
use crate::area::Ref;
use crate::barrier::Process;
use crate::block::{LEFTMOST, Latch, SLOTS, View, tid_of};
use crate::key::{Probe, Retry, append_key, locate};
use crate::root::{CURRENT, Index};
use crate::{KeyOrder, Tid};
use core::cmp::Ordering;

/// What [`Cursor::remove`] does when the leaf has changed since its batch was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remove {
    /// Nothing.
    IfUnchanged,
    /// Searches the entries. Without keys in the batch, all entries with these TIDs in the range
    /// that the batch covered are removed.
    Always,
}

/// An entry at which a batch begins or ends.
#[derive(Clone, Debug, Default)]
struct Bound {
    key: Vec<u8>,
    tid: Tid,
}

/// Where the cursor is.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Nothing read yet.
    Start,
    /// On a batch from this version of `leaf`, whose right neighbour was `next`. `part`: an earlier
    /// batch had the rest of the leaf, so its neighbours are not the batch's.
    Batch { leaf: Ref, ver: u64, next: Ref, first: bool, last: bool, part: bool },
    /// Before everything in the range.
    Before,
    /// Behind everything in the range.
    Behind,
}

/// After so many attempts, a leaf is latched to be read.
const MAX_TRIES: u32 = 16;

/// How the next leaf to read is found.
#[derive(Clone, Copy)]
enum Way {
    Search,
    /// The right neighbour of what was read; or, backward, what was read last.
    Neighbour(Ref),
}

/// Reads a range of an index. It can be cloned to come back to a position. If the order unwinds, the
/// cursor must be given its range again.
#[derive(Clone)]
pub struct Cursor {
    want_keys: bool,
    sn: u32,
    lower: Vec<u8>,
    upper: Vec<u8>,
    bounded: bool,
    state: State,
    /// The first and the last entry that the batch covers, visible or not.
    first: Bound,
    last: Bound,
    /// The same of a batch that has not been validated.
    new_first: Bound,
    new_last: Bound,
    /// The key that is searched.
    sought: Vec<u8>,
    n: usize,
    tids: [Tid; SLOTS],
    slots: [u8; SLOTS],
    keys: Vec<u8>,
    /// Where each key ends.
    ends: [u32; SLOTS],
    ahead: Ahead,
}

impl Cursor {
    /// Whether batches have keys, from the next range on.
    pub fn want_keys(&mut self, want: bool) {
        self.want_keys = want;
    }

    /// A cursor over nothing. `want_keys`: batches have keys.
    pub fn new(want_keys: bool) -> Cursor {
        Cursor {
            want_keys,
            sn: CURRENT,
            lower: Vec::new(),
            upper: Vec::new(),
            bounded: false,
            state: State::Start,
            first: Bound::default(),
            last: Bound::default(),
            new_first: Bound::default(),
            new_last: Bound::default(),
            sought: Vec::new(),
            n: 0,
            tids: [0; SLOTS],
            slots: [0; SLOTS],
            keys: Vec::new(),
            ends: [0; SLOTS],
            ahead: Ahead::default(),
        }
    }

    /// Reads entries with lower <= key < upper from now on, as a snapshot with this `sn` sees them
    /// (`u32::MAX - 1`: as they are).
    pub fn set_range(&mut self, lower: &[u8], upper: Option<&[u8]>, sn: u32) {
        self.sn = sn;
        self.lower.clear();
        self.lower.extend_from_slice(lower);
        self.upper.clear();
        self.upper.extend_from_slice(upper.unwrap_or_default());
        self.bounded = upper.is_some();
        self.ahead.clear();
        self.stop(State::Start);
    }

    /// Entries in the batch.
    #[inline]
    pub fn len(&self) -> usize {
        self.n
    }

    /// There is no batch.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// TID of an entry of the batch.
    #[inline]
    pub fn tid(&self, i: usize) -> Tid {
        self.tids[..self.n][i]
    }

    /// Key of an entry of the batch, if keys are wanted.
    #[inline]
    pub fn key(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        &self.keys[start..self.ends[..self.n][i] as usize]
    }

    /// Reads the batch behind the current one and returns its length, 0 at the end.
    pub fn next<O: KeyOrder>(&mut self, p: &Process, index: Index, order: &O) -> usize {
        let _section = p.enter();
        let mut way = match self.state {
            State::Behind | State::Batch { last: true, .. } => return self.stop(State::Behind),
            State::Batch { leaf, ver, next, part: false, .. } if index.block(leaf).is_at(ver) => {
                Way::Neighbour(next)
            }
            _ => Way::Search,
        };
        // Has a leaf been read, so that the scan goes on behind `last`?
        let mut moved = matches!(self.state, State::Batch { .. });
        let upper = core::mem::take(&mut self.upper);
        let end = self.bounded.then(|| Probe::new(order, &upper, 0));
        let mut tries = 0;
        let n = loop {
            let (leaf, v, from, resumed) = match way {
                Way::Neighbour(leaf) => {
                    let v = index.block(leaf).view();
                    if v.dead() {
                        way = Way::Search;
                        continue;
                    }
                    self.ahead.forward(index, leaf, self.want_keys);
                    (leaf, v, 0, false)
                }
                Way::Search => {
                    let key = self.search_key(moved, true);
                    let tid = if moved { self.last.tid } else { 0 };
                    let spot = index.seek(&Probe::new(order, &key, tid), moved);
                    self.sought = key;
                    (spot.leaf, spot.v, spot.place.rank, moved)
                }
            };
            let next = v.b.next();
            let n = v.mask().count_ones() as usize;
            let latch = hold::<O>(&v, &mut tries);
            let read = rank_of_end(index, &v, from, n, end.as_ref()).and_then(|to| {
                self.copy(index, &v, from, to.max(from))?;
                Ok(to)
            });
            if let Some(latch) = latch {
                latch.release();
            }
            let Ok(to) = read else { continue };
            tries = 0;
            moved |= to > from;
            let last = to < n || next == 0;
            if self.n > 0 {
                let part = resumed && from > 0;
                self.state = State::Batch { leaf, ver: v.ver, next, first: false, last, part };
                break self.n;
            }
            if last {
                break self.stop(State::Behind);
            }
            way = Way::Neighbour(next);
        };
        self.upper = upper;
        n
    }

    /// Reads the batch before the current one and returns its length, 0 at the beginning.
    pub fn prev<O: KeyOrder>(&mut self, p: &Process, index: Index, order: &O) -> usize {
        let _section = p.enter();
        let mut way = match self.state {
            State::Before | State::Batch { first: true, .. } => return self.stop(State::Before),
            State::Batch { leaf, ver, part: false, .. } if index.block(leaf).is_at(ver) => {
                Way::Neighbour(leaf)
            }
            _ => Way::Search,
        };
        let mut moved = matches!(self.state, State::Batch { .. });
        let lower = core::mem::take(&mut self.lower);
        let begin = (!lower.is_empty()).then(|| Probe::new(order, &lower, 0));
        let mut tries = 0;
        let n = loop {
            let (leaf, v, to, resumed) = match way {
                Way::Neighbour(right) => match left_of(index, right) {
                    Some((leaf, v)) => {
                        self.ahead.backward(index, leaf, self.want_keys);
                        (leaf, v, v.mask().count_ones() as usize, false)
                    }
                    None => {
                        way = Way::Search;
                        continue;
                    }
                },
                Way::Search => {
                    let key = self.search_key(moved, false);
                    let probe = match moved {
                        true => Probe::new(order, &key, self.first.tid),
                        false if self.bounded => Probe::new(order, &key, 0),
                        false => Probe::end(order),
                    };
                    let spot = index.seek(&probe, false);
                    self.sought = key;
                    (spot.leaf, spot.v, spot.place.rank, moved)
                }
            };
            let next = v.b.next();
            let leftmost = v.b.has(LEFTMOST);
            let n = v.mask().count_ones() as usize;
            let latch = hold::<O>(&v, &mut tries);
            let read = rank_of_begin(index, &v, n, begin.as_ref()).and_then(|from| {
                self.copy(index, &v, from.min(to), to)?;
                Ok(from)
            });
            if let Some(latch) = latch {
                latch.release();
            }
            let Ok(from) = read else { continue };
            tries = 0;
            moved |= from < to;
            let first = from > 0 || leftmost;
            if self.n > 0 {
                let part = resumed && to < n;
                // What is behind the batch in its leaf is behind the range, unless an earlier batch
                // had it.
                let last = if to < n { !part } else { next == 0 };
                self.state = State::Batch { leaf, ver: v.ver, next, first, last, part };
                break self.n;
            }
            if first {
                break self.stop(State::Before);
            }
            way = Way::Neighbour(leaf);
        };
        self.lower = lower;
        n
    }

    /// Removes entries of the batch from the index, by their positions in the batch; returns how
    /// many were removed by this call.
    pub fn remove<O: KeyOrder>(
        &mut self,
        p: &Process,
        index: Index,
        order: &O,
        which: &[u16],
        kind: Remove,
    ) -> usize {
        let State::Batch { leaf, ver, next, first, last, part } = self.state else { return 0 };
        if which.is_empty() {
            return 0;
        }
        let writer = index.enter_writer(p);
        // The memory keeps its type, and a version does not come back: if this succeeds, the leaf is
        // the one that was copied and has not changed.
        if let Some(latch) = (View { b: index.block(leaf), ver }).latch() {
            let slots = which.iter().map(|&i| self.slots[..self.n][i as usize] as usize);
            let gone = slots
                .filter(|&slot| latch.b().dead(slot) == 0)
                .fold(0, |mask, slot| mask | 1u64 << slot);
            // Positions that were given before.
            let gone = gone & latch.v.mask();
            let latch = index.remove_slots(latch, leaf, gone, writer.term());
            self.state = State::Batch { leaf, ver: latch.v.ver, next, first, last, part };
            latch.release();
            let removed = gone.count_ones() as usize;
            index.shared().counters.removed(p, removed as u64);
            return removed;
        }
        drop(writer);
        match kind {
            Remove::IfUnchanged => 0,
            Remove::Always if self.want_keys => {
                let search =
                    |&&i: &&u16| index.remove(p, order, self.key(i as usize), self.tid(i as usize));
                which.iter().filter(search).count()
            }
            Remove::Always => self.remove_by_tid(p, index, order, which),
        }
    }

    /// Removes all entries with these TIDs from the range that the batch covered.
    fn remove_by_tid<O: KeyOrder>(
        &self,
        p: &Process,
        index: Index,
        order: &O,
        which: &[u16],
    ) -> usize {
        let mut victims: Vec<Tid> = which.iter().map(|&i| self.tid(i as usize)).collect();
        victims.sort_unstable();
        let mut cursor = Cursor::new(true);
        cursor.set_range(&self.first.key, None, CURRENT);
        let mut removed = 0;
        while cursor.next(p, index, order) > 0 {
            for i in 0..cursor.len() {
                let (key, tid) = (cursor.key(i), cursor.tid(i));
                let ordering = crate::compare(order, key, &self.last.key);
                if ordering.then(tid.cmp(&self.last.tid)) == Ordering::Greater {
                    return removed;
                }
                if victims.binary_search(&tid).is_ok() {
                    removed += usize::from(index.remove(p, order, key, tid));
                }
            }
        }
        removed
    }

    fn stop(&mut self, state: State) -> usize {
        self.state = state;
        self.n = 0;
        self.keys.clear();
        0
    }

    /// A copy of the key where the scan goes on, in the buffer kept for that.
    fn search_key(&mut self, moved: bool, forward: bool) -> Vec<u8> {
        let mut key = core::mem::take(&mut self.sought);
        key.clear();
        key.extend_from_slice(match (moved, forward) {
            (true, true) => &self.last.key,
            (true, false) => &self.first.key,
            (false, true) => &self.lower,
            (false, false) => &self.upper,
        });
        key
    }

    /// Copies the visible entries of these ranks, and the first and the last of all of them.
    fn copy(&mut self, index: Index, v: &View, from: usize, to: usize) -> Result<(), Retry> {
        let copied = self.copy_unchecked(index, v, from, to);
        if copied.is_err() || !v.valid() {
            self.n = 0;
            self.keys.clear();
            return Err(Retry);
        }
        if from < to {
            core::mem::swap(&mut self.first, &mut self.new_first);
            core::mem::swap(&mut self.last, &mut self.new_last);
        }
        Ok(())
    }

    fn copy_unchecked(
        &mut self,
        index: Index,
        v: &View,
        from: usize,
        to: usize,
    ) -> Result<(), Retry> {
        let b = v.b;
        self.n = 0;
        self.keys.clear();
        if from >= to {
            return Ok(());
        }
        let all = b.ndead() == 0 && b.max_born() <= self.sn;
        for rank in from..to {
            let slot = v.slot(rank);
            if !all && !b.visible(slot, self.sn) {
                continue;
            }
            let word = b.tid_word(slot);
            self.tids[self.n] = tid_of(word);
            self.slots[self.n] = slot as u8;
            if self.want_keys {
                append_key(index.area, v, slot, word, &mut self.keys)?;
                self.ends[self.n] = self.keys.len() as u32;
            }
            self.n += 1;
        }
        for (bound, rank) in [(&mut self.new_first, from), (&mut self.new_last, to - 1)] {
            let slot = v.slot(rank);
            let word = b.tid_word(slot);
            bound.key.clear();
            append_key(index.area, v, slot, word, &mut bound.key)?;
            bound.tid = tid_of(word);
        }
        Ok(())
    }
}

/// How many of the `n` entries of a leaf are below `end`, at least `from` of interest. To be validated by the caller.
fn rank_of_end<O: KeyOrder>(
    index: Index,
    v: &View,
    from: usize,
    n: usize,
    end: Option<&Probe<'_, O>>,
) -> Result<usize, Retry> {
    let Some(end) = end else { return Ok(n) };
    if n == 0 {
        // Nothing says that the range ends here; the next leaf will.
        return Ok(0);
    }
    let prefix = match shared(v, end) {
        Ordering::Less => return Ok(0),
        Ordering::Greater => return Ok(n),
        Ordering::Equal => end.prefix(v.b.skip()),
    };
    let above = |rank: usize| -> Result<bool, Retry> {
        let slot = v.slot(rank);
        Ok(match prefix.cmp(&v.b.prefix(slot)) {
            Ordering::Equal => end.compare_key(index.area, v, slot, v.b.tid_word(slot))?.is_gt(),
            unequal => unequal.is_gt(),
        })
    };
    // Most ranges end behind all entries of a leaf, or are lookups of one key.
    if above(n - 1)? {
        return Ok(n);
    }
    for rank in from..n.min(from + 2) {
        if !above(rank)? {
            return Ok(rank);
        }
    }
    Ok(locate(index.area, v, end, prefix, false)?.rank)
}

/// How many of the `n` entries of a leaf are below `begin`. To be validated by the caller.
fn rank_of_begin<O: KeyOrder>(
    index: Index,
    v: &View,
    n: usize,
    begin: Option<&Probe<'_, O>>,
) -> Result<usize, Retry> {
    let Some(begin) = begin else { return Ok(0) };
    if n == 0 {
        return Ok(0);
    }
    let prefix = match shared(v, begin) {
        Ordering::Less => return Ok(0),
        Ordering::Greater => return Ok(n),
        Ordering::Equal => begin.prefix(v.b.skip()),
    };
    let slot = v.slot(0);
    let below = match prefix.cmp(&v.b.prefix(slot)) {
        Ordering::Equal => {
            begin.compare_key(index.area, v, slot, v.b.tid_word(slot))? == Ordering::Less
        }
        unequal => unequal.is_lt(),
    };
    if below { Ok(0) } else { Ok(locate(index.area, v, begin, prefix, false)?.rank) }
}

/// A leaf that is changed all the time is read under its latch after some tries, which nobody can
/// disturb. Not with a comparator: that must not be called there, and with one changes are slow.
fn hold<O: KeyOrder>(v: &View, tries: &mut u32) -> Option<Latch> {
    *tries += 1;
    if O::MEMCMP && *tries > MAX_TRIES && !v.dead() { v.latch() } else { None }
}

/// The probe's first bytes against those that all keys of the leaf share.
fn shared<O: KeyOrder>(v: &View, probe: &Probe<'_, O>) -> Ordering {
    match v.b.skip() {
        0 => Ordering::Equal,
        skip => probe.compare_shared(v.b, skip),
    }
}

/// The left neighbour of a leaf that was alive in this barrier section, in a state in which it was
/// exactly that; None if it is not found by a few steps.
fn left_of(index: Index, leaf: Ref) -> Option<(Ref, View)> {
    let mut at = index.block(leaf).prev();
    for _ in 0..8 {
        if at == 0 {
            return None;
        }
        let v = index.block(at).view();
        let next = v.b.next();
        if v.dead() {
            return None;
        }
        if v.valid() {
            if next == leaf {
                return Some((at, v));
            }
            at = next;
        }
    }
    None
}

//! One actor of a storm.

use crate::common::*;
use nitro_engine::prelude::*;
use nitro_engine::{
    Cursor, Index, InsertError, KeyOrder, Process, Prune, Separator, Snapshot, SnapshotError,
    Sweep, TOGETHER, Walk,
};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

const CURRENT: u32 = u32::MAX - 1;

/// An entry, its key as bytes that compare as the order does.
type Entry = (Vec<u8>, u64);

/// The keys of a storm.
#[derive(Clone, Copy)]
pub struct Keys {
    pub make: fn(u64) -> Vec<u8>,
    /// How many there are.
    pub n: u64,
    /// How many entries of one key an actor has.
    pub tids: u64,
    /// Bytes that compare as a key does in the order of the storm, and the key again.
    pub fold: fn(&[u8]) -> Vec<u8>,
    pub unfold: fn(&[u8]) -> Vec<u8>,
}

/// A snapshot, and all that it had when it was made.
struct Held {
    snapshot: Snapshot,
    all: Vec<Entry>,
}

/// Bounds of a range, as the order has them.
struct Range {
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

pub struct Actor<'a, O> {
    p: &'a Process,
    ix: Index,
    order: &'a O,
    keys: Keys,
    me: u64,
    actors: u64,
    /// The own entries that are there.
    own: BTreeSet<Entry>,
    random: Random,
    held: Vec<Held>,
    sweep: Sweep<'a>,
}

impl<'a, O: KeyOrder> Actor<'a, O> {
    pub fn new(
        p: &'a Process,
        ix: Index,
        order: &'a O,
        keys: Keys,
        (me, actors): (u64, u64),
        seed: u64,
    ) -> Self {
        let random = Random(seed.wrapping_add(me << 32));
        let (own, held, sweep) = (BTreeSet::new(), Vec::new(), Sweep::new(p, ix));
        Actor { p, ix, order, keys, me, actors, own, random, held, sweep }
    }

    /// Does something.
    pub fn act(&mut self) {
        match self.random.below(100) {
            0..55 => self.change_some(),
            55..60 => self.insert_batch(),
            60..66 => self.insert_new(),
            66..80 => self.scroll(),
            80..83 => self.read_parts(),
            83 => self.walk(),
            84..88 => self.read_together(),
            88 => self.prune(),
            89..92 => self.make_snapshot(),
            92..95 => self.read_snapshot(),
            95..97 => _ = self.ix.collect(self.p, 1 + self.random.below(300) as usize),
            _ => self.sweep(),
        }
    }

    /// Gives its snapshots back, and says what it has.
    pub fn retire(mut self) -> BTreeSet<Entry> {
        while !self.held.is_empty() {
            self.read_snapshot();
        }
        self.own
    }

    fn key(&mut self) -> Vec<u8> {
        (self.keys.make)(self.random.below(self.keys.n))
    }

    fn tid(&mut self) -> u64 {
        self.me + self.actors * self.random.below(self.keys.tids)
    }

    fn is_own(&self, tid: u64) -> bool {
        tid % self.actors == self.me
    }

    /// Many changes at keys beside each other, or anywhere.
    fn change_some(&mut self) {
        let (from, span) = (self.random.below(self.keys.n), 1 + self.random.below(self.keys.n));
        let ascends = self.random.below(3) == 0;
        let grows = self.random.below(5) < 3;
        for i in 0..self.random.below(60) {
            let at = if ascends { i } else { self.random.below(span) };
            let key = (self.keys.make)((from + at) % self.keys.n);
            let tid = self.tid();
            match self.random.below(10) {
                0 => self.look_up(&key, tid),
                1..9 if grows => self.insert(&key, tid),
                9 if !grows => self.insert(&key, tid),
                _ => self.remove(&key, tid),
            }
        }
    }

    fn look_up(&self, key: &[u8], tid: u64) {
        let there = self.own.contains(&((self.keys.fold)(key), tid));
        assert_eq!(self.ix.contains(self.p, self.order, key, tid), there, "{key:?} {tid}");
    }

    fn insert(&mut self, key: &[u8], tid: u64) {
        match self.ix.insert(self.p, self.order, key, tid) {
            Ok(new) => {
                let entry = ((self.keys.fold)(key), tid);
                assert_eq!(new, self.own.insert(entry), "{key:?} {tid}");
            }
            Err(e) => self.refused(e),
        }
    }

    /// Many entries at once, at keys beside each other or anywhere. Some are there already, some
    /// come twice, and now and then they are not in order. The caller may unwind in the middle.
    fn insert_batch(&mut self) {
        let (from, span) = (self.random.below(self.keys.n), 1 + self.random.below(self.keys.n));
        let ascends = self.random.below(2) == 0;
        let mut entries = Vec::new();
        for i in 0..self.random.below(300) {
            let at = if ascends { i / 2 } else { self.random.below(span) };
            entries.push(((self.keys.make)((from + at) % self.keys.n), self.tid()));
        }
        if self.random.below(8) > 0 {
            entries.sort_by_cached_key(|(key, tid)| ((self.keys.fold)(key), *tid));
        }
        let left = if self.random.below(4) == 0 { self.random.below(2000) } else { u64::MAX };
        let end = || resume_unwind(Box::new("error"));
        let batch = Ending { entries: &entries, left: Cell::new(left), end };
        let came = catch_unwind(AssertUnwindSafe(|| {
            let mut at = 0;
            while at < entries.len() {
                let term = self.ix.term();
                match self.ix.insert_sorted(self.p, self.order, &batch, at, term) {
                    Ok(Some(next)) => at = next,
                    // A snapshot has ended the term.
                    Ok(None) => {}
                    Err(e) => {
                        self.refused(e);
                        return false;
                    }
                }
            }
            true
        }));
        let all = came.unwrap_or(false);
        for (key, tid) in &entries {
            let there = self.ix.contains(self.p, self.order, key, *tid);
            let entry = ((self.keys.fold)(key), *tid);
            assert!(there || !all && !self.own.contains(&entry), "{key:?} {tid}");
            if there {
                self.own.insert(entry);
            }
        }
    }

    /// Nothing has changed.
    fn refused(&self, e: InsertError) {
        assert!(!matches!(e, InsertError::KeyTooLong(_)), "{e}");
    }

    /// An entry of a new key.
    fn insert_new(&mut self) {
        let (key, tid) = (self.key(), self.tid());
        let term = self.ix.term();
        match self.ix.insert_new_in_term(self.p, self.order, &key, tid, term) {
            Ok(Some(true)) => {
                let folded = (self.keys.fold)(&key);
                let first = self.own.range((folded.clone(), 0)..).next();
                assert!(first.is_none_or(|entry| entry.0 != folded), "{key:?} is not new");
                self.own.insert((folded, tid));
            }
            Ok(Some(false) | None) => {}
            Err(e) => self.refused(e),
        }
    }

    fn remove(&mut self, key: &[u8], tid: u64) {
        let there = self.own.remove(&((self.keys.fold)(key), tid));
        assert_eq!(self.ix.remove(self.p, self.order, key, tid), there, "{key:?} {tid}");
    }

    fn range(&mut self) -> Range {
        let (a, b) = (self.key(), self.key());
        let (lower, upper) = match (self.keys.fold)(&a) <= (self.keys.fold)(&b) {
            true => (a, b),
            false => (b, a),
        };
        let lower = if self.random.below(4) == 0 { Vec::new() } else { lower };
        Range { lower, upper: (self.random.below(4) > 0).then_some(upper) }
    }

    /// The bounds as an entry's key is folded. The empty key is before all others.
    fn folded(&self, range: &Range) -> (Vec<u8>, Option<Vec<u8>>) {
        let lower = match range.lower.is_empty() {
            true => Vec::new(),
            false => (self.keys.fold)(&range.lower),
        };
        (lower, range.upper.as_deref().map(self.keys.fold))
    }

    /// The own entries in a range.
    fn own_in(&self, range: &Range) -> Vec<Entry> {
        let (lower, upper) = self.folded(range);
        let below = |entry: &&Entry| upper.as_ref().is_none_or(|upper| entry.0 < *upper);
        self.own.range((lower, 0)..).take_while(below).cloned().collect()
    }

    /// The own entries of a batch, by their positions in it. All are in order.
    fn own_of(&self, cursor: &Cursor) -> Vec<usize> {
        let n = cursor.len();
        if cursor.has_keys() {
            let entry = |i| ((self.keys.fold)(cursor.key(i)), cursor.tid(i));
            assert!((1..n).all(|i| entry(i - 1) < entry(i)), "a batch is out of order");
        }
        (0..n).filter(|&i| self.is_own(cursor.tid(i))).collect()
    }

    /// The own entries of a batch are these.
    fn check(&self, cursor: &Cursor, own: &[usize], expected: &[Entry]) {
        let seen = own.iter().map(|&i| cursor.tid(i));
        assert!(seen.eq(expected.iter().map(|entry| entry.1)), "{own:?} {expected:?}");
        if cursor.has_keys() {
            let seen = own.iter().map(|&i| (self.keys.fold)(cursor.key(i)));
            assert!(seen.eq(expected.iter().map(|entry| entry.0.clone())), "{expected:?}");
        }
    }

    fn cursor(&mut self) -> Cursor {
        let mut cursor = Cursor::new(self.random.below(2) == 0);
        cursor.read_few(self.random.below(3) == 0);
        cursor
    }

    /// To and fro in a range, with jumps and removals.
    fn scroll(&mut self) {
        let range = self.range();
        let mut there = self.own_in(&range);
        let mut cursor = self.cursor();
        cursor.set_range(&range.lower, range.upper.as_deref(), CURRENT);
        // How many are before what was read last, and how many are not behind it.
        let (mut before, mut until) = (there.len(), 0);
        let mut forward = self.random.below(2) == 0;
        let leaves = if self.random.below(3) == 0 { 1 } else { usize::MAX };
        for _ in 0..self.random.below(40) {
            if self.random.below(8) == 0 {
                forward = !forward;
            }
            if self.random.below(20) == 0 && !there.is_empty() {
                let at = self.random.below(there.len() as u64) as usize;
                let key = &there[at].0;
                cursor.jump(&(self.keys.unfold)(key));
                before = there.partition_point(|entry| entry.0 < *key);
                until = before;
            }
            let read = match forward {
                true => cursor.next_within(leaves, self.p, self.ix, self.order),
                false => cursor.prev_within(leaves, self.p, self.ix, self.order),
            };
            let own = self.own_of(&cursor);
            if read == Some(0) {
                // The end, in this direction.
                let (at, end) = if forward { (until, there.len()) } else { (before, 0) };
                assert_eq!(at, end, "own entries that were not read");
                (before, until) = (end, end);
                continue;
            }
            (before, until) = match forward {
                true => (until, until + own.len()),
                false => (before.checked_sub(own.len()).expect("more than there are"), before),
            };
            self.check(&cursor, &own, there.get(before..until).expect("more than there are"));
            if self.random.below(4) == 0 {
                let gone = self.remove_of(&mut cursor, &own);
                let rest: Vec<Entry> = (0..own.len())
                    .filter(|i| !gone.contains(i))
                    .map(|i| there[before + i].clone())
                    .collect();
                gone.iter().for_each(|i| assert!(self.own.remove(&there[before + i])));
                there.splice(before..until, rest);
                until -= gone.len();
            }
        }
    }

    /// Removes some of the own entries of a batch, and tries it twice. Says which have gone: all or
    /// none.
    fn remove_of(&mut self, cursor: &mut Cursor, own: &[usize]) -> Vec<usize> {
        let some: Vec<usize> = (0..own.len()).filter(|_| self.random.below(2) == 0).collect();
        let which: Vec<u16> = some.iter().map(|&i| own[i] as u16).collect();
        let removed = cursor.remove(self.p, self.ix, &which);
        assert!(removed == 0 || removed == which.len(), "{removed} of {}", which.len());
        if removed == 0 {
            return Vec::new();
        }
        assert_eq!(cursor.remove(self.p, self.ix, &which), 0, "removed twice");
        some
    }

    /// A range in parts, each from where the one before ends.
    fn read_parts(&mut self) {
        let range = self.range();
        let there = self.own_in(&range);
        let forward = self.random.below(2) == 0;
        let leaves = 1 + self.random.below(8) as usize;
        let mut cursor = self.cursor();
        let mut from: Option<Separator> = None;
        let mut read = 0;
        loop {
            cursor.set_range(&range.lower, range.upper.as_deref(), CURRENT);
            let bound = |cursor: &mut Cursor, begins: bool, at: &Separator| match begins {
                true => cursor.begin_at(at),
                false => cursor.end_at(at),
            };
            if let Some(from) = &from {
                bound(&mut cursor, forward, from);
            }
            let mut next = Separator::default();
            let more = cursor.cut(forward, leaves, self.p, self.ix, self.order, &mut next) > 0;
            if more {
                bound(&mut cursor, !forward, &next);
            }
            while match forward {
                true => cursor.next(self.p, self.ix, self.order),
                false => cursor.prev(self.p, self.ix, self.order),
            } > 0
            {
                let own = self.own_of(&cursor);
                let left = there.len() - read;
                assert!(own.len() <= left, "an entry is in two parts");
                let expected = match forward {
                    true => &there[read..read + own.len()],
                    false => &there[left - own.len()..left],
                };
                self.check(&cursor, &own, expected);
                read += own.len();
            }
            if !more {
                break;
            }
            from = Some(next);
        }
        assert_eq!(read, there.len(), "an entry is in no part");
    }

    /// Several ranges at once.
    fn read_together(&mut self) {
        let ranges: [_; TOGETHER] = core::array::from_fn(|_| self.range());
        let mut cursors: Vec<Box<Cursor>> = Vec::new();
        for range in &ranges {
            let mut cursor = Box::new(self.cursor());
            cursor.set_range(&range.lower, range.upper.as_deref(), CURRENT);
            cursors.push(cursor);
        }
        let leaves = 1 + self.random.below(3) as usize;
        Cursor::first_of_each(&mut cursors, leaves, self.p, self.ix, self.order);
        for (range, mut cursor) in ranges.iter().zip(cursors) {
            let there = self.own_in(range);
            let mut read = 0;
            for _ in 0..8 {
                let own = self.own_of(&cursor);
                let expected = there.get(read..read + own.len()).expect("more than there are");
                self.check(&cursor, &own, expected);
                read += own.len();
                if cursor.next(self.p, self.ix, self.order) == 0 {
                    assert_eq!(read, there.len(), "own entries that were not read");
                    break;
                }
            }
        }
    }

    /// As VACUUM: some of the own entries go in one pass over all.
    fn prune(&mut self) {
        let (salt, kept) = (self.random.next(), self.random.below(4));
        let (me, actors) = (self.me, self.actors);
        let goes = |tid: u64| tid % actors == me && Random(tid ^ salt).below(4) > kept;
        let mut pass = Prune::new(self.p, self.ix);
        let dead = &mut |tids: &[u64], dead: &mut [bool]| {
            tids.iter().zip(dead).for_each(|(&tid, dead)| *dead = goes(tid));
        };
        while pass.next_leaf(dead) {}
        let before = self.own.len();
        self.own.retain(|entry| !goes(entry.1));
        assert_eq!(pass.counts().1, (before - self.own.len()) as u64);
    }

    /// As an image: each of the own entries is read once.
    fn walk(&self) {
        let (mut walk, mut own) = (Walk::new(self.p, self.ix, CURRENT), Vec::new());
        while walk.next_leaf() {
            let mine = (0..walk.len()).filter(|&i| self.is_own(walk.tid(i)));
            own.extend(mine.map(|i| ((self.keys.fold)(walk.key(i)), walk.tid(i))));
        }
        assert!(own.iter().eq(&self.own), "a walk reads what is there");
    }

    fn make_snapshot(&mut self) {
        if self.held.len() > 1 {
            return self.read_snapshot();
        }
        match self.ix.create_snapshot(self.p, 1 + self.me, &mut thread::yield_now) {
            Ok(snapshot) => {
                let all = self.all_in(&snapshot, &Range { lower: Vec::new(), upper: None }, true);
                if !self.ix.keeps(&snapshot) {
                    return self.ix.release(self.p, snapshot);
                }
                let seen = all.iter().filter(|entry| self.is_own(entry.1));
                assert!(seen.eq(&self.own), "a snapshot of this moment");
                self.held.push(Held { snapshot, all });
            }
            // Others have all there are, or there was no memory.
            Err(e) => assert!(matches!(e, SnapshotError::TooMany | SnapshotError::Lost), "{e}"),
        }
    }

    /// What a snapshot has in a range, read in one direction.
    fn all_in(&self, snapshot: &Snapshot, range: &Range, forward: bool) -> Vec<Entry> {
        let mut cursor = Cursor::new(true);
        cursor.set_snapshot_range(&range.lower, range.upper.as_deref(), snapshot.sn());
        let mut all = Vec::new();
        loop {
            let n = match forward {
                true => cursor.next(self.p, self.ix, self.order),
                false => cursor.prev(self.p, self.ix, self.order),
            };
            if n == 0 {
                break;
            }
            let entry = |i| ((self.keys.fold)(cursor.key(i)), cursor.tid(i));
            match forward {
                true => all.extend((0..n).map(entry)),
                false => all.extend((0..n).rev().map(entry)),
            }
        }
        if !forward {
            all.reverse();
        }
        // One that is lost may have two lives of an entry, or none.
        let kept = self.ix.keeps(snapshot);
        assert!(!kept || all.is_sorted_by(|a, b| a < b), "a snapshot is out of order");
        all
    }

    /// A snapshot has what it had, also of others, as long as it is kept.
    fn read_snapshot(&mut self) {
        let Some(held) = self.held.pop() else { return };
        let (range, forward) = (self.range(), self.random.below(2) == 0);
        let (lower, upper) = self.folded(&range);
        let found = self.all_in(&held.snapshot, &range, forward);
        let inside = |entry: &&Entry| {
            entry.0 >= lower && upper.as_ref().is_none_or(|upper| entry.0 < *upper)
        };
        if self.ix.keeps(&held.snapshot) {
            assert!(found.iter().eq(held.all.iter().filter(inside)), "a snapshot has changed");
        }
        match self.random.below(3) == 0 {
            true => self.held.push(held),
            false => self.ix.release(self.p, held.snapshot),
        }
    }

    fn sweep(&mut self) {
        let leaves = 1 + self.random.below(30) as usize;
        let _ = self.sweep.next_leaves(leaves);
    }
}

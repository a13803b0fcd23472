//! Parts of a range, read by several at once beside writers: what lives through everything is in
//! exactly one part, and each reader's parts follow one another in order.

use crate::common::*;
use nitro_engine::prelude::*;
use nitro_engine::{Cursor, Forms, KeyOrder, Memcmp, Prune, Separator};
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread;

const CURRENT: u32 = u32::MAX - 1;
const STABLE: u64 = 20_000;
const READERS: u32 = 3;

/// The key of entry `i`, and its TID, which is even. Equal keys have ascending TIDs.
type Entry = fn(u64) -> (Vec<u8>, u64);

/// The rest that is still to be handed out.
struct Rest {
    from: Option<Separator>,
    done: bool,
}

/// A lock that the thread sanitizer sees: what std's does under contention is not instrumented.
struct Locked<T>(AtomicBool, UnsafeCell<T>);

// SAFETY: one thread at a time has the value.
unsafe impl<T: Send> Sync for Locked<T> {}

impl<T> Locked<T> {
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        while self.0.swap(true, Acquire) {
            thread::yield_now();
        }
        // SAFETY: who changed it from false has the value until it is false again.
        let result = f(unsafe { &mut *self.1.get() });
        self.0.store(false, Release);
        result
    }
}

/// Ends the writer beside a test, also when the test fails: the scope waits for it.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// The bounds of the range that is shared: in the order of entries.
type Range = (Vec<u8>, Option<Vec<u8>>);

fn reader<O: KeyOrder>(
    (mapping, slot): (&Mapping, u32),
    ix: nitro_engine::Index,
    order: &O,
    (range, forward): (&Range, bool),
    rest: &Locked<Rest>,
) -> Vec<(Vec<u8>, u64)> {
    let p = mapping.process(slot);
    let mut all = Vec::new();
    let mut cursor = Cursor::new(true);
    loop {
        let mut empty = false;
        let found = rest.with(|shared| {
            if shared.done {
                return false;
            }
            cursor.set_range(&range.0, range.1.as_deref(), CURRENT);
            if let Some(from) = &shared.from {
                if forward { cursor.begin_at(from) } else { cursor.end_at(from) }
            }
            let mut next = Separator::default();
            if cursor.cut(forward, 4, &p, ix, order, &mut next) > 0 {
                if forward {
                    cursor.end_at(&next)
                } else {
                    cursor.begin_at(&next)
                }
                if let Some(from) = shared.from.replace(next.clone()) {
                    let (a, b) = if forward { (&from, &next) } else { (&next, &from) };
                    let keys =
                        if O::MEMCMP { a.key.cmp(&b.key) } else { order.compare(&a.key, &b.key) };
                    // Nobody goes on, and the lock is given back before this one fails.
                    shared.done = keys.then(a.tid.cmp(&b.tid)).is_ge();
                    empty = shared.done;
                }
            } else {
                shared.done = true;
            }
            true
        });
        assert!(!empty, "a part is empty");
        if !found {
            return all;
        }
        loop {
            let n = if forward { cursor.next(&p, ix, order) } else { cursor.prev(&p, ix, order) };
            if n == 0 {
                break;
            }
            let mut batch: Vec<_> =
                (0..n).map(|i| (cursor.key(i).to_vec(), cursor.tid(i))).collect();
            if !forward {
                batch.reverse();
            }
            all.extend(batch);
        }
    }
}

fn run<O: KeyOrder + Sync>(order: &O, entry: Entry, forms: Forms) {
    let mapping = Mapping::new(512 << 20, 8);
    let p = mapping.process(0);
    let ix = create_with(&p, forms);
    for i in 0..STABLE {
        let (key, tid) = entry(i * 7919 % STABLE);
        ix.insert(&p, order, &key, tid).unwrap();
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (mapping, stop) = (&mapping, &stop);
        let _end = End(stop);
        scope.spawn(move || {
            let p = mapping.process(1);
            let mut random = Random(1);
            while !stop.load(Relaxed) {
                // Bursts of odd TIDs, and their removal: splits, then merges.
                let start = random.below(STABLE);
                for i in 0..500 {
                    let (key, tid) = entry((start + i) % STABLE);
                    ix.insert(&p, order, &key, tid + 1).unwrap();
                }
                let mut pass = Prune::new(&p, ix);
                while pass.next_leaf(&mut |tids, dead| {
                    tids.iter().zip(dead).for_each(|(&tid, dead)| *dead = tid % 2 == 1);
                }) {}
                ix.collect(&p, usize::MAX);
            }
        });
        // Ten of them are all ranges in both directions; under a checker there are a few more, not
        // forty.
        for round in 0..u64::from(cases(40).clamp(10, 400)) {
            let forward = round % 2 == 0;
            let range = match round % 5 {
                0 | 1 => (Vec::new(), None),
                2 => (entry(STABLE / 3).0, Some(entry(STABLE / 2).0)),
                3 => (entry(STABLE / 3).0, None),
                _ => (Vec::new(), Some(entry(STABLE / 2).0)),
            };
            let rest =
                Locked(AtomicBool::new(false), UnsafeCell::new(Rest { from: None, done: false }));
            let parts: Vec<_> = thread::scope(|readers| {
                let (rest, range) = (&rest, &range);
                let started: Vec<_> = (0..READERS)
                    .map(|r| {
                        readers.spawn(move || {
                            reader((mapping, 2 + r), ix, order, (range, forward), rest)
                        })
                    })
                    .collect();
                started.into_iter().map(|reader| reader.join().unwrap()).collect()
            });
            let mut all = Vec::new();
            for part in parts {
                assert!(part.is_sorted_by(|a, b| if forward { a < b } else { a > b }));
                all.extend(part.into_iter().filter(|(_, tid)| tid % 2 == 0));
            }
            all.sort();
            let wanted: Vec<_> = (0..STABLE)
                .map(entry)
                .filter(|(key, _)| *key >= range.0 && range.1.as_ref().is_none_or(|u| key < u))
                .collect();
            assert_eq!(all.len(), wanted.len(), "round {round}");
            assert!(all == wanted, "round {round}");
        }
    });
}

fn distinct(i: u64) -> (Vec<u8>, u64) {
    (i.to_be_bytes().to_vec(), 2)
}

/// A few keys with many entries each: separators have to cut between TIDs.
fn duplicates(i: u64) -> (Vec<u8>, u64) {
    (vec![(i / 5000) as u8 + 1], 2 + 2 * (i % 5000))
}

/// Lower case, in the order of bytes, too.
fn words(i: u64) -> (Vec<u8>, u64) {
    (format!("word{i:08}").into_bytes(), 2)
}

#[test]
fn distinct_keys() {
    FORMS.into_iter().for_each(|forms| run(&Memcmp, distinct, forms));
}

#[test]
fn equal_keys() {
    FORMS.into_iter().for_each(|forms| run(&Memcmp, duplicates, forms));
}

#[test]
fn compared_keys() {
    run(&IgnoreCase { abbreviate: true }, words, Forms::Best);
    run(&IgnoreCase { abbreviate: false }, duplicates, Forms::Best);
}

/// One key with many entries is cut as well.
#[test]
fn cuts_between_equal_keys() {
    let mapping = Mapping::new(64 << 20, 2);
    let p = mapping.process(0);
    for forms in FORMS {
        let ix = create_with(&p, forms);
        for tid in 1..5000 {
            ix.insert(&p, &Memcmp, b"same", tid).unwrap();
        }
        for forward in [true, false] {
            let mut cursor = Cursor::new(false);
            cursor.set_range(b"same", Some(b"same\0"), CURRENT);
            let mut at = Separator::default();
            let mut cut = |leaves| cursor.cut(forward, leaves, &p, ix, &Memcmp, &mut at);
            // The last one is at the end of the range, wherever that is.
            let [all, few] = [10_000, 4].map(&mut cut);
            assert!((1..=4).contains(&few) && (few..5000).contains(&all), "{few} and {all} leaves");
            assert_eq!(at.key, b"same");
            assert!(at.tid > 0);
        }
    }
}

/// A batch that is read again, with keys, from where it began, in both directions, while entries
/// come in between.
#[test]
fn a_batch_is_read_again() {
    const N: u64 = 2000;
    let mapping = Mapping::new(64 << 20, 2);
    let p = mapping.process(0);
    let key = |tid: u64| (tid / 300).to_be_bytes();
    for (forms, forward) in FORMS.into_iter().flat_map(|forms| [(forms, true), (forms, false)]) {
        let ix = create_with(&p, forms);
        for tid in 1..=N {
            ix.insert(&p, &Memcmp, &key(tid), tid).unwrap();
        }
        let read = |cursor: &mut Cursor| match forward {
            true => cursor.next(&p, ix, &Memcmp),
            false => cursor.prev(&p, ix, &Memcmp),
        };
        let (mut cursor, mut all, mut again) = (Cursor::new(false), Vec::new(), 0);
        cursor.set_range(&[], None, CURRENT);
        while read(&mut cursor) > 0 {
            assert!(!cursor.has_keys());
            let first = key(cursor.tid(0));
            let one = cursor.tids().iter().all(|&tid| key(tid) == first);
            assert_eq!(cursor.begins_with(&first), one);
            if !one {
                again += 1;
                cursor.want_keys(true);
                cursor.read_again(forward);
                ix.insert(&p, &Memcmp, &first, N + again).unwrap();
                assert!(read(&mut cursor) > 0 && cursor.has_keys());
                for i in (0..cursor.len()).filter(|&i| cursor.tid(i) <= N) {
                    assert_eq!(cursor.key(i), key(cursor.tid(i)));
                }
                cursor.want_keys(false);
            }
            let batch = cursor.tids().iter().copied().filter(|&tid| tid <= N);
            if forward { all.extend(batch) } else { all.extend(batch.rev()) }
        }
        assert!(again > 2);
        if !forward {
            all.reverse();
        }
        assert!(all == (1..=N).collect::<Vec<_>>());
    }
}

/// Returns the separators of parts of at most this number of leaves, and the leaves of each part.
fn cuts<O: KeyOrder>(
    (p, ix, order): (&nitro_engine::Process, nitro_engine::Index, &O),
    forward: bool,
    leaves: usize,
) -> Vec<(Separator, usize)> {
    let mut cursor = Cursor::new(false);
    cursor.set_range(&[], None, CURRENT);
    std::iter::from_fn(|| {
        let mut at = Separator::default();
        let n = cursor.cut(forward, leaves, p, ix, order, &mut at);
        match forward {
            _ if n == 0 => return None,
            true => cursor.begin_at(&at),
            false => cursor.end_at(&at),
        }
        Some((at, n))
    })
    .collect()
}

/// Parts have as many leaves as was asked for, but for the last one, and as was said.
#[test]
fn parts_have_so_many_leaves() {
    let mapping = Mapping::new(64 << 20, 1);
    let p = mapping.process(0);
    for (forms, entry) in
        FORMS.into_iter().flat_map(|forms| [(forms, distinct as Entry), (forms, duplicates)])
    {
        let ix = create_with(&p, forms);
        for i in 0..STABLE {
            let (key, tid) = entry(i * 7919 % STABLE);
            ix.insert(&p, &Memcmp, &key, tid).unwrap();
        }
        let all = cuts((&p, ix, &Memcmp), true, 1);
        assert!(all.len() > 20, "{} leaves", all.len());
        for leaves in [1, 2, 16, 256] {
            for forward in [true, false] {
                let mut rest = &all[..];
                for (at, n) in cuts((&p, ix, &Memcmp), forward, leaves) {
                    assert_eq!(n, leaves.min(rest.len()), "{leaves} leaves, forward: {forward}");
                    let (end, left) = match forward {
                        true => (&rest[n - 1], &rest[n..]),
                        false => (&rest[rest.len() - n], &rest[..rest.len() - n]),
                    };
                    assert_eq!(at, end.0);
                    rest = left;
                }
                assert!(rest.is_empty(), "{leaves} leaves, forward: {forward}");
            }
        }
    }
}

/// A leaf that an ERROR has left without its separator does not end the cutting.
#[test]
fn leaves_without_separators() {
    let mapping = Mapping::new(64 << 20, 1);
    let p = mapping.process(0);
    let ix = create(&p);
    let order = Fragile(Cell::new(u32::MAX));
    let mut random = Random(7);
    let mut unwound = 0;
    for i in 0..STABLE {
        order.0.set(random.below(40) as u32);
        let insert = AssertUnwindSafe(|| ix.insert(&p, &order, &distinct(i).0, 2).unwrap());
        let failed = catch_unwind(insert).is_err();
        order.0.set(u32::MAX);
        if failed && i > STABLE / 2 {
            unwound += 1;
            let (first, _) = &cuts((&p, ix, &order), true, 1)[0];
            let backward = cuts((&p, ix, &order), false, 256);
            assert_eq!(backward.last().map(|(at, _)| at), Some(first));
        }
    }
    assert!(unwound > 100);
}

//! Readers of leaves that are torn while they read. A thread stores words of other leaves, of other
//! forms, or any numbers, and in the end the old content again. The readers stay inside of the
//! block, end, and return the right entries.

use crate::build::adopt;
use crate::memory::area::tests::Mapping;
use crate::memory::process::Process;
use crate::node::block::PACKED;
use crate::prelude::*;
use crate::sync::held;
use crate::{
    Builder, Cursor, Index, IndexOptions, KeyOrder, MOST_OF_LEAF, Memcmp, Rest, Segments, TOGETHER,
    Tid,
};
use core::cmp::Ordering;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// A few leaves, so that readers and the tearing thread meet.
const ROWS: u64 = 600;
const ROUNDS: u64 = 30;
/// Tears in a row without a finished reading. A reader that always meets a torn leaf would go on as
/// long as the scheduler likes: with one leaf, three quarters of an hour under the thread
/// sanitizer.
const TEARS: u64 = 20;

fn mix(i: u64) -> u64 {
    let z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 27)
}

/// Keys for leaves of each form.
const KINDS: [fn(u64) -> Vec<u8>; 7] = [
    // Adjacent, of one key in many rows; short.
    |i| (i / 30).to_be_bytes().to_vec(),
    // Scattered.
    |i| [&[7; 20][..], &[(i >> 8) as u8], &[3; 20], &[i as u8], &[9; 5]].concat(),
    // Wide: an alphabet, of one length, and not.
    |i| format!("https://example.com/{:016x}{:016x}\0", mix(i), mix(!i)).into_bytes(),
    |i| format!("{:x}{}\0", mix(i), "ab".repeat((mix(i) % 20) as usize)).into_bytes(),
    // Wide: bytes, of one length, and not.
    |i| [mix(i), mix(!i)].map(u64::to_be_bytes).concat(),
    |i| mix(i).to_be_bytes().repeat(1 + (i % 4) as usize),
    // Short.
    |i| [&((i / 9) as u16).to_be_bytes()[..], &[9; 3][..(i % 3) as usize], &[i as u8]].concat(),
];

/// Byte order, by a function that knows which keys there are: it must not be given anything else.
struct Known<'a> {
    all: &'a [(Vec<u8>, Tid)],
    abbreviate: bool,
}

impl KeyOrder for Known<'_> {
    const MEMCMP: bool = false;
    fn abbrev(&self, key: &[u8]) -> u64 {
        if self.abbreviate { crate::key::bytes::prefix_at(key, 0) } else { 0 }
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        assert!(self.all.binary_search_by(|e| e.0[..].cmp(b)).is_ok(), "a torn key {b:?}");
        a.cmp(b)
    }
}

fn packed_leaves(p: &Process, index: Index) -> Vec<u32> {
    let _section = index.enter(p);
    let mut all = vec![index.shared().leaf.load(Relaxed)];
    while let next @ 1.. = index.block(all[all.len() - 1]).next() {
        all.push(next);
    }
    // The last one may have slots.
    all.retain(|&leaf| index.block(leaf).has(PACKED));
    all
}

/// Makes leaves something else, and again what they were.
fn tear(p: &Process, index: Index, reads: &AtomicU64, done: &AtomicBool) {
    let leaves = packed_leaves(p, index);
    let words = |leaf: u32| index.block(leaf).words();
    let mut seed = 0;
    let mut next = || {
        seed += 1;
        mix(seed)
    };
    let (mut torn, mut seen) = (0, 0);
    while !done.load(Relaxed) {
        let now = reads.load(Relaxed);
        torn = if now == seen { torn + 1 } else { 0 };
        if torn > TEARS {
            std::thread::yield_now();
            continue;
        }
        seen = now;
        let [leaf, other] = [next(), next()].map(|r| leaves[r as usize % leaves.len()]);
        let _section = index.enter(p);
        let Some(latch) = index.block(leaf).latch() else { continue };
        let b = index.block(leaf);
        // Only splits and merges change the common words: neighbours, flags, classes.
        let content = |i: usize| i == 3 || i == 4 || i >= 8;
        let before: Vec<u64> =
            held::aside(|| words(leaf).iter().map(|word| word.load(Relaxed)).collect());
        latch.exclude();
        let slots = next() % 4 == 0;
        b.set_flag(PACKED, !slots);
        for _ in 0..4 {
            let (how, from) = (next(), next() as usize % words(leaf).len());
            for (i, word) in words(leaf).iter().enumerate().filter(|&(i, _)| content(i)) {
                match how % 6 {
                    0 => word.store(next(), Relaxed),
                    1 => word.store([0, u64::MAX][i % 2], Relaxed),
                    // The header of another leaf with this content, and the other way round.
                    2 if i < 13 => word.store(words(other)[i].load(Relaxed), Relaxed),
                    3 if i >= 13 => {
                        let there = words(other).get(i).map_or(0, |word| word.load(Relaxed));
                        word.store(there, Relaxed);
                    }
                    4 if i == from % 13 => _ = word.fetch_xor(1 << (next() % 64), Relaxed),
                    5 if i >= from => word.store(before[i].rotate_left(next() as u32), Relaxed),
                    _ => word.store(before[i], Relaxed),
                }
            }
        }
        for (i, word) in words(leaf).iter().enumerate().filter(|&(i, _)| content(i)) {
            word.store(before[i], Relaxed);
        }
        b.set_flag(PACKED, true);
        latch.finish();
    }
}

/// Runs everything that reads, and compares with the entries.
fn read<O: KeyOrder>(
    p: &Process,
    index: Index,
    order: &O,
    all: &[(Vec<u8>, Tid)],
    round: u64,
    reads: &AtomicU64,
) {
    let term = index.term();
    let n = all.len();
    let mut cursor = Cursor::new(true);
    let some = |i: u64| mix(round << 32 | i) as usize % n;
    for (upper, forward) in [(false, true), (false, false), (true, true), (true, false)] {
        let [a, b] = [0, 1].map(some);
        let (low, high) = if upper { (a.min(b), a.max(b)) } else { (0, n) };
        // Between keys. One key may have many entries.
        let begin = all.partition_point(|e| upper && e.0 < all[low].0);
        let end = all.partition_point(|e| !upper || e.0 < all[high].0);
        let lower: &[u8] = if upper { &all[low].0 } else { &[] };
        cursor.set_range(lower, upper.then(|| &all[high].0[..]), term);
        let mut rest = begin..end;
        loop {
            let len = match forward {
                true => cursor.next(p, index, order),
                false => cursor.prev(p, index, order),
            };
            reads.fetch_add(1, Relaxed);
            if len == 0 {
                break;
            }
            let at = if forward { rest.start } else { rest.end - len };
            for (i, (key, tid)) in all[at..at + len].iter().enumerate() {
                assert_eq!((cursor.key(i), cursor.tid(i)), (&key[..], *tid));
                let from = &cursor.keys()[cursor.start(i)..];
                assert!(from.starts_with(key) && from.len() >= key.len() + 16);
            }
            rest = if forward { at + len..end } else { begin..at };
            // Half of the time the rest of the leaf, with some bytes of its keys.
            let place = mix(reads.load(Relaxed));
            let of_leaf = if place.is_multiple_of(2) {
                rest_of_leaf(p, index, order, &mut cursor, forward, place, |n| {
                    let at = if forward { rest.start } else { rest.end - n };
                    &all[at..at + n]
                })
            } else {
                0
            };
            reads.fetch_add(1, Relaxed);
            rest = if forward { rest.start + of_leaf..end } else { begin..rest.end - of_leaf };
        }
        assert!(rest.is_empty(), "{rest:?} of {begin}..{end}");
    }
    read_together(p, index, order, all, core::array::from_fn(|i| some(i as u64)));
    reads.fetch_add(1, Relaxed);
    for i in 0..40 {
        let (key, tid) = &all[some(i)];
        assert!(index.contains(p, order, key, *tid));
        assert!(!index.contains(p, order, key, tid | 1 << 47));
        assert!(!index.insert(p, order, key, *tid).unwrap(), "it is there");
        assert!(!index.remove(p, order, key, tid | 1 << 47), "it is not");
        let beside = [key, &[1][..]].concat();
        assert!(!index.contains(p, order, &beside, *tid));
        reads.fetch_add(1, Relaxed);
    }
}

/// The keys of the entries at these ranks, each looked up beside the others.
fn read_together<O: KeyOrder>(
    p: &Process,
    index: Index,
    order: &O,
    all: &[(Vec<u8>, Tid)],
    ranks: [usize; TOGETHER],
) {
    let keys = ranks.map(|rank| &all[rank].0[..]);
    let mut cursors = keys.map(|key| {
        let mut cursor = Box::new(Cursor::new(false));
        cursor.set_range(key, Some(&[key, &[0][..]].concat()), index.term());
        cursor
    });
    Cursor::first_of_each(&mut cursors, 1, p, index, order);
    for (key, mut cursor) in keys.iter().zip(cursors) {
        let mut tids = cursor.tids().to_vec();
        while cursor.next(p, index, order) > 0 {
            tids.extend_from_slice(cursor.tids());
        }
        let from = all.partition_point(|e| &e.0[..] < *key);
        let there = all[from..].iter().take_while(|e| e.0 == *key).map(|e| e.1);
        assert!(there.eq(tids));
    }
}

/// The rest of a leaf, `there(n)` being the n entries that may come; says how many there are.
fn rest_of_leaf<'a, O: KeyOrder>(
    p: &Process,
    index: Index,
    order: &O,
    cursor: &mut Cursor,
    forward: bool,
    place: u64,
    there: impl Fn(usize) -> &'a [(Vec<u8>, Tid)],
) -> usize {
    let (mut tids, mut firsts) = ([0; MOST_OF_LEAF], [0; MOST_OF_LEAF]);
    let mut eights = [0; MOST_OF_LEAF];
    let [at, fixed] = [8, 24].map(|bits| (place >> bits) as usize % 50);
    let fixed = if place & 2 == 0 { &[fixed][..] } else { &[] };
    let (len, firsts, eights): (fn(u8) -> usize, _, _) = (|_| 8, &mut firsts[..], &mut eights[..]);
    let segments = Segments { fixed, at, len, firsts, eights, alike: None };
    let segments = (place & 4 == 0).then_some(segments);
    let mut rest = Rest { tids: &mut tids, segments };
    let n = cursor.rest_of_leaf(forward, &[], p, index, order, &mut rest);
    let there = there(n);
    for (i, (key, tid)) in there.iter().enumerate() {
        assert_eq!(*tid, rest.tids[i]);
        let Some(segments) = &rest.segments else { continue };
        assert!(fixed.iter().all(|&byte| key[byte] == there[0].0[byte]));
        let first = segments.alike.unwrap_or(segments.firsts[i]);
        let read = core::iter::once(first).chain(segments.eights[i].to_be_bytes());
        assert!(key.iter().skip(at).zip(read).all(|(&byte, read)| byte == read));
    }
    n
}

fn entries(key: fn(u64) -> Vec<u8>) -> Vec<(Vec<u8>, Tid)> {
    let mut all: Vec<_> = (0..ROWS).map(|i| (key(i), (i / 100) << 16 | (i % 100 + 1))).collect();
    all.sort();
    all
}

#[test]
fn readers_of_torn_leaves() {
    for key in KINDS {
        readers(&Memcmp, &entries(key));
    }
}

#[test]
fn readers_of_torn_leaves_under_a_comparator() {
    for key in KINDS {
        let all = entries(key);
        for abbreviate in [false, true] {
            readers(&Known { all: &all, abbreviate }, &all);
        }
    }
}

fn readers<O: KeyOrder + Sync>(order: &O, all: &[(Vec<u8>, Tid)]) {
    let area = Mapping::new(64 << 20, 4);
    // SAFETY: each slot is used by one thread at a time.
    let p = unsafe { Process::attach(*area, 0) };
    let index = Index::create(&p, &IndexOptions::default()).unwrap();
    let mut builder = Builder::new(&p, index);
    all.iter().for_each(|(key, tid)| builder.push(order, key, *tid).unwrap());
    adopt::adopt(&index, &p, vec![builder.finish().unwrap()]).unwrap();
    assert!(!packed_leaves(&p, index).is_empty());
    let (reads, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let readers: Vec<_> = (1..3)
            .map(|slot| {
                let (area, all, reads) = (*area, all, &reads);
                scope.spawn(move || {
                    // SAFETY: as above.
                    let p = unsafe { Process::attach(area, slot) };
                    (0..ROUNDS).for_each(|round| {
                        read(&p, index, order, all, round << 8 | slot as u64, reads)
                    });
                })
            })
            .collect();
        let (area, reads, done) = (*area, &reads, &done);
        scope.spawn(move || {
            // SAFETY: as above.
            let p = unsafe { Process::attach(area, 3) };
            tear(&p, index, reads, done);
        });
        let ends: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        done.store(true, Relaxed);
        ends.into_iter().for_each(|end| end.unwrap());
    });
    index.verify(&p, order, true, &mut |_, _| ()).unwrap();
    // The readers have changed nothing.
    let mut cursor = Cursor::new(false);
    cursor.set_range(&[], None, index.term());
    while cursor.next(&p, index, order) > 0 {
        let which: Vec<u16> = (0..cursor.len() as u16).collect();
        assert_eq!(cursor.remove(&p, index, &which), which.len());
    }
}

//! What an index holds after inserts, removals and VACUUM, beside one that is built of the same
//! entries.

use crate::common::{Mapping, Random, create};
use nitro_engine::adopt;
use nitro_engine::prelude::*;
use nitro_engine::{Builder, Index, Memcmp, Process, Sweep, Swept, Tid};
use std::collections::BTreeSet;

type Entries = BTreeSet<(Vec<u8>, Tid)>;
type MakeKey = fn(u64) -> Vec<u8>;

/// More than this, and `SPARE` bytes, is too much, in hundredths.
const MOST: usize = 130;
const SPARE: usize = 1 << 20;

fn number(i: u64) -> Vec<u8> {
    (i as u32).to_be_bytes().to_vec()
}

/// A hash as text.
fn hash(i: u64) -> Vec<u8> {
    let mut random = Random(i);
    format!("{:016x}{:016x}\0", random.next(), random.next()).into_bytes()
}

fn draw(i: u64, below: u64) -> u64 {
    Random(i).below(below)
}

/// What VACUUM does.
fn vacuum(p: &Process, ix: Index) {
    let mut sweep = Sweep::new(p, ix);
    while sweep.next_leaves(1024) == Swept::More {}
    while ix.collect(p, 1024) == Some(1024) {}
    ix.verify(p, &Memcmp, true, &mut |_, _| ()).unwrap_or_else(|v| panic!("{v}"));
}

fn built(p: &Process, entries: &Entries) -> Index {
    let ix = create(p);
    let mut builder = Builder::new(p, ix);
    for (key, tid) in entries {
        builder.push(&Memcmp, key, *tid).unwrap();
    }
    adopt(&ix, p, vec![builder.finish().unwrap()]).unwrap();
    ix
}

struct Table<'a> {
    p: &'a Process,
    ix: Index,
    key: MakeKey,
    entries: Entries,
}

impl<'a> Table<'a> {
    /// Rows 0 to `n`, in an index that is built, or by inserts in random order.
    fn new(p: &'a Process, key: MakeKey, n: u64, build: bool) -> Table<'a> {
        let entries: Entries = (0..n).map(|i| (key(i), i)).collect();
        if build {
            return Table { p, ix: built(p, &entries), key, entries };
        }
        let mut table = Table { p, ix: create(p), key, entries: Entries::new() };
        let mut rows: Vec<u64> = (0..n).collect();
        rows.sort_unstable_by_key(|&i| Random(i).next());
        rows.into_iter().for_each(|i| table.insert(i, i));
        table
    }

    fn insert(&mut self, row: u64, tid: Tid) {
        let key = (self.key)(row);
        assert!(self.ix.insert(self.p, &Memcmp, &key, tid).unwrap());
        self.entries.insert((key, tid));
    }

    /// By rank and TID.
    fn remove(&mut self, gone: impl Fn(u64, Tid) -> bool) {
        let mut rank = 0;
        let (ix, p) = (self.ix, self.p);
        self.entries.retain(|(key, tid)| {
            rank += 1;
            let gone = gone(rank - 1, *tid);
            assert!(!gone || ix.remove(p, &Memcmp, key, *tid));
            !gone
        });
    }

    /// After a VACUUM the index holds little more than a new one.
    fn check(&self, what: &str) {
        vacuum(self.p, self.ix);
        let new = built(self.p, &self.entries);
        let (held, least) = (self.ix.stats(), new.stats());
        // SAFETY: no other process or thread uses it.
        unsafe { new.destroy(self.p) };
        println!("{what}: {} of {} bytes", held.bytes, least.bytes);
        assert!(held.bytes <= least.bytes * MOST / 100 + SPARE, "{what}: {held:?}, {least:?}");
        let [leaves, nodes, _] = held.blocks;
        let [least, least_nodes, _] = least.blocks;
        assert!(leaves as usize <= least as usize * MOST / 100 + 10, "{what}: {leaves} of {least}");
        assert!(nodes <= least_nodes * 5 + 5, "{what}: {nodes} index nodes of {least_nodes}");
        let mut read = 0;
        self.ix.verify(self.p, &Memcmp, false, &mut |_, _| read += 1).unwrap();
        assert_eq!(read, self.entries.len(), "{what}");
    }
}

fn held(key: MakeKey, n: u64) {
    let mapping = Mapping::new(1 << 28, 1);
    let p = mapping.process(0);
    for build in [true, false] {
        let new = || Table::new(&p, key, n, build);
        // SAFETY: no other process or thread uses it.
        let end = |table: Table<'_>| unsafe { table.ix.destroy(&p) };
        let mut table = new();
        table.check("all");
        table.remove(|_, tid| draw(tid, 3) == 0);
        table.check("a third is gone");
        table.remove(|_, tid| draw(tid, 2) == 0);
        table.check("and half of the others");
        table.remove(|_, tid| draw(tid, 100) != 1);
        table.check("and all but a hundredth");
        end(table);
        let mut table = new();
        table.remove(|rank, _| (n / 10..n * 8 / 10).contains(&rank));
        table.check("a range is gone");
        end(table);
        let mut table = new();
        for round in 1..=6 {
            let (from, third) = ((round - 1) * n, move |i: u64| i % 3 == round % 3);
            table.remove(|_, tid| third(tid % n));
            (0..n).filter(|&i| third(i)).for_each(|i| table.insert(i, from + n + i));
            table.check("a third is new");
        }
        table.remove(|_, tid| draw(tid, 100) != 1);
        table.check("all but a hundredth is gone, after updates");
        end(table);
    }
}

#[test]
fn numbers() {
    held(number, 200_000);
}

#[test]
fn hashes() {
    held(hash, 60_000);
}

/// An index node leaves out the bytes that its separators share. The new separator of a leaf that
/// gave the end of a group does not share them where that leaf is the last of its node. The sweep
/// joins this node with the next one a step later, so each step is checked.
#[test]
fn a_separator_of_another_group() {
    let mapping = Mapping::new(1 << 26, 1);
    let p = mapping.process(0);
    // The group ends in the last leaf of the third index node, or near it.
    for first in (39_400..39_700).step_by(20) {
        let key = |i: u64| {
            let group = if i < first { b'g' } else { b'h' };
            [&[group][..], &[b'c'; 7], &(i as u32).wrapping_mul(40_503).to_be_bytes(), &[0; 4]]
                .concat()
        };
        let entries: Entries = (0..first + 1000).map(|i| (key(i), i)).collect();
        let ix = built(&p, &entries);
        for (_, (key, tid)) in entries.iter().enumerate().filter(|(rank, _)| rank % 3 == 0) {
            assert!(ix.remove(&p, &Memcmp, key, *tid));
        }
        let mut sweep = Sweep::new(&p, ix);
        let mut steps = 0;
        while sweep.next_leaves(1) == Swept::More {
            steps += 1;
            // Before that it is far from the end of the group.
            if steps > 60 {
                ix.verify(&p, &Memcmp, true, &mut |_, _| ()).unwrap_or_else(|v| panic!("{v}"));
            }
        }
        assert!(steps > 70, "{steps}");
        drop(sweep);
        // SAFETY: no other process or thread uses it.
        unsafe { ix.destroy(&p) };
    }
}

/// New leaves take new memory while what they replace waits for the barrier: no more than some of
/// it.
#[test]
fn somebody_who_stays_inside() {
    let mapping = Mapping::new(1 << 28, 2);
    let (p, slow) = (mapping.process(0), mapping.process(1));
    let mut table = Table::new(&p, hash, 100_000, true);
    table.remove(|_, tid| draw(tid, 3) == 0);
    let before = table.ix.stats().bytes;
    let inside = slow.enter();
    vacuum(&p, table.ix);
    assert!(table.ix.stats().bytes <= before + SPARE / 2);
    drop(inside);
    table.check("nobody is inside");
}

#[test]
fn somebody_who_stays_inside_another_index() {
    let mapping = Mapping::new(1 << 28, 2);
    let (p, slow) = (mapping.process(0), mapping.process(1));
    let mut table = Table::new(&p, hash, 60_000, true);
    table.remove(|_, tid| draw(tid, 3) == 0);
    let inside = slow.enter_index(create(&p).root());
    table.check("beside somebody in another index");
    assert_eq!(table.ix.stats().garbage, 0);
    drop(inside);
    table.remove(|_, tid| draw(tid, 2) == 0);
    let inside = slow.enter_index(table.ix.root());
    vacuum(&p, table.ix);
    assert_ne!(table.ix.stats().garbage, 0, "in this one he is waited for");
    drop(inside);
}

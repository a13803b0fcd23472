use super::*;
use crate::build::adopt;
use crate::collect::workspace::Workspace;
use crate::collect::{collector, merge};
use crate::memory::area::tests::Mapping;
use crate::memory::fingers::FINGERS;
use crate::prelude::*;
use crate::sync::stop::doing;
use crate::tree::{finger, seek};
use crate::{Builder, IndexOptions, Memcmp, Sweep, Swept, Tid};
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

type Entry = (Vec<u8>, Tid);

fn key(i: u64) -> Vec<u8> {
    i.to_be_bytes().to_vec()
}

/// Keys of the wide form, whose tails tell them apart.
fn text(i: u64) -> Vec<u8> {
    format!("item {:03} {:05}\0", i / 700 % 1000, i).into_bytes()
}

fn built(p: &Process, entries: &BTreeSet<Entry>, fillfactor: u8) -> Index {
    let options = IndexOptions { fillfactor, ..IndexOptions::default() };
    let index = Index::create(p, &options).unwrap();
    let mut builder = Builder::new(p, index);
    entries.iter().for_each(|(key, tid)| builder.push(&Memcmp, key, *tid).unwrap());
    adopt::adopt(&index, p, vec![builder.finish().unwrap()]).unwrap();
    index
}

fn check(p: &Process, index: Index, expected: &BTreeSet<Entry>) {
    let mut found = BTreeSet::new();
    let mut add = |key: &[u8], tid| _ = found.insert((key.to_vec(), tid));
    index.verify(p, &Memcmp, true, &mut add).unwrap();
    assert!(found == *expected, "{} entries, expected {}", found.len(), expected.len());
}

/// The leaf and the rank to which a finger leads; they must be those to which a search does.
fn finger(p: &Process, index: Index, key: &[u8], tid: Tid) -> Option<(Ref, usize)> {
    let probe = Probe::new(&Memcmp, key, tid);
    let _section = index.enter(p);
    let spot = finger::finger_spot(&index, p, &probe)?;
    let (place, searched) = (spot.place, seek::seek_to_write(&index, &probe));
    assert_eq!((spot.leaf, spot.v.ver), (searched.leaf, searched.v.ver));
    assert_eq!(format!("{place:?}"), format!("{:?}", searched.place));
    Some((spot.leaf, place.rank))
}

/// Inserts or removals: `count` entries from key number `at` on, at this distance.
#[derive(Clone, Copy, Debug)]
struct Run {
    at: u64,
    count: u64,
    step: u64,
    goes: bool,
}

fn runs() -> impl Strategy<Value = Vec<Run>> {
    let run = (0u64..4000, 1u64..300, 1u64..5, prop::bool::weighted(0.3));
    let run = run.prop_map(|(at, count, step, goes)| Run { at, count, step, goes });
    prop::collection::vec(run, 1..30)
}

/// Runs in one index; how many of those that came had a finger.
fn after(runs: &[Run], key: fn(u64) -> Vec<u8>, copies: u64) -> (u64, u64) {
    let area = Mapping::new(4 << 20, 2);
    // SAFETY: each slot is used by one process at a time.
    let [p, q] = [0, 1].map(|slot| unsafe { Process::attach(*area, slot) });
    let mut model: BTreeSet<Entry> =
        (0..2000).flat_map(|i| (1..=copies).map(move |n| (key(2 * i), 2000 * n + i))).collect();
    let index = built(&p, &model, 90);
    let (mut came, mut fingers, mut next) = (0, 0, 1 << 20);
    for run in runs {
        for i in 0..run.count {
            let key = key(run.at + i * run.step);
            if run.goes {
                let all: Vec<Entry> = model.iter().filter(|e| e.0 == key).cloned().collect();
                for entry in all {
                    assert!(index.remove(&q, &Memcmp, &entry.0, entry.1));
                    model.remove(&entry);
                }
                continue;
            }
            (came, next) = (came + 1, next + 1);
            fingers += u64::from(finger(&p, index, &key, next).is_some());
            assert!(index.insert(&p, &Memcmp, &key, next).unwrap());
            // It is there: a finger finds it as a search does.
            finger(&p, index, &key, next);
            model.insert((key, next));
        }
        if run.goes {
            collector::collect_all(&index, &q);
            let mut sweep = Sweep::new(&q, index);
            while sweep.next_leaves(10) == Swept::More {}
        }
    }
    check(&q, index, &model);
    (came, fingers)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        ..crate::seeds::of("proptest-regressions/finger.txt")
    })]
    #[test]
    fn finds_what_a_search_finds(runs in runs(), copies in 1u64..4) {
        after(&runs, key, copies);
        after(&runs, text, copies);
    }
}

/// New versions of rows, and new keys, each in order: hardly any is searched for.
#[test]
fn keys_in_order_have_one() {
    for (step, key) in [(2, key as fn(u64) -> Vec<u8>), (1, key), (2, text), (1, text)] {
        let (came, fingers) = after(&[Run { at: 100, count: 300, step, goes: false }], key, 1);
        assert!(fingers * 10 >= came * 9, "{fingers} of {came}");
    }
    let scattered: Vec<Run> =
        (0..300).map(|i| Run { at: i * 1237 % 4000, count: 1, step: 1, goes: false }).collect();
    assert!(after(&scattered, key, 1).1 < 30, "where keys come in no order they are not tried");
}

/// An index with a finger between two keys of a leaf that is far from full, and that leaf.
fn with_finger(p: &Process, entries: &mut BTreeSet<Entry>) -> (Index, Ref) {
    entries.extend((0..2000).map(|i| (key(10 * i), i + 1)));
    let index = built(p, entries, 10);
    for i in 0..2 {
        let entry = (key(7_001 + i), 5000);
        assert!(index.insert(p, &Memcmp, &entry.0, entry.1).unwrap());
        entries.insert(entry);
    }
    let (leaf, _) = finger(p, index, &key(7_003), 5000).expect("two inserts in one leaf");
    (index, leaf)
}

/// The leaf has been absorbed by its neighbour, and its memory is still there.
#[test]
fn a_leaf_that_died() {
    let area = Mapping::new(4 << 20, 2);
    // SAFETY: as above.
    let [p, q] = [0, 1].map(|slot| unsafe { Process::attach(*area, slot) });
    let mut entries = BTreeSet::new();
    let (index, leaf) = with_finger(&p, &mut entries);
    {
        let _section = index.enter(&q);
        let prev = index.block(leaf).prev();
        let absorbed = merge::try_absorb_right(&index, prev, &mut Workspace::new(&index));
        assert!(matches!(absorbed, Ok(true)));
    }
    assert!(index.block(leaf).view().dead(), "absorbed by the leaf before it");
    assert!(finger(&p, index, &key(7_003), 5000).is_none());
    assert!(index.insert(&p, &Memcmp, &key(7_003), 5000).unwrap());
    entries.insert((key(7_003), 5000));
    check(&q, index, &entries);
}

/// A session has been closed: the leaf's memory may be anything.
#[test]
fn a_finger_of_a_closed_session_is_not_used() {
    let area = Mapping::new(4 << 20, 2);
    // SAFETY: as above.
    let [p, q] = [0, 1].map(|slot| unsafe { Process::attach(*area, slot) });
    let (index, _) = with_finger(&p, &mut BTreeSet::new());
    let _section = index.enter(&q);
    q.area().close_session();
    assert!(finger(&p, index, &key(7_003), 5000).is_none());
    // Nor where one was closed while the section went on in which the leaf was alive: it may have
    // died before that.
    let outer = index.enter(&p);
    q.area().close_session();
    for i in 3..5 {
        assert!(index.insert(&p, &Memcmp, &key(7_000 + i), 5000).unwrap());
    }
    drop(outer);
    assert!(finger(&p, index, &key(7_005), 5000).is_none());
}

/// Two indexes whose fingers are in one place.
#[test]
fn a_finger_is_of_its_index() {
    let area = Mapping::new(16 << 20, 1);
    // SAFETY: as above.
    let p = unsafe { Process::attach(*area, 0) };
    let mut entries = BTreeSet::new();
    let (index, _) = with_finger(&p, &mut entries);
    let other = (0..FINGERS).map(|_| Index::create(&p, &IndexOptions::default()).unwrap()).last();
    let other = other.expect("there are some");
    assert_eq!(index.id() as usize % FINGERS, other.id() as usize % FINGERS);
    assert!(other.insert(&p, &Memcmp, &key(7_003), 5000).unwrap());
    check(&p, index, &entries);
    check(&p, other, &BTreeSet::from([(key(7_003), 5000)]));
}

/// A leaf that gives all its entries is DEAD before the leaf that takes them can change: a finger
/// that finds an entry there tells the truth.
#[test]
fn a_leaf_that_is_being_absorbed() {
    let area = Mapping::new(4 << 20, 3);
    // SAFETY: as above.
    let [p, q] = [0, 1].map(|slot| unsafe { Process::attach(*area, slot) });
    let mut entries = BTreeSet::new();
    let (index, leaf) = with_finger(&p, &mut entries);
    let again = key(7_002);
    let prev = index.block({
        let _section = index.enter(&q);
        index.block(leaf).prev()
    });
    let passed = Rc::new(Cell::new(0));
    let count = Rc::clone(&passed);
    let absorb = || {
        let _section = index.enter(&q);
        let prev = index.block(leaf).prev();
        merge::try_absorb_right(&index, prev, &mut Workspace::new(&index))
    };
    let at = move |point| {
        if !matches!(point, "relink: left finished" | "relink: parents set" | "relink: right dead")
        {
            return;
        }
        count.set(count.get() + 1);
        assert!(prev.view().latch().is_none(), "{point}: the leaf that takes them may change");
        // A search would wait for the end of the change.
        if !index.block(leaf).view().dead() {
            assert_eq!(index.insert(&p, &Memcmp, &again, 5000), Ok(false), "{point}");
        }
    };
    assert!(matches!(doing(at, absorb), Ok(true)));
    assert!(passed.get() >= 3);
    check(&q, index, &entries);
}

/// The entries of one key are in several leaves; its TIDs say in which.
#[test]
fn a_key_in_several_leaves() {
    let area = Mapping::new(4 << 20, 1);
    // SAFETY: as above.
    let p = unsafe { Process::attach(*area, 0) };
    let many = (1..=5000).map(|i| (key(1000), 2 * i));
    let mut entries: BTreeSet<Entry> = (0..200).map(|i| (key(10 * i), 1)).chain(many).collect();
    let index = built(&p, &entries, 90);
    let after = [(key(985), 1), (key(986), 1), (key(1000), 9001)];
    let before = [(key(1000), 10_001), (key(1000), 10_003), (key(1000), 3)];
    for entry in after.into_iter().chain(before) {
        assert!(index.insert(&p, &Memcmp, &entry.0, entry.1).unwrap());
        entries.insert(entry);
    }
    check(&p, index, &entries);
}

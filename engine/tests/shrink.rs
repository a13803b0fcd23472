//! The rest of an index when most entries have been removed.

use crate::common::*;
use nitro_engine::prelude::*;
use nitro_engine::{Forms, Index, Memcmp, Process, VerifyReport};

fn load(p: &Process, n: u64) -> Index {
    let ix = create(p);
    for i in 0..n {
        ix.insert(p, &Memcmp, &i.to_be_bytes(), i).unwrap();
    }
    ix
}

fn verify(p: &Process, ix: Index) -> VerifyReport {
    ix.verify(p, &Memcmp, true, &mut |_, _| ()).unwrap_or_else(|v| panic!("{v}"))
}

fn collected(p: &Process, ix: Index) -> VerifyReport {
    collect(p, ix);
    verify(p, ix)
}

/// The collector comes from the right, and each index node that it empties has a full one on its
/// left. The flat top has those that are left.
#[test]
fn a_mass_removal_shrinks_level_1_and_the_flat_top() {
    let mapping = Mapping::new(1 << 27, 1);
    let p = mapping.process(0);
    let ix = load(&p, 400_000);
    let VerifyReport { leaves, nodes, top, .. } = verify(&p, ix);
    assert!(top * 2 > nodes, "the flat top has {top} of {nodes} index nodes");
    for i in (0..400_000u64).filter(|i| i % 100 != 0) {
        assert!(ix.remove(&p, &Memcmp, &i.to_be_bytes(), i));
    }
    let left = collected(&p, ix);
    let VerifyReport { leaves: leaves_left, nodes: nodes_left, .. } = left;
    assert!(leaves_left * 20 < leaves, "{leaves_left} of {leaves} leaves");
    assert!(nodes_left * 10 < nodes, "{nodes_left} of {nodes} index nodes");
    assert_eq!(left.top, nodes_left, "the flat top had {top}");
}

/// A queue: removed from the front, added at the end, and rarely collected.
#[test]
fn a_queue_stays_small() {
    let mapping = Mapping::new(1 << 27, 1);
    let p = mapping.process(0);
    let ix = load(&p, 10_000);
    for i in 0..200_000u64 {
        assert!(ix.remove(&p, &Memcmp, &i.to_be_bytes(), i));
        ix.insert(&p, &Memcmp, &(i + 10_000).to_be_bytes(), i + 10_000).unwrap();
    }
    collected(&p, ix);
    let [leaves, nodes, _] = ix.stats().blocks;
    assert!(leaves < 300, "{leaves} leaves");
    assert!(nodes < 15, "{nodes} index nodes");
}

/// The old memory of moved leaves is free when every process that was inside has left. Until then
/// leaves must not move into new memory, and out of it again.
#[test]
fn leaves_that_move_take_no_memory() {
    for n in [9_000u64, 30_000, 100_000] {
        let mapping = Mapping::new(1 << 29, 2);
        let (p, slow) = (mapping.process(0), mapping.process(1));
        let ix = create(&p);
        let mut random = Random(n);
        let keys: Vec<[u8; 8]> = (0..n).map(|_| random.next().to_be_bytes()).collect();
        let key = |i: u64| keys[i as usize];
        for i in 0..n {
            ix.insert(&p, &Memcmp, &key(i), i).unwrap();
        }
        let mut entries: Vec<u64> = (0..n).collect();
        entries.sort_unstable_by_key(|&i| key(i));
        // About every third leaf is left.
        for (_, &i) in entries.iter().enumerate().filter(|(rank, _)| rank / 40 % 3 != 0) {
            assert!(ix.remove(&p, &Memcmp, &key(i), i));
        }
        let before = ix.stats().bytes;
        let collect_some = || {
            ix.collect(&p, 3000);
            let now = ix.stats();
            assert!(now.bytes <= before, "{now:?}, {before} bytes before");
            now
        };
        let inside = slow.enter();
        collect_some();
        collect_some();
        drop(inside);
        collect_some();
        let left = collect_some();
        assert!(
            left.bytes * 2 < before && left.idle * 4 < left.bytes,
            "{left:?}, {before} bytes before"
        );
        collected(&p, ix);
    }
}

/// Small extents for the rest of large ones are made once, however often a process collects while
/// another one stays inside.
#[test]
fn small_extents_wait_for_the_barrier() {
    const ENTRIES: u64 = 400_000;
    let mapping = Mapping::new(1 << 29, 2);
    let (p, slow) = (mapping.process(0), mapping.process(1));
    let ix = create_with(&p, Forms::Slots);
    let mut random = Random(ENTRIES);
    let mut keys: Vec<[u8; 8]> = (0..ENTRIES).map(|_| random.next().to_be_bytes()).collect();
    keys.iter().for_each(|key| assert!(ix.insert(&p, &Memcmp, key, 0).unwrap()));
    keys.sort_unstable();
    let gone = &keys[keys.len() / 20..];
    gone.iter().for_each(|key| assert!(ix.remove(&p, &Memcmp, key, 0)));
    (0..2).for_each(|_| _ = ix.collect(&p, 6000));
    let inside = slow.enter();
    ix.collect(&p, 6000);
    let before = ix.stats().bytes;
    for _ in 0..8 {
        ix.collect(&p, 6000);
        assert!(ix.stats().bytes <= before, "{:?}, {before} bytes before", ix.stats());
    }
    drop(inside);
    collected(&p, ix);
    assert!(ix.stats().bytes * 2 < before, "{:?}, {before} bytes before", ix.stats());
}

/// Leaves that a snapshot needs stay where they are, and the others have room beside them, again
/// and again. Collecting all of it ends.
#[test]
fn collecting_ends_beside_a_snapshot() {
    let mapping = Mapping::new(1 << 29, 2);
    let p = mapping.process(0);
    let ix = create_with(&p, Forms::Slots);
    let (mut random, n) = (Random(7), 500_000);
    let mut entries: Vec<[u8; 8]> = (0..n).map(|_| random.next().to_be_bytes()).collect();
    for (tid, key) in entries.iter().enumerate() {
        ix.insert(&p, &Memcmp, key, tid as u64).unwrap();
    }
    let tids: std::collections::HashMap<[u8; 8], u64> =
        entries.iter().enumerate().map(|(tid, &key)| (key, tid as u64)).collect();
    entries.sort_unstable();
    let (left, gone) = entries.split_at(entries.len() / 4);
    let remove = |key: &[u8; 8]| assert!(ix.remove(&p, &Memcmp, key, tids[key]));
    gone.iter().for_each(remove);
    ix.collect(&p, 100_000);
    let snapshot = ix.create_snapshot(&p, 1, &mut || ()).unwrap();
    left.iter().step_by(1000).for_each(remove);
    let (step, mut steps) = (16, 0);
    let last = ix.collect_in_steps(&p, step, || {
        steps += 1;
        assert!(steps < 10_000, "no end");
    });
    assert_eq!(last, Some(step), "nothing goes to and fro");
    ix.release(&p, snapshot);
    assert!(ix.collect_in_steps(&p, step, || ()) < Some(step));
    verify(&p, ix);
}

//! README, "Runs of sorted entries".

use super::world::{Actor, HELD, MakeKey, World, long};
use crate::node::block::PACKED;
use crate::node::probe::Probe;
use crate::prelude::*;
use crate::tree::seek;
use crate::{Forms, Memcmp};

/// A batch with a run for each of two leaves that have room for it.
const IN_PLACE: [u64; 4] = [101, 102, 503, 504];

/// A batch that is merged with one leaf, and a run for another one.
fn merged() -> Vec<u64> {
    (101..125).filter(|id| id % 10 != 0).chain([503, 504]).collect()
}

/// Packed leaves with entries at 0, 10, 20, ..., and with room.
fn roomy() -> World {
    World::packed("runs", 60, long, |actor| actor.build((0..120).map(|i| i * 10)))
}

/// Eight bytes, which are inline in slots. Packed they take nearly as many.
fn eight(id: u64) -> Vec<u8> {
    let noise = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
    (id << 48 | noise).to_be_bytes().to_vec()
}

/// One leaf with few entries, packed or of slots. No key is in a chunk, so slots can be packed.
fn few(forms: Forms) -> World {
    let (fillfactor, key) = match forms {
        Forms::Slots => (60, eight as MakeKey),
        _ => (90, long as MakeKey),
    };
    World::packed("runs, one leaf", fillfactor, key, move |actor| match forms {
        Forms::Slots => {
            actor.force(Forms::Slots);
            (0..12).for_each(|i| actor.insert(i * 10));
            actor.force(Forms::Best);
        }
        _ => actor.build((0..12).map(|i| i * 10)),
    })
}

/// Leaves that are half full, so a collector merges them.
fn sparse() -> World {
    World::packed("runs, sparse", 100, long, |actor| {
        actor.build((0..120).map(|i| i * 10));
        let kept = |i: u64| !(6..100).contains(&i) || i % 8 == 1;
        (0..120).filter(|&i| !kept(i)).for_each(|i| actor.remove(i * 10));
    })
}

/// A batch that is merged into one leaf.
fn one_leaf() -> Vec<u64> {
    (11..25).filter(|id| id % 10 != 0).collect()
}

/// A batch that is merged with a leaf of slots into two packed ones.
fn two_leaves() -> Vec<u64> {
    (11..180).filter(|id| id % 10 != 0).collect()
}

type Case = (World, Vec<u64>);

/// All ways that a run takes.
fn cases() -> [Case; 5] {
    [
        (roomy(), IN_PLACE.to_vec()),
        (roomy(), merged()),
        (few(Forms::Packed), one_leaf()),
        (few(Forms::Slots), one_leaf()),
        (few(Forms::Slots), two_leaves()),
    ]
}

families! {
    fn a_run_beside_searches(driver) {
        for (world, ids) in cases() {
            driver(&world, &|actor| actor.batch(&ids, None), &|actor| {
                actor.look(ids[0] / 10 * 10);
                actor.look(ids[1]);
                actor.look(ids[1] / 10 * 10 + 10);
                actor.look(500);
            });
        }
    }

    /// A scan reads the state of a leaf before the run or after it.
    fn a_run_beside_scans(driver) {
        for (world, ids) in cases() {
            for forward in [true, false] {
                driver(&world, &|actor| actor.batch(&ids, None), &|actor| actor.scan(forward));
            }
            driver(&world, &|actor| actor.batch(&ids, None), &|actor| actor.count(false));
        }
    }

    fn a_run_beside_walks_and_passes(driver) {
        for (world, ids) in cases() {
            driver(&world, &|actor| actor.batch(&ids, None), &|actor| actor.walk());
            driver(&world, &|actor| actor.batch(&ids, None), &|actor| actor.prune(&[10, 100]));
            driver(&world, &|actor| actor.batch(&ids, None), &|actor| {
                actor.scan_and_remove(false, false, |id| id == 20 || id == 110);
            });
        }
    }

    /// An insert or a removal between the search and the latch.
    fn a_run_beside_changes_of_its_leaf(driver) {
        for (world, ids) in cases() {
            let at = ids[0];
            let free = (at..).find(|id| id % 10 != 0 && !ids.contains(id)).expect("few come");
            driver(&world, &|actor| actor.batch(&ids, Some(at)), &|actor| {
                actor.insert(free);
                actor.remove(at / 10 * 10);
                actor.insert(at);
            });
            driver(&world, &|actor| actor.batch(&ids, Some(at)), &|actor| {
                actor.insert(at);
                actor.remove(at);
            });
        }
    }

    /// Entries that are there already, and one of them goes.
    fn a_run_of_known_entries_beside_a_removal(driver) {
        for ids in [vec![100, 110, 120], vec![100, 110, 115], (0..24).map(|i| i * 10).collect()] {
            driver(&roomy(), &|actor| actor.batch(&ids, Some(110)), &|actor| actor.remove(110));
        }
        let ids: Vec<_> = (0..12).map(|i| i * 10).collect();
        let world = few(Forms::Slots);
        driver(&world, &|actor| actor.batch(&ids, Some(50)), &|actor| actor.remove(50));
    }

    /// Each has one latch at a time, so they need no order.
    fn batches_that_cross(driver) {
        for (world, ids) in cases() {
            let shared = ids[1];
            let others: Vec<_> = ids.iter().map(|id| id + 500).chain([shared]).collect();
            let mut others: Vec<_> = others.into_iter().filter(|id| !ids.contains(id) || *id == shared).collect();
            others.sort();
            driver(
                &world,
                &|actor| actor.batch(&ids, Some(shared)),
                &|actor| actor.batch(&others, Some(shared)),
            );
        }
        let twice = [101, 101, 102, 102, 102, 503];
        driver(&roomy(), &|actor| actor.batch(&twice, Some(102)), &|actor| actor.insert(102));
    }

    /// The leaf is split, merged, filled or moved by others.
    fn a_run_beside_relinkings(driver) {
        let splits = |actor: &Actor| (0..3).for_each(|i| actor.insert(115 + i));
        let full = World::packed("runs, full", 100, long, |actor| {
            actor.build((0..120).map(|i| i * 10));
        });
        for ids in [IN_PLACE.to_vec(), (101..111).collect()] {
            driver(&full, &|actor| actor.batch(&ids, Some(110)), &splits);
        }
        let ids = [301, 302, 303, 611];
        driver(&sparse(), &|actor| actor.batch(&ids, None), &|actor| actor.collect());
        driver(&sparse(), &|actor| actor.batch(&ids, None), &|actor| actor.sweep());
    }

    /// The snapshot sees all of a run or nothing. Packed entries have no terms.
    fn a_run_beside_a_snapshot_in_the_making(driver) {
        for (world, ids) in cases() {
            driver(&world, &|actor| actor.batch(&ids, None), &|actor| actor.snapshot(|| ()));
        }
        driver(&few(Forms::Slots), &|actor| actor.batch(&one_leaf(), None), &|actor| {
            actor.snapshot(|| ());
            actor.remove(50);
        });
    }

    /// What comes under a term is seen by the snapshot that ends it.
    fn a_run_beside_a_term_that_ends(driver) {
        for (world, ids) in cases() {
            driver(&world, &|actor| actor.batch(&ids, None), &|actor| actor.snapshot_that_ends());
        }
    }

    /// An entry is marked dead for a snapshot that is given up: the mark makes no new version.
    fn a_run_beside_a_snapshot_that_is_given_up(driver) {
        for (world, ids) in cases() {
            let gone = ids[0] / 10 * 10;
            driver(&world, &|actor| actor.batch(&ids, None), &|actor| {
                actor.give_up_a_snapshot(|| actor.remove(gone));
            });
        }
    }

    fn a_run_beside_the_end_of_a_snapshot(driver) {
        let world = World::packed("runs, snapshot", 60, long, |actor| {
            actor.build((0..120).map(|i| i * 10));
            actor.hold(HELD);
        });
        for ids in [IN_PLACE.to_vec(), merged()] {
            driver(&world, &|actor| actor.batch(&ids, None), &|actor| {
                actor.remove(100);
                actor.end_snapshots(HELD);
                actor.collect();
            });
        }
    }

    /// Memory runs out at each of the places where a merge takes some.
    fn a_run_without_memory(driver) {
        for leaves in 0..3 {
            let world = World::packed("runs, no memory", 60, long, |actor| {
                actor.build((0..120).map(|i| i * 10));
                match leaves {
                    0 => actor.fill_area(),
                    _ => actor.fill_area_but(leaves),
                }
            });
            let many: Vec<_> = (101..160).filter(|id| id % 10 != 0).chain([503, 504]).collect();
            for ids in [IN_PLACE.to_vec(), many] {
                driver(&world, &|actor| actor.batch(&ids, None), &|actor| {
                    actor.remove(500);
                    actor.look(100);
                });
            }
        }
    }
}

/// The worlds have leaves that become what their cases say.
#[test]
fn runs_are_merged_into_one_leaf_or_two() {
    let splits = |forms, ids: &[u64]| {
        let world = few(forms);
        world.restore();
        let actor = world.actor(0);
        let splits = || actor.ix.stats().splits;
        let before = splits();
        actor.batch(ids, None);
        let _section = actor.p.enter();
        let key = (world.key)(ids[0]);
        let spot = seek::seek(&actor.ix, &Probe::new(&Memcmp, &key, ids[0]), true);
        assert!(spot.v.b.has(PACKED));
        splits() - before
    };
    assert_eq!(splits(Forms::Packed, &one_leaf()), 0);
    assert_eq!(splits(Forms::Slots, &one_leaf()), 0);
    assert_eq!(splits(Forms::Slots, &two_leaves()), 1);
}

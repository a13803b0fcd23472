//! Leaves and index nodes that move (`collect/moves.rs`).

use super::quietly;
use super::world::{Actor, MEMORY, MakeKey, World, record, short};
use crate::node::probe::Probe;
use crate::prelude::*;
use crate::tree::{seek, top};
use crate::{Forms, Memcmp};

/// Entries of forty leaves that are left, about 64 apart.
const LEFT: [u64; 8] = [0, 1950, 3890, 5810, 7730, 11570, 19250, 24000];

/// Leaves with a third of their entries, in extents of two.
fn sparse(name: &'static str, leaves: u64, key: MakeKey, comparator: bool) -> World {
    World::ordered(name, 100, key, comparator, |actor| {
        (0..leaves * 64).for_each(|i| actor.insert(i * 10));
        (0..leaves * 64).filter(|i| i / 64 % 3 != 0).for_each(|i| actor.remove(i * 10));
        actor.free_blocks();
    })
}

/// The first entry under the second index node, and under the third one.
const SECOND_NODE: u64 = 64 * 6000;
const THIRD_NODE: u64 = 2 * SECOND_NODE;
const FOURTH_NODE: u64 = 3 * SECOND_NODE;
/// Of full leaves, one under each, and one that the third node takes.
const FULL_LEAVES: [u64; 3] = [SECOND_NODE + 12_000, THIRD_NODE + 36_000, FOURTH_NODE + 6000];
/// Separators that a node takes.
const MOST: usize = 60;

/// Four index nodes, under a comparator some more: of the second one the separators are as many as
/// there can be, of the third one some have gone.
fn index_nodes(comparator: bool) -> World {
    World::of("moves, index nodes", 2 * MEMORY, 10, short, comparator, Forms::Slots, |actor| {
        (0..4 * 64 * 6 - 40).for_each(|i| actor.insert(i * 1000));
        for leaf in FULL_LEAVES {
            (0..58).for_each(|i| actor.insert(leaf + 100 + i * 10));
        }
        let thin = (THIRD_NODE / 1000 + 60..THIRD_NODE / 1000 + 120).filter(|i| i % 6 != 0);
        thin.for_each(|i| actor.remove(i * 1000));
        actor.collect();
        assert!(actor.ix.stats().blocks[1] >= 4);
        let _section = actor.p.enter();
        assert!(top::rebuild_top(&actor.ix));
    })
}

families! {
    fn index_nodes_shift_beside_searches_and_changes(driver) {
        for (comparator, most) in [(false, 0), (false, MOST), (true, MOST)] {
            let world = index_nodes(comparator);
            driver(&world, &|actor| actor.shift_nodes(most), &|actor| {
                for id in [SECOND_NODE, FOURTH_NODE, FOURTH_NODE + 30_000] {
                    actor.insert(id + 1);
                    actor.look(id + 6000);
                    actor.remove(id + 7000);
                }
            });
        }
    }

    /// A promotion into the node that moves, gives or takes, and one that splits it.
    fn index_nodes_shift_beside_promotions(driver) {
        let world = index_nodes(false);
        for most in [0, MOST] {
            for leaf in FULL_LEAVES {
                driver(&world, &|actor| actor.shift_nodes(most), &|actor| {
                    actor.insert(leaf + 105);
                    actor.look(leaf + 1000);
                });
            }
        }
    }

    /// The memory of moved nodes serves another index.
    fn memory_of_index_nodes_that_shifted(driver) {
        let world = index_nodes(false);
        let shifts = |actor: &Actor| {
            quietly(|| actor.shift_nodes(MOST));
            actor.collect();
            quietly(|| (0..900).for_each(|i| actor.insert(5 * SECOND_NODE + i * 1000)));
        };
        driver(&world, &shifts, &|actor| {
            actor.look(SECOND_NODE + 12_000);
            actor.insert(FOURTH_NODE + 1);
        });
    }

    fn moves_beside_searches_and_changes(driver) {
        for (key, comparator) in [(short as MakeKey, false), (record, false), (short, true)] {
            let world = sparse("moves, changes", 40, key, comparator);
            driver(&world, &|actor| actor.collect_some(2), &|actor| {
                for id in LEFT {
                    quietly(|| actor.insert(id + 1));
                    actor.insert(id + 2);
                    actor.look(id + 1);
                    actor.remove(id + 1);
                }
            });
        }
    }

    /// A batch has a run for each leaf that stays or moves, in slots or packed.
    fn moves_beside_a_batch(driver) {
        let world = World::of("moves, batch", MEMORY, 100, short, false, Forms::Best, |actor| {
            (0..40 * 64).for_each(|i| actor.insert(i * 10));
            (0..40 * 64).filter(|i| i / 64 % 3 != 0).for_each(|i| actor.remove(i * 10));
            actor.free_blocks();
        });
        let ids: Vec<u64> = LEFT.iter().flat_map(|id| (1..9).map(move |i| id + i)).collect();
        driver(&world, &|actor| actor.collect_some(2), &|actor| actor.batch(&ids, None));
    }

    fn moves_beside_scans_that_remove(driver) {
        let world = sparse("moves, scans", 24, short, false);
        for forward in [true, false] {
            driver(&world, &|actor| actor.collect_some(2), &|actor| {
                actor.scan_and_remove(forward, true, |id| id % 640 == 30);
            });
        }
        driver(&world, &|actor| actor.collect_some(2), &|actor| actor.prune(&[30, 13_470]));
        driver(&world, &|actor| actor.collect_some(2), &|actor| actor.walk());
    }

    fn moves_beside_splits_and_another_collector(driver) {
        let world = sparse("moves, splits", 40, short, false);
        driver(&world, &|actor| actor.collect_some(2), &|actor| {
            for id in [1950, 19250] {
                quietly(|| (1..64).for_each(|i| actor.insert(id + i / 9 * 10 + i % 9 + 1)));
                actor.insert(id + 100 + 5);
            }
            actor.collect();
        });
    }
}

/// The worlds of scans and walks have leaves that move.
#[test]
fn leaves_of_small_worlds_move() {
    let world = sparse("moves, scans", 24, short, false);
    world.restore();
    let actor = world.actor(0);
    let last = || {
        let _section = actor.p.enter();
        let key = short(13_470);
        seek::seek(&actor.ix, &Probe::new(&Memcmp, &key, 13_470), false).leaf
    };
    let before = last();
    actor.collect_some(2);
    assert_ne!(last(), before);
}

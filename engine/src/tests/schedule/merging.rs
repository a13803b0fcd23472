//! README, "Relinking": merges, and the memory of dead leaves ("Barrier").

use super::quietly;
use super::world::{Actor, HELD, MakeKey, World, record, short};
use crate::prelude::*;
use crate::tree::top;

/// In the leaf that takes its right neighbour's entries, in that neighbour, and in the leaf behind
/// it.
const TAKES: u64 = 650;
const ABSORBED: u64 = 1290;
const BEHIND: u64 = 2000;

/// Five leaves with entries 0, 10, 20, ... The second and third have so few left that the collector
/// merges them.
fn sparse(name: &'static str, key: MakeKey, comparator: bool) -> World {
    World::ordered(name, 100, key, comparator, |actor| {
        (0..260).for_each(|i| actor.insert(i * 10));
        let kept = |i: u64| !(64..192).contains(&i) || i % 8 == 1;
        (0..260).filter(|&i| !kept(i)).for_each(|i| actor.remove(i * 10));
    })
}

families! {
    /// A search that has the right one already finds it DEAD and goes left. An insert gets no
    /// latch.
    fn a_merge_beside_searches_and_changes_of_both(driver) {
        for (key, comparator) in [(short as MakeKey, false), (record, false), (short, true)] {
            let world = sparse("merge, changes", key, comparator);
            driver(&world, &|actor| actor.collect(), &|actor| {
                actor.look(ABSORBED);
                actor.insert(ABSORBED + 1);
                actor.remove(ABSORBED);
                actor.insert(TAKES + 1);
            });
        }
    }

    /// Entries that a snapshot needs are only marked, in the version that the merge has copied.
    fn a_merge_beside_marks(driver) {
        let world = World::ordered("merge, marks", 100, short, false, |actor| {
            (0..260).for_each(|i| actor.insert(i * 10));
            let kept = |i: u64| !(64..192).contains(&i) || i % 8 == 1;
            (0..260).filter(|&i| !kept(i)).for_each(|i| actor.remove(i * 10));
            actor.hold(HELD);
        });
        driver(&world, &|actor| actor.collect(), &|actor| {
            actor.remove(TAKES);
            actor.remove(ABSORBED);
        });
    }

    fn a_merge_beside_a_forward_scan_that_removes(driver) {
        let world = sparse("merge, forward removal", short, false);
        driver(&world, &|actor| actor.collect(), &|actor| {
            actor.scan_and_remove(true, false, |id| id == TAKES || id == ABSORBED || id == BEHIND);
        });
    }

    fn a_merge_beside_a_pass(driver) {
        let world = sparse("merge, pass", short, false);
        driver(&world, &|actor| actor.collect(), &|actor| actor.prune(&[TAKES, ABSORBED, BEHIND]));
        driver(&world, &|actor| actor.collect(), &|actor| actor.walk());
    }

    fn a_merge_beside_a_backward_scan_that_removes(driver) {
        let world = sparse("merge, backward removal", short, false);
        driver(&world, &|actor| actor.collect(), &|actor| {
            actor.scan_and_remove(false, true, |id| id == TAKES || id == ABSORBED || id == BEHIND);
        });
    }

    /// Splits of the neighbours on both sides, and of the one that absorbs.
    fn a_merge_beside_splits(driver) {
        let world = sparse("merge, splits", short, false);
        driver(&world, &|actor| actor.collect(), &|actor| actor.insert(5));
        driver(&world, &|actor| actor.collect(), &|actor| actor.insert(BEHIND + 5));
        driver(&world, &|actor| actor.collect(), &|actor| {
            quietly(|| (0..48).for_each(|i| actor.insert(TAKES + 1 + i / 9 * 10 + i % 9)));
            actor.insert(TAKES + 101);
            actor.insert(TAKES + 102);
        });
    }

    /// Unlinked memory is reused only after every process that may see it has left.
    fn memory_that_comes_back(driver) {
        let world = sparse("reuse", short, false);
        let again = |actor: &Actor| {
            actor.collect();
            actor.insert(5);
            actor.insert(BEHIND + 5);
            actor.look(ABSORBED);
        };
        for forward in [true, false] {
            driver(&world, &again, &move |actor| actor.scan(forward));
        }
        driver(&world, &again, &|actor| {
            actor.look(ABSORBED);
            actor.remove(ABSORBED);
        });
    }

    /// A leaf that is on a list stays where it is.
    fn lists_that_are_worked_off_in_parts(driver) {
        let world = sparse("parts of a list", short, false);
        driver(
            &world,
            &|actor| (0..4).for_each(|_| actor.collect_some(1)),
            &|actor| {
                actor.insert(5);
                actor.insert(BEHIND + 5);
                actor.remove(TAKES);
            },
        );
    }

    fn two_collectors(driver) {
        let world = sparse("two collectors", short, false);
        let collect = |actor: &Actor| {
            actor.remove(TAKES);
            actor.collect();
        };
        driver(&world, &collect, &|actor| {
            actor.remove(ABSORBED);
            actor.collect();
        });
    }

    /// Index nodes are absorbed alike; one goes to the barrier only when no flat top leads to it.
    fn a_merge_of_index_nodes(driver) {
        let world = sparse_index_nodes();
        let merges = |actor: &Actor| {
            quietly(|| (1..6).for_each(|i| actor.remove(SECOND_NODE + 6000 + i * 1000)));
            actor.collect();
        };
        driver(&world, &merges, &|actor| {
            actor.insert(SECOND_NODE + 1);
            actor.look(SECOND_NODE + 12_000);
            actor.insert(SECOND_NODE + 6001);
        });
        driver(&world, &merges, &|actor| {
            actor.scan_and_remove(false, false, |id| id == SECOND_NODE);
        });
        // The memory of the node that went serves one at another place.
        driver(
            &world,
            &|actor| {
                quietly(|| merges(actor));
                actor.collect();
                quietly(|| (0..400).for_each(|i| actor.insert(3 * SECOND_NODE + i * 1000)));
            },
            &|actor| {
                actor.look(SECOND_NODE + 12_000);
                actor.insert(SECOND_NODE + 6001);
            },
        );
        // A promotion into the node that goes.
        driver(&world, &merges, &|actor| actor.insert(FULL_LEAF + 5));
    }
}

/// The first entry under the second index node.
const SECOND_NODE: u64 = 64 * 6000;
/// The first of some full leaves under it.
const FULL_LEAF: u64 = SECOND_NODE + 12_000;
const FULL_LEAVES: u64 = 5;

/// Three index nodes. The first two have few separators. A leaf of the second is about to be
/// absorbed. Then this node has so few that it is absorbed, too.
fn sparse_index_nodes() -> World {
    World::new("index nodes", 10, short, |actor| {
        let first = SECOND_NODE / 1000;
        (0..2 * first + 80).for_each(|i| actor.insert(i * 1000));
        let thin_out = |ids: std::ops::Range<u64>| {
            ids.filter(|i| i % 6 != 0).for_each(|i| actor.remove(i * 1000));
            actor.collect();
        };
        // Leaves that are too full to be merged.
        for leaf in (0..FULL_LEAVES).map(|i| FULL_LEAF + i * 6000) {
            (0..60).for_each(|i| actor.insert(leaf + i * 100));
        }
        // The first when the second is still full. The second keeps too many to try a merge.
        thin_out(0..first);
        thin_out(first + 12 + 6 * FULL_LEAVES..2 * first);
        (0..4).for_each(|i| actor.insert(FULL_LEAF + 50 + i * 100));
        assert_eq!(actor.ix.stats().blocks[1], 3);
        // Another one will take its place.
        let _section = actor.p.enter();
        assert!(top::rebuild_top(&actor.ix));
    })
}

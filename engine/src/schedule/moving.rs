//! Leaves that move (`evacuate.rs`).

use super::quietly;
use super::world::{MakeKey, World, record, short};

/// Entries of leaves that are left, about 64 apart.
const LEFT: [u64; 8] = [0, 1950, 3890, 5810, 7730, 11570, 19250, 24000];

/// Forty leaves, of which a third is left, in extents of two.
fn sparse(name: &'static str, key: MakeKey, comparator: bool) -> World {
    World::ordered(name, 100, key, comparator, |actor| {
        (0..2560).for_each(|i| actor.insert(i * 10));
        (0..2560).filter(|i| i / 64 % 3 != 0).for_each(|i| actor.remove(i * 10));
        actor.free_blocks();
    })
}

families! {
    fn moves_beside_searches_and_changes(driver) {
        for (key, comparator) in [(short as MakeKey, false), (record, false), (short, true)] {
            let world = sparse("moves, changes", key, comparator);
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

    fn moves_beside_scans_that_remove(driver) {
        let world = sparse("moves, scans", short, false);
        for forward in [true, false] {
            driver(&world, &|actor| actor.collect_some(2), &|actor| {
                actor.scan_and_remove(forward, true, |id| id % 640 == 30);
            });
        }
        driver(&world, &|actor| actor.collect_some(2), &|actor| actor.prune(&[30, 670]));
    }

    fn moves_beside_splits_and_another_collector(driver) {
        let world = sparse("moves, splits", short, false);
        driver(&world, &|actor| actor.collect_some(2), &|actor| {
            for id in [1950, 19250] {
                quietly(|| (1..64).for_each(|i| actor.insert(id + i / 9 * 10 + i % 9 + 1)));
                actor.insert(id + 100 + 5);
            }
            actor.collect();
        });
    }
}

//! README, "Relinking": splits and promotions.

use super::quietly;
use super::world::{Actor, MakeKey, World, chunk, record, short};
use crate::prelude::*;

/// Two leaves at least, at 0, 10, 20, ...; the next insert in front splits the first, whose right
/// half begins near [`MIDDLE`].
fn about_to_split(name: &'static str, key: MakeKey, comparator: bool) -> World {
    let fill = |actor: &Actor, more: u64| {
        (0..80).for_each(|i| actor.insert(i * 10));
        (1..=more).for_each(|i| actor.insert(i));
    };
    let mut enough = 0;
    World::ordered(name, 100, key, comparator, |actor| {
        fill(actor, 0);
        let before = actor.ix.stats().splits;
        while actor.ix.stats().splits == before {
            enough += 1;
            actor.insert(enough);
        }
    });
    World::ordered(name, 100, key, comparator, |actor| fill(actor, enough - 1))
}

/// The insert that splits the first leaf.
const SPLITS: u64 = 9;
/// Of the entries in the right half of the leaf with 64 short keys.
const MIDDLE: u64 = 400;

families! {
    /// Search between the two: the left one's high key sends it to the right.
    fn a_split_beside_searches_and_changes_of_the_right_half(driver) {
        for (key, comparator) in [(short as MakeKey, false), (record, false), (short, true)] {
            let world = about_to_split("split, changes", key, comparator);
            driver(
                &world,
                &|actor| actor.insert(SPLITS),
                &|actor| {
                    actor.look(MIDDLE);
                    actor.insert(MIDDLE + 1);
                    actor.remove(MIDDLE + 10);
                },
            );
        }
    }

    /// A backward scan finds the right half through `prev` before the left one shows it. No process
    /// changes it until then.
    fn a_split_beside_a_backward_scan_that_removes(driver) {
        let world = about_to_split("split, backward removal", short, false);
        driver(
            &world,
            &|actor| {
                actor.insert(SPLITS);
                actor.insert(MIDDLE + 1);
            },
            &|actor| actor.scan_and_remove(false, false, |id| id == MIDDLE),
        );
    }

    fn a_split_beside_a_forward_scan_that_removes(driver) {
        let world = about_to_split("split, forward removal", short, false);
        driver(
            &world,
            &|actor| actor.insert(SPLITS),
            &|actor| actor.scan_and_remove(true, false, |id| id == 10 || id == MIDDLE),
        );
        driver(&world, &|actor| actor.insert(SPLITS), &|actor| actor.prune(&[10, MIDDLE]));
    }

    /// Entries of a leaf stay in front of the one that was pinned ahead.
    fn a_split_beside_a_walk(driver) {
        for (key, comparator) in [(short as MakeKey, false), (record, true)] {
            let world = about_to_split("split, walk", key, comparator);
            driver(&world, &|actor| actor.insert(SPLITS), &|actor| actor.walk());
        }
    }

    /// Both halves are split again, so that a pass has leaves to go through.
    fn splits_beside_a_pass(driver) {
        let world = about_to_split("splits, pass", short, false);
        let pass = |actor: &Actor| actor.prune(&[10, MIDDLE + 20]);
        driver(&world, &pass, &|actor| {
            actor.insert(SPLITS);
            quietly(|| (0..40).for_each(|i| actor.insert(11 + i / 9 * 10 + i % 9)));
            quietly(|| (0..40).for_each(|i| actor.insert(MIDDLE + 1 + i / 9 * 10 + i % 9)));
            actor.insert(MIDDLE + 51);
        });
    }

    /// The promotion of the new leaf enters the separator of the one before it first.
    fn a_split_of_the_right_half_before_its_separator(driver) {
        let world = about_to_split("split of the right half", short, false);
        driver(
            &world,
            &|actor| actor.insert(SPLITS),
            &|actor| {
                quietly(|| (0..32).for_each(|i| actor.insert(MIDDLE + 1 + i / 9 * 10 + i % 9)));
                actor.insert(MIDDLE + 51);
            },
        );
    }

    /// A leaf comes between the halves, and gets a separator, before the right half has one.
    fn a_split_of_the_left_half_before_the_separator(driver) {
        for comparator in [false, true] {
            let world = about_to_split("split of the left half", short, comparator);
            driver(&world, &|actor| actor.insert(SPLITS), &|actor| {
                quietly(|| (0..40).for_each(|i| actor.insert(11 + i / 9 * 10 + i % 9)));
                actor.look(MIDDLE);
            });
        }
    }

    /// A promotion, one of the same leaf that is faster, and a collector that absorbs the leaf
    /// then.
    fn a_promotion_beside_a_faster_one_and_the_collector(driver) {
        let world = about_to_split("promotion, collector", short, false);
        driver(
            &world,
            &|actor| actor.insert(SPLITS),
            &|actor| {
                actor.insert(MIDDLE + 1);
                quietly(|| (0..80).filter(|i| i % 8 != 0).for_each(|i| actor.remove(i * 10)));
                actor.collect();
            },
        );
    }

    /// The collector meets a leaf that is being split from the right.
    fn a_split_beside_a_collector_of_its_right_neighbour(driver) {
        let world = about_to_split("split, collector", short, false);
        driver(
            &world,
            &|actor| {
                actor.insert(SPLITS);
                actor.insert(MIDDLE + 1);
            },
            &|actor| {
                quietly(|| (66..80).for_each(|i| actor.remove(i * 10)));
                actor.collect();
            },
        );
    }

    /// The low key of the right leaf is in the chunk of an insert that finds an equal key there.
    fn a_chunk_that_became_a_low_key(driver) {
        let world = about_to_split("chunks", chunk, false);
        driver(
            &world,
            &|actor| actor.insert(9991),
            &|actor| {
                actor.insert(9992);
                actor.remove(9992);
            },
        );
        driver(&world, &|actor| actor.insert(9991), &|actor| actor.insert(9981));
    }

    fn ascending_inserts(driver) {
        let world = World::new("appends", 100, short, |actor| {
            (0..128).for_each(|i| actor.insert(i * 10));
        });
        driver(
            &world,
            &|actor| (0..2).for_each(|i| actor.insert(2000 + i)),
            &|actor| (0..2).for_each(|i| actor.insert(2000 + i)),
        );
        driver(
            &world,
            &|actor| (0..2).for_each(|i| actor.insert(2000 + i)),
            &|actor| {
                quietly(|| (40..128).for_each(|i| actor.remove(i * 10)));
                actor.collect();
                actor.insert(2001);
            },
        );
    }

    /// One latch, for the split of an index node and for separators that are entered.
    fn a_split_of_an_index_node(driver) {
        let world = full_index_node();
        driver(&world, &|actor| actor.insert(LEFT_LEAF + 5), &|actor| actor.insert(RIGHT_LEAF + 5));
        driver(
            &world,
            &|actor| actor.insert(LEFT_LEAF + 5),
            &|actor| {
                actor.look(RIGHT_LEAF);
                actor.scan_and_remove(false, false, |id| id == RIGHT_LEAF);
            },
        );
        driver(
            &world,
            &|actor| actor.insert(LEFT_LEAF + 5),
            &|actor| {
                quietly(|| (0..64).for_each(|i| actor.remove(RIGHT_LEAF + i * 100)));
                actor.collect();
            },
        );
    }
}

/// First entries of two leaves that are full.
const LEFT_LEAF: u64 = 60_000;
const RIGHT_LEAF: u64 = 300_000;

/// A full index node and its neighbour, and two leaves under it that the next insert splits.
fn full_index_node() -> World {
    World::new("index node", 10, short, |actor| {
        let mut id = 0;
        while actor.ix.stats().blocks[0] < 70 {
            actor.insert(id);
            id += 1000;
        }
        for start in [LEFT_LEAF, RIGHT_LEAF] {
            // Each leaf got six entries, a thousand apart.
            (0..60).for_each(|i| actor.insert(start + i * 100));
            (0..4).for_each(|i| actor.insert(start + 50 + i * 100));
        }
    })
}

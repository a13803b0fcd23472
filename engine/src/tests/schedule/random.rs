//! Drawn schedules, under shuttle (`ci/sanitize.sh shuttle`).

use super::world::{Actor, HELD, World, chunk, long, short};
use crate::memory::class::Class;
use crate::node::fresh::Fresh;
use crate::sync::stepping;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};
use std::sync::Arc;

/// How many schedules of each kind, unless SHUTTLE_ITERATIONS says it.
const ITERATIONS: usize = 5000;

pub(super) fn waiting() -> bool {
    stepping::wait();
    true
}

pub(super) fn progress() {}

fn quietly<T>(act: impl FnOnce() -> T) -> T {
    stepping::quietly(act)
}

type Act = fn(&Actor);

/// Runs the actors beside each other: in schedules with few switches, and with switches anywhere.
fn explore(world: impl FnOnce() -> World, actors: &'static [Act]) {
    let wanted = std::env::var("SHUTTLE_ITERATIONS").ok();
    let iterations = wanted.and_then(|n| n.parse().ok()).unwrap_or(ITERATIONS);
    let world = Arc::new(quietly(world));
    let run = move || {
        quietly(|| world.restore());
        let threads: Vec<_> = (0..actors.len())
            .map(|me| {
                let world = world.clone();
                shuttle::thread::spawn(move || {
                    let actor = world.actor(me);
                    actors[me](&actor);
                    actor.end()
                })
            })
            .collect();
        let logs: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        if let Err(failure) = quietly(|| world.check(&logs)) {
            panic!("{}: {failure}\n{logs:?}", world.name);
        }
    };
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.silence_warnings = true;
    Runner::new(PctScheduler::new(4, iterations), config.clone()).run(run.clone());
    Runner::new(RandomScheduler::new(iterations), config).run(run);
}

/// Leaves with four entries and with fewer.
fn leaves() -> World {
    World::new("leaves", 100, short, |actor| {
        (0..18).for_each(|i| actor.insert(i * 10));
        [50, 60, 70, 90, 100].into_iter().for_each(|id| actor.remove(id));
    })
}

/// Index nodes that are full.
fn nodes() -> World {
    World::new("nodes", 50, short, |actor| (0..30).for_each(|i| actor.insert(i * 10)))
}

/// Index nodes that lose their leaves.
fn sparse_nodes() -> World {
    World::new("sparse nodes", 50, short, |actor| {
        (0..40).for_each(|i| actor.insert(i * 10));
        (10..38).filter(|i| i % 5 != 0).for_each(|i| actor.remove(i * 10));
    })
}

fn splits(actor: &Actor) {
    [5, 15, 35, 36].into_iter().for_each(|id| actor.insert(id));
}

fn collects(actor: &Actor) {
    actor.remove(40);
    actor.collect();
    actor.collect();
}

fn goes_back(actor: &Actor) {
    actor.scan_and_remove(false, true, |id| id % 20 == 0);
}

fn goes_forward(actor: &Actor) {
    actor.scan_and_remove(true, false, |id| id % 30 == 0);
}

#[test]
fn splits_beside_a_backward_scan_that_removes() {
    explore(leaves, &[splits, goes_back]);
}

#[test]
fn splits_and_merges_beside_a_backward_scan_that_removes() {
    explore(leaves, &[splits, goes_back, collects]);
}

#[test]
fn splits_and_merges_beside_a_forward_scan_that_removes() {
    explore(leaves, &[splits, goes_forward, collects]);
}

#[test]
fn two_scans_that_remove_beside_the_collector() {
    explore(leaves, &[goes_back, goes_forward, collects]);
}

#[test]
fn writers_of_the_same_entries() {
    fn changes(actor: &Actor) {
        actor.insert(11);
        actor.remove(20);
        actor.insert(20);
        actor.remove(11);
    }
    explore(leaves, &[changes, changes, splits]);
}

#[test]
fn splits_of_index_nodes() {
    explore(
        nodes,
        &[
            |actor| (0..8).for_each(|i| actor.insert(101 + i)),
            |actor| (0..8).for_each(|i| actor.insert(131 + i)),
            goes_back,
        ],
    );
}

#[test]
fn merges_of_index_nodes() {
    explore(
        sparse_nodes,
        &[
            |actor| {
                [150, 200, 250].into_iter().for_each(|id| actor.remove(id));
                actor.collect();
                actor.collect();
            },
            |actor| (0..6).for_each(|i| actor.insert(201 + i)),
            goes_forward,
        ],
    );
}

#[test]
fn snapshots_beside_writers_and_the_collector() {
    explore(
        leaves,
        &[
            |actor| {
                actor.snapshot(|| ());
                actor.remove(30);
            },
            |actor| {
                actor.remove(20);
                actor.insert(20);
                actor.insert(21);
            },
            |actor| {
                actor.hold(HELD);
                actor.remove(80);
                actor.end_snapshots(HELD);
                actor.collect();
            },
        ],
    );
}

#[test]
fn ascending_inserts_beside_the_collector() {
    fn appends(actor: &Actor) {
        (0..6).for_each(|i| actor.insert(200 + i));
    }
    explore(
        leaves,
        &[appends, appends, |actor| {
            (13..18).for_each(|i| actor.remove(i * 10));
            actor.collect();
            actor.collect();
        }],
    );
}

#[test]
fn keys_in_chunks() {
    explore(
        || World::new("chunks", 100, chunk, |actor| (0..8).for_each(|i| actor.insert(i * 10))),
        &[
            |actor| {
                actor.insert(71);
                actor.remove(30);
                actor.insert(81);
            },
            |actor| {
                actor.insert(31);
                actor.remove(70);
                actor.insert(82);
            },
            collects,
        ],
    );
}

/// Some of them packed, some with slots soon.
#[test]
fn packed_leaves() {
    fn changes(actor: &Actor) {
        actor.insert(105);
        actor.remove(110);
        actor.insert(110);
    }
    let world = || {
        let build = |actor: &Actor| actor.build((0..120).map(|i| i * 10));
        World::packed("packed", 100, long, build)
    };
    explore(world, &[changes, goes_back, changes]);
    explore(world, &[changes, goes_forward, |actor| actor.snapshot(|| ())]);
}

/// Leaves move out of sparse extents. The one of 1080 to 1110 does, in each schedule, and its right
/// neighbour.
#[test]
fn leaves_that_move() {
    explore(
        || {
            World::new("moves", 100, short, |actor| {
                (0..200).for_each(|i| actor.insert(i * 10));
                (0..200).filter(|i| i / 4 % 3 != 0).for_each(|i| actor.remove(i * 10));
                actor.free_blocks();
            })
        },
        &[
            |actor| actor.collect_some(2),
            |actor| {
                actor.remove(1100);
                actor.insert(1081);
                actor.insert(1111);
                actor.remove(1080);
            },
            |actor| actor.scan_and_remove(false, true, |id| id % 240 == 0),
        ],
    );
}

fn walks(actor: &Actor) {
    actor.walk();
}

fn sweeps(actor: &Actor) {
    actor.sweep();
}

/// Leaves that are split and merged beside walks and passes.
#[test]
fn walks_over_all_leaves() {
    fn passes(actor: &Actor) {
        actor.prune(&[30, 80]);
    }
    explore(leaves, &[splits, walks, collects]);
    explore(leaves, &[splits, passes, collects]);
    explore(
        leaves,
        &[passes, walks, |actor| {
            actor.snapshot(|| ());
            actor.insert(35);
            actor.collect();
        }],
    );
}

/// The same with leaves that a sweep packs and fills.
#[test]
fn walks_over_packed_leaves() {
    let world = || {
        World::packed("packed, walks", 100, long, |actor| {
            actor.build((0..60).map(|i| i * 10));
            (0..60).filter(|i| i % 3 == 0).for_each(|i| actor.remove(i * 10));
        })
    };
    explore(world, &[sweeps, walks, |actor| actor.insert(105)]);
    explore(world, &[sweeps, |actor| actor.prune(&[110, 400]), |actor| actor.insert(105)]);
    explore(world, &[|actor| actor.prune(&[110, 400]), |actor| actor.snapshot(|| ()), walks]);
}

/// The free lists of the allocator: no block has two owners.
#[test]
fn blocks_that_are_freed_and_taken_again() {
    fn take(actor: &Actor) {
        let ix = actor.ix;
        let alloc = || {
            let fresh = Fresh::new(ix.allocator(), ix.area, Class::INDEX).unwrap();
            assert_eq!(fresh.block().link(), 0, "somebody has it");
            fresh.block().set_link(1);
            fresh
        };
        let free = |fresh: Fresh<'_>| fresh.block().set_link(0);
        for _ in 0..2 {
            let (a, b) = (alloc(), alloc());
            free(a);
            let c = alloc();
            free(b);
            free(c);
        }
    }
    explore(leaves, &[take, take, take]);
}

//! README, "Removal, snapshots, collector".

use super::quietly;
use super::world::{Actor, HELD, World, chunk, short};

fn entries(name: &'static str) -> World {
    World::new(name, 100, short, |actor| (0..40).for_each(|i| actor.insert(i * 10)))
}

/// A snapshot needs what is dead; the leaf has no room left.
fn with_dead(name: &'static str) -> World {
    World::new(name, 100, short, |actor| {
        (0..80).for_each(|i| actor.insert(i * 10));
        actor.hold(HELD);
        (0..20).for_each(|i| actor.remove(i * 10));
    })
}

/// A full leaf with entries that died unseen by the only snapshot, and that no collector has
/// visited.
fn with_unseen_dead(name: &'static str) -> World {
    const SECOND: u64 = HELD + 1;
    World::new(name, 100, short, |actor| {
        actor.hold(HELD);
        (0..80).for_each(|i| actor.insert(i * 10));
        actor.hold(SECOND);
        (0..20).for_each(|i| actor.remove(i * 10));
        actor.end_snapshots(SECOND);
    })
}

families! {
    /// A remover, an insert, entries that come and go, beside a snapshot in the making.
    fn a_snapshot_beside_changes(driver) {
        let world = entries("snapshot, changes");
        driver(&world, &|actor| actor.snapshot(|| ()), &|actor| {
            actor.remove(10);
            actor.insert(15);
        });
        driver(&world, &|actor| actor.snapshot(|| ()), &|actor| {
            actor.remove(10);
            actor.insert(10);
        });
        driver(&world, &|actor| actor.snapshot(|| ()), &|actor| {
            actor.insert(15);
            actor.remove(15);
        });
    }

    /// An insert under a term that a snapshot closes finds an entry that died in the next one.
    fn an_insert_beside_a_snapshot_and_a_removal(driver) {
        let world = entries("insert, snapshot, removal");
        for id in [10, 15] {
            driver(
                &world,
                &|actor| actor.insert(id),
                &|actor| {
                    let removed = std::cell::Cell::new(false);
                    actor.snapshot(|| {
                        if !removed.replace(true) {
                            actor.remove(id);
                        }
                    });
                    if !removed.get() {
                        actor.remove(id);
                    }
                },
            );
        }
    }

    fn a_snapshot_beside_the_collector(driver) {
        let world = with_dead("snapshot, collector");
        driver(&world, &|actor| actor.snapshot(|| ()), &|actor| {
            actor.remove(250);
            actor.end_snapshots(HELD);
            actor.collect();
        });
        driver(&world, &|actor| { actor.hold(HELD); actor.end_snapshots(HELD); }, &|actor| {
            actor.remove(250);
            actor.insert(250);
            actor.collect();
        });
    }

    fn two_snapshots(driver) {
        let world = with_dead("two snapshots");
        let snapshot = |actor: &Actor| {
            actor.remove(250);
            actor.snapshot(|| ());
        };
        driver(&world, &snapshot, &|actor| {
            actor.remove(260);
            actor.end_snapshots(HELD);
            actor.snapshot(|| ());
        });
    }

    /// A second life of an entry whose first one a snapshot sees.
    fn two_lives(driver) {
        let world = with_dead("two lives");
        driver(&world, &|actor| actor.insert(50), &|actor| {
            actor.snapshot(|| ());
            actor.remove(50);
        });
        driver(&world, &|actor| { actor.insert(50); actor.remove(50); }, &|actor| {
            actor.insert(50);
            actor.scan(true);
        });
    }

    fn removers_of_one_entry(driver) {
        let world = with_dead("two removers");
        driver(&world, &|actor| { actor.remove(250); actor.insert(250); }, &|actor| {
            actor.remove(250);
            actor.look(250);
        });
    }

    /// The dead of a leaf are dropped by a collector, or by an insert that needs their room.
    fn the_collector_beside_readers_and_splits(driver) {
        let world = with_dead("dead entries");
        for forward in [true, false] {
            driver(&world, &|actor| actor.end_snapshots(HELD), &move |actor| actor.scan(forward));
        }
        driver(&world, &|actor| actor.end_snapshots(HELD), &|actor| {
            actor.insert(5);
            actor.insert(50);
        });
        driver(&world, &|actor| { quietly(|| actor.end_snapshots(HELD)); actor.insert(5); }, &|actor| {
            actor.look(50);
            actor.remove(300);
            actor.scan(false);
        });
    }

    /// An insert that needs room drops them.
    fn unseen_dead_entries_beside_readers_and_writers(driver) {
        let world = with_unseen_dead("unseen dead entries");
        driver(&world, &|actor| actor.insert(5), &|actor| {
            actor.insert(50);
            actor.look(50);
            actor.scan(false);
        });
        driver(&world, &|actor| actor.insert(5), &|actor| {
            actor.snapshot(|| ());
            actor.remove(300);
        });
    }

    /// The last entry with a chunk goes, and another one comes.
    fn references_to_a_chunk(driver) {
        let world = World::new("chunks", 100, chunk, |actor| (0..8).for_each(|i| actor.insert(i * 10)));
        driver(&world, &|actor| actor.remove(30), &|actor| {
            actor.insert(31);
            actor.look(30);
            actor.collect();
            actor.insert(91);
        });
    }
}

//! README, "Packed leaves".

use super::world::{Actor, HELD, MakeKey, World, long, short};
use crate::Remove;

/// Packed leaves with entries at 0, 10, 20, ...
fn leaves(name: &'static str, fillfactor: u8, key: MakeKey) -> World {
    World::packed(name, fillfactor, key, |actor| actor.build((0..120).map(|i| i * 10)))
}

/// Leaves with room.
fn roomy() -> World {
    leaves("packed", 60, long)
}

/// Full ones: the next insert cuts one.
fn full() -> World {
    leaves("packed, full", 100, long)
}

/// An entry comes and one goes.
fn changes(actor: &Actor) {
    actor.insert(105);
    actor.remove(110);
}

families! {
    /// Readers wait for the end of a change, or repeat.
    fn a_change_beside_searches(driver) {
        for key in [long as MakeKey, short] {
            let world = leaves("packed, searches", 60, key);
            driver(&world, &changes, &|actor| {
                actor.look(100);
                actor.look(105);
                actor.look(110);
                actor.look(120);
            });
        }
    }

    /// A scan goes on at its rank in the version that it knows, otherwise behind its last entry.
    fn a_change_beside_scans(driver) {
        for world in [roomy(), full()] {
            for forward in [true, false] {
                driver(&world, &changes, &|actor| actor.scan(forward));
            }
        }
    }

    fn changes_of_the_same_leaf(driver) {
        for world in [roomy(), full()] {
            driver(&world, &changes, &|actor| {
                actor.remove(100);
                actor.insert(105);
                actor.insert(110);
            });
        }
    }

    /// What it read is searched by key.
    fn a_change_beside_a_scan_that_removes(driver) {
        for (keys, kind) in [(true, Remove::Always), (false, Remove::Always), (false, Remove::IfUnchanged)] {
            driver(&roomy(), &changes, &|actor| {
                actor.scan_and_remove(true, keys, kind, |id| id == 100 || id == 110);
            });
        }
    }

    /// With a snapshot in the making, or one that is, the leaf becomes one of slots.
    fn a_change_beside_a_snapshot_in_the_making(driver) {
        for world in [roomy(), full()] {
            driver(&world, &changes, &|actor| actor.snapshot(|| ()));
        }
    }

    fn slots_beside_readers(driver) {
        for key in [long as MakeKey, short] {
            let world = World::packed("packed, slots", 60, key, |actor| {
                actor.build((0..120).map(|i| i * 10));
                actor.hold(HELD);
            });
            driver(&world, &changes, &|actor| {
                actor.scan(false);
                actor.look(105);
            });
        }
    }

    fn slots_beside_changes(driver) {
        let world = World::packed("packed, slots", 60, long, |actor| {
            actor.build((0..120).map(|i| i * 10));
            actor.hold(HELD);
        });
        driver(&world, &changes, &|actor| {
            actor.end_snapshots(HELD);
            actor.insert(115);
            actor.remove(100);
        });
    }

    /// An entry at the very beginning of a leaf of a class without a heap.
    fn slots_for_the_first_entry(driver) {
        let world = World::packed("packed, first entry", 60, long, |actor| {
            actor.build((1..60).map(|i| i * 10));
            actor.hold(HELD);
        });
        driver(&world, &|actor| actor.insert(5), &|actor| {
            actor.scan(true);
            actor.insert(6);
        });
    }
}

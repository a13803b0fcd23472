//! README, "Packed leaves".

use super::world::{Actor, HELD, MakeKey, World, long, short};
use crate::Forms;
use crate::prelude::*;

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

/// One of slots, as full as it can be: the next insert makes it packed.
fn full_of_slots() -> World {
    World::packed("packed, from slots", 100, short, |actor| {
        (0..64).for_each(|i| actor.insert(i * 10));
    })
}

/// Three leaves. The collector merges the second and third.
fn sparse() -> World {
    World::packed("packed, sparse", 100, long, |actor| {
        actor.build((0..120).map(|i| i * 10));
        let kept = |i: u64| !(24..100).contains(&i) || i % 8 == 1;
        (0..120).filter(|&i| !kept(i)).for_each(|i| actor.remove(i * 10));
    })
}

/// Leaves with slots, as inserts in random order leave them.
fn left() -> World {
    World::packed("packed, left", 90, short, |actor| {
        actor.force(Forms::Slots);
        (0..240).for_each(|i| actor.insert(i * 77 % 240 * 10));
        actor.force(Forms::Best);
    })
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

    /// The rest of a leaf is of the same state as the batch. Otherwise the scan goes on as usual.
    fn a_change_beside_the_rest_of_a_leaf(driver) {
        for forward in [true, false] {
            let world = leaves("packed, rest", 60, short);
            driver(&world, &changes, &|actor| actor.count(forward));
            driver(&world, &|actor| actor.insert(if forward { 1195 } else { 5 }), &|actor| actor.count(forward));
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

    /// A pass asks anew about a leaf that has changed.
    fn a_change_beside_a_scan_that_removes(driver) {
        driver(&roomy(), &changes, &|actor| {
            actor.scan_and_remove(true, false, |id| id == 100 || id == 110);
        });
        driver(&roomy(), &changes, &|actor| actor.prune(&[100, 110]));
        for world in [roomy(), full()] {
            driver(&world, &changes, &|actor| actor.walk());
        }
    }

    /// Entries that a snapshot needs are not removed with their batch.
    fn a_scan_that_removes_beside_a_snapshot_in_the_making(driver) {
        let remove = |actor: &Actor| actor.scan_and_remove(true, true, |id| id == 100 || id == 110);
        let prune = |actor: &Actor| actor.prune(&[100, 110]);
        for removes in [&remove as &(dyn Fn(&Actor) + Sync), &prune] {
            driver(&roomy(), removes, &|actor| actor.snapshot(|| ()));
            driver(&roomy(), &|actor| actor.snapshot(|| ()), removes);
        }
    }

    /// A packed leaf that a snapshot needs gets slots around what goes.
    fn a_pass_beside_a_snapshot(driver) {
        for key in [long as MakeKey, short] {
            let world = World::packed("packed, pass", 60, key, |actor| {
                actor.build((0..120).map(|i| i * 10));
                actor.hold(HELD);
            });
            let pass = |actor: &Actor| actor.prune(&[100, 110, 700]);
            driver(&world, &pass, &|actor| {
                actor.insert(105);
                actor.remove(120);
                actor.walk();
            });
            driver(&world, &pass, &|actor| {
                actor.end_snapshots(HELD);
                actor.collect();
            });
            driver(&world, &|actor| actor.insert(105), &pass);
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

    /// There is no block for the slots. The removal ends the snapshot, and its readers learn that.
    fn a_removal_beside_a_snapshot_in_a_full_area(driver) {
        let world = World::packed("packed, no memory", 60, long, |actor| {
            actor.build((0..120).map(|i| i * 10));
            actor.fill_area();
        });
        driver(&world, &|actor| actor.remove(110), &|actor| actor.snapshot_if_kept());
        let world = World::packed("packed, no memory for a snapshot that is", 60, long, |actor| {
            actor.build((0..120).map(|i| i * 10));
            actor.hold(HELD);
            actor.fill_area();
        });
        driver(
            &world,
            &|actor| {
                actor.remove(110);
                assert!(actor.ix.stats().snapshots.is_empty());
            },
            &|actor| {
                actor.look(110);
                actor.remove(120);
                actor.end_snapshots(HELD);
            },
        );
    }

    /// An entry at the very beginning of a leaf of a class without a key area.
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

    /// A reader of slots in a packed leaf stays in the block, and reads again.
    fn packing_beside_readers(driver) {
        let world = full_of_slots();
        driver(&world, &|actor| actor.insert(305), &|actor| {
            actor.look(300);
            actor.look(305);
            actor.look(310);
        });
        for forward in [true, false] {
            driver(&world, &|actor| actor.insert(305), &|actor| actor.scan(forward));
        }
    }

    fn packing_beside_changes(driver) {
        let world = full_of_slots();
        driver(&world, &|actor| actor.insert(305), &|actor| {
            actor.remove(310);
            actor.insert(306);
        });
        driver(&world, &|actor| actor.insert(305), &|actor| {
            actor.prune(&[300, 310]);
        });
        driver(&world, &|actor| actor.insert(305), &|actor| actor.walk());
    }

    /// A packed leaf has no terms. So none is packed while there is a snapshot, or one in the
    /// making.
    fn packing_beside_a_snapshot_in_the_making(driver) {
        let world = full_of_slots();
        driver(&world, &|actor| actor.insert(305), &|actor| actor.snapshot(|| ()));
        driver(&world, &|actor| actor.snapshot(|| ()), &|actor| {
            actor.insert(305);
            actor.remove(310);
        });
    }

    /// As a merge by the collector. A scan on a leaf of slots that dies finds its entries in the
    /// packed one.
    fn a_sweep_beside_scans(driver) {
        let world = left();
        for forward in [true, false] {
            driver(&world, &|actor| actor.sweep(), &|actor| actor.scan(forward));
        }
    }

    fn a_sweep_beside_changes(driver) {
        let world = left();
        driver(&world, &|actor| actor.sweep(), &|actor| {
            actor.look(490);
            actor.insert(495);
            actor.remove(490);
            actor.insert(1005);
        });
        driver(&world, &|actor| actor.sweep(), &|actor| {
            actor.prune(&[300, 310]);
            actor.walk();
        });
    }

    fn a_sweep_beside_a_snapshot_in_the_making(driver) {
        driver(&left(), &|actor| actor.sweep(), &|actor| actor.snapshot(|| actor.insert(495)));
    }

    /// A packed leaf could not say that the snapshot does not see it.
    fn a_sweep_beside_an_insert_behind_a_snapshot(driver) {
        driver(&left(), &|actor| actor.sweep(), &|actor| {
            actor.snapshot(|| ());
            actor.insert(495);
        });
    }

    fn a_merge_of_packed_leaves_beside_scans(driver) {
        let world = sparse();
        for forward in [true, false] {
            driver(&world, &|actor| actor.collect(), &|actor| actor.scan(forward));
        }
    }

    fn a_merge_of_packed_leaves_beside_changes(driver) {
        let world = sparse();
        driver(&world, &|actor| actor.collect(), &|actor| {
            actor.look(490);
            actor.insert(495);
            actor.remove(490);
            actor.insert(1005);
        });
        driver(&world, &|actor| actor.collect(), &|actor| actor.snapshot(|| actor.insert(495)));
    }
}

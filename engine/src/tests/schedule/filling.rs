//! Leaves that take entries from their right neighbours (`collect/fill.rs`).

use super::world::{HELD, World, long, short};
use crate::Forms;

/// Packed leaves with two thirds of their entries: no two fit one.
fn thinned() -> World {
    World::packed("filling", 100, long, |actor| {
        actor.build((0..340).map(|i| i * 10));
        (0..340).filter(|i| i % 3 == 0).for_each(|i| actor.remove(i * 10));
    })
}

/// Leaves with slots, as inserts leave them. A packed leaf holds little more than one of them. With
/// or without a snapshot.
fn of_slots(snapshot: bool) -> World {
    World::packed("filling, of slots", 15, short, |actor| {
        actor.force(Forms::Slots);
        (0..300).for_each(|i| actor.insert(i * 77 % 300 * 10));
        actor.force(Forms::Best);
        if snapshot {
            actor.hold(HELD);
        }
    })
}

/// Packed leaves with an eighth of their entries: several are absorbed at once.
fn many_sparse() -> World {
    World::packed("gathering", 100, long, |actor| {
        actor.build((0..480).map(|i| i * 10));
        (0..480).filter(|i| i % 8 != 0).for_each(|i| actor.remove(i * 10));
    })
}

families! {
    fn gathering_beside_searches_and_changes(driver) {
        for id in [1200, 2400, 4000] {
            driver(&many_sparse(), &|actor| actor.sweep(), &|actor| {
                actor.look(id);
                actor.insert(id + 1);
                actor.remove(id);
                actor.look(id + 1);
            });
        }
    }

    fn gathering_beside_scans(driver) {
        let world = many_sparse();
        for forward in [true, false] {
            driver(&world, &|actor| actor.sweep(), &|actor| actor.scan(forward));
        }
    }

    fn gathering_beside_passes(driver) {
        let world = many_sparse();
        driver(&world, &|actor| actor.sweep(), &|actor| actor.prune(&[1200, 2400, 4000]));
        driver(&world, &|actor| actor.sweep(), &|actor| actor.walk());
        driver(&world, &|actor| actor.prune(&[1200, 2400, 4000]), &|actor| {
            actor.collect();
            actor.scan(false);
        });
        driver(&world, &|actor| actor.sweep(), &|actor| {
            actor.scan_and_remove(false, true, |id| id == 1200 || id == 2400);
        });
    }

    /// One of them is cut while they are gathered.
    fn gathering_beside_splits(driver) {
        driver(&many_sparse(), &|actor| actor.sweep(), &|actor| {
            super::quietly(|| (0..120).for_each(|i| actor.insert(2400 + 1 + i / 9 * 10 + i % 9)));
            actor.insert(2400 + 301);
        });
    }

    fn gathering_beside_snapshots(driver) {
        driver(&many_sparse(), &|actor| actor.sweep(), &|actor| {
            actor.snapshot(|| ());
            actor.insert(2405);
            actor.prune(&[1200]);
        });
    }

    /// A search that has the right one already finds it DEAD and goes left. A change of it gets no
    /// latch.
    fn filling_beside_searches_and_changes(driver) {
        for id in [1250, 1700] {
            driver(&thinned(), &|actor| actor.sweep(), &|actor| {
                actor.look(id);
                actor.insert(id + 1);
                actor.remove(id);
                actor.look(id + 1);
            });
        }
    }

    fn filling_beside_scans(driver) {
        let world = thinned();
        for forward in [true, false] {
            driver(&world, &|actor| actor.sweep(), &|actor| actor.scan(forward));
        }
    }

    fn filling_beside_scans_that_remove(driver) {
        let world = thinned();
        driver(&world, &|actor| actor.sweep(), &|actor| {
            actor.scan_and_remove(false, true, |id| id == 1250 || id == 1700);
        });
        driver(&world, &|actor| actor.sweep(), &|actor| actor.prune(&[1250, 1700]));
    }

    /// No entry crosses the beginning of a leaf that is pinned.
    fn filling_beside_walks(driver) {
        let world = thinned();
        driver(&world, &|actor| actor.sweep(), &|actor| actor.walk());
    }

    fn filling_beside_the_collector(driver) {
        driver(&thinned(), &|actor| actor.sweep(), &|actor| {
            (0..12).for_each(|i| actor.remove((110 + i * 3 + 2) * 10));
            actor.collect();
        });
    }

    /// A packed leaf could not say that the snapshot does not see the entry.
    fn filling_beside_snapshots(driver) {
        for world in [thinned(), of_slots(false)] {
            driver(&world, &|actor| actor.sweep(), &|actor| {
                actor.snapshot(|| ());
                actor.insert(1005);
            });
        }
    }

    /// Entries that are only marked, in the version that was copied, are gone when the snapshot is.
    fn filling_beside_marks(driver) {
        driver(&of_slots(true), &|actor| actor.sweep(), &|actor| {
            [500, 1000, 1500].into_iter().for_each(|id| actor.remove(id));
            actor.end_snapshots(HELD);
        });
    }
}

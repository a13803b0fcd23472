//! README, "Cursors": an entry that lives through a whole scan is returned once.

use super::quietly;
use super::world::{Actor, HELD, World, record, short};

/// Leaves that are full, sparse, and empty.
fn mixed(name: &'static str) -> World {
    World::new(name, 100, short, |actor| {
        (0..330).for_each(|i| actor.insert(i * 10));
        (64..128).filter(|i| i % 8 != 0).for_each(|i| actor.remove(i * 10));
        (192..256).for_each(|i| actor.remove(i * 10));
    })
}

families! {
    fn two_scans_that_remove_the_same(driver) {
        let world = mixed("two scans");
        let victim = |id: u64| id.is_multiple_of(640);
        let all: Vec<u64> = (0..6400).step_by(640).collect();
        for forward in [true, false] {
            let scan = |actor: &Actor| actor.scan_and_remove(forward, true, victim);
            driver(&world, &scan, &|actor| actor.scan_and_remove(!forward, false, victim));
            driver(&world, &scan, &|actor| actor.prune(&all[1..3]));
        }
        driver(&world, &|actor| actor.prune(&all[..2]), &|actor| actor.prune(&all[1..3]));
    }

    /// A mark changes no version: the entry may be dead though the leaf is as it was copied.
    fn two_scans_that_mark_the_same(driver) {
        let world = World::new("two scans, marks", 100, short, |actor| {
            (0..80).for_each(|i| actor.insert(i * 10));
            actor.hold(HELD);
        });
        let victim = |id: u64| id == 40;
        driver(
            &world,
            &|actor| actor.scan_and_remove(false, true, victim),
            &|actor| actor.scan_and_remove(true, false, victim),
        );
    }

    /// A snapshot closes the term of a scan, and removals beside it only mark, in leaves of either
    /// form.
    fn an_old_term_beside_marks(driver) {
        let slots = World::new("old term, slots", 100, short, |actor| {
            (0..80).for_each(|i| actor.insert(i * 10));
        });
        let packed = World::new("old term, packed", 100, short, |actor| {
            actor.build((0..80).map(|i| i * 10));
        });
        for world in [&slots, &packed] {
            for forward in [true, false] {
                driver(world, &move |actor| actor.scan_under_old_term(forward), &|actor| {
                    actor.hold(HELD);
                    actor.remove(200);
                    actor.prune(&[600]);
                });
            }
        }
    }

    /// Every change there is while a scan stands between two leaves.
    fn a_scan_beside_everything(driver) {
        let world = mixed("scan, everything");
        for forward in [true, false] {
            driver(&world, &move |actor| actor.scan(forward), &|actor| {
                actor.insert(5);
                quietly(|| (128..192).filter(|i| i % 8 != 0).for_each(|i| actor.remove(i * 10)));
                actor.collect();
                actor.insert(2055);
                quietly(|| (1..66).for_each(|i| actor.insert(2055 + i)));
            });
        }
    }

    /// A bulk delete, by key and by TID, in leaves that split under it.
    fn a_bulk_delete_beside_inserts(driver) {
        let world = World::new("bulk delete", 100, record, |actor| {
            (0..120).for_each(|i| actor.insert(i * 10));
        });
        let inserts = |actor: &Actor| {
            quietly(|| (1..60).for_each(|i| actor.insert(i / 9 * 10 + i % 9 + 1)));
            actor.insert(605);
            actor.insert(300);
        };
        driver(&world, &|actor| actor.scan_and_remove(true, true, |id| id % 300 == 0), &inserts);
        driver(&world, &|actor| actor.prune(&[300, 600]), &inserts);
    }
}

//! Memory that leaves an index, beside those who remember something of it (`heap/leaving.rs`).

use super::quietly;
use super::world::{Actor, World, short};

/// In the middle of what goes.
const VICTIM: u64 = 6400;

/// Twenty leaves, of which the middle ones will go.
fn leaves() -> World {
    World::new("leaving", 100, short, |actor| (0..1280).for_each(|i| actor.insert(i * 10)))
}

fn remove_the_middle(actor: &Actor) {
    (320..960).for_each(|i| actor.remove(i * 10));
}

families! {
    /// A removal from the leaf that was read finds the version that it remembers, in memory that is
    /// somebody else's.
    fn memory_that_leaves_beside_removals_by_cursors(driver) {
        let world = leaves();
        let leave = |actor: &Actor| quietly(|| {
            remove_the_middle(actor);
            actor.collect();
            actor.pretend();
        });
        for forward in [true, false] {
            driver(&world, &leave, &|actor| {
                actor.scan_and_remove(forward, true, |id| id == VICTIM);
            });
        }
        driver(&world, &leave, &|actor| actor.prune(&[VICTIM]));
    }

    /// It has gone to the free lists already; whoever remembers it reads the epoch, and then it leaves.
    fn memory_that_leaves_while_somebody_looks_at_it(driver) {
        let world = leaves();
        let leave = |actor: &Actor| {
            actor.collect();
            quietly(|| actor.pretend());
        };
        for forward in [true, false] {
            driver(&world, &leave, &|actor| {
                actor.scan_and_remove(forward, true, |id| {
                    if id == VICTIM {
                        quietly(|| {
                            remove_the_middle(actor);
                            actor.free_blocks();
                        });
                    }
                    id == VICTIM
                });
            });
        }
    }

    /// The leaf that ascending inserts append to is forgotten before it goes.
    fn memory_that_leaves_beside_appends(driver) {
        let world = leaves();
        let leave = |actor: &Actor| quietly(|| {
            (640..1280).for_each(|i| actor.remove(i * 10));
            actor.collect();
            actor.pretend();
        });
        driver(&world, &leave, &|actor| {
            actor.insert(12_800);
            actor.look(12_800);
        });
    }
}

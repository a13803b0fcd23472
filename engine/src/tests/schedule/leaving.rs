//! Memory that leaves an index, beside processes that remember a place in it
//! (`memory/allocator/leaving.rs`).

use super::quietly;
use super::world::{Actor, World, short};
use crate::Memcmp;
use crate::memory::place::{PAGE, Ref, UNIT};
use crate::node::probe::Probe;
use crate::tree::seek;

/// Among those that go, in a page that leaves.
const VICTIM: u64 = 8000;

/// Twenty leaves. The middle ones will go.
fn leaves() -> World {
    World::new("leaving", 100, short, |actor| (0..1280).for_each(|i| actor.insert(i * 10)))
}

fn remove_the_middle(actor: &Actor) {
    (160..1120).for_each(|i| actor.remove(i * 10));
}

families! {
    /// A removal from the leaf that was read finds the version that it remembers, in memory of
    /// another index.
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
        driver(&world, &|actor| actor.walk(), &leave);
    }

    /// The memory is on the free lists already. A process that remembers it reads the epoch, and
    /// then the memory leaves.
    fn memory_that_leaves_while_somebody_looks_at_it(driver) {
        let world = leaves();
        let leave = |actor: &Actor| {
            actor.collect();
            quietly(|| drop(actor.pretend()));
        };
        for forward in [true, false] {
            driver(&world, &leave, &|actor| {
                actor.scan_and_remove(forward, true, |id| {
                    if id == VICTIM {
                        quietly(|| {
                            remove_the_middle(actor);
                            // The rest of its page moves the first time, and is free the second.
                            actor.free_blocks();
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

/// Each of these has memory to wait for.
#[test]
fn memory_of_removed_leaves_leaves_the_index() {
    let world = leaves();
    world.restore();
    let actor = world.actor(0);
    let leaf = {
        let _section = actor.p.enter();
        let key = short(VICTIM);
        seek::seek(&actor.ix, &Probe::new(&Memcmp, &key, VICTIM), false).leaf
    };
    let page = |r: Ref| r as usize * UNIT / PAGE;
    let free = || actor.pretend().into_iter().any(|r| page(r) == page(leaf));
    assert!(!free());
    remove_the_middle(&actor);
    actor.collect();
    assert!(free() && actor.ix.allocator().epoch() > 0);
}

//! README, "New keys".

use super::quietly;
use super::world::{Actor, World};

/// Ten entries in a row share a key.
fn shared(id: u64) -> Vec<u8> {
    (id / 10).to_be_bytes().to_vec()
}

/// Every second key is there, in leaves of slots and in packed ones.
fn worlds() -> [World; 3] {
    let fill = |actor: &Actor| (0..70).for_each(|i| actor.insert(i * 20));
    let build = |actor: &Actor| actor.build((0..70).map(|i| i * 20));
    [
        World::new("new keys, slots", 100, shared, fill),
        World::ordered("new keys, comparator", 100, shared, true, fill),
        World::packed("new keys, packed", 60, shared, build),
    ]
}

families! {
    fn a_new_key_beside_the_same(driver) {
        for world in worlds() {
            driver(&world, &|actor| actor.insert_new(210), &|actor| actor.insert_new(211));
            // At either end of everything.
            driver(&world, &|actor| actor.insert_new(1390), &|actor| actor.insert_new(1391));
        }
    }

    /// The leaf is cut meanwhile, and cut again, so that the key comes to an end of it.
    fn a_new_key_beside_the_same_and_others(driver) {
        for world in worlds() {
            driver(&world, &|actor| actor.insert_new(210), &|actor| {
                quietly(|| (0..20).for_each(|i| actor.insert(170 + i / 10 * 60 + i % 10)));
                actor.insert_new(211);
            });
        }
    }

    /// An entry that is dead, or comes to life again, is one with the key.
    fn a_new_key_beside_one_that_goes(driver) {
        for world in worlds() {
            driver(
                &world,
                &|actor| {
                    actor.insert_new(201);
                    actor.insert_new(202);
                },
                &|actor| {
                    actor.remove(200);
                    actor.insert(200);
                },
            );
        }
    }
}

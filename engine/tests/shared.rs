//! Keys that share many bytes: as many as an index node, the flat top, a leaf and a template have
//! room for, one less, one more.

use crate::common::*;
use nitro_engine::adopt;
use nitro_engine::prelude::*;
use nitro_engine::{Builder, Cursor, Forms, Index, Memcmp, Process, Sweep, Swept, Tid};
use std::collections::BTreeSet;

const CURRENT: u32 = u32::MAX - 1;
/// Enough for some index nodes.
const KEYS: u64 = 6000;

type Model = BTreeSet<(Vec<u8>, Tid)>;

/// In scattered order.
fn scattered(i: u64) -> u32 {
    (i as u32).wrapping_mul(0x9e37_79b1)
}

/// `shared` bytes, then four; every hundredth has others in their middle.
fn key(i: u64, shared: usize) -> Vec<u8> {
    let mut key = vec![b'm'; shared];
    if i % 100 == 99 {
        key[shared / 2] = if i % 200 == 99 { b'a' } else { b'z' };
    }
    key.extend(scattered(i).to_be_bytes());
    key
}

fn check(p: &Process, ix: Index, model: &Model) {
    let mut all = Vec::new();
    let report = ix
        .verify(p, &Memcmp, true, &mut |key, tid| all.push((key.to_vec(), tid)))
        .unwrap_or_else(|violation| panic!("{violation}"));
    assert!(all.iter().eq(model), "{report:?}");
    let mut cursor = Cursor::new(true);
    cursor.set_range(&[], None, CURRENT);
    let mut back = Vec::new();
    loop {
        match cursor.prev(p, ix, &Memcmp) {
            0 => break,
            n => back.extend((0..n).rev().map(|i| (cursor.key(i).to_vec(), cursor.tid(i)))),
        }
    }
    assert!(back.iter().eq(model.iter().rev()));
    for (key, tid) in model.iter().step_by(7) {
        assert!(ix.contains(p, &Memcmp, key, *tid));
        let absent = [&key[..], &[0]].concat();
        assert!(!ix.contains(p, &Memcmp, &absent, *tid));
    }
}

/// Built in parts, inserted to, and nearly emptied, so that index nodes are made, split and merged.
fn live(shared: usize, forms: Forms, order: impl Fn(u64) -> u64) {
    let mapping = Mapping::new(64 << 20, 2);
    let p = mapping.process(0);
    let ix = create_with(&p, forms);
    let mut model: Model = (0..KEYS / 2).map(|i| (key(order(i), shared), i)).collect();
    let mut builder = Builder::new(&p, ix);
    for (key, tid) in &model {
        builder.push(&Memcmp, key, *tid).unwrap();
    }
    adopt(&ix, &p, vec![builder.finish().unwrap()]).unwrap();
    check(&p, ix, &model);
    for i in KEYS / 2..KEYS {
        let key = key(order(i), shared);
        assert!(ix.insert(&p, &Memcmp, &key, i).unwrap());
        model.insert((key, i));
    }
    check(&p, ix, &model);
    let gone: Vec<_> = model.iter().filter(|(_, tid)| tid % 16 != 0).cloned().collect();
    for entry in gone {
        assert!(ix.remove(&p, &Memcmp, &entry.0, entry.1));
        model.remove(&entry);
    }
    let mut sweep = Sweep::new(&p, ix);
    while sweep.next_leaves(1000) == Swept::More {}
    while ix.collect(&p, 1000) == Some(1000) {}
    check(&p, ix, &model);
}

#[test]
fn around_what_there_is_room_for() {
    // Behind what is shared a separator has one to four bytes more, and a TID has six.
    let rooms = [50, 58, 64, 178, 186, 248, 255, 504, 512, 562, 570, 576, 1024];
    for room in rooms {
        for shared in room - 4..=room + 1 {
            live(shared, Forms::Best, |i| i);
        }
    }
}

#[test]
fn in_every_form_and_order() {
    for forms in FORMS {
        for shared in [100, 300, 500, 700] {
            live(shared, forms, |i| i);
            // As `scattered` numbers them, in order.
            live(shared, forms, |i| (i as u32).wrapping_mul(0x0e8b_2f51).into());
            live(shared, forms, |i| (u32::MAX - i as u32).wrapping_mul(0x0e8b_2f51).into());
        }
    }
}

/// The longest key without a chunk is a separator: keys that came before have made leaves large,
/// and share what these leave out.
#[test]
fn separators_as_long_as_records_in_a_leaf() {
    for len in 1020..=1034 {
        let mapping = Mapping::new(64 << 20, 2);
        let p = mapping.process(0);
        let ix = create_with(&p, Forms::Slots);
        let mut model = Model::new();
        for i in 0..2000 {
            let (shared, len) = if i < 1000 { (600, 620) } else { (len - 3, len) };
            let mut key = vec![b'x'; shared];
            // The first ones are below the others.
            key.extend(
                scattered(i).to_be_bytes().map(|byte| b'a' + byte % 16 + 16 * u8::from(i >= 1000)),
            );
            key.resize(len, b'x');
            if model.insert((key.clone(), i)) {
                assert!(ix.insert(&p, &Memcmp, &key, i).unwrap());
            }
        }
        check(&p, ix, &model);
    }
}

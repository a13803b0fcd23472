//! Safe functions with arguments of another area or index. They give a wrong answer or panic, and
//! touch nothing else.

use crate::common::*;
use nitro_engine::adopt;
use nitro_engine::prelude::*;
use nitro_engine::{Builder, Cursor, Index, IndexOptions, Memcmp, Process};
use std::panic::{AssertUnwindSafe, catch_unwind};

const CURRENT: u32 = u32::MAX - 1;

fn filled(p: &Process, n: u64) -> Index {
    let ix = create(p);
    for i in 0..n {
        ix.insert(p, &Memcmp, &i.to_be_bytes(), i).unwrap();
    }
    ix
}

fn panics<R>(what: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(what)).is_err()
}

fn check(p: &Process, ix: Index, live: u64) {
    assert_eq!(ix.verify(p, &Memcmp, true, &mut |_, _| ()).unwrap().live, live);
}

/// Also in an index that has come to the place of another one, and whose leaves have the same
/// versions.
#[test]
fn a_cursor_of_another_index() {
    let mapping = Mapping::new(1 << 24, 1);
    let p = mapping.process(0);
    let (a, b) = (filled(&p, 200), filled(&p, 100));
    let mut cursor = Cursor::new(true);
    cursor.set_range(&[], None, CURRENT);
    assert!(cursor.next(&p, a, &Memcmp) > 0);
    assert_eq!(cursor.remove(&p, b, &[0]), 0);
    let mut n = 0;
    while cursor.next(&p, b, &Memcmp) > 0 {
        n += cursor.len();
    }
    assert_eq!(n, 100, "it begins anew");
    cursor.set_range(&[], None, CURRENT);
    assert!(cursor.next(&p, b, &Memcmp) > 0);
    // SAFETY: no process or thread uses it any more.
    unsafe { b.destroy(&p) };
    let c = filled(&p, 100);
    assert_eq!(c.root(), b.root(), "in the same place");
    assert_eq!(cursor.remove(&p, c, &[0]), 0);
    check(&p, a, 200);
    check(&p, c, 100);
}

#[test]
fn a_chain_of_another_index() {
    let mapping = Mapping::new(1 << 24, 1);
    let p = mapping.process(0);
    let (a, b) = (create(&p), create(&p));
    let mut builder = Builder::new(&p, a);
    builder.push(&Memcmp, b"key", 1).unwrap();
    let chain = builder.finish().unwrap();
    assert!(panics(|| adopt(&b, &p, vec![chain])));
    check(&p, b, 0);
}

#[test]
fn a_snapshot_of_another_index() {
    let mapping = Mapping::new(1 << 24, 1);
    let p = mapping.process(0);
    let (a, b) = (filled(&p, 10), filled(&p, 10));
    let theirs = b.create_snapshot(&p, 2, &mut || ()).unwrap();
    let ours = a.create_snapshot(&p, 1, &mut || ()).unwrap();
    let again = a.retain(&ours);
    assert!(panics(|| b.release(&p, ours)));
    assert_eq!(b.stats().snapshots.len(), 1);
    // It ends with its holder; giving a reference back is too late then, and does no harm to a
    // later one.
    a.release_all(&p, 1);
    let later = a.create_snapshot(&p, 1, &mut || ()).unwrap();
    a.release(&p, again);
    assert_eq!(a.stats().snapshots.len(), 1);
    a.release(&p, later);
    b.release(&p, theirs);
    assert_eq!((a.stats().snapshots.len(), b.stats().snapshots.len()), (0, 0));
}

#[test]
fn an_order_of_the_other_kind() {
    let mapping = Mapping::new(1 << 24, 1);
    let p = mapping.process(0);
    let ix = filled(&p, 10);
    let other = IgnoreCase { abbreviate: true };
    assert!(panics(|| ix.insert(&p, &other, b"key", 1)));
    assert!(panics(|| ix.contains(&p, &other, b"key", 1)));
    assert!(panics(|| ix.remove(&p, &other, b"key", 1)));
    assert!(panics(|| Cursor::new(false).next(&p, ix, &other)));
    assert!(panics(|| Builder::new(&p, ix).push(&other, b"key", 1)));
    check(&p, ix, 10);
}

#[test]
fn a_process_of_another_area() {
    let mappings = [Mapping::new(1 << 24, 1), Mapping::new(1 << 24, 1)];
    let (p, stranger) = (mappings[0].process(0), mappings[1].process(0));
    let ix = filled(&p, 10);
    assert!(panics(|| ix.insert(&stranger, &Memcmp, b"key", 1)));
    assert!(panics(|| ix.contains(&stranger, &Memcmp, b"key", 1)));
    assert!(panics(|| ix.collect(&stranger, 1)));
    assert!(panics(|| Cursor::new(false).next(&stranger, ix, &Memcmp)));
    assert!(panics(|| Builder::new(&stranger, ix)));
    check(&p, ix, 10);
}

#[test]
fn a_tid_that_is_too_large() {
    let mapping = Mapping::new(1 << 24, 1);
    let p = mapping.process(0);
    let ix = Index::create(&p, &IndexOptions::default()).unwrap();
    assert!(panics(|| ix.insert(&p, &Memcmp, b"key", 1 << 48)));
    assert!(panics(|| Builder::new(&p, ix).push(&Memcmp, b"key", 1 << 48)));
    assert!(ix.insert(&p, &Memcmp, b"key", (1 << 48) - 1).unwrap());
    check(&p, ix, 1);
}

//! A look-up, a rescan and an insert allocate nothing once they run: an allocator of this test
//! counts.

mod common;

use common::{FORMS, Mapping, create_with};
use nitro_engine::prelude::*;
use nitro_engine::{Cursor, Forms, Memcmp};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local!(static COUNT: Cell<usize> = const { Cell::new(0) });

struct Counting;

// SAFETY: the system's allocator, and a count for each thread, which allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: passed on.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often `f` allocates.
fn allocations(f: impl FnOnce()) -> usize {
    let before = COUNT.get();
    f();
    COUNT.get() - before
}

const ROWS: u64 = 20_000;

fn key(i: u64) -> [u8; 8] {
    (i << 32).to_be_bytes()
}

#[test]
fn look_ups_rescans_and_inserts_allocate_nothing() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1, "the count counts");
    for forms in FORMS {
        let mapping = Mapping::new(64 << 20, 1);
        let p = mapping.process(0);
        let index = create_with(&p, forms);
        for i in 0..ROWS {
            index.insert(&p, &Memcmp, &key(i * 7919 % ROWS), i).unwrap();
        }
        let mut cursor = Cursor::new(true);
        let mut look = || {
            for i in (0..ROWS).step_by(7) {
                index.contains(&p, &Memcmp, &key(i), i);
                cursor.set_range(&key(i), Some(&key(i + 1)), index.term());
                while cursor.next(&p, index, &Memcmp) > 0 {}
            }
        };
        look();
        assert_eq!(allocations(look), 0, "{forms:?}: look-ups");
        // Some leaves are split, or encoded anew: that is arranged in private memory. All others
        // allocate nothing.
        let mut some = 0;
        let n = ROWS / 10;
        for i in 0..n {
            let key = [&key(i * 7919 % ROWS)[..], &[1]].concat();
            let before = index.stats().splits;
            let count = allocations(|| assert!(index.insert(&p, &Memcmp, &key, i).unwrap()));
            some += u64::from(count > 0);
            if count > 0 && matches!(forms, Forms::Best | Forms::Slots) {
                assert!(
                    index.stats().splits > before,
                    "{forms:?}: {count} for an insert into a leaf with room"
                );
            }
        }
        println!("{forms:?}: {some} of {n} inserts allocated");
    }
}

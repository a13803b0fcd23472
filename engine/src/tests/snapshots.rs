use super::*;
use crate::index::root::Index;
use crate::memory::area::tests::Mapping;
use crate::memory::process::Process;
use crate::prelude::*;
use crate::{IndexOptions, Memcmp};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

fn attach(area: &Mapping, slot: u32) -> Process {
    // SAFETY: every test gives a slot to one process at a time.
    unsafe { Process::attach(**area, slot) }
}

/// An index, and `wait` called once while a snapshot of it is made.
fn while_pending(wait: &mut dyn FnMut(Index, &Process)) -> (Mapping, Index) {
    let area = Mapping::new(1 << 24, 3);
    let (p, creator, writer) = (attach(&area, 0), attach(&area, 1), attach(&area, 2));
    let index = Index::create(&p, &IndexOptions::default()).unwrap();
    let mut writing = Some(index.enter_writer(&writer));
    let made = catch_unwind(AssertUnwindSafe(|| {
        index.create_snapshot(&creator, 7, &mut || {
            wait(index, &p);
            writing = None;
        })
    }));
    if let Ok(snapshot) = made {
        index.release(&creator, snapshot.unwrap());
    }
    (area, index)
}

#[test]
fn one_entry_comes_and_goes_while_a_snapshot_is_made() {
    let (area, index) = while_pending(&mut |index, p| {
        for _ in 0..1000 {
            assert!(index.insert(p, &Memcmp, b"x", 1).unwrap());
            assert!(index.remove(p, &Memcmp, b"x", 1));
        }
    });
    assert_eq!(index.stats().removes, 1000);
    index.verify(&attach(&area, 0), &Memcmp, true, &mut |_, _| ()).unwrap();
}

#[test]
fn a_process_ends_while_it_makes_a_snapshot() {
    let (area, index) = while_pending(&mut |index, p| {
        // Nothing that an unwinding wait would do is done.
        index.release_all(p, 8);
        assert!(!index.shared().snapshots.none());
        index.release_all(p, 7);
        assert!(index.shared().snapshots.none());
        index.shared().snapshots.used.fetch_add(1, SeqCst);
        resume_unwind(Box::new(()));
    });
    let p = attach(&area, 0);
    assert!(index.shared().snapshots.none());
    index.insert(&p, &Memcmp, b"x", 1).unwrap();
    let snapshot = index.create_snapshot(&p, 7, &mut || ()).unwrap();
    let again = index.retain(&snapshot);
    assert!(index.remove(&p, &Memcmp, b"x", 1));
    assert_eq!(index.stats().dead, 1);
    index.release_all(&p, 7);
    index.release(&p, again);
    assert_eq!((index.stats().dead, index.stats().snapshots.len()), (0, 0));
}

#[test]
fn an_insert_under_a_closed_term_does_nothing() {
    let (area, index) = while_pending(&mut |index, p| {
        let now = index.term();
        assert_eq!(index.insert_in_term(p, &Memcmp, b"x", 1, now - 1).unwrap(), None);
        assert_eq!(index.stats().inserts, 0);
        assert_eq!(index.insert_in_term(p, &Memcmp, b"x", 1, now).unwrap(), Some(true));
        assert_eq!(index.insert_in_term(p, &Memcmp, b"x", 1, now).unwrap(), Some(false));
    });
    assert_eq!(index.stats().inserts, 1);
    index.verify(&attach(&area, 0), &Memcmp, true, &mut |_, _| ()).unwrap();
}

#[test]
fn an_index_without_terms_has_all_but_snapshots() {
    let area = Mapping::new(8 << 20, 1);
    let p = attach(&area, 0);
    let index = Index::create(&p, &IndexOptions::default()).unwrap();
    index.insert(&p, &Memcmp, b"x", 1).unwrap();
    index.shared().term.store(LAST_TERM - 1, Relaxed);
    let last = index.create_snapshot(&p, 7, &mut || ()).unwrap();
    for _ in 0..3 {
        assert_eq!(index.create_snapshot(&p, 7, &mut || ()), Err(SnapshotError::NoMoreTerms));
    }
    assert_eq!(index.term(), LAST_TERM);
    assert!(index.remove(&p, &Memcmp, b"x", 1));
    index.insert(&p, &Memcmp, b"y", 2).unwrap();
    assert_eq!(index.stats().live, 1);
    assert_eq!(index.stats().dead, 1, "the last snapshot sees it");
    index.release(&p, last);
    assert_eq!(index.stats().dead, 0);
    index.verify(&p, &Memcmp, true, &mut |_, _| ()).unwrap();
}

/// Two processes make a snapshot of the last term but one. Both find it open, and one of them
/// closes it.
#[cfg(not(shuttle))]
#[test]
fn the_last_term_is_closed_once() {
    let area = Mapping::new(8 << 20, 2);
    let (p, q) = (attach(&area, 0), attach(&area, 1));
    let index = Index::create(&p, &IndexOptions::default()).unwrap();
    index.shared().term.store(LAST_TERM - 1, Relaxed);
    let mut other = None;
    let made = std::rc::Rc::new(std::cell::RefCell::new(None));
    let kept = made.clone();
    let overtake = move |point| {
        if point == "snapshot: pending" && other.is_none() {
            other = Some(index.create_snapshot(&q, 8, &mut || ()).unwrap().sn());
            *kept.borrow_mut() = other;
        }
    };
    let own = crate::sync::stop::doing(overtake, || index.create_snapshot(&p, 7, &mut || ()));
    assert_eq!((own, *made.borrow()), (Err(SnapshotError::NoMoreTerms), Some(LAST_TERM - 1)));
    assert_eq!(index.term(), LAST_TERM);
    index.release_all(&p, 8);
    assert!(index.shared().snapshots.none(), "the descriptor of the one that failed is free");
}

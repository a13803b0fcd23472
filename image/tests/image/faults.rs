//! Every call to the file system fails: once or from then on, before or after it took effect. No
//! panic, and an image is left, also if the machine stops right after.

use std::io::{self, ErrorKind};

use nitro_image::{Manifest, Store};

use crate::content::{DATABASE, INCARNATION, NEIGHBOUR, intact, intact_of, take, take_of};
use crate::rng::Rng;
use crate::sim::{Fault, Sim};

type Step = fn(&Store<Sim>, &Manifest) -> io::Result<()>;

const SECOND: Step = |store, _| take(store, 2).map(|_| ());
const REFRESH: Step =
    |store, first| store.refresh(&Manifest { lsn: 2, generation: 2, ..first.clone() });
const SWEEP: Step = |store, _| store.sweep(DATABASE, INCARNATION, None);
const DISCARD: Step = |store, _| store.discard(DATABASE, INCARNATION);
const REMOVE: Step = |store, _| store.remove_database(DATABASE);

/// Two images, of which the older may be removed, and an orphan.
fn prepared(collects: bool) -> (Sim, Store<Sim>, Manifest) {
    let sim = Sim::new().collecting(collects);
    let store = sim.store();
    take(&store, 1).unwrap();
    let second = take(&store, 1).unwrap();
    let orphan = store.begin(DATABASE, INCARNATION).unwrap();
    orphan.shard(0).unwrap();
    std::mem::forget(orphan);
    (sim, store, second)
}

/// Runs `step` with every fault; `after` sees whether it returned an error.
fn with_faults(step: Step, after: impl Fn(&Sim, &Store<Sim>, bool)) {
    for collects in [false, true] {
        with_faults_in(collects, step, &after);
    }
}

fn with_faults_in(collects: bool, step: Step, after: impl Fn(&Sim, &Store<Sim>, bool)) {
    let (sim, store, second) = prepared(collects);
    sim.fail(None);
    step(&store, &second).unwrap();
    let calls = sim.calls();
    assert!(calls > 1);
    for at in 0..calls {
        for (lasting, late) in [(false, false), (false, true), (true, false), (true, true)] {
            for kind in [ErrorKind::StorageFull, ErrorKind::Other, ErrorKind::PermissionDenied] {
                let (sim, store, second) = prepared(collects);
                sim.fail(Some(Fault { at, lasting, late, kind }));
                let failed = step(&store, &second).is_err();
                sim.fail(None);
                after(&sim, &store, failed);
                step(&store, &second).expect("works again");
            }
        }
    }
}

#[test]
fn an_image_survives_errors() {
    for (step, lsn) in [(SECOND, 2), (REFRESH, 2), (SWEEP, 1)] {
        with_faults(step, |sim, store, failed| {
            let newest = &intact(store)[0];
            assert!(failed || newest.lsn == lsn);
            let mut rng = Rng(5);
            for _ in 0..20 {
                let crashed = Sim::mount(sim.tree().crash(&mut rng)).store();
                let found = &intact(&crashed)[0];
                assert!(failed || found.lsn == newest.lsn);
            }
        });
    }
}

/// The older of two images has all of its frames in a third. An error while a sweep looks for what
/// they need does not let it remove that.
#[test]
fn an_error_removes_nothing_that_is_carried() {
    for at in 0.. {
        let (sim, store, second) = prepared(false);
        assert!(!second.carried.is_empty());
        sim.fail(Some(Fault { at, lasting: false, late: false, kind: ErrorKind::Other }));
        // Nothing of the others is in this one.
        let _ = take(&store, 8);
        let ended = sim.calls() <= at;
        sim.fail(None);
        assert!(!intact(&store).is_empty());
        if ended {
            break;
        }
    }
}

#[test]
fn a_discard_that_succeeds_leaves_nothing() {
    for step in [DISCARD, REMOVE] {
        with_faults(step, |_, store, failed| {
            assert!(failed || store.images(DATABASE, INCARNATION).is_empty());
        });
    }
}

/// The server is killed while it takes its first image, so that folders exist that may not be
/// durable, and goes on after its next start.
#[test]
fn a_killed_beginning_does_no_harm() {
    for (collects, at) in [false, true].into_iter().flat_map(|c| (0..100).map(move |at| (c, at))) {
        let sim = Sim::new().collecting(collects);
        let store = sim.store();
        sim.fail(Some(Fault { at, lasting: true, late: false, kind: ErrorKind::Other }));
        let killed = take(&store, 1).is_err();
        sim.fail(None);
        take(&store, 2).unwrap();
        let mut rng = Rng(8);
        for _ in 0..20 {
            let crashed = Sim::mount(sim.tree().crash(&mut rng)).store();
            assert_eq!(intact(&crashed)[0].lsn, 2, "killed at call {at}");
        }
        assert!(killed || at > 10);
    }
}

/// A full disk refuses to write, not to remove. A discard then removes all of a file rather than
/// leave an image in it; other work keeps the images of other indexes.
#[test]
fn a_full_disk_keeps_no_discarded_image() {
    let sim = Sim::new().collecting(true);
    let store = sim.store();
    take(&store, 1).unwrap();
    take_of(&store, NEIGHBOUR, 1).unwrap();
    sim.fill();
    assert!(take(&store, 2).is_err());
    store.sweep(DATABASE, INCARNATION, None).unwrap();
    assert_eq!((intact(&store).len(), intact_of(&store, NEIGHBOUR).len()), (1, 1));
    store.discard(DATABASE, INCARNATION).unwrap();
    assert_eq!((intact(&store).len(), intact_of(&store, NEIGHBOUR).len()), (0, 0));
}

/// The disk becomes full at any moment, while an image grows out of a file: no image of another
/// index is lost, and this one has one.
#[test]
fn a_disk_that_fills_up_costs_no_other_image() {
    for (at, collects) in (0..60).flat_map(|at| [(at, false), (at, true)]) {
        let sim = Sim::new().collecting(true);
        let store = sim.store();
        take(&store, 1).unwrap();
        take(&store, 2).unwrap();
        take_of(&store, NEIGHBOUR, 1).unwrap();
        let full = sim.clone();
        sim.interrupt(at, move || full.fill());
        let _ = take(&sim.clone().collecting(collects).store(), 3);
        assert!(!intact(&store).is_empty());
        assert_eq!(intact_of(&store, NEIGHBOUR).len(), 1, "full at call {at}");
    }
}

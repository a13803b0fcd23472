//! A discard beside a draft, with each of them running to its end between any two calls of the
//! other: what began before the discard returned is gone (S3).

use std::sync::{Arc, Mutex};

use nitro_image::Manifest;

use crate::content::{
    DATABASE, INCARNATION, NEIGHBOUR, intact, intact_of, shards, take, take_of, write,
};
use crate::sim::Sim;

#[test]
fn a_draft_does_not_survive_a_discard() {
    [false, true].into_iter().for_each(a_draft_does_not_survive_a_discard_of);
}

fn a_draft_does_not_survive_a_discard_of(collects: bool) {
    for at in 0.. {
        let sim = Sim::new().collecting(collects);
        let store = sim.store();
        take(&store, 1).unwrap();
        let other = sim.store();
        let discarded = Arc::new(Mutex::new(false));
        let done = discarded.clone();
        sim.interrupt(at, move || {
            other.discard(DATABASE, INCARNATION).unwrap();
            *done.lock().unwrap() = true;
        });
        let discarded = || *discarded.lock().unwrap();
        let Ok(draft) = store.begin(DATABASE, INCARNATION) else {
            assert!(discarded() && intact(&store).is_empty());
            continue;
        };
        let before = discarded();
        let committed =
            write(&draft, 2, &shards(2)).and_then(|manifest| draft.commit(&manifest)).is_ok();
        if !discarded() {
            assert!(committed);
            break;
        }
        // Begun after the discard it is a new image. Otherwise it is gone, even if the discard
        // came after the commit.
        assert_eq!(intact(&store).len(), usize::from(before));
    }
}

#[test]
fn a_discard_outlasts_a_draft() {
    [false, true].into_iter().for_each(a_discard_outlasts_a_draft_of);
}

fn a_discard_outlasts_a_draft_of(collects: bool) {
    for at in 0.. {
        let sim = Sim::new().collecting(collects);
        let store = sim.store();
        take(&store, 1).unwrap();
        let other: &'static _ = Box::leak(Box::new(sim.store()));
        let draft = other.begin(DATABASE, INCARNATION).unwrap();
        let manifest = write(&draft, 2, &shards(2)).unwrap();
        let ran = Arc::new(Mutex::new(false));
        let done = ran.clone();
        sim.interrupt(at, move || {
            let _ = draft.commit(&manifest);
            *done.lock().unwrap() = true;
        });
        store.discard(DATABASE, INCARNATION).unwrap();
        assert!(store.images(DATABASE, INCARNATION).is_empty());
        if !*ran.lock().unwrap() {
            break;
        }
    }
}

#[test]
fn a_refresh_does_not_bring_an_image_back() {
    [false, true].into_iter().for_each(a_refresh_does_not_bring_an_image_back_of);
}

fn a_refresh_does_not_bring_an_image_back_of(collects: bool) {
    for at in 0.. {
        let sim = Sim::new().collecting(collects);
        let store = sim.store();
        let first = take(&store, 1).unwrap();
        let other = sim.store();
        let ran = Arc::new(Mutex::new(false));
        let done = ran.clone();
        sim.interrupt(at, move || {
            other.discard(DATABASE, INCARNATION).unwrap();
            *done.lock().unwrap() = true;
        });
        let refreshed = store.refresh(&Manifest { lsn: 2, ..first }).is_ok();
        if !*ran.lock().unwrap() {
            assert!(refreshed);
            break;
        }
        assert!(intact(&store).is_empty());
    }
}

/// How many images two indexes have that make one each in the same file, the second between any
/// two calls of the first.
fn two_writers(locked: bool, at: usize) -> Option<usize> {
    let sim = Sim::new().collecting(true);
    let sim = if locked { sim } else { sim.without_locks() };
    let (store, other) = (sim.store(), sim.store());
    let ran = Arc::new(Mutex::new(false));
    let done = ran.clone();
    sim.interrupt(at, move || {
        take_of(&other, NEIGHBOUR, 2).unwrap();
        *done.lock().unwrap() = true;
    });
    take(&store, 1).unwrap();
    let ran = *ran.lock().unwrap();
    ran.then(|| intact(&store).len() + intact_of(&store, NEIGHBOUR).len())
}

#[test]
fn writers_of_a_file_wait_for_each_other() {
    let all = |locked| (0..).map_while(move |at| two_writers(locked, at));
    assert!(all(true).count() > 10 && all(true).all(|images| images == 2));
    assert!(all(false).any(|images| images < 2), "without a lock nothing is lost");
}

//! A discard beside a draft, with each of them running to its end between any two calls of the
//! other: what began before the discard returned is gone (S3).

use std::sync::{Arc, Mutex};

use nitro_image::Manifest;

use crate::content::{DATABASE, INCARNATION, intact, shards, take, write};
use crate::sim::Sim;

#[test]
fn a_draft_does_not_survive_a_discard() {
    for at in 0.. {
        let sim = Sim::new();
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
    for at in 0.. {
        let sim = Sim::new();
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
    for at in 0.. {
        let sim = Sim::new();
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

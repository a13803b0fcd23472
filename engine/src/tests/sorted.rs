//! Runs of sorted entries in one leaf.

use super::*;
use crate::build::adopt;
use crate::key::order::{Memcmp, Tid};
use crate::memory::area::tests::Mapping;
use crate::prelude::*;
use crate::{Builder, IndexOptions};
use core::sync::atomic::Ordering::Relaxed;

fn key(i: u64) -> [u8; 8] {
    (1000 + i).to_be_bytes()
}

/// Entries in order. `before` is called with the number of an entry whose key is asked for.
struct Run<F> {
    keys: Vec<[u8; 8]>,
    before: F,
}

impl<F: Fn(usize)> Sorted for Run<F> {
    fn len(&self) -> usize {
        self.keys.len()
    }
    fn key(&self, i: usize) -> &[u8] {
        (self.before)(i);
        &self.keys[i]
    }
    fn tid(&self, _: usize) -> Tid {
        7
    }
}

/// Returns an index with one packed leaf of these keys.
fn packed(p: &Process, fillfactor: u8, keys: impl Iterator<Item = u64>) -> Index {
    let index = Index::create(p, &IndexOptions { fillfactor, key_len_hint: 8 }).unwrap();
    let mut builder = Builder::new(p, index);
    keys.for_each(|i| builder.push(&Memcmp, &key(i), 7).unwrap());
    adopt::adopt(&index, p, vec![builder.finish().unwrap()]).unwrap();
    index
}

/// Entries are read while another process changes the leaf. They are not there before, nor after.
#[test]
fn entries_of_a_torn_leaf_are_not_known() {
    let mapping = Mapping::new(1 << 21, 1);
    // SAFETY: the only process.
    let p = unsafe { Process::attach(*mapping, 0) };
    let index = packed(&p, 90, (0..40).map(|i| 10 * i));
    let find = || seek::seek(&index, &Probe::new(&Memcmp, &key(105), 7), true);
    let leaf = find().leaf;
    let words = || index.block(leaf).words().iter().map(|word| word.load(Relaxed)).collect();
    assert!(index.insert(&p, &Memcmp, &key(105), 7).unwrap());
    let torn: Vec<u64> = words();
    assert!(index.remove(&p, &Memcmp, &key(105), 7));
    let right: Vec<u64> = words();
    let _section = index.enter(&p);
    let latch = core::cell::Cell::new(None);
    let store = |from: &[u64]| {
        let content = from.iter().enumerate().skip(13);
        content.for_each(|(i, &word)| index.block(leaf).words()[i].store(word, Relaxed));
    };
    let change = |i: usize| match i {
        0 => {
            let taken = index.block(leaf).view().latch().expect("no other process");
            taken.exclude();
            store(&torn);
            latch.set(Some(taken));
        }
        _ => {
            store(&right);
            latch.take().expect("taken with the first entry").finish();
        }
    };
    let run = Run { keys: vec![key(105), key(110)], before: change };
    let spot = find();
    assert_eq!(spot.leaf, leaf);
    let came = in_place(&spot, &run, 0..2, &mut Reserve::new(&index));
    assert_eq!(came, None);
}

/// A leaf may have more entries than two leaves that are filled to the fillfactor. A run is merged
/// with it all the same.
#[test]
fn a_run_is_merged_with_a_full_leaf() {
    let mapping = Mapping::new(1 << 21, 1);
    // SAFETY: the only process.
    let p = unsafe { Process::attach(*mapping, 0) };
    let filled = |most: usize| {
        let index = packed(&p, 30, (0..40).map(|i| 1000 * i));
        let cut = |&i: &u64| {
            index.insert(&p, &Memcmp, &key(1 + 77 * i % 40_000), 7).unwrap();
            index.stats().splits > 0
        };
        (index, (0..most as u64).find(cut))
    };
    let cut = filled(usize::MAX).1.expect("a leaf is full at some time");
    let (index, None) = filled(cut as usize) else { panic!("the same inserts cut it earlier") };
    assert!(cut > 100);
    let _section = index.enter(&p);
    let run = Run { keys: (0..200).map(|i| key(2 + 100 * i)).collect(), before: |_| () };
    let spot = seek::seek(&index, &Probe::new(&Memcmp, &key(2), 7), true);
    assert!(spot.v.b.has(PACKED));
    let merged = merge::merge(&index, &spot, &run, 0..200, &mut Reserve::new(&index));
    assert!(merged.expect("memory for a leaf").inserted > 0);
}

/// Calls of any size end, also without entries, and at the limits of a run and of a call.
#[test]
fn a_call_inserts_a_part_of_any_batch() {
    let mapping = Mapping::new(1 << 23, 1);
    // SAFETY: the only process.
    let p = unsafe { Process::attach(*mapping, 0) };
    for n in [0, 1, 2, RUN - 1, RUN + 1, ENTRIES, ENTRIES + 1, 20 * ENTRIES] {
        let index = packed(&p, 90, (0..40).map(|i| 1000 * i));
        let run = Run { keys: (0..n as u64).map(|i| key(1 + 2 * i)).collect(), before: |_| () };
        let term = index.term();
        assert_eq!(index.insert_sorted(&p, &Memcmp, &run, n, term), Ok(Some(n)));
        let mut at = 0;
        while at < n {
            assert_eq!(index.insert_sorted(&p, &Memcmp, &run, at, term + 1), Ok(None));
            let next = index.insert_sorted(&p, &Memcmp, &run, at, term).unwrap().unwrap();
            assert!(at < next && next - at <= ENTRIES + LEAVES * RUN);
            at = next;
        }
        let report = index.verify(&p, &Memcmp, true, &mut |_, _| ()).unwrap();
        assert_eq!((report.live, index.stats().live), (n as u64 + 40, n as u64 + 40));
        // SAFETY: no other process uses it.
        unsafe { index.destroy(&p) };
    }
}

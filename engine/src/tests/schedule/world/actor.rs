//! One of two actors.

use super::*;
use crate::Sorted;
use crate::build::adopt;
#[cfg(not(shuttle))]
use crate::collect::nodes;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Entries that are inserted together.
struct Together<'a>(&'a [(Vec<u8>, Tid)]);

impl Sorted for Together<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn key(&self, i: usize) -> &[u8] {
        &self.0[i].0
    }
    fn tid(&self, i: usize) -> Tid {
        self.0[i].1
    }
}

/// One of the two, in one schedule.
pub(in crate::schedule) struct Actor<'a> {
    pub(super) world: &'a World,
    pub(in crate::schedule) p: Process,
    pub(in crate::schedule) ix: Index,
    pub(super) log: RefCell<Vec<Event>>,
}

impl Actor<'_> {
    pub(in crate::schedule) fn end(self) -> Vec<Event> {
        self.log.into_inner()
    }

    /// Notes what `act` did.
    fn event<T>(&self, act: impl FnOnce() -> T, what: impl FnOnce(&T) -> What) -> T {
        let begin = self.world.now();
        let outcome = act();
        let end = self.world.now();
        self.log.borrow_mut().push(Event { begin, end, what: what(&outcome) });
        progress();
        outcome
    }

    fn key(&self, id: u64) -> Vec<u8> {
        (self.world.key)(id)
    }

    pub(in crate::schedule) fn insert(&self, id: u64) {
        let (p, ix, key) = (&self.p, self.ix, self.key(id));
        let insert =
            || ordered!(self.world.comparator, order => ix.insert(p, order, &key, id)).unwrap();
        self.event(insert, |&new| What::Insert(id, new));
    }

    /// Inserts an entry if no entry has the key.
    pub(in crate::schedule) fn insert_new(&self, id: u64) {
        let (p, ix, key) = (&self.p, self.ix, self.key(id));
        let insert = || {
            loop {
                let term = ix.term();
                let insert = ordered!(self.world.comparator, order => ix.insert_new_in_term(p, order, &key, id, term));
                if let Some(new) = insert.unwrap() {
                    return new;
                }
            }
        };
        self.event(insert, |&new| What::New(id, new));
    }

    /// Inserts these entries, which ascend, as one batch. Another actor inserts or removes none of
    /// them but `shared`. Without memory some of them come.
    pub(in crate::schedule) fn batch(&self, ids: &[u64], shared: Option<u64>) {
        let entries: Vec<_> = ids.iter().map(|&id| (self.key(id), id)).collect();
        let (p, ix, entries) = (&self.p, self.ix, Together(&entries));
        let count = || ix.shared().counters.stripe(p).inserted.load(Relaxed);
        let (begin, before) = (self.world.now(), count());
        let (mut at, mut whats, mut all) = (0, Vec::new(), true);
        while at < ids.len() && all {
            let term = ix.term();
            let step = ordered!(self.world.comparator, order => ix.insert_sorted(p, order, &entries, at, term));
            match step {
                Ok(Some(next)) => {
                    whats.extend(ids[at..next].iter().map(|&id| What::Under(id, term)));
                    at = next;
                    progress();
                }
                Ok(None) => {}
                Err(_) => all = false,
            }
        }
        let (end, came) = (self.world.now(), count() - before);
        let mut ids: Vec<_> = ids.to_vec();
        ids.dedup();
        let there = |id: &u64| {
            let key = self.key(*id);
            all || ordered!(self.world.comparator, order => ix.contains(p, order, &key, *id))
        };
        ids.retain(there);
        let sure = |id: u64| Some(id) != shared && !self.world.initial.contains(&id);
        let new = ids.iter().filter(|&&id| sure(id)).count() as u64;
        let both = new + u64::from(shared.is_some());
        assert!((new..=both).contains(&came), "{came} of {new} to {both} came");
        let is_new = |id| sure(id) || Some(id) == shared && came > new;
        whats.extend(ids.into_iter().map(|id| What::Insert(id, is_new(id))));
        let events = whats.into_iter().map(|what| Event { begin, end, what });
        self.log.borrow_mut().extend(events);
        progress();
    }

    /// Makes packed leaves of these entries, which ascend.
    pub(in crate::schedule) fn build(&self, ids: impl Iterator<Item = u64>) {
        let mut builder = Builder::new(&self.p, self.ix);
        for id in ids {
            let key = self.key(id);
            let mut push =
                || ordered!(self.world.comparator, order => builder.push(order, &key, id));
            self.event(|| push().unwrap(), |_| What::Insert(id, true));
        }
        adopt::adopt(&self.ix, &self.p, vec![builder.finish().unwrap()]).unwrap();
    }

    pub(in crate::schedule) fn remove(&self, id: u64) {
        let (p, ix, key) = (&self.p, self.ix, self.key(id));
        let remove = || ordered!(self.world.comparator, order => ix.remove(p, order, &key, id));
        self.event(remove, |&there| What::Remove(id, there));
    }

    pub(in crate::schedule) fn look(&self, id: u64) {
        let (p, ix, key) = (&self.p, self.ix, self.key(id));
        let look = || ordered!(self.world.comparator, order => ix.contains(p, order, &key, id));
        self.event(look, |&there| What::Contains(id, there));
    }

    pub(in crate::schedule) fn collect(&self) {
        self.collect_some(1000);
    }

    /// All neighbours that fit one packed leaf become one.
    pub(in crate::schedule) fn sweep(&self) {
        let mut sweep = Sweep::new(&self.p, self.ix);
        while sweep.next_leaves(2) == Swept::More {}
        progress();
    }

    /// Index nodes take separators from their right neighbours until they have `most`, or these
    /// move.
    #[cfg(not(shuttle))]
    pub(in crate::schedule) fn shift_nodes(&self, most: usize) {
        nodes::shift_nodes(&self.ix, &self.p, most);
        progress();
    }

    /// Leaves have these forms from now on.
    pub(in crate::schedule) fn force(&self, forms: Forms) {
        self.ix.force(forms);
    }

    /// Moves removed memory to the free lists, and no further.
    pub(in crate::schedule) fn free_blocks(&self) {
        let other = self.world.actor(2);
        {
            let _inside = other.p.enter();
            self.collect();
        }
        self.ix.shared().retired.free(self.ix.area, self.ix.root, self.ix.allocator());
    }

    /// All memory that is free was another index' meanwhile, which made it look as it did in the
    /// beginning. Which pages these are.
    #[cfg(not(shuttle))]
    pub(in crate::schedule) fn pretend(&self) -> Vec<Ref> {
        let area = self.ix.area;
        let taken: Vec<_> = core::iter::from_fn(|| area.alloc_pages(PAGE).ok()).collect();
        for &r in &taken {
            let before = &self.world.saved[r as usize * UNIT..][..PAGE];
            // SAFETY: a page of this actor.
            unsafe { area.at(r).copy_from_nonoverlapping(before.as_ptr(), PAGE) };
        }
        taken.iter().for_each(|&r| area.free_pages(r, PAGE));
        taken
    }

    /// Visits only this number of leaves.
    pub(in crate::schedule) fn collect_some(&self, leaves: usize) {
        self.ix.collect(&self.p, leaves);
        progress();
    }

    fn step(&self, cursor: &mut Cursor, forward: bool) -> usize {
        let (p, ix) = (&self.p, self.ix);
        ordered!(self.world.comparator, order => {
            if forward { cursor.next(p, ix, order) } else { cursor.prev(p, ix, order) }
        })
    }

    /// Everything that is visible at `sn`, in the order of the scan.
    pub(super) fn read(&self, forward: bool, sn: u32) -> Vec<u64> {
        let mut cursor = Cursor::new(false);
        cursor.set_snapshot_range(&[], None, sn);
        let mut seen = Vec::new();
        while self.step(&mut cursor, forward) > 0 {
            let batch = (0..cursor.len()).map(|i| cursor.tid(i));
            if forward { seen.extend(batch) } else { seen.extend(batch.rev()) }
        }
        seen
    }

    pub(in crate::schedule) fn scan(&self, forward: bool) {
        self.scan_and_remove(forward, false, |_| false);
    }

    /// A walk over all leaves.
    pub(in crate::schedule) fn walk(&self) {
        let begin = self.world.now();
        let (mut seen, mut walk) = (Vec::new(), Walk::new(&self.p, self.ix, CURRENT));
        while walk.next_leaf() {
            seen.extend((0..walk.len()).map(|i| walk.tid(i)));
            progress();
        }
        let end = self.world.now();
        self.log.borrow_mut().push(Event { begin, end, what: What::Scan { forward: true, seen } });
    }

    /// A scan that wants TIDs alone, and takes the rest of a leaf at once.
    pub(in crate::schedule) fn count(&self, forward: bool) {
        let (p, ix) = (&self.p, self.ix);
        let (mut seen, mut cursor) = (Vec::new(), Cursor::new(false));
        cursor.set_range(&[], None, CURRENT);
        let mut tids = [0; MOST_OF_LEAF];
        let mut add = |tids: &[Tid]| match forward {
            true => seen.extend(tids),
            false => seen.extend(tids.iter().rev()),
        };
        let begin = self.world.now();
        while self.step(&mut cursor, forward) > 0 {
            add(cursor.tids());
            progress();
            let n = ordered!(self.world.comparator, order => {
                let mut rest = Rest { tids: &mut tids, segments: None };
                cursor.rest_of_leaf(forward, &[], p, ix, order, &mut rest)
            });
            add(&tids[..n]);
            progress();
        }
        let end = self.world.now();
        self.log.borrow_mut().push(Event { begin, end, what: What::Scan { forward, seen } });
    }

    /// A scan that removes the entries it is told to from the batch where it found them.
    pub(in crate::schedule) fn scan_and_remove(
        &self,
        forward: bool,
        keys: bool,
        victim: impl Fn(u64) -> bool,
    ) {
        let (p, ix) = (&self.p, self.ix);
        let mut seen = Vec::new();
        let mut cursor = Cursor::new(keys);
        cursor.set_range(&[], None, CURRENT);
        let begin = self.world.now();
        while self.step(&mut cursor, forward) > 0 {
            let batch: Vec<u64> = (0..cursor.len()).map(|i| cursor.tid(i)).collect();
            for (i, &id) in batch.iter().enumerate().filter(|&(_, &id)| victim(id)) {
                let remove = || cursor.remove(p, ix, &[i as u16]) == 1;
                let gone = self.event(remove, |&gone| What::Remove(id, gone));
                if !gone {
                    // The leaf has changed: this says nothing about the entry.
                    self.log.borrow_mut().pop();
                }
            }
            if forward {
                seen.extend(batch)
            } else {
                seen.extend(batch.iter().rev())
            }
            progress();
        }
        let end = self.world.now();
        self.log.borrow_mut().push(Event { begin, end, what: What::Scan { forward, seen } });
    }

    /// A scan under the term of its beginning. The entries of a batch were there while it was read.
    pub(in crate::schedule) fn scan_under_old_term(&self, forward: bool) {
        let mut cursor = Cursor::new(false);
        cursor.read_few(true);
        cursor.set_range(&[], None, self.ix.term());
        loop {
            let begin = self.world.now();
            let n = self.step(&mut cursor, forward);
            let end = self.world.now();
            progress();
            if n == 0 {
                return;
            }
            let seen = cursor.tids().iter().map(|&id| What::Contains(id, true));
            self.log.borrow_mut().extend(seen.map(|what| Event { begin, end, what }));
        }
    }

    /// A pass over all leaves for each of these entries, until it is gone.
    pub(in crate::schedule) fn prune(&self, victims: &[u64]) {
        let (p, ix) = (&self.p, self.ix);
        for &id in victims {
            let mut pass = Prune::new(p, ix);
            let mut dead = |tids: &[Tid], dead: &mut [bool]| {
                progress();
                tids.iter().zip(dead).for_each(|(&tid, dead)| *dead = tid == id);
            };
            let remove = || {
                let mut more = true;
                while more && pass.counts().1 == 0 {
                    more = pass.next_leaf(&mut dead);
                }
                pass.counts().1 == 1
            };
            self.event(remove, |&gone| What::Remove(id, gone));
        }
    }

    fn create_snapshot(&self, holder: u64, meanwhile: &mut dyn FnMut()) -> Snapshot {
        let mut wait = || {
            meanwhile();
            crate::schedule::waiting();
        };
        self.ix.create_snapshot(&self.p, holder, &mut wait).unwrap()
    }

    /// Makes a snapshot and reads it; it stays until the check. `meanwhile` is run while it waits.
    pub(in crate::schedule) fn snapshot(&self, mut meanwhile: impl FnMut()) {
        let snapshot = || {
            let sn = self.create_snapshot(READER, &mut meanwhile).sn();
            (sn, self.read(true, sn))
        };
        self.event(snapshot, |(sn, seen)| What::Snapshot(*sn, seen.clone()));
    }

    /// Makes a snapshot, reads it, and ends it.
    pub(in crate::schedule) fn snapshot_that_ends(&self) {
        let snapshot = || {
            let made = self.create_snapshot(READER, &mut || ());
            let seen = (made.sn(), self.read(true, made.sn()));
            self.ix.release(&self.p, made);
            seen
        };
        self.event(snapshot, |(sn, seen)| What::Seen(*sn, seen.clone()));
    }

    /// Begins a snapshot, and gives it up while it waits for writers, after `meanwhile`.
    #[cfg(not(shuttle))]
    pub(in crate::schedule) fn give_up_a_snapshot(&self, meanwhile: impl Fn()) {
        let mut wait = || {
            meanwhile();
            resume_unwind(Box::new("given up"));
        };
        let make = || self.ix.create_snapshot(&self.p, READER, &mut wait);
        if let Ok(made) = catch_unwind(AssertUnwindSafe(make)) {
            self.ix.release(&self.p, made.unwrap());
        }
        progress();
    }

    /// Makes a snapshot that stays until its holder's end; those of [`HELD`] end in the check.
    pub(in crate::schedule) fn hold(&self, holder: u64) {
        let _ = self.create_snapshot(holder, &mut || ());
    }

    /// Makes a snapshot and reads it in both directions, unless a removal that has no memory takes
    /// it away.
    pub(in crate::schedule) fn snapshot_if_kept(&self) {
        let begin = self.world.now();
        let mut wait = || {
            crate::schedule::waiting();
        };
        let made = self.ix.create_snapshot(&self.p, READER, &mut wait);
        let end = self.world.now();
        progress();
        let Ok(snapshot) = made else { return assert_eq!(made.err(), Some(SnapshotError::Lost)) };
        let seen = self.read(true, snapshot.sn());
        let mut back = self.read(false, snapshot.sn());
        back.reverse();
        if self.ix.keeps(&snapshot) {
            assert_eq!(seen, back, "the snapshot has changed");
            let what = What::Scan { forward: true, seen };
            self.log.borrow_mut().push(Event { begin, end, what });
        }
        self.ix.release(&self.p, snapshot);
        progress();
    }

    /// Takes all memory that there is for the index but that of some leaves and one index node.
    #[cfg(not(shuttle))]
    pub(in crate::schedule) fn fill_area_but(&self, leaves: usize) {
        let classes = core::iter::repeat_n(Class::LEAF[0], leaves).chain([Class::INDEX]);
        let kept: Vec<_> = classes.map(|class| self.ix.fresh(class).unwrap()).collect();
        self.fill_area();
        drop(kept);
    }

    /// Takes all memory that there is for the index.
    pub(in crate::schedule) fn fill_area(&self) {
        for class in (0..).map_while(Class::from_code) {
            while let Ok(block) = self.ix.fresh(class) {
                core::mem::forget(block);
            }
        }
    }

    /// Ends all snapshots of a holder.
    pub(in crate::schedule) fn end_snapshots(&self, holder: u64) {
        self.ix.release_all(&self.p, holder);
        progress();
    }
}

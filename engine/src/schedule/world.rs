//! The index that two actors change, what they may do, and whether what they were told fits together.

use super::progress;
use crate::area::tests::Mapping;
#[cfg(not(shuttle))]
use crate::area::{PAGE, UNIT};
use crate::{
    Builder, Cursor, Forms, Index, IndexOptions, KeyOrder, Memcmp, Process, Remove, Snapshot, Sweep,
};
use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const CURRENT: u32 = u32::MAX - 1;
/// Who has the snapshots that actors make and read.
const READER: u64 = 1;
/// Who has the snapshots that are part of the world.
pub(super) const HELD: u64 = 2;

/// The key of an entry, whose TID is its number. Keys ascend with the numbers.
pub(super) type MakeKey = fn(u64) -> Vec<u8>;

/// Eight bytes: inline in a leaf.
pub(super) fn short(id: u64) -> Vec<u8> {
    id.to_be_bytes().to_vec()
}

/// A record of a leaf's heap.
pub(super) fn record(id: u64) -> Vec<u8> {
    [&id.to_be_bytes()[..], &[b'r'; 20]].concat()
}

/// A chunk, which ten entries in a row share.
pub(super) fn chunk(id: u64) -> Vec<u8> {
    [&(id / 10).to_be_bytes()[..], &[b'c'; 1500]].concat()
}

/// Nothing that leaves could leave out: some forty in a packed one.
pub(super) fn long(id: u64) -> Vec<u8> {
    let bytes = (0..32u8).map(|i| (id as u8).wrapping_mul(31).wrapping_add(i).wrapping_mul(77));
    id.to_be_bytes().into_iter().chain(bytes).collect()
}

/// Byte order, asked of a comparator.
struct Asked;

impl KeyOrder for Asked {
    const MEMCMP: bool = false;
    fn abbrev(&self, _: &[u8]) -> u64 {
        0
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }
}

/// An index as it is before every schedule.
pub(super) struct World {
    pub(super) name: &'static str,
    mapping: Mapping,
    saved: Vec<u8>,
    index: Index,
    pub(super) key: MakeKey,
    comparator: bool,
    /// The entries.
    initial: BTreeSet<u64>,
    clock: AtomicUsize,
}

/// What an actor did, and was told.
#[derive(Debug)]
pub(super) enum What {
    Insert(u64, bool),
    Remove(u64, bool),
    Contains(u64, bool),
    Scan { forward: bool, seen: Vec<u64> },
    Snapshot(u32, Vec<u64>),
}

/// With the moments of its beginning and its end.
#[derive(Debug)]
pub(super) struct Event {
    begin: usize,
    end: usize,
    what: What,
}

macro_rules! ordered {
    ($comparator:expr, $order:ident => $call:expr) => {
        if $comparator {
            let $order = &Asked;
            $call
        } else {
            let $order = &Memcmp;
            $call
        }
    };
}

impl World {
    /// An index with what `fill` makes.
    pub(super) fn new(
        name: &'static str,
        fillfactor: u8,
        key: MakeKey,
        fill: impl FnOnce(&Actor),
    ) -> World {
        World::ordered(name, fillfactor, key, false, fill)
    }

    /// The same, with leaves that are packed where that is possible.
    pub(super) fn packed(
        name: &'static str,
        fillfactor: u8,
        key: MakeKey,
        fill: impl FnOnce(&Actor),
    ) -> World {
        World::of(name, fillfactor, key, false, Forms::Packed, fill)
    }

    /// Leaves have slots; under a comparator or not.
    pub(super) fn ordered(
        name: &'static str,
        fillfactor: u8,
        key: MakeKey,
        comparator: bool,
        fill: impl FnOnce(&Actor),
    ) -> World {
        World::of(name, fillfactor, key, comparator, Forms::Slots, fill)
    }

    fn of(
        name: &'static str,
        fillfactor: u8,
        key: MakeKey,
        comparator: bool,
        forms: Forms,
        fill: impl FnOnce(&Actor),
    ) -> World {
        let mapping = Mapping::new(if cfg!(shuttle) { 1 << 19 } else { 1 << 20 }, 5);
        let index = {
            // SAFETY: nobody else uses this slot yet.
            let p = unsafe { Process::attach(*mapping, 4) };
            Index::create(&p, &IndexOptions { fillfactor, key_len_hint: 8 }).unwrap()
        };
        index.force(forms);
        let mut world = World {
            name,
            mapping,
            saved: Vec::new(),
            index,
            key,
            comparator,
            initial: BTreeSet::new(),
            clock: AtomicUsize::new(0),
        };
        let actor = world.actor(4);
        fill(&actor);
        for event in actor.end() {
            match event.what {
                What::Insert(id, true) => assert!(world.initial.insert(id)),
                What::Remove(id, true) => assert!(world.initial.remove(&id)),
                _ => {}
            }
        }
        world.saved = world.mapping.save();
        world.restore();
        assert_eq!(world.check(&[]), Ok(()), "{name}");
        world
    }

    pub(super) fn restore(&self) {
        self.mapping.restore(&self.saved);
    }

    /// The actor on a process slot: 0 to 2 are those of a schedule, 3 and 4 belong to the checks.
    pub(super) fn actor(&self, slot: usize) -> Actor<'_> {
        // SAFETY: every slot has one actor at a time.
        let p = unsafe { Process::attach(*self.mapping, slot as u32) };
        Actor { world: self, p, ix: self.index, log: RefCell::default() }
    }

    fn now(&self) -> usize {
        self.clock.fetch_add(1, Relaxed)
    }

    /// Is the entry there all the time from `begin` to `end`? None if it comes or goes meanwhile, by
    /// another event than `except`.
    fn there(
        &self,
        logs: &[Vec<Event>],
        id: u64,
        (begin, end): (usize, usize),
        except: Option<&Event>,
    ) -> Option<bool> {
        let mut balance = i32::from(self.initial.contains(&id));
        for event in logs.iter().flatten() {
            let change = match event.what {
                What::Insert(of, true) if of == id => 1,
                What::Remove(of, true) if of == id => -1,
                _ => continue,
            };
            if event.end < begin {
                balance += change;
            } else if event.begin < end
                && !except.is_some_and(|except| core::ptr::eq(except, event))
            {
                return None;
            }
        }
        Some(balance == 1)
    }

    /// Every entry that anything was said about.
    fn all(&self, logs: &[Vec<Event>]) -> BTreeSet<u64> {
        let mut all = self.initial.clone();
        for event in logs.iter().flatten() {
            match event.what {
                What::Insert(id, _) | What::Remove(id, _) | What::Contains(id, _) => {
                    all.insert(id);
                }
                _ => {}
            }
        }
        all
    }

    /// `seen`, in the order of a scan, is what is there at that moment.
    fn check_scan(
        &self,
        logs: &[Vec<Event>],
        moment: (usize, usize),
        forward: bool,
        seen: &[u64],
    ) -> Result<(), String> {
        let mut seen = seen.to_vec();
        if !forward {
            seen.reverse();
        }
        if !seen.is_sorted_by(|a, b| a < b) {
            return Err(format!("scan out of order, or twice the same: {seen:?}"));
        }
        let all = self.all(logs);
        if let Some(id) = seen.iter().find(|id| !all.contains(id)) {
            return Err(format!("scan found {id}, which was never there"));
        }
        for id in all {
            let there = self.there(logs, id, moment, None);
            if there.is_some_and(|there| there != seen.binary_search(&id).is_ok()) {
                return Err(format!("scan (forward {forward}) and {id}: {there:?} was to be seen"));
            }
        }
        Ok(())
    }

    /// Does everything that the actors were told fit together, and with what is there now?
    pub(super) fn check(&self, logs: &[Vec<Event>]) -> Result<(), String> {
        let actor = self.actor(3);
        for event in logs.iter().flatten() {
            let moment = (event.begin, event.end);
            let before = |id: &u64| self.there(logs, *id, moment, Some(event));
            let wrong = match &event.what {
                What::Insert(id, new) => before(id) == Some(*new),
                What::Remove(id, there) | What::Contains(id, there) => before(id) == Some(!there),
                What::Scan { forward, seen } => {
                    self.check_scan(logs, moment, *forward, seen)?;
                    false
                }
                What::Snapshot(sn, seen) => {
                    self.check_scan(logs, moment, true, seen)?;
                    let again = actor.read(true, *sn);
                    let mut back = actor.read(false, *sn);
                    back.reverse();
                    if *seen != again || *seen != back {
                        return Err(format!(
                            "the snapshot has changed: {seen:?} {again:?} {back:?}"
                        ));
                    }
                    false
                }
            };
            if wrong {
                return Err(format!("{event:?} cannot be"));
            }
        }
        actor.ix.release_all(&actor.p, READER);
        let mut now = self.initial.clone();
        let mut changed = BTreeMap::new();
        for event in logs.iter().flatten() {
            let (id, change) = match event.what {
                What::Insert(id, true) => (id, 1),
                What::Remove(id, true) => (id, -1),
                What::Insert(id, _) | What::Remove(id, _) | What::Contains(id, _) => (id, 0),
                _ => continue,
            };
            *changed.entry(id).or_insert(i32::from(self.initial.contains(&id))) += change;
        }
        for (&id, &balance) in &changed {
            match balance {
                0 => now.remove(&id),
                1 => now.insert(id),
                _ => return Err(format!("{id} came or went twice")),
            };
        }
        let now: Vec<u64> = now.into_iter().collect();
        self.check_now(&actor, &now, changed.keys())?;
        actor.end_snapshots(HELD);
        if actor.ix.collect(&actor.p, 1000) > 0 {
            while actor.ix.collect(&actor.p, 1000) > 0 {}
            self.check_now(&actor, &now, changed.keys())?;
        }
        actor.ix.collect(&actor.p, 1);
        match (actor.ix.garbage(), actor.ix.stats().dirty, actor.ix.heap().is_leaving()) {
            (0, 0, false) => Ok(()),
            left => Err(format!("blocks retired, dirty, idle extents: {left:?}")),
        }
    }

    /// The index has exactly these entries; of some, each is asked for.
    fn check_now<'a>(
        &self,
        actor: &Actor,
        now: &[u64],
        some: impl Iterator<Item = &'a u64>,
    ) -> Result<(), String> {
        let (p, ix) = (&actor.p, actor.ix);
        let mut found = Vec::new();
        ordered!(self.comparator, order => ix.verify(p, order, true, &mut |_, tid| found.push(tid)))
            .map_err(|violation| violation.to_string())?;
        let mut back = actor.read(false, CURRENT);
        back.reverse();
        if found != now || back != now {
            return Err(format!("there are {found:?}, backward {back:?}, not {now:?}"));
        }
        for &id in some {
            let key = (self.key)(id);
            let found = ordered!(self.comparator, order => ix.contains(p, order, &key, id));
            if found != now.binary_search(&id).is_ok() {
                return Err(format!("{id} is found: {found}"));
            }
        }
        Ok(())
    }
}

/// One of the two, in one schedule.
pub(super) struct Actor<'a> {
    world: &'a World,
    pub(super) p: Process,
    pub(super) ix: Index,
    log: RefCell<Vec<Event>>,
}

impl Actor<'_> {
    pub(super) fn end(self) -> Vec<Event> {
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

    pub(super) fn insert(&self, id: u64) {
        let (p, ix, key) = (&self.p, self.ix, self.key(id));
        let insert =
            || ordered!(self.world.comparator, order => ix.insert(p, order, &key, id)).unwrap();
        self.event(insert, |&new| What::Insert(id, new));
    }

    /// Makes packed leaves of these entries, which ascend.
    pub(super) fn build(&self, ids: impl Iterator<Item = u64>) {
        let mut builder = Builder::new(&self.p, self.ix);
        for id in ids {
            self.event(
                || builder.push(&Memcmp, &self.key(id), id).unwrap(),
                |_| What::Insert(id, true),
            );
        }
        self.ix.adopt(&self.p, vec![builder.finish().unwrap()]).unwrap();
    }

    pub(super) fn remove(&self, id: u64) {
        let (p, ix, key) = (&self.p, self.ix, self.key(id));
        let remove = || ordered!(self.world.comparator, order => ix.remove(p, order, &key, id));
        self.event(remove, |&there| What::Remove(id, there));
    }

    pub(super) fn look(&self, id: u64) {
        let (p, ix, key) = (&self.p, self.ix, self.key(id));
        let look = || ordered!(self.world.comparator, order => ix.contains(p, order, &key, id));
        self.event(look, |&there| What::Contains(id, there));
    }

    pub(super) fn collect(&self) {
        self.collect_some(1000);
    }

    /// All neighbours that fit one packed leaf become one.
    pub(super) fn sweep(&self) {
        let mut sweep = Sweep::default();
        while self.ix.sweep(&self.p, &mut sweep, 2) {}
        progress();
    }

    /// Leaves have these forms from now on.
    pub(super) fn force(&self, forms: Forms) {
        self.ix.force(forms);
    }

    /// What has been removed goes to the free lists, and no further.
    pub(super) fn free_blocks(&self) {
        let other = self.world.actor(2);
        {
            let _inside = other.p.enter();
            self.collect();
        }
        self.ix.free_retired();
    }

    /// All memory that is free was another index' meanwhile, which made it look as it did in the beginning.
    #[cfg(not(shuttle))]
    pub(super) fn pretend(&self) {
        let area = self.ix.area;
        let taken: Vec<_> = core::iter::from_fn(|| area.alloc_pages(PAGE).ok()).collect();
        for &r in &taken {
            let before = &self.world.saved[r as usize * UNIT..][..PAGE];
            // SAFETY: a page of this actor.
            unsafe { area.at(r).copy_from_nonoverlapping(before.as_ptr(), PAGE) };
        }
        taken.into_iter().for_each(|r| area.free_pages(r, PAGE));
    }

    /// Visits only so many leaves.
    pub(super) fn collect_some(&self, leaves: usize) {
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
    fn read(&self, forward: bool, sn: u32) -> Vec<u64> {
        let mut cursor = Cursor::new(false);
        cursor.set_range(&[], None, sn);
        let mut seen = Vec::new();
        while self.step(&mut cursor, forward) > 0 {
            let batch = (0..cursor.len()).map(|i| cursor.tid(i));
            if forward { seen.extend(batch) } else { seen.extend(batch.rev()) }
        }
        seen
    }

    pub(super) fn scan(&self, forward: bool) {
        self.scan_and_remove(forward, false, Remove::IfUnchanged, |_| false);
    }

    /// A scan that removes the entries it is told to from the batch where it found them.
    pub(super) fn scan_and_remove(
        &self,
        forward: bool,
        keys: bool,
        kind: Remove,
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
                let remove = || {
                    let which = [i as u16];
                    ordered!(self.world.comparator, order => cursor.remove(p, ix, order, &which, kind))
                        == 1
                };
                let gone = self.event(remove, |&gone| What::Remove(id, gone));
                if !gone && kind == Remove::IfUnchanged {
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

    fn create_snapshot(&self, holder: u64, meanwhile: &mut dyn FnMut()) -> Snapshot {
        let mut wait = || {
            meanwhile();
            super::waiting();
        };
        self.ix.create_snapshot(&self.p, holder, &mut wait).unwrap()
    }

    /// Makes a snapshot and reads it; it stays until the check. `meanwhile` is run while it waits.
    pub(super) fn snapshot(&self, mut meanwhile: impl FnMut()) {
        let snapshot = || {
            let sn = self.create_snapshot(READER, &mut meanwhile).sn();
            (sn, self.read(true, sn))
        };
        self.event(snapshot, |(sn, seen)| What::Snapshot(*sn, seen.clone()));
    }

    /// Makes a snapshot that stays until its holder's end; those of [`HELD`] end in the check.
    pub(super) fn hold(&self, holder: u64) {
        let _ = self.create_snapshot(holder, &mut || ());
    }

    /// Ends all snapshots of a holder.
    pub(super) fn end_snapshots(&self, holder: u64) {
        self.ix.release_all(&self.p, holder);
        progress();
    }
}

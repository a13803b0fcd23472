//! The index that two actors change, their acts, and the check that their results are consistent.

use super::progress;
use crate::collect::collector;
use crate::memory::area::tests::Mapping;
use crate::memory::class::Class;
#[cfg(not(shuttle))]
use crate::memory::place::{PAGE, Ref, UNIT};
use crate::prelude::*;
use crate::{
    Builder, Cursor, Forms, Index, IndexOptions, KeyOrder, MOST_OF_LEAF, Memcmp, Process, Prune,
    Rest, Snapshot, SnapshotError, Sweep, Swept, Tid, Walk,
};
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const CURRENT: u32 = u32::MAX - 1;
/// The holder of snapshots that actors make and read.
const READER: u64 = 1;
/// The holder of snapshots that are part of the world.
pub(super) const HELD: u64 = 2;

/// Bytes of the area. As few as possible, because each schedule begins with a copy of it.
pub(super) const MEMORY: usize = 1 << 19;

/// The key of an entry, whose TID is its number. Keys ascend with the numbers.
pub(super) type MakeKey = fn(u64) -> Vec<u8>;

/// Eight bytes: inline in a leaf.
pub(super) fn short(id: u64) -> Vec<u8> {
    id.to_be_bytes().to_vec()
}

/// A record of a leaf's key area.
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
    pub(super) comparator: bool,
    /// The entries.
    initial: BTreeSet<u64>,
    clock: AtomicUsize,
}

/// An act of an actor, and its result.
#[derive(Debug)]
pub(super) enum What {
    Insert(u64, bool),
    /// An insert of an entry with a new key.
    New(u64, bool),
    Remove(u64, bool),
    Contains(u64, bool),
    Scan {
        forward: bool,
        seen: Vec<u64>,
    },
    Snapshot(u32, Vec<u64>),
    /// A snapshot that has ended, and its entries.
    Seen(u32, Vec<u64>),
    /// The entry was in the index at the end of this term.
    Under(u64, u32),
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

// Below the macro, which it uses.
mod actor;

pub(super) use actor::Actor;

thread_local! {
    /// Whether the worlds of packed leaves that this thread makes are under a comparator.
    pub(super) static COMPARED: Cell<bool> = const { Cell::new(false) };
}

impl World {
    /// Makes an index with the entries of `fill`.
    pub(super) fn new(
        name: &'static str,
        fillfactor: u8,
        key: MakeKey,
        fill: impl FnOnce(&Actor),
    ) -> World {
        World::ordered(name, fillfactor, key, false, fill)
    }

    /// The same, with leaves that are packed if possible, in the order of [`COMPARED`].
    pub(super) fn packed(
        name: &'static str,
        fillfactor: u8,
        key: MakeKey,
        fill: impl FnOnce(&Actor),
    ) -> World {
        World::of(name, MEMORY, fillfactor, key, COMPARED.get(), Forms::Packed, fill)
    }

    /// Leaves have slots; under a comparator or not.
    pub(super) fn ordered(
        name: &'static str,
        fillfactor: u8,
        key: MakeKey,
        comparator: bool,
        fill: impl FnOnce(&Actor),
    ) -> World {
        World::of(name, MEMORY, fillfactor, key, comparator, Forms::Slots, fill)
    }

    /// The same, in this number of bytes and with these leaves.
    pub(super) fn of(
        name: &'static str,
        memory: usize,
        fillfactor: u8,
        key: MakeKey,
        comparator: bool,
        forms: Forms,
        fill: impl FnOnce(&Actor),
    ) -> World {
        let mapping = Mapping::new(memory, 5);
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

    /// Is the entry there all the time from `begin` to `end`? None if it comes or goes meanwhile,
    /// by another event than `except`.
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
                What::Insert(of, true) | What::New(of, true) if of == id => 1,
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
                What::Insert(id, _)
                | What::New(id, _)
                | What::Remove(id, _)
                | What::Contains(id, _) => {
                    all.insert(id);
                }
                _ => {}
            }
        }
        all
    }

    /// Whether another entry with the key of this one, which came as a new one, was there before,
    /// or came so, too.
    fn has_twin(&self, logs: &[Vec<Event>], id: u64, event: &Event) -> bool {
        let key = (self.key)(id);
        let came = |other: u64| {
            let new = |event: &Event| matches!(event.what, What::New(of, true) if of == other);
            logs.iter().flatten().any(new)
        };
        self.all(logs).into_iter().filter(|&other| other != id && (self.key)(other) == key).any(
            |other| {
                came(other) || self.there(logs, other, (event.begin, event.end), None) == Some(true)
            },
        )
    }

    /// Checks that `seen`, in the order of a scan, has the entries of that moment.
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

    /// Checks that all results of the actors are consistent with each other and with the present
    /// entries.
    pub(super) fn check(&self, logs: &[Vec<Event>]) -> Result<(), String> {
        let actor = self.actor(3);
        for event in logs.iter().flatten() {
            let moment = (event.begin, event.end);
            let before = |id: &u64| self.there(logs, *id, moment, Some(event));
            let wrong = match &event.what {
                What::Insert(id, new) => before(id) == Some(*new),
                What::Remove(id, there) | What::Contains(id, there) => before(id) == Some(!there),
                // Inserts of the key meanwhile come before it, or look themselves. Of two that
                // look, neither sees the other.
                What::New(id, new) => *new && self.has_twin(logs, *id, event),
                What::Under(..) => false,
                What::Seen(sn, seen) => {
                    self.check_scan(logs, moment, true, seen)?;
                    check_terms(logs, *sn, seen)?;
                    false
                }
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
                What::Insert(id, true) | What::New(id, true) => (id, 1),
                What::Remove(id, true) => (id, -1),
                What::Insert(id, _)
                | What::New(id, _)
                | What::Remove(id, _)
                | What::Contains(id, _) => (id, 0),
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
        if actor.ix.collect(&actor.p, 1000) > Some(0) {
            collector::collect_all(&actor.ix, &actor.p);
            self.check_now(&actor, &now, changed.keys())?;
        }
        actor.ix.collect(&actor.p, 1);
        match (actor.ix.garbage(), actor.ix.stats().dirty, actor.ix.allocator().is_leaving()) {
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

/// Checks that a snapshot has seen the entries of its term and of those before.
fn check_terms(logs: &[Vec<Event>], sn: u32, seen: &[u64]) -> Result<(), String> {
    let missed = |event: &&Event| match event.what {
        What::Under(id, term) => term <= sn && !seen.contains(&id),
        _ => false,
    };
    match logs.iter().flatten().find(missed) {
        Some(missed) => Err(format!("snapshot {sn} has missed {missed:?}: {seen:?}")),
        None => Ok(()),
    }
}

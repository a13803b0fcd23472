//! The shared words that each path writes. On a machine of many processors, a word that all of them
//! write makes them wait. A look-up may write only the announcement of its own process. An insert
//! may also write its leaf and a count.
//!
//! The area is write-protected while a path runs. Each store faults; the handler notes its address,
//! lets this one instruction through, and protects the page again. So a store is seen that writes
//! what was there, and one that is undone, and the attempt of a compare-and-swap.

use crate::build::adopt;
use crate::memory::area::tests::Mapping;
use crate::memory::process::Process;
use crate::prelude::*;
use crate::{Builder, Cursor, Forms, Index, IndexOptions, Memcmp, Tid};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

const LEN: usize = 16 << 20;
const PROCESSES: u32 = 40;
/// Whose writes are looked at.
const SLOT: u32 = 21;
const TRAP: i64 = 0x100;
const MOST: usize = 1 << 16;

static BASE: AtomicUsize = AtomicUsize::new(0);
static SEEN: AtomicUsize = AtomicUsize::new(0);
static LOG: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];
static TURN: Mutex<()> = Mutex::new(());

fn protect(base: usize, len: usize, how: i32) {
    // SAFETY: pages of the mapping that is watched.
    let rc = unsafe { libc::mprotect(core::ptr::with_exposed_provenance_mut(base), len, how) };
    assert_eq!(rc, 0);
}

/// Lets or does not let the interrupted thread run on by a single instruction.
///
/// # Safety
/// `context` is what a signal handler got.
unsafe fn step(context: *mut libc::c_void, on: bool) {
    // SAFETY: by the contract.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let flags = &mut context.uc_mcontext.gregs[libc::REG_EFL as usize];
    *flags = if on { *flags | TRAP } else { *flags & !TRAP };
}

extern "C" fn fault(_: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: of a fault, which has an address.
    let at = unsafe { (*info).si_addr() }.addr();
    let base = BASE.load(Relaxed);
    if base == 0 || !(base..base + LEN).contains(&at) {
        // Not one of ours: it happens again, and ends the program.
        // SAFETY: the usual action.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
        return;
    }
    let n = SEEN.fetch_add(1, Relaxed);
    if let Some(entry) = LOG.get(n) {
        entry.store(at - base, Relaxed);
    }
    protect(at / 4096 * 4096, 4096, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: passed on.
    unsafe { step(context, true) };
}

extern "C" fn stepped(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    protect(BASE.load(Relaxed), LEN, libc::PROT_READ);
    // SAFETY: passed on.
    unsafe { step(context, false) };
}

/// Where the words of an area are, by name.
struct Watch {
    process: Process,
    index: Index,
    mapping: Mapping,
    _turn: MutexGuard<'static, ()>,
}

impl Watch {
    fn new(forms: Forms) -> Watch {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mapping = Mapping::new(LEN, PROCESSES);
        // SAFETY: the only one with this slot.
        let process = unsafe { Process::attach(*mapping, SLOT) };
        let index = Index::create(&process, &IndexOptions::default()).unwrap();
        index.force(forms);
        Watch { process, index, mapping, _turn: turn }
    }

    /// Returns the writes of `path`: regions, and in each the lines of 64 bytes.
    fn written(&self, path: impl FnOnce(&Process, Index)) -> BTreeMap<String, BTreeSet<usize>> {
        let base = self.mapping.at(0).expose_provenance();
        let regions = self.regions();
        let act = |signal, handler: extern "C" fn(_, _, _)| {
            let mut old = core::mem::MaybeUninit::<libc::sigaction>::uninit();
            // SAFETY: a handler that only notes and protects; zeroed is an empty action.
            unsafe {
                let mut action: libc::sigaction = core::mem::zeroed();
                action.sa_sigaction = (handler as *const ()).expose_provenance();
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                assert_eq!(libc::sigaction(signal, &action, old.as_mut_ptr()), 0);
                old.assume_init()
            }
        };
        let before = [
            (libc::SIGSEGV, act(libc::SIGSEGV, fault)),
            (libc::SIGTRAP, act(libc::SIGTRAP, stepped)),
        ];
        SEEN.store(0, Relaxed);
        BASE.store(base, Relaxed);
        protect(base, LEN, libc::PROT_READ);
        path(&self.process, self.index);
        protect(base, LEN, libc::PROT_READ | libc::PROT_WRITE);
        BASE.store(0, Relaxed);
        for (signal, old) in before {
            // SAFETY: the handler of before.
            assert_eq!(unsafe { libc::sigaction(signal, &old, core::ptr::null_mut()) }, 0);
        }
        let n = SEEN.load(Relaxed);
        assert!(n <= MOST, "{n} stores are more than are noted");
        let mut by_region = BTreeMap::<_, BTreeSet<_>>::new();
        for at in LOG[..n].iter().map(|at| at.load(Relaxed)) {
            // The innermost one: those of an index are in the area.
            let region = regions.iter().rfind(|(_, from, to)| (*from..*to).contains(&at));
            let name = region.map_or("elsewhere", |(name, ..)| name);
            by_region.entry(name.to_string()).or_default().insert(at / 64);
        }
        by_region
    }

    fn regions(&self) -> Vec<(String, usize, usize)> {
        fn part<T>(base: usize, name: impl Into<String>, of: &T) -> (String, usize, usize) {
            let from = core::ptr::from_ref(of).addr() - base;
            (name.into(), from, from + size_of::<T>())
        }
        let base = self.mapping.at(0).addr();
        let (root, barrier) = (self.index.shared(), self.mapping.barrier());
        let mut all = vec![("area".to_string(), 0, 4096)];
        all.push(part(base, "barrier", barrier.globals));
        for (i, slot) in barrier.slots.iter().enumerate() {
            let whose = if i as u32 == SLOT { "own slot" } else { "slot of another" };
            all.push(part(base, whose, slot));
        }
        all.push(part(base, "root", root));
        all.push(part(base, "root: last", &root.last));
        all.push(part(base, "top", &root.top_state));
        all.push(part(base, "dirty list", &root.dirty));
        all.push(part(base, "kept list", &root.kept));
        all.push(part(base, "dead nodes", &root.dead_nodes));
        all.push(part(base, "collecting", &root.collecting));
        all.push(part(base, "retired", &root.retired));
        all.push(part(base, "snapshots", &root.snapshots));
        all.push(part(base, "counts", &root.counters));
        for (i, stripe) in root.counters.stripes.iter().enumerate() {
            let own = i == SLOT as usize % root.counters.stripes.len();
            all.push(part(base, if own { "own stripe" } else { "stripe of others" }, stripe));
        }
        all.push(part(base, "allocator", self.index.allocator()));
        for (first, name) in [(&root.leaf, "leaf"), (&root.node, "node")] {
            let mut at = first.load(Relaxed);
            while at != 0 {
                let b = self.index.block(at);
                let from = self.mapping.at(at).addr() - base;
                all.push((format!("{name} {at}"), from, from + b.size()));
                at = b.next();
            }
        }
        all
    }

    /// Checks that a path writes only these regions. For leaves and nodes the number is given.
    #[track_caller]
    fn writes(&self, expected: &[&str], path: impl FnOnce(&Process, Index)) {
        let written = self.written(path);
        let mut names = BTreeSet::new();
        let mut blocks = BTreeMap::new();
        for name in written.keys() {
            match name.split_once(' ').filter(|(kind, _)| ["leaf", "node"].contains(kind)) {
                Some((kind, _)) => *blocks.entry(kind).or_insert(0) += 1,
                None => _ = names.insert(name.clone()),
            }
        }
        names.extend(blocks.into_iter().map(|(kind, n)| format!("{n} {kind}")));
        let expected: BTreeSet<_> = expected.iter().map(|name| name.to_string()).collect();
        assert_eq!(names, expected, "{written:x?}");
        let own = written.get("own slot").map_or(0, BTreeSet::len);
        assert!(own <= 1, "an announcement is on one line");
    }
}

fn key(i: u64) -> [u8; 8] {
    (i << 32).to_be_bytes()
}

fn insert(p: &Process, index: Index, key: &[u8], tid: Tid) {
    assert!(index.insert(p, &Memcmp, key, tid).unwrap());
}

fn fill(watch: &Watch, n: u64) {
    for i in 0..n {
        let i = i * 7919 % n;
        insert(&watch.process, watch.index, &key(i), i);
    }
}

/// The same entries, in packed leaves.
fn build(watch: &Watch, n: u64) {
    let mut builder = Builder::new(&watch.process, watch.index);
    for i in 0..n {
        builder.push(&Memcmp, &key(i), i).unwrap();
    }
    let chain = builder.finish().unwrap();
    adopt::adopt(&watch.index, &watch.process, vec![chain]).unwrap();
}

/// Enough entries for a flat top.
const ROWS: u64 = 20_000;

/// Both forms of leaves.
fn each(test: impl Fn(&Watch)) {
    let slots = Watch::new(Forms::Slots);
    fill(&slots, ROWS);
    test(&slots);
    drop(slots);
    let packed = Watch::new(Forms::Best);
    build(&packed, ROWS);
    test(&packed);
}

#[test]
fn a_look_up_writes_only_what_its_process_announces() {
    each(|watch| {
        watch.writes(&["own slot"], |p, index| {
            for i in [0, 1, 777, ROWS - 1, ROWS, 3 * ROWS] {
                index.contains(p, &Memcmp, &key(i), i);
            }
            let mut cursors = [5, 5000, 15_000, ROWS].map(|i| {
                let mut cursor = Box::new(Cursor::new(false));
                cursor.set_range(&key(i), Some(&key(i + 1)), index.term());
                cursor
            });
            Cursor::first_of_each(&mut cursors, 1, p, index, &Memcmp);
            assert_eq!(cursors.map(|cursor| cursor.len()), [1, 1, 1, 0]);
        });
    });
}

#[test]
fn a_scan_and_its_rescans_write_only_what_their_process_announces() {
    each(|watch| {
        let mut cursor = Cursor::new(true);
        watch.writes(&["own slot"], |p, index| {
            for lower in [0, 40, 9000, ROWS] {
                cursor.set_range(&key(lower), Some(&key(lower + 300)), index.term());
                while cursor.next(p, index, &Memcmp) > 0 {}
                while cursor.prev(p, index, &Memcmp) > 0 {}
            }
            let token = p.open_token(index.root());
            assert!(p.renew_token(token));
            p.close_token(token);
        });
    });
}

/// A leaf that was built full is cut at the first insert.
fn make_room(watch: &Watch) {
    insert(&watch.process, watch.index, &key(7000)[..5], 1);
}

const INSERTED: &[&str] = &["1 leaf", "own slot", "own stripe"];

#[test]
fn an_insert_writes_its_leaf_and_one_count() {
    each(|watch| {
        make_room(watch);
        watch.writes(INSERTED, |p, index| insert(p, index, &key(7001)[..5], 1));
        watch.writes(&["own slot"], |p, index| {
            assert!(!index.insert(p, &Memcmp, &key(7001)[..5], 1).unwrap());
        });
    });
}

#[test]
fn where_inserts_append_is_no_word_that_look_ups_read() {
    let appended: &[&str] = &["1 leaf", "own slot", "own stripe", "root: last"];
    each(|watch| {
        make_room(watch);
        watch.writes(appended, |p, index| insert(p, index, &key(2 * ROWS), 1));
        for i in 1..5 {
            watch.writes(INSERTED, |p, index| insert(p, index, &key(2 * ROWS + i), 1));
        }
        // One that does not append takes it back.
        watch.writes(appended, |p, index| insert(p, index, &key(7001)[..5], 1));
        watch.writes(INSERTED, |p, index| insert(p, index, &key(7001)[..6], 1));
    });
    let watch = Watch::new(Forms::Best);
    let root = watch.index.shared();
    let line = |of: *const AtomicU32| of.addr() / 64;
    for read in [&root.term, &root.leaf, &root.node, &root.top] {
        assert_ne!(line(read), line(&root.last));
    }
}

#[test]
fn a_removal_writes_its_leaf_and_one_count() {
    each(|watch| {
        watch.writes(INSERTED, |p, index| assert!(index.remove(p, &Memcmp, &key(50), 50)));
        watch.writes(&["own slot"], |p, index| {
            assert!(!index.remove(p, &Memcmp, &key(50), 50));
        });
        // As VACUUM does it.
        let mut cursor = Cursor::new(false);
        cursor.set_range(&key(100), Some(&key(400)), watch.index.term());
        while cursor.next(&watch.process, watch.index, &Memcmp) > 3 {
            watch.writes(INSERTED, |p, index| {
                assert_eq!(cursor.remove(p, index, &[1, 3]), 2);
            });
        }
    });
}

/// A leaf with dead entries is put on a list. (A packed leaf first becomes one with slots.)
#[test]
fn beside_a_snapshot_a_removal_writes_a_list_besides() {
    let watch = Watch::new(Forms::Slots);
    fill(&watch, ROWS);
    let snapshot = watch.index.create_snapshot(&watch.process, 0, &mut || ()).unwrap();
    let marked: &[&str] = &["1 leaf", "counts", "dirty list", "own slot", "own stripe"];
    watch.writes(marked, |p, index| assert!(index.remove(p, &Memcmp, &key(50), 50)));
    watch.writes(INSERTED, |p, index| insert(p, index, &key(50), 1));
    watch.index.release(&watch.process, snapshot);
}

#[test]
fn a_split_writes_no_word_of_another_process() {
    each(|watch| {
        let before = watch.index.stats().splits;
        let written = watch.written(|p, index| {
            for i in 0..=255 {
                insert(p, index, &[&key(5000)[..], &[i]].concat(), 1);
            }
        });
        assert!(watch.index.stats().splits > before);
        for others in
            ["slot of another", "stripe of others", "snapshots", "dirty list", "collecting"]
        {
            assert!(!written.contains_key(others), "{written:x?}");
        }
    });
}

#[test]
fn the_collector_with_nothing_to_do_writes_what_is_its_own() {
    each(|watch| {
        // Garbage of the filling is collected.
        (0..4).for_each(|_| _ = watch.index.collect(&watch.process, 100));
        let own = [
            "allocator",
            "collecting",
            "dead nodes",
            "dirty list",
            "own slot",
            "retired",
            "kept list",
        ];
        watch.writes(&own, |p, index| assert_eq!(index.collect(p, 100), Some(0)));
    });
}

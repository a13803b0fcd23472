use super::*;
use crate::collect::collector;
use crate::memory::area::tests::Mapping;
use crate::memory::process::Process;
use crate::prelude::*;
use crate::sync::stop::doing;
use crate::tree::seek::steps;
use crate::tree::top;
use crate::{IndexOptions, Memcmp, Sweep, Swept};
use core::cell::Cell;
use std::rc::Rc;

/// Entries: some hundred index nodes.
const ROWS: u64 = 400_000;

fn key(i: u64) -> [u8; 8] {
    i.to_be_bytes()
}

fn scattered(i: u64) -> u64 {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

struct World {
    p: Process,
    stuck: Process,
    index: Index,
    /// Dropped last.
    _area: Mapping,
}

impl World {
    fn new() -> World {
        let area = Mapping::new(512 << 20, 2);
        // SAFETY: each slot is used by one process.
        let [p, stuck] = [0, 1].map(|slot| unsafe { Process::attach(*area, slot) });
        let index = Index::create(&p, &IndexOptions::default()).unwrap();
        World { p, stuck, index, _area: area }
    }

    fn insert(&self, i: u64) {
        assert!(self.index.insert(&self.p, &Memcmp, &key(i), i & 0xffff).unwrap());
    }

    fn remove(&self, i: u64) {
        assert!(self.index.remove(&self.p, &Memcmp, &key(i), i & 0xffff));
    }

    /// As VACUUM does it.
    fn tidy(&self) {
        let mut sweep = Sweep::new(&self.p, self.index);
        while sweep.next_leaves(1000) == Swept::More {}
        collector::collect_all(&self.index, &self.p);
    }

    /// The most steps aside that a look-up of one of these takes.
    fn steps(&self, keys: impl Iterator<Item = u64>) -> u64 {
        let look = |i: u64| _ = self.index.contains(&self.p, &Memcmp, &key(i), i & 0xffff);
        keys.map(|i| steps::of(|| look(i)).0).max().expect("some keys")
    }

    fn nodes(&self) -> u32 {
        self.index.stats().blocks[1]
    }

    /// Bytes of the arrays that wait for the barrier.
    fn waiting(&self) -> u64 {
        let header = |at: Ref| Array(self.index.area.at(at)).header();
        let next = |at: Ref| (at != 0).then_some(at);
        let first = self.index.shared().top_state.retired.load(Relaxed);
        core::iter::successors(next(first), |&at| next(header(at).before.load(Relaxed)))
            .map(|at| u64::from(header(at).bytes))
            .sum()
    }

    /// Checks that all waiting memory is free when no process is inside any more.
    fn nothing_waits(&self) {
        collector::collect_all(&self.index, &self.p);
        assert_eq!((self.waiting(), self.index.garbage()), (0, 0));
        assert_eq!(self.index.shared().top_state.dead.load(Relaxed), 0);
        self.index.verify(&self.p, &Memcmp, true, &mut |_, _| ()).unwrap();
    }
}

/// Inserts in this order, and then looks up: the most steps aside, and how many index nodes were
/// made.
fn growth(order: fn(u64) -> u64, stays: bool) -> (u64, u32) {
    let world = World::new();
    let section = stays.then(|| world.stuck.enter_index(world.index.root()));
    (0..ROWS).for_each(|i| world.insert(order(i)));
    let steps = world.steps((0..ROWS).rev().step_by(97).map(order));
    let waiting = world.waiting();
    assert!(stays || waiting < 1 << 20, "{waiting} bytes wait for this process itself");
    assert!(waiting <= 1024 * u64::from(world.nodes()), "{waiting} bytes, {}", world.nodes());
    drop(section);
    world.nothing_waits();
    (steps, world.nodes())
}

/// A process that is stopped inside the barrier, or waits in a comparison function, keeps all
/// arrays that were there meanwhile. The index grows, and no search gets longer.
#[test]
fn an_index_grows_beside_a_process_that_stays_inside() {
    for order in [|i| i, scattered] {
        let (usual, nodes) = growth(order, false);
        let beside = growth(order, true);
        assert_eq!(beside, (usual, nodes));
        assert!(usual <= 2 + u64::from(nodes / 64).max(4), "{usual} steps among {nodes} nodes");
    }
}

/// Index nodes die again and again. Ways through dead ones are no longer than without that process.
/// The waiting memory is in proportion to the dead nodes.
#[test]
fn an_index_changes_beside_a_process_that_stays_inside() {
    let world = World::new();
    (0..ROWS).for_each(|i| world.insert(i));
    world.tidy();
    let section = world.stuck.enter_index(world.index.root());
    let mut changed = 0;
    let mut change = |act: &mut dyn FnMut()| {
        let before = world.nodes();
        act();
        changed += u64::from(world.nodes().abs_diff(before));
    };
    let check = |round, keys: &mut dyn Iterator<Item = u64>| {
        let (steps, most) = (world.steps(keys), 4 + u64::from(world.nodes() / 64).max(4));
        assert!(steps <= most, "round {round}: {steps} steps among {} nodes", world.nodes());
    };
    for round in 0..6 {
        // Most leaves go, so that about one node at a time dies, then most come again.
        for part in (0..ROWS).step_by(4000) {
            change(&mut || {
                (part..part + 4000).filter(|i| i % 1000 >= 30).for_each(|i| world.remove(i));
                collector::collect_all(&world.index, &world.p);
            });
        }
        change(&mut || world.tidy());
        check(round, &mut (0..ROWS).step_by(1000));
        change(&mut || (0..ROWS).filter(|i| i % 1000 >= 30).for_each(|i| world.insert(i)));
        check(round, &mut (0..ROWS).rev().step_by(97));
    }
    let waiting = world.waiting();
    assert!(waiting <= 1024 * changed, "{waiting} bytes for {changed} nodes");
    drop(section);
    world.nothing_waits();
}

/// Where nothing has changed no new array is built while one waits: a collector that finds one dead
/// node each time would leave as many.
#[test]
fn no_array_is_built_without_changes() {
    let world = World::new();
    (0..ROWS / 4).for_each(|i| world.insert(i));
    collector::collect_all(&world.index, &world.p);
    let section = world.stuck.enter_index(world.index.root());
    let rebuild = || {
        let _section = world.index.enter(&world.p);
        top::rebuild_top(&world.index)
    };
    assert!(rebuild());
    let waiting = world.waiting();
    assert!(waiting > 0);
    for _ in 0..3 {
        assert!(!rebuild());
    }
    let nodes = world.nodes();
    let mut more = ROWS / 4..;
    while world.nodes() < nodes + 4 {
        assert_eq!(world.waiting(), waiting);
        world.insert(more.next().unwrap());
    }
    assert!(world.waiting() > waiting);
    drop(section);
    world.nothing_waits();
}

/// A process is stopped while it builds an array. Others build theirs, and its own is dropped.
#[test]
fn an_index_grows_beside_a_process_that_builds() {
    let world = Rc::new(World::new());
    (0..ROWS / 4).for_each(|i| world.insert(i));
    let steps = Rc::new(Cell::new(None));
    let grow = {
        let (world, steps) = (world.clone(), steps.clone());
        move |point| {
            if point == "top: built" && steps.get().is_none() {
                (ROWS / 4..ROWS).for_each(|i| world.insert(i));
                steps.set(Some(world.steps((0..ROWS).rev().step_by(97))));
            }
        }
    };
    let section = world.stuck.enter_index(world.index.root());
    assert!(!doing(grow, || top::rebuild_top(&world.index)), "another one was faster");
    drop(section);
    let (steps, most) = (steps.get().unwrap(), 2 + u64::from(world.nodes() / 64).max(4));
    assert!(steps <= most, "{steps} steps among {} nodes", world.nodes());
    world.nothing_waits();
}

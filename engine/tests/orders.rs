//! Orders that lie. Passes and walks must be complete, so they ask no order. A pass ends, and
//! removes each dead entry and no other one. A walk reads each entry once. That holds for any
//! answers of a comparison function, earlier and now.

use crate::common::*;
use nitro_engine::prelude::*;
use nitro_engine::{Forms, Index, KeyOrder, Process, Prune, Snapshot, Sweep, Swept, Tid, Walk};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

const CURRENT: u32 = u32::MAX - 1;

/// What an order says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    /// The order of bytes.
    Bytes,
    Reversed,
    Less,
    Greater,
    /// The engine then takes the order of bytes.
    Equal,
    /// Stone, paper, scissors.
    Round,
    /// The opposite of its last answer.
    Flips,
    /// Anything.
    Chance,
    /// The opposite answer if one of the keys is in the upper half.
    Half,
}

const SAYS: [Says; 9] = [
    Says::Bytes,
    Says::Reversed,
    Says::Less,
    Says::Greater,
    Says::Equal,
    Says::Round,
    Says::Flips,
    Says::Chance,
    Says::Half,
];

/// An order that depends on a setting. A search for which it has no end unwinds, as by a cancel.
struct Lying {
    says: Cell<Says>,
    calls: Cell<u64>,
    /// Calls that the search may still make.
    left: Cell<u32>,
}

impl Lying {
    fn new(says: Says) -> Lying {
        Lying { says: Cell::new(says), calls: Cell::new(0), left: Cell::new(0) }
    }

    /// What searches do with this order; None: it has unwound, and nothing has changed.
    fn search<R>(&self, search: impl FnOnce() -> R) -> Option<R> {
        self.left.set(1000);
        catch_unwind(AssertUnwindSafe(search)).ok()
    }
}

impl KeyOrder for Lying {
    const MEMCMP: bool = false;
    fn abbrev(&self, _: &[u8]) -> u64 {
        0
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let call = self.calls.replace(self.calls.get() + 1);
        match self.left.get().checked_sub(1) {
            Some(left) => self.left.set(left),
            None => resume_unwind(Box::new("no end")),
        }
        let third = |key: &[u8]| key.last().map_or(0, |byte| byte % 3);
        match self.says.get() {
            Says::Bytes => a.cmp(b),
            Says::Reversed => b.cmp(a),
            Says::Less => Ordering::Less,
            Says::Greater => Ordering::Greater,
            Says::Equal => Ordering::Equal,
            Says::Round => match (3 + third(a) - third(b)) % 3 {
                0 => a.cmp(b),
                1 => Ordering::Less,
                _ => Ordering::Greater,
            },
            Says::Flips if call.is_multiple_of(2) => b.cmp(a),
            Says::Flips => a.cmp(b),
            Says::Chance => {
                [Ordering::Less, Ordering::Equal, Ordering::Greater][Random(call).below(3) as usize]
            }
            Says::Half if a.first().max(b.first()) > Some(&127) => b.cmp(a),
            Says::Half => a.cmp(b),
        }
    }
}

fn key(i: u64, kind: u64) -> Vec<u8> {
    match kind {
        0 => Random(i).next().to_be_bytes().to_vec(),
        1 => i.to_be_bytes().to_vec(),
        2 => vec![(i % 3) as u8],
        3 => format!("key {:09}", i * 7919 % 1_000_003).into_bytes(),
        _ => [&Random(i).next().to_be_bytes()[..], &[7; 600]].concat(),
    }
}

/// The TIDs of all entries that a snapshot sees, each as often as it is there.
fn read(p: &Process, ix: Index, sn: u32) -> Vec<Tid> {
    let (mut all, mut walk) = (Vec::new(), Walk::of_snapshot(p, ix, sn));
    while walk.next_leaf() {
        all.extend((0..walk.len()).map(|i| walk.tid(i)));
    }
    all.sort_unstable();
    all
}

/// A whole pass, in not more steps than there are leaves.
fn prune(p: &Process, ix: Index, is_dead: impl Fn(Tid) -> bool) -> (u64, u64) {
    let (mut pass, mut steps) = (Prune::new(p, ix), 0);
    let leaves = ix.stats().blocks[0];
    while pass.next_leaf(&mut |tids, dead| {
        tids.iter().zip(dead).for_each(|(&tid, dead)| *dead = is_dead(tid));
    }) {
        steps += 1;
        assert!(steps < leaves, "more steps than leaves");
    }
    pass.counts()
}

/// How many of 5000 entries, all dead, are left after one pass in an order that has changed.
fn left_by(says: Says, forms: Forms, snapshot: bool) -> u64 {
    let mapping = Mapping::new(64 << 20, 1);
    let p = mapping.process(0);
    let (ix, order) = (create_with(&p, forms), Lying::new(Says::Bytes));
    for i in 0..5000u64 {
        assert_eq!(order.search(|| ix.insert(&p, &order, &i.to_be_bytes(), i)), Some(Ok(true)));
    }
    let mut sweep = Sweep::new(&p, ix);
    while sweep.next_leaves(10) == Swept::More {}
    order.says.set(says);
    let snapshot = snapshot.then(|| ix.create_snapshot(&p, 1, &mut || ()).unwrap());
    assert_eq!(prune(&p, ix, |_| false), (5000, 0), "{says:?}");
    assert_eq!(prune(&p, ix, |tid| tid % 7 != 0), (715, 4285), "{says:?}");
    assert_eq!(read(&p, ix, CURRENT), (0..5000).step_by(7).collect::<Vec<_>>(), "{says:?}");
    if let Some(snapshot) = snapshot {
        assert_eq!(read(&p, ix, snapshot.sn()).len(), 5000, "the snapshot sees all");
        ix.release(&p, snapshot);
    }
    prune(&p, ix, |_| true);
    ix.stats().live
}

/// No comparison decides what is removed, nor where a pass goes on.
#[test]
fn all_dead_entries_are_removed_under_any_order() {
    for forms in [Forms::Best, Forms::Slots, Forms::Packed] {
        for says in SAYS {
            for snapshot in [false, true] {
                assert_eq!(left_by(says, forms, snapshot), 0, "{says:?} {forms:?} {snapshot}");
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Say(Says),
    Insert(u16),
    /// Of entries that are there, those that an order finds.
    Remove(u8),
    Sweep(u8),
    Collect(u8),
    Snapshot,
    Release,
    /// A pass for TIDs with this remainder. Between its steps the next operations happen.
    Pass(u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => (0..SAYS.len()).prop_map(|i| Op::Say(SAYS[i])),
        4 => (1..400u16).prop_map(Op::Insert),
        1 => any::<u8>().prop_map(Op::Remove),
        2 => (1..60u8).prop_map(Op::Sweep),
        1 => (1..60u8).prop_map(Op::Collect),
        1 => Just(Op::Snapshot),
        1 => Just(Op::Release),
        3 => (0..4u8).prop_map(Op::Pass),
    ]
}

/// An index, the entries that must be in it, and those that a pass calls dead.
struct World<'a> {
    p: &'a Process,
    /// As another process would.
    other: &'a Process,
    ix: Index,
    order: Lying,
    kind: u64,
    live: RefCell<BTreeSet<Tid>>,
    keys: RefCell<Vec<Vec<u8>>>,
    snapshots: RefCell<Vec<(Snapshot, Vec<Tid>)>>,
    /// TIDs with this remainder do not come, as VACUUM's do not.
    dead: Cell<Option<Tid>>,
    sweep: RefCell<Sweep<'a>>,
}

impl World<'_> {
    fn is_dead(&self, tid: Tid) -> bool {
        self.dead.get().is_some_and(|dead| tid % 4 == dead)
    }

    fn act(&self, op: Op) {
        let (p, ix) = (self.other, self.ix);
        match op {
            Op::Say(says) => self.order.says.set(says),
            Op::Insert(n) => {
                for _ in 0..n {
                    let tid = self.keys.borrow().len() as Tid;
                    let key = key(tid, self.kind);
                    let insert = || ix.insert(p, &self.order, &key, tid).unwrap();
                    if !self.is_dead(tid) && self.order.search(insert) == Some(true) {
                        self.live.borrow_mut().insert(tid);
                    }
                    self.keys.borrow_mut().push(key);
                }
            }
            Op::Remove(step) => {
                let some: Vec<Tid> =
                    self.live.borrow().iter().copied().step_by(usize::from(step) + 1).collect();
                for tid in some.into_iter().filter(|&tid| !self.is_dead(tid)) {
                    let key = &self.keys.borrow()[tid as usize];
                    if self.order.search(|| ix.remove(p, &self.order, key, tid)) == Some(true) {
                        assert!(self.live.borrow_mut().remove(&tid));
                    }
                }
            }
            Op::Sweep(n) => _ = self.sweep.borrow_mut().next_leaves(n.into()),
            Op::Collect(n) => _ = ix.collect(p, n.into()),
            Op::Snapshot if self.snapshots.borrow().len() < 2 => {
                if let Ok(snapshot) = ix.create_snapshot(p, 1, &mut || ()) {
                    let seen = read(p, ix, snapshot.sn());
                    self.snapshots.borrow_mut().push((snapshot, seen));
                }
            }
            Op::Release => {
                if let Some((snapshot, _)) = self.snapshots.borrow_mut().pop() {
                    ix.release(p, snapshot);
                }
            }
            Op::Snapshot | Op::Pass(_) => {}
        }
    }

    /// A pass, with some of the operations between its steps. All that is dead goes, and nothing
    /// else does.
    fn pass(&self, dead: Tid, ops: &mut std::slice::Iter<'_, Op>) {
        self.dead.set(Some(dead));
        let before = self.ix.stats();
        let (mut pass, mut steps, mut random) = (Prune::new(self.p, self.ix), 0, Random(dead));
        loop {
            let more = pass.next_leaf(&mut |tids, dead| {
                tids.iter().zip(dead).for_each(|(&tid, dead)| *dead = self.is_dead(tid));
                if random.below(3) == 0 {
                    ops.next().into_iter().for_each(|&op| self.act(op));
                }
            });
            steps += 1;
            if !more {
                break;
            }
            if random.below(3) == 0 {
                ops.next().into_iter().for_each(|&op| self.act(op));
            }
        }
        let splits = self.ix.stats().splits - before.splits;
        assert!(steps <= before.blocks[0] + splits, "{steps} steps, {before:?}, {splits} splits");
        self.live.borrow_mut().retain(|&tid| !self.is_dead(tid));
        self.check();
        self.dead.set(None);
    }

    fn check(&self) {
        let live: Vec<Tid> = self.live.borrow().iter().copied().collect();
        assert_eq!(read(self.p, self.ix, CURRENT), live);
        assert_eq!(self.ix.stats().live, live.len() as u64);
        for (snapshot, seen) in &*self.snapshots.borrow() {
            assert!(read(self.p, self.ix, snapshot.sn()) == *seen, "a snapshot has changed");
        }
    }
}

fn run(ops: &[Op], kind: u64, forms: Forms, begins: Says) {
    let mapping = Mapping::new(64 << 20, 2);
    let (p, other) = (mapping.process(0), mapping.process(1));
    let ix = create_with(&p, forms);
    let world = World {
        p: &p,
        other: &other,
        ix,
        order: Lying::new(begins),
        kind,
        live: RefCell::default(),
        keys: RefCell::default(),
        snapshots: RefCell::default(),
        dead: Cell::new(None),
        sweep: RefCell::new(Sweep::new(&other, ix)),
    };
    world.act(Op::Insert(1500));
    let mut ops = ops.iter();
    while let Some(&op) = ops.next() {
        match op {
            Op::Pass(dead) => world.pass(dead.into(), &mut ops),
            op => world.act(op),
        }
    }
    world.check();
    // Whatever is between: a sweep ends, too.
    let (mut sweep, mut calls) = (Sweep::new(&p, ix), 0);
    let leaves = ix.stats().blocks[0] + ix.stats().dirty;
    while sweep.next_leaves(1) == Swept::More {
        calls += 1;
        assert!(calls <= leaves, "more calls than leaves");
    }
    world.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(60)))]

    /// Any lying order, any interleaving.
    #[test]
    fn walks_ask_no_order(
        ops in prop::collection::vec(op(), 1..60),
        kind in 0..5u64,
        forms in 0..FORMS.len(),
        begins in 0..SAYS.len(),
    ) {
        run(&ops, kind, FORMS[forms], SAYS[begins]);
    }
}

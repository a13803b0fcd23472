//! The index against a BTreeMap: random operations, every live snapshot, both directions.

use crate::common::*;
use nitro_engine::adopt;
use nitro_engine::prelude::*;
use nitro_engine::{
    Builder, Cursor, Forms, Index, KeyOrder, Memcmp, Process, Prune, Snapshot, Sweep, Swept, Tid,
};
use proptest::prelude::*;
use std::collections::BTreeSet;

const CURRENT: u32 = u32::MAX - 1;

/// The sort key of a model entry: what the order compares.
type Fold = fn(&[u8]) -> Vec<u8>;
type Model = BTreeSet<(Vec<u8>, Tid)>;

#[derive(Clone, Debug)]
enum Op {
    Insert(Vec<u8>, Tid),
    /// Ascending keys from here on.
    Run(u64, u16),
    /// Many TIDs of one key.
    Duplicates(Vec<u8>, u8),
    /// Entries that are inserted as a batch.
    Batch(Vec<(Vec<u8>, Tid)>),
    /// A batch of ascending keys from here on, each with this number of entries.
    Neighbours(u64, u16, u8),
    Remove(Vec<u8>, Tid),
    RemoveNth(u16),
    /// Through a cursor: every third entry of a range.
    RemoveRange(Vec<u8>, Vec<u8>, bool),
    /// Removes entries with one of these TIDs, by a pass over all leaves.
    Prune(Tid, Tid),
    Snapshot,
    Release(u8),
    Collect,
    Scan(Vec<u8>, Vec<u8>),
}

fn op() -> impl Strategy<Value = Op> {
    let tid = 0..6u64;
    prop_oneof![
        12 => (hostile_key(), tid.clone()).prop_map(|(k, t)| Op::Insert(k, t)),
        2 => (0u64..1000, 1u16..200).prop_map(|(a, n)| Op::Run(a, n)),
        1 => (hostile_key(), 1u8..).prop_map(|(k, n)| Op::Duplicates(k, n)),
        2 => prop::collection::vec((hostile_key(), tid.clone()), 1..300).prop_map(Op::Batch),
        2 => (0u64..1000, 1u16..700, 1u8..4).prop_map(|(a, n, each)| Op::Neighbours(a, n, each)),
        3 => (hostile_key(), tid.clone()).prop_map(|(k, t)| Op::Remove(k, t)),
        6 => any::<u16>().prop_map(Op::RemoveNth),
        1 => (hostile_key(), hostile_key(), any::<bool>()).prop_map(|(a, b, k)| Op::RemoveRange(a, b, k)),
        1 => (tid.clone(), tid).prop_map(|(a, b)| Op::Prune(a, b)),
        1 => Just(Op::Snapshot),
        1 => any::<u8>().prop_map(Op::Release),
        1 => Just(Op::Collect),
        1 => (hostile_key(), hostile_key()).prop_map(|(a, b)| Op::Scan(a, b)),
    ]
}

struct Run<'a, O> {
    p: &'a Process,
    ix: Index,
    order: O,
    fold: Fold,
    unfold: Fold,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
}

impl<O: KeyOrder> Run<'_, O> {
    fn insert(&mut self, key: &[u8], tid: Tid) {
        let new = self.model.insert(((self.fold)(key), tid));
        assert_eq!(self.ix.insert(self.p, &self.order, key, tid).unwrap(), new, "{key:?} {tid}");
        assert!(self.ix.contains(self.p, &self.order, key, tid));
    }

    /// Some of the entries may be there, or come twice.
    fn insert_batch(&mut self, mut entries: Vec<(Vec<u8>, Tid)>) {
        entries.sort_by_cached_key(|(key, tid)| ((self.fold)(key), *tid));
        let mut at = 0;
        while at < entries.len() {
            let term = self.ix.term();
            let next = self.ix.insert_sorted(self.p, &self.order, &Batch(&entries), at, term);
            let next = next.unwrap().expect("no snapshot ends the term");
            assert!(at < next && next <= entries.len());
            at = next;
        }
        self.model.extend(entries.iter().map(|(key, tid)| ((self.fold)(key), *tid)));
    }

    fn apply(&mut self, op: &Op) {
        let (p, ix) = (self.p, self.ix);
        match op {
            Op::Insert(key, tid) => self.insert(key, *tid),
            Op::Run(start, n) => {
                for i in 0..u64::from(*n) {
                    self.insert(&(start + i).to_be_bytes(), 1);
                }
            }
            Op::Duplicates(key, n) => {
                for tid in 0..u64::from(*n) {
                    self.insert(key, tid);
                }
            }
            Op::Batch(entries) => self.insert_batch(entries.clone()),
            Op::Neighbours(start, n, each) => {
                let keys = (0..u64::from(*n)).map(|i| (start + i).to_be_bytes().to_vec());
                let entries =
                    keys.flat_map(|key| (1..=*each).map(move |t| (key.clone(), t.into())));
                self.insert_batch(entries.collect());
            }
            Op::Remove(key, tid) => {
                let there = self.model.remove(&((self.fold)(key), *tid));
                assert_eq!(ix.remove(p, &self.order, key, *tid), there);
                assert!(!ix.contains(p, &self.order, key, *tid));
            }
            Op::RemoveNth(n) => {
                if !self.model.is_empty() {
                    let (key, tid) =
                        self.model.iter().nth(*n as usize % self.model.len()).unwrap().clone();
                    assert!(ix.remove(p, &self.order, &(self.unfold)(&key), tid));
                    self.model.remove(&(key, tid));
                }
            }
            Op::RemoveRange(lower, upper, keys) => {
                let mut cursor = Cursor::new(*keys);
                cursor.set_range(lower, Some(upper), CURRENT);
                let (mut seen, mut stay) = (0, Vec::new());
                while cursor.next(p, ix, &self.order) > 0 {
                    let first = seen;
                    let which: Vec<u16> = (0..cursor.len() as u16)
                        .filter(|_| {
                            seen += 1;
                            seen % 3 == 0
                        })
                        .collect();
                    let n = cursor.remove(p, ix, &which);
                    if n != which.len() {
                        assert!(
                            n == 0 && !self.snapshots.is_empty(),
                            "only what a snapshot sees stays"
                        );
                        stay.push(first..seen);
                    }
                }
                let (lower, upper) = ((self.fold)(lower), (self.fold)(upper));
                let mut seen = 0;
                self.model.retain(|(key, _)| {
                    let inside = lower <= *key && *key < upper;
                    seen += usize::from(inside);
                    !inside || seen % 3 != 0 || stay.iter().any(|stay| stay.contains(&(seen - 1)))
                });
            }
            Op::Prune(a, b) => {
                let mut pass = Prune::new(p, ix);
                let mut dead = |tids: &[Tid], dead: &mut [bool]| {
                    tids.iter().zip(dead).for_each(|(tid, dead)| *dead = tid == a || tid == b);
                };
                while pass.next_leaf(&mut dead) {}
                let before = self.model.len();
                self.model.retain(|(_, tid)| tid != a && tid != b);
                let left = self.model.len();
                assert_eq!(pass.counts(), (left as u64, (before - left) as u64));
            }
            Op::Snapshot => {
                if let Ok(snapshot) = ix.create_snapshot(p, 7, &mut || ()) {
                    self.snapshots.push((snapshot, self.model.clone()));
                }
            }
            Op::Release(n) => {
                if !self.snapshots.is_empty() {
                    let n = *n as usize % self.snapshots.len();
                    let (snapshot, _) = self.snapshots.swap_remove(n);
                    ix.release(p, snapshot);
                }
            }
            Op::Collect => {
                let mut sweep = Sweep::new(p, ix);
                while sweep.next_leaves(3) == Swept::More {}
                ix.collect(p, 1000);
            }
            Op::Scan(lower, upper) => self.scan(lower, Some(upper)),
        }
    }

    fn scan(&self, lower: &[u8], upper: Option<&[u8]>) {
        self.scan_at(lower, upper, CURRENT, &self.model);
        for (snapshot, model) in &self.snapshots {
            self.scan_at(lower, upper, snapshot.sn(), model);
        }
    }

    fn scan_at(&self, lower: &[u8], upper: Option<&[u8]>, sn: u32, model: &Model) {
        let (low, high) = ((self.fold)(lower), upper.map(self.fold));
        let expected: Vec<_> = model
            .iter()
            .filter(|(key, _)| *key >= low && high.as_ref().is_none_or(|high| key < high))
            .cloned()
            .collect();
        for want_keys in [true, false] {
            let mut cursor = Cursor::new(want_keys);
            cursor.set_snapshot_range(lower, upper, sn);
            let read = |cursor: &Cursor| -> Vec<(Vec<u8>, Tid)> {
                let key = |i| {
                    if !want_keys {
                        return Vec::new();
                    }
                    let (key, from) = (cursor.key(i), &cursor.keys()[cursor.start(i)..]);
                    assert!(from.starts_with(key) && from.len() >= key.len() + 16, "room behind");
                    (self.fold)(key)
                };
                (0..cursor.len()).map(|i| (key(i), cursor.tid(i))).collect()
            };
            let hide = |entries: &[(Vec<u8>, Tid)]| -> Vec<(Vec<u8>, Tid)> {
                let key = |key: &Vec<u8>| if want_keys { key.clone() } else { Vec::new() };
                entries.iter().map(|(k, tid)| (key(k), *tid)).collect()
            };
            let mut forward = Vec::new();
            while cursor.next(self.p, self.ix, &self.order) > 0 {
                forward.extend(read(&cursor));
            }
            assert_eq!(forward, hide(&expected), "forward");
            // From the end back.
            let mut backward = Vec::new();
            while cursor.prev(self.p, self.ix, &self.order) > 0 {
                let mut batch = read(&cursor);
                batch.reverse();
                backward.extend(batch);
            }
            backward.reverse();
            assert_eq!(backward, hide(&expected), "backward");
            // Two steps forward, one back.
            cursor.set_snapshot_range(lower, upper, sn);
            let mut first = Vec::new();
            if cursor.next(self.p, self.ix, &self.order) > 0 {
                first = read(&cursor);
            }
            if !first.is_empty() && cursor.next(self.p, self.ix, &self.order) > 0 {
                let mark = cursor.clone();
                assert!(cursor.prev(self.p, self.ix, &self.order) > 0);
                assert_eq!(read(&cursor), first, "back to the first batch");
                cursor = mark;
                let here = read(&cursor);
                assert_eq!(here, hide(&expected)[first.len()..][..here.len()]);
            }
        }
    }

    fn check(&self) {
        let mut entries = Vec::new();
        let report = self
            .ix
            .verify(self.p, &self.order, true, &mut |key, tid| {
                entries.push(((self.fold)(key), tid))
            })
            .unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(entries, self.model.iter().cloned().collect::<Vec<_>>());
        assert_eq!(report.live as usize, self.model.len());
    }
}

/// The content at the beginning: nothing, or some packed leaves.
fn built() -> impl Strategy<Value = Model> {
    let key = prop_oneof![hostile_key(), (0u64..1000).prop_map(|i| i.to_be_bytes().to_vec())];
    let entries = prop::collection::btree_set((key, 0..6u64), 0..1500);
    prop_oneof![1 => Just(Model::new()), 3 => entries]
}

fn run<O: KeyOrder>(order: O, forms: Forms, fold: Fold, unfold: Fold, built: &Model, ops: &[Op]) {
    let mapping = Mapping::new(64 << 20, 2);
    let before = mapping.area.usage().used;
    let p = mapping.process(0);
    let ix = create_with(&p, forms);
    assert!(mapping.area.usage().used - before <= 16 << 10);
    let model = built.iter().map(|(key, tid)| (fold(key), *tid)).collect();
    let mut run = Run { p: &p, ix, order, fold, unfold, model, snapshots: Vec::new() };
    // Packed, if that is not forbidden.
    let mut builder = Builder::new(&p, ix);
    for (key, tid) in &run.model {
        builder.push(&run.order, &unfold(key), *tid).unwrap();
    }
    adopt(&ix, &p, vec![builder.finish().unwrap()]).unwrap();
    run.check();
    for (i, op) in ops.iter().enumerate() {
        run.apply(op);
        if i % 16 == 0 {
            run.check();
        }
    }
    run.check();
    run.scan(&[], None);
    while let Some((snapshot, _)) = run.snapshots.pop() {
        ix.release(&p, snapshot);
        run.scan(&[], None);
    }
    collect(&p, ix);
    run.check();
    let stats = ix.stats();
    assert_eq!((stats.dirty, stats.live), (0, run.model.len() as u64));
    // SAFETY: no other process or thread uses it.
    unsafe { ix.destroy(&p) };
    assert_eq!(mapping.area.usage().used, before);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(60), max_shrink_iters: 3000, ..ProptestConfig::default() })]

    #[test]
    fn bytes(forms in prop::sample::select(&FORMS[..]), built in built(), ops in prop::collection::vec(op(), 1..400)) {
        run(Memcmp, forms, |key| key.to_vec(), |key| key.to_vec(), &built, &ops);
    }

    #[test]
    fn comparator(forms in prop::sample::select(&FORMS[..]), built in built(), ops in prop::collection::vec(op(), 1..300)) {
        run(IgnoreCase { abbreviate: false }, forms, fold_case, unfold_case, &built, &ops);
    }

    #[test]
    fn comparator_with_abbreviation(forms in prop::sample::select(&FORMS[..]), built in built(), ops in prop::collection::vec(op(), 1..300)) {
        run(IgnoreCase { abbreviate: true }, forms, fold_case, unfold_case, &built, &ops);
    }
}

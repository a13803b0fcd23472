//! The computation of a node, row by row or by the leaf.

use pgrx::pg_sys::{Datum, Oid, Relation, TupleTableSlot};

use super::broken;
use super::functions::Function;
use super::groups::{Groups, Tally};
use super::leaf::Leaf;
use super::queue::Queue;
use crate::am::scan::Scan;
use crate::key::KeyDesc;
use crate::pg::compat;

/// Rows of a group behind which it may go on for leaves, whose keys then say nothing new.
const MANY: i64 = 256;

/// A column of the node's rows.
struct Output {
    /// The aggregate function of the index column. None: the column itself, of the group's first
    /// row.
    function: Option<&'static Function>,
    column: usize,
    /// Which of the groups' inputs the column is, if the function takes one.
    input: usize,
}

/// The computation of a node, and its progress.
pub(super) struct Run {
    outputs: Vec<Output>,
    pub(super) groups: Groups,
    pub(super) queue: Queue,
    leaf: Leaf,
    /// Columns of the index that make a group.
    columns: usize,
    /// There is no GROUP BY: a group also of no rows.
    plain: bool,
    /// Groups that were given up already.
    pub(super) given: usize,
    /// No row comes any more.
    pub(super) ended: bool,
    /// The first columns of a row, as far as they are wanted.
    values: Vec<Datum>,
    isnull: Vec<bool>,
}

impl Run {
    /// By the numbers of a plan, see `methods`.
    pub(super) fn new(numbers: &[i32]) -> Run {
        let (columns, rest) = numbers.split_first().unwrap_or((&-1, &[]));
        let mut outputs = Vec::new();
        let (mut inputs, mut wanted) = (Vec::new(), 0);
        for pair in rest.chunks_exact(2) {
            let (oid, column) = (Oid::from(pair[0] as u32), pair[1] as usize);
            let function = (oid != Oid::INVALID).then(|| {
                Function::of(oid).unwrap_or_else(|| {
                    broken(format!("unknown aggregate function {} in a plan", oid.to_u32()))
                })
            });
            match function {
                None => wanted = wanted.max(column + 1),
                Some(function) if !function.counts_rows() => inputs.push(column),
                Some(_) => (),
            }
            outputs.push(Output { function, column, input: 0 });
        }
        inputs.sort_unstable();
        inputs.dedup();
        for output in &mut outputs {
            output.input = inputs.iter().position(|&c| c == output.column).unwrap_or(0);
        }
        let plain = *columns < 0;
        let columns = usize::try_from(*columns).unwrap_or(0);
        Run {
            outputs,
            groups: Groups::new(columns, inputs),
            queue: Queue::new(),
            leaf: Leaf::default(),
            columns,
            plain,
            given: 0,
            ended: false,
            values: vec![Datum::from(0); wanted],
            isnull: vec![false; wanted],
        }
    }

    pub(super) fn restart(&mut self) {
        self.groups.clear();
        self.queue.clear();
        (self.given, self.ended) = (0, false);
    }

    /// Whether a group is complete that was not given up yet.
    pub(super) fn has_complete(&self) -> bool {
        self.queue.is_empty() && self.given + usize::from(!self.ended) < self.groups.len()
    }

    /// Skips groups without a visible row.
    pub(super) fn pass_empty(&mut self) {
        while !self.plain && self.has_complete() && self.groups.group(self.given).1 == 0 {
            self.given += 1;
        }
    }

    pub(super) fn end(&mut self) {
        self.ended = true;
        if self.plain {
            self.groups.count(0);
        }
    }

    /// Adds the row at whose entry the scan stands.
    pub(super) fn add(&mut self, own: &Scan) {
        match own.key() {
            Some(key) => self.groups.add(own.desc(), key),
            None => self.groups.count(1),
        }
    }

    /// Puts the row at the scan's entry into the queue. Its visibility is not known yet. Returns
    /// false if it must be known now: the row may be the first one of its group, which gives the
    /// columns.
    pub(super) fn wait(&mut self, own: &Scan) -> bool {
        let desc = own.desc();
        if let Some(key) = own.key() {
            let from_key = |output: &Output| {
                output.function.is_some()
                    || output.column < self.columns && desc.columns[output.column].codec.is_exact()
            };
            let begins = !self.groups.has(key) || self.groups.last().is_some_and(|l| l.rows() == 0);
            if begins && !self.outputs.iter().all(from_key) {
                return false;
            }
            self.groups.enter(desc, key);
        }
        let group = self.groups.len() - 1;
        if let Some(last) = self.groups.last() {
            let key = own.key().unwrap_or_default();
            match last.only_counts() {
                true => self.queue.push(own.tid(), group, std::iter::empty()),
                false => self.queue.push(own.tid(), group, last.values(desc, key)),
            }
        }
        true
    }

    /// Adds rows that are known to be visible, up to the first one of another group. Returns how
    /// many, and the number of entries that it passed. `heap`: other rows can wait in the queue.
    ///
    /// # Safety
    /// `heap` is the open table of the scan.
    pub(super) unsafe fn walk(
        &mut self,
        own: &mut Scan,
        heap: Option<Relation>,
        forward: bool,
    ) -> (u64, u64) {
        let (mut rows, mut entries) = (0, 0);
        loop {
            let group = self.groups.len().wrapping_sub(1);
            let Some(mut last) = self.groups.last() else { break };
            let prefix = last.prefix;
            if let Some(heap) = heap {
                // SAFETY: by contract.
                unsafe { own.ask_ahead(heap, forward) };
            }
            let n = match own.key() {
                Some(_) => own.walk_group(prefix, forward, |d, b, w| last.add_values(d, b, w)),
                None => own.count_plain(forward),
            };
            last.count(n);
            (rows, entries) = (rows + n, entries + n);
            self.queue.pass(n);
            let many = last.rows() >= MANY;
            let numbers = if many { last.numbers(own.desc(), own.key()) } else { None };
            if many && (last.only_counts() || numbers.is_some()) {
                let numbers = numbers.as_ref();
                if let Some(heap) = heap
                    && self.leaf.read(own, prefix, forward, numbers)
                {
                    let (leaf, before) = (&self.leaf, last.rows());
                    let value = |i| numbers.map(|numbers| leaf.number(numbers, i));
                    let visible = |from, some| last.add_rows(leaf, numbers, from, some);
                    let map = &mut own.visibility;
                    // SAFETY: by contract.
                    unsafe { self.queue.sift(map, heap, group, leaf.rows(), value, visible) };
                    rows += (last.rows() - before) as u64;
                    entries += leaf.len() as u64;
                    self.queue.pass(leaf.len() as u64);
                    if self.queue.is_full(&self.groups) {
                        break;
                    }
                    continue;
                }
                if last.only_counts() && own.skip_keys(prefix, forward) {
                    continue;
                }
            } else if own.key().is_some() {
                own.read_many();
            }
            if own.key().is_none() || !own.step_visible(forward) {
                break;
            }
            self.add(own);
            (rows, entries) = (rows + 1, entries + 1);
            if self.has_complete() || self.queue.is_full(&self.groups) {
                break;
            }
        }
        (rows, entries)
    }

    /// Writes the next complete group into a slot that is clear.
    ///
    /// # Safety
    /// A live slot with a column for each output; what its values point to is of the current memory
    /// context.
    pub(super) unsafe fn give(&mut self, desc: &KeyDesc, slot: *mut TupleTableSlot) {
        let i = self.given;
        self.given += 1;
        let (key, rows) = self.groups.group(i);
        // SAFETY: the key of a row, unless nothing of it is wanted. The slot has a column for each
        // output: the planner gives a node of ours no projection.
        unsafe {
            if !self.values.is_empty() {
                desc.decode(key, &mut self.values, &mut self.isnull);
            }
            for (at, output) in self.outputs.iter().enumerate() {
                let column = output.column;
                let value = match output.function {
                    None => (!self.isnull[column]).then_some(self.values[column]),
                    Some(function) => {
                        let tally = match function.counts_rows() {
                            true => Tally { count: rows, ..Tally::default() },
                            false => self.groups.tally(desc, i, output.input),
                        };
                        function.state(&tally, desc.columns[column].codec)
                    }
                };
                *(*slot).tts_isnull.add(at) = value.is_none();
                *(*slot).tts_values.add(at) = value.unwrap_or(Datum::from(0));
            }
            compat::store_values(slot);
        }
    }
}

//! From scan keys to ranges of the index.
//!
//! Every key column gets a sorted list of disjoint intervals of its encoded values
//! (`key::Interval`): the intersection of all its conditions. An equality is a point,
//! `= ANY (array)` several points, `<` and its like an interval, IS NULL a point, IS NOT NULL an
//! interval.
//!
//! The leading columns whose intervals are all points are *enumerated*, and so is the next column
//! if it is constrained. Their combinations, in index order, are ranges of whole keys that need no
//! further test. If several ranges lie between the same two entries, the scan looks into one of
//! them and passes the others over ([`Plan::advance`]).
//!
//! Constrained columns behind them are *filters*. An entry that fails a filter tells where the next
//! entry that can pass lies ([`Plan::target`]). This is a skip scan over several columns.

mod elements;
mod points;

use std::rc::Rc;

use nitro_engine::{Beyond, Cursor};
use pgrx::pg_sys;

use super::intervals::{
    append_edge, are_points, ends_before, intersect, partition_near, starts_at_or_before, union,
};
use super::rows::RowEnd;
use super::spans::{Spans, bits};
use crate::key::columns::Columns;
use crate::key::{Bounds, Edge, Interval, KeyDesc, SENTINEL};
use crate::pg::memory;
use crate::pg::wait;

/// The conditions of a scan.
#[derive(Default)]
pub struct Plan {
    /// Per key column; `None` = unconstrained. The plans of all groups share those of the scalar
    /// columns.
    columns: Vec<Option<Rc<Vec<Interval>>>>,
    /// Conditions on the element column: a row matches when each group has one of its elements. The
    /// groups are looked for one by one, see [`Plan::by_group`].
    groups: Vec<Vec<Interval>>,
    enumerated: usize,
    filters: Vec<usize>,
    /// The filters as numbers, if all can be.
    numbers: Option<Vec<Spans>>,
    /// Conditions of row comparisons on the columns behind their first one. They hold where the
    /// first one has the value of the lower or upper end of its interval.
    rows: Vec<RowEnd>,
    /// Some condition is only approximated: the server has to check the heap tuple again.
    pub lossy: bool,
    impossible: bool,
}

/// Which filter an entry does not pass.
struct Failure {
    column: usize,
    /// Where the column begins in the key.
    start: usize,
    /// The first of its intervals that ends behind the entry's value.
    next: usize,
}

/// A bound of a range of keys, see `nitro_engine::Cursor::set_range`.
#[derive(Default)]
pub struct Range {
    /// First key that belongs to the range.
    pub lower: Vec<u8>,
    /// First key behind the range; meaningless when `unbounded`.
    upper: Vec<u8>,
    unbounded: bool,
}

impl Range {
    /// The exclusive upper bound.
    pub fn upper(&self) -> Option<&[u8]> {
        (!self.unbounded).then_some(&self.upper[..])
    }
}

/// The intervals of one scan key, and whether they only approximate it.
unsafe fn intervals_of(desc: &KeyDesc, key: &pg_sys::ScanKeyData) -> (usize, Vec<Interval>, bool) {
    let flags = key.sk_flags as u32;
    // SAFETY: the caller passes initialised scan keys of this index; a row comparison's argument is
    // an array of scan keys that ends with SK_ROW_END, and its first member is what we use.
    unsafe {
        if flags & pg_sys::SK_ROW_HEADER != 0 {
            let first = &*key.sk_argument.cast_mut_ptr::<pg_sys::ScanKeyData>();
            if first.sk_flags as u32 & pg_sys::SK_ISNULL != 0 {
                return (first.sk_attno as usize - 1, Vec::new(), false);
            }
            // `(a, b) > (x, y)` implies `a >= x`; see `rows` for the rest, which the server
            // rechecks.
            let strategy = match first.sk_strategy as u32 {
                pg_sys::BTLessStrategyNumber => pg_sys::BTLessEqualStrategyNumber,
                pg_sys::BTGreaterStrategyNumber => pg_sys::BTGreaterEqualStrategyNumber,
                other => other,
            };
            let column = first.sk_attno as usize - 1;
            let bound = desc.bound(
                column,
                strategy as u16,
                first.sk_subtype,
                first.sk_collation,
                first.sk_argument,
            );
            return (column, bound.interval.into_iter().collect(), true);
        }
        let column = key.sk_attno as usize - 1;
        if flags & pg_sys::SK_ISNULL != 0 {
            let intervals = if flags & pg_sys::SK_SEARCHNULL != 0 {
                let null = desc.null_segment(column);
                vec![Interval { lower: Edge::Before(null.clone()), upper: Edge::After(null) }]
            } else if flags & pg_sys::SK_SEARCHNOTNULL != 0 {
                vec![desc.not_null(column)]
            } else {
                // The operators are strict: a NULL argument matches nothing.
                Vec::new()
            };
            return (column, intervals, false);
        }
        if flags & pg_sys::SK_SEARCHARRAY != 0 {
            let mut lossy = false;
            let mut all = Vec::new();
            for element in array_elements(key.sk_argument) {
                wait::interrupts();
                let bound =
                    desc.bound(column, key.sk_strategy, key.sk_subtype, key.sk_collation, element);
                lossy |= bound.lossy;
                all.extend(bound.interval);
            }
            return (column, union(desc, column, all), lossy);
        }
        let bound =
            desc.bound(column, key.sk_strategy, key.sk_subtype, key.sk_collation, key.sk_argument);
        (column, bound.interval.into_iter().collect(), bound.lossy)
    }
}

/// The non-NULL elements of an array datum.
pub unsafe fn array_elements(array: pg_sys::Datum) -> Vec<pg_sys::Datum> {
    // SAFETY: the planner only builds SK_SEARCHARRAY keys with array arguments.
    unsafe {
        let array = pg_sys::pg_detoast_datum(array.cast_mut_ptr()).cast::<pg_sys::ArrayType>();
        let (mut length, mut by_value, mut align) = (0i16, false, 0);
        pg_sys::get_typlenbyvalalign((*array).elemtype, &mut length, &mut by_value, &mut align);
        let (mut values, mut nulls, mut n) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
        pg_sys::deconstruct_array(
            array,
            (*array).elemtype,
            i32::from(length),
            by_value,
            align,
            &mut values,
            &mut nulls,
            &mut n,
        );
        // An interval of two bounds for each, a few times over.
        memory::expect(n as usize * 512);
        (0..n as usize).filter(|&i| !*nulls.add(i)).map(|i| *values.add(i)).collect()
    }
}

impl Plan {
    /// Digests the scan keys of an index scan. May raise an ERROR (comparators, detoasting).
    ///
    /// # Safety
    /// `keys` must be initialised scan keys for the index that `desc` describes.
    pub unsafe fn compile(&mut self, desc: &KeyDesc, keys: &[pg_sys::ScanKeyData]) {
        self.clear();
        self.columns.resize_with(desc.nkeys, || None);
        for key in keys {
            if desc.is_element(key.sk_attno as usize - 1) {
                // SAFETY: by contract.
                let wanted = unsafe { elements::wanted(desc, key) };
                self.lossy |= wanted.lossy;
                self.impossible |= wanted.groups.iter().any(Vec::is_empty);
                memory::reserve(&mut self.groups, wanted.groups.len());
                self.groups.extend(wanted.groups);
                continue;
            }
            // SAFETY: by contract.
            let (column, intervals, lossy) = unsafe { intervals_of(desc, key) };
            self.lossy |= lossy;
            if key.sk_flags as u32 & pg_sys::SK_ROW_HEADER != 0 && !intervals.is_empty() {
                // SAFETY: by contract.
                self.rows.extend(unsafe { RowEnd::of(desc, key) });
            }
            let merged = match &self.columns[column] {
                None => intervals,
                Some(known) => intersect(desc, column, known, &intervals),
            };
            self.impossible |= merged.is_empty();
            self.columns[column] = Some(Rc::new(merged));
        }
        elements::simplify(desc, &mut self.groups);
        self.arrange(desc);
    }

    /// Forgets all conditions: each entry matches.
    pub fn clear(&mut self) {
        self.columns.clear();
        self.groups.clear();
        self.filters.clear();
        self.rows.clear();
        (self.enumerated, self.lossy, self.impossible) = (0, false, false);
    }

    /// Splits the constrained columns into enumerated ones and filters.
    fn arrange(&mut self, desc: &KeyDesc) {
        self.enumerated = 0;
        for (c, intervals) in self.columns.iter().enumerate() {
            let Some(intervals) = intervals else { break };
            self.enumerated = c + 1;
            if !are_points(desc, c, intervals) {
                break;
            }
        }
        self.filters.clear();
        self.filters.extend((self.enumerated..desc.nkeys).filter(|&c| self.columns[c].is_some()));
        let number = |&c: &usize| match desc.columns[c].comparator {
            None => Spans::of(c, self.intervals(c)),
            Some(_) => None,
        };
        self.numbers = self.filters.iter().map(number).collect();
    }

    /// A plan for each group of elements, at least one; the groups go over to them.
    pub fn by_group(&mut self, desc: &KeyDesc) -> impl Iterator<Item = Plan> {
        let all = self.groups.is_empty().then_some(None);
        let scalars = &self.columns;
        all.into_iter().chain(self.groups.drain(..).map(Some)).map(move |group| {
            let mut plan = Plan { columns: scalars.clone(), ..Plan::default() };
            if let (Some((column, _)), Some(_)) = (desc.element, &group) {
                plan.columns[column] = group.map(Rc::new);
            }
            plan.arrange(desc);
            plan
        })
    }

    /// The whole keys that can match, if all columns are points and there are at most `limit`
    /// combinations.
    pub fn keys(&self, desc: &KeyDesc, limit: usize) -> Option<Vec<Vec<u8>>> {
        let columns = 0..self.columns.len();
        let lengths = columns.clone().map(|c| self.intervals(c).len());
        let few = (1..=limit).contains(&lengths.fold(1, usize::saturating_mul));
        if !few || !columns.clone().all(|c| are_points(desc, c, self.intervals(c))) {
            return None;
        }
        let (mut at, mut keys) = (Vec::new(), Vec::new());
        self.first(&mut at, true);
        loop {
            let mut key = Vec::new();
            for (c, &i) in at.iter().enumerate() {
                append_edge(&mut key, &self.intervals(c)[i].lower, false);
            }
            keys.push(key);
            if !self.step(&mut at, true) {
                return Some(keys);
            }
        }
    }

    /// Nothing can match.
    pub fn is_impossible(&self) -> bool {
        self.impossible
    }

    /// Whether entries inside a range still have to be asked whether they pass ([`Plan::passes`]).
    pub fn has_filters(&self) -> bool {
        !self.filters.is_empty()
    }

    /// All that matches, and nothing else, lies in the range of one combination.
    pub fn is_one_range(&self) -> bool {
        let one = |c: usize| self.intervals(c).len() == 1;
        !self.lossy && !self.impossible && self.filters.is_empty() && (0..self.enumerated).all(one)
    }

    fn intervals(&self, column: usize) -> &[Interval] {
        self.columns[column].as_deref().map_or(&[], Vec::as_slice)
    }

    /// Puts `at` on the first (or last) combination of the enumerated columns.
    pub fn first(&self, at: &mut Vec<usize>, forward: bool) {
        at.clear();
        self.complete(at, forward);
    }

    /// Puts the columns behind those of `at` on their first (or last) interval.
    fn complete(&self, at: &mut Vec<usize>, forward: bool) {
        let rest = at.len()..self.enumerated;
        at.extend(rest.map(|c| if forward { 0 } else { self.intervals(c).len() - 1 }));
    }

    /// Moves `at`, whose range has been read, to the next combination in index order (or the
    /// previous one) that entries `beyond` that range may have. Returns false, and `at` stays, if
    /// there is none.
    ///
    /// Lists on several columns have more combinations than an index has entries: no two empty
    /// ranges are looked into between the same two entries.
    pub fn advance(&self, desc: &KeyDesc, at: &mut [usize], beyond: Beyond, forward: bool) -> bool {
        match beyond {
            Beyond::Nothing => false,
            Beyond::From(key) if self.movable(at, forward).is_some() => {
                let mut next = Vec::with_capacity(at.len());
                if !self.combination_at(desc, key, at, &mut next, forward) {
                    return false;
                }
                let further = if forward { next[..] > *at } else { next[..] < *at };
                if !further {
                    // A comparator contradicts itself; the scan has to end all the same.
                    return self.step(at, forward);
                }
                at.copy_from_slice(&next);
                true
            }
            _ => self.step(at, forward),
        }
    }

    /// Finds the first combination whose range does not end before a key. Going backward: the last
    /// one whose range does not begin behind it. The search begins at a combination. Returns false
    /// if there is none.
    fn combination_at(
        &self,
        desc: &KeyDesc,
        key: &[u8],
        from: &[usize],
        at: &mut Vec<usize>,
        forward: bool,
    ) -> bool {
        for (c, segment) in desc.split(key, self.enumerated).enumerate() {
            let all = self.intervals(c);
            let behind = |i: usize| !ends_before(desc, c, &all[i], segment);
            let before = |i: usize| starts_at_or_before(desc, c, &all[i], segment);
            let nearest = match forward {
                true => Some(partition_near(all.len(), from[c], |i| !behind(i)))
                    .filter(|&i| i < all.len()),
                false => partition_near(all.len(), from[c], before).checked_sub(1),
            };
            let Some(i) = nearest else {
                if !self.step(at, forward) {
                    return false;
                }
                break;
            };
            at.push(i);
            if !(before(i) && behind(i)) {
                break;
            }
        }
        self.complete(at, forward);
        true
    }

    /// The last column whose place in a combination can move on.
    fn movable(&self, at: &[usize], forward: bool) -> Option<usize> {
        let last = |c: usize| self.intervals(c).len() - 1;
        (0..at.len()).rev().find(|&c| if forward { at[c] < last(c) } else { at[c] > 0 })
    }

    /// Moves `at` to the next combination in index order (or the previous one); false: there is
    /// none, and `at` stays.
    fn step(&self, at: &mut [usize], forward: bool) -> bool {
        let Some(c) = self.movable(at, forward) else { return false };
        at[c] = if forward { at[c] + 1 } else { at[c] - 1 };
        for (later, i) in at.iter_mut().enumerate().skip(c + 1) {
            *i = if forward { 0 } else { self.intervals(later).len() - 1 };
        }
        true
    }

    /// The range of keys of one combination.
    pub fn range(&self, at: &[usize], range: &mut Range) {
        range.lower.clear();
        range.upper.clear();
        range.unbounded = false;
        let Some((&last, points)) = at.split_last() else {
            range.unbounded = true;
            return;
        };
        for (c, &i) in points.iter().enumerate() {
            if let Edge::Before(segment) = &self.intervals(c)[i].lower {
                memory::append(&mut range.lower, segment);
            }
        }
        memory::append(&mut range.upper, &range.lower);
        let interval = &self.intervals(points.len())[last];
        match (&interval.lower, self.row_end(points.len(), false)) {
            (Edge::Before(first), Some(row)) if *first == row.first => row.append(&mut range.lower),
            (edge, _) => append_edge(&mut range.lower, edge, false),
        }
        match (&interval.upper, self.row_end(points.len(), true)) {
            (Edge::After(first), Some(row)) if *first == row.first => row.append(&mut range.upper),
            (Edge::Open, _) if points.is_empty() => range.unbounded = true,
            (edge, _) => append_edge(&mut range.upper, edge, true),
        }
    }

    fn row_end(&self, column: usize, upper: bool) -> Option<&RowEnd> {
        self.rows.iter().find(|row| row.column == column && row.upper == upper)
    }

    /// Which entries of a batch pass the filters, a bit each. May raise an ERROR (comparators).
    pub fn passing(&self, desc: &KeyDesc, batch: &Cursor) -> u64 {
        let n = batch.len();
        match &self.numbers {
            _ if n == 0 => 0,
            _ if self.filters.is_empty() => u64::MAX >> (64 - n),
            Some(numbers) => {
                let all = u64::MAX >> (64 - n);
                let (mut columns, mut at) = (Columns::of(batch, all, 0), 0);
                numbers.iter().fold(all, |passing, spans| {
                    desc.columns[at..spans.column].iter().for_each(|c| columns.skip(c));
                    at = spans.column;
                    passing & spans.contain(columns.eights())
                })
            }
            None => bits((0..n).map(|i| self.passes(desc, batch.key(i)))),
        }
    }

    /// Whether an entry's key passes the filters.
    pub fn passes(&self, desc: &KeyDesc, key: &[u8]) -> bool {
        self.fails(desc, key).is_none()
    }

    /// After an entry that does not pass, makes `target` the position behind which the next one
    /// that can pass lies (going backward: before which). Returns false if the entry passes.
    /// Returns false, too, if columns before the failing one have other values in the first entry
    /// of the batch. Then fewer entries than a batch are to be skipped, and reading them costs less
    /// than a search.
    pub fn target(
        &self,
        desc: &KeyDesc,
        [first, key]: [&[u8]; 2],
        forward: bool,
        target: &mut Vec<u8>,
    ) -> bool {
        let Some(Failure { column, start, next: i }) = self.fails(desc, key) else { return false };
        if !first.starts_with(&key[..start]) {
            return false;
        }
        let intervals = self.intervals(column);
        target.clear();
        memory::append(target, &key[..start]);
        match (forward, i) {
            (true, i) if i < intervals.len() => append_edge(target, &intervals[i].lower, false),
            (true, _) => target.push(SENTINEL),
            (false, 0) => (),
            (false, i) => append_edge(target, &intervals[i - 1].upper, true),
        }
        true
    }

    fn fails(&self, desc: &KeyDesc, key: &[u8]) -> Option<Failure> {
        let &deepest = self.filters.last()?;
        let mut start = 0;
        for (column, segment) in desc.split(key, deepest + 1).enumerate() {
            let before = start;
            start += segment.len();
            if column < self.enumerated || self.columns[column].is_none() {
                continue;
            }
            let intervals = self.intervals(column);
            // The first interval that ends behind the segment.
            let next = intervals.partition_point(|i| ends_before(desc, column, i, segment));
            let within = |i| starts_at_or_before(desc, column, i, segment);
            if !intervals.get(next).is_some_and(within) {
                return Some(Failure { column, start: before, next });
            }
        }
        None
    }
}

//! Intervals of one column's encoded values: where they lie to each other, and sets of them.

use std::cmp::Ordering;

use crate::key::sort::has_order;
use crate::key::{Edge, Interval, KeyDesc, SENTINEL};
use crate::pg::memory;
use crate::pg::wait;

/// Position of an edge relative to another one in index order. `open` is what `Open` means: `Less`
/// for lower edges, `Greater` for upper ones.
fn compare_edges(
    desc: &KeyDesc,
    column: usize,
    (a, a_open): (&Edge, Ordering),
    (b, b_open): (&Edge, Ordering),
) -> Ordering {
    let side = |e: &Edge| matches!(e, Edge::After(_));
    match (a, b) {
        (Edge::Open, Edge::Open) => a_open.cmp(&b_open),
        (Edge::Open, _) => a_open,
        (_, Edge::Open) => b_open.reverse(),
        (Edge::Before(x) | Edge::After(x), Edge::Before(y) | Edge::After(y)) => {
            desc.compare_segment(column, x, y).then(side(a).cmp(&side(b)))
        }
    }
}

const LOWER: Ordering = Ordering::Less;
const UPPER: Ordering = Ordering::Greater;

/// Returns the intersection. Each list is sorted and disjoint.
pub fn intersect(desc: &KeyDesc, column: usize, a: &[Interval], b: &[Interval]) -> Vec<Interval> {
    let mut out = Vec::with_capacity(a.len().max(b.len()));
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        wait::interrupts();
        let (x, y) = (&a[i], &b[j]);
        let low = compare_edges(desc, column, (&x.lower, LOWER), (&y.lower, LOWER));
        let high = compare_edges(desc, column, (&x.upper, UPPER), (&y.upper, UPPER));
        let lower = if low.is_ge() { &x.lower } else { &y.lower };
        let upper = if high.is_le() { &x.upper } else { &y.upper };
        if compare_edges(desc, column, (lower, LOWER), (upper, UPPER)).is_lt() {
            out.push(Interval { lower: lower.clone(), upper: upper.clone() });
        }
        if high.is_le() {
            i += 1;
        } else {
            j += 1;
        }
    }
    out
}

/// Number of intervals that are sorted without a look at interrupts.
const AT_ONCE: usize = 1024;

/// The first bytes of an edge as a number.
fn beginning(edge: &Edge) -> u64 {
    let mut bytes = [0; 8];
    if let Edge::Before(segment) | Edge::After(segment) = edge {
        let n = segment.len().min(8);
        bytes[..n].copy_from_slice(&segment[..n]);
    }
    u64::from_be_bytes(bytes)
}

/// Returns the first of 0 .. n that is not `left`. All before it are. The search begins at `guess`.
pub fn partition_near(n: usize, guess: usize, left: impl Fn(usize) -> bool) -> usize {
    let (mut from, mut to, mut step) = (0, n, 1);
    if guess < n && left(guess) {
        from = guess + 1;
        while from + step <= n {
            let probe = from + step - 1;
            if !left(probe) {
                to = probe;
                break;
            }
            (from, step) = (probe + 1, 2 * step);
        }
    } else {
        to = guess.min(n);
        while step <= to {
            let probe = to - step;
            if left(probe) {
                from = probe + 1;
                break;
            }
            (to, step) = (probe, 2 * step);
        }
    }
    while from < to {
        let middle = from + (to - from) / 2;
        if left(middle) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    from
}

/// Sorts and merges: the union of the intervals of an array's elements.
pub fn union(desc: &KeyDesc, column: usize, mut all: Vec<Interval>) -> Vec<Interval> {
    // Memory for the sort, and then for the result.
    memory::expect(all.len() * size_of::<Interval>());
    if desc.columns[column].comparator.is_none() {
        // This sorts them nearly, by numbers. The rest takes few comparisons.
        for some in all.chunks_mut(AT_ONCE) {
            wait::interrupts();
            some.sort_by_cached_key(|interval| beginning(&interval.lower));
        }
    }
    let sort = || {
        all.sort_by(|a, b| {
            wait::interrupts();
            compare_edges(desc, column, (&a.lower, LOWER), (&b.lower, LOWER))
        });
    };
    if !has_order(sort) {
        desc.inconsistent();
    }
    let mut out: Vec<Interval> = Vec::with_capacity(all.len());
    for next in all {
        wait::interrupts();
        match out.last_mut() {
            Some(last)
                if compare_edges(desc, column, (&next.lower, LOWER), (&last.upper, UPPER))
                    .is_lt() =>
            {
                if compare_edges(desc, column, (&next.upper, UPPER), (&last.upper, UPPER)).is_gt() {
                    last.upper = next.upper;
                }
            }
            _ => out.push(next),
        }
    }
    out
}

/// Whether all of them are of one value each.
pub fn are_points(desc: &KeyDesc, column: usize, intervals: &[Interval]) -> bool {
    intervals.iter().all(|interval| {
        wait::interrupts();
        is_point(desc, column, interval)
    })
}

/// Whether an interval is one value.
fn is_point(desc: &KeyDesc, column: usize, i: &Interval) -> bool {
    match (&i.lower, &i.upper) {
        (Edge::Before(a), Edge::After(b)) => desc.compare_segment(column, a, b).is_eq(),
        _ => false,
    }
}

/// Appends the first position behind an edge to a key.
pub fn append_edge(key: &mut Vec<u8>, edge: &Edge, upper: bool) {
    match edge {
        Edge::Open if upper => key.push(SENTINEL),
        Edge::Open => (),
        Edge::Before(segment) => memory::append(key, segment),
        Edge::After(segment) => {
            memory::append(key, segment);
            key.push(SENTINEL);
        }
    }
}

/// Whether an interval ends before a value.
pub fn ends_before(desc: &KeyDesc, column: usize, i: &Interval, segment: &[u8]) -> bool {
    match &i.upper {
        Edge::Open => false,
        Edge::Before(s) => desc.compare_segment(column, s, segment).is_le(),
        Edge::After(s) => desc.compare_segment(column, s, segment).is_lt(),
    }
}

/// Whether an interval does not begin behind a value.
pub fn starts_at_or_before(desc: &KeyDesc, column: usize, i: &Interval, segment: &[u8]) -> bool {
    match &i.lower {
        Edge::Open => true,
        Edge::Before(s) => desc.compare_segment(column, s, segment).is_le(),
        Edge::After(s) => desc.compare_segment(column, s, segment).is_lt(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn partition_near() {
        for n in 0..40 {
            for guess in 0..n + 2 {
                for at in 0..=n {
                    assert_eq!(super::partition_near(n, guess, |i| i < at), at, "{n} {guess}");
                }
            }
        }
    }
}

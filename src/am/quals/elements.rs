//! Conditions on an element column, as groups of intervals of elements.
//!
//! A row matches when each group has at least one of the row's elements:
//!
//! | condition | groups |
//! |---|---|
//! | `c @> {a,b}` | a, b |
//! | `c && {a,b}` | a or b |
//! | `c <@ {a,b}` | a or b or no element; recheck |
//! | `c = {a,b}` | a, b; recheck |
//! | `c &> a`, range, prefix | one interval |
//! | `c IS NULL` | the marker of NULL |
//! | `c IS NOT NULL`, `c @> {}` | everything else |

use pgrx::{pg_sys, pg_sys::Datum};

use super::array_elements;
use crate::am::intervals::union;
use crate::key::elements::json::{containment, existence};
use crate::key::elements::range::{Range, bounds};
use crate::key::elements::segment;
use crate::key::elements::source::{Shape, Source};
use crate::key::elements::strategy;
use crate::key::{Bounds, EMPTY, Edge, Interval, KeyDesc, NULL_ELEMENT};
use crate::pg::{memory, wait};

/// The elements that a condition asks for. An empty group cannot be fulfilled.
#[derive(Default)]
pub struct Wanted {
    /// See the module's description.
    pub groups: Vec<Vec<Interval>>,
    /// The server has to evaluate the condition again.
    pub lossy: bool,
}

impl Wanted {
    fn exactly(groups: Vec<Vec<Interval>>) -> Wanted {
        Wanted { groups, lossy: false }
    }

    fn nothing() -> Wanted {
        Wanted::exactly(vec![Vec::new()])
    }

    fn in_doubt(self, lossy: bool) -> Wanted {
        Wanted { lossy: self.lossy | lossy, ..self }
    }
}

fn point(segment: Vec<u8>) -> Interval {
    Interval { lower: Edge::Before(segment.clone()), upper: Edge::After(segment) }
}

/// As many as an argument has elements: what each of them takes besides is small.
fn push<T>(all: &mut Vec<T>, next: T) {
    wait::interrupts();
    memory::check();
    memory::reserve(all, 1);
    all.push(next);
}

/// A group for each.
fn alone(points: Vec<Interval>) -> Vec<Vec<Interval>> {
    let mut groups = Vec::new();
    points.into_iter().for_each(|point| push(&mut groups, vec![point]));
    groups
}

/// Elements between two edges, without the placeholders.
fn elements(lower: Edge, upper: Edge) -> Vec<Interval> {
    let upper = match upper {
        Edge::Open => Edge::Before(vec![NULL_ELEMENT]),
        upper => upper,
    };
    vec![Interval { lower, upper }]
}

/// The group that all rows fulfil whose column is not NULL.
fn not_null(desc: &KeyDesc, column: usize) -> Vec<Interval> {
    vec![desc.not_null(column)]
}

/// Digests a condition on the element column. May raise an ERROR.
///
/// # Safety
/// `key` must be an initialised scan key for the element column of the index.
pub unsafe fn wanted(desc: &KeyDesc, key: &pg_sys::ScanKeyData) -> Wanted {
    let Some((column, source)) = desc.element else { return Wanted::nothing() };
    let flags = key.sk_flags as u32;
    if flags & pg_sys::SK_ISNULL != 0 {
        return if flags & pg_sys::SK_SEARCHNULL != 0 {
            Wanted::exactly(vec![vec![point(desc.null_segment(column))]])
        } else if flags & pg_sys::SK_SEARCHNOTNULL != 0 {
            Wanted::exactly(vec![not_null(desc, column)])
        } else {
            // The operators are strict.
            Wanted::nothing()
        };
    }
    // SAFETY: the argument is of the type that the strategy's operator takes.
    unsafe {
        if flags & pg_sys::SK_SEARCHARRAY == 0 {
            return one(desc, column, source, key.sk_strategy, key.sk_argument);
        }
        // `c OP ANY (array)`: one of the alternatives. Of one with several groups, the first.
        let mut all = Wanted { groups: vec![Vec::new()], lossy: false };
        for argument in array_elements(key.sk_argument) {
            wait::interrupts();
            let next = one(desc, column, source, key.sk_strategy, argument);
            if next.groups.iter().any(Vec::is_empty) {
                continue;
            }
            all.lossy |= next.lossy || next.groups.len() > 1;
            let first = next.groups.into_iter().next().unwrap_or_default();
            first.into_iter().for_each(|alternative| push(&mut all.groups[0], alternative));
        }
        all
    }
}

unsafe fn one(
    desc: &KeyDesc,
    column: usize,
    source: Source,
    strategy: u16,
    argument: Datum,
) -> Wanted {
    // SAFETY: by the caller's contract.
    unsafe {
        match source {
            Source::Array(shape) => array(desc, column, &shape, strategy, argument),
            Source::Json => document(desc, column, strategy, argument),
        }
    }
}

unsafe fn array(
    desc: &KeyDesc,
    column: usize,
    shape: &Shape,
    strategy: u16,
    argument: Datum,
) -> Wanted {
    use strategy::*;
    // SAFETY: the argument is what the strategy says: an array of the column's element type, an
    // element, a range of elements, or text.
    unsafe {
        let segment = |element| segment::of_element(desc, column, element);
        match strategy {
            OVERLAPS | CONTAINS | CONTAINED | EQUAL => {
                let (mut points, mut nulls) = (Vec::new(), false);
                shape.any_of(argument, |element| {
                    match element {
                        Some(element) => push(&mut points, point(segment(element))),
                        None => nulls = true,
                    }
                    false
                });
                let placeholder = |marker| point(vec![marker]);
                match strategy {
                    OVERLAPS => Wanted::exactly(vec![points]),
                    CONTAINS if nulls => Wanted::nothing(),
                    CONTAINS if points.is_empty() => Wanted::exactly(vec![not_null(desc, column)]),
                    CONTAINS => Wanted::exactly(alone(points)),
                    CONTAINED => {
                        points.push(placeholder(EMPTY));
                        Wanted::exactly(vec![points]).in_doubt(true)
                    }
                    _ => {
                        points.extend(nulls.then(|| placeholder(NULL_ELEMENT)));
                        if points.is_empty() {
                            points.push(placeholder(EMPTY));
                        }
                        Wanted::exactly(alone(points)).in_doubt(true)
                    }
                }
            }
            ANY_PREFIX => {
                let (lower, upper) = segment::prefix_edges(argument);
                Wanted::exactly(vec![elements(lower, upper)])
            }
            ANY_IN_RANGE => in_range(desc, column, shape, argument),
            // Strings of a linguistic collation are not kept in its order.
            _ if !shape.ordered => {
                Wanted::exactly(vec![elements(Edge::Open, Edge::Open)]).in_doubt(true)
            }
            ANY_BETWEEN => {
                let (low, high) = bounds(shape, argument);
                let lower = low.map_or(Edge::Open, |low| Edge::Before(segment(low)));
                let upper = high.map_or(Edge::Open, |high| Edge::After(segment(high)));
                Wanted::exactly(vec![elements(lower, upper)])
            }
            ANY_LESS => comparison(Edge::Open, Edge::Before(segment(argument))),
            ANY_LESS_EQUAL => comparison(Edge::Open, Edge::After(segment(argument))),
            ANY_GREATER_EQUAL => comparison(Edge::Before(segment(argument)), Edge::Open),
            ANY_GREATER => comparison(Edge::After(segment(argument)), Edge::Open),
            other => strategy::unknown(column, other),
        }
    }
}

fn comparison(lower: Edge, upper: Edge) -> Wanted {
    Wanted::exactly(vec![elements(lower, upper)])
}

unsafe fn in_range(desc: &KeyDesc, column: usize, shape: &Shape, argument: Datum) -> Wanted {
    // SAFETY: a range by the caller's contract.
    let range = unsafe { Range::of(argument) };
    let collation = desc.columns[column].collation;
    if range.empty {
        return Wanted::nothing();
    }
    if !shape.ordered || !range.is_ordered_like(shape, collation) {
        return Wanted::exactly(vec![elements(Edge::Open, Edge::Open)]).in_doubt(true);
    }
    // SAFETY: bounds of a range are of the element type.
    let segment =
        |bound: &pg_sys::RangeBound| unsafe { segment::of_element(desc, column, bound.val) };
    let lower = match &range.lower {
        bound if bound.infinite => Edge::Open,
        bound if bound.inclusive => Edge::Before(segment(bound)),
        bound => Edge::After(segment(bound)),
    };
    let upper = match &range.upper {
        bound if bound.infinite => Edge::Open,
        bound if bound.inclusive => Edge::After(segment(bound)),
        bound => Edge::Before(segment(bound)),
    };
    comparison(lower, upper)
}

unsafe fn document(desc: &KeyDesc, column: usize, strategy: u16, argument: Datum) -> Wanted {
    use strategy::*;
    let group = |entries: Vec<Vec<u8>>| {
        entries.iter().map(|entry| point(segment::of_entry(entry))).collect::<Vec<_>>()
    };
    // SAFETY: the argument is a jsonb, a text or an array of texts, as the strategy says.
    unsafe {
        match strategy {
            JSON_CONTAINS => {
                let wanted = containment(argument);
                let mut groups = Vec::new();
                wanted.groups.into_iter().for_each(|entries| push(&mut groups, group(entries)));
                if groups.is_empty() {
                    groups.push(not_null(desc, column));
                }
                Wanted { groups, lossy: wanted.recheck }
            }
            EXISTS => {
                let (entries, lossy) = existence(argument);
                Wanted { groups: vec![group(entries)], lossy }
            }
            EXISTS_ANY | EXISTS_ALL => {
                let mut wanted = Wanted::default();
                let mut any = Vec::new();
                for text in array_elements(argument) {
                    let (entries, lossy) = existence(text);
                    wanted.lossy |= lossy;
                    match strategy {
                        EXISTS_ANY => group(entries).into_iter().for_each(|p| push(&mut any, p)),
                        _ => push(&mut wanted.groups, group(entries)),
                    }
                }
                if strategy == EXISTS_ANY {
                    wanted.groups = vec![any];
                } else if wanted.groups.is_empty() {
                    wanted.groups.push(not_null(desc, column));
                }
                wanted
            }
            other => strategy::unknown(column, other),
        }
    }
}

/// Sorts the intervals of each group, and drops groups that others imply.
pub fn simplify(desc: &KeyDesc, groups: &mut Vec<Vec<Interval>>) {
    let Some((column, _)) = desc.element else { return };
    for group in groups.iter_mut().filter(|group| group.len() > 1) {
        *group = union(desc, column, std::mem::take(group));
    }
    if groups.len() < 2 {
        return;
    }
    groups.sort_unstable_by(|a, b| {
        wait::interrupts();
        a.cmp(b)
    });
    groups.dedup();
    // A value with an element is not NULL.
    let (all, null) = (not_null(desc, column), vec![point(desc.null_segment(column))]);
    if !groups.contains(&null) && groups.iter().any(|group| *group != all) {
        groups.retain(|group| *group != all);
    }
}

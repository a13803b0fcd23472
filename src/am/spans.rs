//! Intervals of a column as numbers, for filters that are asked of many entries.
//!
//! The number of a value is the number in eight bytes of a key, from the beginning of the value on,
//! the first one the highest. If the value is shorter, the bytes behind it are part of the number.
//! They decide nothing. No value of a column that is stored in byte order is the beginning of
//! another one. So it differs from an edge before either ends, or begins with the whole edge.

use crate::key::{Edge, Interval};
use crate::pg::memory;

/// Which numbers lie in the intervals of a column.
pub struct Spans {
    pub column: usize,
    /// First and last one of each, ascending.
    spans: Vec<(u64, u64)>,
}

/// The least and the greatest number that begins with an edge, if all of it is in a number.
fn numbers(edge: &[u8]) -> Option<(u64, u64)> {
    let fill = |byte| {
        let mut bytes = [byte; 8];
        bytes.get_mut(..edge.len())?.copy_from_slice(edge);
        Some(u64::from_be_bytes(bytes))
    };
    Some((fill(0)?, fill(0xff)?))
}

impl Spans {
    /// None if some edge is longer than a number. Without memory it is an ERROR.
    pub fn of(column: usize, intervals: &[Interval]) -> Option<Spans> {
        let span = |i: &Interval| {
            let low = match &i.lower {
                Edge::Open => 0,
                Edge::Before(edge) => numbers(edge)?.0,
                Edge::After(edge) => numbers(edge)?.1.checked_add(1)?,
            };
            let high = match &i.upper {
                Edge::Open => u64::MAX,
                Edge::Before(edge) => numbers(edge)?.0.checked_sub(1)?,
                Edge::After(edge) => numbers(edge)?.1,
            };
            Some((low, high))
        };
        // As long as a list of the query.
        let mut spans = Vec::new();
        memory::reserve(&mut spans, intervals.len());
        for interval in intervals {
            spans.push(span(interval)?);
        }
        Some(Spans { column, spans })
    }

    /// Which of these numbers are in one of them, a bit each.
    #[inline]
    pub fn contain(&self, numbers: impl Iterator<Item = u64>) -> u64 {
        let within = |&(low, high): &(u64, u64), n| low <= n && n <= high;
        match &self.spans[..] {
            [one] => bits(numbers.map(|n| within(one, n))),
            many => bits(numbers.map(|n| {
                let next = many.get(many.partition_point(|&(_, high)| high < n));
                next.is_some_and(|span| within(span, n))
            })),
        }
    }
}

/// A bit for each of at most 64.
#[inline]
pub fn bits(each: impl Iterator<Item = bool>) -> u64 {
    each.enumerate().fold(0, |bits, (i, one)| bits | u64::from(one) << i)
}

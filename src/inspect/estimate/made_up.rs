//! Values that are made up from some that are known, as statistics have them.

use crate::key::codec::NULL_LAST;

/// Number of bytes behind the common ones of two values that may tell the values between them
/// apart.
const TELLING: usize = 12;

/// A part of a whole, which begins at 0 and ends at 1.
#[derive(Clone, Copy)]
pub struct Part {
    pub begin: f64,
    pub len: f64,
}

impl Part {
    pub const ALL: Part = Part { begin: 0.0, len: 1.0 };

    /// Where in this part a place of the whole is, from 0 to less than 1.
    pub fn place_of(self, place: f64) -> f64 {
        ((place - self.begin) / self.len).clamp(0.0, 1.0 - f64::EPSILON)
    }

    /// A part of this part.
    pub fn part(self, part: Part) -> Part {
        Part { begin: self.begin + part.begin * self.len, len: part.len * self.len }
    }

    /// Where in this part of the table the rows are that are `values` in the order of a column.
    pub fn correlated(self, values: Part, correlation: f64) -> Part {
        if correlation == 0.0 {
            return self;
        }
        let begin = match correlation > 0.0 {
            true => values.begin,
            false => 1.0 - values.begin - values.len,
        };
        // If each row is up to so far from where it would be, this is the correlation.
        let astray = (1.0 / (correlation * correlation) - 1.0).max(0.0).sqrt() / 2.0;
        let end = (begin + values.len + astray).min(1.0);
        let begin = (begin - astray).max(0.0);
        self.part(Part { begin, len: end - begin })
    }
}

/// How many bytes two values share.
fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// The known values of one column.
pub struct Column {
    /// Segments of some of its values, ascending.
    values: Vec<Vec<u8>>,
    /// They are text: a zero is the end of each, and nowhere else.
    text: bool,
    /// The bytes that occur at each position that tells two values apart, without the ends of
    /// texts.
    positions: Vec<Position>,
    /// The gap behind each value except the last.
    gaps: Vec<Gap>,
    /// How many different values there are.
    pub distinct: f64,
    /// The share of NULLs.
    nulls: f64,
    /// Do rows come in the order of the values? 1: they do; -1: in the opposite order; 0: in none.
    pub correlation: f64,
}

/// The bytes that occur, and how many of them are below a byte.
struct Position {
    occurring: Vec<u8>,
    below: [u16; 256],
}

impl Position {
    fn new(occurs: &[bool; 256]) -> Position {
        let occurring: Vec<u8> = (0..=255).filter(|&byte| occurs[usize::from(byte)]).collect();
        let below = |byte| occurring.iter().filter(|&&other| usize::from(other) < byte).count();
        Position { below: std::array::from_fn(|byte| below(byte) as u16), occurring }
    }

    fn radix(&self) -> u128 {
        self.occurring.len() as u128
    }
}

/// The gap between two values. They share some bytes. Behind these they differ in a number, with a
/// digit for each position.
struct Gap {
    same: usize,
    end: usize,
    low: u128,
    span: u128,
    /// One more than the highest number with this number of digits.
    whole: u128,
}

impl Gap {
    fn new(a: &[u8], b: &[u8], text: bool, positions: &[Position]) -> Gap {
        let same = common(a, b);
        // The end of a text may be that of neither.
        let longest = if text { positions.len() } else { a.len().min(positions.len()) };
        let end = (same + TELLING).min(longest).max(same);
        let digits = &positions[same.min(longest)..end.min(longest)];
        let number = |value: &[u8]| {
            digits.iter().zip(same..).fold(0, |number, (position, at)| {
                let byte = value.get(at).copied().unwrap_or(0);
                number * position.radix() + u128::from(position.below[usize::from(byte)])
            })
        };
        let (low, high) = (number(a), number(b));
        let whole = digits.iter().map(Position::radix).product();
        Gap { same, end: same + digits.len(), low, span: high.saturating_sub(low), whole }
    }
}

impl Column {
    /// Makes a column from some of its values. No value is the beginning of another one.
    pub fn new(mut values: Vec<Vec<u8>>, distinct: f64, nulls: f64, correlation: f64) -> Column {
        values.sort_unstable();
        values.dedup();
        let zero = |value: &Vec<u8>| value.iter().position(|&byte| byte == 0);
        let text = values.iter().all(|value| zero(value) == Some(value.len() - 1));
        let telling =
            TELLING + values.windows(2).map(|two| common(&two[0], &two[1])).max().unwrap_or(0);
        let mut occurs = Vec::new();
        for value in &values {
            let content = &value[..value.len() - usize::from(text)];
            for (at, &byte) in content.iter().take(telling).enumerate() {
                if at == occurs.len() {
                    occurs.push([false; 256]);
                }
                occurs[at][usize::from(byte)] = true;
            }
        }
        // Of numbers that differ somewhere the known ones are a few.
        let differ = |bytes: &[bool; 256]| bytes.iter().filter(|&&occurs| occurs).count() > 1;
        for bytes in occurs.iter_mut().filter(|bytes| !text && differ(bytes)) {
            *bytes = [true; 256];
        }
        let positions: Vec<Position> = occurs.iter().map(Position::new).collect();
        let gap = |pair: &[Vec<u8>]| Gap::new(&pair[0], &pair[1], text, &positions);
        let gaps = values.windows(2).map(gap).collect();
        Column { values, text, positions, gaps, distinct, nulls, correlation }
    }

    /// Bytes of a value.
    pub fn average(&self) -> usize {
        self.values.iter().map(Vec::len).sum::<usize>() / self.values.len().max(1) + 1
    }

    /// Appends the value at a place from 0 to 1 of `group`, in which the column has `members`
    /// different ones. Says which part of the group has this value, and whether that tells where
    /// its rows are.
    pub fn append(&self, place: f64, group: Part, members: f64, key: &mut Vec<u8>) -> (Part, bool) {
        let full = 1.0 - self.nulls;
        if place >= full || self.values.is_empty() {
            key.push(NULL_LAST);
            let nulls = if self.values.is_empty() { 1.0 } else { self.nulls };
            return (Part { begin: 1.0 - nulls, len: nulls }, false);
        }
        let member = (place / full * members).floor().min(members.ceil() - 1.0);
        let part = Part { begin: member / members * full, len: full / members };
        let within = if group.len == 1.0 { 0.5 } else { scatter(group.begin.to_bits()) };
        self.value(((member + within) / members).min(1.0), key);
        (part, true)
    }

    /// Appends the value at a place from 0 to 1 in the order of the column.
    fn value(&self, place: f64, key: &mut Vec<u8>) {
        let n = self.values.len();
        if self.distinct <= n as f64 || n == 1 {
            let i = (place * n as f64) as usize;
            return key.extend_from_slice(&self.values[i.min(n - 1)]);
        }
        let number = (place * self.distinct).floor();
        let place = (number + 0.5) / self.distinct * (n - 1) as f64;
        let i = (place as usize).min(n - 2);
        self.between(i, (place - i as f64).min(1.0), number as u64, key);
    }

    /// Appends a value between the values `i` and `i + 1`. It has their common bytes, then as many
    /// bytes as tell the values there apart. Then follow the bytes of another value, which `number`
    /// chooses.
    fn between(&self, i: usize, share: f64, number: u64, key: &mut Vec<u8>) {
        let (a, gap) = (&self.values[i], &self.gaps[i]);
        let told = gap.low + (gap.span as f64 * share) as u128;
        // Their distance. Digits that count far less do not tell them apart.
        let apart = gap.span as f64 * (self.values.len() - 1) as f64 / self.distinct;
        let mut unit = gap.whole;
        key.extend_from_slice(&a[..gap.same]);
        let mut at = gap.same;
        while at < gap.end && (unit as f64 * 4.0 > apart || unit == 1) {
            let position = &self.positions[at];
            unit /= position.radix();
            key.push(position.occurring[(told / unit % position.radix()) as usize]);
            at += 1;
        }
        // A value with the same beginning has the usual length of values with it.
        let from = self.values.partition_point(|value| value[0] < a[0]);
        let to = self.values.partition_point(|value| value[0] <= a[0]);
        let other = &self.values[from + (scatter(number) * (to - from) as f64) as usize];
        key.extend_from_slice(other.get(at..).unwrap_or(&[]));
        if self.text && other.len() <= at {
            key.push(0);
        }
    }
}

/// A number from 0 to less than 1 that looks random.
pub fn scatter(n: u64) -> f64 {
    let z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((z ^ (z >> 27)) >> 11) as f64 / (1u64 << 53) as f64
}

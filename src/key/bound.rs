//! Conditions on a column as intervals of segments.

use super::codec::{self, Codec, Int, Layout};
use super::column::Column;
use super::datetime::{DAY, around, date_in_timestamp, timestamp_in_date};
use super::datum;
use super::desc::KeyDesc;
use pgrx::pg_sys::{self, Datum, Oid};

/// A place in the index order of a column's segments. (The derived order is none of the index: it
/// brings equal ones together.)
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Edge {
    /// The end of the column's values; no NULLs are there.
    Open,
    /// Before all entries with this segment.
    Before(Vec<u8>),
    /// After all entries with this segment.
    After(Vec<u8>),
}

/// Segments between two edges, in index order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Interval {
    /// Where it begins.
    pub lower: Edge,
    /// Where it ends.
    pub upper: Edge,
}

/// The range of a column that a condition `column OP constant` allows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bound {
    /// `None`: nothing matches.
    pub interval: Option<Interval>,
    /// Some entries in the interval may not match: recheck the condition on the heap tuple.
    pub lossy: bool,
}

/// Where the constant of a condition lies among the column's values.
pub enum Place {
    /// At the value with this ascending segment.
    At(Vec<u8>),
    /// After that value and before the next one.
    Behind(Vec<u8>),
    /// Not before the first and not after the second value; where, only the operator knows.
    Within(Vec<u8>, Vec<u8>),
    /// Anywhere.
    Unknown,
}

/// The interval of ascending segments for a btree strategy (1 `<`, 2 `<=`, 3 `=`, 4 `>=`, 5 `>`).
pub fn ascending(strategy: u16, place: Place) -> (Option<(Edge, Edge)>, bool) {
    use Edge::{After, Before, Open};
    let (edges, lossy) = match (strategy, place) {
        (1, Place::At(v)) => ((Open, Before(v)), false),
        (3, Place::At(v)) => ((Before(v.clone()), After(v)), false),
        (4, Place::At(v)) => ((Before(v), Open), false),
        (3, Place::Behind(_)) => return (None, false),
        (1 | 2, Place::At(v) | Place::Behind(v)) => ((Open, After(v)), false),
        (4 | 5, Place::At(v) | Place::Behind(v)) => ((After(v), Open), false),
        (1 | 2, Place::Within(_, high)) => ((Open, After(high)), true),
        (4 | 5, Place::Within(low, _)) => ((Before(low), Open), true),
        (_, Place::Within(low, high)) => ((Before(low), After(high)), true),
        _ => ((Open, Open), true),
    };
    (Some(edges), lossy)
}

fn encoded(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    // Most values fit this. A list of a query may have a million values.
    let mut segment = Vec::with_capacity(16);
    put(&mut segment);
    segment
}

fn int(v: i64) -> Vec<u8> {
    encoded(|out| codec::put_int(out, v))
}

fn placed((v, exact): (i64, bool)) -> Place {
    if exact { Place::At(int(v)) } else { Place::Behind(int(v)) }
}

fn within((low, high): (i64, i64)) -> Place {
    if low == high { Place::At(int(low)) } else { Place::Within(int(low), int(high)) }
}

const TIMESTAMP_INFINITIES: (i64, i64) = (i64::MIN, i64::MAX);
const DATE_INFINITIES: (i64, i64) = (i32::MIN as i64, i32::MAX as i64);

/// Finds a constant of type `argtype` among the column's values.
///
/// # Safety
/// `arg` must be a value of `argtype`.
unsafe fn place(column: &Column, argtype: Oid, arg: Datum) -> Place {
    use pg_sys::{DATEOID, INT2OID, INT4OID, INT8OID, TIMESTAMPOID, TIMESTAMPTZOID};
    if argtype == Oid::INVALID || argtype == column.typid {
        // SAFETY: a value of the column's type.
        return Place::At(encoded(|out| unsafe { datum::put(column.codec, arg, out, |_| ()) }));
    }
    let as_int = |kind| datum::int(kind, arg);
    match (column.codec, column.typid, argtype) {
        (Codec::Int(_), INT2OID | INT4OID | INT8OID, INT2OID) => Place::At(int(as_int(Int::Int2))),
        (Codec::Int(_), INT2OID | INT4OID | INT8OID, INT4OID) => Place::At(int(as_int(Int::Int4))),
        (Codec::Int(_), INT2OID | INT4OID | INT8OID, INT8OID) => Place::At(int(as_int(Int::Int8))),
        // A date begins at midnight of the session's zone, for timestamptz.
        (Codec::Int(_), DATEOID, TIMESTAMPOID) => placed(timestamp_in_date(as_int(Int::Int8))),
        (Codec::Int(_), TIMESTAMPOID, DATEOID) => {
            placed(date_in_timestamp(as_int(Int::Int4) as i32))
        }
        (Codec::Int(_), DATEOID, TIMESTAMPTZOID) => {
            within(around(timestamp_in_date(as_int(Int::Int8)).0, 1, DATE_INFINITIES))
        }
        (Codec::Int(_), TIMESTAMPTZOID, DATEOID) => {
            let midnight = date_in_timestamp(as_int(Int::Int4) as i32).0;
            within(around(midnight, DAY, TIMESTAMP_INFINITIES))
        }
        (Codec::Int(_), TIMESTAMPOID, TIMESTAMPTZOID)
        | (Codec::Int(_), TIMESTAMPTZOID, TIMESTAMPOID) => {
            within(around(as_int(Int::Int8), DAY, TIMESTAMP_INFINITIES))
        }
        (Codec::Float8, _, pg_sys::FLOAT4OID) => {
            Place::At(encoded(|out| codec::put_float8(out, datum::float4(arg).into())))
        }
        (Codec::Float4, _, pg_sys::FLOAT8OID) => {
            let (v, exact) = codec::float8_in_float4(datum::float8(arg));
            let segment = encoded(|out| codec::put_float4(out, v));
            if exact { Place::At(segment) } else { Place::Behind(segment) }
        }
        // SAFETY: a value of `argtype`, which has this layout.
        (_, pg_sys::TEXTOID, pg_sys::NAMEOID) => unsafe { string(column, Layout::Name, arg) },
        // SAFETY: as above.
        (_, pg_sys::NAMEOID, pg_sys::TEXTOID) => unsafe { string(column, Layout::Varlena, arg) },
        _ => Place::Unknown,
    }
}

/// # Safety
/// `arg` must be a string of this layout.
unsafe fn string(column: &Column, layout: Layout, arg: Datum) -> Place {
    let put = |bytes: &[u8]| match column.codec {
        Codec::Bytes(_) => Place::At(encoded(|out| codec::put_bytes(out, bytes))),
        // A raw segment must be a value of the column's type.
        Codec::Raw(Layout::Name) if bytes.len() >= pg_sys::NAMEDATALEN as usize => Place::Unknown,
        Codec::Raw(_) => Place::At(encoded(|out| codec::put_raw(out, bytes))),
        _ => Place::Unknown,
    };
    // SAFETY: by contract.
    unsafe { datum::with_bytes(layout, arg, put) }
}

/// Turns ascending edges into index order, with the NULLs outside.
fn in_index_order(column: &Column, (low, high): (Edge, Edge)) -> Interval {
    let flip = column.flip();
    let invert = |mut segment: Vec<u8>| {
        if flip != 0 {
            codec::invert(&mut segment);
        }
        segment
    };
    let mirror = |edge| match edge {
        Edge::Open => Edge::Open,
        Edge::Before(v) => Edge::After(invert(v)),
        Edge::After(v) => Edge::Before(invert(v)),
    };
    let (mut lower, mut upper) =
        if column.desc { (mirror(high), mirror(low)) } else { (low, high) };
    if lower == Edge::Open && column.nulls_first {
        lower = Edge::After(vec![codec::NULL_FIRST]);
    }
    if upper == Edge::Open && !column.nulls_first {
        upper = Edge::Before(vec![codec::NULL_LAST]);
    }
    Interval { lower, upper }
}

/// Conditions on columns as intervals of their segments.
pub trait Bounds {
    /// Returns the segments for which `col OP arg` can hold; `strategy` is the btree strategy of
    /// OP. The operators are strict: NULLs are outside of every interval.
    ///
    /// # Safety
    /// `arg` must be a value of `argtype`; `InvalidOid` is the operator class's input type.
    unsafe fn bound(
        &self,
        col: usize,
        strategy: u16,
        argtype: Oid,
        collation: Oid,
        arg: Datum,
    ) -> Bound;

    /// Appends the segment that [`Bounds::bound`] has for `col = arg`, if it has one and is of the
    /// column's own type. Returns whether it did.
    ///
    /// # Safety
    /// As `bound`.
    unsafe fn append_point(
        &self,
        col: usize,
        argtype: Oid,
        collation: Oid,
        arg: Datum,
        key: &mut Vec<u8>,
    ) -> bool;

    /// Returns the segment of NULL.
    fn null_segment(&self, col: usize) -> Vec<u8>;

    /// Returns all values, without NULLs: `IS NOT NULL`.
    fn not_null(&self, col: usize) -> Interval;
}

impl Bounds for KeyDesc {
    unsafe fn bound(
        &self,
        col: usize,
        strategy: u16,
        argtype: Oid,
        collation: Oid,
        arg: Datum,
    ) -> Bound {
        let column = &self.columns[col];
        // Another collation has another order: nothing can be told (the planner does not ask).
        let foreign = column.collation != Oid::INVALID && collation != column.collation;
        let place = match foreign {
            true => Place::Unknown,
            // SAFETY: by contract.
            false => unsafe { place(column, argtype, arg) },
        };
        let (edges, lossy) = ascending(strategy, place);
        Bound { interval: edges.map(|e| in_index_order(column, e)), lossy }
    }

    #[inline]
    unsafe fn append_point(
        &self,
        col: usize,
        argtype: Oid,
        collation: Oid,
        arg: Datum,
        key: &mut Vec<u8>,
    ) -> bool {
        let column = &self.columns[col];
        let own = argtype == Oid::INVALID || argtype == column.typid;
        if !own || column.collation != Oid::INVALID && collation != column.collation {
            return false;
        }
        let start = key.len();
        // SAFETY: a value of the column's type.
        unsafe { datum::put(column.codec, arg, key, |_| ()) };
        if column.flip() != 0 {
            codec::invert(&mut key[start..]);
        }
        true
    }

    fn null_segment(&self, col: usize) -> Vec<u8> {
        vec![self.columns[col].null_marker()]
    }

    fn not_null(&self, col: usize) -> Interval {
        in_index_order(&self.columns[col], (Edge::Open, Edge::Open))
    }
}

//! Which aggregate functions are computed, and their partial states as the server has them.

use pgrx::pg_sys::{self, Datum, Oid};

use super::groups::Tally;
use crate::key::codec::{Codec, Int};
use crate::key::datum;
use crate::pg::compat;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rows,
    Values,
    /// The state is the sum.
    Sum,
    /// The state is an array of the count and the sum.
    Average,
    /// The state is the count and the sum, serialized.
    LongSum,
    Min,
    Max,
}

/// An aggregate function of the server that can be computed here.
pub struct Function {
    oid: u32,
    /// The exact type of the column. 0: any type.
    argument: Oid,
    kind: Kind,
}

const fn function(oid: u32, argument: Oid, kind: Kind) -> Function {
    Function { oid, argument, kind }
}

/// Not floating-point numbers: their sums depend on the order, and `-0` is as large as `0`.
static FUNCTIONS: &[Function] = &[
    function(pg_sys::F_COUNT_, pg_sys::InvalidOid, Kind::Rows),
    function(pg_sys::F_COUNT_ANY, pg_sys::InvalidOid, Kind::Values),
    function(pg_sys::F_SUM_INT2, pg_sys::INT2OID, Kind::Sum),
    function(pg_sys::F_SUM_INT4, pg_sys::INT4OID, Kind::Sum),
    function(pg_sys::F_SUM_INT8, pg_sys::INT8OID, Kind::LongSum),
    function(pg_sys::F_AVG_INT2, pg_sys::INT2OID, Kind::Average),
    function(pg_sys::F_AVG_INT4, pg_sys::INT4OID, Kind::Average),
    function(pg_sys::F_AVG_INT8, pg_sys::INT8OID, Kind::LongSum),
    function(pg_sys::F_MIN_INT2, pg_sys::INT2OID, Kind::Min),
    function(pg_sys::F_MAX_INT2, pg_sys::INT2OID, Kind::Max),
    function(pg_sys::F_MIN_INT4, pg_sys::INT4OID, Kind::Min),
    function(pg_sys::F_MAX_INT4, pg_sys::INT4OID, Kind::Max),
    function(pg_sys::F_MIN_INT8, pg_sys::INT8OID, Kind::Min),
    function(pg_sys::F_MAX_INT8, pg_sys::INT8OID, Kind::Max),
    function(pg_sys::F_MIN_OID.to_u32(), pg_sys::OIDOID, Kind::Min),
    function(pg_sys::F_MAX_OID.to_u32(), pg_sys::OIDOID, Kind::Max),
    function(pg_sys::F_MIN_DATE, pg_sys::DATEOID, Kind::Min),
    function(pg_sys::F_MAX_DATE, pg_sys::DATEOID, Kind::Max),
    function(pg_sys::F_MIN_TIME, pg_sys::TIMEOID, Kind::Min),
    function(pg_sys::F_MAX_TIME, pg_sys::TIMEOID, Kind::Max),
    function(pg_sys::F_MIN_TIMESTAMP, pg_sys::TIMESTAMPOID, Kind::Min),
    function(pg_sys::F_MAX_TIMESTAMP, pg_sys::TIMESTAMPOID, Kind::Max),
    function(pg_sys::F_MIN_TIMESTAMPTZ, pg_sys::TIMESTAMPTZOID, Kind::Min),
    function(pg_sys::F_MAX_TIMESTAMPTZ, pg_sys::TIMESTAMPTZOID, Kind::Max),
    function(pg_sys::F_BOOL_AND, pg_sys::BOOLOID, Kind::Min),
    function(pg_sys::F_EVERY, pg_sys::BOOLOID, Kind::Min),
    function(pg_sys::F_BOOL_OR, pg_sys::BOOLOID, Kind::Max),
];

impl Function {
    /// The function of this OID, if it is computed here.
    pub fn of(oid: Oid) -> Option<&'static Function> {
        FUNCTIONS.iter().find(|f| f.oid == oid.to_u32())
    }

    /// Whether it counts rows, and so has no argument.
    pub fn counts_rows(&self) -> bool {
        self.kind == Kind::Rows
    }

    /// Whether it counts the rows in which its argument is not NULL.
    pub fn counts_values(&self) -> bool {
        self.kind == Kind::Values
    }

    /// Whether it takes a column of this type.
    pub fn takes(&self, column: Oid) -> bool {
        self.argument == pg_sys::InvalidOid || self.argument == column
    }

    /// Whether it can be computed of a column that is stored so: only whether it is NULL matters,
    /// or it is a number.
    pub fn reads(&self, codec: Codec) -> bool {
        matches!(self.kind, Kind::Rows | Kind::Values) || matches!(codec, Codec::Int(_))
    }

    /// The state as the server's own function would leave it, serialized; None for NULL. `column`
    /// is how the column is stored.
    ///
    /// # Safety
    /// Allocates in the current memory context.
    pub(super) unsafe fn state(&self, tally: &Tally, column: Codec) -> Option<Datum> {
        let value = |number| match column {
            Codec::Int(kind) => datum::from_int(kind, number),
            _ => datum::from_int(Int::Int8, number),
        };
        match self.kind {
            Kind::Rows | Kind::Values => Some(Datum::from(tally.count)),
            // SAFETY: by contract.
            Kind::Average => Some(unsafe { compat::array_of_two(tally.count, tally.sum as i64) }),
            _ if tally.count == 0 => None,
            Kind::Sum => Some(Datum::from(tally.sum as i64)),
            // SAFETY: by contract.
            Kind::LongSum => Some(unsafe { compat::long_sum(tally.count, tally.sum) }),
            Kind::Min => Some(value(tally.least)),
            Kind::Max => Some(value(tally.greatest)),
        }
    }
}

//! Rows of a function, whose values find their columns by name.
//!
//! The library is replaced with a restart, the SQL of the extension by ALTER EXTENSION UPDATE in each database, sooner
//! or later or never. So a function may be declared with the columns of another version than this one: a value goes to
//! the column of its name and type, a value without such a column is left out, a column without a value is NULL.

use std::ffi::CStr;

use pgrx::PgTupleDesc;
use pgrx::pg_sys::{self, Datum, FunctionCallInfo, Oid};
use pgrx::prelude::*;

/// What a row has under a name; none is NULL.
pub type Named = (&'static str, Option<Value>);

/// A value and, with it, the type that its column must have.
#[derive(Clone, Copy)]
pub enum Value {
    Oid(u32),
    Int4(i32),
    Int8(i64),
    Text(&'static str),
    Name(pg_sys::NameData),
    Time(TimestampWithTimeZone),
}

impl Value {
    /// A count, which SQL has as bigint.
    pub fn count(n: u64) -> Value {
        Value::Int8(i64::try_from(n).unwrap_or(i64::MAX))
    }

    fn type_oid(self) -> Oid {
        match self {
            Value::Oid(_) => pg_sys::OIDOID,
            Value::Int4(_) => pg_sys::INT4OID,
            Value::Int8(_) => pg_sys::INT8OID,
            Value::Text(_) => pg_sys::TEXTOID,
            Value::Name(_) => pg_sys::NAMEOID,
            Value::Time(_) => pg_sys::TIMESTAMPTZOID,
        }
    }

    fn datum(self) -> Option<Datum> {
        match self {
            Value::Oid(n) => Oid::from(n).into_datum(),
            Value::Int4(n) => n.into_datum(),
            Value::Int8(n) => n.into_datum(),
            Value::Text(s) => s.into_datum(),
            Value::Name(name) => {
                // SAFETY: palloc never returns null, and the memory is aligned for whatever there is.
                unsafe {
                    let copy = pg_sys::palloc(size_of::<pg_sys::NameData>()).cast();
                    *copy = name;
                    Some(Datum::from(copy))
                }
            }
            Value::Time(t) => t.into_datum(),
        }
    }
}

/// Returns `rows` from the function that is called.
///
/// # Safety
/// `fcinfo` is of a call from SQL of a function that returns a set of rows.
pub unsafe fn give<R: AsRef<[Named]>>(fcinfo: FunctionCallInfo, rows: &[R]) {
    // SAFETY: by contract; the server checks that the caller takes a set, and makes the store and its descriptor,
    // which live as long as the call. The arrays have an element for each column.
    unsafe {
        pg_sys::InitMaterializedSRF(fcinfo, 0);
        let result = (*fcinfo).resultinfo.cast::<pg_sys::ReturnSetInfo>();
        let (store, columns) = ((*result).setResult, (*result).setDesc);
        let described = PgTupleDesc::from_pg_unchecked(columns);
        for row in rows {
            let mut values = vec![Datum::from(0); described.len()];
            let mut nulls = vec![true; described.len()];
            for (column, (value, null)) in described.iter().zip(values.iter_mut().zip(&mut nulls)) {
                let name = CStr::from_ptr(column.attname.data.as_ptr());
                let found = row.as_ref().iter().find(|(own, _)| own.as_bytes() == name.to_bytes());
                let found = found.and_then(|(_, value)| *value);
                if let Some(found) = found.filter(|v| v.type_oid() == column.atttypid)
                    && let Some(datum) = found.datum()
                {
                    (*value, *null) = (datum, false);
                }
            }
            pg_sys::tuplestore_putvalues(store, columns, values.as_mut_ptr(), nulls.as_mut_ptr());
        }
    }
}

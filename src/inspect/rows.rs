//! Rows of a function, whose values find their columns by name.
//!
//! A restart replaces the library. ALTER EXTENSION UPDATE replaces the SQL of the extension in each
//! database, sooner, later or never. So a function may be declared with the columns of another
//! version. A value goes to the column of its name and type. A value without a column is left out.
//! A column without a value is NULL.

use std::ffi::CStr;

use pgrx::PgTupleDesc;
use pgrx::pg_sys::{self, Datum, FunctionCallInfo, Oid};
use pgrx::prelude::*;

/// A value of a row and its name. None is NULL.
pub type Named = (&'static str, Option<Value>);

/// A value and, with it, the type that its column must have.
#[derive(Clone, Copy)]
pub enum Value {
    Bool(bool),
    Oid(u32),
    Int4(i32),
    Int8(i64),
    Text(&'static str),
    Name(pg_sys::NameData),
    Time(TimestampWithTimeZone),
    Lsn(pg_sys::XLogRecPtr),
}

impl Value {
    /// A count, which SQL has as bigint.
    pub fn count(n: u64) -> Value {
        Value::Int8(i64::try_from(n).unwrap_or(i64::MAX))
    }

    fn type_oid(self) -> Oid {
        match self {
            Value::Bool(_) => pg_sys::BOOLOID,
            Value::Oid(_) => pg_sys::OIDOID,
            Value::Int4(_) => pg_sys::INT4OID,
            Value::Int8(_) => pg_sys::INT8OID,
            Value::Text(_) => pg_sys::TEXTOID,
            Value::Name(_) => pg_sys::NAMEOID,
            Value::Time(_) => pg_sys::TIMESTAMPTZOID,
            Value::Lsn(_) => pg_sys::PG_LSNOID,
        }
    }

    fn datum(self) -> Option<Datum> {
        match self {
            Value::Bool(is) => is.into_datum(),
            Value::Oid(n) => Oid::from(n).into_datum(),
            Value::Int4(n) => n.into_datum(),
            Value::Int8(n) => n.into_datum(),
            Value::Text(s) => s.into_datum(),
            Value::Name(name) => {
                // SAFETY: palloc never returns null, and the memory is aligned for whatever there
                // is.
                unsafe {
                    let copy = pg_sys::palloc(size_of::<pg_sys::NameData>()).cast();
                    *copy = name;
                    Some(Datum::from(copy))
                }
            }
            Value::Time(t) => t.into_datum(),
            Value::Lsn(lsn) => Some(Datum::from(lsn)),
        }
    }
}

/// Returns `rows` from the function that is called.
///
/// # Safety
/// `fcinfo` is of a call from SQL of a function that returns a set of rows.
pub unsafe fn give<R: AsRef<[Named]>>(fcinfo: FunctionCallInfo, rows: &[R]) {
    // SAFETY: by contract.
    let mut store = unsafe { Store::of(fcinfo) };
    rows.iter().for_each(|row| store.add(row.as_ref()));
}

/// The rows that the function that is called returns, in a store of the server, which may go to
/// disk.
pub struct Store {
    store: *mut pg_sys::Tuplestorestate,
    columns: pg_sys::TupleDesc,
    values: Vec<Datum>,
    nulls: Vec<bool>,
}

impl Store {
    /// Begins with no row.
    ///
    /// # Safety
    /// As [`give`]; the result is used no longer than the call lasts.
    pub unsafe fn of(fcinfo: FunctionCallInfo) -> Store {
        // SAFETY: by contract; the server checks that the caller takes a set, and makes the store
        // and its descriptor, which live as long as the call.
        unsafe {
            pg_sys::InitMaterializedSRF(fcinfo, 0);
            let result = (*fcinfo).resultinfo.cast::<pg_sys::ReturnSetInfo>();
            let (store, columns) = ((*result).setResult, (*result).setDesc);
            let width = (*columns).natts as usize;
            Store { store, columns, values: vec![Datum::from(0); width], nulls: vec![true; width] }
        }
    }

    /// Adds a row.
    pub fn add(&mut self, row: &[Named]) {
        // SAFETY: the descriptor and the store live as long as this; the arrays have an element for
        // each column.
        unsafe {
            let described = PgTupleDesc::from_pg_unchecked(self.columns);
            let places = self.values.iter_mut().zip(&mut self.nulls);
            for (column, (value, null)) in described.iter().zip(places) {
                let name = CStr::from_ptr(column.attname.data.as_ptr());
                let found = row.iter().find(|(own, _)| own.as_bytes() == name.to_bytes());
                let found = found.and_then(|(_, value)| *value);
                let found = found.filter(|v| v.type_oid() == column.atttypid);
                let datum = found.and_then(Value::datum);
                (*value, *null) = (datum.unwrap_or(Datum::from(0)), datum.is_none());
            }
            let (values, nulls) = (self.values.as_mut_ptr(), self.nulls.as_mut_ptr());
            pg_sys::tuplestore_putvalues(self.store, self.columns, values, nulls);
        }
    }
}

//! `nitro_feed`: what the WAL says about the rows of tables, as a standby reads it.

use pgrx::fcinfo::pg_getarg_datum;
use pgrx::pg_sys::{self, FunctionCallInfo, XLogRecPtr};
use pgrx::prelude::*;

use super::rows::{self, Value};
use crate::feed::rows::{Action, Change, read};
use crate::feed::{Gap, readable_end};
use crate::pg::compat::lsn_text;
use crate::pg::error::Failure;

/// Returns the changes that the WAL names in the current database, from the first record at or
/// behind one position to another. NULL as the second position means the end that can be read now.
/// ERROR if the WAL is not there.
#[pg_extern]
fn nitro_feed(fcinfo: FunctionCallInfo) {
    crate::pg::witness!();
    // SAFETY: declared with two arguments of type pg_lsn, the first one not NULL, and to return a
    // set of rows; a function called from SQL runs in a transaction.
    unsafe {
        let end = readable_end();
        let [from, to] =
            [0, 1].map(|i| pg_getarg_datum(fcinfo, i).map(|d| d.value() as XLogRecPtr));
        let (Some(from), to) = (from, to.unwrap_or(end)) else {
            refuse("the start of the WAL to be read must not be null".into());
        };
        if from > to {
            refuse(format!("WAL start {} is behind WAL end {}", lsn_text(from), lsn_text(to)));
        }
        if to > end {
            refuse(format!("WAL end {} is behind the end of the WAL", lsn_text(to)));
        }
        let mut store = rows::Store::of(fcinfo);
        let here = pg_sys::MyDatabaseId.to_u32();
        let outcome = read(from, to, |lsn, change| {
            if let Some(row) = row(here, lsn, change) {
                store.add(&row);
            }
        });
        if let Err(gap) = outcome {
            fail(from, &gap);
        }
    }
}

/// The row of a change, if it is one of the current database.
fn row(here: u32, lsn: XLogRecPtr, change: Change) -> Option<[rows::Named; 6]> {
    let (database, file, block, action, offset) = match change {
        Change::Block(at, block, action) => {
            let (name, offset) = match action {
                Action::Row(offset) => ("row", Some(offset)),
                Action::Gone => ("gone", None),
                Action::Look => ("look", None),
            };
            (at.database, Some(at), Some(block), name, offset)
        }
        Change::File(at) => (at.database, Some(at), None, "file", None),
        Change::Database(database) => (database, None, None, "database", None),
    };
    (database == here).then(|| {
        [
            ("lsn", Some(Value::Lsn(lsn))),
            ("tablespace", file.map(|at| Value::Oid(at.tablespace))),
            ("relfilenode", file.map(|at| Value::Oid(at.number))),
            ("block", block.map(|block| Value::Int8(block.into()))),
            ("action", Some(Value::Text(action))),
            ("line_pointer", offset.map(|offset| Value::Int4(offset.into()))),
        ]
    })
}

fn refuse(message: String) -> ! {
    Failure::new(PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE, message).raise()
}

fn fail(from: XLogRecPtr, gap: &Gap) -> ! {
    let code = match gap {
        Gap::Missing(_) => PgSqlErrorCode::ERRCODE_UNDEFINED_FILE,
        Gap::Foreign(_) => PgSqlErrorCode::ERRCODE_DATA_CORRUPTED,
        Gap::Incomplete(_) | Gap::Unreadable(_) => PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
    };
    Failure::new(code, format!("could not read the WAL from {}", lsn_text(from)))
        .detail(format!("The reader said: {}.", gap.why()))
        .raise()
}

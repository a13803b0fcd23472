//! The values of an index by the server's statistics.

use nitro_engine::MAX_KEY_LEN;
use pgrx::PgTupleDesc;
use pgrx::pg_sys::{self, AttStatsSlot, Datum, Oid, Relation};
use pgrx::prelude::*;

use super::made_up::Column;
use crate::key::codec::{self, Codec};
use crate::key::datum;
use crate::pg::error::Failure;
use crate::pg::{compat, memory};

/// Where values and their statistics are.
pub(super) struct Source {
    /// The table, or the index of an expression.
    relation: Oid,
    number: i16,
    pub(super) typid: Oid,
    typmod: i32,
    pub(super) collation: Oid,
    inherited: bool,
    /// How many different ones its values have, where an index knows.
    pub(super) elements: Option<f64>,
}

impl Source {
    /// A column of an open table.
    pub(super) unsafe fn column(table: Relation, number: i16) -> Source {
        // SAFETY: the table has this column; open by contract.
        unsafe {
            refuse_unreadable(table, number);
            let inherited = (*(*table).rd_rel).relkind as u8 == pg_sys::RELKIND_PARTITIONED_TABLE;
            Source { inherited, ..Source::of(table, number) }
        }
    }

    /// An expression, which may use any column.
    pub(super) unsafe fn expression(table: Relation, index: Relation, number: i16) -> Source {
        // SAFETY: both open by contract.
        unsafe {
            refuse_unreadable(table, 0);
            Source::of(index, number)
        }
    }

    unsafe fn of(relation: Relation, number: i16) -> Source {
        // SAFETY: an open relation that has this column.
        let attributes = unsafe { PgTupleDesc::from_pg_unchecked((*relation).rd_att) };
        let attribute = attributes.get(number as usize - 1).expect("the relation has this column");
        Source {
            // SAFETY: as above.
            relation: unsafe { (*relation).rd_id },
            number,
            typid: attribute.atttypid,
            typmod: attribute.atttypmod,
            collation: attribute.attcollation,
            inherited: false,
            elements: None,
        }
    }
}

/// Raises an ERROR if the user may not read the column (0: the table), or not all of its rows,
/// because statistics reveal values. The rule is that of `pg_stats`.
unsafe fn refuse_unreadable(table: Relation, number: i16) {
    // SAFETY: an open table.
    unsafe {
        let (relid, user) = ((*table).rd_id, pg_sys::GetUserId());
        let (right, granted) =
            (pg_sys::ACL_SELECT as pg_sys::AclMode, pg_sys::AclResult::ACLCHECK_OK);
        let column =
            || number != 0 && pg_sys::pg_attribute_aclcheck(relid, number, user, right) == granted;
        let readable = pg_sys::pg_class_aclcheck(relid, user, right) == granted || column();
        let failure = Failure::new(
            PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
            format!("permission denied for table {}", compat::name(table)),
        );
        if !readable {
            failure.raise();
        }
        let enforced = pg_sys::CheckEnableRlsResult::RLS_ENABLED as i32;
        if pg_sys::check_enable_rls(relid, user, true) == enforced {
            failure.detail("Policies hide rows of the table from this role.").raise();
        }
    }
}

/// A row of `pg_statistic`, until it is dropped.
struct Statistics(pg_sys::HeapTuple);

impl Drop for Statistics {
    fn drop(&mut self) {
        // While an ERROR unwinds, abort releases it.
        if !std::thread::panicking() {
            // SAFETY: found in `of`.
            unsafe { pg_sys::ReleaseSysCache(self.0) };
        }
    }
}

impl Statistics {
    unsafe fn of(source: &Source) -> Option<Statistics> {
        // SAFETY: catalogue access by the caller's contract.
        let row = unsafe {
            pg_sys::SearchSysCache3(
                pg_sys::SysCacheIdentifier::STATRELATTINH as _,
                Datum::from(source.relation),
                Datum::from(source.number),
                Datum::from(source.inherited),
            )
        };
        (!row.is_null()).then(|| Statistics(row))
    }

    fn form(&self) -> &pg_sys::FormData_pg_statistic {
        // SAFETY: a row of that catalogue.
        unsafe { &*pg_sys::GETSTRUCT(self.0).cast() }
    }

    /// Hands the values and numbers of a kind to `use_it`.
    unsafe fn slot<T>(&self, kind: u32, use_it: impl FnOnce(&AttStatsSlot) -> T) -> Option<T> {
        let flags = pg_sys::ATTSTATSSLOT_VALUES | pg_sys::ATTSTATSSLOT_NUMBERS;
        // SAFETY: a live row; the slot is freed after its use.
        unsafe {
            let mut slot = AttStatsSlot::default();
            let flags = match kind {
                pg_sys::STATISTIC_KIND_DECHIST | pg_sys::STATISTIC_KIND_CORRELATION => {
                    pg_sys::ATTSTATSSLOT_NUMBERS
                }
                pg_sys::STATISTIC_KIND_HISTOGRAM => pg_sys::ATTSTATSSLOT_VALUES,
                _ => flags,
            };
            let (kind, any) = (kind as i32, pg_sys::InvalidOid);
            if !pg_sys::get_attstatsslot(&mut slot, self.0, kind, any, flags as i32) {
                return None;
            }
            let result = use_it(&slot);
            pg_sys::free_attstatsslot(&mut slot);
            Some(result)
        }
    }
}

/// Appends the segments of some values.
unsafe fn encode(slot: &AttStatsSlot, codec: Codec, out: &mut Vec<Vec<u8>>) {
    for i in 0..slot.nvalues as usize {
        let (mut segment, mut payload) = (Vec::new(), Vec::new());
        // SAFETY: values of the type that the codec is for.
        unsafe {
            let value = *slot.values.add(i);
            datum::put(codec, value, &mut segment, |extra| {
                codec::put_extra(&mut payload, 0, extra)
            });
        }
        segment.append(&mut payload);
        out.push(segment);
    }
}

fn column(
    mut values: Vec<Vec<u8>>,
    distinct: f64,
    nulls: f64,
    correlation: f64,
    width: usize,
) -> Column {
    if values.len() < 2 && distinct > values.len() as f64 {
        // Only the length of unknown values is known. It may be any length of char(n), even one
        // that no key can have.
        let width = width.min(MAX_KEY_LEN);
        memory::expect(4 * width);
        values = [0x00, 0xFF].map(|byte| [&[0x80][..], &vec![byte; width + 1]].concat()).to_vec();
    }
    Column::new(values, distinct, nulls, correlation)
}

/// Returns the values of a column by the statistics.
pub(super) unsafe fn values(source: &Source, codec: Codec, rows: f64) -> Column {
    // SAFETY: catalogue access by the caller's contract; the values of a slot have the column's
    // type where their type says so.
    unsafe {
        let Some(statistics) = Statistics::of(source) else {
            let width = pg_sys::get_typavgwidth(source.typid, source.typmod).max(1);
            return column(Vec::new(), rows, 0.0, 0.0, width as usize);
        };
        let mut known = Vec::new();
        for kind in [pg_sys::STATISTIC_KIND_MCV, pg_sys::STATISTIC_KIND_HISTOGRAM] {
            statistics.slot(kind, |slot| {
                if slot.valuetype == source.typid {
                    encode(slot, codec, &mut known);
                }
            });
        }
        let form = statistics.form();
        let nulls = f64::from(form.stanullfrac);
        let distinct = match f64::from(form.stadistinct) {
            0.0 => rows,
            share if share < 0.0 => -share * rows,
            number => number,
        };
        let mut correlation = 0.0;
        statistics.slot(pg_sys::STATISTIC_KIND_CORRELATION, |slot| {
            if slot.nnumbers > 0 {
                correlation = f64::from(*slot.numbers);
            }
        });
        column(known, distinct, nulls, correlation, form.stawidth.max(1) as usize)
    }
}

/// Returns the elements of arrays by the statistics, and the number of entries of a row.
pub(super) unsafe fn elements(
    source: &Source,
    element: Oid,
    codec: Codec,
    rows: f64,
) -> (Column, f64) {
    // SAFETY: as in `values`.
    unsafe {
        let statistics = Statistics::of(source);
        let mut known = Vec::new();
        let (mut seen, mut rarest) = (0.0, 0.0);
        let mut number = 1.0;
        let mut width = pg_sys::get_typavgwidth(element, -1).max(1) as usize;
        if let Some(statistics) = &statistics {
            statistics.slot(pg_sys::STATISTIC_KIND_DECHIST, |slot| {
                if slot.nnumbers > 0 {
                    // The last one is the average.
                    number = f64::from(*slot.numbers.add(slot.nnumbers as usize - 1)).max(1.0);
                }
            });
            statistics.slot(pg_sys::STATISTIC_KIND_MCELEM, |slot| {
                let n = slot.nvalues as usize;
                if slot.valuetype == element && slot.nnumbers as usize > n {
                    encode(slot, codec, &mut known);
                    seen = (0..n).map(|i| f64::from(*slot.numbers.add(i))).sum();
                    rarest = f64::from(*slot.numbers.add(n));
                }
            });
            width = width.min((statistics.form().stawidth as f64 / number) as usize).max(1);
        }
        // Unlisted elements are rarer than all listed ones.
        let unlisted = (number - seen).max(0.0) / (rarest / 2.0).max(1.0 / rows.max(1.0));
        let estimated = known.len() as f64 + if unlisted < 1.0 { 0.0 } else { unlisted };
        let distinct = source.elements.map_or(estimated, |counted| counted.max(known.len() as f64));
        (column(known, distinct.min(rows * number), 0.0, 0.0, width), number)
    }
}

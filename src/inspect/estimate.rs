//! `nitro_estimate_size`: how much memory an index would take, by the statistics of its table.

mod made_up;
mod statistics;
mod trial;

use std::ffi::CString;

use nitro_engine::IndexOptions;
use pgrx::pg_sys::{self, Oid, Relation};
use pgrx::prelude::*;

use crate::key::abbreviate::Abbreviator;
use crate::key::codec::{self, Codec};
use crate::key::column::{self, include_codec, key_codec};
use crate::pg::error::Failure;
use crate::pg::{catalog, compat, text};
use crate::state::open::{self, Wrong};
use crate::state::options;
use made_up::Column;
use statistics::{Source, elements, values};
use trial::{Order, Table, Trial};

const WORK: &str = "estimate the size of";
const LOCK: pg_sys::LOCKMODE = pg_sys::AccessShareLock as pg_sys::LOCKMODE;

/// Bytes of shared memory that a nitro index like this one, or on these columns of the table, takes
/// when it has just been built.
#[pg_extern]
fn nitro_estimate_size(relation: Option<Oid>, columns: Option<Vec<Option<String>>>) -> Option<i64> {
    crate::pg::witness!();
    let relid = relation?;
    // SAFETY: a function called from SQL runs in a transaction with catalogue access. Opened
    // relations are closed, or released by an abort.
    unsafe {
        let table = pg_sys::IndexGetRelation(relid, true);
        let bytes = if table == pg_sys::InvalidOid {
            of_columns(relid, columns)
        } else {
            of_index(relid, table, columns)
        };
        Some(i64::try_from(bytes).unwrap_or(i64::MAX))
    }
}

/// Opens a table with an AccessShareLock.
unsafe fn open_table(relid: Oid) -> Relation {
    // SAFETY: catalogue access by the caller's contract.
    unsafe {
        let table = pg_sys::try_relation_open(relid, LOCK);
        if table.is_null() {
            open::refuse(WORK, relid, Wrong::Condition("was dropped".into()));
        }
        let kind = (*(*table).rd_rel).relkind as u8;
        let kinds =
            [pg_sys::RELKIND_RELATION, pg_sys::RELKIND_MATVIEW, pg_sys::RELKIND_PARTITIONED_TABLE];
        if !kinds.contains(&kind) {
            open::refuse(WORK, relid, Wrong::Kind("is neither a table nor an index"));
        }
        if catalog::is_distributed(relid) {
            let name = compat::name(table);
            Failure::new(
                PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
                format!("cannot {WORK} a nitro index on distributed table \"{name}\""),
            )
            .detail("The rows and their statistics are in the shards of the table.")
            .hint("Estimate it for each shard: SELECT * FROM run_command_on_placements('table', $$SELECT nitro_estimate_size('%s', '{column}')$$).")
            .raise();
        }
        table
    }
}

unsafe fn of_columns(relid: Oid, columns: Option<Vec<Option<String>>>) -> u64 {
    let columns: Vec<String> = columns.unwrap_or_default().into_iter().flatten().collect();
    // SAFETY: catalogue access by the caller's contract.
    unsafe {
        let table = open_table(relid);
        if columns.is_empty() {
            Failure::new(
                PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
                "columns of the index are not specified",
            )
            .hint("Call nitro_estimate_size('table', '{column, column}'), or name an index.")
            .raise();
        }
        let most = pg_sys::INDEX_MAX_KEYS as usize;
        if columns.len() > most {
            Failure::new(
                PgSqlErrorCode::ERRCODE_TOO_MANY_COLUMNS,
                format!("cannot use more than {most} columns in an index"),
            )
            .raise();
        }
        let mut plan = Plan::of(table);
        for name in columns {
            let text = CString::new(name.as_bytes()).unwrap_or_default();
            let number = pg_sys::get_attnum(relid, text.as_ptr());
            if number <= 0 {
                Failure::new(
                    PgSqlErrorCode::ERRCODE_UNDEFINED_COLUMN,
                    format!(
                        "column \"{name}\" of relation \"{}\" does not exist",
                        compat::name(table)
                    ),
                )
                .raise();
            }
            let source = Source::column(table, number);
            plan.add(&source, source.collation, None, false);
        }
        plan.bytes(table, IndexOptions::default().fillfactor)
    }
}

unsafe fn of_index(relid: Oid, heap: Oid, columns: Option<Vec<Option<String>>>) -> u64 {
    if columns.is_some() {
        Failure::new(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            "columns must not be specified for an index",
        )
        .hint("Omit the second argument, or name the table.")
        .raise();
    }
    // SAFETY: table before index, the usual order of locks. Open until the end.
    unsafe {
        let table = open_table(heap);
        let index = pg_sys::try_relation_open(relid, LOCK);
        if index.is_null() || pg_sys::IndexGetRelation(relid, true) != heap {
            open::refuse(WORK, relid, Wrong::Condition("was dropped".into()));
        }
        let form = &*(*index).rd_index;
        let (keys, all) = (form.indnkeyatts as usize, form.indnatts as usize);
        // Support function 1 of either compares.
        let ordered = options::is_nitro(index) || (*(*index).rd_rel).relam == pg_sys::BTREE_AM_OID;
        let mut plan = Plan::of(table);
        if catalog::is_partial(index) && (*(*index).rd_rel).reltuples >= 0.0 {
            plan.rows = f64::from((*(*index).rd_rel).reltuples);
        }
        let numbers = form.indkey.values.as_slice(all);
        for (i, &number) in numbers.iter().enumerate() {
            let mut source = match number {
                0 => Source::expression(table, index, i as i16 + 1),
                number => Source::column(table, number),
            };
            source.elements = if all == 1 { elements_of_gin(index) } else { None };
            let included = i >= keys;
            let collation = match included {
                true => source.collation,
                false => *(*index).rd_indcollation.add(i),
            };
            let compare = (ordered && !included)
                .then(|| pg_sys::index_getprocid(index, i as i16 + 1, 1))
                .filter(|&function| function != pg_sys::InvalidOid);
            plan.add(&source, collation, compare, included);
        }
        let fillfactor = match options::is_nitro(index) {
            true => options::fillfactor(index),
            false => IndexOptions::default().fillfactor,
        };
        let bytes = plan.bytes(table, fillfactor);
        pg_sys::index_close(index, LOCK);
        bytes
    }
}

/// How many different elements a GIN index has: its own count, of when it was made or vacuumed
/// last. ANALYZE lists none if all are rare.
unsafe fn elements_of_gin(index: Relation) -> Option<f64> {
    // SAFETY: an open index, which has pages: one of a partitioned table has none, nor has one that
    // is not valid yet; one that is not permanent may have none here, or such as are another
    // session's.
    unsafe {
        let form = &*(*index).rd_rel;
        let has_pages = form.relkind as u8 == pg_sys::RELKIND_INDEX
            && form.relpersistence as u8 == pg_sys::RELPERSISTENCE_PERMANENT
            && (*(*index).rd_index).indisvalid;
        if form.relam != pg_sys::GIN_AM_OID || !has_pages {
            return None;
        }
        let mut counts = pg_sys::GinStatsData::default();
        pg_sys::ginGetStats(index, &raw mut counts);
        (counts.nEntries > 0).then_some(counts.nEntries as f64)
    }
}

/// The plan so far.
struct Plan {
    table: Table,
    /// Of the table that are in the index.
    rows: f64,
    /// Entries of a row.
    elements: f64,
    columns: Vec<Column>,
    order: Order,
}

impl Plan {
    unsafe fn of(table: Relation) -> Plan {
        let (mut pages, mut rows, mut visible) = (0, 0.0, 0.0);
        // SAFETY: an open table.
        unsafe {
            let widths = std::ptr::null_mut();
            pg_sys::estimate_rel_size(table, widths, &mut pages, &mut rows, &mut visible);
        }
        let rows = rows.max(0.0);
        let table = Table { rows, pages: pages.into() };
        Plan { table, rows, elements: 1.0, columns: Vec::new(), order: Order::Bytes }
    }

    /// Adds a column. `compare`: its comparison function, if it is known.
    unsafe fn add(
        &mut self,
        source: &Source,
        collation: Oid,
        compare: Option<Oid>,
        included: bool,
    ) {
        // SAFETY: catalogue access by the caller's contract.
        unsafe {
            let element = pg_sys::get_base_element_type(source.typid);
            if !included && element != pg_sys::InvalidOid {
                let codec = self.codec(element, collation, None);
                let (column, elements) = elements(source, element, codec, self.rows);
                self.elements = elements;
                return self.columns.push(column);
            }
            let codec = match included {
                true => include_codec(source.typid, layout(source.typid)),
                false => self.codec(source.typid, collation, compare),
            };
            self.columns.push(values(source, codec, self.rows));
        }
    }

    unsafe fn codec(&mut self, typid: Oid, collation: Oid, compare: Option<Oid>) -> Codec {
        // SAFETY: catalogue access by the caller's contract.
        unsafe {
            let compare = compare.unwrap_or_else(|| {
                let known = pg_sys::lookup_type_cache(typid, pg_sys::TYPECACHE_CMP_PROC as i32);
                (*known).cmp_proc
            });
            if compare == pg_sys::InvalidOid || typid == pg_sys::JSONBOID {
                let name = text::from_pointer(pg_sys::format_type_be(typid));
                Failure::new(
                    PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
                    format!("cannot estimate the size of a nitro index on type {name}"),
                )
                .detail("The statistics do not tell how many entries a row would have, or the type has no order.")
                .raise();
            }
            let codec = key_codec(compare, collation, layout(typid));
            let Codec::Raw(layout) = codec else { return codec };
            let first = self.columns.is_empty();
            let heads = match first {
                true => {
                    Abbreviator::new(compare, collation, pg_sys::CurrentMemoryContext).is_some()
                }
                false => self.order != Order::Compared,
            };
            self.order = if heads { Order::Abbreviated } else { Order::Compared };
            // A string as long, whose end tells it from others.
            if collation == pg_sys::InvalidOid { codec } else { Codec::Bytes(layout) }
        }
    }

    unsafe fn bytes(self, table: Relation, fillfactor: u8) -> u64 {
        let entries = (self.rows * self.elements).round() as u64;
        let Plan { table: rows, columns, order, .. } = self;
        let bytes = Trial { table: rows, columns, entries, order, fillfactor }.bytes();
        // SAFETY: opened by the caller, and not used any more.
        unsafe { pg_sys::relation_close(table, LOCK) };
        bytes
    }
}

unsafe fn layout(typid: Oid) -> codec::Layout {
    let (mut length, mut by_value) = (0, false);
    // SAFETY: a type of the catalogue.
    unsafe { pg_sys::get_typlenbyval(typid, &mut length, &mut by_value) };
    column::layout(typid, length, by_value)
}

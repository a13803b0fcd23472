//! `nitro_estimate_size`: how much memory an index would take, by the statistics of its table.

mod made_up;
mod trial;

use std::ffi::CString;

use nitro_engine::{IndexOptions, MAX_KEY_LEN};
use pgrx::PgTupleDesc;
use pgrx::pg_sys::{self, AttStatsSlot, Datum, Oid, Relation};
use pgrx::prelude::*;

use crate::key::abbreviate::Abbreviator;
use crate::key::codec::{self, Codec};
use crate::key::column::{self, include_codec, key_codec};
use crate::key::datum;
use crate::pg::error::Failure;
use crate::pg::{catalog, compat, memory, text};
use crate::state::open::{self, Wrong};
use crate::state::options;
use made_up::Column;
use trial::{Order, Table, Trial};

const WORK: &str = "estimate the size of";
const LOCK: pg_sys::LOCKMODE = pg_sys::AccessShareLock as pg_sys::LOCKMODE;

/// Bytes of shared memory that a nitro index like this one, or on these columns of the table, takes when it
/// has just been built.
#[pg_extern]
fn nitro_estimate_size(relation: Option<Oid>, columns: Option<Vec<Option<String>>>) -> Option<i64> {
    crate::pg::witness!();
    let relid = relation?;
    // SAFETY: a function called from SQL runs in a transaction with catalogue access; what is opened is
    // closed, or given back by abort.
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
    // SAFETY: table before index, as everybody locks; open until the end.
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

/// How many different elements a GIN index has: its own count, of when it was made or vacuumed last. ANALYZE lists none if all are rare.
unsafe fn elements_of_gin(index: Relation) -> Option<f64> {
    // SAFETY: an open index, which has pages: one of a partitioned table has none, nor has one that is not valid yet; one that is not permanent
    // may have none here, or such as are another session's.
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

/// Where values and their statistics are.
struct Source {
    /// The table, or the index of an expression.
    relation: Oid,
    number: i16,
    typid: Oid,
    typmod: i32,
    collation: Oid,
    inherited: bool,
    /// How many different ones its values have, where an index knows.
    elements: Option<f64>,
}

impl Source {
    /// A column of an open table.
    unsafe fn column(table: Relation, number: i16) -> Source {
        // SAFETY: the table has this column; open by contract.
        unsafe {
            refuse_unreadable(table, number);
            let inherited = (*(*table).rd_rel).relkind as u8 == pg_sys::RELKIND_PARTITIONED_TABLE;
            Source { inherited, ..Source::of(table, number) }
        }
    }

    /// An expression, which may use any column.
    unsafe fn expression(table: Relation, index: Relation, number: i16) -> Source {
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

/// Statistics tell something of the values: ERROR for who may not read the column (0: the table), or not all of its
/// rows. As `pg_stats` has it.
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

/// What is known so far.
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
        // Of values that are not known, only how long they are: any length of char(n), most of which no key can have.
        let width = width.min(MAX_KEY_LEN);
        memory::expect(4 * width);
        values = [0x00, 0xFF].map(|byte| [&[0x80][..], &vec![byte; width + 1]].concat()).to_vec();
    }
    Column::new(values, distinct, nulls, correlation)
}

/// What the statistics say of a column's values.
unsafe fn values(source: &Source, codec: Codec, rows: f64) -> Column {
    // SAFETY: catalogue access by the caller's contract; the values of a slot have the column's type
    // where their type says so.
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

/// What they say of the elements of arrays, and how many entries a row has.
unsafe fn elements(source: &Source, element: Oid, codec: Codec, rows: f64) -> (Column, f64) {
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
        // Those that are not listed are rarer than all that are.
        let unlisted = (number - seen).max(0.0) / (rarest / 2.0).max(1.0 / rows.max(1.0));
        let estimated = known.len() as f64 + if unlisted < 1.0 { 0.0 } else { unlisted };
        let distinct = source.elements.map_or(estimated, |counted| counted.max(known.len() as f64));
        (column(known, distinct.min(rows * number), 0.0, 0.0, width), number)
    }
}

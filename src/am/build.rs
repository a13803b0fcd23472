//! CREATE INDEX and everything else that writes a new index: `ambuild`, `ambuildempty`.
//!
//! The server scans the heap (`table_index_build_scan`). Entries are sorted and loaded bottom up,
//! by several processes if the server wants that (`parallel`). The new incarnation is private until
//! the transaction commits, so no reader or writer meets the index before it is READY. An ERROR
//! aborts the transaction, whose callback returns the memory (see `lifecycle`).
//!
//! In two cases a lack of nitro memory is no ERROR: the server makes an existing index anew
//! (REINDEX, TRUNCATE, rewrites of the table), or the table is empty. The index is then left
//! unbuilt with a WARNING, as after a restart, and brought up on demand. The memory of the old
//! index is free when the transaction commits.

use std::ffi::c_void;

use nitro_engine::{BuildError, Builder, IndexOptions, KeyOrder, OutOfMemory, Tid};
use pgrx::pg_sys::{Datum, Relation};
use pgrx::prelude::*;

mod own_rows;
mod parallel;

use super::unique::{self, Neighbours};
use crate::key::KeyDesc;
use crate::key::refuse;
use crate::key::row::Keys;
use crate::key::sort::Sorter;
use crate::pg::compat;
use crate::pg::error::Failure;
use crate::pg::guc::{self, WhenFull};
use crate::pg::memory;
use crate::pg::stop::{self, Point};
use crate::pg::text;
use crate::state::claim::Claim;
use crate::state::directory;
use crate::state::file::{File, Table};
use crate::state::handle::{Handle, Unfinished, with_order};
use crate::state::refusal;
use crate::state::{given_up, hosts, identity, lifecycle, options, shmem};

/// Phases shown in `pg_stat_progress_create_index`; 1 is the server's own "initializing".
const PHASE_SCAN: i64 = 2;
const PHASE_SORT: i64 = 3;
const PHASE_LOAD: i64 = 4;

/// Names a phase (amcanbuildphasename).
#[pg_guard]
pub unsafe extern "C-unwind" fn phase_name(phase: i64) -> *mut core::ffi::c_char {
    crate::pg::witness!();
    let name = match phase {
        1 => c"initializing",
        PHASE_SCAN => c"scanning table",
        PHASE_SORT => c"sorting entries",
        PHASE_LOAD => c"loading index bottom-up",
        _ => return std::ptr::null_mut(),
    };
    // SAFETY: a constant; the server only reads it.
    name.as_ptr().cast_mut()
}

fn progress(parameter: u32, value: i64) {
    // SAFETY: writes this backend's own progress entry.
    unsafe { pg_sys::pgstat_progress_update_param(parameter as i32, value) };
}

/// Builds the index of a heap (`ambuild`).
#[pg_guard]
pub unsafe extern "C-unwind" fn build(
    heap: Relation,
    index: Relation,
    info: *mut pg_sys::IndexInfo,
) -> *mut pg_sys::IndexBuildResult {
    crate::pg::witness!();
    // SAFETY: the server passes open, locked relations.
    unsafe {
        refuse_other_tables(heap);
        let started = std::time::Instant::now();
        Handle::forget(index);
        lifecycle::sweep_once();
        let process = shmem::process();
        // Says what is not supported before anything is written.
        let desc = KeyDesc::for_index(index);
        if !pg_sys::ReindexIsProcessingIndex((*index).rd_id) {
            refuse_borrowed_classes(index, &desc);
        }
        hosts::check(index);
        let incarnation = identity::create(index, pg_sys::ForkNumber::MAIN_FORKNUM);
        // TRUNCATE of a table that is new in this transaction rebuilds in the same file, and so
        // does ON COMMIT DELETE ROWS. The earlier incarnation is gone, and no callback will tell.
        let here = File::of(index);
        directory::get().remove(process, |entry| entry.is_at(here));
        if hosts::is_elsewhere(index) {
            // The table is not read, so broken chains of HOT updates are not found.
            (*info).ii_BrokenHotChain |= !(*info).ii_Concurrent;
            // How many rows there are is not known.
            return result(-1.0, -1.0);
        }
        let Some(handle) = Handle::attach(index, incarnation, Table::of(heap)) else {
            // An index without an entry in the directory is unbuilt. Its rows were not checked for
            // duplicates.
            let unknown = unique::is_unique(index) && !is_empty(heap);
            if unknown || !is_made_anew(heap, index) {
                refusal::no_entry(index).raise();
            }
            let unbuilt = format!("Index \"{}\" was left unbuilt.", compat::name(index));
            refusal::no_entry(index).detail(unbuilt).warn();
            // The table has as many rows as it was said to have.
            let tuples = f64::from((*(*heap).rd_rel).reltuples).max(0.0);
            return result(tuples, tuples);
        };
        // Code of the index may run queries, on its own table for one, and checks of this very
        // index.
        let claim = Claim::of_new(&handle);
        let begun = own_rows::Begun::now();
        let job = Job { heap, index, info, handle: &handle };
        let tuples = with_order!(handle.desc, order => {
            let (heap_tuples, outcome) = match parallel::build(&job, order) {
                Some(done) => done,
                None => job.build(order),
            };
            match outcome {
                Ok((engine, loaded)) => {
                    begun.refuse_own_rows(heap, index);
                    stop::at(Point::CreateLoaded);
                    claim.create(engine, started.elapsed().as_millis() as u64);
                    lifecycle::created(handle.entry);
                    (heap_tuples, loaded as f64)
                }
                // The process that brings it up reads the table, with the rows that code of the
                // index has inserted.
                Err(LeftUnbuilt) => {
                    // An index that is made anew has room when the old one is gone.
                    if !is_made_anew(heap, index) {
                        given_up::refused(handle.entry);
                    }
                    (heap_tuples, heap_tuples)
                }
            }
        });
        result(tuples.0, tuples.1)
    }
}

unsafe fn result(heap_tuples: f64, index_tuples: f64) -> *mut pg_sys::IndexBuildResult {
    // SAFETY: allocated with its type.
    unsafe {
        let result: *mut pg_sys::IndexBuildResult =
            pg_sys::palloc0(size_of::<pg_sys::IndexBuildResult>()).cast();
        (*result).heap_tuples = heap_tuples;
        (*result).index_tuples = index_tuples;
        result
    }
}

/// Returns true if the server makes an existing index anew, or one of a table without pages: the
/// user did not ask for more memory.
unsafe fn is_made_anew(heap: Relation, index: Relation) -> bool {
    // SAFETY: open relations.
    unsafe { pg_sys::ReindexIsProcessingIndex((*index).rd_id) || is_empty(heap) }
}

unsafe fn is_empty(heap: Relation) -> bool {
    // SAFETY: open relation.
    unsafe { compat::blocks(heap) == 0 }
}

/// Writes the init fork of an unlogged index (`ambuildempty`).
#[pg_guard]
pub unsafe extern "C-unwind" fn build_empty(index: Relation) {
    crate::pg::witness!();
    // SAFETY: the server passes an open, locked relation whose init fork is empty.
    unsafe { identity::create(index, pg_sys::ForkNumber::INIT_FORKNUM) };
}

/// HOT chains, heap TIDs and page LSNs are the heap's: other table access methods are refused.
unsafe fn refuse_other_tables(heap: Relation) {
    // SAFETY: open relation.
    let (am, name) = unsafe { ((*(*heap).rd_rel).relam, compat::name(heap)) };
    if am != pg_sys::HEAP_TABLE_AM_OID {
        Failure::new(
            PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
            format!("cannot create a nitro index on table \"{name}\""),
        )
        .detail("The table does not use the access method \"heap\".")
        .hint("Use an index type that the table's access method supports.")
        .raise();
    }
}

/// An index that is being built.
struct Job<'a> {
    heap: Relation,
    index: Relation,
    info: *mut pg_sys::IndexInfo,
    handle: &'a Handle,
}

/// Returns true if a snapshot reads the rows: in a build CONCURRENTLY, or if all pages of the table
/// are all-visible. The server then locks each page once, instead of twice for each row, and asks
/// nothing about rows.
///
/// An all-visible page has no row that is dead, in progress or updated by HOT. So a snapshot shows
/// all rows that the build must read. The pages stay so, because writers wait for the lock of the
/// build.
/// - Code of the index does not wait, because it is of this transaction. Rows that it deletes are
///   still visible if the snapshot is taken when this is asked. Rows that it inserts end the build
///   (`own_rows`).
/// - A serializable transaction does not use a snapshot: it would seem to depend on every row. Nor
///   is it used where a snapshot can become too old for pages that have changed since.
unsafe fn reads_by_snapshot(heap: Relation, info: *const pg_sys::IndexInfo) -> bool {
    // SAFETY: an open table, locked as for a build.
    unsafe {
        let all_visible = || {
            let (mut visible, mut frozen) = (0, 0);
            pg_sys::visibilitymap_count(heap, &raw mut visible, &raw mut frozen);
            visible == compat::blocks(heap)
        };
        let serializable = pg_sys::XactIsoLevel == pg_sys::XACT_SERIALIZABLE as i32;
        (*info).ii_Concurrent || (!serializable && !compat::snapshots_age() && all_visible())
    }
}

/// There is no memory, which has been said.
struct LeftUnbuilt;

/// The number of rows of the table, and the index with its number of entries.
type Outcome = (f64, Result<(Unfinished, i64), LeftUnbuilt>);

/// Encodes the rows of a table and gives the entries to `put`.
struct Collector<'a> {
    desc: &'a KeyDesc,
    keys: Keys,
    index: Relation,
    put: &'a mut dyn FnMut(&[u8], Tid),
}

impl<'a> Collector<'a> {
    fn new(desc: &'a KeyDesc, index: Relation, put: &'a mut dyn FnMut(&[u8], Tid)) -> Self {
        Collector { desc, keys: Keys::default(), index, put }
    }

    /// Reads the table, or with others what `scan` shares out; gives the number of rows.
    ///
    /// # Safety
    /// Open relations, locked as for a build, and the description of the index. `scan` is one of
    /// that table, with a snapshot if `by_snapshot` is set, or null.
    unsafe fn scan(
        &mut self,
        heap: Relation,
        info: *mut pg_sys::IndexInfo,
        by_snapshot: bool,
        shows: bool,
        scan: pg_sys::TableScanDesc,
    ) -> f64 {
        let (state, index) = ((&raw mut *self).cast(), self.index);
        // SAFETY: by contract; the collector outlives the scan.
        unsafe {
            let callback: pg_sys::IndexBuildCallback = Some(collect);
            // The server decides by this how to read. After an ERROR it is not used any more.
            let concurrent = std::mem::replace(&mut (*info).ii_Concurrent, by_snapshot);
            let rows = pg_sys::table_index_build_scan(
                heap, index, info, true, shows, callback, state, scan,
            );
            (*info).ii_Concurrent = concurrent;
            rows
        }
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn collect(
    _index: Relation,
    tid: pg_sys::ItemPointer,
    values: *mut Datum,
    isnull: *mut bool,
    _alive: bool,
    state: *mut c_void,
) {
    crate::pg::witness!();
    // SAFETY: `state` is a collector, the rest comes from the server's scan.
    unsafe {
        let state = &mut *state.cast::<Collector<'_>>();
        state.keys.set(state.desc, values, isnull);
        state.keys.check_length(state.index);
        for key in state.keys.iter() {
            (state.put)(key, compat::tid_to_u64(&*tid));
        }
    }
}

impl Job<'_> {
    /// Builds the index alone.
    unsafe fn build<O: KeyOrder>(&self, order: &O) -> Outcome {
        let Job { heap, index, info, handle } = *self;
        let mut sorter = Sorter::new(&handle.desc, order, guc::maintenance_work_mem());
        // SAFETY: relations are open and locked by the server, `info` describes the index.
        unsafe {
            progress(pg_sys::PROGRESS_CREATEIDX_SUBPHASE, PHASE_SCAN);
            sorter.expect(compat::likely_rows(heap));
            let mut put = |key: &[u8], tid| sorter.push(key, tid);
            let mut collector = Collector::new(&handle.desc, index, &mut put);
            let by_snapshot = reads_by_snapshot(heap, info);
            let tuples = collector.scan(heap, info, by_snapshot, true, std::ptr::null_mut());
            progress(pg_sys::PROGRESS_CREATEIDX_TUPLES_TOTAL, tuples as i64);
            let looks = (*info).ii_Unique;
            let neighbours = looks.then(|| Neighbours::new(heap, index, &handle.desc));
            (tuples, self.load(sorter, order, neighbours))
        }
    }

    /// Reports a failure of a build. Called while the unfinished index exists, so that the message
    /// counts it. Any failure except a lack of memory for indexes is an ERROR.
    unsafe fn fail(&self, e: BuildError) -> LeftUnbuilt {
        let (index, entry) = (self.index, self.handle.entry);
        // SAFETY: open relations.
        unsafe {
            let e = lack(e, index, &self.handle.desc);
            let name = compat::name(index);
            if is_made_anew(self.heap, index) {
                refusal::left_unbuilt(&name, entry, e);
            } else if guc::WHEN_FULL.get() == WhenFull::GiveUpIndex && !unique::is_unique(index) {
                refusal::gave_up(&name, entry, e);
            } else {
                refusal::out_of_memory(&name, entry, e);
            }
        }
        LeftUnbuilt
    }

    /// Creates an empty index for keys of about this number of bytes.
    unsafe fn create(&self, key_len_hint: u32) -> Result<Unfinished, OutOfMemory> {
        // SAFETY: open relation.
        let fillfactor = unsafe { options::fillfactor(self.index) };
        self.handle.create(&IndexOptions { fillfactor, key_len_hint })
    }

    unsafe fn load<O: KeyOrder>(
        &self,
        sorter: Sorter<'_, O>,
        order: &O,
        mut neighbours: Option<Neighbours<'_>>,
    ) -> Result<(Unfinished, i64), LeftUnbuilt> {
        let process = shmem::process();
        // SAFETY: open relation.
        let is_unique = unsafe { unique::is_unique(self.index) };
        // SAFETY: open relations.
        let fail = |e| unsafe { self.fail(e) };
        progress(pg_sys::PROGRESS_CREATEIDX_SUBPHASE, PHASE_SORT);
        // Whether rows are unique is seen in all of them, also if the index is left unbuilt.
        // SAFETY: open relation.
        let created = unsafe { self.create(sorter.average_key_length()) };
        let unfinished = match created.map_err(|e| fail(e.into())) {
            Err(left) if !is_unique => return Err(left),
            created => created,
        };
        let mut builder = unfinished.as_ref().ok().map(|new| Builder::new(process, new.index()));
        let mut loaded = 0i64;
        sorter.try_drain(|key, tid| {
            if let Some(neighbours) = &mut neighbours {
                // SAFETY: open relations; the builder holds nothing between two calls.
                unsafe { neighbours.add(key, tid) };
            }
            if let Some(Err(e)) = builder.as_mut().map(|builder| builder.push(order, key, tid)) {
                builder = None;
                let left = fail(e);
                if !is_unique {
                    return Err(left);
                }
            }
            loaded += 1;
            memory::check();
            if loaded & 0xffff == 1 {
                crate::pg::wait::interrupts();
                progress(pg_sys::PROGRESS_CREATEIDX_SUBPHASE, PHASE_LOAD);
                progress(pg_sys::PROGRESS_CREATEIDX_TUPLES_DONE, loaded);
            }
            Ok(())
        })?;
        let (Ok(unfinished), Some(builder)) = (unfinished, builder) else {
            return Err(LeftUnbuilt);
        };
        let chain = builder.finish().map_err(fail)?;
        nitro_engine::adopt(&unfinished.index(), process, vec![chain]).map_err(fail)?;
        progress(pg_sys::PROGRESS_CREATEIDX_TUPLES_DONE, loaded);
        Ok((unfinished, loaded))
    }
}

/// The lack of memory for indexes that ends a build; whatever else ends it is an ERROR.
unsafe fn lack(e: BuildError, index: Relation, desc: &KeyDesc) -> OutOfMemory {
    match e {
        BuildError::OutOfMemory(e) => e,
        BuildError::NoMemory => memory::out_of_memory(0),
        // SAFETY: open relation.
        BuildError::KeyTooLong(n) => unsafe { refuse::key_too_long(index, n) },
        BuildError::OutOfOrder => desc.inconsistent(),
        BuildError::NotEmpty => unreachable!("the index was created for this build"),
    }
}

/// Refuses default classes of another type. A type with an order of its own (citext) can get the
/// default class of a similar type (text), because nitro has no class for it. The operators of the
/// type would never find the index.
unsafe fn refuse_borrowed_classes(index: Relation, desc: &KeyDesc) {
    // SAFETY: an open index has one element per key column; catalogue look-ups of its columns.
    unsafe {
        let attrs = pgrx::PgTupleDesc::from_pg_unchecked((*index).rd_att);
        let am = (*(*index).rd_rel).relam;
        for (i, attr) in attrs.iter().enumerate().take(desc.nkeys) {
            let typid = pg_sys::getBaseType(attr.atttypid);
            let class = pg_sys::GetDefaultOpClass(typid, am);
            let orders = |class| pg_sys::get_opclass_input_type(class) == typid;
            if desc.is_element(i)
                || class == pg_sys::InvalidOid
                || pg_sys::get_opclass_family(class) != *(*index).rd_opfamily.add(i)
                || orders(class)
            {
                continue;
            }
            let own = pg_sys::GetDefaultOpClass(typid, pg_sys::BTREE_AM_OID);
            if own != pg_sys::InvalidOid && orders(own) {
                let name = |typid| text::from_pointer(pg_sys::format_type_be(typid));
                let (typ, other) = (name(typid), name(pg_sys::get_opclass_input_type(class)));
                Failure::new(
                    PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
                    format!("data type {typ} has no operator class of its own for access method \"nitro\""),
                )
                .detail(format!("An index with the operator class of type {other} would not support the operators of type {typ}."))
                .hint("Create an operator class from that of btree with nitro_adopt_opclass(), or index an expression of the other type.")
                .raise();
            }
        }
    }
}

//! Scans: `ambeginscan` .. `amendscan`, both directions, mark/restore, bitmaps, index-only.
//!
//! A scan copies the entries of one block at a time into its cursor and holds nothing of the engine
//! between two calls. Its range may be one of many (`quals::Plan`). Combinations of points are
//! visited in index order. An entry that fails a filter lets the scan jump ahead.
//!
//! Recycling of TIDs (invariant D2b): an index-only scan, and any scan with a non-MVCC snapshot,
//! needs a token. It holds the token from before it reads a batch until it asks for the next one.
//! `ambulkdelete` does not return while an older token is open. A plain MVCC scan needs none: the
//! row of a recycled TID is too new for its snapshot. A memory context callback closes tokens,
//! since `amendscan` is not called on ERROR.
//!
//! An index with an element column has many entries per row. Its scans collect the rows first, each
//! once (`streams`). The planner gets bitmap scans only. Constraints fetch rows one by one.
//!
//! termSn is captured at the first fetch after each rescan, never at snapshot time: an index that
//! was built after the snapshot would lose rows.

use std::cell::RefCell;
use std::ffi::c_void;
use std::rc::Rc;

use nitro_engine::{Index, Process, Tid};
use pgrx::pg_sys::{IndexScanDesc, Relation, ScanKey};
use pgrx::prelude::*;

use super::deferred;
use super::quals::{Plan, Range};
use super::token::Token;
use super::tuple::TupleFormer;
use super::visibility::VisibilityMap;
use super::whole;
use super::work::Work;
use crate::key::plain::Plain;
use crate::pg::compat;
use crate::pg::wait;
use crate::state::directory::State;
use crate::state::follow;
use crate::state::given_up::{self, InUse};
use crate::state::handle::Handle;
use crate::upkeep::bring_up;

mod ahead;
mod batched;
pub mod bitmap;
mod cover;
pub mod marks;
mod outer_rows;
pub mod parallel;
mod source;
mod spare;
mod streams;
mod tids;
mod values;
mod walk;

use ahead::Ahead;
pub(super) use ahead::ask_for_first_rows;
use batched::LookedUp;
use marks::Mark;
pub(in crate::am) use outer_rows::Batch;
use source::{Collected, Source};
use streams::Reader;
use walk::Place;

/// Private state of one scan (`scan->opaque`).
pub(super) struct Scan {
    index: Relation,
    handle: Rc<Handle>,
    process: &'static Process,
    engine: Option<Index>,
    /// As long as it may be read.
    used: Option<InUse>,
    plan: Plan,
    /// Set by the first fetch after a rescan.
    started: bool,
    /// The root of the index of a standby for which it has waited; 0: of none.
    reached: u32,
    /// It does not wait for the follower of a standby. Each row is looked at again.
    not_bounded: bool,
    sn: u32,
    /// The combination of enumerated intervals whose range the cursor reads.
    at: Vec<usize>,
    /// The range that was opened last; here for its memory.
    range: Range,
    place: Place,
    /// Filters have let it jump behind the part that it reads: see `parallel`.
    leaps: bool,
    /// How often it was started. Added to the common count when it ends. The inner side of a join
    /// starts a scan for each row, and a cache line that many processes write is slow for all.
    starts: u64,
    /// Descents that EXPLAIN has not been told of.
    searches: u64,
    work: Work,
    /// Entries of the current batch whose rows are dead to every transaction.
    kills: Vec<u16>,
    ahead: Ahead,
    looked_up: LookedUp,
    /// Of the nested loop whose inner side this is, if that reads its outer rows ahead.
    pub(super) batch: Batch,
    token: Token,
    mark: Option<Box<Mark>>,
    former: Option<TupleFormer>,
    /// For `index_only`, which takes values without a tuple: pinned pages, values that need no
    /// function of the server, and memory for the others.
    pub(super) visibility: VisibilityMap,
    hands_up: bool,
    plain: Option<Plain>,
    values: Option<pg_sys::MemoryContext>,
    source: Source,
}

/// # Safety
/// A live scan of a nitro index.
pub(super) unsafe fn state<'a>(scan: IndexScanDesc) -> &'a mut Scan {
    // SAFETY: `begin` stored a pointer to a cell that holds a live scan until `end`.
    unsafe { &mut **(*scan).opaque.cast::<*mut Scan>() }
}

/// Returns the work of a scan so far.
///
/// # Safety
/// A live scan of a nitro index, for as long as nothing is done with it.
pub unsafe fn work<'a>(scan: IndexScanDesc) -> &'a Work {
    // SAFETY: see `state`.
    unsafe { &state(scan).work }
}

/// Starts a scan (`ambeginscan`).
#[pg_guard]
pub unsafe extern "C-unwind" fn begin(index: Relation, keys: i32, order_bys: i32) -> IndexScanDesc {
    crate::pg::witness!();
    // SAFETY: the server passes an open index; the cell lives in the memory context that the scan
    // descriptor lives in.
    unsafe {
        let handle = Handle::open(index);
        let (scan, cell) = compat::begin_index_scan(index, keys, order_bys, forget);
        (*scan).xs_itupdesc = (*index).rd_att;
        (*scan).xs_hitupdesc = (*index).rd_att;
        *cell.cast() = Box::into_raw(Scan::new(index, handle));
        (*scan).opaque = cell;
        scan
    }
}

/// Drops the scan behind a cell, once.
#[pg_guard]
unsafe extern "C-unwind" fn forget(cell: *mut c_void) {
    crate::pg::witness!();
    // SAFETY: the cell's first field is the scan pointer, null after the first call.
    unsafe {
        let slot = cell.cast::<*mut Scan>();
        if !(*slot).is_null() {
            drop(Box::from_raw(std::mem::replace(&mut *slot, std::ptr::null_mut())));
        }
    }
}

/// Restarts a scan with new keys (`amrescan`).
#[pg_guard]
pub unsafe extern "C-unwind" fn rescan(
    scan: IndexScanDesc,
    keys: ScanKey,
    n: i32,
    _order_bys: ScanKey,
    _n_order_bys: i32,
) {
    crate::pg::witness!();
    // SAFETY: the descriptor has room for the number of keys it was begun with.
    unsafe {
        if !keys.is_null() && n > 0 {
            std::ptr::copy(keys, (*scan).keyData, n as usize);
        }
        let state = state(scan);
        state.flush_kills();
        state.looked_up.forget();
        state.token.close(state.process);
        state.mark = None;
        state.started = false;
    }
}

/// Ends a scan (`amendscan`).
#[pg_guard]
pub unsafe extern "C-unwind" fn end(scan: IndexScanDesc) {
    crate::pg::witness!();
    // SAFETY: `begin`'s cell; the context callback finds it empty later.
    unsafe {
        let state = state(scan);
        state.flush_kills();
        state.visibility.release();
        let cell = (*scan).opaque.cast::<*mut Scan>();
        Box::from_raw(std::mem::replace(&mut *cell, std::ptr::null_mut())).keep();
    }
}

/// Fetches the next entry in a direction (`amgettuple`).
///
/// Returns the next tuple. Most calls find it in the present batch, by steps that call nothing of
/// the server and cannot fail. These steps have no guard that turns panics into ERRORs, because the
/// guard would cost as much as the step.
pub unsafe extern "C-unwind" fn get_tuple(
    scan: IndexScanDesc,
    direction: pg_sys::ScanDirection::Type,
) -> bool {
    // SAFETY: see `state`; the descriptor is the server's.
    unsafe {
        let state = state(scan);
        let forward = direction != pg_sys::ScanDirection::BackwardScanDirection;
        let before = state.place.pos;
        if !(*scan).kill_prior_tuple && state.step_in_batch(forward) {
            let i = state.place.pos as usize;
            if !(*scan).xs_want_itup {
                (*scan).xs_heaptid = compat::u64_to_tid(state.place.cursor.tid(i));
                if state.looks_ahead(forward) {
                    ahead::ask(scan);
                }
                return true;
            }
            // The server asks the map itself, where every bit counts.
            let whole = state.place.trust.is_whole() || state.is_known_visible();
            if let Some(former) =
                state.former.as_mut().filter(|former| whole && former.is_by_value())
            {
                (*scan).xs_heaptid = compat::u64_to_tid(state.place.cursor.tid(i));
                former.form_by_value(scan, &state.handle.desc, &state.place.cursor, i);
                return true;
            }
            state.place.pos = before;
        }
        get_tuple_guarded(scan, direction)
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn get_tuple_guarded(
    scan: IndexScanDesc,
    direction: pg_sys::ScanDirection::Type,
) -> bool {
    crate::pg::witness!();
    // SAFETY: see `state`; the descriptor is the server's.
    unsafe {
        let state = state(scan);
        let forward = direction != pg_sys::ScanDirection::BackwardScanDirection;
        let mut found = state.next(scan, forward);
        while found == Found::Entry && (*scan).xs_want_itup && !state.may_be_handed_up(scan) {
            wait::interrupts();
            (*scan).kill_prior_tuple = false;
            found = state.next(scan, forward);
        }
        match found {
            Found::Nothing => false,
            Found::Entry if (*scan).xs_want_itup => {
                let i = state.place.pos as usize;
                let former =
                    state.former.get_or_insert_with(|| TupleFormer::new(scan, &state.handle.desc));
                former.form(scan, &state.handle.desc, &state.place.cursor, i)
            }
            Found::Entry => {
                if state.looks_ahead(forward) {
                    ahead::ask(scan);
                }
                true
            }
            Found::Row => true,
        }
    }
}

/// The result of the next step of a scan.
#[derive(PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// An entry of the cursor.
    Entry,
    /// A row of the table, without an entry that one could see.
    Row,
}

impl Scan {
    /// Before the first entry: what the keys ask for is known from here on.
    ///
    /// # Safety
    /// `scan` is the descriptor that this is the state of, which has not been started since it was
    /// given its keys.
    unsafe fn begin(&mut self, scan: IndexScanDesc, forward: bool) {
        // SAFETY: by contract.
        unsafe {
            let snapshot = (*scan).xs_snapshot;
            let mvcc = !snapshot.is_null()
                && (*snapshot).snapshot_type == pg_sys::SnapshotType::SNAPSHOT_MVCC;
            self.start(scan, forward, (*scan).xs_want_itup || !mvcc);
            if self.reads_elements() {
                streams::refuse_cluster(scan);
                let rows = self.reader().map_or_else(Vec::new, |(r, plan)| streams::rows(&r, plan));
                self.source = Source::Elements(Collected::new(rows, forward));
            }
        }
    }

    /// Whether rows have to be asked again whether they match, with their values. That is known of
    /// the keys of a scan that has begun: those of the start before may have said otherwise. Not
    /// for scans of elements, which come to their first row so.
    ///
    /// # Safety
    /// As `next`.
    pub(super) unsafe fn asks_again(&mut self, scan: IndexScanDesc, forward: bool) -> bool {
        if !self.started {
            // SAFETY: by contract.
            unsafe { self.begin(scan, forward) };
        }
        self.plan.lossy
    }

    /// Moves to the next row and puts its TID into the descriptor.
    ///
    /// # Safety
    /// `scan` is the descriptor that this is the state of.
    pub(super) unsafe fn next(&mut self, scan: IndexScanDesc, forward: bool) -> Found {
        // SAFETY: by contract.
        unsafe {
            if !self.started {
                self.begin(scan, forward);
            } else {
                match &mut self.source {
                    Source::Elements(rows) => rows.step(forward),
                    Source::Entries if (*scan).kill_prior_tuple => self.kill(),
                    _ => (),
                }
            }
            let (tid, again) = match &mut self.source {
                Source::Entries => return self.next_entry(scan, forward),
                Source::Elements(rows) => (rows.current(), self.plan.lossy),
                Source::Table(rows) => (rows.next((*scan).heapRelation), true),
            };
            let Some(tid) = tid else { return Found::Nothing };
            (*scan).xs_heaptid = compat::u64_to_tid(tid);
            (*scan).xs_recheck = again;
            Found::Row
        }
    }

    /// Moves to the next entry of the cursor.
    unsafe fn next_entry(&mut self, scan: IndexScanDesc, forward: bool) -> Found {
        // SAFETY: by contract of `next`.
        unsafe {
            let found = self.advance(scan, forward);
            compat::count_searches(scan, std::mem::take(&mut self.searches));
            if !found {
                return Found::Nothing;
            }
            (*scan).xs_heaptid = compat::u64_to_tid(self.tid());
            (*scan).xs_recheck = self.plan.lossy;
            Found::Entry
        }
    }

    /// Whether it reads entries of the index one by one.
    fn reads_entries(&self) -> bool {
        matches!(self.source, Source::Entries)
    }

    /// Whether it reads rows by their elements.
    fn reads_elements(&self) -> bool {
        matches!(self.source, Source::Elements(_))
    }

    /// The TID of the current entry.
    #[inline]
    pub(super) fn tid(&self) -> Tid {
        self.place.cursor.tid(self.place.pos as usize)
    }

    /// Finds what the scan reads. Returns false if that is the table.
    unsafe fn find_source(&mut self, scan: IndexScanDesc) -> bool {
        // SAFETY: the descriptor that this is the state of.
        unsafe {
            let index = (*scan).indexRelation;
            deferred::before_read(index, (*scan).xs_snapshot);
            self.source = match self.handle.desc.element {
                Some(_) => Source::Elements(Collected::default()),
                None => Source::Entries,
            };
            follow::check_snapshot(index, (*scan).xs_snapshot);
            let reached = self.reached();
            if self.handle.entry.state() == State::Ready
                || reached.is_some()
                || pg_sys::RecoveryInProgress()
                    && follow::await_bound(index, &self.handle, self.bounding(scan))
            {
                // As nearly always.
            } else if !whole::does(scan) {
                bring_up::ensure_ready(index, &self.handle);
            } else if !bring_up::try_ready(index, &self.handle) {
                self.source = Source::Table(whole::Rows::of((*scan).heapRelation));
                self.place.cursor.set_range(&[], Some(&[]), self.sn);
                self.place.pos = -1;
                self.started = true;
                return false;
            }
            self.engine = reached.or_else(|| self.handle.readable_index());
            self.reached = self.engine.filter(|_| !self.not_bounded).map_or(0, |it| it.root());
            self.token.of_recovery = follow::is_of_recovery((*scan).xs_snapshot);
            self.used = self.engine.map(InUse::of);
            if self.engine.is_none() {
                given_up::scan_ends(index);
            }
        }
        true
    }

    unsafe fn start(&mut self, scan: IndexScanDesc, forward: bool, token: bool) {
        let one_range;
        // SAFETY: the descriptor holds the keys of the last rescan.
        unsafe {
            if !self.find_source(scan) {
                return;
            }
            let n = (*scan).numberOfKeys as usize;
            let keys = if n == 0 { &[] } else { std::slice::from_raw_parts((*scan).keyData, n) };
            let desc = &self.handle.desc;
            let alone = parallel::of(scan).is_none();
            one_range = alone
                && !self.reads_elements()
                && self.plan.compile_points(desc, keys, &mut self.range);
            if !one_range {
                self.plan.compile(desc, keys);
            }
            self.place.cursor.want_keys((*scan).xs_want_itup || self.plan.has_filters());
            if alone {
                compat::count_index_scan(scan);
            }
            if self.reads_elements() {
                compat::count_searches(scan, 1);
            }
        }
        self.starts += 1;
        self.token.needed = token;
        self.kills.clear();
        self.ahead.restart();
        self.started = true;
        self.sn = self.engine.map_or(0, |engine| engine.term());
        if self.reads_elements() {
            // Held until the next rescan: the rows are collected at once.
            if let Some(engine) = self.engine {
                self.place.trust = self.cover(engine);
            }
        } else if one_range {
            self.at.clear();
            self.begin_range(forward);
        } else if self.plan.is_impossible() {
            // No range to open; and nothing of the last one may be left.
            self.place.cursor.set_range(&[], Some(&[]), self.sn);
            self.place.pos = -1;
        } else {
            // SAFETY: the server's descriptor.
            match unsafe { parallel::of(scan) } {
                Some(shared) => {
                    self.leaps = false;
                    if !self.take_part(scan, shared, forward) {
                        self.place.cursor.set_range(&[], Some(&[]), self.sn);
                        self.place.pos = -1;
                    }
                }
                None => {
                    self.plan.first(&mut self.at, forward);
                    self.open_range(forward);
                }
            }
        }
    }

    /// Returns the reader for the streams of an index with an element column. `None` if nothing can
    /// match.
    fn reader(&mut self) -> Option<(Reader<'_>, &mut Plan)> {
        let engine = self.engine.filter(|_| !self.plan.is_impossible())?;
        let desc = &self.handle.desc;
        Some((
            Reader {
                desc,
                process: self.process,
                engine,
                sn: self.sn,
                work: &self.work,
                rest: RefCell::default(),
            },
            &mut self.plan,
        ))
    }
}

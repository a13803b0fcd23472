//! What the planner is told about nitro indexes (`get_relation_info_hook`, from 19 on
//! `build_simple_rel_hook`).
//!
//! The server describes an index from its files and catalogues; ours has one page and operator
//! families that the planner does not know by name. The hook
//! - hides an index that cannot answer now (not READY or, on a standby, not FOLLOWING; `nitro.enable_scan = off`)
//!   and wakes the worker that builds it;
//! - replaces the size by that of the memory;
//! - shows the btree family that an operator family mirrors: boolean conditions (15), LIKE with
//!   pattern operator classes, network operators and uniqueness proofs are tied to btree families.
//!   The executor takes strategies from `rd_opfamily`, the index' own family, so a family is only
//!   replaced if each of its btree twin's operators is in it under the same strategy number;
//! - shows an index with an element column as one for bitmap scans that has no order: a row has many
//!   entries there;
//! - shows btree's access method, which lets row comparisons become index conditions (before 18 with the
//!   help of `compat::rows`). Of an access method of that name the planner believes that its families say
//!   which equivalence classes it can use; so an index some of whose families are not shown as btree's (the
//!   btree family was extended) is shown as one only to a query that compares rows of one table.

mod aggregate;
mod missing;

use nitro_engine::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use pgrx::PgList;
use pgrx::pg_sys::{self, IndexOptInfo, Oid, RelOptInfo, SysCacheIdentifier};
use pgrx::prelude::*;

use missing::Missing;

use crate::am;
use crate::elements::index::element_column;
use crate::elements::key::Source;
use crate::elements::rewrite;
use crate::feed::shared::{self, Keep};
use crate::pg::guc;
use crate::pg::{catalog, compat, subtransaction};
use crate::state::claim;
use crate::state::directory::{Entry, State};
use crate::state::follow;
use crate::state::handle::Handle;
use crate::state::{given_up, hosts, options, refusal, shmem};
use crate::upkeep::{bring_up, keeper};

thread_local! {
    /// (operator family, input type) -> the btree family to show. Emptied when any operator family
    /// changes.
    static TWINS: RefCell<HashMap<(u32, u32), Oid>> = RefCell::default();
}

/// Chains the hook.
pub fn install_hooks() {
    // SAFETY: runs once, when the library is loaded.
    unsafe { compat::hook_relations(edit) }
    compat::install_plan_hook();
    aggregate::install_hook();
}

unsafe fn edit(root: *mut pg_sys::PlannerInfo, inheritance_parent: bool, rel: *mut RelOptInfo) {
    // SAFETY: the server passes live planner structures; the hook may edit the index list.
    unsafe {
        if shmem::directory_if_loaded().is_some() {
            keeper::look_for_one();
        }
        let mut hidden = Vec::new();
        let mut missing = Vec::new();
        for info in PgList::<IndexOptInfo>::from_pg((*rel).indexlist).iter_ptr() {
            if !am::describes_nitro(&*info) {
                continue;
            }
            match describe(root, &mut *info) {
                Use::Offered => (),
                Use::Hidden => hidden.push(info),
                Use::Missing(entry) => missing.push(Missing { info, entry }),
            }
        }
        if !missing.is_empty() {
            missing::ask(root, &*rel, &missing);
            let now = |info: *mut IndexOptInfo| describe(root, &mut *info);
            let infos = missing.iter().map(|missing| missing.info);
            hidden.extend(infos.filter(|&info| !matches!(now(info), Use::Offered)));
        }
        if inheritance_parent {
            // Conditions are distributed to the parent, and go from there to its partitions.
            for info in PgList::<IndexOptInfo>::from_pg((*rel).indexlist).iter_ptr() {
                rewrite_for_partitions(root, &*info);
            }
        }
        for info in hidden {
            (*rel).indexlist = pg_sys::list_delete_ptr((*rel).indexlist, info.cast());
        }
    }
}

/// What becomes of an index in a plan.
enum Use {
    /// The planner may use it.
    Offered,
    /// The planner does not see it.
    Hidden,
    /// It is not ready, and can be asked for.
    Missing(&'static Entry),
}

/// The conditions on the element column of a partitioned index (16+: the planner knows those).
unsafe fn rewrite_for_partitions(root: *mut pg_sys::PlannerInfo, info: &IndexOptInfo) {
    // SAFETY: the planner holds a lock on the index, so it can be opened without one.
    unsafe {
        let index = pg_sys::index_open(info.indexoid, pg_sys::NoLock as pg_sys::LOCKMODE);
        if guc::ENABLE_SCAN.get()
            && options::is_nitro(index)
            && let Some(column) = element_column(index)
            && *info.opcintype.add(column) == pg_sys::ANYARRAYOID
        {
            rewrite::rewrite_query(root, info, column);
        }
        pg_sys::index_close(index, pg_sys::NoLock as pg_sys::LOCKMODE);
    }
}

/// Completes the description of one of our indexes, if it can be used now.
unsafe fn describe(root: *mut pg_sys::PlannerInfo, info: &mut IndexOptInfo) -> Use {
    // SAFETY: the planner holds a lock on the index, so it can be opened without one.
    unsafe {
        if !guc::ENABLE_SCAN.get() || shmem::directory_if_loaded().is_none() {
            return Use::Hidden;
        }
        let index = pg_sys::index_open(info.indexoid, pg_sys::NoLock as pg_sys::LOCKMODE);
        let mut used = Use::Hidden;
        if let Some(handle) = open(index) {
            used = match pg_sys::RecoveryInProgress() {
                true => followed(root, index, &handle),
                false => ready(root, index, &handle),
            };
            if let Use::Offered = used {
                set_size(info, &handle);
                if follow::is_not_bounded() {
                    // Which look at each row again.
                    bitmaps_only(info, &handle);
                }
                if let Some((column, source)) = handle.desc.element {
                    bitmaps_only(info, &handle);
                    if let Source::Array(_) = source {
                        rewrite::rewrite_query(root, info, column);
                    }
                }
            }
        }
        pg_sys::index_close(index, pg_sys::NoLock as pg_sys::LOCKMODE);
        if let Use::Offered = used {
            show_btree(root, info);
        }
        used
    }
}

/// Whether a standby keeps the index up to date for the query; asks for a follower otherwise.
unsafe fn followed(
    root: *mut pg_sys::PlannerInfo,
    index: pg_sys::Relation,
    handle: &Handle,
) -> Use {
    // SAFETY: open and locked by the caller; the planner has a snapshot.
    unsafe {
        if !hosts::stays_away(index, handle.entry) {
            follow::ask(handle.entry);
        }
        follow::stop_if_off(index, handle.entry);
        if follow::offers(index, handle) {
            return Use::Offered;
        }
        given_up::reclaim(index, handle.entry);
    }
    plan_again_soon(root);
    Use::Hidden
}

/// The handle of an index, or `None` where opening it raises one of our errors: an index that cannot
/// be read must not keep queries from running that can do without it. Other errors are the server's
/// and go on.
unsafe fn open(index: pg_sys::Relation) -> Option<Rc<Handle>> {
    PgTryBuilder::new(std::panic::AssertUnwindSafe(|| {
        // SAFETY: open and locked by the caller. Our errors are raised with no lock and no pin held.
        unsafe {
            let handle = Handle::try_open(index);
            if handle.is_none() {
                refusal::left_out(index);
            }
            handle
        }
    }))
    .catch_when(PgSqlErrorCode::ERRCODE_INDEX_CORRUPTED, |_| None)
    .catch_when(PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED, |_| None)
    .execute()
}

/// Whether scans may use the index now. A temporary index is out of the builders' reach, and a scan
/// in a query with parallel workers can build none: it is built here.
unsafe fn ready(root: *mut pg_sys::PlannerInfo, index: pg_sys::Relation, handle: &Handle) -> Use {
    match handle.entry.state() {
        // SAFETY: open and locked by the caller; the planner has a snapshot.
        State::Ready if unsafe { follow::is_too_new(index) } => (),
        State::Ready => return Use::Offered,
        State::Failed => return Use::Hidden,
        // Nor is one tried again for which there is no memory.
        _ if !given_up::may_fit(handle.entry) => {
            // SAFETY: open and locked by the caller.
            unsafe { given_up::reclaim(index, handle.entry) };
        }
        // SAFETY: as above.
        _ if unsafe { hosts::stays_away(index, handle.entry) } => unsafe {
            given_up::reclaim(index, handle.entry);
        },
        // Code of an index that is being brought up does without all that are not.
        _ if !claim::may_bring_up() => (),
        State::Unbuilt
        | State::Following
        | State::Bare
        | State::GivenUp
        | State::Building
        | State::Sorting
        | State::Loading
        | State::CatchingUp => {
            // SAFETY: open relation by the caller's contract.
            let persistence = unsafe { (*(*index).rd_rel).relpersistence } as u8;
            if persistence != pg_sys::RELPERSISTENCE_TEMP {
                plan_again_soon(root);
                return Use::Missing(handle.entry);
            }
            // SAFETY: open and locked by the caller; planning is not done in recovery here.
            if unsafe { bring_up(index, handle) } {
                return Use::Offered;
            }
        }
    }
    plan_again_soon(root);
    Use::Hidden
}

/// Brings a temporary index up here and now, if that is possible; false if it is not ready then.
///
/// # Safety
/// `index` must be open and locked, outside of recovery.
unsafe fn bring_up(index: pg_sys::Relation, handle: &Handle) -> bool {
    // SAFETY: by contract; the caller has seen that this process may.
    unsafe {
        if pg_sys::IsInParallelMode() {
            return false;
        }
        let mut feed = shared::take(Keep::Transaction);
        let outcome = subtransaction::run(|| {
            bring_up::bring_up(index, handle, &mut feed, bring_up::Origin::Anything)
        });
        drop(feed);
        // A query that can do without the index does not fail for it.
        if let Err(error) = outcome {
            if subtransaction::ends(&error) {
                error.rethrow();
            }
            crate::pg::error::log!(
                "a query is planned without its nitro index: {}",
                subtransaction::message(&error)
            );
        }
    }
    handle.entry.state() == State::Ready
}

/// A cached plan that was made without the index must not outlive the reason: the server makes a
/// transient plan again once the oldest running transaction has changed.
fn plan_again_soon(root: *mut pg_sys::PlannerInfo) {
    // SAFETY: the planner's own live structures.
    unsafe { (*(*root).glob).transientPlan = true };
}

/// Size in pages of memory. The number of rows of a complete index stays the table's estimate, as the
/// server has it for every index, so that paths are comparable; a partial index has its own.
unsafe fn set_size(info: &mut IndexOptInfo, handle: &Handle) {
    let Some(engine) = handle.readable_index() else { return };
    let stats = engine.stats();
    let pages = stats.bytes / pg_sys::BLCKSZ as usize;
    info.pages = pages.clamp(1, u32::MAX as usize - 1) as pg_sys::BlockNumber;
    info.tree_height = stats.blocks.iter().skip(1).filter(|&&n| n > 0).count() as i32;
    if !info.indpred.is_null() {
        // SAFETY: the planner's description of the table.
        info.tuples = (stats.live as f64).min(unsafe { (*info.rel).tuples });
    }
}

/// A row comes once from a bitmap, in no order. The cost function wants the number of entries.
fn bitmaps_only(info: &mut IndexOptInfo, handle: &Handle) {
    if let Some(engine) = handle.readable_index() {
        info.tuples = (engine.stats().live as f64).max(1.0);
    }
    info.amhasgettuple = false;
    info.amcanparallel = false;
    info.sortopfamily = std::ptr::null_mut();
    info.reverse_sort = std::ptr::null_mut();
    info.nulls_first = std::ptr::null_mut();
}

/// Shows btree families, and btree's access method.
///
/// What else the planner derives from `relam`: an early rejection of equivalence classes whose
/// families do not contain the index' (exact with btree families), and the translation of strategies
/// for `get_actual_variable_range` (18+, the same 1..5). The executor never sees it.
unsafe fn show_btree(root: *mut pg_sys::PlannerInfo, info: &mut IndexOptInfo) {
    let mut all = true;
    for column in 0..info.nkeycolumns as usize {
        // SAFETY: arrays of the planner with one element per key column.
        unsafe {
            let family = info.opfamily.add(column);
            match twin(*family, *info.opcintype.add(column)) {
                Some(btree) => *family = btree,
                None => all = false,
            }
        }
    }
    // SAFETY: live planner structures.
    let rows_only = || info.amhasgettuple && unsafe { rewrite::compares_rows(root) };
    if (all || rows_only()) && compat::may_compare_rows() {
        info.relam = pg_sys::BTREE_AM_OID;
    }
}

/// The btree family that a family mirrors for columns of type `input`.
unsafe fn twin(family: Oid, input: Oid) -> Option<Oid> {
    watch_families();
    let key = (family.to_u32(), input.to_u32());
    let known = TWINS.with_borrow(|all| all.get(&key).copied());
    let btree = known.unwrap_or_else(|| {
        // SAFETY: the planner runs inside a transaction with catalogue access.
        let found = unsafe { find_twin(family, input) }.unwrap_or(pg_sys::InvalidOid);
        TWINS.with_borrow_mut(|all| all.insert(key, found));
        found
    });
    (btree != pg_sys::InvalidOid).then_some(btree)
}

/// The btree family that has our "<" operator, if we have all of its operators.
unsafe fn find_twin(family: Oid, input: Oid) -> Option<Oid> {
    // SAFETY: catalogue access by the caller's contract.
    unsafe {
        let less =
            pg_sys::get_opfamily_member(family, input, input, pg_sys::BTLessStrategyNumber as i16);
        let btree =
            catalog::members::<pg_sys::FormData_pg_amop>(SysCacheIdentifier::AMOPOPID, less)
                .into_iter()
                .find(|op| {
                    op.amopmethod == pg_sys::BTREE_AM_OID
                        && op.amopstrategy == pg_sys::BTLessStrategyNumber as i16
                        && (op.amoplefttype, op.amoprighttype) == (input, input)
                })?
                .amopfamily;
        operators(btree).is_subset(&operators(family)).then_some(btree)
    }
}

/// (operator, strategy) of a family.
unsafe fn operators(family: Oid) -> BTreeSet<(u32, i16)> {
    // SAFETY: catalogue access by the caller's contract.
    unsafe {
        catalog::members::<pg_sys::FormData_pg_amop>(SysCacheIdentifier::AMOPSTRATEGY, family)
    }
    .into_iter()
    .map(|op| (op.amopopr.to_u32(), op.amopstrategy))
    .collect()
}

/// Forgets what is known about families whenever one changes.
fn watch_families() {
    #[pg_guard]
    unsafe extern "C-unwind" fn forget(_argument: pg_sys::Datum, _cache: i32, _hash: u32) {
        crate::pg::witness!();
        TWINS.with_borrow_mut(HashMap::clear);
    }
    thread_local! {
        static WATCHING: Cell<bool> = const { Cell::new(false) };
    }
    if !WATCHING.replace(true) {
        // SAFETY: registers a callback for the life of the process.
        unsafe {
            pg_sys::CacheRegisterSyscacheCallback(
                SysCacheIdentifier::AMOPOPID as _,
                Some(forget),
                pg_sys::Datum::from(0),
            );
        }
    }
}

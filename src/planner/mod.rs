//! The planner's view of nitro indexes (`get_relation_info_hook`, from 19 on
//! `build_simple_rel_hook`).
//!
//! The server describes an index from its files and catalogues. A nitro index has one page, and
//! operator families that the planner does not know by name. The hook
//! - hides an index that cannot answer now: it is not READY or, on a standby, not FOLLOWING. The
//!   hook wakes the worker that builds the index. With `nitro.enable_scan = off` all are hidden;
//! - replaces the size by that of the memory;
//! - shows the btree family that an operator family mirrors. Boolean conditions (15), LIKE with
//!   pattern operator classes, network operators and uniqueness proofs are tied to btree families.
//!   The executor takes strategies from `rd_opfamily`, the index' own family. So a family is only
//!   replaced if it has each operator of its btree twin under the same strategy number;
//! - shows an index with an element column as one for bitmap scans that has no order: a row has
//!   many entries there;
//! - shows btree's access method, which lets row comparisons become index conditions (before 18
//!   with the help of `compat::rows`). The planner then assumes that the families shown for the
//!   index say which equivalence classes the index can use. An index that cannot show a btree
//!   family for each column (an extended btree family) is shown as btree only to queries that
//!   compare rows of one table.

mod aggregate;
mod elements;
mod families;
mod missing;

use std::rc::Rc;

use pgrx::pg_sys::{self, IndexOptInfo, Oid, RelOptInfo};
use pgrx::prelude::*;

use elements::rewrite;
use missing::Missing;

use crate::am;
use crate::feed::shared::{self, Keep};
use crate::key::elements::index::element_column;
use crate::key::elements::source::Source;
use crate::pg::guc;
use crate::pg::{compat, subtransaction};
use crate::state::directory::{self, Entry, State};
use crate::state::follow;
use crate::state::handle::Handle;
use crate::state::known::{self, Known, Order};
use crate::state::nesting;
use crate::state::{given_up, hosts, options, refusal};
use crate::upkeep::{bring_up, keeper};

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
        if directory::if_loaded().is_some() {
            keeper::look_for_one();
        }
        if inheritance_parent {
            // Conditions are distributed to the parent, and go from there to its partitions.
            for &info in compat::elements::<IndexOptInfo>((*rel).indexlist) {
                rewrite_for_partitions(root, &*info);
            }
        }
        let infos = compat::elements::<IndexOptInfo>((*rel).indexlist);
        let ours = || infos.iter().copied().filter(|&info| am::describes_nitro(&*info));
        let columns = ours().map(|info| (*info).nkeycolumns as usize).sum();
        if columns == 0 {
            return;
        }
        let mut now = Now::of_plan(columns);
        let mut hidden = Vec::new();
        let mut missing = Vec::new();
        for info in ours() {
            match describe(root, &mut *info, &mut now) {
                Use::Offered => (),
                Use::Hidden => hidden.push(info),
                Use::Missing(entry) => missing.push(Missing { info, entry }),
            }
        }
        if !missing.is_empty() {
            missing::ask(root, &*rel, &missing);
            for &Missing { info, .. } in &missing {
                if !matches!(describe(root, &mut *info, &mut now), Use::Offered) {
                    hidden.push(info);
                }
            }
        }
        for info in hidden {
            (*rel).indexlist = pg_sys::list_delete_ptr((*rel).indexlist, info.cast());
        }
    }
}

/// Facts for all indexes of a table while it is planned.
struct Now {
    in_recovery: bool,
    /// The snapshot was taken in recovery.
    of_recovery: bool,
    /// Scans look at each row again.
    not_bounded: bool,
    /// Memory of the planner for the orders of the table's indexes: no flags, families, and flags.
    no_flags: *mut bool,
    families: Block<Oid>,
    flags: Block<bool>,
}

/// Memory of the planner that is given out piece by piece.
struct Block<T> {
    at: *mut T,
    left: usize,
}

impl<T> Block<T> {
    /// Writes values to the front of the free part.
    fn write(&mut self, values: impl ExactSizeIterator<Item = T>) -> *mut T {
        let (first, n) = (self.at, values.len());
        assert!(n <= self.left, "a block has room for the columns of all indexes");
        // SAFETY: within the block.
        unsafe {
            values.enumerate().for_each(|(i, value)| first.add(i).write(value));
            self.at = first.add(n);
        }
        self.left -= n;
        first
    }
}

impl Now {
    /// For a table whose nitro indexes together have this number of key columns.
    unsafe fn of_plan(columns: usize) -> Now {
        // SAFETY: inside of a transaction that plans.
        unsafe {
            let none = pg_sys::INDEX_MAX_KEYS as usize;
            let facts = compat::plan_facts(none + columns * (size_of::<Oid>() + 2));
            let no_flags: *mut bool = facts.memory.cast();
            no_flags.write_bytes(0, none);
            let families: *mut Oid = no_flags.add(none).cast();
            Now {
                in_recovery: facts.in_recovery,
                of_recovery: facts.of_recovery,
                not_bounded: facts.in_recovery && follow::is_not_bounded(),
                no_flags,
                families: Block { at: families, left: columns },
                flags: Block { at: families.add(columns).cast(), left: 2 * columns },
            }
        }
    }

    /// Completes the description of an index by its order, before families are shown.
    fn show_order(&mut self, info: &mut IndexOptInfo, order: &Order) {
        if order.is_plain {
            // As for a btree: the families that are shown. The planner only reads these arrays.
            info.sortopfamily = info.opfamily;
            (info.reverse_sort, info.nulls_first) = (self.no_flags, self.no_flags);
            return;
        }
        let columns = order.columns.iter();
        info.sortopfamily = self.families.write(columns.clone().map(|column| column.sorted));
        info.reverse_sort = self.flags.write(columns.clone().map(|column| column.descending));
        info.nulls_first = self.flags.write(columns.map(|column| column.nulls_first));
    }

    /// Whether an index that is known can answer now. If not, [`look`] says why.
    unsafe fn offers(&self, known: &Known) -> bool {
        let entry = known.entry;
        // SAFETY: by the caller's contract the index is locked; the planner has a snapshot.
        unsafe {
            if self.in_recovery {
                let offers = guc::FOLLOW_WAL.get() && follow::offers(entry, known.made);
                if offers {
                    follow::ask(entry);
                }
                offers
            } else {
                entry.state() == State::Ready && (!self.of_recovery || follow::is_older(known.made))
            }
        }
    }
}

/// The fate of an index in a plan.
enum Use {
    /// The planner may use it.
    Offered,
    /// The planner does not see it.
    Hidden,
    /// It is not ready, and can be asked for.
    Missing(&'static Entry),
}

/// The conditions on the element column of a partitioned index (16+: the planner knows those).
#[cold]
unsafe fn rewrite_for_partitions(root: *mut pg_sys::PlannerInfo, info: &IndexOptInfo) {
    // SAFETY: arrays of the planner with an element for each key column. The planner holds a lock
    // on the index, so it can be opened without one.
    unsafe {
        let types = std::slice::from_raw_parts(info.opcintype, info.nkeycolumns as usize);
        if !guc::ENABLE_SCAN.get() || !types.contains(&pg_sys::ANYARRAYOID) {
            return;
        }
        let index = pg_sys::index_open(info.indexoid, pg_sys::NoLock as pg_sys::LOCKMODE);
        if options::is_nitro(index)
            && let Some(column) = element_column(index)
            && types[column] == pg_sys::ANYARRAYOID
        {
            rewrite::rewrite_query(root, info, column);
        }
        pg_sys::index_close(index, pg_sys::NoLock as pg_sys::LOCKMODE);
    }
}

/// Completes the description of one of our indexes, if it can be used now. Opens the index unless
/// the last plan has left what is needed (`state::known`) and the index can answer.
unsafe fn describe(root: *mut pg_sys::PlannerInfo, info: &mut IndexOptInfo, now: &mut Now) -> Use {
    if !guc::ENABLE_SCAN.get() || directory::if_loaded().is_none() {
        return Use::Hidden;
    }
    // SAFETY: the planner holds a lock on the index.
    unsafe {
        let known = match known::find(info.indexoid).filter(|known| now.offers(known)) {
            Some(known) => known,
            None => match look(root, info, now) {
                Ok(known) => known,
                Err(other) => return other,
            },
        };
        complete(root, info, &known, now);
    }
    Use::Offered
}

/// Opens an index and looks whether it can be used now.
#[cold]
unsafe fn look(
    root: *mut pg_sys::PlannerInfo,
    info: &IndexOptInfo,
    now: &Now,
) -> Result<Rc<Known>, Use> {
    // SAFETY: the planner holds a lock on the index, so it can be opened without one.
    unsafe {
        let index = pg_sys::index_open(info.indexoid, pg_sys::NoLock as pg_sys::LOCKMODE);
        let mut result = Err(Use::Hidden);
        if let Some(handle) = open(index) {
            let used = match now.in_recovery {
                true => followed(root, index, &handle),
                false => ready(root, index, &handle, now),
            };
            result = match used {
                Use::Offered => Ok(known::remember(index, handle)),
                other => Err(other),
            };
        }
        pg_sys::index_close(index, pg_sys::NoLock as pg_sys::LOCKMODE);
        result
    }
}

/// Completes the description of an index that can be used.
unsafe fn complete(
    root: *mut pg_sys::PlannerInfo,
    info: &mut IndexOptInfo,
    known: &Known,
    now: &mut Now,
) {
    // SAFETY: live planner structures, with an array element for each key column.
    unsafe {
        // The cost function asks for the size of an index that the query can use.
        info.tree_height = -1;
        let order = known.order(|| families::order_of(info, &known.handle.desc));
        if info.sortopfamily.is_null() && order.is_sorted {
            // The server was not shown that the index is ordered: see `am::described`.
            now.show_order(info, order);
        }
        if now.not_bounded || order.of_elements {
            bitmaps_only(info);
        }
        if order.of_elements
            && let Some((column, Source::Array(_))) = known.handle.desc.element
        {
            rewrite::rewrite_query(root, info, column);
        }
        families::show_btree(root, info, order);
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
        if follow::offers(handle.entry, follow::made_by(index)) {
            return Use::Offered;
        }
        given_up::reclaim(index, handle.entry);
    }
    plan_again_soon(root);
    Use::Hidden
}

/// Returns the handle of an index, or `None` if opening it raises an error of nitro. An index that
/// cannot be read must not stop queries that can do without it. Errors of the server go on.
unsafe fn open(index: pg_sys::Relation) -> Option<Rc<Handle>> {
    PgTryBuilder::new(std::panic::AssertUnwindSafe(|| {
        // SAFETY: open and locked by the caller. Our errors are raised with no lock and no pin
        // held.
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
unsafe fn ready(
    root: *mut pg_sys::PlannerInfo,
    index: pg_sys::Relation,
    handle: &Handle,
    now: &Now,
) -> Use {
    // SAFETY: open and locked by the caller; the planner has a snapshot.
    let is_old = || unsafe { !now.of_recovery || follow::is_older(follow::made_by(index)) };
    match handle.entry.state() {
        State::Ready if is_old() => return Use::Offered,
        State::Ready => (),
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
        _ if !nesting::may_bring_up() => (),
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

/// Marks a plan without the index as transient: a cached plan must not outlive the reason. The
/// server makes a transient plan again once the oldest running transaction has changed.
fn plan_again_soon(root: *mut pg_sys::PlannerInfo) {
    // SAFETY: the planner's own live structures.
    unsafe { (*(*root).glob).transientPlan = true };
}

/// A row comes once from a bitmap, in no order.
fn bitmaps_only(info: &mut IndexOptInfo) {
    info.amhasgettuple = false;
    info.amcanparallel = false;
    info.sortopfamily = std::ptr::null_mut();
    info.reverse_sort = std::ptr::null_mut();
    info.nulls_first = std::ptr::null_mut();
}

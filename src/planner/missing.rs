//! Indexes that a query could use and that are not ready.
//!
//! A plan asks the builders for all indexes of its table. It waits for an index only if two things
//! hold: the query can use the index, and a builder loads its image or is going to.
//!
//! The waits of all plans of one statement have one bound (`nitro.max_loading_wait`), and each can
//! be cancelled. So a wait behind a lock of this very transaction ends as well, although the
//! deadlock detector does not see it.
//!
//! A plan does not wait for an index that is built from its table, nor for one whose image is
//! outdated. The query goes another way meanwhile.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use pgrx::PgList;
use pgrx::pg_sys::{self, Bitmapset, IndexOptInfo, PlannerInfo, RelOptInfo};

use crate::image;
use crate::pg::guc::{self, WhenLoading};
use crate::pg::wait::{self, Wait};
use crate::state::directory::{Entry, State};
use crate::upkeep::worker;

/// An index that is not ready.
pub struct Missing {
    pub info: *mut IndexOptInfo,
    pub entry: &'static Entry,
}

/// The waits of one statement's plans for indexes that are not ready.
#[derive(Clone, Copy, Default)]
struct Statement {
    /// When it began.
    id: i64,
    /// How long its plans have waited.
    waited: Duration,
    /// A builder was sent for.
    served: bool,
}

thread_local! {
    static STATEMENT: Cell<Statement> = Cell::default();
}

impl Statement {
    fn current() -> Statement {
        // SAFETY: a plain global.
        let id = unsafe { pg_sys::GetCurrentStatementStartTimestamp() };
        let latest = STATEMENT.get();
        if latest.id == id { latest } else { Statement { id, ..Statement::default() } }
    }

    /// How long its plans may still wait.
    fn left(&self) -> Duration {
        let all = match guc::WHEN_LOADING.get() {
            WhenLoading::Wait => guc::MAX_LOADING_WAIT.get(),
            WhenLoading::Skip => 0,
        };
        Duration::from_millis(all as u64).saturating_sub(self.waited)
    }
}

/// Asks the builders for indexes of a table, and waits for those that the query can use and that
/// come soon.
///
/// # Safety
/// From a planner hook, outside of recovery; `rel` must be a table that `root` plans, with these
/// indexes.
#[cold]
pub unsafe fn ask(root: *mut PlannerInfo, rel: &RelOptInfo, missing: &[Missing]) {
    let mut statement = Statement::current();
    // SAFETY: by contract.
    let used = unsafe { used_columns(root, rel.relid) };
    let wanted: Vec<(&Entry, bool)> = missing
        .iter()
        // SAFETY: by contract.
        .map(|&Missing { info, entry }| (entry, unsafe { is_usable(&*info, used) }))
        .collect();
    statement.served |= worker::wake(&wanted, statement.served);
    let left = statement.left();
    if !left.is_zero() {
        let usable = wanted.iter().filter(|&&(_, usable)| usable);
        let awaited: Vec<Awaited> =
            usable.map(|&(entry, _)| Awaited { entry, has_image: image::exist(entry) }).collect();
        statement.waited += wait_for(&awaited, left);
    }
    STATEMENT.set(statement);
}

/// An index that a query waits for.
struct Awaited {
    entry: &'static Entry,
    has_image: bool,
}

impl Awaited {
    /// Whether its image is being loaded, or a builder is going to load it.
    fn comes_soon(&self) -> bool {
        let from_image = match self.entry.state() {
            State::Loading | State::CatchingUp => true,
            State::Unbuilt => self.has_image,
            _ => false,
        };
        from_image && (worker::is_expected(self.entry) || self.entry.builder.load(Relaxed) != 0)
    }
}

/// Waits until none is left that comes soon, but no longer than `longest`; returns how long that
/// was.
fn wait_for(awaited: &[Awaited], longest: Duration) -> Duration {
    let begun = Instant::now();
    let mut pause = 1;
    while begun.elapsed() < longest && awaited.iter().any(Awaited::comes_soon) {
        wait::nap(Wait::Plan, pause);
        pause = (pause + 1).min(10);
    }
    begun.elapsed()
}

/// The columns of a table by which a query looks for rows, joins them, sorts or groups them.
unsafe fn used_columns(root: *mut PlannerInfo, relid: pg_sys::Index) -> *mut Bitmapset {
    let mut used = std::ptr::null_mut();
    // SAFETY: the planner's live structures. Conditions and the target list are preprocessed: they
    // have no subqueries any more. The arrays have an element for each table of the query.
    unsafe {
        let query = (*root).parse;
        if query.is_null() {
            return used;
        }
        pg_sys::pull_varattnos((*query).jointree.cast(), relid, &mut used);
        for target in PgList::<pg_sys::TargetEntry>::from_pg((*query).targetList).iter_ptr() {
            if (*target).ressortgroupref != 0 {
                pg_sys::pull_varattnos((*target).expr.cast(), relid, &mut used);
            }
        }
        let table = *(*root).simple_rte_array.add(relid as usize);
        pg_sys::pull_varattnos((*table).securityQuals.cast(), relid, &mut used);
        if (*root).append_rel_array.is_null() {
            return used;
        }
        // Of a member the query names the columns of its parent.
        let member = *(*root).append_rel_array.add(relid as usize);
        if let Some(member) = member.as_ref() {
            let of_parent = used_columns(root, member.parent_relid);
            let columns = PgList::<pg_sys::Node>::from_pg(member.translated_vars);
            for (i, column) in columns.iter_ptr().enumerate() {
                let number = i as i32 + 1 - pg_sys::FirstLowInvalidHeapAttributeNumber;
                if !column.is_null() && pg_sys::bms_is_member(number, of_parent) {
                    pg_sys::pull_varattnos(column, relid, &mut used);
                }
            }
        }
        used
    }
}

/// Returns true if a query that names these columns can use an index: by its first column, by
/// columns of its first expression, or by columns of its predicate.
unsafe fn is_usable(info: &IndexOptInfo, used: *mut Bitmapset) -> bool {
    let mut columns = std::ptr::null_mut();
    // SAFETY: the planner's description of an index, which has a column; its expressions name the
    // table as the query does.
    unsafe {
        let relid = (*info.rel).relid;
        if let Some(first) = PgList::<pg_sys::TargetEntry>::from_pg(info.indextlist).get_ptr(0) {
            pg_sys::pull_varattnos((*first).expr.cast(), relid, &mut columns);
        }
        pg_sys::pull_varattnos(info.indpred.cast(), relid, &mut columns);
        pg_sys::bms_overlap(used, columns)
    }
}

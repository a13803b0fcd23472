//! Brings an index up. The first process that needs the index does it: from all blocks of the
//! table, or from an image and the blocks that have changed since.
//!
//! The walk copies the tuples of each heap block under its share lock. Every HOT chain gives one
//! entry: its root TID with the key of the *last* member that is not dead.
//! - In an unbroken chain every other member has the same key.
//! - In a chain that is older than the index this is the rule of CREATE INDEX. A snapshot that
//!   would need an older key is kept away by `indcheckxmin`.
//! - LP_DEAD items and orphaned heap-only tuples are skipped.
//!
//! Then the walk unlocks the block, evaluates predicate and expressions, and inserts the entries if
//! absent, in sorted batches.
//!
//! Rules, and the faults that they prevent:
//! - One walk at a time, under a heavyweight lock ([`BuildLock`]). The walk itself takes
//!   heavyweight locks (TOAST tables, tables that an index function reads), so the deadlock
//!   detector must see the processes that wait for the walk. VACUUM takes the lock in share mode.
//! - Code of the index may come back here, in this process, and the lock lets it in. A [`Claim`]
//!   keeps it out.
//! - The number of blocks is read after the state became BUILDING. Inserts that come later publish.
//! - Progress (`next_block`) belongs to the index: a cancelled walk is continued, not repeated.
//!   Entries of the interrupted batch are inserted again, which changes nothing.
//! - Code of the index runs as the table's owner under SECURITY_RESTRICTED_OPERATION, with its own
//!   GUC level and a safe search_path. A superuser's SELECT must not run an owner's function as
//!   superuser.
//! - A committed-live row that cannot be indexed makes the index FAILED: hidden from the planner,
//!   never in the way of inserts. A row that is not committed-live gets a second look instead.
//!
//! A crash at any point loses all of shared memory, and with it every half-built index.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use nitro_engine::IndexOptions;
use nitro_engine::prelude::*;
use nitro_image::Manifest;
use pgrx::pg_sys::Relation;
use pgrx::prelude::*;

use crate::feed::shared::{self, Keep};
use crate::feed::{Feed, Touched};
use crate::image;
use crate::image::load::Refusal;
use crate::pg::error::Failure;
use crate::pg::guc::{self, Mechanism};
use crate::pg::owner::AsOwner;
use crate::pg::stop::{self, Point};
use crate::pg::wait::{self, Wait};
use crate::pg::{compat, subtransaction};
use crate::state::claim::{self, BuildLock, Claim};
use crate::state::directory::State;
use crate::state::handle::Handle;
use crate::state::nesting;
use crate::state::open::Found;
use crate::state::refusal;
use crate::state::{given_up, hosts, options};
use crate::upkeep::pack;

mod catch_up;
mod evaluate;
mod fill;
pub mod hot_chains;
mod sorted;
mod take_over;

pub use evaluate::{Evaluator, Unreadable};
pub use sorted::{build_sorted, is_small};

/// Returns when the index is READY: loads or builds it, or waits for the process that does. Raises
/// the original ERROR when it cannot be built.
///
/// # Safety
/// `index` must be open and locked, inside a transaction.
pub unsafe fn ensure_ready(index: Relation, handle: &Handle) {
    // SAFETY: by contract.
    unsafe {
        if hosts::stays_away(index, handle.entry) {
            hosts::refuse(index);
        }
        if pg_sys::RecoveryInProgress() {
            not_here(index, "Nitro indexes are not maintained during recovery.");
        }
        if pg_sys::IsInParallelMode() {
            not_here(index, "It cannot be built inside a parallel query.");
        }
        if !nesting::may_bring_up() {
            not_here(index, "It cannot be built by code that an index runs.");
        }
        bring_up(index, handle, &mut shared::take(Keep::Transaction), Origin::Anything);
        if handle.entry.state() != State::Ready {
            refusal::was_given_up(&compat::name(index), handle.entry);
        }
    }
}

/// Does the same as [`ensure_ready`], for a caller that can do without the index. Returns false
/// instead of an ERROR, and at once if the index has failed before.
///
/// # Safety
/// As [`ensure_ready`].
pub unsafe fn try_ready(index: Relation, handle: &Handle) -> bool {
    // SAFETY: by contract.
    unsafe {
        if handle.entry.state() == State::Failed
            || !given_up::may_fit(handle.entry)
            || !nesting::may_bring_up()
            || hosts::stays_away(index, handle.entry)
            || pg_sys::RecoveryInProgress()
            || pg_sys::IsInParallelMode()
        {
            return false;
        }
        let outcome = subtransaction::run(|| ensure_ready(index, handle));
        if let Err(error) = outcome {
            if subtransaction::ends(&error) {
                error.rethrow();
            }
            crate::pg::error::log!(
                "a scan reads the table instead of nitro index \"{}\": {}",
                compat::name(index),
                subtransaction::message(&error)
            );
        }
    }
    handle.entry.state() == State::Ready
}

/// The sources from which an index may be brought up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Its image if there is one, else its table.
    Anything,
    /// Only an image.
    Image,
}

/// Brings an index up, or waits for the process that does. In two cases it is not READY afterwards.
/// There was no usable image, and no other source was allowed. Or there is no memory for it.
/// Returns true if its image is outdated: reading its table takes less time.
///
/// # Safety
/// As [`ensure_ready`], neither in recovery nor in parallel mode, and if this process may
/// ([`nesting::may_bring_up`]).
pub unsafe fn bring_up(index: Relation, handle: &Handle, feed: &mut Feed, origin: Origin) -> bool {
    debug_assert!(nesting::may_bring_up());
    let mut outdated = false;
    // SAFETY: by contract; the heap of an open index exists.
    unsafe {
        if !guc::holds(Mechanism::Deadlocks) {
            wait::until(Wait::Ready, || handle.entry.builder.load(Relaxed) == 0);
        }
        let lock = BuildLock::exclusive(index);
        Claim::await_follower(handle.entry, &lock);
        if hosts::stays_away(index, handle.entry) {
            lock.unlock();
            return false;
        }
        let fits = given_up::reclaim(index, handle.entry) && given_up::may_fit(handle.entry);
        if handle.entry.state() != State::Ready && fits {
            let up = Bringing::begin(index, handle, &lock);
            outdated = up.bring_up(feed, origin);
            stop::at(Point::WalkReady);
            up.end();
        }
        lock.unlock();
    }
    outdated
}

/// Brings indexes of one table up by one reading of the table, the last index first. An index stays
/// as it is if another process brings it up, if it was built in part, or if it may not be sorted.
///
/// # Safety
/// As [`bring_up`], for each; in the process of a builder.
pub unsafe fn bring_up_together(indexes: &[Found], feed: &mut Feed) {
    debug_assert!(nesting::may_bring_up());
    let (mut ups, mut locks) = (Vec::new(), Vec::new());
    for found in indexes {
        let Found::Open(index, handle) = found else { continue };
        // SAFETY: by contract.
        unsafe {
            // A builder that has one of these locks waits for no other.
            let Some(lock) = BuildLock::at_once(*index) else { continue };
            let entry = handle.entry;
            let empty = matches!(entry.state(), State::Unbuilt | State::Bare | State::GivenUp);
            let fits = given_up::reclaim(*index, entry) && given_up::may_fit(entry);
            let away = hosts::stays_away(*index, entry);
            if !empty || !fits || away || entry.builder.load(Relaxed) != 0 {
                lock.unlock();
                continue;
            }
            let up = Bringing::begin(*index, handle, &lock);
            if up.may_sort() {
                ups.push(up);
                locks.push(lock);
            } else {
                up.end();
                lock.unlock();
            }
        }
    }
    // SAFETY: as above.
    unsafe { sorted::sort_together(ups, locks, feed) }
}

/// For VACUUM: returns when no walk is under way, none can begin as long as the lock is held, and
/// no image can be loaded any more. A process that loaded one later would bring back entries that
/// VACUUM is about to remove from memory. So the image is loaded here, which evaluates nothing. The
/// walk over changed blocks is left to the next process that needs the index. An image that cannot
/// be loaded is forgotten.
///
/// # Safety
/// `index` must be open and locked, inside a transaction.
pub unsafe fn lock_against_builds(index: Relation, handle: &Handle) -> BuildLock {
    let entry = handle.entry;
    // SAFETY: by contract.
    unsafe {
        if guc::holds(Mechanism::Forget)
            && matches!(entry.state(), State::Unbuilt | State::Loading)
            && image::exist(entry)
            && !hosts::stays_away(index, entry)
        {
            let lock = BuildLock::exclusive(index);
            let up = Bringing::begin(index, handle, &lock);
            // An image that is not loaded is forgotten below.
            let _ = up.load(&mut shared::take(Keep::Vacuum), false);
            up.end();
            lock.unlock();
            stop::at(Point::DeleteLoaded);
        }
        let lock = BuildLock::shared(index);
        given_up::reclaim(index, entry);
        if guc::holds(Mechanism::Forget) && lock.forget_image(entry) {
            image::remove(entry);
        }
        lock
    }
}

unsafe fn not_here(index: Relation, detail: &str) -> ! {
    Failure::new(
        PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        // SAFETY: open relation by the caller's contract.
        format!("nitro index \"{}\" is not ready", unsafe { compat::name(index) }),
    )
    .detail(detail)
    .hint("Run the query again; it will be planned without the index until the index is ready.")
    .raise()
}

/// One index that is being brought up: open relations, under its build lock, with the identity of
/// the table's owner. Whatever is done with the index may run code of it.
struct Bringing<'a> {
    heap: Relation,
    index: Relation,
    handle: &'a Handle,
    claim: Claim,
    owner: AsOwner,
}

/// The loaded entries, and the blocks that must be read again.
struct Caught {
    source: Source,
    /// Blocks that changed between its LSN and `read_to`, as far as that was asked.
    touched: Option<Touched>,
    read_to: u64,
    begun: Instant,
}

/// Where entries came from.
enum Source {
    /// An image, and the number of entries that were left out.
    Image { manifest: Box<Manifest>, left_out: u64 },
    /// The table.
    Table { entries: u64 },
}

/// The result if there is no image to load.
enum Without {
    /// Nothing.
    Nothing,
    /// One that is outdated.
    Outdated,
}

impl<'a> Bringing<'a> {
    /// Opens the table, takes the claim and takes the identity of the owner on. An ERROR undoes all
    /// of it.
    ///
    /// # Safety
    /// `index` must be open and locked, and `lock` its build lock.
    unsafe fn begin(index: Relation, handle: &'a Handle, lock: &BuildLock) -> Bringing<'a> {
        // SAFETY: by contract; the heap of an open index exists.
        unsafe {
            let heap = (*(*index).rd_index).indrelid;
            let heap = pg_sys::table_open(heap, pg_sys::AccessShareLock as i32);
            let claim = Claim::take(handle, lock);
            Bringing { heap, index, handle, claim, owner: AsOwner::begin(heap) }
        }
    }

    /// Undoes what `begin` did, but for the lock on the table.
    ///
    /// # Safety
    /// At the nesting level of `begin`.
    unsafe fn end(self) {
        // SAFETY: by contract. `begin` opened the relations.
        unsafe {
            self.owner.end();
            drop(self.claim);
            pg_sys::table_close(self.heap, pg_sys::NoLock as i32);
        }
    }

    fn name(&self) -> String {
        // SAFETY: open relation.
        unsafe { compat::name(self.index) }
    }

    /// Brings the index up from the index that a follower kept, from an image, by sorting the
    /// table, or by inserting the table's rows. Returns true if its image is outdated.
    unsafe fn bring_up(&self, feed: &mut Feed, origin: Origin) -> bool {
        // SAFETY: open relations, under the build lock.
        unsafe {
            if self.handle.entry.state() == State::Following && !self.take_over() {
                return false;
            }
            let may_sort = self.may_sort();
            let loaded = self.load(feed, may_sort);
            let outdated = matches!(loaded, Err(Without::Outdated));
            // An index without room for its image has no room when it is built.
            let fits = || given_up::may_fit(self.handle.entry);
            if self.catch_up(feed, loaded.ok()) || origin == Origin::Image || !fits() {
                return outdated;
            }
            if self.handle.entry.state() == State::Failed {
                self.look_where_it_failed();
            }
            let sorted = if may_sort { self.sort() } else { None };
            if !(sorted.is_some() && self.catch_up(feed, sorted)) && fits() {
                self.build();
            }
            outdated
        }
    }

    /// Loads an image, if there is one that may be loaded, `if_worth` it: CATCHING UP from here on.
    /// An ERROR goes back to UNBUILT with the claim, and the memory goes with `Unfinished`.
    unsafe fn load(&self, feed: &mut Feed, if_worth: bool) -> Result<Caught, Without> {
        let begun = Instant::now();
        let entry = self.handle.entry;
        if entry.state() != State::Unbuilt || !image::exist(entry) || !self.claim.load() {
            return Err(Without::Nothing);
        }
        stop::at(Point::LoadClaimed);
        // No process writes an image of an index that is not READY. So a half-written image is an
        // orphan.
        let _ = image::store().sweep(entry.database(), entry.incarnation(), None);
        // SAFETY: open relations, under the build lock.
        let loaded =
            unsafe { image::load::load(self.heap, self.index, self.handle, feed, if_worth) };
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(Refusal::NotNow(_)) => {
                self.claim.interrupt();
                return Err(Without::Nothing);
            }
            Err(Refusal::NoRoom(_)) => {
                given_up::refused(self.handle.entry);
                self.claim.interrupt();
                return Err(Without::Nothing);
            }
            Err(Refusal::Outdated(_)) => {
                // It stays where it is, for the next life of the server.
                self.claim.refuse();
                return Err(Without::Outdated);
            }
            Err(Refusal::Unusable(_) | Refusal::Damaged(_)) => {
                self.claim.refuse();
                return Err(Without::Nothing);
            }
        };
        image::load::note(&entry.image, &loaded);
        let image::load::Loaded { index, manifest, touched, read_to, by_pages, left_out } = loaded;
        self.claim.catch_up(index, manifest.lsn, by_pages);
        stop::at(Point::LoadPublishes);
        Ok(Caught {
            source: Source::Image { manifest: Box::new(manifest), left_out },
            touched: Some(touched),
            read_to,
            begun,
        })
    }

    /// Walks over the table, or goes on with it.
    unsafe fn build(&self) {
        let begun = Instant::now();
        let name = self.name();
        let engine = self.handle.index().unwrap_or_else(|| {
            // An insert may have given up what another one had begun to build.
            if !given_up::is_free(self.handle.entry) {
                claim::went_away();
            }
            // SAFETY: open relation.
            let fillfactor = unsafe { options::fillfactor(self.index) };
            let options = IndexOptions { fillfactor, key_len_hint: 0 };
            let engine = self.handle.create(&options).unwrap_or_else(|e| {
                given_up::refused(self.handle.entry);
                refusal::out_of_memory(&name, self.handle.entry, e)
            });
            self.claim.build(engine)
        });
        stop::at(Point::BuildPublishes);
        // SAFETY: open relations.
        unsafe { self.walk(engine, None) };
        pack::pack(self.handle.entry, engine, || {
            wait::interrupts();
            // An insert may have given it up.
            self.claim.check(engine);
            true
        });
        let milliseconds = begun.elapsed().as_millis() as u64;
        crate::pg::error::log!(
            "nitro index \"{name}\" rebuilt from its table: {} entries in {milliseconds} ms",
            engine.stats().live
        );
        self.claim.finish(milliseconds, true);
    }
}

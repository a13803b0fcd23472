//! The follower: keeps the nitro indexes of one database of a standby equal to their tables.
//!
//! It asks the replayed WAL only for rows and their blocks (`feed::rows`). Then it looks at the
//! pages, which are at least as new, and makes the indexes equal to them. So the order of records
//! and repetition do not matter. When a follower ends, the next one goes on. It reads the WAL again
//! from the position that the indexes reflect. A new index is one whose whole table is still to be
//! looked at.
//!
//! *Invariants*
//! - Position: the follower has noted all records that end at or before `position`. An index
//!   without work reflects `position`; one with work reflects what it did before. `Entry::reflects`
//!   only rises.
//! - Look: the work that a record makes is done after the record was replayed, so the page has the
//!   record's change.
//! - Exact: the reverse map knows all keys of a TID, so a row that gave its TID away has no entry
//!   left (`ReverseMap`).
//! - Not in the way: a transaction of the follower lasts some milliseconds. It waits for no lock on
//!   tables and indexes, and at most `LOCK_TIMEOUT` for others. What replay cancels is done again.
//!   A scan that waits for the follower may hold the lock that replay waits for, and the follower
//!   comes behind replay. `Entry::held_up` lets the scan see that, and it raises an ERROR.
//! - Only in recovery: an index that is FOLLOWING is read by scans that begin in recovery. After a
//!   promotion the follower takes its indexes over (`bring_up/take_over`), or the first process
//!   that needs one does.
//! - One at a time: an index is changed by the process that has its claim.
//!
//! The follower runs code of indexes as the owner of the table. That code may query tables: the
//! planner offers no nitro index to this process, which would wait for itself.
//!
//! An ERROR that says nothing about the row (a conflict with recovery, a lock) is tried again. Any
//! other ERROR, and a lack of memory, retires the index. It is built anew after `AGAIN`.

mod apply;
mod builders;
mod elsewhere;
mod followed;
mod group;
mod load;
mod pack;

use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use nitro_engine::{IndexOptions, REVERSE_OPTIONS, ReverseMap};
use pgrx::pg_sys::{self, Oid, Relation, XLogRecPtr};
use pgrx::prelude::*;

use crate::feed::rows::Records;
use crate::feed::work::Work;
use crate::feed::{Feed, Gap, readable_end};
use crate::pg::background::{self, try_transaction};
use crate::pg::compat;
use crate::pg::wait::{self, Wait};
use crate::pg::{catalog, guc, subtransaction};
use crate::state::claim::Claim;
use crate::state::handle::Handle;
use crate::state::tenants::{Kind, Tenant};
use crate::state::{given_up, hosts, lifecycle, open, options, shmem};
use crate::upkeep::bring_up;
use builders::Builders;
use followed::{Building, Followed};
use group::{Group, Step, note};
pub use load::load;

/// How often the follower looks for indexes that are new, gone or to be tried again.
const LOOK_AROUND: Duration = Duration::from_secs(5);
/// An index that could not be followed is built anew after this time.
const AGAIN: Duration = Duration::from_secs(60);
/// The most that the follower waits for a lock that code of an index takes, as a value of the
/// setting.
const LOCK_TIMEOUT: &std::ffi::CStr = c"50ms";
/// How long the follower sleeps when recovery has replayed something a moment ago, in microseconds.
const NAP: Duration = Duration::from_micros(50);
/// How long a moment is.
const MOMENT: Duration = Duration::from_millis(2);
/// How long the follower sleeps later, in milliseconds. A scan that waits wakes it.
const SLEEP_MS: i64 = 5;
/// When nothing was replayed for this time, the follower sleeps longer.
const QUIET: Duration = Duration::from_secs(1);
/// How long it sleeps then, in milliseconds. A standby that replays nothing pays ten looks a
/// second.
const QUIET_SLEEP_MS: i64 = 100;
/// How long the follower reads WAL before it does the work that it has found.
const READ: Duration = Duration::from_millis(20);

thread_local! {
    /// The database that this process follows.
    static MINE: Cell<Option<&'static Tenant>> = const { Cell::new(None) };
}

/// However a follower ends.
pub fn at_exit() {
    if let Some(tenant) = MINE.take() {
        // SAFETY: a plain global.
        tenant.end_following(unsafe { pg_sys::MyProcPid });
    }
}

/// From now on this process takes the steps of a follower. It waits for no lock for long, and plans
/// with no nitro index.
///
/// # Safety
/// In a background worker.
pub unsafe fn take_duties() {
    // SAFETY: the value is valid, so nothing is raised.
    unsafe {
        pg_sys::SetConfigOption(
            c"lock_timeout".as_ptr(),
            LOCK_TIMEOUT.as_ptr(),
            pg_sys::GucContext::PGC_SUSET,
            pg_sys::GucSource::PGC_S_OVERRIDE,
        );
    }
    background::set_follower();
}

/// Entry point.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nitro_follower_main(argument: pg_sys::Datum) {
    crate::pg::witness!();
    let here = argument.value() as u32;
    // SAFETY: the first things a background worker does, in the order the server documents.
    unsafe {
        compat::die_on_sigterm();
        compat::reload_on_sighup();
        background::set_limits_aside();
        take_duties();
        pg_sys::BackgroundWorkerUnblockSignals();
        pg_sys::BackgroundWorkerInitializeConnectionByOid(
            Oid::from(here),
            pg_sys::InvalidOid,
            pg_sys::BGWORKER_BYPASS_ALLOWCONN,
        );
    }
    // Its exit callback gives back what this process has.
    shmem::process();
    let mut follower = Follower::new(here);
    // SAFETY: reads shared state.
    while unsafe { pg_sys::RecoveryInProgress() } && guc::FOLLOW_WAL.get() && follower.turn() {
        compat::reload_if_asked();
    }
    if !guc::FOLLOW_WAL.get() {
        follower.retire_all("nitro.follow is off");
    } else {
        follower.take_over_all();
    }
}

struct Follower {
    here: u32,
    records: Option<Records>,
    /// All records that end at or before it are noted.
    position: XLogRecPtr,
    /// How far recovery had come at the last look.
    replayed: XLogRecPtr,
    /// The indexes, those of one table with the same work together.
    groups: Vec<Group>,
    /// Indexes that could not be followed, and when that was.
    failed: Vec<(Oid, Instant)>,
    looked_around: Option<Instant>,
    /// When something was replayed last.
    busy: Instant,
    /// When an index was packed last.
    packed: Instant,
    builders: Builders,
    /// An index that scans read has more work than a step has time for.
    unfinished: bool,
}

impl Follower {
    fn new(here: u32) -> Follower {
        Follower {
            here,
            records: None,
            position: 0,
            replayed: 0,
            groups: Vec::new(),
            failed: Vec::new(),
            looked_around: None,
            busy: Instant::now(),
            packed: Instant::now(),
            builders: Builders::new(here),
            unfinished: false,
        }
    }

    /// Notes the replayed records, works for some milliseconds, and sleeps a moment if there is
    /// nothing to do. Returns false if this process is not needed.
    fn turn(&mut self) -> bool {
        if self.looked_around.is_none_or(|at| at.elapsed() > LOOK_AROUND)
            || self.builders.have_brought_some()
        {
            if !self.look_around() {
                return false;
            }
            self.looked_around = Some(Instant::now());
        }
        // SAFETY: asks the clock.
        let begun = unsafe { pg_sys::GetCurrentTimestamp() };
        // A scan waits until its index has no work. Notes of further records would lengthen that.
        if !std::mem::take(&mut self.unfinished) {
            self.read();
        }
        let left = (0..self.groups.len()).rev().map(|i| self.work(i)).max();
        self.tell(begun);
        match left {
            Some(Left::Work) => (),
            Some(Left::Later) => wait::nap(Wait::FollowerMain, SLEEP_MS),
            _ if self.pack() => (),
            _ if self.busy.elapsed() < MOMENT => {
                std::thread::sleep(NAP);
                wait::interrupts();
            }
            _ if self.busy.elapsed() < QUIET => wait::nap(Wait::FollowerMain, SLEEP_MS),
            _ => wait::nap(Wait::FollowerMain, QUIET_SLEEP_MS),
        }
        true
    }

    /// Tells the views how far this process has come in a turn that began at that time.
    fn tell(&self, begun: i64) {
        let Some(following) = MINE.get().map(Tenant::following) else { return };
        following.decoded.store(self.position, Relaxed);
        let is_done = |group: &Group| group.is_building() || group.work.is_done();
        if self.position == self.replayed && self.groups.iter().all(is_done) {
            following.is_current(begun);
        }
    }

    /// Notes what the records say that have been replayed.
    fn read(&mut self) {
        let to = readable_end();
        self.replayed = to;
        if to == self.position {
            return;
        }
        self.busy = Instant::now();
        if self.groups.is_empty() {
            (self.records, self.position) = (None, to);
            return;
        }
        let Follower { here, records, position, groups, .. } = self;
        let outcome = try_transaction(
            || -> Result<(), Gap> {
                let begun = Instant::now();
                let records = match records {
                    Some(records) => records,
                    // SAFETY: inside a transaction.
                    None => records.insert(unsafe { Records::new(*position)? }),
                };
                let (mut more, mut read, mut rows) = (true, 0, 0);
                while more && begun.elapsed() < READ {
                    // SAFETY: as above.
                    more =
                        unsafe { records.next(to, |change| rows += note(*here, groups, change))? };
                    read += u64::from(more);
                }
                *position = records.position();
                if let Some(following) = MINE.get().map(Tenant::following) {
                    following.records.fetch_add(read, Relaxed);
                    following.rows.fetch_add(rows, Relaxed);
                }
                Ok(())
            },
            subtransaction::message,
        );
        match outcome {
            Ok(Ok(())) => (),
            Ok(Err(gap)) => self.begin_anew(gap.why().to_owned(), to),
            Err(why) => self.begin_anew(why, to),
        }
    }

    /// Begins anew: the WAL cannot be read, so the changes are unknown.
    fn begin_anew(&mut self, why: String, to: XLogRecPtr) {
        self.records = None;
        self.position = to;
        self.retire_all(&why);
        self.failed.clear();
    }

    /// Works on a group for some milliseconds. Returns whether it has more work.
    fn work(&mut self, i: usize) -> Left {
        let position = self.position;
        let group = &mut self.groups[i];
        if group.work.is_done() && !group.is_building() {
            group.members.retain(Followed::is_there);
            group.finish(position);
            if group.members.is_empty() {
                self.groups.swap_remove(i);
            }
            return Left::Nothing;
        }
        let step = group.step();
        let (apart, failed) = group.take_out();
        for (member, why) in failed {
            self.failed.push((member.relid, Instant::now()));
            member.retire(&why);
        }
        let left = match step {
            // SAFETY: reads shared state. A builder of recovery does not end outside of it.
            Step::Done if !unsafe { pg_sys::RecoveryInProgress() } => {
                group.members.clear();
                Left::Nothing
            }
            Step::Done => {
                group.finish(position);
                Left::Work
            }
            Step::Again => {
                self.unfinished |= !group.is_building() && !group.work.is_whole();
                Left::Work
            }
            // Other groups go on meanwhile: the same ERROR may end each step.
            Step::Disturbed | Step::HeldUp => Left::Later,
        };
        if group.members.is_empty() {
            self.groups.swap_remove(i);
        }
        self.groups.extend(apart);
        left
    }

    /// Makes the indexes ready after the end of recovery. If that fails here, the first process
    /// that needs an index makes it ready.
    fn take_over_all(&mut self) {
        // The claims on those that are being built end first: a session may wait for one.
        self.groups.retain(|group| !group.is_building());
        let mut feed = Feed::new(self.here);
        for member in std::mem::take(&mut self.groups).into_iter().flat_map(|group| group.members) {
            member.take_over(&mut feed);
        }
    }

    /// Retires all indexes.
    fn retire_all(&mut self, why: &str) {
        self.groups.drain(..).flat_map(|group| group.members).for_each(|member| member.retire(why));
    }

    /// Looks for indexes; false if there are none, or if another process follows this database.
    fn look_around(&mut self) -> bool {
        self.failed.retain(|(_, at)| at.elapsed() < AGAIN);
        let indexes = try_transaction(
            || {
                // SAFETY: inside a transaction.
                unsafe {
                    lifecycle::sweep();
                    lifecycle::sweep_databases();
                    let all = catalog::nitro_indexes().into_iter();
                    all.partition::<Vec<Oid>, _>(|&relid| !hosts::is_elsewhere_by_name(relid))
                }
            },
            |caught| subtransaction::report("nitro could not look for indexes".into(), caught),
        );
        let Ok((indexes, elsewhere)) = indexes else { return true };
        let all_left = elsewhere::leave(self.here, &mut self.groups, &elsewhere);
        for &relid in &indexes {
            let mut all = self.groups.iter().flat_map(|group| &group.members);
            let known = all.any(|member| member.relid == relid);
            if !known && !self.failed.iter().any(|&(failed, _)| failed == relid) {
                match self.begin(relid) {
                    Begun::Here(group) => {
                        self.come_back(&group);
                        self.add(group);
                    }
                    Begun::NotNow => (),
                    Begun::Other => return false,
                }
            }
        }
        self.gather();
        self.builders.want_images(&mut self.groups);
        !indexes.is_empty() || !all_left
    }

    /// Records that were noted before are noted again for indexes that do not reflect them.
    fn come_back(&mut self, group: &Group) {
        if !group.is_building() {
            let all = group.members.iter().map(|member| member.entry.reflects.load(Acquire));
            let reflect = all.min().unwrap_or(self.position);
            if reflect < self.position {
                (self.records, self.position) = (None, reflect);
            }
        }
    }

    fn add(&mut self, group: Group) {
        match self.groups.iter_mut().find(|other| other.takes(&group)) {
            Some(other) => other.members.extend(group.members),
            None => self.groups.push(group),
        }
    }

    /// Joins groups that have the same work by now.
    fn gather(&mut self) {
        std::mem::take(&mut self.groups).into_iter().for_each(|group| self.add(group));
    }

    /// Begins to build an index, or takes it over from a follower that has ended.
    fn begin(&mut self, relid: Oid) -> Begun {
        // Before anything of the index is known: records that are replayed from here on are noted.
        if self.groups.is_empty() {
            (self.records, self.position) = (None, readable_end());
        }
        let mut begun = Begun::NotNow;
        let _ = try_transaction(
            || {
                // SAFETY: inside a transaction.
                unsafe {
                    open::with_index_at_once(relid, |heap, index, handle| {
                        begun = self.begin_locked(heap, index, handle);
                    });
                }
            },
            |caught| subtransaction::report("nitro could not follow an index".into(), caught),
        );
        begun
    }

    unsafe fn begin_locked(&mut self, heap: Relation, index: Relation, handle: &Handle) -> Begun {
        let entry = handle.entry;
        let tenant = entry.tenant(Kind::Database);
        // SAFETY: a plain global.
        let me = unsafe { pg_sys::MyProcPid };
        if tenant.follower() != me && !tenant.begin_following(me) {
            return Begun::Other;
        }
        MINE.set(Some(tenant));
        // SAFETY: open relations.
        unsafe {
            if !(*(*index).rd_index).indisvalid
                || (*(*index).rd_rel).relpersistence as u8 != pg_sys::RELPERSISTENCE_PERMANENT
            {
                return Begun::NotNow;
            }
            let relid = (*index).rd_id;
            let group = |both: ReverseMap, work, building| {
                let member = Followed::new(entry, relid, both, building);
                Begun::Here(Group::of(heap, member, work))
            };
            if let Some(both) = handle.entry.followed(shmem::process()) {
                self.builders.forget(relid);
                return group(both, Work::default(), None);
            }
            if self.builders.have(relid, entry, bring_up::is_small(heap)) {
                return Begun::NotNow;
            }
            if !given_up::reclaim(index, entry) || !given_up::may_fit(entry) {
                return Begun::NotNow;
            }
            let Some(claim) = Claim::of_follower(handle).filter(Claim::sort) else {
                return Begun::NotNow;
            };
            let fillfactor = options::fillfactor(index);
            let main = handle.create(&IndexOptions { fillfactor, key_len_hint: 0 });
            let map = handle.create(&REVERSE_OPTIONS);
            let (Ok(main), Ok(map)) = (main, map) else {
                given_up::refused(entry);
                return Begun::NotNow;
            };
            let both = ReverseMap::of(main.index(), map.index());
            let building = Building { claim, main, map, from_table: true };
            group(both, Work::of_new(), Some(building))
        }
    }
}

/// The remaining work for an index.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    Nothing,
    /// There is some, behind a lock that another process has, or an ERROR that may pass.
    Later,
    Work,
}

/// The result of beginning an index.
enum Begun {
    /// A group of it alone: it is new here, or a follower that has ended has left it.
    Here(Group),
    NotNow,
    /// Another process follows this database.
    Other,
}

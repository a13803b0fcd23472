//! The keeper: one background worker per server that decides when images are made and loaded.
//!
//! It has no database and runs no code of users. It sends a background worker into a database in
//! these cases:
//! - at the start, into every database that has images,
//! - after a checkpoint, and when an index was created, into every database whose images are to be
//!   made anew,
//! - when indexes of the database have grown and are to be packed,
//! - when a query found no place for a builder.
//!
//! It removes files of databases that are gone at the start and after a checkpoint. It moves the
//! replication slot every `SLOT_CARE`, and after each worker. It learns of a checkpoint by the redo
//! pointer, so no part of the checkpointer waits for it.
//!
//! On SIGTERM it makes last images for at most `STOP_PATIENCE`, and ends. The postmaster starts it
//! again unless the server stops.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::thread;
use std::time::{Duration, Instant};

use nitro_engine::Process;
use nitro_image::{Manifest, RealDisk, Store};
use pgrx::bgworkers::{
    BackgroundWorkerBuilder, BackgroundWorkerStatus, BgWorkerStartTime, DynamicBackgroundWorker,
};
use pgrx::prelude::*;

use crate::feed;
use crate::image::backup::{self, BUSY, Outcome};
use crate::image::{self, slot};
use crate::pg::background::{set_limits_aside, transaction};
use crate::pg::compat;
use crate::pg::error::Failure;
use crate::pg::guc::{self, Mechanism};
use crate::pg::stop::{self, Point};
use crate::pg::wait::{self, Wait};
use crate::state::directory::{self, Entry, Incarnation, State};
use crate::state::shmem;
use crate::upkeep::{alarms, pack, worker};

/// Milliseconds between two rounds of the keeper. A database whose query found no place for a
/// builder gets one in the next round.
const PAUSE_MS: i64 = 500;
/// Time between two updates of the replication slot. It bounds the WAL that is kept too long.
const SLOT_CARE: Duration = Duration::from_secs(10);
/// Time after the keeper's start until the users of replication slots are connected again. A
/// standby tries every `wal_retrieve_retry_interval`, 5 seconds by default.
pub const SETTLED: Duration = Duration::from_secs(10);
/// Time until the same database gets another worker. So a worker that fails at once does not come
/// back in every round.
const AGAIN: Duration = Duration::from_secs(2);
/// Time that the keeper waits for a worker before it starts the next one. An image of a large index
/// may take longer, and other databases must not wait for it.
const PATIENCE: Duration = Duration::from_secs(600);

/// Time for last images when the server stops. The shutdown waits for it.
const STOP_PATIENCE: Duration = Duration::from_secs(2);
/// Time between two looks whether the worker that makes an image of the index has ended.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// Size of an image in bytes from which on no last image is made: it would not be ready in time.
const STOP_BYTES: u64 = 256 << 20;

/// Returns true if `pg_upgrade` has started this server. No worker may run then. In the old cluster
/// workers would read tables. If hint bits are logged, that leaves pages with LSNs that the new
/// cluster's WAL has not reached: `pg_upgrade` has noted the end of the WAL before. In the new
/// cluster workers would make images of tables that are empty until their files are put in place.
fn upgrading() -> bool {
    // SAFETY: a plain global, set from the command line.
    unsafe { pg_sys::IsBinaryUpgrade }
}

/// Registers the keeper; only while `shared_preload_libraries` are loaded.
pub fn register() {
    if upgrading() {
        return;
    }
    BackgroundWorkerBuilder::new("nitro keeper")
        .set_type("nitro keeper")
        .set_library("nitro")
        .set_function("nitro_keeper_main")
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(Some(Duration::from_secs(5)))
        .enable_spi_access()
        .load();
}

/// No keeper lives, but one did and is started again.
const ENDED: i32 = -1;
/// No keeper came up, and a process has reported that.
const MISSED: i32 = -2;
/// No keeper comes up in recovery, and a process has dropped the slot.
const STANDBY: i32 = -3;
/// Seconds that the server may need to start a keeper.
const MISSED_SECONDS: u64 = 10;

/// However a keeper ends.
pub fn at_exit() {
    // SAFETY: a plain global.
    let me = unsafe { pg_sys::MyProcPid };
    let _ = directory::get().life.keeper.compare_exchange(me, ENDED, Release, Relaxed);
}

/// In any process: notices that the server has no place for a keeper. It reports that, and drops a
/// slot that no process moves: from an earlier start, or, on a standby, from the server whose files
/// were copied.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn look_for_one() {
    let life = &directory::get().life;
    let keeper = life.keeper.load(Relaxed);
    if keeper > 0 || keeper == ENDED || keeper == MISSED || upgrading() {
        return;
    }
    // SAFETY: reads shared state.
    let recovery = unsafe { pg_sys::RecoveryInProgress() };
    match (keeper == STANDBY, recovery) {
        (true, true) => return,
        // From now on there should be one.
        (true, false) => {
            life.keeper_missed.store(0, Relaxed);
            let _ = life.keeper.compare_exchange(STANDBY, 0, AcqRel, Relaxed);
            return;
        }
        (false, _) => (),
    }
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |d| d.as_secs());
    let since = match life.keeper_missed.compare_exchange(0, now, Relaxed, Relaxed) {
        Ok(_) => now,
        Err(since) => since,
    };
    let missed = if recovery { STANDBY } else { MISSED };
    if now.saturating_sub(since) < MISSED_SECONDS
        || life.keeper.compare_exchange(0, missed, AcqRel, Relaxed).is_err()
    {
        return;
    }
    if !recovery {
        Failure::new(
            PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
            "nitro keeper is not running",
        )
        .detail("No images of nitro indexes are made automatically, and no replication slot keeps WAL for them.")
        .hint("Raise \"max_worker_processes\" and restart the server.")
        .log();
    }
    // SAFETY: by contract.
    unsafe { slot::drop_unkept(recovery) };
}

/// Marks indexes for a new image, but for those whose small image may stay. The image is right as
/// long as its index does not change. A new manifest would write a whole file of small images. A
/// large image has a manifest of its own.
fn want_images() {
    let mut ready = Vec::new();
    directory::get().for_each(|entry| {
        if entry.state() == State::Ready {
            ready.push((entry, entry.generation()));
        }
    });
    // Files are read without the lock of the directory. A new user of an entry has no image yet.
    let process = shmem::process();
    for (entry, generation) in ready {
        if !may_stay(entry, process) && entry.generation() == generation {
            entry.image.wanted.store(1, Relaxed);
        }
    }
}

/// Returns whether the newest image of an index is small and still there, its index unchanged, and
/// the WAL since then short.
pub fn may_stay(entry: &Entry, process: &Process) -> bool {
    let image = &entry.image;
    let lsn = image.saved_lsn.load(Relaxed);
    let size = image.saved_bytes.load(Relaxed);
    let collected = guc::COLLECT.get() && size < Store::<RealDisk>::SMALL as u64;
    // A standby has no slot. It compares the pages of the table where the WAL is gone.
    // SAFETY: reads shared state.
    let kept = |lsn| unsafe { pg_sys::RecoveryInProgress() } || slot::keeps_easily(lsn);
    if lsn == 0 || !collected || !kept(lsn) {
        return false;
    }
    // State first, inside: the memory stays until this process leaves.
    let inside = process.enter();
    let operations = entry.ready_index(process).map(backup::operations);
    drop(inside);
    // Damage, or a full disk, may have cost the image.
    operations == Some(image.operations.load(Relaxed))
        && newest_image(entry.database(), entry.incarnation()).is_some_and(|m| m.lsn == lsn)
}

/// Entry point.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nitro_keeper_main(_argument: pg_sys::Datum) {
    crate::pg::witness!();
    // SAFETY: the first things a background worker does, in the order the server documents.
    unsafe {
        compat::ask_on_sigterm();
        compat::reload_on_sighup();
        set_limits_aside();
        pg_sys::BackgroundWorkerUnblockSignals();
        pg_sys::BackgroundWorkerInitializeConnection(std::ptr::null(), std::ptr::null(), 0);
    }
    // Its exit callback says that this one is gone.
    shmem::process();
    // SAFETY: a plain global.
    directory::get().life.keeper.store(unsafe { pg_sys::MyProcPid }, Release);
    // Once in a life of the server: later, images come that are newer than the WAL was.
    slot::look_at_start(|found| {
        if guc::holds(Mechanism::Manifest) {
            remove_contradicted(found);
        }
    });
    // Folders of databases that are gone were removed first, so every worker gets where it is sent.
    remove_orphans();
    let mut keeper = Keeper {
        since: Instant::now(),
        waiting: image::store().databases().unwrap_or_default().into(),
        sent: None,
        last: None,
        redo: redo(),
        slot: None,
        packed: None,
        late: HashMap::new(),
    };
    while !compat::asked_to_end() {
        keeper.look_around();
        wait::nap(Wait::KeeperMain, PAUSE_MS);
        compat::reload_if_asked();
    }
    if guc::BACKUP.get() {
        last_images();
    }
    // Not 0: if it was not the server that stops, the postmaster is to start another keeper.
    // SAFETY: the end of the worker.
    unsafe { pg_sys::proc_exit(1) };
}

/// Makes images of small indexes when the server stops, so that the next start has nothing to catch
/// up with. Other processes may still write. The next start catches up with these changes.
fn last_images() {
    let begun = Instant::now();
    let in_time = || begun.elapsed() < STOP_PATIENCE;
    let process = shmem::process();
    let mut all = Vec::new();
    directory::get().for_each(|entry| {
        let size = entry.image.saved_bytes.load(Relaxed);
        let engine = entry.index(process).filter(|_| entry.state() == State::Ready);
        if engine.is_some() && size < STOP_BYTES {
            all.push((size, entry, entry.generation()));
        }
    });
    all.sort_unstable_by_key(|&(size, ..)| size);
    while !all.is_empty() && in_time() {
        let before = all.len();
        // A worker that makes an image ends too. If it leaves the image unfinished, the index comes
        // again after the others.
        all.retain(|&(_, entry, generation)| {
            in_time() && last_image(entry, generation, in_time) == Some(Outcome::NotNow(BUSY))
        });
        if all.len() == before {
            wait::shown_during(Wait::KeeperMain, || thread::sleep(BUSY_PAUSE));
        }
    }
}

/// Makes a last image of an index, unless the index is gone.
fn last_image(
    entry: &'static Entry,
    generation: u32,
    in_time: impl Fn() -> bool + Sync,
) -> Option<Outcome> {
    let mut outcome = None;
    transaction("make a last image", || {
        let relid = entry.relid.load(Relaxed);
        // SAFETY: the locks keep the index, which still was there when they were had, from being
        // dropped, by itself or with its database, and its table from being moved.
        let end = unsafe {
            if !compat::lock_database(entry.database())
                || ![relid, entry.table().oid]
                    .into_iter()
                    .all(|relation| compat::lock_relation_of(entry.database(), relation))
                || entry.generation() != generation
            {
                return;
            }
            backup::back_up_at_exit(entry, in_time)
        };
        match end {
            Ok(end) => outcome = Some(end),
            Err(why) => pgrx::debug1!("no last image of index {relid}: {why}"),
        }
    });
    outcome
}

struct Keeper {
    /// When it came up.
    since: Instant,
    /// Databases that need a worker.
    waiting: VecDeque<u32>,
    /// The worker at work, one at a time.
    sent: Option<(DynamicBackgroundWorker, Instant)>,
    /// Where the last one was sent, and when: not there again at once, since it may not have got
    /// there.
    last: Option<(u32, Instant)>,
    /// The redo pointer of the last checkpoint that images were made for.
    redo: u64,
    /// When the slot was looked after; `None`: it should be.
    slot: Option<Instant>,
    /// When this process looked for indexes to pack.
    packed: Option<Instant>,
    /// When builders were sent for queries that had found no place for one.
    late: HashMap<u32, Instant>,
}

/// The redo pointer of the last checkpoint or restartpoint.
pub fn redo() -> u64 {
    // SAFETY: a shared counter under its spinlock.
    unsafe { pg_sys::GetRedoRecPtr() }
}

impl Keeper {
    fn look_around(&mut self) {
        // A process that gives an index up does not wait until its memory can be freed.
        nitro_engine::destroy_due(&shmem::area());
        alarms::look();
        // Before images, because a query waits.
        self.late.retain(|_, at| at.elapsed() < AGAIN);
        for database in worker::turned_away() {
            if !self.late.contains_key(&database)
                && worker::start(database, worker::Purpose::Build).is_ok()
            {
                self.late.insert(database, Instant::now());
            }
        }
        if guc::PACK.get() && self.packed.is_none_or(|at| at.elapsed() >= pack::LOOK) {
            self.packed = Some(Instant::now());
            pack::look();
        }
        let redo = redo();
        if redo != self.redo {
            self.redo = redo;
            self.slot = None;
            remove_orphans();
            if guc::BACKUP.get() {
                want_images();
            }
            // Images of indexes that were dropped are removed by a worker.
            self.waiting.extend(with_unknown_images());
        }
        // While images are off, no worker is sent for one. The wanted images wait until they are on
        // again.
        let images = guc::BACKUP.get();
        directory::get().for_each(|entry| {
            let database = entry.database();
            let again = self.last.is_some_and(|(d, at)| d == database && at.elapsed() < AGAIN);
            let wanted = images && entry.image.wanted.load(Relaxed) != 0
                || entry.packed.wanted.load(Relaxed) != 0;
            if wanted && !again && self.sent.is_none() && !self.waiting.contains(&database) {
                self.waiting.push_back(database);
            }
        });
        // If there is no place for a worker: next time.
        if self.is_idle()
            && let Some(&database) = self.waiting.front()
            && let Ok(handle) = worker::start(database, worker::Purpose::Images)
        {
            self.waiting.pop_front();
            self.sent = Some((handle, Instant::now()));
            self.last = Some((database, Instant::now()));
        }
        // By the clock, whatever becomes of the images: the slot must not keep WAL without end. At
        // the start at once, before a checkpoint removes what the images need.
        if self.slot.is_none_or(|at| at.elapsed() > SLOT_CARE) {
            self.slot = Some(Instant::now());
            transaction("look after the replication slot", || {
                let oldest = guc::BACKUP.get().then(oldest_image).flatten();
                // SAFETY: the keeper, inside a transaction.
                unsafe { slot::maintain(oldest, self.since.elapsed() >= SETTLED) };
            });
        }
    }

    fn is_idle(&mut self) -> bool {
        let done = self.sent.as_ref().is_none_or(|(handle, since)| {
            matches!(handle.pid(), Err(BackgroundWorkerStatus::Stopped))
                || since.elapsed() > PATIENCE
        });
        if done && self.sent.take().is_some() {
            // It may have made images: older WAL is not needed any more.
            self.slot = None;
        }
        done
    }
}

/// Returns databases with images of indexes that no process has opened.
fn with_unknown_images() -> Vec<u32> {
    let store = image::store();
    let unknown = |database: &u32| {
        let all = store.incarnations(*database).unwrap_or_default();
        all.into_iter().any(|incarnation| !directory::get().knows(*database, incarnation))
    };
    store.databases().unwrap_or_default().into_iter().filter(unknown).collect()
}

/// Returns the oldest LSN from which WAL is needed: of an image that would be loaded or is being
/// made, or of an index that must catch up.
fn oldest_image() -> Option<u64> {
    let mut oldest = oldest_on_disk();
    let mut add = |lsn: &AtomicU64| {
        let lsn = match lsn.load(Relaxed) {
            // It was not read yet, and will be newer than all others.
            0 => newest_wal(),
            lsn => lsn,
        };
        oldest = Some(oldest.map_or(lsn, |oldest| oldest.min(lsn)));
    };
    directory::get().for_each(|entry| {
        if entry.image.saver.load(Acquire) != 0 {
            add(&entry.image.lsn);
        }
        // A table that is sorted has no image by which the WAL would be kept.
        if entry.builder.load(Relaxed) != 0
            && matches!(entry.state(), State::Sorting | State::CatchingUp)
        {
            add(&entry.image.catch_up_from);
        }
    });
    oldest
}

fn newest_wal() -> u64 {
    // SAFETY: a shared position.
    unsafe { pg_sys::GetXLogInsertRecPtr() }
}

fn oldest_on_disk() -> Option<u64> {
    let store = image::store();
    let databases = store.databases().unwrap_or_default();
    let newest = databases.into_iter().flat_map(|database| {
        let all = store.incarnations(database).unwrap_or_default();
        all.into_iter().filter_map(move |incarnation| newest_image(database, incarnation))
    });
    newest.map(|manifest| manifest.lsn).min()
}

fn newest_image(database: u32, incarnation: Incarnation) -> Option<Manifest> {
    image::manifests(database, incarnation).into_iter().next()
}

/// Removes images that the server made as a standby, and images that are ahead of its WAL. Removes
/// images whose WAL is gone although the slot has kept it: the WAL was reset. They are of no use
/// now. Later, when the WAL has grown and a clean stop has removed the slot, nothing would tell
/// them from good ones.
fn remove_contradicted(found: slot::Found) {
    let store = image::store();
    let kept = found == slot::Found::Valid;
    for database in store.databases().unwrap_or_default() {
        for incarnation in store.incarnations(database).unwrap_or_default() {
            stop::at(Point::KeeperLooks);
            for manifest in image::manifests(database, incarnation) {
                // Only now: it may have been made since the server started.
                let why = if manifest.is_of_standby() {
                    "it was made while this server was a standby"
                } else if manifest.end > newest_wal() {
                    "it is newer than the server's WAL"
                } else if kept && !feed::segment_exists(manifest.timeline, manifest.lsn) {
                    "the WAL since it was made is gone"
                } else {
                    continue;
                };
                crate::pg::error::log!(
                    "nitro index \"{}\": an image is removed: {why}",
                    manifest.name
                );
                if let Err(e) = store.remove(&manifest) {
                    crate::pg::error::log!("nitro could not remove it: {e}");
                }
            }
        }
    }
}

/// Removes the images of databases that do not exist any more.
pub fn remove_orphans() {
    transaction("remove images of dropped databases", || {
        let store = image::store();
        for database in store.databases().unwrap_or_default() {
            // SAFETY: a shared catalogue, readable without a database.
            let exists = unsafe { compat::database_exists(database) };
            if !exists && let Err(e) = store.remove_database(database) {
                crate::pg::error::log!("nitro could not remove pg_nitro/{database}: {e}");
            }
        }
    });
}

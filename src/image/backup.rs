//! Writing an image.
//!
//! The order of events keeps D3: an entry of the index is in the image of LSN B, or its heap block
//! has a WAL record later than B.
//! 1. only of an index that is READY and valid: entries that a build adds belong to old tuples;
//! 2. B := insert LSN, then X := next transaction ID, both published;
//! 3. the term is closed, and writers that began in it are waited for: the image has their entries.
//!    A writer that publishes later has seen B and X (see `straddler`);
//! 4. the entries as of 3 are written, by ranges, by several threads;
//! 5. a mark is written into the index' page, and all WAL up to its record is flushed, then the
//!    manifest appears. So no entry of an image is ahead of durable WAL. Nor is the lack of an
//!    entry. An entry that was dropped during 4 was dead to every transaction by a commit, whose
//!    record is before the flushed end. The manifest has the mark and the end of that WAL. A server
//!    whose history left this WAL before its end has other rows than the image, and no mark.
//!
//! If no operation was counted since the newest image was begun, its files are still right, and it
//! gets a new manifest by the same steps without 4.
//!
//! No snapshot is held while the files are written, so the collector does not stop. An entry that
//! is written although dead is harmless until its TID is recycled, which leaves a WAL record after
//! B.
//!
//! A standby has steps of its own in place of 2, 3 and 5 (`standby`).
//!
//! ERROR, FATAL or a crash at any point leave the image before this one; a B that was published
//! without an image makes old transactions look at pages, nothing else.

use std::cell::Cell;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering::*, fence};
use std::thread;
use std::time::{Instant, SystemTime};

use nitro_engine::prelude::*;
use nitro_engine::{Index, Process};
use nitro_image::{Draft, Manifest, ShardSummary};
use pgrx::pg_sys::{self, Relation};

mod planted;
mod waiters;

use super::pace::Pace;
use super::shards::{Job, Shards};
use super::{ImageState, slot, standby, term};
use crate::feed;
use crate::pg::compat;
use crate::pg::guc::{self, Mechanism};
use crate::pg::stop::{self, Point};
use crate::pg::wait::Wait;
use crate::state::counters::{Counters, count};
use crate::state::directory::{Entry, State};
use crate::state::given_up::InUse;
use crate::state::handle::Handle;
use crate::state::{hosts, identity, shmem, threads};
use waiters::Waiters;

/// How a backup ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Entries and bytes were written.
    Written,
    /// Nothing had changed: the files got a new manifest.
    Refreshed,
    /// There is no image to be made now, for this reason.
    NotNow(&'static str),
}

/// The reason why there is no image now that passes by itself, soon when the server stops.
pub const BUSY: &str = "another process is making one";

thread_local! {
    /// The index whose image this process makes.
    static SAVING: Cell<Option<&'static Entry>> = const { Cell::new(None) };
}

/// One image of one index at a time.
struct Claim(&'static Entry);

impl Claim {
    fn take(entry: &'static Entry) -> Option<Claim> {
        // SAFETY: a plain global.
        let me = unsafe { pg_sys::MyProcPid };
        entry.image.saver.compare_exchange(0, me, AcqRel, Relaxed).ok()?;
        SAVING.set(Some(entry));
        for word in [&entry.image.done, &entry.image.total, &entry.image.bytes] {
            word.store(0, Relaxed);
        }
        Some(Claim(entry))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        SAVING.set(None);
        self.0.image.saver.store(0, Release);
    }
}

/// For a process that ends without unwinding: gives up the image that it makes. Its locks on the
/// index are still held.
pub fn abandon(process: &Process) {
    if let Some(entry) = SAVING.take() {
        if let Some(engine) = entry.index(process) {
            // SAFETY: a plain global.
            engine.release_all(process, unsafe { pg_sys::MyProcPid } as u64);
        }
        entry.image.saver.store(0, Release);
    }
}

/// Why there is no image to be made of an index now.
unsafe fn obstacle(index: Relation, handle: &Handle, standby: bool) -> Option<&'static str> {
    // SAFETY: open relation.
    unsafe {
        let form = (*index).rd_index;
        if (*(*index).rd_rel).relpersistence as u8 != pg_sys::RELPERSISTENCE_PERMANENT {
            return Some("its table is not permanent");
        }
        if !guc::BACKUP.get() || !hosts::wants_images(index) {
            return Some("images are switched off");
        }
        if pg_sys::wal_level < pg_sys::WalLevel::WAL_LEVEL_REPLICA as i32 {
            return Some("\"wal_level\" is below \"replica\"");
        }
        // It would wait for the writers of a term, and this process may be one.
        if shmem::process().is_inside() {
            return Some("a comparison function requested it");
        }
        let valid = (*form).indisvalid && (*form).indisready;
        if !valid && guc::holds(Mechanism::ValidIndexes) {
            return Some("the index is not valid");
        }
        if standby {
            let followed = handle.entry.state() == State::Following;
            return (!followed).then_some("this standby does not keep the index up to date");
        }
        let half = handle.entry.state() != State::Ready;
        (half && guc::holds(Mechanism::WholeImages)).then_some("the index is not in memory")
    }
}

/// Counts the changes of an index.
pub fn operations(engine: Index) -> u64 {
    let stats = engine.stats();
    stats.inserts + stats.removes
}

/// Makes an image. Returns the errors of the file system.
///
/// # Safety
/// Open relations, locked at least in AccessShare mode, inside a transaction.
pub unsafe fn back_up(heap: Relation, index: Relation, handle: &Handle) -> Result<Outcome, String> {
    // SAFETY: open relations.
    unsafe {
        // Asked once: the steps have to fit the state that was found. After a promotion an index is
        // not complete at once.
        let standby = pg_sys::RecoveryInProgress();
        if let Some(why) = obstacle(index, handle, standby) {
            return Ok(Outcome::NotNow(why));
        }
        let at = compat::locator(heap);
        let prototype = Manifest {
            system: pg_sys::GetSystemIdentifier(),
            lsn: 0,
            end: 0,
            timeline: 0,
            mark: 0,
            server: pg_sys::PG_VERSION_NUM,
            slot: false,
            database: handle.entry.database(),
            index: (*index).rd_id.to_u32(),
            heap_tablespace: at.tablespace,
            heap_file: at.number,
            incarnation: handle.entry.incarnation(),
            generation: 0,
            name: compat::name(index),
            columns: super::columns(&handle.desc),
            entries: 0,
            operations: 0,
            taken: 0,
            shards: Vec::new(),
            carried: Vec::new(),
        };
        make(handle.entry, standby, prototype, |engine, sn, draft| {
            let image = &handle.entry.image;
            let hurry = AtomicBool::new(false);
            let pace = Pace::new(guc::BACKUP_RATE.get(), thread::sleep, &hurry);
            let abbreviated = !handle.desc.is_memcmp();
            let job = Job { engine, sn, abbreviated, draft, image, pace };
            let mut waiters = Waiters { index, image, looked: Instant::now(), hurry: &hurry };
            // The snapshot of the catalogue. No access to the catalogue is under way.
            pg_sys::InvalidateCatalogSnapshot();
            // The server's clients do not wait for images.
            let begin = threads::yield_to_others;
            write_shards(&job, begin, || !threads::stopped(), || waiters.give_way())
        })
    }
}

/// Makes a last image when the server stops, without a database and by the newest image's
/// description of the index. `go_on` is asked whether there is still time.
///
/// # Safety
/// The index must not go away meanwhile; inside a transaction.
pub unsafe fn back_up_at_exit(
    entry: &'static Entry,
    go_on: impl Fn() -> bool + Sync,
) -> Result<Outcome, String> {
    let prototype = super::manifests(entry.database(), entry.incarnation()).into_iter().next();
    let at = entry.table().locator;
    let prototype =
        prototype.filter(|m| (m.heap_tablespace, m.heap_file) == (at.tablespace, at.number));
    let Some(prototype) = prototype else {
        return Ok(Outcome::NotNow("there is no image that describes the index"));
    };
    make(entry, false, prototype, |engine, sn, draft| {
        let hurry = AtomicBool::new(true);
        let pace = Pace::new(0, thread::sleep, &hurry);
        let abbreviated = !engine.is_byte_ordered();
        let job = Job { engine, sn, abbreviated, draft, image: &entry.image, pace };
        write_shards(&job, || (), || !threads::stopped() && go_on(), || ())
    })
}

/// An image that is being made; one that is dropped has failed.
struct Attempt<'a>(&'a Counters);

impl Attempt<'_> {
    fn ends(self, outcome: &Outcome) {
        match outcome {
            Outcome::Written | Outcome::Refreshed => count(&self.0.images),
            Outcome::NotNow(_) => {}
        }
        std::mem::forget(self);
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        count(&self.0.images_failed);
    }
}

/// Makes an image, and counts it.
fn make(
    entry: &'static Entry,
    standby: bool,
    manifest: Manifest,
    write: impl FnOnce(Index, u32, &Draft<'_>) -> Result<Vec<ShardSummary>, String>,
) -> Result<Outcome, String> {
    let attempt = Attempt(&entry.counters);
    let outcome = steps(entry, standby, manifest, write)?;
    attempt.ends(&outcome);
    Ok(outcome)
}

/// Steps 2 to 5. `write` writes the entries of a term to a draft.
fn steps(
    entry: &'static Entry,
    standby: bool,
    manifest: Manifest,
    write: impl FnOnce(Index, u32, &Draft<'_>) -> Result<Vec<ShardSummary>, String>,
) -> Result<Outcome, String> {
    let Some(_claim) = Claim::take(entry) else {
        return Ok(Outcome::NotNow(BUSY));
    };
    let process = shmem::process();
    let engine = if standby { entry.readable_index(process) } else { entry.index(process) };
    let Some(engine) = engine else {
        return Ok(Outcome::NotNow("the index is not in memory"));
    };
    let _used = InUse::of(engine);
    let before = operations(engine);
    let mut making = Making { entry, engine, manifest, standby };
    let Some(sn) = making.begin() else {
        return Ok(Outcome::NotNow("the index was given up"));
    };
    let after = operations(engine);
    if let Some(newest) = making.unchanged(after)
        && let Some(outcome) = making.refresh(newest, after)?
    {
        return Ok(outcome);
    }
    making.write(before, |draft| write(engine, sn, draft))
}

/// An image while it is made.
struct Making {
    entry: &'static Entry,
    engine: Index,
    manifest: Manifest,
    /// Whether it is made by the steps of a standby.
    standby: bool,
}

/// The LSN of an image is published: only then its transaction ID is read.
struct LsnSaid(());
/// The transaction ID is published, too: only then the term is closed.
struct XidSaid(());

impl Making {
    /// Steps 2 and 3, or those of a standby. Returns the term, or nothing if the index was given
    /// up.
    fn begin(&mut self) -> Option<u32> {
        if self.standby {
            stop::at(Point::BackupClaimed);
            return standby::begin(self.entry, self.engine, &mut self.manifest);
        }
        match planted::wrong_order(self) {
            Some(closed) => closed,
            None => self.open_and_close(),
        }
    }

    /// Steps 2 and 3. Returns the term, or nothing if the index was given up.
    fn open_and_close(&mut self) -> Option<u32> {
        stop::at(Point::BackupClaimed);
        self.take_lsn();
        let said = self.say_lsn();
        let said = self.say_xid(said, next_xid());
        if self.is_given_up() {
            return None;
        }
        Some(self.close(said))
    }

    /// Takes the place of the WAL from which on changes count as later than the image.
    fn take_lsn(&mut self) {
        // SAFETY: outside of recovery, inside a transaction; shared positions are read.
        unsafe {
            self.manifest.slot = slot::ensure();
            self.manifest.lsn = pg_sys::GetXLogInsertRecPtr();
            self.manifest.timeline = pg_sys::GetWALInsertionTimeLine();
        }
    }

    /// Publishes the LSN.
    fn say_lsn(&self) -> LsnSaid {
        self.entry.image.lsn.store(self.manifest.lsn, SeqCst);
        stop::at(Point::BackupLsn);
        LsnSaid(())
    }

    /// Publishes the next transaction ID.
    fn say_xid(&self, _: LsnSaid, xid: u32) -> XidSaid {
        self.entry.image.xid.store(xid, SeqCst);
        XidSaid(())
    }

    /// Whether the index was given up. An insert that publishes nothing, because it was, looks at
    /// its page if it sees the LSN that was published before this.
    fn is_given_up(&self) -> bool {
        fence(SeqCst);
        self.entry.state() == State::GivenUp
    }

    /// Closes the term.
    fn close(&mut self, _: XidSaid) -> u32 {
        self.manifest.taken = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_secs() as i64);
        stop::at(Point::BackupXid);
        let sn = term::close(self.engine, &self.manifest.name);
        stop::at(Point::BackupTerm);
        sn
    }

    /// Returns the newest image if no operation was counted since it was begun.
    fn unchanged(&self, operations: u64) -> Option<Manifest> {
        let (image, manifest) = (&self.entry.image, &self.manifest);
        let all = super::manifests(manifest.database, manifest.incarnation);
        all.into_iter().next().filter(|newest| {
            image.operations.load(Relaxed) == operations
                && image.saved_lsn.load(Relaxed) == newest.lsn
        })
    }

    /// Gives the newest image a new manifest. Returns nothing if its file cannot be locked: then
    /// its entries have to be written to a folder, which needs no lock.
    fn refresh(&mut self, newest: Manifest, operations: u64) -> Result<Option<Outcome>, String> {
        let manifest = &mut self.manifest;
        manifest.generation = newest.generation;
        manifest.entries = newest.entries;
        manifest.operations = newest.operations;
        manifest.shards = newest.shards;
        manifest.carried = newest.carried;
        if let Err(why) = self.seal() {
            return Ok(Some(Outcome::NotNow(why)));
        }
        let manifest = &self.manifest;
        stop::at(Point::RefreshFlushed);
        match super::store().refresh(manifest) {
            Ok(()) => {
                stop::at(Point::RefreshCommitted);
                note(&self.entry.image, manifest, operations);
                Ok(Some(Outcome::Refreshed))
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Unsupported) => {
                Ok(None)
            }
            Err(e) => Err(e.to_string()),
        }
    }

    /// Steps 4 and 5. `operations` were counted before the term was closed.
    fn write(
        mut self,
        operations: u64,
        write: impl FnOnce(&Draft<'_>) -> Result<Vec<ShardSummary>, String>,
    ) -> Result<Outcome, String> {
        let (image, manifest, store) = (&self.entry.image, &mut self.manifest, super::store());
        let draft = store.begin(manifest.database, manifest.incarnation);
        let draft = draft.map_err(|e| e.to_string())?;
        image.total.store(self.engine.stats().live, Relaxed);
        manifest.operations = operations;
        manifest.shards = write(&draft)?;
        manifest.carried = draft.carried();
        manifest.generation = draft.generation();
        manifest.entries = manifest.shards.iter().map(|shard| shard.entries).sum();
        stop::at(Point::BackupWritten);
        if let Err(why) = self.seal() {
            return Ok(Outcome::NotNow(why));
        }
        stop::at(Point::BackupFlushed);
        if self.is_given_up() {
            return Ok(Outcome::NotNow("the index was given up"));
        }
        draft.commit(&self.manifest).map_err(|e| e.to_string())?;
        stop::at(Point::BackupCommitted);
        note(image, &self.manifest, operations);
        Ok(Outcome::Written)
    }

    /// Step 5 but for the manifest's name. The error says why there is no image.
    fn seal(&mut self) -> Result<(), &'static str> {
        let Making { entry, engine, manifest, standby } = self;
        if *standby {
            return standby::end(entry, *engine, manifest);
        }
        // SAFETY: outside of recovery, inside a transaction. The process that makes an image has a
        // lock on the permanent index.
        unsafe {
            let marked = identity::mark(&entry.locator(), entry.incarnation());
            (manifest.mark, manifest.end) = marked.ok_or("the index was moved")?;
            feed::flush(manifest.end);
        }
        Ok(())
    }
}

/// The next transaction ID.
fn next_xid() -> u32 {
    // SAFETY: inside a transaction; a shared counter is read.
    unsafe { pg_sys::ReadNextFullTransactionId().value as u32 }
}

/// Remembers an image that is on disk. Public for `load`, which finds one there.
pub fn note(image: &ImageState, manifest: &Manifest, operations: u64) {
    image.operations.store(operations, Relaxed);
    image.saved_at.store(manifest.taken, Relaxed);
    image.saved_entries.store(manifest.entries, Relaxed);
    image.saved_bytes.store(manifest.bytes(), Relaxed);
    image.saved_lsn.store(manifest.lsn, Relaxed);
}

/// Writes the entries of an index by several threads. Each calls `begin` first, and asks `go_on`
/// again and again. This process calls `tick` meanwhile.
fn write_shards(
    job: &Job<'_>,
    begin: impl Fn() + Sync,
    go_on: impl Fn() -> bool + Sync,
    tick: impl FnMut(),
) -> Result<Vec<ShardSummary>, String> {
    let shards = Shards::cut(job.engine);
    let all = shards.all();
    let write = |process: &Process, i: usize| {
        begin();
        job.write(process, &all[i], &go_on)
    };
    threads::run(all.len(), all.len(), Wait::ImageWrite, write, tick)
}

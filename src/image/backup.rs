//! Writing an image.
//!
//! The order of events keeps D3, "an entry that belongs to the index is in the image of LSN B, or its
//! heap block has a WAL record later than B":
//! 1. only of an index that is READY and valid: entries that a build adds belong to old tuples;
//! 2. B := insert LSN, then X := next transaction ID, both published;
//! 3. the term is closed, and writers that began in it are waited for: the image has their entries.
//!    Who publishes later has seen B and X (see `straddler`);
//! 4. the entries as of 3 are written, by ranges, by several threads;
//! 5. all WAL inserted so far is flushed, then the manifest appears. So nothing in an image is ahead of
//!    durable WAL, and neither is what is missing in it: an entry that was dropped during 4 was dead
//!    to everybody by a commit that was inserted before, if not flushed.
//!
//! If no operation was counted since the newest image was begun, its files are still right, and it
//! gets a new manifest by the same steps without 4.
//!
//! No snapshot is held while the files are written, so the collector does not stop. An entry that is
//! written although dead is harmless until its TID is recycled, which leaves a WAL record after B.
//!
//! ERROR, FATAL or a crash at any point leave the image before this one; a B that was published
//! without an image makes old transactions look at pages, nothing else.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use nitro_engine::{Cursor, Index, KeyOrder, Memcmp, Process};
use nitro_image::{Draft, Manifest, ShardSummary};
use pgrx::pg_sys::{self, Relation};
use pgrx::prelude::*;

use super::{ImageState, slot};
use crate::directory::{Entry, State};
use crate::error::Failure;
use crate::guc::{self, Mechanism};
use crate::handle::{self, Handle};
use crate::key::KeyRef;
use crate::wait::{self, Wait};
use crate::{am, compat, feed, shmem, threads};

/// Pauses are not worth less.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// Leaves that are worth a thread of their own.
const LEAVES_PER_SHARD: u32 = 256;

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

thread_local! {
    /// The index of which this process makes an image.
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

/// For a process that ends without unwinding: gives up the image that it makes. Its locks on the index
/// are still held.
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
unsafe fn obstacle(index: Relation, handle: &Handle) -> Option<&'static str> {
    // SAFETY: open relation.
    unsafe {
        let form = (*index).rd_index;
        if (*(*index).rd_rel).relpersistence as u8 != pg_sys::RELPERSISTENCE_PERMANENT {
            return Some("its table is not permanent");
        }
        if !guc::BACKUP.get() || !am::backup(index) {
            return Some("images are switched off");
        }
        if pg_sys::wal_level < pg_sys::WalLevel::WAL_LEVEL_REPLICA as i32 {
            return Some("\"wal_level\" is below \"replica\"");
        }
        if pg_sys::RecoveryInProgress() {
            return Some("the server is in recovery");
        }
        if !(*form).indisvalid || !(*form).indisready {
            return Some("the index is not valid");
        }
        let half = handle.entry.state() != State::Ready;
        (half && guc::BREAK.get() != Mechanism::HalfImages).then_some("the index is not in memory")
    }
}

fn operations(engine: Index) -> u64 {
    let stats = engine.stats();
    stats.inserts + stats.removes
}

/// Makes an image. What the file system refuses is the error.
///
/// # Safety
/// Open relations, locked at least in AccessShare mode, inside a transaction.
pub unsafe fn back_up(heap: Relation, index: Relation, handle: &Handle) -> Result<Outcome, String> {
    // SAFETY: open relations.
    unsafe {
        if let Some(why) = obstacle(index, handle) {
            return Ok(Outcome::NotNow(why));
        }
        let at = compat::locator(heap);
        let prototype = Manifest {
            system: pg_sys::GetSystemIdentifier(),
            lsn: 0,
            timeline: 0,
            server: pg_sys::PG_VERSION_NUM,
            slot: false,
            database: handle.entry.database(),
            index: (*index).rd_id.to_u32(),
            heap_tablespace: at.tablespace,
            heap_file: at.number,
            incarnation: handle.entry.incarnation(),
            generation: 0,
            name: handle::name(index),
            columns: super::columns(&handle.desc),
            entries: 0,
            operations: 0,
            taken: 0,
            shards: Vec::new(),
        };
        make(handle.entry, prototype, |engine, sn, draft| {
            write_shards(index, handle, engine, sn, draft)
        })
    }
}

/// Makes a last image when the server stops, without a database and by the newest image's description
/// of the index; only where keys are ordered as bytes. `go_on` is asked whether there is still time.
///
/// # Safety
/// The index must not go away meanwhile; inside a transaction.
pub unsafe fn back_up_at_exit(
    entry: &'static Entry,
    go_on: impl Fn() -> bool + Sync,
) -> Result<Outcome, String> {
    let prototype = super::manifests(entry.database(), entry.incarnation()).into_iter().next();
    let Some(prototype) = prototype else {
        return Ok(Outcome::NotNow("there is no image that describes the index"));
    };
    make(entry, prototype, |engine, sn, draft| {
        let shards = Shards::cut(engine);
        let job = Job { engine, sn, draft, image: &entry.image, pace: Pace::new(0, thread::sleep) };
        let write = |process: &Process, i: usize| {
            job.write(process, &Memcmp, &shards.get(i), || !threads::stopped() && go_on())
        };
        threads::run(shards.count(), shards.count(), Wait::ImageWrite, write, || ())
    })
}

/// Steps 2 to 5. `write` writes the entries of a term to a draft.
fn make(
    entry: &'static Entry,
    mut manifest: Manifest,
    write: impl FnOnce(Index, u32, &Draft<'_>) -> Result<Vec<ShardSummary>, String>,
) -> Result<Outcome, String> {
    let image = &entry.image;
    let process = shmem::process();
    let Some(_claim) = Claim::take(entry) else {
        return Ok(Outcome::NotNow("another process makes one"));
    };
    let Some(engine) = entry.index(process) else {
        return Ok(Outcome::NotNow("the index is not in memory"));
    };
    let store = super::store();
    let before = operations(engine);
    // SAFETY: outside of recovery, inside a transaction; shared positions and counters are read.
    unsafe {
        manifest.slot = slot::ensure();
        // 2
        manifest.lsn = pg_sys::GetXLogInsertRecPtr();
        manifest.timeline = pg_sys::GetWALInsertionTimeLine();
        image.lsn.store(manifest.lsn, SeqCst);
        image.xid.store(pg_sys::ReadNextFullTransactionId().value as u32, SeqCst);
    }
    manifest.taken = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_secs() as i64);
    // 3
    // SAFETY: a plain global.
    let holder = unsafe { pg_sys::MyProcPid } as u64;
    let snapshot = engine
        .create_snapshot(process, holder, &mut || wait::nap(Wait::ImageWriters, 1))
        .map_err(|e| e.to_string())?;
    engine.release(process, snapshot);
    let after = operations(engine);
    let newest = super::manifests(manifest.database, manifest.incarnation).into_iter().next();
    let unchanged = newest.filter(|newest| {
        image.operations.load(Relaxed) == after && image.saved_lsn.load(Relaxed) == newest.lsn
    });
    if let Some(newest) = unchanged {
        manifest.generation = newest.generation;
        manifest.entries = newest.entries;
        manifest.operations = newest.operations;
        manifest.shards = newest.shards;
        feed::flushed_end();
        store.refresh(&manifest).map_err(|e| e.to_string())?;
        note(image, &manifest, after);
        return Ok(Outcome::Refreshed);
    }
    // 4
    let draft = store.begin(manifest.database, manifest.incarnation).map_err(|e| e.to_string())?;
    image.total.store(engine.stats().live, Relaxed);
    manifest.operations = before;
    manifest.shards = write(engine, snapshot.sn, &draft)?;
    manifest.generation = draft.generation();
    manifest.entries = manifest.shards.iter().map(|shard| shard.entries).sum();
    // 5
    feed::flushed_end();
    draft.commit(&manifest).map_err(|e| e.to_string())?;
    note(image, &manifest, before);
    Ok(Outcome::Written)
}

/// Remembers an image that is on disk. Public for `load`, which finds one there.
pub fn note(image: &ImageState, manifest: &Manifest, operations: u64) {
    image.operations.store(operations, Relaxed);
    image.saved_at.store(manifest.taken, Relaxed);
    image.saved_entries.store(manifest.entries, Relaxed);
    image.saved_bytes.store(manifest.shards.iter().map(|shard| shard.bytes).sum(), Relaxed);
    image.saved_lsn.store(manifest.lsn, Relaxed);
}

unsafe fn write_shards(
    index: Relation,
    handle: &Handle,
    engine: Index,
    sn: u32,
    draft: &Draft<'_>,
) -> Result<Vec<ShardSummary>, String> {
    let process = shmem::process();
    let shards = Shards::cut(engine);
    let pause = match handle.desc.is_memcmp() {
        true => thread::sleep,
        false => |time: Duration| wait::nap(Wait::ImageWrite, time.as_millis() as i64),
    };
    let pace = Pace::new(guc::BACKUP_RATE.get(), pause);
    let job = Job { engine, sn, draft, image: &handle.entry.image, pace };
    let mut waiters = Waiters::new(index, &handle.entry.image);
    // What the catalogue was read with.
    // SAFETY: between two accesses to the catalogue.
    unsafe { pg_sys::InvalidateCatalogSnapshot() };
    if handle.desc.is_memcmp() {
        threads::run(
            shards.count(),
            shards.count(),
            Wait::ImageWrite,
            |process, i| {
                // The server's clients do not wait for images.
                threads::yield_to_others();
                job.write(process, &Memcmp, &shards.get(i), || !threads::stopped())
            },
            || waiters.give_way(),
        )
    } else {
        // A comparison function is the server's: one shard after the other, by this process.
        let order = KeyRef(&handle.desc);
        let go_on = || {
            pgrx::check_for_interrupts!();
            waiters.give_way();
            true
        };
        let mut go_on = go_on;
        let snapshot = OwnSnapshot::take();
        let all = (0..shards.count())
            .map(|i| job.write(process, &order, &shards.get(i), &mut go_on))
            .collect();
        snapshot.end();
        all
    }
}

/// A comparison function may need a snapshot; an ERROR takes it away with the transaction.
struct OwnSnapshot(bool);

impl OwnSnapshot {
    fn take() -> OwnSnapshot {
        // SAFETY: inside a transaction.
        unsafe {
            let missing = !pg_sys::ActiveSnapshotSet();
            if missing {
                pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
            }
            OwnSnapshot(missing)
        }
    }

    fn end(self) {
        if self.0 {
            // SAFETY: pushed in `take`.
            unsafe { pg_sys::PopActiveSnapshot() };
        }
    }
}

/// Somebody who waits for an exclusive lock on the index or its table does not wait for the image.
struct Waiters<'a> {
    index: Relation,
    image: &'a ImageState,
    looked: Instant,
}

impl Waiters<'_> {
    fn new(index: Relation, image: &ImageState) -> Waiters<'_> {
        Waiters { index, image, looked: Instant::now() }
    }

    fn give_way(&mut self) {
        if self.looked.elapsed() < Duration::from_millis(100) {
            return;
        }
        self.looked = Instant::now();
        // SAFETY: open relations.
        let waiting = unsafe {
            compat::is_wanted([(*self.index).rd_id, (*(*self.index).rd_index).indrelid])
                || compat::database_is_wanted()
        };
        if waiting {
            // The background worker tries again when the other one is done.
            self.image.wanted.store(1, Relaxed);
            Failure::new(
                PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE,
                // SAFETY: open relation.
                format!("gave up the image of index \"{}\"", unsafe { handle::name(self.index) }),
            )
            .detail("Another session waits for a lock on the index, its table or its database.")
            .raise();
        }
    }
}

/// The ranges that are written by a thread each.
struct Shards {
    cuts: Vec<Vec<u8>>,
}

impl Shards {
    fn cut(engine: Index) -> Shards {
        let workers = guc::BACKUP_WORKERS.get() as usize;
        let useful = engine.stats().blocks[0].div_ceil(LEAVES_PER_SHARD) as usize;
        Shards { cuts: engine.partition(shmem::process(), workers.min(useful).max(1)) }
    }

    fn count(&self) -> usize {
        self.cuts.len() + 1
    }

    fn get(&self, i: usize) -> Shard<'_> {
        let lower = i.checked_sub(1).map_or(&[][..], |i| &self.cuts[i][..]);
        Shard { number: i, lower, upper: self.cuts.get(i).map(Vec::as_slice) }
    }
}

struct Shard<'a> {
    number: usize,
    lower: &'a [u8],
    upper: Option<&'a [u8]>,
}

/// What all threads of one image share.
struct Job<'a> {
    engine: Index,
    sn: u32,
    draft: &'a Draft<'a>,
    image: &'a ImageState,
    pace: Pace,
}

impl Job<'_> {
    fn write<O: KeyOrder>(
        &self,
        process: &Process,
        order: &O,
        shard: &Shard<'_>,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<ShardSummary, String> {
        let explain = |e: io::Error| format!("could not write shard {}: {e}", shard.number);
        let mut out = self.draft.shard(shard.number as u32).map_err(explain)?;
        let mut cursor = Cursor::new(true);
        cursor.set_range(shard.lower, shard.upper, self.sn);
        let (mut written, mut taken) = (0, 0);
        loop {
            if !go_on() {
                return Err("stopped".into());
            }
            let n = cursor.next(process, self.engine, order);
            if n == 0 {
                break;
            }
            for i in 0..n {
                out.push(cursor.key(i), cursor.tid(i)).map_err(explain)?;
            }
            self.image.done.fetch_add(n as u64, Relaxed);
            self.image.bytes.fetch_add(out.bytes_written() - written, Relaxed);
            written = out.bytes_written();
            // A frame is as long as it will be only when it is full; meanwhile it counts uncompressed.
            let now = written + out.bytes_pending();
            self.pace.keep(now.wrapping_sub(taken), &mut go_on);
            taken = now;
        }
        self.draft.finish_shard(out).map_err(explain)
    }
}

/// Keeps all threads together below a rate, by many short pauses: who needs the processor meanwhile
/// waits for less than a frame.
struct Pace {
    began: Instant,
    bytes: AtomicU64,
    /// Bytes per second; 0 = as fast as possible.
    rate: u64,
    /// How to wait: a thread sleeps, a process shows what it waits for.
    pause: fn(Duration),
}

impl Pace {
    fn new(megabytes: i32, pause: fn(Duration)) -> Pace {
        let rate = megabytes as u64 * 1024 * 1024;
        Pace { began: Instant::now(), bytes: AtomicU64::new(0), rate, pause }
    }

    /// `bytes` more, modulo 2^64, since estimates are corrected downwards.
    fn keep(&self, bytes: u64, go_on: &mut impl FnMut() -> bool) {
        if self.rate == 0 {
            return;
        }
        let all = self.bytes.fetch_add(bytes, Relaxed).wrapping_add(bytes);
        let due = Duration::from_secs_f64(all as f64 / self.rate as f64);
        while let Some(left) = due.checked_sub(self.began.elapsed())
            && left >= SHORTEST_PAUSE
            && go_on()
        {
            (self.pause)(left.min(Duration::from_millis(20)));
        }
    }
}

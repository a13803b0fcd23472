//! The background workers that bring indexes up and make their images.
//!
//! A short-lived builder in one database, started by the first query that meets an index which is not
//! ready, or sent by the keeper. It frees what is no longer in the catalogue, loads every image that
//! is not loaded yet, builds what was asked for, makes the images that are due, and ends: it does not
//! stand in the way of DROP DATABASE for long (and gives way when it sees one waiting).
//!
//! The server has at most `nitro.max_builders` of them, each in a place of its own (`Life::builders`):
//! 0 = free; the time at which somebody asked the postmaster for a builder; from when that begins on,
//! its PID as well. A builder that never begins leaves a time, which gives the place free soon; one
//! that begins too late finds another word in its place, and ends. However a builder ends, it leaves
//! its place.
//!
//! Each has its own work: an index is taken by [`Taken`], and whoever finds it taken, or being brought
//! up by a query, turns to another one. Nor does a builder wait for a lock on a table or an index:
//! behind a long ALTER TABLE all other indexes would wait with it. What is locked is left for later.

use std::cell::Cell;
use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use nitro_image::Manifest;
use pgrx::bgworkers::{BackgroundWorkerBuilder, BgWorkerStartTime, DynamicBackgroundWorker};
use pgrx::prelude::*;

use crate::feed::Feed;
use crate::image;
use crate::image::backup::Outcome;
use crate::pg::background::{self, transaction};
use crate::pg::compat;
use crate::pg::error::Failure;
use crate::pg::guc::{self, Mechanism};
use crate::state::directory::{Entry, Incarnation, State};
use crate::state::{given_up, lifecycle, shmem};
use crate::state::{open, options};
use crate::upkeep::bring_up;

/// A request that was not taken for so many seconds is made again: its builder may have ended early.
const REQUEST_SECONDS: u32 = 10;
/// How long the postmaster may need to start a builder.
const START_SECONDS: u32 = 10;
/// How often it is said that there is no place for a builder.
const SAY_SECONDS: u64 = 600;
/// In `Entry::requested`: a builder has taken the index. No time is like this.
const TAKEN: u32 = 2;

/// Never 0, and never far from its neighbours.
fn now() -> u32 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_secs() as u32) | 1
}

/// Asks for an index to be brought up; false if there is no place for a builder. Who meets one index after
/// the other, and is `served` by a builder, gets another one only when there is none any more.
pub fn wake(entry: &'static Entry, served: bool) -> bool {
    let now = now();
    let asked = entry.requested.load(Relaxed);
    let recently = asked != 0 && (asked == TAKEN || now.abs_diff(asked) <= REQUEST_SECONDS);
    if recently || entry.requested.compare_exchange(asked, now, AcqRel, Relaxed).is_err() {
        return true;
    }
    let builders = &shmem::directory().life.builders;
    if served && builders.iter().any(|place| is_taken(place.load(Acquire), now)) {
        return true;
    }
    // SAFETY: a plain global.
    let database = unsafe { pg_sys::MyDatabaseId };
    match start(database.to_u32(), Purpose::Build) {
        Ok(_) => true,
        // The keeper sends one when a place is free, unless a builder that is in this database finds it before.
        Err(NoBuilder::Enough) => {
            shmem::directory().life.turned_away.store(1, Release);
            true
        }
        Err(NoBuilder::Refused) => {
            // The next query asks again.
            entry.requested.store(0, Relaxed);
            say_no_place(u64::from(now));
            false
        }
    }
}

/// Databases in which queries asked for an index while all places were taken, and where no builder is.
pub fn turned_away() -> BTreeSet<u32> {
    let mut waiting = BTreeSet::new();
    let life = &shmem::directory().life;
    // Who asks from here on sets it again.
    if life.turned_away.swap(0, AcqRel) == 0 {
        return waiting;
    }
    shmem::directory().for_each(|entry| {
        if is_asked(entry) {
            waiting.insert(entry.database());
        }
    });
    if !waiting.is_empty() {
        life.turned_away.store(1, Release);
    }
    // One that is at work sees what was asked, unless it has just looked for the last time.
    waiting.retain(|&database| !has_builder(database));
    waiting
}

/// Whether a builder is in a database, or expected there.
fn has_builder(database: u32) -> bool {
    let life = &shmem::directory().life;
    let now = now();
    life.builders
        .iter()
        .zip(&life.builder_databases)
        .any(|(place, there)| is_taken(place.load(Acquire), now) && there.load(Relaxed) == database)
}

/// Whether somebody asked for an index, and no builder has taken it.
fn is_asked(entry: &Entry) -> bool {
    !matches!(entry.requested.load(Acquire), 0 | TAKEN)
}

/// Says now and then that indexes stay unbuilt; in the log, for the query that met them is in order.
fn say_no_place(now: u64) {
    let said = &shmem::directory().life.no_builder;
    let last = said.load(Relaxed);
    if now.saturating_sub(last) > SAY_SECONDS
        && said.compare_exchange(last, now, Relaxed, Relaxed).is_ok()
    {
        Failure::new(
            PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
            "could not start a background worker to build nitro indexes",
        )
        .detail("Queries are planned without indexes that are not built.")
        .hint(
            "Raise \"max_worker_processes\" (needs a restart), or build them with nitro_verify().",
        )
        .log();
    }
}

/// What a builder is started for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Somebody waits for an index.
    Build,
    /// Images are due. The last place is not for them: to write them takes long.
    Images,
}

/// Why there is no builder.
pub enum NoBuilder {
    /// There are as many as there may be. If one of them is in the same database it sees what was asked.
    Enough,
    /// `max_worker_processes` leaves no room.
    Refused,
}

/// Starts a builder in a database.
pub fn start(database: u32, purpose: Purpose) -> Result<DynamicBackgroundWorker, NoBuilder> {
    let places = guc::BUILDERS.get() as usize;
    let places = match purpose {
        Purpose::Build => places,
        Purpose::Images => places.saturating_sub(1).max(1),
    };
    let (place, word) = reserve(database, places).ok_or(NoBuilder::Enough)?;
    // Place and time go along, so that the builder knows its reservation.
    let argument = u64::from(database) << 32 | (place as u64) << 24 | u64::from(word & 0xff_ffff);
    BackgroundWorkerBuilder::new("nitro builder")
        .set_type("nitro builder")
        .set_library("nitro")
        .set_function("nitro_worker_main")
        .set_argument(Some(pg_sys::Datum::from(argument)))
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .enable_spi_access()
        .load_dynamic()
        .map_err(|_| {
            let mine = u64::from(word);
            let _ =
                shmem::directory().life.builders[place].compare_exchange(mine, 0, AcqRel, Relaxed);
            NoBuilder::Refused
        })
}

/// Takes a free place for a builder that is about to be started.
fn reserve(database: u32, places: usize) -> Option<(usize, u32)> {
    let now = now();
    let life = &shmem::directory().life;
    let all = &life.builders[..places];
    all.iter().enumerate().find_map(|(i, place)| {
        let word = place.load(Acquire);
        (!is_taken(word, now)).then_some(())?;
        place.compare_exchange(word, u64::from(now), AcqRel, Relaxed).ok()?;
        life.builder_databases[i].store(database, Relaxed);
        Some((i, now))
    })
}

/// Whether a builder is at work in a place, or expected there.
fn is_taken(place: u64, now: u32) -> bool {
    let begun = place >> 32 != 0;
    begun || place != 0 && now.abs_diff(place as u32) <= START_SECONDS
}

/// Begins in the place that was reserved; false if it is another's by now.
fn occupy(argument: u64) -> bool {
    let place = &shmem::directory().life.builders[(argument >> 24 & 0xff) as usize];
    let word = place.load(Acquire);
    // SAFETY: a plain global.
    let me = unsafe { pg_sys::MyProcPid } as u64;
    word >> 32 == 0
        && word & 0xff_ffff == argument & 0xff_ffff
        && place.compare_exchange(word, me << 32 | word, AcqRel, Relaxed).is_ok()
}

/// Entry point of a builder.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nitro_worker_main(argument: pg_sys::Datum) {
    crate::pg::witness!();
    // Whatever comes, its place is given back.
    // SAFETY: registers a callback for the life of the process.
    unsafe { pg_sys::before_shmem_exit(Some(leave), pg_sys::Datum::from(0)) };
    if guc::BREAK.get() == Mechanism::Builders || !occupy(argument.value() as u64) {
        return;
    }
    // SAFETY: the first things a background worker does, in the order the server documents.
    unsafe {
        compat::die_on_sigterm();
        background::set_limits_aside();
        pg_sys::BackgroundWorkerUnblockSignals();
        pg_sys::BackgroundWorkerInitializeConnectionByOid(
            pg_sys::Oid::from((argument.value() as u64 >> 32) as u32),
            pg_sys::InvalidOid,
            pg_sys::BGWORKER_BYPASS_ALLOWCONN,
        );
    }
    transaction("sweep", || {
        // SAFETY: inside a transaction.
        unsafe { lifecycle::sweep() }
    });
    background::set_worker(true);
    // SAFETY: a plain global.
    let here = unsafe { pg_sys::MyDatabaseId }.to_u32();
    let mut feed = Feed::new(here);
    load_images(here, &mut feed);
    // Images take long: what was asked for meanwhile comes before the next one.
    let mut later = Vec::new();
    while !compat::database_is_wanted() {
        if let Some(taken) = Taken::any() {
            build(taken, &mut feed);
        } else if guc::BACKUP.get()
            && let Some(entry) = find(|entry| entry.image.wanted.swap(0, AcqRel) != 0)
        {
            feed = Feed::new(here);
            if !save(entry) {
                later.push(entry);
            }
        } else {
            break;
        }
    }
    // The keeper sends another one.
    later.into_iter().for_each(|entry| entry.image.wanted.store(1, Relaxed));
}

thread_local! {
    /// What this builder has taken.
    static MINE: Cell<Option<&'static Entry>> = const { Cell::new(None) };
}

/// An index that this builder works on, and no other.
struct Taken(&'static Entry);

impl Taken {
    /// One that was asked for.
    fn any() -> Option<Taken> {
        loop {
            let entry = find(|entry| is_asked(entry) && entry.builder.load(Acquire) == 0)?;
            if let Some(taken) = Taken::this(entry) {
                return Some(taken);
            }
        }
    }

    /// This one, if no other builder has it.
    fn this(entry: &'static Entry) -> Option<Taken> {
        let asked = entry.requested.load(Relaxed);
        if asked == TAKEN
            || entry.requested.compare_exchange(asked, TAKEN, AcqRel, Relaxed).is_err()
        {
            return None;
        }
        MINE.set(Some(entry));
        Some(Taken(entry))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

/// What this builder has taken, and has done or not, can be asked for again.
fn give_back() {
    if let Some(entry) = MINE.take() {
        entry.requested.store(0, Release);
    }
}

fn build(taken: Taken, feed: &mut Feed) {
    transaction("build", || {
        let relid = pg_sys::Oid::from(taken.0.relid.load(Relaxed));
        // SAFETY: inside a transaction.
        unsafe {
            open::with_index_at_once(relid, |_, index, handle| {
                if std::ptr::eq(handle.entry, taken.0) {
                    bring_up::bring_up(index, handle, feed, bring_up::Origin::Anything);
                }
            });
        }
    });
}

/// Makes an image; false if that has to wait for a lock.
fn save(entry: &'static Entry) -> bool {
    let mut free = true;
    transaction("make an image", || {
        // SAFETY: inside a transaction. A long one: it must not keep VACUUM from its work.
        unsafe {
            pg_sys::PopActiveSnapshot();
            free = make_image(entry);
            pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        }
    });
    free
}

/// Loads what has an image and is not loaded yet, the oldest image first: one reading of the WAL does
/// for all. Removes images of indexes that are gone.
fn load_images(here: u32, feed: &mut Feed) {
    let store = image::store();
    let incarnations = store.incarnations(here).unwrap_or_default();
    let known: HashSet<Incarnation> = shmem::directory().incarnations(here, State::Ready);
    let mut images: Vec<(Incarnation, Vec<Manifest>)> = incarnations
        .into_iter()
        .filter(|incarnation| !known.contains(incarnation))
        .map(|incarnation| (incarnation, image::manifests(here, incarnation)))
        .collect();
    images.sort_by_key(|(_, manifests)| manifests.first().map(|m| m.lsn));
    for (incarnation, manifests) in images {
        if compat::database_is_wanted() {
            return;
        }
        let mut found = false;
        let asked = transaction("load an image", || {
            for relid in manifests.iter().map(|m| pg_sys::Oid::from(m.index)) {
                // SAFETY: inside a transaction.
                unsafe {
                    let free = open::with_index_at_once(relid, |_, index, handle| {
                        found |= handle.entry.incarnation() == incarnation;
                        if found
                            && handle.entry.state() != State::Ready
                            && handle.entry.builder.load(Acquire) == 0
                            && let Some(_taken) = Taken::this(handle.entry)
                        {
                            bring_up::bring_up(index, handle, feed, bring_up::Origin::Image);
                        }
                    });
                    // Who has the lock may be about to bring it up, or to drop it.
                    found |= !free;
                }
                if found {
                    break;
                }
            }
        });
        // A new OID for the same file (ALTER TYPE) is found by the next image. An index that another
        // process is creating has no image yet, but may have a folder: its entry is known.
        let in_use = || shmem::directory().knows(here, incarnation);
        if asked && !found && !in_use() {
            for damage in store.images(here, incarnation).into_iter().filter_map(Result::err) {
                crate::pg::error::log!(
                    "nitro image below pg_nitro/{here}/{incarnation:032x} is not used: {damage}"
                );
            }
            let _ = store.discard(here, incarnation);
        }
    }
}

/// Makes the image of an index, if it still exists; false if somebody has a lock on it.
unsafe fn make_image(entry: &'static Entry) -> bool {
    let relid = pg_sys::Oid::from(entry.relid.load(Relaxed));
    // SAFETY: inside a transaction.
    unsafe {
        open::with_index_at_once(relid, |heap, index, handle| {
            if !std::ptr::eq(handle.entry, entry) {
                return;
            }
            match image::backup::back_up(heap, index, handle) {
                // Not one that nobody keeps up to date.
                Ok(Outcome::NotNow(_)) if !options::backup(index) => {
                    image::forget(entry.database(), entry.incarnation());
                }
                Ok(outcome) => {
                    pgrx::debug1!("image of nitro index \"{}\": {outcome:?}", compat::name(index))
                }
                // Given up meanwhile, and its images have gone with it.
                Err(_) if entry.state() == State::GivenUp => (),
                Err(why) => image::sql::warn(index, &why),
            }
            // Who gave it up could not while this process had a lock.
            given_up::reclaim(index, entry);
        })
    }
}

/// An index of this database that has what is looked for; asks no further once there is one.
fn find(wanted: impl Fn(&Entry) -> bool) -> Option<&'static Entry> {
    // SAFETY: a plain global.
    let here = unsafe { pg_sys::MyDatabaseId }.to_u32();
    let mut found = None;
    shmem::directory().for_each(|entry| {
        if found.is_none() && entry.database() == here && wanted(entry) {
            found = Some(entry);
        }
    });
    found
}

/// However a builder ends.
#[pg_guard]
unsafe extern "C-unwind" fn leave(_code: i32, _arg: pg_sys::Datum) {
    crate::pg::witness!();
    give_back();
    // SAFETY: a plain global.
    let me = unsafe { pg_sys::MyProcPid } as u64;
    for place in &shmem::directory().life.builders {
        if place.load(Relaxed) >> 32 == me {
            place.store(0, Release);
        }
    }
}

//! Asking for builders (`builder`): when one is started, and how many there are.
//!
//! The server has `nitro.max_builders` places for builders at most (`Life::builders`). The word of
//! a place says:
//! - 0: it is free.
//! - A time: at this time a process asked the postmaster for a builder. A builder that never begins
//!   leaves this time, and the place is free again soon.
//! - A PID and that time: the builder has begun. One that begins too late finds another word in its
//!   place, and ends.
//!
//! However a builder ends, it leaves its place.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use pgrx::bgworkers::{BackgroundWorkerBuilder, BgWorkerStartTime, DynamicBackgroundWorker};
use pgrx::prelude::*;

use crate::pg::error::Failure;
use crate::pg::guc;
use crate::state::directory::{self, Entry};

/// Seconds after which a request that no builder has taken is made again: its builder may have
/// ended early.
const REQUEST_SECONDS: u32 = 10;
/// How long the postmaster may need to start a builder.
const START_SECONDS: u32 = 10;
/// Seconds between two reports that there is no place for a builder.
const SAY_SECONDS: u64 = 600;
/// In `Entry::requested`: a builder has taken the index. No time is like this.
pub const TAKEN: u32 = 2;

/// Never 0, and never far from its neighbours.
fn now() -> u32 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_secs() as u32) | 1
}

/// Asks for indexes of a table to be brought up, and says of each whether the statement can use it.
/// Returns false if the server has no process for a builder. All are noted before a builder begins,
/// so that it finds them together.
///
/// `served`: the statement has sent for a builder before. Then it sends for another one only if no
/// builder is left: builders themselves start others for the indexes that they leave.
pub fn wake(wanted: &[(&'static Entry, bool)], served: bool) -> bool {
    let now = now();
    let new: Vec<&Entry> = wanted
        .iter()
        .filter(|&&(entry, usable)| note(entry, usable, now))
        .map(|&(entry, _)| entry)
        .collect();
    let builders = &directory::get().life.builders;
    if new.is_empty() || served && builders.iter().any(|place| is_taken(place.load(Acquire), now)) {
        return true;
    }
    // SAFETY: a plain global.
    let database = unsafe { pg_sys::MyDatabaseId };
    match start(database.to_u32(), Purpose::Build) {
        Ok(_) => true,
        // The keeper sends one when a place is free, unless a builder that is in this database
        // finds it before.
        Err(NoBuilder::Enough) => {
            directory::get().life.turned_away.store(1, Release);
            true
        }
        Err(NoBuilder::Refused) => {
            // The next query asks again.
            new.iter().for_each(|entry| entry.requested.store(0, Relaxed));
            say_no_place(u64::from(now));
            false
        }
    }
}

/// Notes that a statement wants an index. Returns false if a builder was asked for it not long ago.
fn note(entry: &Entry, usable: bool, now: u32) -> bool {
    // An index that the statement cannot use is brought up as well, behind the others.
    entry.demand.fetch_max(1, Relaxed);
    if usable {
        entry.demand.fetch_add(1, Relaxed);
    }
    let asked = entry.requested.load(Relaxed);
    let recently = asked != 0 && (asked == TAKEN || now.abs_diff(asked) <= REQUEST_SECONDS);
    !recently && entry.requested.compare_exchange(asked, now, AcqRel, Relaxed).is_ok()
}

/// Notes that an index has to be brought up, for the builder that is here.
pub fn expect(entry: &Entry) {
    let _ = entry.requested.compare_exchange(0, now(), AcqRel, Relaxed);
}

/// Whether a builder was asked for an index, or is at work on it.
pub fn is_expected(entry: &Entry) -> bool {
    entry.requested.load(Acquire) != 0
}

/// Databases in which queries asked for an index while all places were taken, and where no builder
/// is.
pub fn turned_away() -> BTreeSet<u32> {
    let mut waiting = BTreeSet::new();
    let life = &directory::get().life;
    // A process that asks from here on sets it again.
    if life.turned_away.swap(0, AcqRel) == 0 {
        return waiting;
    }
    directory::get().for_each(|entry| {
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
pub fn has_builder(database: u32) -> bool {
    let life = &directory::get().life;
    let now = now();
    life.builders
        .iter()
        .zip(&life.builder_databases)
        .any(|(place, there)| is_taken(place.load(Acquire), now) && there.load(Relaxed) == database)
}

/// Returns true if a process has asked for an index, and no builder has taken it.
pub fn is_asked(entry: &Entry) -> bool {
    !matches!(entry.requested.load(Acquire), 0 | TAKEN)
}

/// Says now and then that indexes stay unbuilt; in the log, for the query that met them is in
/// order.
fn say_no_place(now: u64) {
    let said = &directory::get().life.no_builder;
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
            "You might need to increase \"max_worker_processes\". Or build the indexes with nitro_verify().",
        )
        .log();
    }
}

/// The purpose of a builder.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A query waits for an index.
    Build,
    /// Images are due. The last place is not for them: to write them takes long.
    Images,
}

/// Why there is no builder.
pub enum NoBuilder {
    /// There are as many as there may be. If one of them is in the same database it sees what was
    /// asked.
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
        .enable_spi_access()
        // Last: see `state::follow::start`.
        .set_start_time(BgWorkerStartTime::ConsistentState)
        .load_dynamic()
        .map_err(|_| {
            let mine = u64::from(word);
            let _ =
                directory::get().life.builders[place].compare_exchange(mine, 0, AcqRel, Relaxed);
            NoBuilder::Refused
        })
}

/// Takes a free place for a builder that is about to be started.
fn reserve(database: u32, places: usize) -> Option<(usize, u32)> {
    let now = now();
    let life = &directory::get().life;
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

/// Begins in the place that was reserved, and returns its number; `None` if it is another's by now.
pub fn occupy(argument: u64) -> Option<usize> {
    let number = (argument >> 24 & 0xff) as usize;
    let place = &directory::get().life.builders[number];
    let word = place.load(Acquire);
    // SAFETY: a plain global.
    let me = unsafe { pg_sys::MyProcPid } as u64;
    let begun = word >> 32 == 0
        && word & 0xff_ffff == argument & 0xff_ffff
        && place.compare_exchange(word, me << 32 | word, AcqRel, Relaxed).is_ok();
    begun.then_some(number)
}

/// Gives the place of this process back.
pub fn leave_place() {
    // SAFETY: a plain global.
    let me = unsafe { pg_sys::MyProcPid } as u64;
    let life = &directory::get().life;
    for (place, table) in life.builders.iter().zip(&life.builder_tables) {
        if place.load(Relaxed) >> 32 == me {
            table.store(0, Relaxed);
            place.store(0, Release);
        }
    }
}

/// Returns how many builders can work on one table: all that the server may have, less those that
/// are at work on another table. At least one.
pub fn can_share(table: u32) -> usize {
    // SAFETY: a plain global.
    let here = unsafe { pg_sys::MyDatabaseId }.to_u32();
    let life = &directory::get().life;
    let now = now();
    let elsewhere = |i: &usize| {
        let there = life.builder_tables[*i].load(Relaxed);
        let same = there == table && life.builder_databases[*i].load(Relaxed) == here;
        there != 0 && !same && is_taken(life.builders[*i].load(Acquire), now)
    };
    let places = guc::BUILDERS.get() as usize;
    places.saturating_sub((0..places).filter(elsewhere).count()).max(1)
}

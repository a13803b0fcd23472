//! The work of a builder: a short-lived background worker in one database, which brings indexes up
//! and makes their images.
//!
//! The first query that meets an index which is not ready starts a builder. So do other builders
//! and the keeper. A builder does four things:
//! - It frees indexes that the catalogue has no more.
//! - It brings up each index that was asked for or has an image.
//! - It makes the images that are due.
//! - It packs the indexes that have grown.
//!
//! On a standby it brings indexes up for the follower (`follow::load`), and makes images of those
//! that the follower keeps up to date.
//!
//! Then it ends. It ends earlier when it sees a DROP DATABASE that waits for it.
//!
//! A builder works on one table at a time. It takes the table of the index that is wanted most, and
//! a [`Share`] of the table's indexes, so that other builders find some. It loads their images one
//! after the other: one reading of the WAL and one comparison of the table's pages serve all. It
//! builds the others by one reading of the table. Where one of them raises an ERROR, it builds each
//! alone.
//!
//! A builder has an index by [`Taken`]. If another builder has the index, or a session brings it
//! up, this builder turns to another index. It does not wait for a lock on a table or an index:
//! behind a long ALTER TABLE all other indexes would wait with it. It leaves what is locked for
//! later.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use nitro_image::Manifest;
use pgrx::prelude::*;

use crate::feed::Feed;
use crate::image;
use crate::image::backup::Outcome;
use crate::pg::background::{self, transaction};
use crate::pg::compat;
use crate::pg::guc::{self, Mechanism};
use crate::state::directory::{self, Entry, Incarnation, State};
use crate::state::{given_up, hosts, lifecycle, open};
use crate::upkeep::bring_up::{self, Origin};
use crate::upkeep::worker::{self, Purpose, TAKEN, is_asked};
use crate::upkeep::{follow, keeper, pack};

thread_local! {
    /// The place of this builder.
    static PLACE: Cell<Option<usize>> = const { Cell::new(None) };
    /// The indexes that this builder has taken.
    static MINE: RefCell<Vec<&'static Entry>> = const { RefCell::new(Vec::new()) };
}

/// Entry point of a builder.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nitro_worker_main(argument: pg_sys::Datum) {
    crate::pg::witness!();
    // Whatever comes, its place is given back.
    // SAFETY: registers a callback for the life of the process.
    unsafe { pg_sys::before_shmem_exit(Some(leave), pg_sys::Datum::from(0)) };
    if !guc::holds(Mechanism::Builders) {
        return;
    }
    PLACE.set(worker::occupy(argument.value() as u64));
    if PLACE.get().is_none() {
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
    // SAFETY: reads shared state.
    match unsafe { pg_sys::RecoveryInProgress() } {
        true => work_in_recovery(here()),
        false => work(here()),
    }
}

/// The database of this process.
fn here() -> u32 {
    // SAFETY: a plain global.
    unsafe { pg_sys::MyDatabaseId }.to_u32()
}

/// All that there is to do in the database.
fn work(here: u32) {
    let mut feed = Feed::new(here);
    expect_images(here, &mut feed);
    // Images take long. Indexes that were asked for meanwhile come before the next image.
    let mut later = Vec::new();
    while !compat::database_is_wanted() {
        if let Some(share) = Share::take(here, 0) {
            share.bring_up(&mut feed);
        } else if guc::BACKUP.get()
            && let Some(entry) = find(here, |entry| entry.image.wanted.swap(0, AcqRel) != 0)
        {
            feed = Feed::new(here);
            if !save(entry) {
                later.push(entry);
            }
        } else if let Some(entry) = find(here, |entry| entry.packed.wanted.swap(0, AcqRel) != 0) {
            pack(entry);
        } else {
            break;
        }
    }
    // The keeper sends another one.
    later.into_iter().for_each(|entry| entry.image.wanted.store(1, Relaxed));
}

/// All that a builder does on a standby, beside the follower of the database: it brings indexes up
/// and makes images.
fn work_in_recovery(here: u32) {
    // SAFETY: in a background worker.
    unsafe { follow::take_duties() };
    // No keeper runs in recovery.
    keeper::remove_orphans();
    let store = image::store();
    for incarnation in store.incarnations(here).unwrap_or_default() {
        if !directory::get().knows(here, incarnation) {
            expect_image(here, incarnation, &image::manifests(here, incarnation));
        }
    }
    let (mut feed, mut later) = (Feed::new(here), Vec::new());
    // SAFETY: reads shared state.
    while unsafe { pg_sys::RecoveryInProgress() } && !compat::database_is_wanted() {
        if let Some(taken) = find(here, is_asked).and_then(Taken::this) {
            follow::load(taken.0, &mut feed);
        } else if guc::BACKUP.get()
            && let Some(entry) = find(here, |entry| entry.image.wanted.swap(0, AcqRel) != 0)
        {
            feed = Feed::new(here);
            if !save(entry) {
                later.push(entry);
            }
        } else {
            break;
        }
    }
    // The follower sends another builder.
    later.into_iter().for_each(|entry| entry.image.wanted.store(1, Relaxed));
}

/// An index that this builder works on, and no other.
struct Taken(&'static Entry);

impl Taken {
    /// This one, if no other builder has it.
    fn this(entry: &'static Entry) -> Option<Taken> {
        let asked = entry.requested.load(Relaxed);
        if asked == TAKEN
            || entry.requested.compare_exchange(asked, TAKEN, AcqRel, Relaxed).is_err()
        {
            return None;
        }
        MINE.with_borrow_mut(|mine| mine.push(entry));
        Some(Taken(entry))
    }

    fn relid(&self) -> pg_sys::Oid {
        pg_sys::Oid::from(self.0.relid.load(Relaxed))
    }

    /// Brings the index up alone; true if its image is outdated.
    fn bring_up(&self, feed: &mut Feed, origin: Origin) -> bool {
        let mut outdated = false;
        transaction("bring an index up", || {
            // SAFETY: inside a transaction.
            unsafe {
                open::with_index_at_once(self.relid(), |_, index, handle| {
                    if std::ptr::eq(handle.entry, self.0) {
                        outdated = bring_up::bring_up(index, handle, feed, origin);
                    }
                });
            }
        });
        outdated
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // From here on it can be asked for again. The list is gone when the process ends.
        let _ = MINE.try_with(|mine| {
            mine.borrow_mut().retain(|entry| !std::ptr::eq(*entry, self.0));
            self.0.requested.store(0, Release);
        });
    }
}

/// How much an index is wanted. Inserts wait for a unique one.
fn rank(entry: &Entry) -> (bool, u32) {
    let demand = entry.demand.load(Relaxed);
    (demand > 0 && entry.unique.load(Relaxed) != 0, demand)
}

/// Indexes of one table that this builder brings up, the most wanted first.
struct Share {
    table: u32,
    indexes: Vec<Taken>,
}

impl Share {
    /// Takes a share of the table whose index is wanted most, of the indexes that were asked for.
    /// `None` if there is none, or if fewer than `least` plans want it.
    fn take(here: u32, least: u32) -> Option<Share> {
        let free = |entry: &Entry| is_asked(entry) && entry.builder.load(Acquire) == 0;
        let (mut asked, mut taken) = (Vec::new(), Vec::new());
        directory::get().for_each(|entry| {
            if entry.database() != here {
            } else if free(entry) {
                asked.push(entry);
            } else if entry.requested.load(Relaxed) == TAKEN {
                taken.push(entry.table().oid);
            }
        });
        asked.sort_by_key(|entry| Reverse(rank(entry)));
        let first = asked.first().filter(|entry| rank(entry).1 >= least)?;
        let table = first.table().oid;
        let of_table = |oid: &u32| *oid == table;
        let (mut own, rest): (Vec<&'static Entry>, Vec<_>) =
            asked.into_iter().partition(|entry| of_table(&entry.table().oid));
        let all = own.len() + taken.into_iter().filter(of_table).count();
        let others = own.split_off(all.div_ceil(worker::can_share(table)).min(own.len()));
        let share = Share { table, indexes: own.into_iter().filter_map(Taken::this).collect() };
        share.note(table);
        // Each builder sends for the next one, as long as there is a place.
        if others.iter().chain(&rest).any(|entry| rank(entry).1 > 0) {
            let _ = worker::start(here, Purpose::Build);
        }
        Some(share)
    }

    /// Says which table this builder works on; 0 = none.
    fn note(&self, table: u32) {
        if let Some(place) = PLACE.get() {
            directory::get().life.builder_tables[place].store(table, Relaxed);
        }
    }

    fn bring_up(mut self, feed: &mut Feed) {
        let indexes = std::mem::take(&mut self.indexes);
        let mut left = Vec::new();
        let alone = indexes.len() == 1;
        for taken in indexes {
            let wanted = |taken: &Taken| taken.0.demand.load(Relaxed) > 0;
            let outdated = !(alone && wanted(&taken)) && taken.bring_up(feed, Origin::Image);
            // An index that no plan wants is loaded from its image only. If that is outdated, the
            // table is read in its place.
            if !is_settled(taken.0) && (outdated || wanted(&taken)) {
                left.push(taken);
            }
            if compat::database_is_wanted() {
                return;
            }
        }
        if left.len() > 1 {
            self.read_once(&left, feed);
        }
        for taken in left {
            if !is_settled(taken.0) && !compat::database_is_wanted() {
                taken.bring_up(feed, Origin::Anything);
            }
        }
    }

    /// Builds several indexes by one reading of their table.
    fn read_once(&self, left: &[Taken], feed: &mut Feed) {
        // The last one is the first to be built.
        let relids: Vec<pg_sys::Oid> = left.iter().rev().map(Taken::relid).collect();
        transaction("build indexes of a table", || {
            // SAFETY: inside a transaction.
            unsafe {
                open::with_indexes_at_once(self.table.into(), &relids, |_, indexes| {
                    bring_up::bring_up_together(indexes, feed);
                });
            }
        });
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.note(0);
    }
}

/// Whether the index is ready, or cannot be.
fn is_settled(entry: &Entry) -> bool {
    matches!(entry.state(), State::Ready | State::Failed)
}

/// Makes an image; false if that has to wait for a lock.
fn save(entry: &'static Entry) -> bool {
    let mut free = true;
    // SAFETY: inside a transaction.
    in_long_transaction("make an image", || free = unsafe { make_image(entry) });
    free
}

/// Packs an index that has grown. If a lock keeps this builder from it, the keeper asks again.
fn pack(entry: &'static Entry) {
    in_long_transaction("pack an index", || {
        let relid = pg_sys::Oid::from(entry.relid.load(Relaxed));
        let mut found = false;
        // SAFETY: inside a transaction, without a snapshot.
        let free = unsafe {
            open::with_index_at_once(relid, |heap, index, handle| {
                found = std::ptr::eq(handle.entry, entry);
                if found {
                    pack::pack_beside(heap, index, handle);
                }
            })
        };
        if free && !found {
            // It is not usable: it is not looked at again before it has grown by as much.
            entry.packed.changes.store(entry.packed.seen.load(Relaxed), Relaxed);
        }
    });
}

/// Runs `work` in a transaction without a snapshot: a long one must not keep VACUUM from its work.
fn in_long_transaction(what: &str, work: impl FnOnce()) {
    transaction(what, || {
        // SAFETY: inside a transaction.
        unsafe { pg_sys::PopActiveSnapshot() };
        work();
        // SAFETY: as above.
        unsafe { pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot()) };
    });
}

/// Asks for the indexes that have images and are not ready, the oldest image first. Indexes that
/// plans want are brought up in between. Removes the images of indexes that are gone.
fn expect_images(here: u32, feed: &mut Feed) {
    let store = image::store();
    let incarnations = store.incarnations(here).unwrap_or_default();
    let known: HashSet<Incarnation> = directory::get().incarnations(here, State::Ready);
    let mut images: Vec<(Incarnation, Vec<Manifest>)> = incarnations
        .into_iter()
        .filter(|incarnation| !known.contains(incarnation))
        .map(|incarnation| (incarnation, image::manifests(here, incarnation)))
        .collect();
    images.sort_by_key(|(_, manifests)| manifests.first().map(|m| m.lsn));
    for (incarnation, manifests) in images {
        while let Some(share) = Share::take(here, 1) {
            share.bring_up(feed);
        }
        if compat::database_is_wanted() {
            return;
        }
        if !directory::get().knows_one(here, incarnation, worker::is_expected) {
            expect_image(here, incarnation, &manifests);
        }
    }
}

/// Asks for one index, or removes its images if it is gone.
fn expect_image(here: u32, incarnation: Incarnation, manifests: &[Manifest]) {
    let mut found = false;
    let asked = transaction("look for the index of an image", || {
        for relid in manifests.iter().map(|m| pg_sys::Oid::from(m.index)) {
            // SAFETY: inside a transaction.
            unsafe {
                let free = open::with_index_at_once(relid, |_, index, handle| {
                    found |= handle.entry.incarnation() == incarnation;
                    if found && hosts::stays_away(index, handle.entry) {
                        image::forget(here, incarnation);
                    } else if found && !is_settled(handle.entry) {
                        worker::expect(handle.entry);
                    }
                });
                // The process with the lock may be about to bring the index up, or to drop it.
                found |= !free;
            }
            if found {
                break;
            }
        }
    });
    // A new OID for the same file (ALTER TYPE) is found by the next image. An index that another
    // process is creating has no image yet, but may have a folder: its entry is known.
    if asked && !found && !directory::get().knows(here, incarnation) {
        let store = image::store();
        for damage in store.images(here, incarnation).into_iter().filter_map(Result::err) {
            crate::pg::error::log!(
                "nitro image below pg_nitro/{here}/{incarnation:032x} is not used: {damage}"
            );
        }
        let _ = store.discard(here, incarnation);
    }
}

/// Makes the image of an index, if the index still exists. Returns false if another process has a
/// lock on it.
unsafe fn make_image(entry: &'static Entry) -> bool {
    let relid = pg_sys::Oid::from(entry.relid.load(Relaxed));
    // SAFETY: inside a transaction.
    unsafe {
        open::with_index_at_once(relid, |heap, index, handle| {
            if !std::ptr::eq(handle.entry, entry) {
                return;
            }
            match image::backup::back_up(heap, index, handle) {
                // Not for an index that this server does not keep up to date.
                Ok(Outcome::NotNow(_)) if !hosts::wants_images(index) => {
                    image::forget(entry.database(), entry.incarnation());
                }
                Ok(outcome) => {
                    pgrx::debug1!("image of nitro index \"{}\": {outcome:?}", compat::name(index))
                }
                // Given up meanwhile, and its images have gone with it.
                Err(_) if entry.state() == State::GivenUp => (),
                Err(why) => image::sql::warn(index, &why),
            }
            // The process that gave it up could not free it while this process had a lock.
            given_up::reclaim(index, entry);
        })
    }
}

/// An index of the database that has what is looked for; asks no further once there is one.
fn find(here: u32, wanted: impl Fn(&Entry) -> bool) -> Option<&'static Entry> {
    let mut found = None;
    directory::get().for_each(|entry| {
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
    for entry in MINE.take() {
        entry.requested.store(0, Release);
    }
    worker::leave_place();
}

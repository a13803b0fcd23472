//! `nitro_ready` and `nitro_ready_for_promotion`: answers for health checks and cluster managers.

use pgrx::pg_sys::{self, Oid, Relation};
use pgrx::prelude::*;

use super::names;
use crate::feed::Feed;
use crate::image::load;
use crate::pg::compat;
use crate::pg::error::Failure;
use crate::state::directory::{self, Entry, State};
use crate::state::follow;
use crate::state::handle::Handle;
use crate::state::{given_up, hosts, open, shmem};
use crate::upkeep::{bring_up, worker};

/// Returns whether plans can use all valid nitro indexes of the current database now. Asks for the
/// indexes that are missing, so that the answer becomes true without queries.
#[pg_extern]
fn nitro_ready() -> bool {
    crate::pg::witness!();
    if directory::if_loaded().is_none() {
        return false;
    }
    let (mut all, mut missing) = (true, Vec::new());
    // SAFETY: a function called from SQL runs in a transaction, and has a snapshot.
    unsafe {
        each_valid_index(hosts::is_elsewhere_by_name, |_, found| {
            // Queries wait for the lock as well, if there is one.
            all &= found.is_some_and(|(_, index, handle)| is_usable(index, handle, &mut missing));
        });
    }
    worker::wake(&missing, false);
    all
}

/// Whether plans can use the index now. Otherwise it is noted as missing, or asked of a follower.
///
/// # Safety
/// `index` must be open and locked, with an active snapshot.
unsafe fn is_usable(
    index: Relation,
    handle: &Handle,
    missing: &mut Vec<(&'static Entry, bool)>,
) -> bool {
    let entry = handle.entry;
    // SAFETY: by contract.
    unsafe {
        if pg_sys::RecoveryInProgress() {
            follow::ask(entry);
            return follow::offers(handle.entry, follow::made_by(index));
        }
    }
    let state = entry.state();
    if !matches!(state, State::Ready | State::Failed) && given_up::may_fit(entry) {
        missing.push((entry, true));
    }
    state == State::Ready
}

/// Visits the valid nitro indexes of the current database: the table, the index and its handle, or
/// `None` if the index is locked. Leaves out indexes that are elsewhere.
///
/// # Safety
/// Inside a transaction.
unsafe fn each_valid_index(
    elsewhere: unsafe fn(Oid) -> bool,
    mut look: impl FnMut(Oid, Option<(Relation, Relation, &Handle)>),
) {
    let mut all = Vec::new();
    // SAFETY: by contract.
    unsafe {
        names::each(|index| all.push(index.oid));
        all.retain(|&relid| !elsewhere(relid));
        for relid in all {
            let free = open::with_index_at_once(relid, |heap, index, handle| {
                if (*(*index).rd_index).indisvalid {
                    look(relid, Some((heap, index, handle)));
                }
            });
            if !free {
                look(relid, None);
            }
        }
    }
}

/// The state that a promotion would find.
#[derive(Default)]
struct Found {
    /// Indexes that would be built from their tables.
    built: u32,
    /// The first of them, and why.
    first: String,
    /// Bytes of the images that would be loaded.
    bytes: u64,
}

/// Returns true if a promoted server would have all nitro indexes of the current database at once.
/// That is so if a follower keeps each up to date or it has a usable image, and if there is memory
/// for all. Indexes of small tables need no image. With `compare` the tables are read, to see
/// whether the images are outdated. Returns true outside of recovery. An INFO names the obstacles.
#[pg_extern]
fn nitro_ready_for_promotion(compare: bool) -> bool {
    crate::pg::witness!();
    if directory::if_loaded().is_none() {
        return false;
    }
    let mut found = Found::default();
    // SAFETY: a function called from SQL runs in a transaction.
    unsafe {
        if !pg_sys::RecoveryInProgress() {
            return true;
        }
        let mut feed = Feed::new(pg_sys::MyDatabaseId.to_u32());
        each_valid_index(hosts::will_be_elsewhere, |relid, index| {
            let (name, loaded) = match index {
                Some((heap, index, handle)) => {
                    let feed = compare.then_some(&mut feed);
                    (compat::name(index), would_load(heap, index, handle, feed))
                }
                None => (relid.to_string(), Err("it is locked".into())),
            };
            match loaded {
                Ok(bytes) => found.bytes += bytes,
                Err(why) => {
                    if found.built == 0 {
                        found.first = format!("\"{name}\": {why}");
                    }
                    found.built += 1;
                }
            }
        });
    }
    is_enough(&found)
}

/// Returns the bytes of the image that would be loaded after a promotion, or 0 if none is needed.
/// Otherwise returns the reason why the index would be built from its table.
///
/// # Safety
/// Open relations, in recovery.
unsafe fn would_load(
    heap: Relation,
    index: Relation,
    handle: &Handle,
    feed: Option<&mut Feed>,
) -> Result<u64, String> {
    // SAFETY: by contract.
    unsafe {
        // A promotion empties tables that are not logged.
        let logged = (*(*heap).rd_rel).relpersistence as u8 == pg_sys::RELPERSISTENCE_PERMANENT;
        let follows = handle.entry.state() == State::Following;
        if follows || !logged || bring_up::is_small(heap) {
            return Ok(0);
        }
        load::would_load(heap, index, handle, feed)
    }
}

/// Tells the client what speaks against a promotion. Returns true if nothing does.
fn is_enough(found: &Found) -> bool {
    let total = shmem::area().usage().total as u64;
    let (message, detail) = if found.built > 0 {
        let message = format!("{} nitro indexes would be built from their tables", found.built);
        (message, format!("The first is {}.", found.first))
    } else if found.bytes > total {
        let message = "the images of nitro indexes do not fit into memory".to_owned();
        let detail = format!("They have {} bytes, \"nitro.max_memory\" {total}.", found.bytes);
        (message, detail)
    } else {
        return true;
    };
    let code = PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
    Failure::new(code, message).detail(detail).inform();
    false
}

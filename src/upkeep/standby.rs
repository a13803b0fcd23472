//! The process that starts a follower in each database when a standby opens.

use pgrx::bgworkers::{BackgroundWorkerBuilder, BgWorkerStartTime};
use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::pg::background;
use crate::pg::{catalog, compat, guc};
use crate::state::follow;
use crate::upkeep::keeper;

/// Registers the process that starts followers when a standby opens; only while
/// `shared_preload_libraries` are loaded. Where `nitro.follow` comes on later, queries ask for
/// followers.
pub fn register() {
    if !guc::FOLLOW_WAL.get() {
        return;
    }
    BackgroundWorkerBuilder::new("nitro standby")
        .set_type("nitro standby")
        .set_library("nitro")
        .set_function("nitro_standby_main")
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::ConsistentState)
        .load();
}

/// Entry point of the process that starts a follower in each database, and ends. One without nitro
/// indexes ends at once.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nitro_standby_main(_argument: pg_sys::Datum) {
    crate::pg::witness!();
    // SAFETY: the first things a background worker does, in the order the server documents.
    unsafe {
        compat::die_on_sigterm();
        background::set_limits_aside();
        pg_sys::BackgroundWorkerUnblockSignals();
        if !pg_sys::RecoveryInProgress() || !guc::FOLLOW_WAL.get() {
            return;
        }
        pg_sys::BackgroundWorkerInitializeConnection(std::ptr::null(), std::ptr::null(), 0);
    }
    // No keeper runs in recovery.
    keeper::remove_orphans();
    background::transaction("start followers", || {
        // SAFETY: a shared catalogue, inside a transaction.
        unsafe { catalog::databases(|form| (*form).datallowconn) }
            .into_iter()
            .for_each(|database| follow::start(database.to_u32()));
    });
}

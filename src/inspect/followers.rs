//! `pg_stat_nitro_followers`: progress of the followers of this standby.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::*};

use pgrx::pg_sys::{self, FunctionCallInfo};
use pgrx::prelude::*;

use super::rows::{self, Value};
use super::views::moment;
use crate::state::directory::{self, State};
use crate::state::holders;
use crate::state::tenants::{Kind, Tenant};

/// The followers of this standby, as far as the user may know. None outside of recovery.
#[pg_extern]
fn nitro_follower_stats(fcinfo: FunctionCallInfo) {
    crate::pg::witness!();
    let mut all = Vec::new();
    // SAFETY: a function called from SQL runs in a transaction; the other calls read shared state.
    unsafe {
        if pg_sys::RecoveryInProgress() {
            let slowest = slowest();
            // Read after the positions of indexes, so none is ahead of it.
            let replayed = pg_sys::GetXLogReplayRecPtr(std::ptr::null_mut());
            let now = pg_sys::GetCurrentTimestamp();
            for tenant in holders::known(Kind::Database) {
                let slowest = slowest.get(&tenant.oid().to_u32()).copied();
                all.push(row(tenant, slowest, replayed, now));
            }
        }
    }
    // SAFETY: declared to return a set of rows.
    unsafe { rows::give(fcinfo, &all) }
}

/// The position of the index that is furthest behind, by database.
fn slowest() -> BTreeMap<u32, u64> {
    let mut slowest = BTreeMap::new();
    directory::get().for_each(|entry| {
        if entry.state() == State::Following {
            let reflects = entry.reflects.load(Acquire);
            let least = slowest.entry(entry.database()).or_insert(reflects);
            *least = reflects.min(*least);
        }
    });
    slowest
}

fn row(tenant: &Tenant, slowest: Option<u64>, replayed: u64, now: i64) -> [rows::Named; 14] {
    let following = tenant.following();
    let count = |counter: &AtomicU64| Some(Value::count(counter.load(Relaxed)));
    let lsn = |lsn: u64| (lsn != 0).then_some(Value::Lsn(lsn));
    let lag = slowest.map(|reflects| replayed.saturating_sub(reflects));
    let lag_ms = lag.map(|lag| match following.current_at.load(Relaxed) {
        _ if lag == 0 => 0,
        at => u64::try_from(now.saturating_sub(at)).unwrap_or(0) / 1000,
    });
    [
        ("datid", Some(Value::Oid(tenant.oid().to_u32()))),
        ("pid", Some(tenant.follower()).filter(|&pid| pid != 0).map(Value::Int4)),
        ("decoded_lsn", lsn(following.decoded.load(Relaxed))),
        ("reflects_lsn", slowest.and_then(lsn)),
        ("lag_bytes", lag.map(Value::count)),
        ("lag_ms", lag_ms.map(Value::count)),
        ("records", count(&following.records)),
        ("rows", count(&following.rows)),
        ("blocks", count(&following.blocks)),
        ("removed", count(&following.removed)),
        ("waits", count(&following.waits)),
        ("waited_ms", Some(Value::count(following.waited_us.load(Relaxed) / 1000))),
        ("refused_locks", count(&following.refused_locks)),
        ("stats_reset", moment(&following.reset_at)),
    ]
}

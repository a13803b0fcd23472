//! Warnings in the server's log that a limit of memory is nearly reached.
//!
//! The keeper compares use and limits each time it looks around. It has no database, so the log
//! names an index by its OID.

use nitro_engine::prelude::*;
use std::sync::atomic::Ordering::Relaxed;
use std::time::SystemTime;

use pgrx::prelude::*;

use crate::pg::background::transaction;
use crate::pg::error::Failure;
use crate::pg::guc;
use crate::state::directory::{self, Entry};
use crate::state::holders;
use crate::state::shmem;
use crate::state::tenants::{KINDS, Kind, Tenant};

/// A limit that is nearly reached.
struct Reached {
    what: What,
    level: u8,
    used: u64,
    limit: u64,
}

enum What {
    Area,
    Tenant(Kind, &'static Tenant),
    Index { database: u32, relid: u32 },
}

/// Says which limits have reached another level. By the keeper.
pub fn look() {
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_secs());
    let mut all = Vec::new();
    all.extend(of_area(now));
    for kind in KINDS {
        let tenants = directory::get().tenants_of(kind);
        all.extend(tenants.into_iter().filter_map(|tenant| of_tenant(kind, tenant, now)));
    }
    directory::get().for_each(|entry| all.extend(of_index(entry, now)));
    if !all.is_empty() {
        transaction("say which limits of memory are nearly reached", || {
            all.iter().for_each(|reached| reached.say());
        });
    }
}

fn of_area(now: u64) -> Option<Reached> {
    let usage = shmem::area().usage();
    let (used, limit) = ((usage.total - usage.free) as u64, usage.total as u64);
    let level = directory::get().life.alarm.look(used, limit, now)?;
    Some(Reached { what: What::Area, level, used, limit })
}

fn of_tenant(kind: Kind, tenant: &'static Tenant, now: u64) -> Option<Reached> {
    let (used, limit) = (tenant.memory().used(), tenant.memory().limit());
    let level = tenant.alarm().look(used, limit, now)?;
    Some(Reached { what: What::Tenant(kind, tenant), level, used, limit })
}

fn of_index(entry: &'static Entry, now: u64) -> Option<Reached> {
    let limit = entry.limit();
    if limit == u64::MAX {
        return None;
    }
    let process = shmem::process();
    let used = {
        // State first, inside: see `nitro_index_stats`.
        let _inside = process.enter();
        entry.index(process)?.stats().bytes as u64
    };
    let level = entry.alarm.look(used, limit, now)?;
    let what = What::Index { database: entry.database(), relid: entry.relid.load(Relaxed) };
    Some(Reached { what, level, used, limit })
}

impl Reached {
    /// Inside a transaction.
    fn say(&self) {
        let Reached { what, level, used, limit } = self;
        let (who, setting, hint) = match what {
            What::Area => (
                "nitro memory".to_owned(),
                "nitro.max_memory",
                "When the memory is used up, statements that need more fail with SQLSTATE 53200. Raise the setting, or drop nitro indexes.",
            ),
            What::Tenant(kind, tenant) => (
                // SAFETY: inside a transaction.
                format!("nitro memory of {}", unsafe { holders::describe(*kind, tenant) }),
                guc::limits_of(*kind as usize)[0].text(),
                "When the memory is used up, statements that need more fail with SQLSTATE 53400. Raise the setting, or drop nitro indexes.",
            ),
            What::Index { database, relid } => (
                // SAFETY: inside a transaction.
                format!("nitro index with OID {relid} of {}", unsafe {
                    holders::describe_oid(Kind::Database, (*database).into())
                }),
                "max_memory",
                "When the memory is used up, statements that need more fail with SQLSTATE 53400. Raise this storage parameter.",
            ),
        };
        Failure::new(
            PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
            format!("{who} has reached {level} percent of \"{setting}\""),
        )
        .detail(format!("It uses {used} of {limit} bytes."))
        .hint(hint)
        .log();
    }
}

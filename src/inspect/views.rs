//! The functions behind the views `pg_stat_nitro_indexes`, `nitro_indexes_all`,
//! `nitro_memory_by_database`, `nitro_memory` and `nitro_slot`. Under the directory's lock they
//! only collect: what raises comes after it.

use nitro_engine::prelude::*;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use pgrx::pg_sys::FunctionCallInfo;
use pgrx::prelude::*;

use super::rows::{self, Value};
use crate::image::slot;
use crate::pg::{compat, wait};
use crate::state::alarm;
use crate::state::counters::Counters;
use crate::state::directory::{self, Entry, State};
use crate::state::follow;
use crate::state::holders;
use crate::state::shmem;
use crate::state::tenants::{Kind, Tenant};

/// Returns the counts of an index.
fn counted(counters: &Counters) -> [rows::Named; 8] {
    let count = |counter: &AtomicU64| Some(Value::count(counter.load(Relaxed)));
    [
        ("scans", Some(Value::count(counters.scans.sum()))),
        ("builds", count(&counters.builds)),
        ("loads", count(&counters.loads)),
        ("given_up", count(&counters.given_up)),
        ("refused", count(&counters.refused)),
        ("images", count(&counters.images)),
        ("images_failed", count(&counters.images_failed)),
        ("stats_reset", moment(&counters.reset_at)),
    ]
}

/// A time in seconds since 1970, where 0 is none.
pub(super) fn moment(at: &AtomicI64) -> Option<Value> {
    let at = Some(at.load(Relaxed)).filter(|&at| at != 0)?;
    Some(Value::Time(pgrx::datum::to_timestamp(at as f64)))
}

/// How much an index may hold, and which level of that it has reached.
fn limited(entry: &Entry, bytes: Option<u64>) -> [rows::Named; 2] {
    let limit = Some(entry.limit()).filter(|&limit| limit != u64::MAX);
    [
        ("max_bytes", limit.map(Value::count)),
        ("alarm_percent", alarm_percent(bytes.unwrap_or(0), entry.limit())),
    ]
}

fn alarm_percent(used: u64, limit: u64) -> Option<Value> {
    alarm::level(used, limit).map(|level| Value::Int4(level.into()))
}

/// The indexes of the current database that this server knows.
#[pg_extern]
fn nitro_index_stats(fcinfo: FunctionCallInfo) {
    crate::pg::witness!();
    let process = shmem::process();
    // SAFETY: a plain global of the process.
    let here = unsafe { pg_sys::MyDatabaseId }.to_u32();
    let mut all = Vec::new();
    // The lock keeps entries from being removed while they are read.
    directory::get().for_each(|entry| {
        if entry.database() != here {
            return;
        }
        // A build that is given up changes the state first, and its memory stays for processes
        // inside the barrier. So read the state first, inside.
        let _inside = process.enter();
        let state = entry.state();
        let engine = entry.kept_index(process);
        let stats = engine.map(|engine| engine.stats());
        let stats = stats.as_ref();
        let oldest = stats.and_then(|s| s.snapshots.first());
        let builder = Some(entry.builder.load(Relaxed)).filter(|&pid| pid != 0);
        let image = &entry.image;
        let saved = Some(image.saved_lsn.load(Relaxed)).filter(|&lsn| lsn != 0);
        let saver = Some(image.saver.load(Relaxed)).filter(|&pid| pid != 0);
        let command = match state {
            State::Loading => Some(("load", builder.unwrap_or(0))),
            _ => saver.map(|pid| ("backup", pid)),
        };
        let row = [
            ("indexrelid", Some(Value::Oid(entry.relid.load(Relaxed)))),
            ("state", Some(Value::Text(follow::shown(state)))),
            ("entries", stats.map(|s| Value::count(s.live))),
            ("dead_entries", stats.map(|s| Value::Int8(s.dead.into()))),
            ("bytes", stats.map(|s| Value::count(s.bytes as u64))),
            ("free_bytes", stats.map(|s| Value::count(s.idle as u64))),
            ("leaf_blocks", stats.map(|s| Value::Int8(s.blocks[0].into()))),
            ("inner_blocks", stats.map(|s| Value::Int8(s.blocks[1].into()))),
            ("top_blocks", stats.map(|s| Value::Int8(s.blocks[2].into()))),
            ("term", stats.map(|s| Value::Int8(s.term.into()))),
            ("snapshots", stats.map(|s| Value::Int8(s.snapshots.len() as i64))),
            ("oldest_snapshot", oldest.map(|s| Value::Int8(s.sn.into()))),
            ("oldest_snapshot_holder", oldest.map(|s| Value::Int4(s.holder as i32))),
            ("garbage_blocks", stats.map(|s| Value::Int8(s.garbage.into()))),
            ("dirty_blocks", stats.map(|s| Value::Int8(s.dirty.into()))),
            ("builder_pid", builder.map(Value::Int4)),
            (
                "heap_blocks_walked",
                matches!(state, State::Building | State::Sorting | State::CatchingUp)
                    .then(|| Value::Int8(entry.next_block.load(Relaxed).into())),
            ),
            (
                "build_ms",
                (state == State::Ready).then(|| Value::count(entry.build_ms.load(Relaxed))),
            ),
            ("image_lsn", saved.map(|lsn| Value::Int8(lsn as i64))),
            ("image_time", saved.and_then(|_| moment(&image.saved_at))),
            ("image_entries", saved.map(|_| Value::count(image.saved_entries.load(Relaxed)))),
            ("image_bytes", saved.map(|_| Value::count(image.saved_bytes.load(Relaxed)))),
            ("progress_pid", command.map(|(_, pid)| Value::Int4(pid))),
            ("progress_command", command.map(|(name, _)| Value::Text(name))),
            ("progress_total", command.map(|_| Value::count(image.total.load(Relaxed)))),
            ("progress_done", command.map(|_| Value::count(image.done.load(Relaxed)))),
            ("progress_bytes", command.map(|_| Value::count(image.bytes.load(Relaxed)))),
        ];
        let limited = limited(entry, stats.map(|s| s.bytes as u64));
        let counted = counted(&entry.counters);
        all.push([row.as_slice(), &counted, &limited, &followed(entry, state)].concat());
    });
    // SAFETY: declared to return a set of rows.
    unsafe { rows::give(fcinfo, &all) }
}

/// Returns the position that an index of a standby reflects, and the memory of its reverse map.
/// Inside the barrier.
fn followed(entry: &Entry, state: State) -> [rows::Named; 2] {
    let follows = state == State::Following;
    let reflects = entry.reflects.load(Relaxed);
    let map = entry.reverse(shmem::process()).filter(|_| follows);
    [
        ("reflects_lsn", follows.then_some(Value::Lsn(reflects))),
        ("reverse_bytes", map.map(|map| Value::count(map.stats().bytes as u64))),
    ]
}

/// The indexes of all databases, as far as the user may know.
#[pg_extern]
fn nitro_all_index_stats(fcinfo: FunctionCallInfo) {
    crate::pg::witness!();
    let process = shmem::process();
    // SAFETY: a function called from SQL runs in a transaction.
    let known = unsafe { holders::known_databases() };
    let mut all = Vec::new();
    directory::get().for_each(|entry| {
        if !known(entry.database()) {
            return;
        }
        // State first, inside: see `nitro_index_stats`.
        let _inside = process.enter();
        let state = entry.state();
        let engine = entry.kept_index(process);
        let stats = engine.map(|engine| engine.stats());
        let stats = stats.as_ref();
        let row = [
            ("datid", Some(Value::Oid(entry.database()))),
            ("indexrelid", Some(Value::Oid(entry.relid.load(Relaxed)))),
            ("state", Some(Value::Text(follow::shown(state)))),
            ("entries", stats.map(|s| Value::count(s.live))),
            ("bytes", stats.map(|s| Value::count(s.bytes as u64))),
            ("free_bytes", stats.map(|s| Value::count(s.idle as u64))),
        ];
        let limited = limited(entry, stats.map(|s| s.bytes as u64));
        all.push([row.as_slice(), &counted(&entry.counters), &limited].concat());
    });
    // SAFETY: declared to return a set of rows.
    unsafe { rows::give(fcinfo, &all) }
}

/// Returns the memory of the indexes of each database that the user may see.
#[pg_extern]
fn nitro_database_stats(fcinfo: FunctionCallInfo) {
    crate::pg::witness!();
    // SAFETY: declared to return a set of rows.
    unsafe { rows::give(fcinfo, &held_by(Kind::Database, "datid")) }
}

/// Returns the memory of the indexes of each owner that the user may see.
#[pg_extern]
fn nitro_owner_stats(fcinfo: FunctionCallInfo) {
    crate::pg::witness!();
    // SAFETY: declared to return a set of rows.
    unsafe { rows::give(fcinfo, &held_by(Kind::Owner, "roleid")) }
}

fn held_by(kind: Kind, oid: &'static str) -> Vec<[rows::Named; 6]> {
    // SAFETY: a function called from SQL runs in a transaction.
    let all = unsafe { holders::known(kind) }.into_iter();
    let row = |tenant: &Tenant| {
        let memory = tenant.memory();
        let limit = Some(memory.limit()).filter(|&limit| limit != u64::MAX);
        let most = Some(tenant.max_indexes()).filter(|&most| most != u32::MAX);
        [
            (oid, Some(Value::Oid(tenant.oid().to_u32()))),
            ("indexes", Some(Value::Int8(tenant.indexes().into()))),
            ("bytes", Some(Value::count(memory.used()))),
            ("max_indexes", most.map(|most| Value::Int8(most.into()))),
            ("max_bytes", limit.map(Value::count)),
            ("alarm_percent", alarm_percent(memory.used(), memory.limit())),
        ]
    };
    all.map(row).collect()
}

/// Use of the shared area.
#[pg_extern]
fn nitro_memory_stats(fcinfo: FunctionCallInfo) {
    crate::pg::witness!();
    let usage = shmem::area().usage();
    let (indexes, max_indexes) = directory::get().fill();
    let count = |n: usize| Some(Value::count(n as u64));
    let all = [[
        ("total", count(usage.total)),
        ("used", count(usage.used)),
        ("free", count(usage.free)),
        ("largest_free", count(usage.largest_free)),
        ("overhead", count(usage.overhead)),
        ("indexes", Some(Value::Int8(indexes.into()))),
        ("max_indexes", Some(Value::Int8(max_indexes.into()))),
        ("barrier_session", Some(Value::count(usage.session))),
        ("barrier_oldest_session", Some(Value::count(usage.oldest_session))),
        ("processes_inside", count(usage.active)),
        ("committed", count(usage.committed)),
        ("reserved", count(usage.reserved)),
        ("alarm_percent", alarm_percent((usage.total - usage.free) as u64, usage.total as u64)),
    ]];
    // SAFETY: declared to return a set of rows.
    unsafe { rows::give(fcinfo, &all) }
}

/// The replication slot `nitro`.
#[pg_extern]
fn nitro_slot_stats(fcinfo: FunctionCallInfo) {
    crate::pg::witness!();
    let slot = slot::report();
    let kept = slot.restart_lsn.map(|from| compat::newest_wal().saturating_sub(from));
    let all = [[
        ("state", Some(Value::Text(slot.state))),
        ("restart_lsn", slot.restart_lsn.map(|lsn| Value::Int8(lsn as i64))),
        ("wal_bytes", kept.map(Value::count)),
        ("copy_dropped", moment(slot.copy_dropped)),
    ]];
    // SAFETY: declared to return a set of rows.
    unsafe { rows::give(fcinfo, &all) }
}

/// Returns the times that processes of this server have waited, by wait event.
#[pg_extern]
fn nitro_wait_stats(fcinfo: FunctionCallInfo) {
    crate::pg::witness!();
    let life = &directory::get().life;
    let rows: Vec<[rows::Named; 3]> = wait::NAMES
        .iter()
        .zip(&life.waited)
        .map(|(name, microseconds)| {
            [
                ("event", name.to_str().ok().map(Value::Text)),
                ("waited_ms", Some(Value::count(microseconds.load(Relaxed) / 1000))),
                ("stats_reset", moment(&life.waited_since)),
            ]
        })
        .collect();
    // SAFETY: declared to return a set of rows.
    unsafe { rows::give(fcinfo, &rows) }
}

/// Takes back what is counted of the indexes of the current database, and how long this server's
/// processes have waited.
#[pg_extern]
fn nitro_stat_reset() {
    crate::pg::witness!();
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_secs() as i64);
    // SAFETY: a plain global of the process.
    let here = unsafe { pg_sys::MyDatabaseId }.to_u32();
    let directory = directory::get();
    directory.for_each(|entry| {
        if entry.database() == here {
            entry.counters.reset(now);
        }
    });
    for tenant in directory.tenants_of(Kind::Database) {
        if tenant.oid().to_u32() == here {
            tenant.following().reset(now);
        }
    }
    for clock in &directory.life.waited {
        clock.store(0, Relaxed);
    }
    directory.life.waited_since.store(now, Relaxed);
}

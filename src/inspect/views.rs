//! The functions behind the views `pg_stat_nitro_indexes` and `nitro_memory`.

use std::sync::atomic::Ordering::Relaxed;

use pgrx::iter::TableIterator;
use pgrx::prelude::*;

use crate::state::directory::{self, State};
use crate::state::shmem;

/// The indexes of the current database that this server knows.
#[expect(clippy::type_complexity, reason = "pg_extern wants the columns spelled out")]
#[pg_extern]
fn nitro_index_stats() -> TableIterator<
    'static,
    (
        name!(indexrelid, pg_sys::Oid),
        name!(state, &'static str),
        name!(entries, Option<i64>),
        name!(dead_entries, Option<i64>),
        name!(bytes, Option<i64>),
        name!(free_bytes, Option<i64>),
        name!(leaf_blocks, Option<i64>),
        name!(inner_blocks, Option<i64>),
        name!(top_blocks, Option<i64>),
        name!(term, Option<i64>),
        name!(snapshots, Option<i64>),
        name!(oldest_snapshot, Option<i64>),
        name!(oldest_snapshot_holder, Option<i32>),
        name!(garbage_blocks, Option<i64>),
        name!(dirty_blocks, Option<i64>),
        name!(scans, i64),
        name!(given_up, i64),
        name!(builder_pid, Option<i32>),
        name!(heap_blocks_walked, Option<i64>),
        name!(build_ms, Option<i64>),
        name!(image_lsn, Option<i64>),
        name!(image_time, Option<TimestampWithTimeZone>),
        name!(image_entries, Option<i64>),
        name!(image_bytes, Option<i64>),
        name!(progress_pid, Option<i32>),
        name!(progress_command, Option<&'static str>),
        name!(progress_total, Option<i64>),
        name!(progress_done, Option<i64>),
        name!(progress_bytes, Option<i64>),
    ),
> {
    crate::pg::witness!();
    let process = shmem::process();
    // SAFETY: a plain global of the process.
    let here = unsafe { pg_sys::MyDatabaseId }.to_u32();
    let mut rows = Vec::new();
    // The lock keeps entries from being removed while they are read.
    shmem::directory().for_each(|entry| {
        if entry.database() != here {
            return;
        }
        // A build that is given up says so in the state, and its memory stays for everybody inside the
        // barrier: state first, inside.
        let _inside = process.enter();
        let state = entry.state();
        let engine = if state.publishes() { entry.index(process) } else { None };
        let stats = engine.map(|engine| engine.stats());
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let oldest = stats.as_ref().and_then(|s| s.snapshots.first());
        let builder = entry.builder.load(Relaxed);
        let image = &entry.image;
        let image_lsn = Some(image.saved_lsn.load(Relaxed)).filter(|&lsn| lsn != 0);
        let saver = image.saver.load(Relaxed);
        let command = match state {
            State::Loading => Some(("load", builder)),
            _ => (saver != 0).then_some(("backup", saver)),
        };
        rows.push((
            pg_sys::Oid::from(entry.relid.load(Relaxed)),
            state.name(),
            stats.as_ref().map(|s| number(s.live)),
            stats.as_ref().map(|s| i64::from(s.dead)),
            stats.as_ref().map(|s| number(s.bytes as u64)),
            stats.as_ref().map(|s| number(s.idle as u64)),
            stats.as_ref().map(|s| i64::from(s.blocks[0])),
            stats.as_ref().map(|s| i64::from(s.blocks[1])),
            stats.as_ref().map(|s| i64::from(s.blocks[2])),
            stats.as_ref().map(|s| i64::from(s.term)),
            stats.as_ref().map(|s| s.snapshots.len() as i64),
            oldest.map(|s| i64::from(s.sn)),
            oldest.map(|s| s.holder as i32),
            stats.as_ref().map(|s| i64::from(s.garbage)),
            stats.as_ref().map(|s| i64::from(s.dirty)),
            number(entry.scans.load(Relaxed)),
            number(entry.given_up.load(Relaxed)),
            (builder != 0).then_some(builder),
            matches!(state, State::Building | State::CatchingUp)
                .then(|| i64::from(entry.next_block.load(Relaxed))),
            (state == State::Ready).then(|| number(entry.build_ms.load(Relaxed))),
            image_lsn.map(|lsn| lsn as i64),
            image_lsn.map(|_| pgrx::datum::to_timestamp(image.saved_at.load(Relaxed) as f64)),
            image_lsn.map(|_| number(image.saved_entries.load(Relaxed))),
            image_lsn.map(|_| number(image.saved_bytes.load(Relaxed))),
            command.map(|(_, pid)| pid),
            command.map(|(name, _)| name),
            command.map(|_| number(image.total.load(Relaxed))),
            command.map(|_| number(image.done.load(Relaxed))),
            command.map(|_| number(image.bytes.load(Relaxed))),
        ));
    });
    TableIterator::new(rows)
}

/// The indexes of all databases, as far as the user may know.
#[expect(clippy::type_complexity, reason = "pg_extern wants the columns spelled out")]
#[pg_extern]
fn nitro_all_index_stats() -> TableIterator<
    'static,
    (
        name!(datid, pg_sys::Oid),
        name!(indexrelid, pg_sys::Oid),
        name!(state, &'static str),
        name!(entries, Option<i64>),
        name!(bytes, Option<i64>),
        name!(free_bytes, Option<i64>),
        name!(scans, i64),
    ),
> {
    crate::pg::witness!();
    let process = shmem::process();
    // SAFETY: a function called from SQL runs in a transaction.
    let known = unsafe { directory::known_databases() };
    let mut rows = Vec::new();
    shmem::directory().for_each(|entry| {
        if !known(entry.database()) {
            return;
        }
        // State first, inside: see `nitro_index_stats`.
        let _inside = process.enter();
        let state = entry.state();
        let engine = if state.publishes() { entry.index(process) } else { None };
        let stats = engine.map(|engine| engine.stats());
        rows.push((
            pg_sys::Oid::from(entry.database()),
            pg_sys::Oid::from(entry.relid.load(Relaxed)),
            state.name(),
            stats.as_ref().map(|s| s.live as i64),
            stats.as_ref().map(|s| s.bytes as i64),
            stats.as_ref().map(|s| s.idle as i64),
            entry.scans.load(Relaxed) as i64,
        ));
    });
    TableIterator::new(rows)
}

/// What the indexes of each database hold, as far as the user may know.
#[pg_extern]
fn nitro_database_stats()
-> TableIterator<'static, (name!(datid, pg_sys::Oid), name!(indexes, i64), name!(bytes, i64))> {
    crate::pg::witness!();
    TableIterator::new(
        // SAFETY: a function called from SQL runs in a transaction.
        unsafe { directory::holders() }
            .into_iter()
            .map(|(database, held)| (pg_sys::Oid::from(database), held.indexes, held.bytes as i64)),
    )
}

/// Use of the shared area.
#[expect(clippy::type_complexity, reason = "pg_extern wants the columns spelled out")]
#[pg_extern]
fn nitro_memory_stats() -> TableIterator<
    'static,
    (
        name!(total, i64),
        name!(used, i64),
        name!(free, i64),
        name!(largest_free, i64),
        name!(overhead, i64),
        name!(indexes, i64),
        name!(max_indexes, i64),
        name!(barrier_session, i64),
        name!(barrier_oldest_session, i64),
        name!(processes_inside, i64),
        name!(committed, i64),
        name!(reserved, i64),
    ),
> {
    crate::pg::witness!();
    let usage = shmem::area().usage();
    let (indexes, max_indexes) = shmem::directory().fill();
    TableIterator::once((
        usage.total as i64,
        usage.used as i64,
        usage.free as i64,
        usage.largest_free as i64,
        usage.overhead as i64,
        i64::from(indexes),
        i64::from(max_indexes),
        usage.session as i64,
        usage.oldest_session as i64,
        usage.active as i64,
        usage.committed as i64,
        usage.reserved as i64,
    ))
}

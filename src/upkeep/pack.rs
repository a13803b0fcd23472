//! Packs indexes: VACUUM packs one, and so does a builder that has walked a table or that the
//! keeper has sent for an index that has grown.
//!
//! A leaf that takes inserts has slots. An entry in a slot takes two to three times the memory of a
//! packed one. So an index that grows and is not vacuumed would become larger and larger than
//! VACUUM would leave it. An index is *loose* if one entry in [`PART`] is new since it was packed.
//!
//! The keeper does not have an index packed while it grows fast: a packed leaf takes an insert more
//! slowly than slots do, and new slots would soon follow.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use nitro_engine::prelude::*;
use nitro_engine::{Index, IndexStats, Sweep, Swept};
use pgrx::pg_sys::Relation;

use crate::pg::compat;
use crate::pg::stop::{self, Point};
use crate::pg::wait::{self, Wait};
use crate::state::directory::{self, Entry, State};
use crate::state::handle::Handle;
use crate::state::shmem;

/// An index is loose when one entry in this number is new.
pub const PART: u64 = 12;
/// Fewer new entries do not make an index loose, however small it is: they take some 50 kB.
const LEAST: u64 = 1000;
/// How often the keeper looks for indexes that are loose.
pub const LOOK: Duration = Duration::from_secs(2);
/// An index grows fast if one entry in this number has come since the keeper looked last.
const FAST: u64 = 16;
/// Leaves that are packed between two looks at interrupts. Tests stop there.
const LEAVES: usize = if cfg!(debug_assertions) { 1 } else { 1024 };
/// How often in a row, a millisecond apart, another process may be collecting before the rest stays
/// as it is.
const TRIES: usize = 100;
/// Blocks that are collected between two looks at interrupts.
const BLOCKS: usize = 1024;
/// How often, a millisecond apart, memory that other processes may still use is looked at again.
const NAPS: usize = 100;
/// A builder sleeps when it has packed for this long.
const SLICE: Duration = Duration::from_millis(20);
/// It sleeps this many times as long as it has packed: it takes a third of a processor.
const REST: u32 = 2;

/// The number of inserts and removals since the memory of the index was made.
pub fn changes(stats: &IndexStats) -> u64 {
    stats.inserts + stats.removes
}

/// Packs an index, until `go_on` returns false after some leaves. The caller has a lock on the
/// index, or the claim on it. Of its memory nothing moves that another process uses.
///
/// It waits for no process but for some milliseconds: `go_on` looks again at what may have changed
/// meanwhile.
pub fn pack(entry: &Entry, engine: Index, mut go_on: impl FnMut() -> bool) {
    let begun_at = changes(&engine.stats());
    let mut sweep = Sweep::new(shmem::process(), engine);
    let mut tries = 0;
    loop {
        match sweep.next_leaves(LEAVES) {
            Swept::End => break,
            Swept::More => tries = 0,
            // A process that ends an image, or has found no memory, collects for a moment. If one
            // does each time, the rest is left to the next packing.
            Swept::Busy if tries == TRIES => return,
            Swept::Busy => {
                tries += 1;
                wait::nap(Wait::Barrier, 1);
            }
        }
        stop::at(Point::Packed);
        if !go_on() {
            return;
        }
    }
    entry.packed.changes.store(begun_at, Relaxed);
    give_back(engine, go_on);
}

/// Gives the memory of leaves back that packing has emptied, when the processes that may be there
/// have left them.
fn give_back(engine: Index, mut go_on: impl FnMut() -> bool) {
    for _ in 0..NAPS {
        let pause = || _ = go_on();
        let collected = engine.collect_in_steps(shmem::process(), BLOCKS, pause);
        // A process that ends a snapshot collects a little. No process does so later.
        let more = nitro_engine::relieve(&engine) || collected.is_none();
        if !more || collected == Some(BLOCKS) || !go_on() {
            return;
        }
        wait::nap(Wait::Barrier, 1);
    }
}

/// Asks for a builder for each index that is loose and does not grow fast. By the keeper.
pub fn look() {
    let process = shmem::process();
    directory::get().for_each(|entry| {
        // Another session cannot open an index of a temporary table.
        if entry.state() != State::Ready || entry.is_temporary() {
            return;
        }
        let stats = {
            // State first, inside: the memory stays until this process leaves.
            let _inside = process.enter();
            let Some(engine) = entry.ready_index(process) else { return };
            engine.stats()
        };
        let changes = changes(&stats);
        let since_packed = changes.saturating_sub(entry.packed.changes.load(Relaxed));
        let since_seen = changes.saturating_sub(entry.packed.seen.swap(changes, Relaxed));
        if since_packed >= LEAST.max(stats.live / PART) && since_seen <= stats.live / FAST {
            entry.packed.wanted.store(1, Relaxed);
        }
    });
}

/// Packs an index that has grown, by a builder, beside all other work. Stops when another session
/// waits for a lock on the index, its table or its database.
///
/// # Safety
/// Open relations, locked, in a transaction without a snapshot.
pub unsafe fn pack_beside(heap: Relation, index: Relation, handle: &Handle) {
    let entry = handle.entry;
    let Some(engine) = handle.index().filter(|_| entry.state() == State::Ready) else { return };
    let mut begun = Instant::now();
    pack(entry, engine, || {
        wait::interrupts();
        let worked = begun.elapsed();
        // Tests stop at each leaf, and look there.
        if worked < SLICE && !cfg!(debug_assertions) {
            return true;
        }
        // SAFETY: open relations, in a transaction.
        if unsafe { compat::is_wanted([(*index).rd_id, (*heap).rd_id]) }
            || compat::database_is_wanted()
        {
            return false;
        }
        if worked >= SLICE {
            wait::nap(Wait::Pack, (worked * REST).as_millis() as i64);
            begun = Instant::now();
        }
        entry.state() == State::Ready
    });
}

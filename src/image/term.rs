//! Closing the term of an index, by a snapshot of the engine that is never read.

use nitro_engine::prelude::*;
use nitro_engine::{Index, Process, Snapshot, SnapshotError};
use pgrx::prelude::*;

use crate::pg::error::Failure;
use crate::pg::stop::{self, Point};
use crate::pg::wait::{self, Wait};
use crate::state::shmem;

/// A snapshot of the engine, until it is dropped.
struct Held<'a> {
    process: &'a Process,
    engine: Index,
    snapshot: Option<Snapshot>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(snapshot) = self.snapshot.take() {
            self.engine.release(self.process, snapshot);
        }
    }
}

/// Closes the term of an index and returns it. The entries of all writers that began in it are
/// there then.
pub fn close(engine: Index, name: &str) -> u32 {
    let process = shmem::process();
    // SAFETY: a plain global.
    let holder = unsafe { pg_sys::MyProcPid } as u64;
    let snapshot = engine
        .create_snapshot(process, holder, &mut || wait::nap(Wait::ImageWriters, 1))
        .unwrap_or_else(|e| no_snapshot(name, e));
    let sn = snapshot.sn();
    let _held = Held { process, engine, snapshot: Some(snapshot) };
    stop::at(Point::BackupSnapshot);
    sn
}

/// The engine refused a snapshot.
fn no_snapshot(name: &str, error: SnapshotError) -> ! {
    let hint = match error {
        SnapshotError::TooMany | SnapshotError::Lost => "Try again.",
        SnapshotError::NoMoreTerms => "REINDEX the index.",
    };
    let text = format!("could not make an image of nitro index \"{name}\": {error}");
    Failure::new(PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED, text).hint(hint).raise()
}

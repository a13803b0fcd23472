//! Processes that wait while an image is written.

use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

use pgrx::pg_sys::Relation;
use pgrx::prelude::*;

use crate::image::{ImageState, slot};
use crate::pg::compat;
use crate::pg::error::Failure;

/// From this part of the WAL that the slot may keep on an image is written as fast as possible.
const HURRY: f64 = 0.5;

/// Processes that must not wait for an image: they wait for an exclusive lock on the index or its
/// table, or for the end of this transaction. The slot must not wait for it either.
pub(super) struct Waiters<'a> {
    pub(super) index: Relation,
    pub(super) image: &'a ImageState,
    pub(super) looked: Instant,
    /// See [`Pace`].
    pub(super) hurry: &'a AtomicBool,
}

impl Waiters<'_> {
    pub(super) fn give_way(&mut self) {
        if self.looked.elapsed() < Duration::from_millis(100) {
            return;
        }
        self.looked = Instant::now();
        // SAFETY: open relations.
        let waiting = unsafe {
            compat::is_wanted([(*self.index).rd_id, (*(*self.index).rd_index).indrelid])
                || compat::database_is_wanted()
        };
        if waiting {
            // The background worker tries again when the other one is done.
            self.image.wanted.store(1, Relaxed);
            self.give_up(
                PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE,
                "Another session waits for a lock on the index, its table or its database.",
                "",
            );
        }
        // Without the WAL since its LSN an image is worth nothing after a crash.
        let lsn = self.image.lsn.load(Relaxed);
        // No slot keeps WAL for images of a standby.
        let share = if lsn == 0 { None } else { slot::share(lsn) }.unwrap_or(0.0);
        self.hurry.store(share > HURRY, Relaxed);
        if share >= 1.0 {
            self.give_up(
                PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
                "Since the image was begun, more WAL was written than the replication slot may keep.",
                "Raise \"nitro.max_wal_lag\".",
            );
        }
    }

    fn give_up(&self, code: PgSqlErrorCode, detail: &str, hint: &str) -> ! {
        // SAFETY: open relation.
        let name = unsafe { compat::name(self.index) };
        Failure::new(code, format!("gave up the image of index \"{name}\""))
            .detail(detail)
            .hint(hint)
            .raise()
    }
}

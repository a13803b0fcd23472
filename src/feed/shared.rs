//! The feed of a process. Queries and VACUUM bring up one index after the other, by calls that do
//! not know each other. The WAL is read once for all of them.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use pgrx::prelude::*;

use super::Feed;

thread_local! {
    /// The feed while it is not in use, and the number of transactions that may still end before it
    /// is dropped.
    static KEPT: Cell<Option<(Feed, u8)>> = const { Cell::new(None) };
}

/// For how long a feed is kept.
#[derive(Clone, Copy)]
pub enum Keep {
    /// A query has one transaction.
    Transaction = 1,
    /// VACUUM has a transaction for each table. Not all need a feed (TOAST tables).
    Vacuum = 4,
}

/// The feed of this process; goes back where it was taken from, also by an ERROR.
pub struct Shared {
    feed: Option<Feed>,
    keep: Keep,
}

/// Takes the feed of this process. Code of an index that comes here meanwhile gets another one.
pub fn take(keep: Keep) -> Shared {
    // SAFETY: a plain global.
    let here = unsafe { pg_sys::MyDatabaseId }.to_u32();
    let feed = KEPT.take().map_or_else(|| Feed::new(here), |(feed, _)| feed);
    Shared { feed: Some(feed), keep }
}

impl Deref for Shared {
    type Target = Feed;

    fn deref(&self) -> &Feed {
        self.feed.as_ref().expect("is there until it is dropped")
    }
}

impl DerefMut for Shared {
    fn deref_mut(&mut self) -> &mut Feed {
        self.feed.as_mut().expect("is there until it is dropped")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        KEPT.set(self.feed.take().map(|feed| (feed, self.keep as u8)));
    }
}

/// Registers the end of transactions; only while `shared_preload_libraries` are loaded.
pub fn install_hooks() {
    // SAFETY: runs once, in the single-threaded postmaster; children inherit the registration.
    unsafe { pg_sys::RegisterXactCallback(Some(at_transaction_end), std::ptr::null_mut()) };
}

#[pg_guard]
unsafe extern "C-unwind" fn at_transaction_end(
    event: pg_sys::XactEvent::Type,
    _arg: *mut core::ffi::c_void,
) {
    crate::pg::witness!();
    use pg_sys::XactEvent::*;
    if matches!(event, XACT_EVENT_COMMIT | XACT_EVENT_ABORT | XACT_EVENT_PREPARE)
        && let Some((feed, left @ 2..)) = KEPT.take()
    {
        KEPT.set(Some((feed, left - 1)));
    }
}

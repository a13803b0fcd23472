//! A look at the blocks of a table that have changed since an image was made, or since the table
//! was read to be sorted.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use pgrx::pg_sys::Relation;

use super::{Bringing, Caught, Source};
use crate::feed::{self, Feed, Records, Touched};
use crate::image;
use crate::pg::compat;
use crate::pg::guc::{self, Mechanism};
use crate::pg::stop::{self, Point};
use crate::state::claim;
use crate::state::directory::State;

impl Bringing<'_> {
    /// Reads the blocks that have changed since the load or the sort. Returns false if the index is
    /// not CATCHING UP, or if the changes cannot be found out. If another process was interrupted,
    /// all of them are read again. That does no harm: writers have published since the index began
    /// to catch up.
    pub(super) unsafe fn catch_up(&self, feed: &mut Feed, loaded: Option<Caught>) -> bool {
        let entry = self.handle.entry;
        if entry.state() != State::CatchingUp {
            return false;
        }
        let begun = Instant::now();
        let engine = self.handle.index().unwrap_or_else(|| claim::went_away());
        // A row that was inserted before the state was seen, and not published, has its WAL record
        // before this.
        let end = match &loaded {
            Some(loaded) if !guc::holds(Mechanism::Tail) => loaded.read_to,
            _ => feed::flushed_end(),
        };
        let by_pages = entry.image.by_pages.load(Relaxed) != 0;
        let since = entry.image.catch_up_from.load(Relaxed);
        let records = match &loaded {
            Some(Caught { source: Source::Table { .. }, .. }) => Records::Rows,
            _ => Records::All,
        };
        // SAFETY: open relations.
        let changed = unsafe {
            match &loaded {
                Some(loaded) if by_pages => changes(self.heap, feed, records, loaded.read_to, end),
                None if by_pages => {
                    feed::newer_pages(self.heap, since, compat::blocks(self.heap)).ok()
                }
                _ => changes(self.heap, feed, records, since, end),
            }
        };
        let Some(mut changed) = changed else {
            self.claim.lose();
            image::remove(entry);
            return false;
        };
        if let Some(touched) = loaded.as_ref().and_then(|loaded| loaded.touched.as_ref()) {
            changed.add_all(touched);
        }
        let looked_at = changed.count();
        stop::at(Point::CatchUpWal);
        if guc::holds(Mechanism::Reread) {
            // SAFETY: open relations.
            unsafe { self.walk(engine, Some(&changed)) };
        }
        let since = compat::lsn_text(since);
        let name = self.name();
        let begun = loaded.as_ref().map_or(begun, |loaded| loaded.begun);
        let milliseconds = begun.elapsed().as_millis() as u64;
        let source = loaded.map(|loaded| loaded.source);
        let from_table = matches!(source, Some(Source::Table { .. }));
        // The log line comes first, so a user who sees the state finds the line.
        match source {
            Some(Source::Image { manifest, left_out }) => crate::pg::error::log!(
                "nitro index \"{name}\" loaded from its image: {} entries in {milliseconds} ms, {left_out} of them dropped and {looked_at} blocks read again since {since}",
                manifest.entries,
            ),
            Some(Source::Table { entries }) => crate::pg::error::log!(
                "nitro index \"{name}\" rebuilt from its table: {entries} entries in {milliseconds} ms, {looked_at} blocks read again since {since}"
            ),
            None => crate::pg::error::log!(
                "nitro index \"{name}\" has caught up with its table: {looked_at} blocks read again since {since} in {milliseconds} ms"
            ),
        }
        self.claim.finish(milliseconds, from_table);
        true
    }
}

/// The blocks that changed between two LSNs, by the WAL.
unsafe fn changes(
    heap: Relation,
    feed: &mut Feed,
    records: Records,
    since: u64,
    end: u64,
) -> Option<Touched> {
    // SAFETY: open relation.
    unsafe {
        feed.read(since, end).ok()?;
        feed.touched(&compat::locator(heap), records, since, compat::blocks(heap)).ok()
    }
}

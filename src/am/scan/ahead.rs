//! Prefetching rows of the table. Their pages are looked up ahead. A fetch waits for several cache
//! lines one after the other: descriptor and header of the page, line pointer, row. Here they come
//! together.
//!
//! If the order is not the table's, fetches take most of a scan's time even from pages in memory,
//! and mostly wait for these lines. Pages that are in no buffer are requested from the kernel, at
//! most `effective_io_concurrency` at once. If that is 0, nothing is prefetched.
//!
//! All of it is a hint: a prefetched row may be evicted, pruned, or never wanted. The table cannot
//! shrink meanwhile, since the transaction of the scan has locked it.

use std::ops::Range;

use pgrx::pg_sys::{BlockNumber, IndexScanDesc};
use pgrx::prelude::*;

use super::{self as scan, Scan};
use crate::pg::compat::{self, Sought};

/// Rows that are on their way, at most.
const MOST: usize = 16;
/// Most rows ahead, for ranges that were looked up together.
const MOST_RANGES: usize = 32;
/// Rows that a scan hands up before it asks for others, when it does not know better: LIMIT 1 pays
/// for nothing.
const FIRST: usize = 4;
/// Pages of a table that a processor's cache keeps: there is nothing to wait for in smaller ones.
const SMALL: BlockNumber = 1024;

/// How far a scan has asked for rows of its batch.
#[derive(Default)]
pub(super) struct Ahead {
    /// Reads that may be under way at once; 0: nothing is asked for. `None`: not yet known.
    reads: Option<usize>,
    /// Rows that were handed up since the scan was started, and those of its run before.
    handed: usize,
    before: usize,
    forward: bool,
    /// Rows of the batch, counted in the direction of the scan, that were asked for.
    asked: usize,
    /// The last [`MOST`] of them.
    sought: [Sought; MOST],
}

impl Ahead {
    /// The scan starts anew.
    pub(super) fn restart(&mut self) {
        self.before = std::mem::take(&mut self.handed);
    }

    /// There is another batch.
    pub(super) fn turn_page(&mut self) {
        self.asked = 0;
    }

    /// Returns how many more rows are worth prefetching. A scan that is started for each row of a
    /// join, or of a subquery with a LIMIT, may end where it ended last time. Otherwise as many as
    /// it has handed up.
    fn reach(&self) -> usize {
        let more = match self.handed {
            handed if handed <= self.before => self.before - handed,
            handed if handed < FIRST => 0,
            handed => handed,
        };
        more.min(MOST)
    }
}

impl Scan {
    /// Returns true if it is time for [`ask`]: half of the prefetched rows have been used. Called
    /// once for each row that is handed up to be fetched from the table.
    #[inline]
    pub(super) fn looks_ahead(&mut self, forward: bool) -> bool {
        let (done, len) = (self.done(forward), self.place.cursor.len());
        let ahead = &mut self.ahead;
        if ahead.forward != forward {
            (ahead.forward, ahead.asked) = (forward, 0);
        }
        ahead.handed += 1;
        let half = ahead.reach().div_ceil(2);
        let due =
            half > 0 && ahead.asked < len.min(done + half) && done < len && ahead.reads != Some(0);
        due && !self.stays()
    }

    /// In the order of the table most rows are on the page where the scan is: then nothing is asked
    /// for.
    fn stays(&mut self) -> bool {
        let wanted = self.wanted();
        let page = |i| self.place.cursor.tid(i) >> 16;
        let here = page(self.place.pos as usize);
        let stays = wanted.clone().all(|i| page(self.in_batch(i)) == here);
        if stays {
            self.ahead.asked = wanted.end;
            self.ahead.sought = Default::default();
        }
        stays
    }

    /// The rows to be asked for, counted in the direction of the scan.
    fn wanted(&self) -> Range<usize> {
        let done = self.done(self.ahead.forward);
        let end = self.place.cursor.len().min(done + self.ahead.reach());
        self.ahead.asked.max(done).min(end)..end
    }

    /// Where a row that is counted so is in the batch.
    fn in_batch(&self, i: usize) -> usize {
        if self.ahead.forward { i } else { self.place.cursor.len() - 1 - i }
    }

    /// Rows of the batch that were handed up.
    fn done(&self, forward: bool) -> usize {
        let pos = self.place.pos as usize;
        if forward { pos + 1 } else { self.place.cursor.len() - pos }
    }
}

/// Asks for the rows that a scan reaches for.
///
/// # Safety
/// A live scan of a nitro index, on an entry of its batch.
#[pg_guard]
pub(super) unsafe extern "C-unwind" fn ask(scan: IndexScanDesc) {
    crate::pg::witness!();
    crate::pg::wait::interrupts();
    // SAFETY: by contract; the table of a scan is open, and indexes of nitro are on heaps only.
    unsafe {
        let own = scan::state(scan);
        let (done, wanted) = (own.done(own.ahead.forward), own.wanted());
        let mut rows = [(0, Sought::Done); MOST];
        for (row, i) in rows.iter_mut().zip(wanted.clone()) {
            row.0 = own.place.cursor.tid(own.in_batch(i));
        }
        let ahead = &mut own.ahead;
        let heap = (*scan).heapRelation;
        let allowed = *ahead.reads.get_or_insert_with(|| compat::reads_at_once(heap, SMALL));
        let mut reading = 0;
        // Rows that were requested before: their line pointers are in the cache now.
        for i in done..wanted.start {
            let sought = &mut ahead.sought[i % MOST];
            if *sought == Sought::Reading {
                reading += 1;
            } else {
                compat::approach_row(std::mem::take(sought));
            }
        }
        let n = compat::seek_rows(heap, &mut rows[..wanted.len()], allowed.saturating_sub(reading));
        for (row, i) in rows[..n].iter().zip(wanted.clone()) {
            ahead.sought[i % MOST] = row.1;
        }
        ahead.asked = wanted.start + n;
        own.work.asked(n);
    }
}

/// Asks for the first row of each range that was looked up, see `batched`.
///
/// # Safety
/// A live scan of a nitro index, for which ranges were looked up.
pub(in crate::am) unsafe fn ask_for_first_rows(scan: IndexScanDesc) {
    // SAFETY: by contract; see `ask`.
    unsafe {
        if (*scan).xs_want_itup {
            return;
        }
        let own = scan::state(scan);
        let heap = (*scan).heapRelation;
        let reads = *own.ahead.reads.get_or_insert_with(|| compat::reads_at_once(heap, SMALL));
        if reads == 0 {
            return;
        }
        let mut rows = [(0, Sought::Done); MOST_RANGES];
        let mut n = 0;
        for (row, tid) in rows.iter_mut().zip(own.first_entries()) {
            row.0 = tid;
            n += 1;
        }
        let n = compat::seek_rows(heap, &mut rows[..n], reads);
        rows[..n].iter().for_each(|row| compat::approach_row(row.1));
        own.work.asked(n);
    }
}

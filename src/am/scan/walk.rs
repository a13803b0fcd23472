//! How a scan moves: from entry to entry of a batch, from batch to batch of a range, from range to range.
//!
//! Entries that fail a filter let it jump ahead, ranges in which nothing is let it skip others.

use nitro_engine::{Cursor, Remove};
use pgrx::pg_sys::IndexScanDesc;

use super::{Scan, parallel};
use crate::pg::wait::PATIENCE;
use crate::state::handle::with_order;

/// Where a scan stands inside its range.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) cursor: Cursor,
    /// Index of the current entry in the batch; -1 and `len` are the positions outside.
    pub(super) pos: isize,
    /// Where to go on, if the last entry of the batch failed a filter.
    pub(super) target: Vec<u8>,
    pub(super) has_target: bool,
    /// Some entry of the batch has passed the filters.
    pub(super) passed: bool,
}

impl Scan {
    /// Moves to the next matching entry of the current batch, if that is all there is to do; otherwise to where
    /// `advance` has to go on. Filters that may ask a comparison function are not for this. Nothing that refers
    /// to the current entry may be left to do (`kill_prior_tuple`).
    #[inline]
    pub(super) fn step_in_batch(&mut self, forward: bool) -> bool {
        let step = if forward { 1 } else { -1 };
        let batch = 0..self.place.cursor.len() as isize;
        let mut next = self.place.pos + step;
        if !self.started || !batch.contains(&self.place.pos) || !batch.contains(&next) {
            return false;
        }
        if self.plan.has_filters() {
            let desc = &self.handle.desc;
            if !desc.is_memcmp() {
                return false;
            }
            while !self.plan.passes(desc, self.place.cursor.key(next as usize)) {
                if !batch.contains(&(next + step)) {
                    // The last one says where to go on: it is asked again.
                    self.place.pos = next - step;
                    return false;
                }
                next += step;
            }
            self.place.passed = true;
        }
        self.place.pos = next;
        true
    }

    /// Positions the cursor before (going backward: behind) the current range.
    pub(super) fn open_range(&mut self, forward: bool) {
        self.plan.range(&self.at, &mut self.range);
        self.place.cursor.set_range(&self.range.lower, self.range.upper(), self.sn);
        self.place.pos = if forward { -1 } else { 0 };
        self.place.has_target = false;
        self.searches += 1;
    }

    /// Moves to the next matching entry; false at the end, where the scan stays and may turn.
    pub(super) fn advance(&mut self, scan: IndexScanDesc, forward: bool) -> bool {
        if self.plan.is_impossible() || self.engine.is_none() {
            return false;
        }
        loop {
            let len = self.place.cursor.len() as isize;
            self.place.pos += if forward { 1 } else { -1 };
            while (0..len).contains(&self.place.pos) {
                if self.matches(forward) {
                    return true;
                }
                self.place.pos += if forward { 1 } else { -1 };
            }
            if self.next_batch(forward) {
                continue;
            }
            // SAFETY: the server's descriptor.
            if let Some(shared) = unsafe { parallel::of(scan) } {
                if self.take_part(scan, shared, forward) {
                    continue;
                }
                self.token.rest(self.process);
                return false;
            }
            let beyond = self.place.cursor.beyond();
            if !self.plan.advance(&self.handle.desc, &mut self.at, beyond, forward) {
                self.place.pos = if forward { self.place.cursor.len() as isize } else { -1 };
                // The last batch was empty: nothing that was read is used any more but the mark.
                self.token.rest(self.process);
                return false;
            }
            self.open_range(forward);
        }
    }

    pub(super) fn next_batch(&mut self, forward: bool) -> bool {
        crate::pg::wait::interrupts();
        self.flush_kills();
        self.ahead.turn_page();
        let Some(engine) = self.engine else { return false };
        let place = &mut self.place;
        let jumps = std::mem::take(&mut place.has_target);
        if jumps {
            place.cursor.jump(&place.target);
            self.searches += 1;
        }
        self.token.renew(self.process, engine);
        self.check_given_up();
        let place = &mut self.place;
        let n = loop {
            let n = with_order!(self.handle.desc, order => {
                if forward {
                    place.cursor.next_within(PATIENCE, self.process, engine, order)
                } else {
                    place.cursor.prev_within(PATIENCE, self.process, engine, order)
                }
            });
            if let Some(n) = n {
                break n;
            }
            crate::pg::wait::interrupts();
        };
        self.work.add(n);
        place.pos = if forward { -1 } else { n as isize };
        place.passed = false;
        self.leaps = jumps && n == 0;
        n > 0
    }

    fn matches(&mut self, forward: bool) -> bool {
        if !self.plan.has_filters() {
            return true;
        }
        let (place, desc) = (&mut self.place, &self.handle.desc);
        let key = place.cursor.key(place.pos as usize);
        if self.plan.passes(desc, key) {
            place.has_target = false;
            place.passed = true;
            return true;
        }
        // What comes in the same batch is asked in any case, and where some pass the next one will have some, too:
        // to read it is less than to search.
        let last = if forward { place.cursor.len() as isize - 1 } else { 0 };
        place.has_target = place.pos == last
            && !place.passed
            && self.plan.target(desc, key, forward, &mut place.target);
        false
    }

    /// Removes what `kill_prior_tuple` collected, if the block has not changed since it was copied.
    pub(super) fn flush_kills(&mut self) {
        if self.kills.is_empty() {
            return;
        }
        if let Some(engine) = self.engine {
            self.kills.sort_unstable();
            self.kills.dedup();
            let cursor = &mut self.place.cursor;
            with_order!(self.handle.desc, order => {
                cursor.remove(self.process, engine, order, &self.kills, Remove::IfUnchanged)
            });
        }
        self.kills.clear();
    }
}

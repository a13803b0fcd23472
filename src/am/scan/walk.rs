//! How a scan moves: from entry to entry of a batch, from batch to batch of a range, from range to
//! range.
//!
//! Entries that fail a filter let it jump ahead, ranges in which nothing is let it skip others.

use nitro_engine::Cursor;
use pgrx::pg_sys::IndexScanDesc;

use super::{Scan, parallel};
use crate::am::token::Trust;
use crate::am::visibility::Answers;
use crate::pg::wait::PATIENCE;
use crate::state::handle::with_order;

/// Where a scan stands inside its range.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) cursor: Box<Cursor>,
    /// The bits of the visibility map that count for the entries of the batch, and their values.
    /// Both belong to the batch: see `read` and `exchange`.
    pub(super) trust: Trust,
    pub(super) answers: Answers,
    /// Index of the current entry in the batch; -1 and `len` are the positions outside.
    pub(super) pos: isize,
    /// Which entries of the batch pass the filters, a bit each.
    pub(super) passing: u64,
    /// Where the scan went on behind the last batch without a matching entry.
    pub(super) target: Vec<u8>,
}

impl Place {
    /// A place in a range that is not opened yet.
    pub(super) fn new() -> Place {
        Place {
            cursor: Box::new(Cursor::new(false)),
            trust: Trust::default(),
            answers: Answers::default(),
            pos: -1,
            passing: 0,
            target: Vec::new(),
        }
    }

    /// Leaves the range. Only memory is kept.
    pub(super) fn forget(&mut self) {
        let Place { cursor, trust, answers, pos, passing, target: _ } = self;
        cursor.read_few(false);
        (*trust, *answers) = (Trust::default(), Answers::default());
        (*pos, *passing) = (-1, 0);
    }

    /// Reads entries by the cursor. `trust` was obtained before.
    #[inline]
    pub(super) fn read<R>(&mut self, trust: Trust, by: impl FnOnce(&mut Cursor) -> R) -> R {
        (self.trust, self.answers) = (trust, Answers::default());
        by(&mut self.cursor)
    }

    /// Exchanges the cursor for one that has read a batch. `trust` was obtained before that.
    pub(super) fn exchange(&mut self, trust: Trust, cursor: &mut Box<Cursor>) {
        (self.trust, self.answers) = (trust, Answers::default());
        std::mem::swap(&mut self.cursor, cursor);
    }

    /// The next entry of the batch that passes the filters.
    #[inline]
    fn following(&self, forward: bool) -> Option<isize> {
        let (pos, len) = (self.pos, self.cursor.len() as isize);
        if forward {
            let from = pos + 1;
            let rest = if from < len { self.passing >> from } else { 0 };
            (rest != 0).then(|| from + rest.trailing_zeros() as isize)
        } else {
            let to = pos.min(len);
            let rest = if to > 0 { self.passing << (64 - to) } else { 0 };
            (rest != 0).then(|| to - 1 - rest.leading_zeros() as isize)
        }
    }
}

impl Scan {
    /// Moves to the next matching entry of the current batch, if nothing else is to be done.
    /// Otherwise moves to the place where `advance` must go on. No work may be left that refers to
    /// the current entry (`kill_prior_tuple`).
    #[inline]
    pub(super) fn step_in_batch(&mut self, forward: bool) -> bool {
        if !self.started || !(-1..self.place.cursor.len() as isize).contains(&self.place.pos) {
            return false;
        }
        let Some(next) = self.place.following(forward) else { return false };
        self.place.pos = next;
        true
    }

    /// Positions the cursor before (going backward: behind) the current range.
    pub(super) fn open_range(&mut self, forward: bool) {
        self.plan.range(&self.at, &mut self.range);
        self.begin_range(forward);
    }

    /// Begins the range that `range` already has.
    pub(super) fn begin_range(&mut self, forward: bool) {
        self.place.cursor.set_range(&self.range.lower, self.range.upper(), self.sn);
        self.place.pos = if forward { -1 } else { 0 };
        self.searches += 1;
    }

    /// Moves to the next matching entry; false at the end, where the scan stays and may turn.
    pub(super) fn advance(&mut self, scan: IndexScanDesc, forward: bool) -> bool {
        if self.plan.is_impossible() || self.engine.is_none() {
            return false;
        }
        loop {
            if let Some(next) = self.place.following(forward) {
                self.place.pos = next;
                return true;
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
        let (place, desc) = (&mut self.place, &self.handle.desc);
        // Where some pass the next batch will have some, too: to read it is less than to search.
        let len = place.cursor.len();
        let jumps = len > 0 && place.passing == 0 && {
            let ends = if forward { [0, len - 1] } else { [len - 1, 0] };
            let ends = ends.map(|i| place.cursor.key(i));
            self.plan.target(desc, ends, forward, &mut place.target)
        };
        if jumps {
            place.cursor.jump(&place.target);
            self.searches += 1;
        }
        let trust = self.cover(engine);
        let (place, process) = (&mut self.place, self.process);
        let n = loop {
            let n = with_order!(self.handle.desc, order => place.read(trust, |cursor| {
                if forward {
                    cursor.next_within(PATIENCE, process, engine, order)
                } else {
                    cursor.prev_within(PATIENCE, process, engine, order)
                }
            }));
            if let Some(n) = n {
                break n;
            }
            crate::pg::wait::interrupts();
        };
        self.work.add(n);
        place.pos = if forward { -1 } else { n as isize };
        // Until all have been asked, for a comparison function may raise an ERROR, none has passed.
        place.passing = 0;
        place.passing = self.plan.passing(&self.handle.desc, &place.cursor);
        self.leaps = jumps && n == 0;
        n > 0
    }

    /// Notes that the row of the current entry is dead to every transaction. The server reports
    /// that only when it asks for the next entry (`kill_prior_tuple`). A caller that moves the scan
    /// by itself reports it before it moves.
    pub(in crate::am) fn kill(&mut self) {
        if self.place.pos >= 0 {
            self.kills.push(self.place.pos as u16);
        }
    }

    /// Removes what `kill` collected, if the block has not changed since it was copied.
    pub(super) fn flush_kills(&mut self) {
        if self.kills.is_empty() {
            return;
        }
        if let Some(engine) = self.engine {
            self.kills.sort_unstable();
            self.kills.dedup();
            self.place.cursor.remove(self.process, engine, &self.kills);
        }
        self.kills.clear();
    }
}

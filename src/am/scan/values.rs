//! The values of entries for callers that take them without a tuple (`index_only`).

use nitro_engine::{Cursor, Rest};
use pgrx::pg_sys::{self, Datum, Relation};

use super::Scan;
use crate::am::token::Trust;
use crate::key::KeyDesc;
use crate::key::plain::{Passed, Plain};
use crate::state::handle::with_order;

/// How the columns of an index are passed.
unsafe fn passed(index: Relation, desc: &KeyDesc) -> Vec<Passed> {
    // SAFETY: an open index.
    let columns = unsafe { pgrx::PgTupleDesc::from_pg_unchecked((*index).rd_att) };
    let columns = columns.iter().zip(&desc.columns);
    columns
        .map(|(a, column)| match (a.attbyval, column.short) {
            (true, _) => Passed::Value,
            (false, true) => Passed::Short,
            (false, false) => Passed::Pointer,
        })
        .collect()
}

/// The values of a slot.
unsafe fn arrays<'a>(slot: *mut pg_sys::TupleTableSlot) -> (&'a mut [Datum], &'a mut [bool]) {
    // SAFETY: a live slot has an element for each of its columns.
    unsafe {
        let n = (*(*slot).tts_tupleDescriptor).natts as usize;
        (
            std::slice::from_raw_parts_mut((*slot).tts_values, n),
            std::slice::from_raw_parts_mut((*slot).tts_isnull, n),
        )
    }
}

impl Scan {
    /// Moves to the next entry, if it is in the batch, its block is known to be all-visible, and
    /// its values can be written into the slot without the server. Otherwise nothing changes, and
    /// `advance` comes to the same entry.
    ///
    /// # Safety
    /// As `write_values`.
    #[inline]
    pub(in crate::am) unsafe fn step_plain(
        &mut self,
        slot: *mut pg_sys::TupleTableSlot,
        forward: bool,
    ) -> bool {
        let before = self.place.pos;
        if self.plan.lossy || !self.step_in_batch(forward) {
            return false;
        }
        // SAFETY: by contract.
        if self.is_known_visible() && unsafe { self.write_plain(slot) } {
            return true;
        }
        self.place.pos = before;
        false
    }

    /// Moves over entries of the batch that are known to be all-visible, where there are no
    /// filters; says over how many.
    pub(in crate::am) fn count_plain(&mut self, forward: bool) -> u64 {
        let (cursor, pos) = (&self.place.cursor, self.place.pos);
        let len = cursor.len() as isize;
        let rest = if forward { pos + 1..len } else { 0..pos };
        if !self.started || rest.start < 0 || rest.end > len || rest.is_empty() {
            return 0;
        }
        let len = rest.len();
        let seen = self.known_visible(rest.start as usize..rest.end as usize);
        let n = if forward { seen.trailing_ones() } else { (seen << (64 - len)).leading_ones() };
        self.place.pos += if forward { n as isize } else { -(n as isize) };
        n as u64
    }

    /// At the end of a batch, reads the next one without keys, if all its keys begin with `prefix`.
    /// Returns whether. These keys lie together, so the first and the last one tell. If it returns
    /// false, the next batch is still to be read.
    pub(in crate::am) fn skip_keys(&mut self, prefix: &[u8], forward: bool) -> bool {
        if !self.stands_at_end(forward) {
            return false;
        }
        self.place.cursor.want_keys(false);
        let read = self.next_batch(forward);
        self.place.cursor.want_keys(true);
        if read && self.place.cursor.begins_with(prefix) {
            return true;
        }
        if read {
            self.place.cursor.read_again(forward);
            self.place.pos = if forward { -1 } else { 0 };
        }
        false
    }

    /// At the end of a batch, moves over all entries that follow in its leaf. It does so if there
    /// are no filters and all their keys begin with `prefix`, as those of the batch. Returns their
    /// number and their trust in the map, and fills `rest`. Otherwise returns 0, and the next batch
    /// is still to be read.
    pub(in crate::am) fn rest_of_leaf(
        &mut self,
        prefix: &[u8],
        forward: bool,
        rest: &mut Rest<'_>,
    ) -> (usize, Trust) {
        let nothing = (0, Trust::default());
        let Some(engine) = self.engine.filter(|_| self.stands_at_end(forward)) else {
            return nothing;
        };
        if self.place.cursor.is_empty() {
            return nothing;
        }
        crate::pg::wait::interrupts();
        // Nothing may be left to do that speaks of places in the batch.
        self.flush_kills();
        self.ahead.turn_page();
        let trust = self.cover(engine);
        let (place, process) = (&mut self.place, self.process);
        // If nothing is read, the batch is the one that was read before.
        let n = with_order!(self.handle.desc, order => {
            place.cursor.rest_of_leaf(forward, prefix, process, engine, order, rest)
        });
        // The next leaf will be like this one.
        place.cursor.read_few(n > 0);
        if n > 0 {
            self.work.add(n);
            (place.pos, place.passing) = (if forward { -1 } else { 0 }, 0);
        }
        (n, trust)
    }

    /// Batches are not read for the sake of `rest_of_leaf`.
    pub(in crate::am) fn read_many(&mut self) {
        self.place.cursor.read_few(false);
    }

    /// Whether the scan stands at the last entry of a batch of one that has no filters.
    fn stands_at_end(&self, forward: bool) -> bool {
        let last = if forward { self.place.cursor.len() as isize - 1 } else { 0 };
        let stands = self.started && self.place.pos == last;
        stands && !self.plan.lossy && !self.plan.has_filters()
    }

    /// Moves to the next entry if it is in the batch and its block is known to be all-visible.
    pub(in crate::am) fn step_visible(&mut self, forward: bool) -> bool {
        let before = self.place.pos;
        if self.plan.lossy || !self.step_in_batch(forward) {
            return false;
        }
        if self.is_known_visible() {
            return true;
        }
        self.place.pos = before;
        false
    }

    /// Moves over entries as `step_visible` does, while their keys begin with `prefix` like the
    /// current one's. Passes them on, a bit for each. Returns their number.
    #[inline]
    pub(in crate::am) fn walk_group(
        &mut self,
        prefix: &[u8],
        forward: bool,
        take: impl FnOnce(&KeyDesc, &Cursor, u64),
    ) -> u64 {
        let (cursor, pos) = (&self.place.cursor, self.place.pos);
        if !self.started || self.plan.lossy || !(0..cursor.len() as isize).contains(&pos) {
            return 0;
        }
        let n = self.rest_of_group(prefix, forward);
        let from = if forward { pos as usize + 1 } else { pos as usize - n };
        let group = (!(u64::MAX << n)).checked_shl(from as u32).unwrap_or(0);
        let wanted = self.place.passing & group;
        let seen = self.known_visible(from..from + n).checked_shl(from as u32).unwrap_or(0);
        // Up to the first one whose visibility is not known.
        let unknown = wanted & !seen;
        let taken = wanted
            & match forward {
                true => (unknown & unknown.wrapping_neg()).wrapping_sub(1),
                false => u64::MAX.checked_shl(64 - unknown.leading_zeros()).unwrap_or(0),
            };
        if taken != 0 {
            let next = if forward { 63 - taken.leading_zeros() } else { taken.trailing_zeros() };
            self.place.pos = next as isize;
            take(&self.handle.desc, &self.place.cursor, taken);
        }
        u64::from(taken.count_ones())
    }

    /// How many of the entries that follow in the batch have keys that begin with `prefix`, as the
    /// current one's.
    fn rest_of_group(&self, prefix: &[u8], forward: bool) -> usize {
        let (cursor, pos) = (&self.place.cursor, self.place.pos as usize);
        let n = if forward { cursor.len() - 1 - pos } else { pos };
        let within = |i: usize| {
            cursor.key(if forward { pos + 1 + i } else { pos - 1 - i }).starts_with(prefix)
        };
        if n == 0 || within(n - 1) {
            return n;
        }
        // Groups may be small: the end is sought nearby first. Below `low` all are within, the one
        // at `high` is not.
        let (mut low, mut high, mut width) = (0, n - 1, 1);
        while low < high {
            let middle = (low + width - 1).min(low + (high - low) / 2);
            if within(middle) {
                low = middle + 1;
                width *= 2;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The key of the current entry; None in a batch of `skip_keys`, and where there is no entry.
    pub(in crate::am) fn key(&self) -> Option<&[u8]> {
        let cursor = &self.place.cursor;
        let pos = usize::try_from(self.place.pos).ok().filter(|&pos| pos < cursor.len());
        pos.filter(|_| cursor.has_keys()).map(|pos| cursor.key(pos))
    }

    /// How keys are made.
    pub(in crate::am) fn desc(&self) -> &KeyDesc {
        &self.handle.desc
    }

    /// # Safety
    /// As `write_values`.
    #[inline]
    unsafe fn write_plain(&mut self, slot: *mut pg_sys::TupleTableSlot) -> bool {
        let Some(plain) = &mut self.plain else { return false };
        let (cursor, i) = (&self.place.cursor, self.place.pos as usize);
        let key = (&cursor.keys()[cursor.start(i)..], cursor.key(i).len());
        // SAFETY: by contract.
        unsafe {
            let (values, nulls) = arrays(slot);
            plain.decode(&self.handle.desc, key, values, nulls)
        }
    }

    /// Whether `hand_up_values` was called.
    #[inline]
    pub(in crate::am) fn hands_up(&self) -> bool {
        self.hands_up
    }

    /// Prepares for `step_plain` and `write_values`, once.
    ///
    /// # Safety
    /// `index` is the index of this scan.
    pub(in crate::am) unsafe fn hand_up_values(&mut self, index: Relation) {
        if !std::mem::replace(&mut self.hands_up, true) {
            // SAFETY: by contract.
            self.plain = Plain::new(&self.handle.desc, unsafe { passed(index, &self.handle.desc) });
        }
    }

    /// Writes the values of the current entry into a slot that has the columns of the index. They
    /// live until the next call.
    ///
    /// # Safety
    /// A slot that owns no memory. Allocated values live in a child of `context`, which outlives
    /// the scan.
    pub(in crate::am) unsafe fn write_values(
        &mut self,
        slot: *mut pg_sys::TupleTableSlot,
        context: pg_sys::MemoryContext,
    ) {
        // SAFETY: by contract; the memory context of before is back afterwards, and by abort on
        // ERROR.
        unsafe {
            if self.write_plain(slot) {
                return;
            }
            let own = *self.values.get_or_insert_with(|| {
                pg_sys::AllocSetContextCreateInternal(
                    context,
                    c"nitro index-only values".as_ptr(),
                    0,
                    1024,
                    pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
                )
            });
            pg_sys::MemoryContextReset(own);
            let previous = pg_sys::MemoryContextSwitchTo(own);
            let (values, nulls) = arrays(slot);
            let key = self.place.cursor.key(self.place.pos as usize);
            self.handle.desc.decode(key, values, nulls);
            pg_sys::MemoryContextSwitchTo(previous);
        }
    }
}

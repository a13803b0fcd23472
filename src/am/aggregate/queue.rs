//! Rows whose visibility only the table knows. They wait here until there are many, and are then
//! read in the order of the table, a page at a time.
//!
//! A page is pinned and locked once for all its rows, and the pages behind it are read ahead. Each
//! row is looked up by its TID and with the snapshot of the scan, as an index scan does it. The
//! all-visible bit of the page does not count: only the last batch is under a token, so VACUUM may
//! have freed the row's place since the entry was read. Another row in that place is too new for
//! the snapshot. No entry is removed because of these look-ups: the same key and TID may live
//! again.
//!
//! An ERROR between two pages leaves nothing behind: pins are the resource owner's, and the memory
//! goes with the node.

use nitro_engine::Tid;
use pgrx::pg_sys::{self, BlockNumber};

use super::groups::Groups;
use crate::am::token::Trust;
use crate::am::visibility::{ROWS, VisibilityMap};
use crate::pg::{compat, memory, wait};

/// Rows after which the table is first read. Each further reading comes after twice as many. So a
/// query that wants few groups does not wait for many.
const FIRST: usize = 64;
const MOST: usize = 1 << 19;
/// Entries that the scan may pass for each of these rows while some wait: groups wait with them,
/// however large they are.
const PASSED: u64 = 64;
/// Pages that are read ahead, at most.
const FARTHEST: i32 = 64;

struct Row {
    tid: u64,
    group: u32,
    /// Of its values; or, once it was looked for in vain, `GONE`.
    place: u32,
}

const GONE: u32 = u32::MAX;

pub struct Queue {
    rows: Vec<Row>,
    values: Vec<Option<i64>>,
    /// How many there may be.
    target: usize,
    /// Entries that the scan has passed since the first one came.
    passed: u64,
}

impl Queue {
    pub fn new() -> Queue {
        Queue { rows: Vec::new(), values: Vec::new(), target: FIRST, passed: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn clear(&mut self) {
        self.rows.clear();
        self.values.clear();
        (self.target, self.passed) = (FIRST, 0);
    }

    /// Takes into account that the scan has passed entries of rows that are known to be visible.
    pub fn pass(&mut self, entries: u64) {
        if !self.is_empty() {
            self.passed += entries;
        }
    }

    /// Adds a row of the last group.
    pub fn push(&mut self, tid: u64, group: usize, values: impl Iterator<Item = Option<i64>>) {
        memory::reserve(&mut self.rows, 1);
        self.rows.push(Row { tid, group: group as u32, place: self.rows.len() as u32 });
        for value in values {
            memory::reserve(&mut self.values, 1);
            self.values.push(value);
        }
    }

    /// Divides rows of a group by the visibility map. A row whose block is not all-visible, by a
    /// bit that counts for it, goes into the queue with its `value`, if there is one. `visible`
    /// gets all other rows, 64 at a time: the place of the first, and a bit for each.
    ///
    /// # Safety
    /// `heap` is the open table of the map.
    pub unsafe fn sift(
        &mut self,
        map: &mut VisibilityMap,
        heap: pg_sys::Relation,
        group: usize,
        (tids, trust): (&[Tid], Trust),
        value: impl Fn(usize) -> Option<Option<i64>>,
        mut visible: impl FnMut(usize, u64),
    ) {
        for (start, many) in (0..).step_by(ROWS).zip(tids.chunks(ROWS)) {
            // SAFETY: by contract.
            let all = unsafe { map.seen(heap, trust, many) };
            for ((from, some), seen) in (start..).step_by(64).zip(many.chunks(64)).zip(all) {
                let mut rest = !seen & u64::MAX >> (64 - some.len());
                while rest != 0 {
                    let i = rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    self.push(some[i], group, value(from + i).into_iter());
                }
                visible(from, seen);
            }
        }
    }

    /// Whether it is time to look, with these groups waiting for it. Vectors grow by doubling, so
    /// half of `work_mem` may be in use.
    pub fn is_full(&self, groups: &Groups) -> bool {
        if self.is_empty() {
            return false;
        }
        let bytes = size_of_val(&self.rows[..]) + size_of_val(&self.values[..]) + groups.bytes();
        // SAFETY: a plain global.
        let most = unsafe { pg_sys::work_mem as usize } * 1024 / 2;
        let many = self.rows.len().max(groups.len()) >= self.target;
        many || bytes >= most || self.passed >= self.target as u64 * PASSED
    }

    /// Looks for all rows and adds those that are visible to their groups; says how many were
    /// looked for, and how many are.
    ///
    /// # Safety
    /// `heap` must be an open table of the heap's own access method, and `snapshot` one of MVCC
    /// that is registered.
    pub unsafe fn flush(
        &mut self,
        heap: pg_sys::Relation,
        snapshot: pg_sys::Snapshot,
        groups: &mut Groups,
    ) -> (u64, u64) {
        let all = self.rows.len() as u64;
        let each = self.values.len() / self.rows.len().max(1);
        self.rows.sort_unstable_by_key(|row| row.tid);
        let mut seen = 0;
        // SAFETY: a plain global.
        let distance = unsafe { pg_sys::effective_io_concurrency }.clamp(0, FARTHEST);
        // Up to which row, and how many, pages are announced that were not read yet.
        let (mut next, mut ahead, mut announced) = (0, 0, 0);
        while next < self.rows.len() {
            wait::interrupts();
            while announced < distance && ahead < self.rows.len() {
                // SAFETY: by contract; blocks that entries name are there.
                unsafe { compat::read_ahead(heap, block_of(&self.rows[ahead])) };
                ahead = end_of_page(&self.rows, ahead);
                announced += 1;
            }
            announced -= i32::from(announced > 0);
            let end = end_of_page(&self.rows, next);
            let page = &mut self.rows[next..end];
            // SAFETY: by contract.
            unsafe {
                compat::look_up(heap, block_of(&page[0]), snapshot, |visible| {
                    for row in page.iter_mut().filter(|row| !visible(row.tid)) {
                        row.place = GONE;
                    }
                });
            }
            for row in page.iter().filter(|row| row.place != GONE) {
                let at = row.place as usize * each;
                groups.add_values(row.group as usize, &self.values[at..at + each]);
                seen += 1;
            }
            next = end;
        }
        self.rows.clear();
        self.values.clear();
        (self.target, self.passed) = ((self.target * 2).min(MOST), 0);
        (all, seen)
    }
}

fn block_of(row: &Row) -> BlockNumber {
    (row.tid >> 16) as BlockNumber
}

/// Behind the rows of the page of row `first`.
fn end_of_page(rows: &[Row], first: usize) -> usize {
    let block = block_of(&rows[first]);
    first + rows[first..].iter().take_while(|row| block_of(row) == block).count()
}

//! `aminsert`: one entry for one new heap tuple, or one per distinct element.
//!
//! Order of events of one insertion, and why each comes where it does:
//! 1. The executor has put the tuple into the heap, and cleared the page's all-visible bit: an
//!    index-only scan that sees the entry sees the cleared bit.
//! 2. The insert enters a barrier section and reads the state. If the state does not publish, the
//!    insert returns: the walk that builds the index will find the tuple (see `Claim::build`).
//! 3. If the tuple may be older than an image that is being made, the insert looks at the tuple's
//!    page, with nothing held (see `image::straddler`). Then 2 begins again.
//! 4. The insert publishes the entry under the term for which 3 was answered, insert-if-absent: a
//!    walk may have indexed the tuple already.
//! 5. After a full fence comes the second serializable check. A reader takes its predicate lock,
//!    then reads. The insert publishes, then looks for locks. The server's own check ran before
//!    step 1 and cannot see a reader that came in between.
//!
//! A unique index needs no more than 4 if no entry has the row's key. Otherwise the row is
//! *admitted* before 2, and until 5 no other row with its key is admitted (see `unique`).
//!
//! In a statement of many rows, 2 to 5 may come later, for many rows together (see `deferred`).
//!
//! An ERROR or a crash after 1 leaves at most entries of a dead tuple, which VACUUM removes. All
//! keys of a row are made before the first is published.

use std::cell::RefCell;

use pgrx::pg_sys::{Datum, Relation};
use pgrx::prelude::*;

use super::deferred::{self, Row};
use super::publish::{One, Only, Publication, check_readers};
use super::unique::{self, Newcomer};
use crate::key::row::Keys;
use crate::pg::compat;
use crate::pg::stop::{self, Point};
use crate::state::file::Table;
use crate::state::handle::Handle;
use crate::state::hosts;
use crate::state::refusal;

/// Keys of one row that are published between two looks at interrupts.
const PUBLISHED: usize = 64;

thread_local! {
    static KEYS: RefCell<Keys> = RefCell::default();
}

/// Inserts one entry (`aminsert`). Returns whether the row is known to be the only one with its
/// key.
#[allow(clippy::too_many_arguments, reason = "the server's callback")]
#[pg_guard]
pub unsafe extern "C-unwind" fn insert(
    index: Relation,
    values: *mut Datum,
    isnull: *mut bool,
    tid: pg_sys::ItemPointer,
    heap: Relation,
    check: pg_sys::IndexUniqueCheck::Type,
    _unchanged: bool,
    info: *mut pg_sys::IndexInfo,
) -> bool {
    crate::pg::witness!();
    use pg_sys::IndexUniqueCheck::*;
    // SAFETY: the server passes an open index and one value per column.
    unsafe {
        let checked = check != UNIQUE_CHECK_NO;
        let may_conflict = checked && unique::can_conflict(index, isnull);
        let Some(handle) = Handle::open_for(index, Table::of(heap)) else {
            if may_conflict {
                refusal::no_entry(index).raise();
            }
            refusal::left_out(index);
            return checked;
        };
        stop::at(Point::InsertInHeap);
        // It stays so: what brings the index here excludes writers, or is a promotion before them.
        if hosts::stays_away(index, handle.entry) {
            if !has_fixed_width(index) {
                check_length(index, &handle, values, isnull);
            }
            check_readers(index);
            return checked;
        }
        // An expression inside `encode` may insert into another nitro index: take, do not borrow.
        let mut keys = KEYS.take();
        keys.set(&handle.desc, values, isnull);
        keys.check_length(index);
        let tid = compat::tid_to_u64(&*tid);
        let xid = pg_sys::GetCurrentTransactionIdIfAny();
        let mut row = Publication { heap, index, handle: &handle, xid, changed_after: 0 };
        let mut alone = checked;
        if may_conflict {
            let newcomer = Newcomer { heap, index, handle: &handle, values, isnull, tid };
            // An index with many keys per row is not unique.
            let key = keys.iter().next().unwrap_or_default();
            newcomer.check_caller();
            if !(handle.desc.keys_are_bytes() && row.publish(&mut One(key, tid), Only::New)) {
                let admission = newcomer.admit(key, check == UNIQUE_CHECK_PARTIAL);
                row.publish(&mut One(key, tid), Only::Absent);
                alone = admission.end();
            }
        } else if !deferred::defer(
            &Row { index, handle: &handle, info, tid },
            keys.iter().next().unwrap_or_default(),
        ) {
            for (i, key) in keys.iter().enumerate() {
                if i % PUBLISHED == PUBLISHED - 1 {
                    crate::pg::wait::interrupts();
                }
                row.publish(&mut One(key, tid), Only::Absent);
            }
        }
        keys.trim();
        KEYS.set(keys);
        check_readers(index);
        alone
    }
}

/// Whether all columns have values of a fixed width, so that no key is too long.
unsafe fn has_fixed_width(index: Relation) -> bool {
    // SAFETY: an open index has its descriptor.
    let columns = unsafe { pgrx::PgTupleDesc::from_pg_unchecked((*index).rd_att) };
    columns.iter().all(|column| column.attlen > 0)
}

/// ERROR if a server that hosts the index could not index the row.
unsafe fn check_length(index: Relation, handle: &Handle, values: *mut Datum, isnull: *mut bool) {
    let mut keys = KEYS.take();
    // SAFETY: an open index, and a value for each of its columns.
    unsafe {
        keys.set(&handle.desc, values, isnull);
        keys.check_length(index);
    }
    keys.trim();
    KEYS.set(keys);
}

//! Rows of a build that have one key.

use pgrx::pg_sys::{self, Datum, Relation};

use super::{describe, nulls_are_equal, violation};
use crate::key::KeyDesc;
use crate::key::codec::{NULL_FIRST, NULL_LAST};
use crate::pg::{compat, memory};

/// The entries of a build, which come in order: two live rows with equal keys are an ERROR.
pub struct Neighbours<'a> {
    heap: Relation,
    index: Relation,
    desc: &'a KeyDesc,
    nulls_are_equal: bool,
    /// The last one; of those with equal keys a live one if there is any.
    key: Vec<u8>,
    tid: u64,
    /// Asked only when there are two.
    lives: Option<bool>,
}

impl Neighbours<'_> {
    /// For a build that has to look, as its `ii_Unique` says: that of a unique index, but not where
    /// a table is written anew. Its rows were looked at before, and if the index is an invalid one,
    /// there may be duplicates.
    ///
    /// # Safety
    /// Open relations, for as long as this lives.
    pub unsafe fn new(heap: Relation, index: Relation, desc: &KeyDesc) -> Neighbours<'_> {
        // SAFETY: by contract.
        let nulls_are_equal = unsafe { nulls_are_equal(index) };
        Neighbours { heap, index, desc, nulls_are_equal, key: Vec::new(), tid: 0, lives: None }
    }

    /// The next one.
    ///
    /// # Safety
    /// Inside a transaction, with nothing held.
    pub unsafe fn add(&mut self, key: &[u8], tid: u64) {
        if self.is_equal(key) {
            // SAFETY: by contract.
            let [before, now] = unsafe {
                let before = self.lives.unwrap_or_else(|| self.lives(self.tid));
                [before, before && self.lives(tid)]
            };
            if now {
                // SAFETY: by contract.
                unsafe { self.refuse() };
            }
            if before {
                self.lives = Some(true);
                return;
            }
        }
        self.lives = None;
        self.tid = tid;
        self.key.clear();
        memory::reserve(&mut self.key, key.len());
        self.key.extend_from_slice(key);
    }

    fn is_equal(&self, key: &[u8]) -> bool {
        let n = self.desc.nkeys;
        let mut pairs = self.desc.split(&self.key, n).zip(self.desc.split(key, n)).enumerate();
        !self.key.is_empty()
            && pairs.all(|(column, (a, b))| {
                let null = b[0] == NULL_FIRST || b[0] == NULL_LAST;
                (self.nulls_are_equal || !null) && self.desc.compare_segment(column, a, b).is_eq()
            })
    }

    /// Returns true if the row lives. Dead rows that a transaction may still see have entries, too.
    /// Only transactions that the server's scan of the table has waited for could still change
    /// this.
    unsafe fn lives(&self, tid: u64) -> bool {
        let mut at = compat::u64_to_tid(tid);
        // SAFETY: an open heap; the snapshot is the server's own.
        unsafe {
            let now = &raw mut pg_sys::SnapshotSelfData;
            pg_sys::table_index_fetch_tuple_check(self.heap, &mut at, now, std::ptr::null_mut())
        }
    }

    unsafe fn refuse(&self) -> ! {
        let n = self.desc.columns.len();
        let (mut values, mut isnull) = (vec![Datum::from(0); n], vec![false; n]);
        // SAFETY: a key of this index, whose values live in the current memory context.
        unsafe {
            self.desc.decode(&self.key, &mut values, &mut isnull);
            let key = describe(self.index, values.as_mut_ptr(), isnull.as_mut_ptr());
            let message = format!("could not create unique index \"{}\"", compat::name(self.index));
            let detail = key
                .map_or("Duplicate keys exist.".into(), |key| format!("Key {key} is duplicated."));
            violation(self.index, message, Some(detail))
        }
    }
}

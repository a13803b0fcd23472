//! Unique indexes: may a row come in? (`neighbours` answers the same question for a build.)
//!
//! **A new key needs only its entry.** This holds where two rows are equal exactly if their keys
//! have the same bytes. The engine adds the entry only if no entry has the key at that moment
//! ([`nitro_engine::prelude::Insert::insert_new_in_term`]). Of two inserts of one new key at most
//! one succeeds. The index is READY inside the section of this insert, so all earlier rows have
//! their entries. A refusal says only that another row may have the key. The row then needs an
//! *admission*:
//!
//! **One row of a key is admitted at a time.** The inserting process takes a heavyweight lock on
//! the key ([`KeyLock`]). It looks for other rows with the key, publishes its entry, looks again,
//! and unlocks. So of two inserting processes the second one sees the entry of the first. The
//! deadlock detector knows the lock, a cancel ends the wait for it, and an ERROR releases it with
//! the (sub)transaction.
//!
//! **The second look** finds a row that came as a new key after the first look. The entries that
//! the first look saw may have been removed meanwhile, and the key was new again. A row that comes
//! as a new key after the second look cannot exist: the entry of the admitted row is there. If the
//! second look finds a row, this process waits for its transaction, while its own entry is
//! published. The other insert is complete, so it waits for nothing because of this key.
//!
//! **No process waits for a transaction under the lock.** Where another transaction has to end
//! first, the process unlocks before it waits. Then it begins anew, because the state of the index
//! may have changed.
//!
//! **No row is overlooked.** The index is READY when it is read, so all rows that were admitted
//! before have their entries. While the lock is held, entries with the key come only from new keys,
//! and from a walk over the table. The walk makes entries of rows that are not admitted yet, and
//! their inserting processes look for themselves. (Two of these may meet: each finds the other's
//! row in progress and waits for it, and the deadlock detector ends one.) An entry goes only when
//! VACUUM or a scan finds that its row is dead to every transaction.
//!
//! **No row is mistaken for another one.** Between the reading of an entry and the look at its row,
//! VACUUM could remove the row, and an insert could put another row at its TID. A token prevents
//! that (D2b), as for scans. It is taken before the entries are read, and closed after the last
//! row.
//!
//! If the index leaves READY after the first look, the row may have no entry. (A lack of memory
//! does not cause this: see `insert`.) The second look brings the index up again. Without a second
//! look the row is in the table: the next process brings the index up, and finds the row there.
use std::cell::RefCell;

use nitro_engine::{Cursor, Index, Process, TokenId};
use pgrx::pg_sys::{self, Datum, Relation, TransactionId};
use pgrx::prelude::*;

use crate::key::{KeyDesc, SENTINEL};
use crate::pg::compat;
use crate::pg::error::Failure;
use crate::pg::guc::{self, Mechanism};
use crate::pg::stop::{self, Point};
use crate::pg::wait::{self, PATIENCE};
use crate::pg::{memory, text};
use crate::state::directory::State;
use crate::state::given_up::InUse;
use crate::state::handle::{Handle, with_order};
use crate::state::shmem;
use crate::upkeep::bring_up;

mod neighbours;

pub use neighbours::Neighbours;

const LOCK: i32 = pg_sys::ExclusiveLock as i32;

/// Whether the rows of an index have to be unique.
///
/// # Safety
/// `index` must be open.
pub unsafe fn is_unique(index: Relation) -> bool {
    // SAFETY: by contract.
    unsafe { (*(*index).rd_index).indisunique }
}

unsafe fn nulls_are_equal(index: Relation) -> bool {
    // SAFETY: an open index, by the caller's contract.
    unsafe { (*(*index).rd_index).indnullsnotdistinct }
}

/// Whether rows with these values can be duplicates: NULLs are none of each other, unless the index
/// says so.
///
/// # Safety
/// `index` must be open, `isnull` have one element per column.
pub unsafe fn can_conflict(index: Relation, isnull: *const bool) -> bool {
    // SAFETY: by contract.
    unsafe {
        let keys = (*(*index).rd_index).indnkeyatts as usize;
        nulls_are_equal(index) || (0..keys).all(|column| !*isnull.add(column))
    }
}

/// The lock on one key of an index: of a page, which a nitro index does not have. Different keys
/// may have the same one.
struct KeyLock {
    index: Relation,
    page: u32,
}

impl KeyLock {
    /// Waits for other processes that insert the key. `equal` are the bytes of the key columns. If
    /// different bytes may be equal, all keys have the same lock.
    unsafe fn take(index: Relation, desc: &KeyDesc, equal: &[u8]) -> KeyLock {
        let page = if desc.closed { 0 } else { number(equal) };
        let lock = KeyLock { index, page };
        if guc::holds(Mechanism::KeyLocks) {
            // SAFETY: an open index, inside a transaction; an ERROR releases it.
            unsafe { pg_sys::LockPage(index, lock.page, LOCK) };
        }
        lock
    }

    /// Releases the lock before the transaction ends.
    fn unlock(self) {
        if guc::holds(Mechanism::KeyLocks) {
            // SAFETY: taken in `take`, and the index is still open.
            unsafe { pg_sys::UnlockPage(self.index, self.page, LOCK) };
        }
    }
}

/// Returns the number of a key's lock. As few keys as possible should share one, because they take
/// turns. Eight bytes at a time are folded by a product of twice the width, so every bit depends on
/// all of them. Two keys with the same number are only slow. So there is no protection against keys
/// that were chosen for that.
fn number(key: &[u8]) -> u32 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let fold = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * u128::from(ODD);
        product as u64 ^ (product >> 64) as u64
    };
    let (words, rest) = key.as_chunks();
    let hash =
        words.iter().fold(key.len() as u64, |hash, &word| fold(hash, u64::from_le_bytes(word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    // Once more: the last word has not met the first product otherwise.
    fold(fold(hash, u64::from_le_bytes(last)), ODD) as u32
}

/// A token that ends with the value, also by an ERROR.
struct Token<'p> {
    process: &'p Process,
    id: TokenId,
}

impl Drop for Token<'_> {
    fn drop(&mut self) {
        self.process.close_token(self.id);
    }
}

/// The verdict on a key.
enum Verdict {
    /// No other row has it.
    Free,
    /// A row has it. The caller does not wait for its transaction.
    Shared,
    /// A row has it, and no transaction is about to remove the row.
    Taken,
    /// A transaction has to end first; or, with a token, only its attempt to insert.
    Pending(TransactionId, u32),
    /// The index is not READY.
    Unready,
}

/// The state of an entry's row.
enum Row {
    /// It is gone for us, or does not matter.
    Invisible,
    /// It is dead to every transaction.
    Dead,
    Equal(Verdict),
}

/// Bytes of keys that are kept for the next one.
const KEPT: usize = 64 << 10;

thread_local! {
    /// Here for its memory; in a box, for it is large and goes to and fro with each row.
    static CURSOR: RefCell<Option<Box<Cursor>>> = const { RefCell::new(None) };
}

/// A row that is in the heap and not in a unique index yet.
#[derive(Clone, Copy)]
pub struct Newcomer<'a> {
    pub heap: Relation,
    pub index: Relation,
    pub handle: &'a Handle,
    pub values: *mut Datum,
    pub isnull: *mut bool,
    pub tid: u64,
}

impl<'a> Newcomer<'a> {
    /// An ERROR where nothing may be inserted now.
    ///
    /// # Safety
    /// An open relation.
    pub unsafe fn check_caller(&self) {
        if shmem::process().is_inside() {
            // It could be about the very key that is being looked at.
            // SAFETY: by contract.
            unsafe { inside_comparison(self.index) };
        }
    }

    /// Returns when the row may be published. A duplicate is an ERROR. With `only_ask` there is no
    /// ERROR, and it waits only for processes that hold the lock of the key.
    ///
    /// # Safety
    /// Open relations, inside a transaction with an active snapshot; `key` is that of the row.
    pub unsafe fn admit(self, key: &'a [u8], only_ask: bool) -> Admission<'a> {
        let Handle { desc, .. } = self.handle;
        let length = desc.split(key, desc.nkeys).map(<[u8]>::len).sum();
        let equal = &key[..length];
        let mut end = Vec::new();
        memory::reserve(&mut end, length + 1);
        end.extend_from_slice(equal);
        end.push(SENTINEL);
        let mut admission =
            Admission { newcomer: self, equal, end, only_ask, lock: None, alone: false };
        // SAFETY: by contract.
        unsafe { admission.settle() };
        stop::at(Point::KeyChecked);
        admission
    }

    /// Returns the index. If no other process brings it up, this one does.
    unsafe fn ready(&self) -> Index {
        loop {
            if self.handle.entry.state() != State::Ready && guc::holds(Mechanism::KeyReady) {
                // SAFETY: open relations, by the caller's contract. An ERROR is that of the failed
                // build.
                unsafe { bring_up::ensure_ready(self.index, self.handle) };
            }
            if let Some(engine) = self.handle.index() {
                return engine;
            }
            wait::interrupts();
        }
    }

    unsafe fn look(&self, engine: Index, first: &[u8], end: &[u8], only_ask: bool) -> Verdict {
        let (process, entry) = (shmem::process(), self.handle.entry);
        let _used = InUse::of(engine);
        let token = Token { process, id: process.open_token(engine.root()) };
        // VACUUM waits for tokens of indexes that were READY when the tokens were taken.
        let same = self.handle.index().is_some_and(|now| now.root() == engine.root());
        if !same || entry.state() != State::Ready && guc::holds(Mechanism::KeyReady) {
            return Verdict::Unready;
        }
        // A comparison function may insert into another index: take, do not borrow.
        let mut cursor = CURSOR.take().unwrap_or_else(|| Box::new(Cursor::new(false)));
        cursor.set_range(first, Some(end), engine.term());
        let mut dead = Vec::new();
        let mut verdict = Verdict::Free;
        while matches!(verdict, Verdict::Free) {
            wait::interrupts();
            if guc::holds(Mechanism::KeyTokens) {
                assert!(process.renew_token(token.id), "open as long as this runs");
            } else {
                process.close_token(token.id);
            }
            let n = with_order!(self.handle.desc, order =>
                cursor.next_within(PATIENCE, process, engine, order));
            let Some(n) = n else { continue };
            if n == 0 {
                break;
            }
            stop::at(Point::KeyRead);
            dead.clear();
            for i in (0..n).filter(|&i| cursor.tid(i) != self.tid) {
                // SAFETY: open relations, by the caller's contract.
                match unsafe { self.row(cursor.tid(i), only_ask) } {
                    Row::Invisible => (),
                    Row::Dead => dead.push(i as u16),
                    Row::Equal(found) => {
                        verdict = found;
                        break;
                    }
                }
            }
            // As a scan does. The next insert of the key need not look at them.
            if !dead.is_empty() {
                cursor.remove(process, engine, &dead);
            }
        }
        // Memory that only an unusual key needs goes back.
        CURSOR.set(Some(cursor).filter(|cursor| cursor.key_bytes() < KEPT));
        verdict
    }

    /// Returns the state of another row with the key.
    unsafe fn row(&self, tid: u64, only_ask: bool) -> Row {
        let mut dirty = pg_sys::SnapshotData {
            snapshot_type: pg_sys::SnapshotType::SNAPSHOT_DIRTY,
            ..Default::default()
        };
        let mut dead = false;
        let mut at = compat::u64_to_tid(tid);
        // SAFETY: an open heap; the out parameters live across the call, which follows the HOT
        // chain.
        let found = unsafe {
            pg_sys::table_index_fetch_tuple_check(self.heap, &mut at, &mut dirty, &mut dead)
        };
        if !found {
            return if dead { Row::Dead } else { Row::Invisible };
        }
        if only_ask {
            return Row::Equal(Verdict::Shared);
        }
        let pending = [dirty.xmin, dirty.xmax]
            .into_iter()
            .find(|&transaction| transaction != pg_sys::InvalidTransactionId);
        if let Some(transaction) = pending {
            return match guc::holds(Mechanism::KeyWaits) {
                true => Row::Equal(Verdict::Pending(transaction, dirty.speculativeToken)),
                false => Row::Invisible,
            };
        }
        // CREATE INDEX CONCURRENTLY inserts rows of its snapshot: this one may have been deleted
        // since.
        let mut own = compat::u64_to_tid(self.tid);
        // SAFETY: as above; the snapshot is the server's own.
        let lives = unsafe {
            let now = &raw mut pg_sys::SnapshotSelfData;
            pg_sys::table_index_fetch_tuple_check(self.heap, &mut own, now, std::ptr::null_mut())
        };
        if lives { Row::Equal(Verdict::Taken) } else { Row::Invisible }
    }

    unsafe fn wait_for(&self, transaction: TransactionId, attempt: u32) {
        // SAFETY: open relations, by the caller's contract; nothing of nitro's is held.
        unsafe {
            if attempt != 0 {
                pg_sys::SpeculativeInsertionWait(transaction, attempt);
            } else {
                let mut tid = compat::u64_to_tid(self.tid);
                let why = pg_sys::XLTW_Oper::XLTW_InsertIndex;
                pg_sys::XactLockTableWait(transaction, self.index, &raw mut tid, why);
            }
        }
    }

    /// Raises the ERROR for a duplicate, with the text and the fields of btree.
    unsafe fn refuse(&self) -> ! {
        // SAFETY: open relations, by the caller's contract; one value per column.
        unsafe {
            // Of a serializable transaction that is the better answer.
            compat::check_serializable_conflict_in(self.index);
            let name = compat::name(self.index);
            let message = format!("duplicate key value violates unique constraint \"{name}\"");
            let key = describe(self.index, self.values, self.isnull);
            violation(self.index, message, key.map(|key| format!("Key {key} already exists.")))
        }
    }
}

/// A row that is admitted, which lasts until it is published.
pub struct Admission<'a> {
    newcomer: Newcomer<'a>,
    /// The bytes of the key columns, and the end of those that begin with them.
    equal: &'a [u8],
    end: Vec<u8>,
    only_ask: bool,
    /// Given back by an ERROR, too.
    lock: Option<KeyLock>,
    alone: bool,
}

impl Admission<'_> {
    /// The row is in. Returns whether no other one has the key; a duplicate is an ERROR, as before.
    ///
    /// # Safety
    /// As [`Newcomer::admit`].
    pub unsafe fn end(mut self) -> bool {
        // In other indexes no row comes without the lock.
        let again = self.newcomer.handle.desc.keys_are_bytes()
            && guc::holds(Mechanism::KeyLocks)
            && guc::holds(Mechanism::KeyAgain);
        if self.alone && again {
            // SAFETY: by contract.
            unsafe {
                let verdict = match self.newcomer.handle.index() {
                    Some(engine) => self.look(engine),
                    None => Verdict::Unready,
                };
                if !self.is_decided_by(verdict) {
                    self.settle();
                }
            }
        }
        self.unlock();
        self.alone
    }

    /// Looks under the lock until no transaction must be waited for. Begins without the lock.
    unsafe fn settle(&mut self) {
        let Newcomer { index, handle, .. } = self.newcomer;
        loop {
            // SAFETY: by the caller's contract.
            unsafe {
                let engine = self.newcomer.ready();
                self.lock = Some(KeyLock::take(index, &handle.desc, self.equal));
                stop::at(Point::KeyLocked);
                let verdict = self.look(engine);
                if self.is_decided_by(verdict) {
                    return;
                }
            }
        }
    }

    unsafe fn look(&self, engine: Index) -> Verdict {
        // SAFETY: by the caller's contract.
        unsafe { self.newcomer.look(engine, self.equal, &self.end, self.only_ask) }
    }

    /// Returns true if the verdict decides. Otherwise the lock has been given back, and the
    /// transaction that had to end has ended.
    unsafe fn is_decided_by(&mut self, verdict: Verdict) -> bool {
        self.alone = matches!(verdict, Verdict::Free);
        match verdict {
            Verdict::Free | Verdict::Shared => return true,
            // SAFETY: open relations, by the caller's contract.
            Verdict::Taken => unsafe { self.newcomer.refuse() },
            Verdict::Unready => {
                self.unlock();
                wait::interrupts();
            }
            Verdict::Pending(transaction, attempt) => {
                self.unlock();
                // SAFETY: as above.
                unsafe { self.newcomer.wait_for(transaction, attempt) };
            }
        }
        false
    }

    fn unlock(&mut self) {
        if let Some(lock) = self.lock.take() {
            lock.unlock();
        }
    }
}

unsafe fn inside_comparison(index: Relation) -> ! {
    // SAFETY: open relation, by the caller's contract.
    let name = unsafe { compat::name(index) };
    Failure::new(
        PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("cannot insert into unique index \"{name}\" inside a comparison function"),
    )
    .detail("A comparison function of a nitro index inserted into the table of the unique index.")
    .raise()
}

/// Returns the values of the key columns, if the user may see them.
unsafe fn describe(index: Relation, values: *mut Datum, isnull: *mut bool) -> Option<String> {
    // SAFETY: open index, one value per column, by the caller's contract. Null if the user may not
    // see the values.
    unsafe {
        let key = pg_sys::BuildIndexValueDescription(index, values, isnull);
        (!key.is_null()).then(|| text::from_pointer(key))
    }
}

unsafe fn violation(index: Relation, message: String, detail: Option<String>) -> ! {
    let failure = Failure::new(PgSqlErrorCode::ERRCODE_UNIQUE_VIOLATION, message);
    let failure = match detail {
        Some(detail) => failure.detail(detail),
        None => failure,
    };
    // SAFETY: open index, by the caller's contract.
    unsafe { failure.about(index) }.raise()
}

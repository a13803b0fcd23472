//! Facts about an index from the last plan of this process, so that the next plan need not open it.
//!
//! | kept | taken away by |
//! |---|---|
//! | the handle: how keys are written, the entry of the directory | an invalidation of the index or of its table: DROP, REINDEX, TRUNCATE, ALTER, another file |
//! | the same | another index in the place of the entry (its generation), settings of tenants (their counter) |
//! | the transaction that made the index' row in `pg_index` | an invalidation of the index |
//! | the order of the index as btree's families have it | the same, and each change of an operator family |
//! | its size | the same, and another number of pages or rows of the table |
//!
//! The state of an index is not kept: each plan reads it in shared memory. A scan does not use
//! these facts. It opens the index and reads all of them again ([`Handle::open`]).

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use pgrx::pg_sys::{self, Oid, SysCacheIdentifier, TransactionId};
use pgrx::prelude::*;

use crate::pg::guc::{self, Mechanism};
use crate::state::directory::Entry;
use crate::state::handle::Handle;
use crate::state::{follow, limits};

/// An index as the last plan has found it. Fields that each plan reads are side by side.
pub struct Known {
    /// The entry of the directory, and which of its users the index was.
    pub entry: &'static Entry,
    generation: u32,
    /// The transaction that made the index' row in `pg_index`.
    pub made: TransactionId,
    table: u32,
    /// The counter of settings of tenants that the handle was made by.
    settings: u64,
    order: OnceCell<Order>,
    /// The size, beside that of the table, in pages and rows.
    size: Cell<Option<((u32, f64), Size)>>,
    /// How keys are written.
    pub handle: Rc<Handle>,
}

/// The size of an index as the planner is told.
#[derive(Clone, Copy)]
pub struct Size {
    /// Pages of memory.
    pub pages: u32,
    /// Levels above the leaves.
    pub height: i32,
}

/// The order of an index as the planner understands it.
pub struct Order {
    /// Of each key column.
    pub columns: Box<[ColumnOrder]>,
    /// All families that are shown are btree's.
    pub all_shown: bool,
    /// The server need not find out which order that is.
    pub is_sorted: bool,
    /// It is sorted by the families that are shown, in ascending order, NULLs last.
    pub is_plain: bool,
    /// Rows have an entry for each of their elements.
    pub of_elements: bool,
}

/// The order of a column.
pub struct ColumnOrder {
    /// The family to show in the place of the index' own.
    pub shown: Oid,
    /// The btree family that says how the column is ordered.
    pub sorted: Oid,
    /// It is in descending order.
    pub descending: bool,
    /// NULLs come first.
    pub nulls_first: bool,
}

/// Spreads an OID over a word. OIDs are the server's, so no user chooses colliding ones.
#[derive(Default)]
struct OidHasher(u64);

impl Hasher for OidHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, oid: u32) {
        self.0 = (self.0 ^ u64::from(oid)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// By the OID of the index.
type All = HashMap<u32, Rc<Known>, BuildHasherDefault<OidHasher>>;

thread_local! {
    static KNOWN: RefCell<All> = RefCell::default();
    static WATCHING: Cell<bool> = const { Cell::new(false) };
}

impl Known {
    /// Returns the order of the index. `find` finds it out, once.
    pub fn order(&self, find: impl FnOnce() -> Order) -> &Order {
        self.order.get_or_init(find)
    }

    fn is_ordered(&self) -> bool {
        self.order.get().is_some_and(|order| order.is_sorted)
    }

    /// The size that the index had when its table was as large.
    pub fn size_beside(&self, table: (u32, f64)) -> Option<Size> {
        self.size.get().filter(|(beside, _)| *beside == table).map(|(_, size)| size)
    }

    /// The index has this size beside that of its table.
    pub fn has_size(&self, table: (u32, f64), size: Size) {
        self.size.set(Some((table, size)));
    }

    fn is_current(&self) -> bool {
        self.settings == limits::current() && self.generation == self.entry.generation()
    }
}

/// Returns what is known of an index; `None`: it has to be opened.
#[inline]
pub fn find(index: Oid) -> Option<Rc<Known>> {
    let known = KNOWN.with_borrow(|all| all.get(&index.to_u32()).cloned())?;
    known.is_current().then_some(known)
}

/// Whether the order of an index is known.
#[inline]
pub fn is_ordered(index: Oid) -> bool {
    KNOWN.with_borrow(|all| {
        let known = all.get(&index.to_u32());
        known.is_some_and(|known| known.is_ordered() && known.is_current())
    })
}

/// As [`find`], but opens the index where that is needed. `None`: the directory is full.
///
/// # Safety
/// The index must be locked, inside a transaction.
pub unsafe fn get(index: Oid) -> Option<Rc<Known>> {
    // SAFETY: by contract.
    find(index).or_else(|| unsafe {
        let index = pg_sys::index_open(index, pg_sys::NoLock as pg_sys::LOCKMODE);
        let known = Handle::try_open(index).map(|handle| remember(index, handle));
        pg_sys::index_close(index, pg_sys::NoLock as pg_sys::LOCKMODE);
        known
    })
}

/// Keeps what is known of an open index for the next plans.
///
/// # Safety
/// `index` must be open and locked, inside a transaction, and the handle its own.
pub unsafe fn remember(index: pg_sys::Relation, handle: Rc<Handle>) -> Rc<Known> {
    watch();
    // SAFETY: by contract.
    unsafe {
        let known = Rc::new(Known {
            entry: handle.entry,
            generation: handle.generation(),
            made: follow::made_by(index),
            table: (*(*index).rd_index).indrelid.to_u32(),
            settings: limits::current(),
            order: OnceCell::new(),
            size: Cell::new(None),
            handle,
        });
        KNOWN.with_borrow_mut(|all| all.insert((*index).rd_id.to_u32(), known.clone()));
        known
    }
}

/// A relation was invalidated: an index, a table, or, without an OID, any.
#[pg_guard]
unsafe extern "C-unwind" fn at_invalidation(_argument: pg_sys::Datum, relation: Oid) {
    crate::pg::witness!();
    let gone = match relation.to_u32() {
        _ if !guc::holds(Mechanism::KnownRelations) => All::default(),
        0 => KNOWN.take(),
        relid => KNOWN.with_borrow_mut(|all| {
            all.extract_if(|&index, known| index == relid || known.table == relid).collect()
        }),
    };
    drop(gone);
}

/// An operator family has changed.
#[pg_guard]
unsafe extern "C-unwind" fn at_change_of_families(
    _argument: pg_sys::Datum,
    _cache: i32,
    _hash: u32,
) {
    crate::pg::witness!();
    if guc::holds(Mechanism::KnownFamilies) {
        drop(KNOWN.take());
    }
}

/// Hears of changes from now on.
fn watch() {
    // SAFETY: registers callbacks for the life of the process, once.
    let register = || unsafe {
        pg_sys::CacheRegisterRelcacheCallback(Some(at_invalidation), pg_sys::Datum::from(0));
        pg_sys::CacheRegisterSyscacheCallback(
            SysCacheIdentifier::AMOPOPID as _,
            Some(at_change_of_families),
            pg_sys::Datum::from(0),
        );
    };
    if !WATCHING.replace(true) {
        register();
    }
}

//! The settings that limit tenants (`tenants`): as they are for a database or a role, not for a
//! session.
//!
//! `ALTER DATABASE d SET nitro.max_memory_per_database` and `ALTER ROLE r SET
//! nitro.max_memory_per_owner` are rows of `pg_db_role_setting`. So are the settings for numbers of
//! indexes. The server reads these rows for its sessions. The session that inserts may have another
//! role than the owner, so nitro reads the rows here. It looks for a row of the database alone or
//! of the role alone, then for one of all. Last come the values of the configuration files, which
//! the postmaster knows.
//!
//! A process does not read them for every row. It remembers them, together with a counter in shared
//! memory. A commit that alters one of these rows raises the counter, and so does a reload. A
//! process that opens an index compares the counter with that of its handle (`Handle`), and makes
//! the handle anew if they differ.
//!
//! A commit raises the counter after its rows are visible. A reader reads the counter first, and
//! then takes a new snapshot. So the limits of a counter are never older than it. COMMIT PREPARED
//! does not raise it: its change is seen with the next one.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::atomic::Ordering::*;

use pgrx::prelude::*;

use crate::pg::catalog;
use crate::pg::guc::{self, TenantSetting};
use crate::state::directory;
use crate::state::options;
use crate::state::tenants::{KINDS, Kind, Limits, Terms};

thread_local! {
    /// The limits that this process has read: the counter, and the limits by owner.
    static READ: RefCell<(u64, HashMap<u32, [Limits; KINDS.len()]>)> = RefCell::default();
    /// This transaction has altered settings of databases or roles.
    static ALTERED: Cell<bool> = const { Cell::new(false) };
}

/// The counter of changes; never 0.
#[inline]
pub fn current() -> u64 {
    directory::get().life.settings.load(Acquire) + 1
}

/// The settings of a database or role are altered by the running transaction.
pub fn altered() {
    ALTERED.set(true);
}

/// The transaction has ended.
pub fn transaction_ended(committed: bool) {
    if ALTERED.take() && committed {
        changed();
    }
}

/// Makes every process that opens an index read the settings again.
pub fn changed() {
    if let Some(directory) = directory::if_loaded() {
        directory.life.settings.fetch_add(1, AcqRel);
    }
}

/// The terms of an open index.
///
/// # Safety
/// `index` must be open, inside a transaction.
pub unsafe fn of(index: pg_sys::Relation) -> Terms {
    let seen = current();
    // SAFETY: by contract.
    unsafe {
        let owner = (*(*index).rd_rel).relowner;
        let known =
            READ.with_borrow(|(at, all)| all.get(&owner.to_u32()).copied().filter(|_| *at == seen));
        let tenants = known.unwrap_or_else(|| {
            let read = KINDS.map(|kind| read(kind, owner));
            READ.with_borrow_mut(|(at, all)| {
                if *at != seen {
                    all.clear();
                    *at = seen;
                }
                all.insert(owner.to_u32(), read);
            });
            read
        });
        let memory = options::max_memory(index);
        Terms { owner: owner.to_u32(), memory, tenants, seen }
    }
}

unsafe fn read(kind: Kind, owner: pg_sys::Oid) -> Limits {
    let none = pg_sys::InvalidOid;
    // SAFETY: a plain global.
    let here = unsafe { pg_sys::MyDatabaseId };
    let (database, role) = match kind {
        Kind::Database => (here, none),
        Kind::Owner => (none, owner),
    };
    // SAFETY: catalogue access by the caller's contract.
    let value = |setting: TenantSetting| unsafe {
        catalog::setting(database, role, setting.name())
            .or_else(|| catalog::setting(none, none, setting.name()))
            .and_then(|value| setting.parse(&value))
            .unwrap_or_else(|| directory::get().life.defaults[setting as usize].load(Relaxed))
    };
    let [memory, indexes] = guc::limits_of(kind as usize);
    Limits {
        memory: u64::try_from(value(memory)).map_or(u64::MAX, |mb| mb << 20),
        indexes: u32::try_from(value(indexes)).unwrap_or(u32::MAX),
    }
}

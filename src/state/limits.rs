//! The settings that limit tenants (`tenants`): as they are for a database or a role, not for a session.
//!
//! `ALTER DATABASE d SET nitro.max_memory_per_database` and `ALTER ROLE r SET nitro.max_memory_per_owner`
//! (and those for numbers of indexes) are rows of `pg_db_role_setting`, where the server reads them for
//! its sessions. An owner is not the session that inserts, so they are read here: for the database alone, the
//! role alone, then for all, and last what the configuration files say, which the postmaster knows.
//!
//! Nobody reads them for every row. Each process remembers what it has read; a counter in shared memory says
//! that something has changed: a commit that altered such a row, or a reload. Whoever opens an index
//! compares the counter with the one under which its handle was made (`Handle`), and makes it anew.
//!
//! A commit counts after its rows can be seen, and who reads them has the counter from before and takes a
//! new snapshot. So the limits of a counter are never older than it. COMMIT PREPARED counts nothing: what it
//! changes is seen with the next change.

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
    /// What this process has read: under which counter, and for which owners.
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

/// Whoever opens an index reads the settings again.
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

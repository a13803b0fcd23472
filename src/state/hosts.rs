//! Which servers host an index: the storage parameters `maintenance` and `hosts`, and the setting
//! `nitro.host`.
//!
//! | `maintenance` | `hosts` | hosted by |
//! |---|---|---|
//! | `all` | none | every server |
//! | `all` | `a, b` | the primary, and the standbys `a` and `b` |
//! | `primary` | none | the primary |
//! | `standby` | none | every standby |
//! | `standby` | `a, b` | the standbys `a` and `b` |
//!
//! On another server the index is *elsewhere*: it is unbuilt, and nothing builds it. That is the
//! only effect. An index that is elsewhere may have entries all the same: a standby was promoted,
//! or `nitro.host` has just changed. It is read and kept up to date like any other. So answers do
//! not depend on this file.
//!
//! Unique indexes, those of exclusion constraints, and those of tables that are not logged are
//! hosted by every server, whatever their parameters say. New parameters of this kind are refused.

use std::cell::RefCell;
use std::collections::BTreeSet;

use pgrx::PgSqlErrorCode;
use pgrx::pg_sys::{self, Oid, Relation};

use crate::pg::error::Failure;
use crate::pg::{compat, guc};
use crate::state::directory::{self, Entry, State};
use crate::state::file::File;
use crate::state::options::{self, Maintenance, Options};
use crate::state::{follow, shmem};

thread_local! {
    /// Indexes that the running transaction has altered.
    static ALTERED: RefCell<BTreeSet<u32>> = const { RefCell::new(BTreeSet::new()) };
    /// Files of indexes that are elsewhere when the running transaction commits.
    static LEAVING: RefCell<Vec<File>> = const { RefCell::new(Vec::new()) };
}

/// Whether this server does not host an open index.
///
/// # Safety
/// `index` must be an open nitro index.
pub unsafe fn is_elsewhere(index: Relation) -> bool {
    // SAFETY: by contract; reads shared state.
    unsafe {
        let Some(options) = Options::of(index) else { return false };
        may_be_elsewhere((*index).rd_index, (*(*index).rd_rel).relpersistence)
            && excludes(options, pg_sys::RecoveryInProgress())
    }
}

/// Whether nothing brings the index up here: this server does not host it, and it has no entries.
///
/// # Safety
/// `index` must be the open index of the entry.
pub unsafe fn stays_away(index: Relation, entry: &Entry) -> bool {
    let kept = matches!(
        entry.state(),
        State::Ready | State::Following | State::CatchingUp | State::Building
    );
    // SAFETY: by contract.
    !kept && unsafe { is_elsewhere(index) }
}

/// Whether images of an open index are wanted.
///
/// # Safety
/// `index` must be an open nitro index.
pub unsafe fn wants_images(index: Relation) -> bool {
    // SAFETY: by contract.
    unsafe { options::backup(index) && !is_elsewhere(index) }
}

/// As [`is_elsewhere`], by the catalogue. False if the index is gone.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn is_elsewhere_by_name(relid: Oid) -> bool {
    // SAFETY: by contract; reads shared state.
    unsafe { excludes_by_name(relid, pg_sys::RecoveryInProgress()) }
}

/// Whether this server will not host an index after a promotion.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn will_be_elsewhere(relid: Oid) -> bool {
    // SAFETY: by contract.
    unsafe { excludes_by_name(relid, false) }
}

unsafe fn excludes_by_name(relid: Oid, standby: bool) -> bool {
    use pg_sys::SysCacheIdentifier::{INDEXRELID, RELOID};
    // SAFETY: by contract. Values are copied before the rows are released.
    unsafe {
        let row = pg_sys::SearchSysCache1(RELOID as _, relid.into());
        if row.is_null() {
            return false;
        }
        let form: pg_sys::Form_pg_class = pg_sys::GETSTRUCT(row).cast();
        let persistence = (*form).relpersistence;
        let mut null = false;
        let column = pg_sys::Anum_pg_class_reloptions as i16;
        let text = pg_sys::SysCacheGetAttr(RELOID as _, row, column, &raw mut null);
        let excludes = !null && Options::parsed(text).is_some_and(|it| excludes(it, standby));
        pg_sys::ReleaseSysCache(row);
        if !excludes {
            return false;
        }
        let row = pg_sys::SearchSysCache1(INDEXRELID as _, relid.into());
        if row.is_null() {
            return false;
        }
        let may = may_be_elsewhere(pg_sys::GETSTRUCT(row).cast(), persistence);
        pg_sys::ReleaseSysCache(row);
        may
    }
}

/// Whether nothing but queries depends on the index.
unsafe fn may_be_elsewhere(index: pg_sys::Form_pg_index, persistence: core::ffi::c_char) -> bool {
    // SAFETY: a row of pg_index.
    unsafe {
        !(*index).indisunique
            && !(*index).indisexclusion
            && persistence as u8 == pg_sys::RELPERSISTENCE_PERMANENT
    }
}

/// Whether a server does not host an index with these parameters.
fn excludes(options: &Options, standby: bool) -> bool {
    match (options.maintenance(), standby) {
        (Maintenance::All, false) | (Maintenance::Primary, false) => false,
        (Maintenance::Standby, false) | (Maintenance::Primary, true) => true,
        (Maintenance::All | Maintenance::Standby, true) => {
            options.hosts().is_some_and(|hosts| !names(hosts, &guc::host()))
        }
    }
}

/// Whether a list of hosts has this one.
fn names(hosts: &[u8], host: &[u8]) -> bool {
    hosts.split(|&byte| byte == b',').any(|name| name.trim_ascii() == host)
}

/// ERROR if an index that other things than queries depend on is to be on standbys alone.
///
/// # Safety
/// `index` must be an open nitro index.
pub unsafe fn check(index: Relation) {
    // SAFETY: by contract.
    let (wanted, form, persistence) = unsafe {
        let standby = Options::of(index).map(Options::maintenance) == Some(Maintenance::Standby);
        (standby, &*(*index).rd_index, (*(*index).rd_rel).relpersistence as u8)
    };
    if !wanted {
        return;
    }
    let why = if form.indisunique {
        "The primary has to look for duplicates in a unique index."
    } else if form.indisexclusion {
        "The primary has to look for conflicts in the index of an exclusion constraint."
    } else if persistence != pg_sys::RELPERSISTENCE_PERMANENT {
        "Standbys do not get the rows of temporary and unlogged tables."
    } else {
        return;
    };
    // SAFETY: by contract.
    let name = unsafe { compat::name(index) };
    Failure::new(
        PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
        format!("index \"{name}\" cannot be on standbys alone"),
    )
    .detail(why)
    .hint("Leave the storage parameter \"maintenance\" at \"all\".")
    .raise()
}

/// ERROR: this server does not host the index.
///
/// # Safety
/// `index` must be an open nitro index.
pub unsafe fn refuse(index: Relation) -> ! {
    // SAFETY: by contract; reads shared state.
    let (name, options, standby) =
        unsafe { (compat::name(index), Options::of(index), pg_sys::RecoveryInProgress()) };
    let detail = match options.map(Options::maintenance) {
        Some(Maintenance::Primary) => {
            "Only the primary keeps it, by its storage parameter \"maintenance\"."
        }
        Some(Maintenance::Standby) if !standby => {
            "Only standbys keep it, by its storage parameter \"maintenance\"."
        }
        _ => "Its storage parameter \"hosts\" does not name this server's \"nitro.host\".",
    };
    Failure::new(
        PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("nitro index \"{name}\" is not kept on this server"),
    )
    .detail(detail)
    .hint("Use a server that keeps it, or change its storage parameters with ALTER INDEX.")
    .raise()
}

/// The name of the state of an index in views and EXPLAIN.
///
/// # Safety
/// `index` must be the open index of an entry in this state.
pub unsafe fn shown(index: Relation, state: State) -> &'static str {
    let empty = matches!(state, State::Unbuilt | State::Bare | State::GivenUp);
    // SAFETY: by contract.
    if empty && unsafe { is_elsewhere(index) } { "elsewhere" } else { follow::shown(state) }
}

/// A relation was altered.
pub fn altered(relid: Oid) {
    // SAFETY: an alteration runs in a transaction.
    if unsafe { pg_sys::get_rel_relkind(relid) } as u8 == pg_sys::RELKIND_INDEX {
        ALTERED.with_borrow_mut(|all| all.insert(relid.to_u32()));
    }
}

/// Before a transaction commits: notes the indexes that it sends elsewhere, under the lock of ALTER
/// INDEX. ERROR if one of them cannot be there.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn before_commit() {
    for relid in ALTERED.take() {
        let relid = Oid::from(relid);
        // SAFETY: by contract. A savepoint that was rolled back may have taken the lock along.
        unsafe {
            if !compat::holds_exclusive_lock(relid) {
                continue;
            }
            let lock = pg_sys::NoLock as pg_sys::LOCKMODE;
            let index = compat::try_index_open(relid, lock);
            if index.is_null() {
                continue;
            }
            if options::is_nitro(index) {
                check(index);
                if is_elsewhere(index) {
                    LEAVING.with_borrow_mut(|all| all.push(File::of(index)));
                }
            }
            pg_sys::index_close(index, lock);
        }
    }
}

/// A transaction has ended. If it has committed, frees the indexes that it sends elsewhere.
pub fn transaction_ended(committed: bool) {
    ALTERED.with_borrow_mut(BTreeSet::clear);
    let leaving = LEAVING.take();
    if committed
        && !leaving.is_empty()
        && let Some(directory) = directory::if_loaded()
    {
        directory.remove(shmem::process(), |entry| leaving.iter().any(|&file| entry.is_at(file)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_hosts_has_names_between_commas() {
        assert!(names(b"a, b", b"a") && names(b"a, b", b"b") && names(b" a b ", b"a b"));
        for other in ["", "ab", "a,", "B", " b"] {
            assert!(!names(b"a, b", other.as_bytes()), "{other:?}");
        }
    }
}

//! What holds memory, and how much is left: for messages and views.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::*;

use nitro_engine::Lack;
use nitro_engine::prelude::*;
use pgrx::prelude::*;

use crate::pg::text;
use crate::state::directory::{self, Entry};
use crate::state::shmem;
use crate::state::tenants::{KINDS, Kind, Tenant};

/// A tenant as a message names it.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn describe(kind: Kind, tenant: &Tenant) -> String {
    // SAFETY: by contract.
    unsafe { describe_oid(kind, tenant.oid()) }
}

/// A database or an owner as a message names it.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn describe_oid(kind: Kind, oid: pg_sys::Oid) -> String {
    // SAFETY: look-ups in shared catalogues, of palloc'd strings; null if there is none.
    unsafe {
        let (what, name) = match kind {
            Kind::Database => ("database", pg_sys::get_database_name(oid)),
            Kind::Owner => ("role", pg_sys::GetUserNameFromId(oid, true)),
        };
        match name.is_null() {
            true => format!("{what} {}", oid.to_u32()),
            false => format!("{what} \"{}\"", text::from_pointer(name)),
        }
    }
}

/// Returns the databases whose indexes the current user may see: the current one, or all for
/// `pg_monitor`.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn known_databases() -> impl Fn(u32) -> bool {
    // SAFETY: plain globals; catalogue access by contract.
    let (here, everything) = unsafe { (pg_sys::MyDatabaseId.to_u32(), is_monitor()) };
    move |database| everything || database == here
}

unsafe fn is_monitor() -> bool {
    // SAFETY: catalogue access by the caller's contract.
    unsafe {
        let monitor = pg_sys::Oid::from(pg_sys::ROLE_PG_MONITOR);
        pg_sys::has_privs_of_role(pg_sys::GetUserId(), monitor)
    }
}

/// Returns the tenants of a kind that the current user may see, with their memory. Databases: those
/// of [`known_databases`]. Owners: those whose rights the user has.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn known(kind: Kind) -> Vec<&'static Tenant> {
    let all = directory::get().tenants_of(kind);
    // SAFETY: by contract.
    unsafe {
        let (known, monitor) = (known_databases(), is_monitor());
        let user = pg_sys::GetUserId();
        let seen = |tenant: &&Tenant| match kind {
            Kind::Database => known(tenant.oid().to_u32()),
            Kind::Owner => monitor || pg_sys::has_privs_of_role(user, tenant.oid()),
        };
        all.into_iter().filter(seen).collect()
    }
}

/// The largest indexes of a tenant in the current database, by name.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn largest(tenant: &'static Tenant, kind: Kind) -> Vec<String> {
    const NAMED: usize = 3;
    let process = shmem::process();
    // SAFETY: a plain global.
    let here = unsafe { pg_sys::MyDatabaseId }.to_u32();
    let mut held: BTreeMap<u32, usize> = BTreeMap::new();
    directory::get().for_each(|entry: &'static Entry| {
        if entry.database() == here && std::ptr::eq(entry.tenant(kind), tenant) {
            // State first, inside: see `nitro_index_stats`.
            let _inside = process.enter();
            if let Some(engine) = entry.index(process) {
                *held.entry(entry.relid.load(Relaxed)).or_default() += engine.stats().bytes;
            }
        }
    });
    let mut held: Vec<_> = held.into_iter().collect();
    held.sort_unstable_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
    held.truncate(NAMED);
    let named = held.into_iter().filter_map(|(relid, bytes)| {
        // SAFETY: a catalogue look-up; null if there is none any more.
        unsafe {
            let name = pg_sys::get_rel_name(relid.into());
            (!name.is_null())
                .then(|| format!("index \"{}\": {bytes} bytes", text::from_pointer(name)))
        }
    });
    named.collect()
}

/// Returns the scarcest resource for an index that holds nothing, and the free bytes of it.
pub fn room(entry: &Entry) -> (Lack, u64) {
    let area = (Lack::Area, shmem::area().usage().free as u64);
    let limits = KINDS.map(|kind| {
        let memory = entry.tenant(kind).memory();
        (Lack::Account(kind as usize), memory.limit().saturating_sub(memory.used()))
    });
    let all = [area, (Lack::Limit, entry.limit())].into_iter().chain(limits);
    all.min_by_key(|&(_, room)| room).unwrap_or(area)
}

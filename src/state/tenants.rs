//! Who shares limits: the indexes of a database, and those of an owner in all databases.
//!
//! Every entry of the directory has a tenant of either kind, which counts its entries, and to which the
//! engine charges memory. Tenants are made, given back and changed under the directory's exclusive lock.
//! One is free when no entry has it and nothing is charged to it. There are two for every entry and some for
//! what is charged after its entry has gone, so nobody is without: if there were none left the directory
//! would be full.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::*};

use nitro_engine::Account;
use nitro_engine::prelude::*;
use pgrx::prelude::*;

use crate::pg::text;
use crate::state::alarm::Alarm;
use crate::state::directory::Entry;
use crate::state::following::Following;
use crate::state::shmem;

/// What the indexes of a tenant have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Kind {
    /// Their database.
    Database = 0,
    /// Their owner, a role.
    Owner = 1,
}

/// All of them; also the order of accounts in the engine.
pub const KINDS: [Kind; 2] = [Kind::Database, Kind::Owner];

/// What the indexes of a tenant may take together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes.
    pub memory: u64,
    /// How many they may be.
    pub indexes: u32,
}

/// A database or an owner. Zeroed: free.
#[repr(C, align(64))]
pub struct Tenant {
    /// Kind and OID.
    name: AtomicU64,
    indexes: AtomicU32,
    max_indexes: AtomicU32,
    /// Which change of settings its limits are of: see `limits`.
    seen: AtomicU64,
    memory: Account,
    /// Of a database on a standby: the PID of its follower, 0 if there is none.
    follower: AtomicI32,
    /// When a query last asked for a follower, in seconds since 1970.
    asked: AtomicU32,
    following: Following,
    alarm: Alarm,
}

fn name(kind: Kind, oid: u32) -> u64 {
    (kind as u64 + 1) << 32 | u64::from(oid)
}

/// Behind the entries of the directory.
pub(super) fn capacity(entries: usize) -> usize {
    KINDS.len() * entries + 64
}

/// The tenant of this name, or a free one that is called so from now on. Under the exclusive lock.
pub(super) fn find_or_make(all: &'static [Tenant], kind: Kind, oid: u32) -> Option<u32> {
    let wanted = name(kind, oid);
    let mut free = None;
    for (i, tenant) in all.iter().enumerate() {
        let name = tenant.name.load(Relaxed);
        if name == wanted {
            return Some(i as u32);
        }
        if free.is_none() && tenant.is_free() {
            free = Some(i);
        }
        // Those behind it have never been anybody.
        if name == 0 {
            break;
        }
    }
    let i = free?;
    all[i].seen.store(0, Relaxed);
    all[i].alarm.reset();
    all[i].following.begin();
    all[i].name.store(wanted, Relaxed);
    Some(i as u32)
}

impl Tenant {
    fn is_free(&self) -> bool {
        self.indexes() == 0 && self.memory.used() == 0
    }

    /// Whether it is of this kind, and has something.
    pub(super) fn counts(&self, kind: Kind) -> bool {
        self.name.load(Relaxed) >> 32 == kind as u64 + 1 && !self.is_free()
    }

    /// Whether it is that database or owner.
    pub(super) fn is(&self, kind: Kind, oid: u32) -> bool {
        self.name.load(Relaxed) == name(kind, oid)
    }

    /// Database or role.
    pub fn oid(&self) -> pg_sys::Oid {
        pg_sys::Oid::from(self.name.load(Relaxed) as u32)
    }

    /// The PID of the database's follower, 0 if there is none.
    pub fn follower(&self) -> i32 {
        self.follower.load(Acquire)
    }

    /// Makes a process the follower; false if another one is.
    pub fn begin_following(&self, pid: i32) -> bool {
        self.follower.compare_exchange(0, pid, AcqRel, Acquire).is_ok()
    }

    /// The follower ends.
    pub fn end_following(&self, pid: i32) {
        let _ = self.follower.compare_exchange(pid, 0, AcqRel, Acquire);
    }

    /// Whether somebody should start a follower now: there is none, and none was asked for in the last seconds.
    pub fn wants_follower(&self, now: u32, patience: u32) -> bool {
        let asked = self.asked.load(Relaxed);
        self.follower() == 0
            && now.abs_diff(asked) >= patience
            && self.asked.compare_exchange(asked, now, Relaxed, Relaxed).is_ok()
    }

    /// What the database's follower says of itself.
    pub fn following(&self) -> &Following {
        &self.following
    }

    /// What its indexes hold and may hold.
    pub fn memory(&self) -> &Account {
        &self.memory
    }

    /// What was said of its limit of memory.
    pub fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// How many indexes it has in memory.
    pub fn indexes(&self) -> u32 {
        self.indexes.load(Relaxed)
    }

    /// How many it may have.
    pub fn max_indexes(&self) -> u32 {
        self.max_indexes.load(Relaxed)
    }

    /// Whether it can have another one.
    pub fn has_room(&self) -> bool {
        self.indexes() < self.max_indexes()
    }

    /// Which settings its limits are of.
    pub(super) fn seen(&self) -> u64 {
        self.seen.load(Relaxed)
    }

    /// Under the exclusive lock; who read the settings before somebody else changes nothing.
    pub(super) fn limit(&self, limits: Limits, seen: u64) {
        if seen >= self.seen() {
            self.memory.set_limit(limits.memory);
            self.max_indexes.store(limits.indexes, Relaxed);
            self.seen.store(seen, Relaxed);
        }
    }

    /// Under the exclusive lock.
    pub(super) fn gain(&self) {
        self.indexes.store(self.indexes() + 1, Relaxed);
    }

    /// Under the exclusive lock.
    pub(super) fn lose(&self) {
        self.indexes.store(self.indexes() - 1, Relaxed);
    }
}

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

/// Of which databases' indexes the current user may know: of the own one's, or of all for `pg_monitor`.
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

/// What the tenants of a kind hold of which the current user may know: databases as
/// [`known_databases`], of owners those whose rights it has.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn known(kind: Kind) -> Vec<&'static Tenant> {
    let all = shmem::directory().tenants_of(kind);
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
    shmem::directory().for_each(|entry: &'static Entry| {
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

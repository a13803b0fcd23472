//! Tenants, which share limits: the indexes of a database, and those of an owner in all databases.
//!
//! Every entry of the directory has a tenant of either kind. The tenant counts its entries, and the
//! engine charges memory to it. Tenants are made, given back and changed under the exclusive lock
//! of the directory. One is free when no entry has it and nothing is charged to it. There are two
//! tenants for every entry, and some for memory that is charged after its entry has gone. So a
//! tenant is always free unless the directory is full.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::*};

use nitro_engine::Account;
use pgrx::prelude::*;

use crate::state::alarm::Alarm;
use crate::state::following::Following;

/// The kind of a tenant: the property that its indexes share.
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

/// The limits of a tenant's indexes together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes.
    pub memory: u64,
    /// How many they may be.
    pub indexes: u32,
}

/// The limits of an index, alone and together with others.
#[derive(Clone, Copy)]
pub struct Terms {
    /// The role that owns it.
    pub owner: u32,
    /// The most bytes that it may hold itself.
    pub memory: u64,
    /// Of its tenants.
    pub tenants: [Limits; KINDS.len()],
    /// The counter from before they were read.
    pub seen: u64,
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
        // The tenants behind it were never used.
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

    /// Returns true if this process should start a follower: there is none, and none was requested
    /// in the last `patience` seconds.
    pub fn wants_follower(&self, now: u32, patience: u32) -> bool {
        let asked = self.asked.load(Relaxed);
        self.follower() == 0
            && now.abs_diff(asked) >= patience
            && self.asked.compare_exchange(asked, now, Relaxed, Relaxed).is_ok()
    }

    /// Returns the state of the database's follower.
    pub fn following(&self) -> &Following {
        &self.following
    }

    /// Returns the account of its indexes: the memory that they hold, and its limit.
    pub fn memory(&self) -> &Account {
        &self.memory
    }

    /// Returns the messages given about its limit of memory.
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

    /// Sets the limits, under the exclusive lock. If another process has read newer settings,
    /// nothing changes.
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

//! Settings that limit what the indexes of a database or of an owner take.

use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use pgrx::prelude::*;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting};

use super::{MOST_MEMORY, parse};

// See [`TenantSetting`].
static MAX_MEMORY_PER_DATABASE: GucSetting<i32> = GucSetting::<i32>::new(-1);
static MAX_MEMORY_PER_OWNER: GucSetting<i32> = GucSetting::<i32>::new(-1);
static MAX_INDEXES_PER_DATABASE: GucSetting<i32> = GucSetting::<i32>::new(-1);
static MAX_INDEXES_PER_OWNER: GucSetting<i32> = GucSetting::<i32>::new(-1);

/// Settings of databases and roles: what their indexes may take together. They mean nothing in a
/// session: see `state/limits`.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum TenantSetting {
    /// MB that the indexes of a database may hold.
    DatabaseMemory = 0,
    /// MB that the indexes of an owner may hold.
    OwnerMemory = 1,
    /// How many a database may have in memory.
    DatabaseIndexes = 2,
    /// How many an owner may have.
    OwnerIndexes = 3,
}

/// How many of them there are.
pub const TENANT_SETTINGS: usize = 4;

use TenantSetting::*;

/// Memory and number, for the databases and for the owners.
pub fn limits_of(kind: usize) -> [TenantSetting; 2] {
    [[DatabaseMemory, DatabaseIndexes], [OwnerMemory, OwnerIndexes]][kind]
}

impl TenantSetting {
    /// As users write it.
    pub fn name(self) -> &'static CStr {
        match self {
            DatabaseMemory => c"nitro.max_memory_per_database",
            OwnerMemory => c"nitro.max_memory_per_owner",
            DatabaseIndexes => c"nitro.max_indexes_per_database",
            OwnerIndexes => c"nitro.max_indexes_per_owner",
        }
    }

    /// Returns the name of the setting, for a message.
    pub fn text(self) -> &'static str {
        self.name().to_str().unwrap_or_default()
    }

    /// A value as a database or a role has it.
    pub fn parse(self, value: &CStr) -> Option<i32> {
        let unit = match self {
            DatabaseMemory | OwnerMemory => pg_sys::GUC_UNIT_MB,
            DatabaseIndexes | OwnerIndexes => 0,
        };
        parse(value, unit)
    }
}

/// The values of the configuration files, in the postmaster.
static DEFAULTS: [AtomicI32; TENANT_SETTINGS] = [const { AtomicI32::new(-1) }; TENANT_SETTINGS];
static FOLLOW_DEFAULTS: OnceLock<fn([i32; TENANT_SETTINGS])> = OnceLock::new();

/// `follow` is called now, and in the postmaster when the configuration files say something else.
pub fn follow_defaults(follow: fn([i32; TENANT_SETTINGS])) {
    FOLLOW_DEFAULTS.get_or_init(|| follow);
    follow(DEFAULTS.each_ref().map(|default| default.load(Relaxed)));
}

unsafe extern "C-unwind" fn set_default<const N: usize>(value: i32, _: *mut core::ffi::c_void) {
    // SAFETY: a plain global.
    if unsafe { pg_sys::IsUnderPostmaster } {
        return;
    }
    if DEFAULTS[N].swap(value, Relaxed) != value
        && let Some(follow) = FOLLOW_DEFAULTS.get()
    {
        follow(DEFAULTS.each_ref().map(|default| default.load(Relaxed)));
    }
}

/// Refuses the value of a session, which would look as if it were a limit. Of the values that a
/// session gets with its database and its role only the one that counts passes. The server reports
/// the others in a WARNING.
unsafe extern "C-unwind" fn check_tenant<const OWNER: bool>(
    _: *mut i32,
    _: *mut *mut core::ffi::c_void,
    source: pg_sys::GucSource::Type,
) -> bool {
    use pg_sys::GucSource::*;
    let detail = match (source, OWNER) {
        (PGC_S_CLIENT | PGC_S_SESSION, _) => {
            c"It limits databases or roles, not sessions: use ALTER DATABASE or ALTER ROLE."
        }
        (PGC_S_DATABASE | PGC_S_DATABASE_USER, true) => {
            c"It limits a role in all databases: use ALTER ROLE without IN DATABASE."
        }
        (PGC_S_USER | PGC_S_DATABASE_USER, false) => c"It limits a database: use ALTER DATABASE.",
        _ => return true,
    };
    // SAFETY: the server copies the DETAIL.
    unsafe { pg_sys::GUC_check_errdetail_string = detail.as_ptr().cast_mut() };
    false
}

/// Defines them.
pub(super) fn register() {
    const MEMORY: &CStr = c"Growth beyond it fails with SQLSTATE 53400, or as \"nitro.when_full\" says; -1: no limit.";
    const NUMBER: &CStr =
        c"Further indexes are not created, and stay unbuilt after a restart; -1: no limit.";
    let (mb, plain) = (GucFlags::UNIT_MB, GucFlags::default());
    // SAFETY: the hooks have the server's types.
    unsafe {
        GucRegistry::define_int_guc_with_hooks(
            DatabaseMemory.name(),
            c"Sets the largest amount of memory for the nitro indexes of a database.",
            MEMORY,
            &MAX_MEMORY_PER_DATABASE,
            -1,
            MOST_MEMORY,
            GucContext::Suset,
            mb,
            Some(check_tenant::<false>),
            Some(set_default::<0>),
            None,
        );
        GucRegistry::define_int_guc_with_hooks(
            OwnerMemory.name(),
            c"Sets the largest amount of memory for the nitro indexes of an owner, in all databases.",
            MEMORY,
            &MAX_MEMORY_PER_OWNER,
            -1,
            MOST_MEMORY,
            GucContext::Suset,
            mb,
            Some(check_tenant::<true>),
            Some(set_default::<1>),
            None,
        );
        GucRegistry::define_int_guc_with_hooks(
            DatabaseIndexes.name(),
            c"Sets the largest number of nitro indexes of a database held in memory at once.",
            NUMBER,
            &MAX_INDEXES_PER_DATABASE,
            -1,
            1_000_000,
            GucContext::Suset,
            plain,
            Some(check_tenant::<false>),
            Some(set_default::<2>),
            None,
        );
        GucRegistry::define_int_guc_with_hooks(
            OwnerIndexes.name(),
            c"Sets the largest number of nitro indexes of an owner held in memory at once, in all databases.",
            NUMBER,
            &MAX_INDEXES_PER_OWNER,
            -1,
            1_000_000,
            GucContext::Suset,
            plain,
            Some(check_tenant::<true>),
            Some(set_default::<3>),
            None,
        );
    }
}

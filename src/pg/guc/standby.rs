//! Settings of standbys.

use std::ffi::CString;

use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, PostgresGucEnum};

/// Whether a standby keeps its nitro indexes up to date.
pub static FOLLOW_WAL: GucSetting<bool> = GucSetting::<bool>::new(true);
/// How long a scan on a standby waits for the follower, in milliseconds.
pub static FOLLOW_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(30_000);
/// How fresh an index of a standby has to be for a scan.
pub static SCAN_CONSISTENCY: GucSetting<ScanConsistency> =
    GucSetting::<ScanConsistency>::new(ScanConsistency::RequestPlus);

/// The name of this server in storage parameters of indexes.
static HOST: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));

/// Returns the name of this server in storage parameters of indexes. Empty: none.
pub fn host() -> Vec<u8> {
    HOST.get().map_or_else(Vec::new, |host| host.to_bytes().trim_ascii().to_vec())
}

/// See [`SCAN_CONSISTENCY`]. The names are Couchbase's.
#[derive(Clone, Copy, PartialEq, Eq, PostgresGucEnum)]
pub enum ScanConsistency {
    /// For all that its snapshot may see.
    #[name = c"request_plus"]
    RequestPlus,
    /// For nothing. Rows may be missing.
    #[name = c"not_bounded"]
    NotBounded,
}

/// Defines them.
pub(super) fn register() {
    GucRegistry::define_bool_guc(
        c"nitro.follow",
        c"Keeps nitro indexes up to date on a standby, so that its queries can use them.",
        c"Off: queries on a standby are planned without nitro indexes.",
        &FOLLOW_WAL,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"nitro.follow_timeout",
        c"Sets how long a query on a standby waits for an index to catch up with recovery.",
        c"Then the query fails with SQLSTATE 55000. 0 waits without a limit.",
        &FOLLOW_TIMEOUT,
        0,
        i32::MAX,
        GucContext::Userset,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_enum_guc(
        c"nitro.scan_consistency",
        c"Sets what a query on a standby waits for before it reads a nitro index.",
        c"\"request_plus\" waits until the index has all rows that the query's snapshot may see. \"not_bounded\" does not wait: rows of the last changes may be missing.",
        &SCAN_CONSISTENCY,
        // A function or a policy that asks whether a row is missing must not be misled by its
        // caller.
        GucContext::Suset,
        GucFlags::EXPLAIN,
    );
    GucRegistry::define_string_guc(
        c"nitro.host",
        c"Names this server in the storage parameter \"hosts\" of nitro indexes.",
        c"A standby keeps an index with such a list only if the list has its name.",
        &HOST,
        GucContext::Sighup,
        GucFlags::default(),
    );
}

//! Storage parameters: `WITH (fillfactor = 10..100, backup = on | off, max_memory = '64MB')`.

use std::ffi::CStr;
use std::mem::offset_of;
use std::sync::OnceLock;

use pgrx::prelude::*;

use crate::pg::error::Failure;
use crate::pg::{compat, guc, text};

/// How full leaf blocks are packed by a build and by ascending inserts, in percent.
const FILLFACTOR_DEFAULT: i32 = 90;
const FILLFACTOR_MIN: i32 = 10;
const FILLFACTOR_MAX: i32 = 100;

/// What the server stores in `rd_options`.
#[repr(C)]
struct Options {
    /// Varlena header, written by the server.
    header: i32,
    fillfactor: i32,
    backup: bool,
    /// Where the text of `max_memory` is, from here; 0 = nowhere.
    max_memory: i32,
}

/// "max_memory" in MB, if it is one.
fn megabytes(value: &CStr) -> Option<i32> {
    let mb = guc::parse(value, pg_sys::GUC_UNIT_MB);
    mb.filter(|mb| (1..=guc::MOST_MEMORY).contains(mb))
}

/// ERROR unless it is one.
#[pg_guard]
unsafe extern "C-unwind" fn check_memory(value: *const core::ffi::c_char) {
    crate::pg::witness!();
    if value.is_null() {
        return;
    }
    // SAFETY: nul-terminated, the server's.
    let value = unsafe { CStr::from_ptr(value) };
    if megabytes(value).is_none() {
        // SAFETY: nul-terminated.
        let shown = unsafe { text::from_pointer(value.as_ptr()) };
        Failure::new(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            format!("invalid value for storage parameter \"max_memory\": \"{shown}\""),
        )
        .detail(format!("Valid values are between \"1MB\" and \"{}MB\".", guc::MOST_MEMORY))
        .hint("Valid units are \"kB\", \"MB\", \"GB\", and \"TB\"; without one it is \"MB\".")
        .raise();
    }
}

/// Our kind of relation options in this process, registered at first use.
fn kind() -> pg_sys::relopt_kind::Type {
    static KIND: OnceLock<pg_sys::relopt_kind::Type> = OnceLock::new();
    *KIND.get_or_init(|| {
        // SAFETY: both only append to process-local tables; the strings are copied.
        unsafe {
            let kind = pg_sys::add_reloption_kind();
            pg_sys::add_int_reloption(
                kind,
                c"fillfactor".as_ptr(),
                c"Packs nitro index blocks only to this percentage".as_ptr(),
                FILLFACTOR_DEFAULT,
                FILLFACTOR_MIN,
                FILLFACTOR_MAX,
                pg_sys::ShareUpdateExclusiveLock as pg_sys::LOCKMODE,
            );
            pg_sys::add_bool_reloption(
                kind,
                c"backup".as_ptr(),
                c"Writes images of the index, from which it is loaded after a restart".as_ptr(),
                true,
                pg_sys::ShareUpdateExclusiveLock as pg_sys::LOCKMODE,
            );
            pg_sys::add_string_reloption(
                kind,
                c"max_memory".as_ptr(),
                c"Largest amount of memory for the index".as_ptr(),
                std::ptr::null(),
                Some(check_memory),
                pg_sys::ShareUpdateExclusiveLock as pg_sys::LOCKMODE,
            );
            kind
        }
    })
}

/// Names the parameters, their types, and where their values are stored.
fn known() -> [pg_sys::relopt_parse_elt; 3] {
    use compat::storage_parameter as parameter;
    use pg_sys::relopt_type::{RELOPT_TYPE_BOOL, RELOPT_TYPE_INT, RELOPT_TYPE_STRING};
    [
        parameter(c"fillfactor", RELOPT_TYPE_INT, offset_of!(Options, fillfactor)),
        parameter(c"backup", RELOPT_TYPE_BOOL, offset_of!(Options, backup)),
        parameter(c"max_memory", RELOPT_TYPE_STRING, offset_of!(Options, max_memory)),
    ]
}

/// Parses the storage parameters of an index (`amoptions`).
#[pg_guard]
pub unsafe extern "C-unwind" fn parse(
    reloptions: pg_sys::Datum,
    validate: bool,
) -> *mut pg_sys::bytea {
    crate::pg::witness!();
    let known = known();
    // SAFETY: the table describes `Options`, whose size is passed with it.
    unsafe {
        pg_sys::build_reloptions(
            reloptions,
            validate,
            kind(),
            size_of::<Options>(),
            known.as_ptr(),
            known.len() as i32,
        )
        .cast()
    }
}

/// Whether an open index is a nitro index of this library.
///
/// # Safety
/// `index` must be an open index.
pub unsafe fn is_nitro(index: pg_sys::Relation) -> bool {
    // SAFETY: the relcache fills `rd_indam` of an open index.
    let own = unsafe { (*index).rd_indam.as_ref() };
    own.and_then(|am| am.amoptions).is_some_and(|f| f as *const () == OWN)
}

/// Our routines are recognised by this one: cheaper than asking the catalogue for the OID.
const OWN: *const () = parse as *const ();

/// The fillfactor of an open index.
///
/// # Safety
/// `index` must be an open nitro index.
pub unsafe fn fillfactor(index: pg_sys::Relation) -> u8 {
    // SAFETY: `rd_options` is null or what `parse` returned.
    let options = unsafe { (*index).rd_options.cast::<Options>().as_ref() };
    options.map_or(FILLFACTOR_DEFAULT, |o| o.fillfactor) as u8
}

/// Whether images of an open index are wanted.
///
/// # Safety
/// `index` must be an open nitro index.
pub unsafe fn backup(index: pg_sys::Relation) -> bool {
    // SAFETY: as in `fillfactor`.
    unsafe { (*index).rd_options.cast::<Options>().as_ref() }.is_none_or(|o| o.backup)
}

/// Bytes that an open index may hold.
///
/// # Safety
/// `index` must be an open nitro index.
pub unsafe fn max_memory(index: pg_sys::Relation) -> u64 {
    // SAFETY: as in `fillfactor`; the text is nul-terminated, where the offset says.
    let value = unsafe {
        let options = (*index).rd_options.cast::<Options>();
        match options.as_ref().map_or(0, |o| o.max_memory) {
            0 => None,
            offset => Some(CStr::from_ptr(options.byte_add(offset as usize).cast())),
        }
    };
    value.and_then(megabytes).map_or(u64::MAX, |mb| (mb as u64) << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A conversion keeps the parameters that `nitro_twin` lists.
    #[test]
    fn a_conversion_knows_all_parameters() {
        let script = include_str!("../../extension/convert.sql");
        for parameter in known() {
            // SAFETY: made from a literal above.
            let name = unsafe { CStr::from_ptr(parameter.optname) };
            let listed = format!("('nitro', '{}')", name.to_str().expect("ASCII"));
            assert!(script.contains(&listed), "nitro_twin does not list {listed}");
        }
    }
}

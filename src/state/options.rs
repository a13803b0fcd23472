//! Storage parameters: `WITH (fillfactor = 10..100, backup = on | off, max_memory = '64MB',
//! maintenance = all | primary | standby, hosts = 'a, b')`. What the last two do is in `hosts`.

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

/// The longest name of a host, in bytes: that of a name in the catalogue.
const MOST_OF_HOST: usize = pg_sys::NAMEDATALEN as usize - 1;

/// Which servers keep an index up to date: the values of `maintenance`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Maintenance {
    /// The primary and standbys.
    All = 0,
    /// The primary.
    Primary = 1,
    /// Standbys.
    Standby = 2,
}

/// The options as the server stores them in `rd_options`.
#[repr(C)]
pub struct Options {
    /// Varlena header, written by the server.
    header: i32,
    fillfactor: i32,
    backup: bool,
    /// Where the text of `max_memory` is, from here; 0 = nowhere.
    max_memory: i32,
    /// A value of [`Maintenance`].
    maintenance: i32,
    /// Where the text of `hosts` is, from here; 0 = nowhere.
    hosts: i32,
}

impl Options {
    /// The parameters of an open index; `None` if it has none.
    ///
    /// # Safety
    /// `index` must be an open nitro index, for as long as the result is used.
    pub unsafe fn of<'a>(index: pg_sys::Relation) -> Option<&'a Options> {
        // SAFETY: `rd_options` is null or a result of `parse`.
        unsafe { (*index).rd_options.cast::<Options>().as_ref() }
    }

    /// The parameters that the catalogue has of an index.
    ///
    /// # Safety
    /// `reloptions` must be a value of that column of pg_class. The result lives in the current
    /// memory context.
    pub unsafe fn parsed<'a>(reloptions: pg_sys::Datum) -> Option<&'a Options> {
        // SAFETY: by contract.
        unsafe { parse(reloptions, false).cast::<Options>().as_ref() }
    }

    /// Which servers keep the index up to date.
    pub fn maintenance(&self) -> Maintenance {
        match self.maintenance {
            1 => Maintenance::Primary,
            2 => Maintenance::Standby,
            _ => Maintenance::All,
        }
    }

    /// The list of hosts, if there is one.
    pub fn hosts(&self) -> Option<&[u8]> {
        // SAFETY: the text is nul-terminated, where the offset says.
        unsafe { self.text(self.hosts) }.map(CStr::to_bytes)
    }

    /// # Safety
    /// `offset` must be one of the fields that say where a text is.
    unsafe fn text(&self, offset: i32) -> Option<&CStr> {
        // SAFETY: by contract.
        (offset != 0).then(|| unsafe {
            CStr::from_ptr(std::ptr::from_ref(self).byte_add(offset as usize).cast())
        })
    }
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
        .hint("Valid units are \"kB\", \"MB\", \"GB\", and \"TB\". The default unit is \"MB\".")
        .raise();
    }
}

/// ERROR unless it is a list of names.
#[pg_guard]
unsafe extern "C-unwind" fn check_hosts(value: *const core::ffi::c_char) {
    crate::pg::witness!();
    if value.is_null() {
        return;
    }
    // SAFETY: nul-terminated, the server's.
    let value = unsafe { CStr::from_ptr(value) };
    let is_name = |name: &[u8]| {
        let name = name.trim_ascii();
        !name.is_empty()
            && name.len() <= MOST_OF_HOST
            && !name.iter().any(|byte| byte.is_ascii_control())
    };
    if !value.to_bytes().split(|&byte| byte == b',').all(is_name) {
        // SAFETY: nul-terminated.
        let shown = unsafe { text::from_pointer(value.as_ptr()) };
        Failure::new(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            format!("invalid value for storage parameter \"hosts\": \"{shown}\""),
        )
        .detail(format!(
            "The value must be a list of names of at most {MOST_OF_HOST} bytes, separated by commas."
        ))
        .hint("RESET (hosts) removes the list.")
        .raise();
    }
}

/// ERROR if both say where the index is, and not the same.
fn check_together(options: &Options) {
    if options.maintenance() == Maintenance::Primary && options.hosts().is_some() {
        Failure::new(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            "storage parameter \"hosts\" names standbys, but \"maintenance\" excludes them",
        )
        .hint("RESET one of the two parameters.")
        .raise();
    }
}

/// The values of `maintenance`, in the form of the server.
fn maintenances() -> *mut pg_sys::relopt_enum_elt_def {
    use Maintenance::{All, Primary, Standby};
    let member = |name: *const core::ffi::c_char, value| pg_sys::relopt_enum_elt_def {
        string_val: name,
        symbol_val: value,
    };
    let all = [
        member(c"all".as_ptr(), All as i32),
        member(c"primary".as_ptr(), Primary as i32),
        member(c"standby".as_ptr(), Standby as i32),
        member(std::ptr::null(), 0),
    ];
    // The server keeps a pointer to it.
    Box::leak(Box::new(all)).as_mut_ptr()
}

/// Makes the parameters known in this process and those that it forks. The server looks for the
/// locks of ALTER INDEX among those that it knows.
pub fn register() {
    kind();
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
            // Writers are out when an index comes to a server or leaves it.
            pg_sys::add_enum_reloption(
                kind,
                c"maintenance".as_ptr(),
                c"Which servers keep the index up to date".as_ptr(),
                maintenances(),
                Maintenance::All as i32,
                c"Valid values are \"all\", \"primary\" and \"standby\".".as_ptr(),
                pg_sys::AccessExclusiveLock as pg_sys::LOCKMODE,
            );
            pg_sys::add_string_reloption(
                kind,
                c"hosts".as_ptr(),
                c"Standbys that keep the index up to date, by their nitro.host".as_ptr(),
                std::ptr::null(),
                Some(check_hosts),
                pg_sys::AccessExclusiveLock as pg_sys::LOCKMODE,
            );
            kind
        }
    })
}

/// Names the parameters, their types, and where their values are stored.
fn known() -> [pg_sys::relopt_parse_elt; 5] {
    use compat::storage_parameter as parameter;
    use pg_sys::relopt_type::{
        RELOPT_TYPE_BOOL, RELOPT_TYPE_ENUM, RELOPT_TYPE_INT, RELOPT_TYPE_STRING,
    };
    [
        parameter(c"fillfactor", RELOPT_TYPE_INT, offset_of!(Options, fillfactor)),
        parameter(c"backup", RELOPT_TYPE_BOOL, offset_of!(Options, backup)),
        parameter(c"max_memory", RELOPT_TYPE_STRING, offset_of!(Options, max_memory)),
        parameter(c"maintenance", RELOPT_TYPE_ENUM, offset_of!(Options, maintenance)),
        parameter(c"hosts", RELOPT_TYPE_STRING, offset_of!(Options, hosts)),
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
        let parsed: *mut pg_sys::bytea = pg_sys::build_reloptions(
            reloptions,
            validate,
            kind(),
            size_of::<Options>(),
            known.as_ptr(),
            known.len() as i32,
        )
        .cast();
        if validate && let Some(options) = parsed.cast::<Options>().as_ref() {
            check_together(options);
        }
        parsed
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
    // SAFETY: `rd_options` is null or a result of `parse`.
    let options = unsafe { Options::of(index) };
    options.map_or(FILLFACTOR_DEFAULT, |o| o.fillfactor) as u8
}

/// Whether images of an open index are wanted.
///
/// # Safety
/// `index` must be an open nitro index.
pub unsafe fn backup(index: pg_sys::Relation) -> bool {
    // SAFETY: as in `fillfactor`.
    unsafe { Options::of(index) }.is_none_or(|o| o.backup)
}

/// Bytes that an open index may hold.
///
/// # Safety
/// `index` must be an open nitro index.
pub unsafe fn max_memory(index: pg_sys::Relation) -> u64 {
    // SAFETY: as in `fillfactor`; the text is nul-terminated, where the offset says.
    let value = unsafe { Options::of(index).and_then(|o| o.text(o.max_memory)) };
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

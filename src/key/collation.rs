//! Collations: which order strings by their bytes, and which the C library orders.

use super::strcoll::Locale;
use pgrx::FromDatum;
use pgrx::pg_sys::{self, Datum, Oid};

/// Comparison functions that call two raw segments equal only if their bytes are: those of strings,
/// unless the collation is a nondeterministic one.
pub fn collated(compare: Oid, collation: Oid) -> bool {
    compares_strings(compare) && is_deterministic(collation)
}

/// Comparison functions of strings, which follow the collation.
pub fn compares_strings(compare: Oid) -> bool {
    matches!(compare.to_u32(), pg_sys::F_BTTEXTCMP | pg_sys::F_BTNAMECMP | pg_sys::F_BPCHARCMP)
}

/// Whether strings are equal under this collation, or under none, only if their bytes are.
pub fn is_deterministic(collation: Oid) -> bool {
    // SAFETY: a catalogue look-up of an index column's collation.
    collation == Oid::INVALID || unsafe { pg_sys::get_collation_isdeterministic(collation) }
}

/// Whether a collation orders strings by their bytes: C and POSIX of any provider, and all of the
/// builtin provider's (17+), which compare code points in UTF-8.
///
/// # Safety
/// Needs catalogue access.
pub unsafe fn byte_order(collation: Oid) -> bool {
    const BUILTIN: u8 = b'b';
    // SAFETY: by contract.
    collation == pg_sys::C_COLLATION_OID
        || unsafe { Names::of(collation) }.is_some_and(|names| match names.provider {
            BUILTIN => true,
            pg_sys::COLLPROVIDER_LIBC => names.collate.is_some_and(|l| libc_byte_order(&l)),
            _ => false,
        })
}

/// The locale that orders the strings of a collation, if it is one of the C library.
///
/// # Safety
/// Needs catalogue access.
pub unsafe fn libc_locale(collation: Oid) -> Option<Locale> {
    // SAFETY: by contract.
    let names = unsafe { Names::of(collation)? };
    (names.provider == pg_sys::COLLPROVIDER_LIBC)
        .then(|| Locale::new(&names.collate?, &names.ctype?))
        .flatten()
}

/// Whose collation it is, and the names of its locales there.
struct Names {
    provider: u8,
    collate: Option<String>,
    ctype: Option<String>,
}

impl Names {
    /// # Safety
    /// Needs catalogue access.
    unsafe fn of(collation: Oid) -> Option<Names> {
        let of_database = collation == pg_sys::DEFAULT_COLLATION_OID;
        let (cache, key, collate, ctype) = match of_database {
            true => (
                pg_sys::SysCacheIdentifier::DATABASEOID,
                // SAFETY: a plain global of the process.
                unsafe { pg_sys::MyDatabaseId },
                pg_sys::Anum_pg_database_datcollate,
                pg_sys::Anum_pg_database_datctype,
            ),
            false => (
                pg_sys::SysCacheIdentifier::COLLOID,
                collation,
                pg_sys::Anum_pg_collation_collcollate,
                pg_sys::Anum_pg_collation_collctype,
            ),
        };
        // SAFETY: a look-up in a system cache; the tuple has the row type of its catalogue and is
        // released after its fields are copied.
        unsafe {
            let tuple = pg_sys::SearchSysCache1(cache as _, Datum::from(key));
            if tuple.is_null() {
                return None;
            }
            let row = (*tuple).t_data.cast::<u8>().add((*(*tuple).t_data).t_hoff.into());
            let provider = match of_database {
                true => (*row.cast::<pg_sys::FormData_pg_database>()).datlocprovider,
                false => (*row.cast::<pg_sys::FormData_pg_collation>()).collprovider,
            };
            let name = |column: u32| {
                let mut isnull = false;
                let name = pg_sys::SysCacheGetAttr(cache as _, tuple, column as i16, &mut isnull);
                String::from_datum(name, isnull)
            };
            let names =
                Names { provider: provider as u8, collate: name(collate), ctype: name(ctype) };
            pg_sys::ReleaseSysCache(tuple);
            Some(names)
        }
    }
}

/// Whether `strcoll` compares bytes in a locale of the C library.
fn libc_byte_order(locale: &str) -> bool {
    match locale.to_ascii_lowercase().as_str() {
        "c" | "posix" => true,
        "c.utf-8" | "c.utf8" => strict_c_utf8(),
        _ => false,
    }
}

/// Since 2.35 glibc has its own C.UTF-8, which compares with strcmp; before, each distribution had
/// another one.
#[cfg(target_env = "gnu")]
fn strict_c_utf8() -> bool {
    unsafe extern "C" {
        fn gnu_get_libc_version() -> *const std::ffi::c_char;
    }
    // SAFETY: glibc returns a constant string.
    let version = unsafe { std::ffi::CStr::from_ptr(gnu_get_libc_version()) };
    let mut parts = version.to_str().unwrap_or_default().split('.').map(|p| p.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (2, 35)
}

/// The versions of other C libraries are not known.
#[cfg(not(target_env = "gnu"))]
fn strict_c_utf8() -> bool {
    false
}

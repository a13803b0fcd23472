//! Reading catalogue rows.

use pgrx::pg_sys::{self, Datum, Oid, SysCacheIdentifier};

/// Copies of the catalogue rows with `key` as the first column of `cache`.
///
/// # Safety
/// `T` must be the fixed part of the rows of the catalogue behind `cache`; needs catalogue access.
pub unsafe fn members<T: Copy>(cache: SysCacheIdentifier::Type, key: Oid) -> Vec<T> {
    // SAFETY: the list has `n_members` members, each a live tuple until the list is released.
    unsafe {
        let none = Datum::from(0);
        let list = pg_sys::SearchSysCacheList(cache as i32, 1, Datum::from(key), none, none);
        let rows = (*list)
            .members
            .as_slice((*list).n_members as usize)
            .iter()
            .map(|&member| pg_sys::GETSTRUCT(&raw mut (*member).tuple).cast::<T>().read())
            .collect();
        pg_sys::ReleaseCatCacheList(list);
        rows
    }
}

//! Images: copies of indexes on disk, from which they are back after a restart without a rebuild.
//!
//! An image of LSN B has every entry whose heap block has no WAL record after B (invariant D3).
//! With a look at the blocks that have changed since, it is an exact index (D5). Whether an image
//! may be used is decided by comparison, never assumed (D4). See docs/durability.md for the
//! invariants and the argument for each.
//!
//! - `backup` writes an image, `straddler` keeps D3 for inserts that began before it;
//! - `load` reads one and says what has to be looked at; `bring_up` looks;
//! - `standby` says what is different on a standby;
//! - `slot` keeps the WAL that images need; `keeper` decides when what happens.
//!
//! The crate `nitro-image` has the format of the files and the protocol of durability.

pub mod backup;
pub mod load;
mod pace;
mod shards;
pub mod slot;
pub mod sql;
pub mod standby;
pub mod straddler;
mod term;

pub use crate::state::image::{ImageState, UNKNOWN};

use std::collections::BTreeSet;

use nitro_image::{Manifest, RealDisk, Store};
use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;

use crate::key::KeyDesc;
use crate::pg::catalog;
use crate::pg::error::Failure;
use crate::pg::guc;
use crate::state::directory::{Entry, Incarnation};

/// The folder of all images; every process of the server runs in the data directory.
pub fn store() -> Store<RealDisk> {
    let store = Store::new(RealDisk, "pg_nitro");
    if guc::COLLECT.get() { store } else { store.without_collections() }
}

/// Returns the readable manifests of an index, the newest first. This is asked every few seconds.
/// So only a load reports an unreadable one.
pub fn manifests(database: u32, incarnation: Incarnation) -> Vec<Manifest> {
    store().images(database, incarnation).into_iter().filter_map(Result::ok).collect()
}

/// Whether an index has images on disk that have not been found unusable.
pub fn exist(entry: &Entry) -> bool {
    !store().images(entry.database(), entry.incarnation()).is_empty()
}

/// Whether an image with these files is on disk.
pub fn is_on_disk(image: &Manifest) -> bool {
    let same = |other: &Manifest| {
        (other.generation, &other.shards, &other.carried)
            == (image.generation, &image.shards, &image.carried)
    };
    manifests(image.database, image.incarnation).iter().any(same)
}

/// Removes the images of an index whose state does not let them be loaded any more: they are of no
/// use, but keep WAL. A failure is no more than that.
pub fn remove(entry: &Entry) {
    if let Err(e) = store().discard(entry.database(), entry.incarnation()) {
        crate::pg::error::log!("nitro could not remove the images of an index: {e}");
    }
}

/// Removes an image whose files are damaged, so that the next one carries no part of them.
pub fn remove_damaged(manifest: &Manifest) {
    if let Err(e) = store().remove(manifest) {
        crate::pg::error::log!("nitro could not remove a damaged image: {e}");
    }
}

/// Removes the images of an index that has no place in the directory, which could say that they
/// must not be loaded; ERROR if that fails.
pub fn forget(database: u32, incarnation: Incarnation) {
    if let Err(e) = store().discard(database, incarnation) {
        Failure::new(
            PgSqlErrorCode::ERRCODE_IO_ERROR,
            format!("could not remove the images of a nitro index: {e}"),
        )
        .detail(format!(
            "Folder: pg_nitro/{database}/{incarnation:032x}. File: pg_nitro/{database}/{}.",
            Store::<RealDisk>::collection_name(incarnation)
        ))
        .hint("VACUUM must not go on while an image could bring back entries that it removes. Remove the folder and the file.")
        .raise();
    }
}

/// Returns a line for each column with everything that decides the order and the encoding of keys.
/// An image with other lines does not belong to this index.
pub fn columns(desc: &KeyDesc) -> Vec<String> {
    desc.columns
        .iter()
        .enumerate()
        .map(|(i, column)| {
            let kind = match i {
                i if desc.is_element(i) => "elements",
                i if i < desc.nkeys => "key",
                _ => "include",
            };
            let (typid, collation) = (column.own_type, column.collation);
            let mut line = format!(
                "{kind} {} type {} collation {}{VERSIONS}",
                column.describe(),
                typid.to_u32(),
                collation.to_u32(),
            );
            // A new version of a collation may order differently. A comparison function may also
            // ask that of the database (as for the strings of jsonb), or those of the parts of its
            // type.
            let mut collations = BTreeSet::from([collation.to_u32()]);
            if column.comparator.is_some() {
                collations.insert(pg_sys::DEFAULT_COLLATION_OID.to_u32());
                // SAFETY: a type of the index; catalogue access, as everywhere here.
                unsafe { catalog::collations_of(typid, &mut collations) };
            }
            for collation in collations {
                if let Some(version) = collation_version(collation.into()) {
                    line.push_str(&format!(" {collation} {version}"));
                }
            }
            line
        })
        .collect()
}

/// The text in front of the versions of collations in a line of [`columns`].
const VERSIONS: &str = " versions";

/// Whether these are the same columns, but for versions of collations.
pub fn differ_by_versions(ours: &[String], others: &[String]) -> bool {
    let column = |line: &String| line.split(VERSIONS).next().map(str::to_owned);
    ours != others && ours.iter().map(column).eq(others.iter().map(column))
}

/// The version of a collation as its provider has it now, if it has versions and is one.
fn collation_version(collation: Oid) -> Option<String> {
    // SAFETY: functions of one OID that return text or NULL; they need catalogue access.
    unsafe {
        match collation {
            pg_sys::InvalidOid => None,
            // Before 16 the first function does not know this one.
            pg_sys::DEFAULT_COLLATION_OID => pgrx::direct_function_call(
                pg_sys::pg_database_collation_actual_version,
                &[pg_sys::MyDatabaseId.into_datum()],
            ),
            _ => pgrx::direct_function_call(
                pg_sys::pg_collation_actual_version,
                &[collation.into_datum()],
            ),
        }
    }
}

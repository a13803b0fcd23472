//! The function `nitro_backup`, and what is said when an image cannot be made.

use std::sync::atomic::Ordering::Relaxed;

use pgrx::pg_sys::{self, Relation};
use pgrx::prelude::*;

use super::backup::{Outcome, back_up};
use crate::directory::State;
use crate::error::Failure;
use crate::{compat, handle, shmem, worker};

/// Says that an image could not be made; the one before it stays valid.
///
/// # Safety
/// `index` must be open.
pub unsafe fn warn(index: Relation, why: &str) {
    Failure::new(
        PgSqlErrorCode::ERRCODE_IO_ERROR,
        // SAFETY: by contract.
        format!("could not make an image of nitro index \"{}\": {why}", unsafe {
            handle::name(index)
        }),
    )
    .detail("The image before it, if there is one, is still valid.")
    .warn();
}

/// Makes images of an index, or of all indexes of the current database that the user owns; returns
/// how many were written or found unchanged.
#[pg_extern]
fn nitro_backup(index: Option<pg_sys::Oid>) -> i64 {
    let mut made = 0;
    // SAFETY: a function called from SQL runs in a transaction with catalogue access.
    unsafe {
        let relids = match index {
            Some(relid) => {
                check_owner(relid);
                vec![relid]
            }
            None => own_indexes(),
        };
        for relid in relids {
            worker::with_index(relid, |heap, rel, handle| match back_up(heap, rel, handle) {
                Ok(Outcome::NotNow(why)) if index.is_some() => refuse(rel, why),
                Ok(Outcome::NotNow(_)) => (),
                Ok(_) => made += 1,
                Err(why) => warn(rel, &why),
            });
        }
    }
    made
}

/// ERROR: there is no image to be made now.
unsafe fn refuse(index: Relation, why: &str) -> ! {
    Failure::new(
        PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        // SAFETY: open relation.
        format!("cannot make an image of index \"{}\" now", unsafe { handle::name(index) }),
    )
    .detail(format!("The reason: {why}."))
    .raise()
}

/// ERROR unless the index exists, is ours, ready for inserts and on a table that the user owns.
unsafe fn check_owner(relid: pg_sys::Oid) {
    // SAFETY: catalogue access by the caller's contract.
    unsafe {
        let heap = pg_sys::IndexGetRelation(relid, true);
        let mut known = false;
        if heap != pg_sys::InvalidOid {
            if !compat::owns_relation(heap, pg_sys::GetUserId()) {
                Failure::new(
                    PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
                    "must be owner of the table of the index".to_owned(),
                )
                .raise();
            }
            worker::with_relations(relid, |_, index| {
                known = true;
                if !(*(*index).rd_index).indisready {
                    refuse(index, "the index is not valid");
                }
            });
        }
        if !known {
            Failure::new(
                PgSqlErrorCode::ERRCODE_WRONG_OBJECT_TYPE,
                format!("relation with OID {} is not a nitro index", relid.to_u32()),
            )
            .raise();
        }
    }
}

/// The valid nitro indexes of the current database on tables that the user owns.
fn own_indexes() -> Vec<pg_sys::Oid> {
    // SAFETY: a function called from SQL has catalogue access.
    let user = unsafe { pg_sys::GetUserId() };
    let mut all = Vec::new();
    // SAFETY: a plain global.
    let here = unsafe { pg_sys::MyDatabaseId }.to_u32();
    shmem::directory().for_each(|entry| {
        if entry.database() == here && entry.state() == State::Ready {
            all.push(pg_sys::Oid::from(entry.relid.load(Relaxed)));
        }
    });
    // SAFETY: as above.
    all.retain(|&relid| unsafe {
        let heap = pg_sys::IndexGetRelation(relid, true);
        heap != pg_sys::InvalidOid && compat::owns_relation(heap, user)
    });
    all
}

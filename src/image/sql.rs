//! The function `nitro_backup`, and its messages when an image cannot be made.

use std::sync::atomic::Ordering::Relaxed;

use pgrx::pg_sys::{self, Relation};
use pgrx::prelude::*;

use super::backup::{Outcome, back_up};
use crate::pg::compat;
use crate::pg::error::Failure;
use crate::state::directory::{self, State};
use crate::state::open::{self, Wrong};

/// The work of the function, as its errors name it.
const WORK: &str = "make an image of";

/// Says that an image could not be made; the one before it stays valid.
///
/// # Safety
/// `index` must be open.
pub unsafe fn warn(index: Relation, why: &str) {
    Failure::new(
        PgSqlErrorCode::ERRCODE_IO_ERROR,
        // SAFETY: by contract.
        format!("could not make an image of nitro index \"{}\": {why}", unsafe {
            compat::name(index)
        }),
    )
    .detail("The image before it, if there is one, is still valid.")
    .warn();
}

/// Makes images of an index, or of all indexes of the current database that the user owns; returns
/// how many were written or found unchanged.
#[pg_extern]
fn nitro_backup(index: Option<pg_sys::Oid>) -> i64 {
    crate::pg::witness!();
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
            open::with_index(relid, |heap, rel, handle| match back_up(heap, rel, handle) {
                Ok(Outcome::NotNow(why)) if index.is_some() => open::refuse(
                    WORK,
                    relid,
                    Wrong::Condition(format!("cannot have one now: {why}")),
                ),
                Ok(Outcome::NotNow(_)) => (),
                Ok(_) => made += 1,
                Err(why) => warn(rel, &why),
            });
        }
    }
    made
}

/// ERROR unless the index exists, is ours, ready for inserts and on a table that the user owns.
unsafe fn check_owner(relid: pg_sys::Oid) {
    // SAFETY: catalogue access by the caller's contract.
    unsafe {
        let heap = pg_sys::IndexGetRelation(relid, true);
        if heap == pg_sys::InvalidOid {
            open::refuse(WORK, relid, Wrong::Kind("is not an index"));
        }
        if !compat::owns_relation(heap, pg_sys::GetUserId()) {
            Failure::new(
                PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
                "must be owner of the table of the index",
            )
            .raise();
        }
        if pg_sys::get_rel_relkind(relid) as u8 == pg_sys::RELKIND_PARTITIONED_INDEX {
            let why = "is a partitioned index; make images of the indexes of its partitions";
            open::refuse(WORK, relid, Wrong::Kind(why));
        }
        let mut known = false;
        open::with_relations(relid, |_, index| {
            known = true;
            if !(*(*index).rd_index).indisready {
                open::refuse(WORK, relid, Wrong::Condition("is not valid".into()));
            }
        });
        if !known {
            open::refuse(WORK, relid, Wrong::Kind("is not a nitro index"));
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
    directory::get().for_each(|entry| {
        if entry.database() == here && matches!(entry.state(), State::Ready | State::Following) {
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

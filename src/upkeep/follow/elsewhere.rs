//! Indexes that this server does not host any more.

use std::sync::atomic::Ordering::Relaxed;

use pgrx::pg_sys::Oid;

use super::followed::Followed;
use super::group::Group;
use crate::pg::background::try_transaction;
use crate::pg::subtransaction;
use crate::state::directory;
use crate::state::{given_up, open};

/// Indexes among these that have memory here.
fn with_memory(here: u32, elsewhere: &[Oid]) -> Vec<Oid> {
    let mut all = Vec::new();
    directory::get().for_each(|entry| {
        let relid = Oid::from(entry.relid.load(Relaxed));
        let own = entry.database() == here && elsewhere.contains(&relid);
        if own && !given_up::is_free(entry) {
            all.push(relid);
        }
    });
    all
}

/// Retires indexes that are elsewhere; false if one of them still has memory here.
pub fn leave(here: u32, groups: &mut Vec<Group>, elsewhere: &[Oid]) -> bool {
    for group in &mut *groups {
        let leaving = |member: &mut Followed| elsewhere.contains(&member.relid);
        let left = group.members.extract_if(.., leaving);
        left.for_each(|member| member.retire("it is kept elsewhere"));
    }
    groups.retain(|group| !group.members.is_empty());
    free(here, elsewhere)
}

/// Frees what indexes that are elsewhere have in memory here; false if something is left. Scans
/// that are under way keep it until the next call after their end.
fn free(here: u32, elsewhere: &[Oid]) -> bool {
    for relid in with_memory(here, elsewhere) {
        let _ = try_transaction(
            || {
                // SAFETY: inside a transaction.
                unsafe {
                    open::with_index_at_once(relid, |_, index, handle| {
                        given_up::stop_following(index, handle.entry);
                        given_up::reclaim(index, handle.entry);
                    })
                }
            },
            |caught| subtransaction::report("nitro could not free an index".into(), caught),
        );
    }
    with_memory(here, elsewhere).is_empty()
}

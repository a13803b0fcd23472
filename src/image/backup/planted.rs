//! Wrong orders of the steps of a backup, for tests that see the answers go wrong
//! (`nitro.debug_break`).

use pgrx::pg_sys;

use super::{LsnSaid, Making, XidSaid, next_xid};
use crate::pg::guc::{self, Mechanism};
use crate::pg::stop::{self, Point};

/// Goes the steps 2 and 3 in a wrong order, if a test has asked for one. Returns what
/// [`Making::open_and_close`] does.
pub(super) fn wrong_order(making: &mut Making) -> Option<Option<u32>> {
    if !guc::holds(Mechanism::LsnFirst) {
        Some(xid_first(making))
    } else if !guc::holds(Mechanism::EarlyLsn) {
        Some(lsn_behind_the_term(making))
    } else if !guc::holds(Mechanism::OneLsn) {
        Some(second_lsn(making))
    } else {
        None
    }
}

/// The transaction ID is read before the LSN.
fn xid_first(making: &mut Making) -> Option<u32> {
    let early = next_xid();
    stop::at(Point::BackupClaimed);
    making.take_lsn();
    let said = making.say_lsn();
    let said = making.say_xid(said, early);
    (!making.is_given_up()).then(|| making.close(said))
}

/// LSN and transaction ID are published behind the close of the term.
fn lsn_behind_the_term(making: &mut Making) -> Option<u32> {
    stop::at(Point::BackupClaimed);
    making.take_lsn();
    if making.is_given_up() {
        return None;
    }
    let sn = making.close(XidSaid(()));
    let said: LsnSaid = making.say_lsn();
    making.say_xid(said, next_xid());
    Some(sn)
}

/// The image has another LSN than the one that was published.
fn second_lsn(making: &mut Making) -> Option<u32> {
    let sn = making.open_and_close()?;
    // SAFETY: outside of recovery, inside a transaction; a shared position is read.
    making.manifest.lsn = unsafe { pg_sys::GetXLogInsertRecPtr() };
    Some(sn)
}

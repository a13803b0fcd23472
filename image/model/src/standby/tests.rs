//! The rules pass. Without any one of them the checker finds a wrong answer.

use std::collections::BTreeSet;

use stateright::HasDiscoveries;

use super::Break;
use super::protocol::*;
use super::state::Left;
use crate::check::check;

const NONE: Left =
    Left { inserts: 1, builds: 0, deaths: 0, retires: 0, promotions: 0, vacuums: 0, troubles: 0 };
/// One row comes, and nobody reads.
const SMALL: Size = Size {
    begin: Begin::Followed,
    left: NONE,
    reader: false,
    index_only: false,
    again: false,
    hard: false,
    truncates: false,
    repeats: false,
};
/// One row comes, and there are scans.
const READ: Size = Size { reader: true, ..SMALL };

const PROMOTED: Left = Left { promotions: 1, ..NONE };
const VACUUMED: Left = Left { vacuums: 1, ..PROMOTED };
const MORTAL: Left = Left { deaths: 1, ..NONE };
const BUILT: Left = Left { builds: 1, ..NONE };

fn passes(size: Size) {
    if let Some((what, steps)) = check(Standby { size, broken: None }, HasDiscoveries::AnyFailures)
    {
        panic!("not true: {what}\n{steps:#?}");
    }
}

/// `what` is not true any more.
fn fails(broken: Break, what: &'static str, size: Size) {
    let until = HasDiscoveries::AnyOf(BTreeSet::from([what]));
    let (_, steps) =
        check(Standby { size, broken: Some(broken) }, until).expect("nothing is wrong without it");
    println!("{broken:?}: {what} is not true: {steps:?}");
}

/// Recovery, with each kind of event that the follower can meet.
#[test]
fn recovery() {
    let left = Left { retires: 1, ..MORTAL };
    let all = Size { left, index_only: true, again: true, hard: true, truncates: true, ..READ };
    passes(Size { repeats: true, ..all });
}

/// Builders that die, beside followers that die.
#[test]
fn builders() {
    let left = Left { builds: 1, ..MORTAL };
    passes(Size { begin: Begin::Unbuilt, left, index_only: true, ..READ });
}

/// An index that is created while it is followed, after a transaction that does not know it.
#[test]
fn creation() {
    passes(Size { begin: Begin::NoIndex, left: BUILT, ..READ });
}

#[test]
fn promotion() {
    let left = Left { troubles: 1, ..VACUUMED };
    passes(Size { left, index_only: true, ..READ });
}

#[test]
fn promotion_beside_a_builder() {
    let (left, begin) = (Left { builds: 1, ..PROMOTED }, Begin::Unbuilt);
    passes(Size { begin, left, ..READ });
    passes(Size { begin, left: Left { vacuums: 1, troubles: 1, ..left }, again: true, ..SMALL });
}

/// Two rows, so that a TID gets its third life.
#[test]
fn promotion_with_two_rows() {
    passes(Size { left: Left { inserts: 2, ..PROMOTED }, again: true, ..SMALL });
}

/// `LONG=1`: some minutes and some gigabytes.
#[test]
fn larger() {
    if std::env::var_os("LONG").is_some() {
        let left = Left { promotions: 1, deaths: 1, vacuums: 2, troubles: 1, inserts: 2, ..NONE };
        passes(Size { left, again: true, ..SMALL });
        passes(Size { left: Left { inserts: 2, ..NONE }, ..READ });
        let left = Left { retires: 1, troubles: 1, ..VACUUMED };
        passes(Size { left, index_only: true, again: true, ..READ });
        let left = Left { builds: 1, deaths: 1, ..VACUUMED };
        passes(Size { begin: Begin::Unbuilt, left, index_only: true, ..READ });
        let left = Left { retires: 1, ..MORTAL };
        let size = Size { left, index_only: true, again: true, hard: true, ..READ };
        let left = Left { promotions: 1, ..left };
        passes(Size { left, truncates: true, repeats: true, ..size });
    }
}

// R1, R2: lives and the reverse map.

#[test]
fn every_life_has_a_record() {
    fails(Break::Lives, MISSING, READ);
    fails(Break::Lives, WRONG, READ);
}

#[test]
fn the_reverse_map_knows_every_entry() {
    for broken in [Break::Reverse, Break::ReverseFirst] {
        fails(broken, UNKNOWN, SMALL);
        fails(broken, WRONG, Size { left: MORTAL, ..READ });
    }
}

// R3 and R5: the bound, and the words that it is compared with.

#[test]
fn scans_wait_for_their_bound() {
    fails(Break::Bound, MISSING, READ);
    fails(Break::BoundFirst, MISSING, READ);
    fails(Break::NewSnapshots, MISSING, Size { left: PROMOTED, ..READ });
}

#[test]
fn words_are_stored_and_loaded_in_order() {
    fails(Break::Order, MISSING, READ);
    fails(Break::LoadsState, MISSING, READ);
}

#[test]
fn work_counts_up_to_where_it_was_classified() {
    fails(Break::ReflectsDecoded, WRONG, READ);
}

#[test]
fn a_new_follower_does_the_work_of_a_dead_one() {
    fails(Break::Restart, MISSING, Size { left: MORTAL, ..READ });
    fails(Break::IdleEarly, MISSING, Size { left: MORTAL, ..READ });
    fails(Break::Applier, STUCK, Size { left: MORTAL, ..SMALL });
}

#[test]
fn reflects_only_rises() {
    let left = Left { deaths: 1, ..PROMOTED };
    fails(Break::Falls, MISSING, Size { left, repeats: true, ..READ });
}

// R4, R7 and R10: what old snapshots see.

#[test]
fn the_horizon_counts_snapshots_of_this_server() {
    fails(Break::Horizon, MISSING, READ);
}

#[test]
fn an_index_is_used_by_snapshots_that_know_it() {
    fails(Break::OldSnapshots, MISSING, Size { begin: Begin::NoIndex, left: BUILT, ..READ });
    fails(Break::OldSnapshots, WRONG, Size { begin: Begin::NoIndex, left: BUILT, ..READ });
}

#[test]
fn an_index_is_built_when_all_transactions_know_it() {
    fails(Break::Creation, MISSING, Size { begin: Begin::NoIndex, left: BUILT, ..READ });
}

#[test]
fn a_retired_index_stays_for_its_scans() {
    fails(Break::Reclaim, MISSING, Size { left: Left { retires: 1, ..NONE }, ..READ });
}

// Blocks and rows.

#[test]
fn truncation_has_no_action() {
    fails(Break::Cut, MISSING, Size { truncates: true, ..READ });
}

#[test]
fn blocks_are_counted_in_every_transaction() {
    fails(Break::Blocks, MISSING, Size { truncates: true, ..READ });
}

#[test]
fn rows_that_cannot_be_evaluated_are_waited_for() {
    for broken in [Break::LeftOut, Break::Listed, Break::DeletedLeftOut] {
        fails(broken, MISSING, Size { hard: true, ..READ });
    }
}

// R11: the visibility map.

#[test]
fn bits_count_up_to_what_the_index_reflects() {
    for broken in [Break::Map, Break::MapLate, Break::Gone] {
        fails(broken, EXTRA, Size { index_only: true, ..READ });
    }
}

#[test]
fn a_retired_index_reflects_no_more() {
    let left = Left { retires: 1, ..NONE };
    fails(Break::Retired, EXTRA, Size { left, index_only: true, ..READ });
}

#[test]
fn a_bound_is_not_exchanged_for_a_token() {
    fails(Break::Batch, EXTRA, Size { left: PROMOTED, index_only: true, ..READ });
}

// Builders.

#[test]
fn the_follower_collects_before_the_walk() {
    fails(Break::WalkFirst, MISSING, Size { begin: Begin::Unbuilt, left: BUILT, ..READ });
}

#[test]
fn a_builder_of_recovery_ends_following() {
    let left = Left { builds: 1, ..PROMOTED };
    fails(Break::Builder, DANGLING, Size { begin: Begin::Unbuilt, left, ..SMALL });
}

// R12: the takeover.

#[test]
fn what_went_is_removed_before_entries_are_published() {
    for broken in [Break::TakeoverFirst, Break::TakeoverOnce, Break::TakeoverLooks] {
        fails(broken, DANGLING, Size { left: PROMOTED, ..SMALL });
    }
}

#[test]
fn what_scans_read_stays() {
    fails(Break::TakeoverEmpties, MISSING, Size { left: PROMOTED, ..READ });
}

#[test]
fn the_takeover_is_alone() {
    fails(Break::Beside, DANGLING, Size { left: PROMOTED, ..SMALL });
    fails(Break::VacuumUnlocked, DANGLING, Size { left: VACUUMED, ..SMALL });
}

#[test]
fn bulk_delete_may_leave_it_to_the_takeover() {
    fails(Break::DeadRoots, DANGLING, Size { left: VACUUMED, ..SMALL });
}

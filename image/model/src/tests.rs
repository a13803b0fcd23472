//! Today's protocol passes; without any one of its mechanisms it does not.
//!
//! `cargo test -p nitro-model -- --nocapture` prints how many states were looked at, and the
//! shortest way to each wrong answer.

use stateright::HasDiscoveries;

use crate::check::check;
use crate::protocol::{Action, Protocol, Size};
use crate::state::Break;

const SMALL: Size = Size {
    inserts: 1,
    images: 1,
    vacuums: 0,
    crashes: 1,
    troubles: 0,
    reader: false,
    sorts: false,
};

fn run(size: Size, broken: Option<Break>) -> Option<(&'static str, Vec<Action>)> {
    check(Protocol { size, broken }, HasDiscoveries::AnyFailures)
}

fn passes(size: Size) {
    if let Some((what, steps)) = run(size, None) {
        panic!("not true: {what}\n{steps:#?}");
    }
}

/// `what` is not true any more.
fn fails(broken: Break, what: &str, size: Size) {
    let (found, steps) = run(size, Some(broken)).expect("nothing is wrong without it");
    assert_eq!(found, what, "{steps:#?}");
    println!("{broken:?}: {what} is not true: {steps:?}");
}

const MISSING: &str = "no missing entry";
const DANGLING: &str = "no dangling entry";
const IN_HAND: &str = "no dangling TID in hand";

/// Everything at once: two images, and one event of each kind that is not a row's.
#[test]
fn whole() {
    passes(Size { inserts: 2, images: 2, vacuums: 1, troubles: 1, ..SMALL });
}

#[test]
fn with_a_reader() {
    passes(Size { inserts: 2, vacuums: 1, reader: true, ..SMALL });
}

/// Tables that are sorted, with and without images.
#[test]
fn sorted() {
    let size = Size { vacuums: 1, troubles: 1, sorts: true, ..SMALL };
    passes(Size { inserts: 2, images: 0, ..size });
    passes(Size { troubles: 2, ..size });
}

#[test]
fn two_crashes() {
    passes(Size { vacuums: 1, crashes: 2, troubles: 1, ..SMALL });
}

#[test]
fn two_troubles() {
    passes(Size { vacuums: 1, troubles: 2, ..SMALL });
}

/// `LONG=1`: some minutes and some gigabytes.
#[test]
fn larger() {
    if std::env::var_os("LONG").is_some() {
        passes(Size { vacuums: 2, troubles: 2, ..SMALL });
        passes(Size { images: 2, vacuums: 1, crashes: 2, troubles: 1, ..SMALL });
        passes(Size { inserts: 2, vacuums: 1, troubles: 1, reader: true, ..SMALL });
        passes(Size { inserts: 3, vacuums: 2, ..SMALL });
        passes(Size { inserts: 2, images: 2, vacuums: 1, troubles: 1, sorts: true, ..SMALL });
    }
}

// Images.

#[test]
fn b_is_read_before_x() {
    fails(Break::XBeforeB, MISSING, SMALL);
}

#[test]
fn b_is_read_before_the_snapshot() {
    fails(Break::BAfterSnapshot, MISSING, SMALL);
}

#[test]
fn writers_of_the_term_are_waited_for() {
    fails(Break::NoWait, MISSING, SMALL);
}

#[test]
fn the_wal_is_flushed_before_the_manifest() {
    fails(Break::NoFlush, MISSING, SMALL);
    fails(Break::FlushBeforeWriting, MISSING, SMALL);
}

#[test]
fn an_unchanged_image_needs_the_same_steps() {
    fails(Break::RefreshAtOnce, MISSING, Size { images: 2, ..SMALL });
}

#[test]
fn images_are_of_ready_indexes() {
    fails(Break::HalfImages, MISSING, Size { troubles: 1, ..SMALL });
}

#[test]
fn straddlers_log_their_page() {
    fails(Break::Straddlers, MISSING, SMALL);
}

#[test]
fn the_term_is_read_before_the_page() {
    fails(Break::TermLate, MISSING, SMALL);
}

// Bringing an index up.

#[test]
fn changed_blocks_are_left_out() {
    fails(Break::Filter, DANGLING, Size { vacuums: 1, ..SMALL });
}

#[test]
fn changed_blocks_are_read_again() {
    fails(Break::Reread, MISSING, SMALL);
}

#[test]
fn the_wal_is_read_to_where_entries_are_published() {
    fails(Break::WalkEnd, MISSING, SMALL);
}

#[test]
fn the_wal_is_flushed_before_it_is_read() {
    fails(Break::ReadUnflushed, MISSING, Size { troubles: 1, ..SMALL });
}

#[test]
fn a_table_is_sorted_as_of_before_its_blocks() {
    let size = Size { images: 0, sorts: true, ..SMALL };
    fails(Break::SortedBefore, MISSING, size);
    fails(Break::WalkEnd, MISSING, size);
    fails(Break::Reread, MISSING, size);
}

#[test]
fn what_published_is_not_loaded_again() {
    fails(Break::LoadAgain, DANGLING, Size { vacuums: 1, troubles: 2, ..SMALL });
}

// VACUUM.

#[test]
fn no_image_is_loaded_after_bulk_delete() {
    fails(Break::Forget, DANGLING, Size { vacuums: 1, ..SMALL });
}

#[test]
fn bulk_delete_keeps_walks_out() {
    fails(Break::NoLock, DANGLING, Size { vacuums: 1, ..SMALL });
    fails(Break::NoLock, DANGLING, Size { images: 0, vacuums: 1, sorts: true, ..SMALL });
}

#[test]
fn bulk_delete_waits_for_tids_in_hand() {
    let size = Size { images: 0, crashes: 0, vacuums: 1, reader: true, ..SMALL };
    fails(Break::Token, IN_HAND, size);
    fails(Break::TokenIfDeleted, IN_HAND, size);
}

//! Pins: leaves that stay while a walk over all leaves stands at them.
//!
//! VACUUM's pass, a sweep, an image and a check go over all entries of an index. Their result must
//! be complete, so they ask no order where they are. They go from each leaf to the one that is
//! linked behind it. Between two calls they are outside of every section, for any time, and a pin
//! keeps the place.
//!
//! A leaf with pins does not become DEAD: the collector does not merge it into its left neighbour,
//! takes no entries from its front, and does not move it. So its memory stays the leaf's own. The
//! leaf may be split, change its form, and take entries from its right neighbours.
//!
//! *Invariant*: no entry crosses the beginning of a leaf that is pinned. It follows from I7
//! (`node/block.rs`): a split moves entries into a leaf directly behind their own, which is in
//! front of the next pinned one. Entries go to the left only where their leaf becomes DEAD.
//!
//! The pins of a leaf are a count in its header. A walk counts itself and then looks whether the
//! leaf is DEAD; the collector latches the leaf and then looks whether it has pins. Each announces,
//! passes a fence, and looks (Dekker):
//! * the walk's fence comes first: the collector sees the pin, and the leaf stays;
//! * the collector's fence comes first: the walk sees the latch, or a later state. It waits until
//!   the latch is given up. The leaf is DEAD then, or it stays and any later collector sees the
//!   pin.
//!
//! A walk holds no process up: a pin is no latch, and readers and writers do not look at it.
//!
//! A count that is full stays full, and its leaf is never merged. That takes more than a hundred
//! walks at one leaf.
//!
//! A process remembers its pins. One that ends without unwinding gives them up with its sections
//! ([`Process::abandon`](crate::memory::process::Process::abandon)).

use super::block::Block;
use crate::sync::atomic::{Ordering::*, fence};
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;

/// One pin in [`Block::kind`], behind the level.
const PIN: u8 = 2;
/// The full count.
const FULL: u8 = !1;

/// Counts a pin of a leaf. Returns false, and counts nothing, if the leaf is DEAD. The caller is in
/// the section in which it found the leaf.
pub(crate) fn pin(b: Block) -> bool {
    count(b, |kind| kind + PIN);
    if !mutant!("a fence between a pin and the look at the leaf") {
        fence(SeqCst);
    }
    stop!("pin: counted");
    let alive = b.is_alive();
    if !alive {
        unpin(b);
    }
    alive
}

pub(crate) fn unpin(b: Block) {
    count(b, |kind| kind - PIN);
}

fn count(b: Block, change: impl Fn(u8) -> u8) {
    let mut kind = b.kind().load(Relaxed);
    // An exchange fails only if that of another process did not.
    while kind & FULL != FULL {
        match b.kind().compare_exchange_weak(kind, change(kind), AcqRel, Relaxed) {
            Ok(_) => return,
            Err(now) => kind = now,
        }
    }
}

/// Returns true if walks stand at this leaf. The caller has the latch, and asks before it makes the
/// leaf DEAD.
pub(crate) fn has_pins(b: Block) -> bool {
    if !mutant!("a fence between a latch and the look at the pins") {
        fence(SeqCst);
    }
    b.kind().load(Acquire) >= PIN
}

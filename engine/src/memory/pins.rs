//! The pins that a process has: leaves that stay for its walks (`node/pin.rs`).

use super::area::Area;
use super::place::Ref;
use core::cell::RefCell;

/// A pinned leaf, and the function that releases its pin.
struct Pinned {
    root: Ref,
    leaf: Ref,
    give_up: fn(Area, Ref),
}

/// The pins that a process has.
#[derive(Default)]
pub(crate) struct Pins(RefCell<Vec<Pinned>>);

impl Pins {
    /// Remembers a pin of a leaf of the index at `root`.
    pub(crate) fn add(&self, root: Ref, leaf: Ref, give_up: fn(Area, Ref)) {
        self.0.borrow_mut().push(Pinned { root, leaf, give_up });
    }

    /// Releases a pin.
    pub(crate) fn give_up(&self, area: Area, root: Ref, leaf: Ref) {
        let mut all = self.0.borrow_mut();
        let at = all.iter().rposition(|pin| pin.leaf == leaf && pin.root == root);
        let pin = all.swap_remove(at.expect("a pin is of a process that has it"));
        (pin.give_up)(area, leaf);
    }

    /// Releases all pins.
    pub(crate) fn clear(&self, area: Area) {
        for pin in self.0.take() {
            (pin.give_up)(area, pin.leaf);
        }
    }
}

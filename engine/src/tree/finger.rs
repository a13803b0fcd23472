//! Fingers: the places where a process inserted last. Keys that come in order then need no search
//! from the top.
//!
//! A finger is a leaf and a place in it. Nothing keeps the leaf alive. An insert uses the finger if
//! all of this holds:
//! 1. The leaf is of the index that is asked for ([`Index::identity`]: not of one whose memory this
//!    had been).
//! 2. The session in which it was alive is still open, looked at inside a section. Then its memory
//!    is what it was, and stays so until that section ends: see "Fingers" in
//!    [`crate::memory::barrier`].
//! 3. It is not DEAD. An entry in a DEAD leaf would never be found.
//! 4. The key belongs between two keys of the leaf, in the state in which the insert then asks for
//!    the latch. So the key is in the range of the leaf, and no node above has to be read. If the
//!    key has entries already, some may be in neighbour leaves, unless it has a neighbour key on
//!    either side in this leaf.
//!
//! The leaf may be about to die and still have its entries. The leaf that has taken them does not
//! change before this one is DEAD (`tree/relink.rs`). So its entries are in the index.
//!
//! Only the first attempt of an insert uses a finger. The process that holds the latch there may be
//! descheduled, and a search may lead elsewhere.
//!
//! Two inserts in a row into one leaf make a finger. Where keys come in no order, looking at the
//! leaf of the last insert would cost more than it saves.

use crate::index::root::Index;
use crate::key::order::KeyOrder;
use crate::memory::fingers::Finger;
use crate::memory::place::Ref;
use crate::memory::process::Process;
use crate::node::probe::{Place, Probe};
use crate::sync::mutants::mutant;
use crate::tree::seek::Position;

/// Returns the place of a probe by a finger of this process. Inside the barrier.
#[inline]
pub(crate) fn finger_spot<O: KeyOrder>(
    index: &Index,
    p: &Process,
    probe: &Probe<'_, O>,
) -> Option<Position> {
    let id = index.id();
    let finger = p.fingers().of(id).get();
    let same = finger.id == id || mutant!("a finger is of one index");
    if !O::MEMCMP || !finger.twice || !same || !p.is_open(finger.session) {
        return None;
    }
    let v = index.block(finger.leaf).view();
    if v.dead() && !mutant!("a finger's leaf is alive") {
        return None;
    }
    let leaf = v.packed().ok()??;
    let found = leaf.search_between(probe.key, probe.tid, finger.keys as usize)?;
    let place = Place::packed(&found, leaf.len(), true);
    v.valid().then_some(Position { v, place, prefix: 0, beyond: false, leaf: finger.leaf })
}

/// Notes an insert into a packed leaf at key number `key`. The caller is still in the section in
/// which the leaf was latched.
#[inline]
pub(crate) fn put_finger(index: &Index, p: &Process, leaf: Ref, key: usize) {
    let id = index.id();
    let cell = p.fingers().of(id);
    let before = cell.get();
    let twice = before.id == id && before.leaf == leaf;
    cell.set(Finger { id, session: p.session(), leaf, keys: key as u32 + 1, twice });
}

#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "../tests/finger.rs"]
mod tests;

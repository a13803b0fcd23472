//! Where a process inserted last: keys that come in order need no search from the top.
//!
//! A finger is a leaf and a place in it, which nothing keeps there. It is used if all of this
//! holds:
//! 1. The leaf is of the index that is asked for ([`Index::identity`]: not of one whose memory this
//!    had been).
//! 2. The session in which it was alive is still open, looked at inside a section. Then its memory
//!    is what it was, and stays so until that section ends: see "Fingers" in
//!    [`crate::memory::barrier`].
//! 3. It is not DEAD. An entry in a DEAD leaf would never be found.
//! 4. The key belongs between two keys that it has, in the state that the latch is then asked for.
//!    So the leaf's range has the key, whatever that is now, and no node above has to be
//!    read. Of a key that is there already other entries may be in neighbours, unless it has a
//!    neighbour on either side in this leaf.
//!
//! The leaf may be one that dies at this moment, and have its entries still. The leaf that has
//! taken them does not change before it is DEAD (`tree/relink.rs`), so what it has is true.
//!
//! Only the first attempt of an insert goes by a finger: the process that holds the latch there may
//! be descheduled, and a search may lead elsewhere.
//!
//! Two inserts one after the other into one leaf make a finger: where keys come in no order, a look
//! at the leaf before would cost what it never wins.

use crate::index::root::Index;
use crate::key::order::KeyOrder;
use crate::memory::fingers::Finger;
use crate::memory::place::Ref;
use crate::memory::process::Process;
use crate::node::probe::{Place, Probe};
use crate::sync::mutants::mutant;
use crate::tree::seek::Position;

/// The place of a probe that goes on where this process inserted last. Inside the barrier.
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

/// An entry was inserted into a packed leaf, as one of its key number `key`. Inside the section in
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

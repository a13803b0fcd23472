//! Flat tops that were replaced and wait for the barrier.

use crate::index::root::Index;
use crate::index::top_state::Array;
use crate::memory::place::Ref;
use crate::sync::atomic::Ordering::*;
use crate::sync::stop::stop;

/// Puts arrays that wait on the list, from the one that was retired last to the first.
pub(crate) fn retire(index: &Index, last: Ref, first: Ref) {
    let retired = &index.shared().top_state.retired;
    let mut head = retired.load(Relaxed);
    // An exchange fails only if that of another process did not.
    loop {
        Array(index.area.at(first)).header().before.store(head, Relaxed);
        match retired.compare_exchange_weak(head, last, Release, Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// Frees arrays that no process reads any more.
///
/// A process that stays inside must not cost a walk over the list each time. A process that retires
/// an array is inside until the array is on the list, and it closes the open session. So all arrays
/// that stayed or came after the last walk wait for a session that is not below the oldest one of
/// that walk.
pub(crate) fn reclaim(index: &Index) {
    let state = &index.shared().top_state;
    if state.retired.load(Relaxed) == 0 {
        return;
    }
    let oldest = index.area.oldest_session(index.root);
    if oldest <= state.waits_for.load(Relaxed) {
        return;
    }
    // No other process has them now. Those that stay go back.
    let mut at = state.retired.swap(0, Acquire);
    stop!("top: list taken");
    let (mut last, mut first) = (0, 0);
    // Ends: a list grows at its head, and that was taken.
    while at != 0 {
        let header = Array(index.area.at(at)).header();
        let before = header.before.load(Relaxed);
        if oldest > header.session.load(Relaxed) {
            free(index, at);
        } else if first == 0 {
            (last, first) = (at, at);
        } else {
            Array(index.area.at(first)).header().before.store(at, Relaxed);
            first = at;
        }
        at = before;
    }
    if first != 0 {
        retire(index, last, first);
    }
    state.waits_for.store(oldest, Relaxed);
}

/// Frees an array that no other process knows.
pub(crate) fn free(index: &Index, array: Ref) {
    let bytes = Array(index.area.at(array)).header().bytes as usize;
    index.allocator().free_span(&index.area, array, bytes);
}

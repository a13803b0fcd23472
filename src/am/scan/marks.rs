//! A remembered place: what a merge join goes back to.

use pgrx::pg_sys::IndexScanDesc;
use pgrx::prelude::*;

use super::state;
use super::walk::Place;
use crate::pg::memory;

pub(super) struct Mark {
    at: Vec<usize>,
    place: Place,
}

/// Remembers the current entry (`ammarkpos`).
#[pg_guard]
pub unsafe extern "C-unwind" fn mark(scan: IndexScanDesc) {
    crate::pg::witness!();
    // SAFETY: see `state`.
    let state = unsafe { state(scan) };
    state.flush_kills();
    state.token.mark(state.process);
    memory::expect(state.place.cursor.key_bytes());
    match &mut state.mark {
        Some(mark) => {
            mark.at.clone_from(&state.at);
            mark.place.clone_from(&state.place);
        }
        None => {
            state.mark = Some(Box::new(Mark { at: state.at.clone(), place: state.place.clone() }));
        }
    }
}

/// Returns to the remembered entry (`amrestrpos`).
#[pg_guard]
pub unsafe extern "C-unwind" fn restore(scan: IndexScanDesc) {
    crate::pg::witness!();
    // SAFETY: see `state`.
    let state = unsafe { state(scan) };
    state.flush_kills();
    state.token.restore(state.process);
    if let Some(mark) = &state.mark {
        memory::expect(mark.place.cursor.key_bytes());
        state.at.clone_from(&mark.at);
        state.place.clone_from(&mark.place);
    }
}

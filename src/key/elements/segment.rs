//! Segments of elements.

use crate::key::bound::Edge;
use crate::key::codec::{self, Layout};
use crate::key::datum;
use crate::key::desc::KeyDesc;
use pgrx::pg_sys::Datum;

/// The segment of an element of the element column.
///
/// # Safety
/// `element` must be a value of the column's element type.
pub unsafe fn of_element(desc: &KeyDesc, column: usize, element: Datum) -> Vec<u8> {
    let mut segment = Vec::new();
    // SAFETY: by contract.
    unsafe { datum::put(desc.columns[column].codec, element, &mut segment, |_| ()) };
    segment
}

/// Where the strings with a prefix begin and end among the segments of a column of strings.
///
/// # Safety
/// `prefix` must be a text.
pub unsafe fn prefix_edges(prefix: Datum) -> (Edge, Edge) {
    let mut lower = Vec::new();
    // SAFETY: by contract.
    unsafe { datum::with_bytes(Layout::Varlena, prefix, |b| codec::put_bytes(&mut lower, b)) };
    // Without the end of the string.
    lower.pop();
    let mut upper = lower.clone();
    while upper.last() == Some(&0xFF) {
        upper.pop();
    }
    if let Some(last) = upper.last_mut() {
        *last += 1;
    }
    (Edge::Before(lower), Edge::Before(upper))
}

/// The segment of an entry of a document.
pub fn of_entry(entry: &[u8]) -> Vec<u8> {
    let mut segment = Vec::new();
    codec::put_bytes(&mut segment, entry);
    segment
}

//! Answers to the server's questions each time a plan describes an index. Most of them call nothing
//! that can fail, so they have no guard.

use pgrx::pg_sys::Relation;
use pgrx::prelude::*;

use crate::key::elements::index::{element_column, may_hold_elements};
use crate::pg::{catalog, compat};
use crate::state::known;

/// Whether a column's exact datum can be given back (`amcanreturn`): always, see `key` on payload,
/// but for an index that has many entries per row. Must not look at the index' storage: the server
/// also asks for partitioned indexes, which have none.
///
/// Where the last plan has found out the order of the index, the server need not find it out. An
/// index with expressions or a predicate shows its order in each plan: see `compat::hide_order`.
pub unsafe extern "C-unwind" fn can_return(index: Relation, column: i32) -> bool {
    // SAFETY: the server passes an open index.
    unsafe {
        if may_hold_elements(index) && holds_elements(index) {
            return false;
        }
        let last = i32::from((*(*index).rd_index).indnatts);
        if column == last && known::is_ordered((*index).rd_id) && !catalog::has_clauses(index) {
            compat::hide_order(index);
        }
    }
    true
}

#[pg_guard]
unsafe extern "C-unwind" fn holds_elements(index: Relation) -> bool {
    crate::pg::witness!();
    // SAFETY: the server passes an open index.
    unsafe { element_column(index) }.is_some()
}

/// The height of an index is not known before a query can use it (`amgettreeheight`). The server
/// asks last for it: see `compat::hide_order`.
pub unsafe extern "C-unwind" fn tree_height(_index: Relation) -> i32 {
    compat::show_order();
    -1
}

//! Running an index' code as its table's owner.
//!
//! Predicates, expressions and comparison functions belong to the owner of the table. A role that
//! runs them for nitro (a rebuild, a verification) must not lend them its rights. These are the
//! same steps that `index_build` takes.

use pgrx::pg_sys::{self, Oid, Relation};

use crate::pg::compat;
use crate::pg::guc::{self, Mechanism};

/// The caller's identity, to return to. An ERROR returns to it by aborting the (sub)transaction.
pub struct AsOwner {
    user: Oid,
    security: i32,
    guc_level: i32,
}

impl AsOwner {
    /// Switches to the owner of a table, under SECURITY_RESTRICTED_OPERATION, with a GUC level of
    /// its own and a safe search_path.
    ///
    /// # Safety
    /// `heap` must be open, inside a transaction.
    pub unsafe fn begin(heap: Relation) -> AsOwner {
        // SAFETY: by contract; transaction abort undoes every step.
        unsafe {
            let (mut user, mut security) = (pg_sys::InvalidOid, 0);
            pg_sys::GetUserIdAndSecContext(&mut user, &mut security);
            if guc::holds(Mechanism::Owner) {
                pg_sys::SetUserIdAndSecContext(
                    (*(*heap).rd_rel).relowner,
                    security | pg_sys::SECURITY_RESTRICTED_OPERATION as i32,
                );
            }
            let guc_level = pg_sys::NewGUCNestLevel();
            compat::restrict_search_path();
            AsOwner { user, security, guc_level }
        }
    }

    /// Returns to the caller's identity and settings.
    ///
    /// # Safety
    /// At the nesting level of `begin`.
    pub unsafe fn end(self) {
        // SAFETY: the reverse of `begin`.
        unsafe {
            pg_sys::AtEOXact_GUC(false, self.guc_level);
            pg_sys::SetUserIdAndSecContext(self.user, self.security);
        }
    }
}

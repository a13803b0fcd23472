//! Nodes of the executor that still have the server's function, and queries whose rows may be read
//! without it.

use std::ffi::c_void;
use std::sync::OnceLock;

use pgrx::pg_sys::{self, PlanState};

use crate::pg::guc;

/// Whether rows may be read without the server's functions, under this snapshot.
pub(super) unsafe fn is_allowed(snapshot: pg_sys::Snapshot) -> bool {
    // SAFETY: as below.
    guc::ENABLE_FAST_SCAN.get() && unsafe { is_plain(snapshot) }
}

/// Whether rows are only those that a snapshot sees, and the server does no more for each than to
/// read it.
pub(super) unsafe fn is_plain(snapshot: pg_sys::Snapshot) -> bool {
    // SAFETY: the snapshot of a query, or null.
    unsafe {
        pg_sys::XactIsoLevel != pg_sys::XACT_SERIALIZABLE as i32
            && !snapshot.is_null()
            && (*snapshot).snapshot_type == pg_sys::SnapshotType::SNAPSHOT_MVCC
    }
}

/// Whether a node still has the server's own function, which is remembered in `known` for nodes of
/// its type: another extension's is left alone.
pub(super) unsafe fn is_servers(
    node: *mut PlanState,
    known: &OnceLock<pg_sys::ExecProcNodeMtd>,
) -> bool {
    // SAFETY: an initialized node.
    let function = unsafe { (*node).ExecProcNodeReal };
    if let Some(stock) = known.get() {
        return stock.map(|f| f as usize) == function.map(|f| f as usize);
    }
    let file_of = |address: usize| {
        // SAFETY: fills the structure for any address.
        unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            let found = libc::dladdr(address as *const c_void, &mut info) != 0;
            found.then_some(info.dli_fbase as usize)
        }
    };
    let server = file_of(&raw const pg_sys::NBuffers as usize);
    let stock = server.is_some() && function.and_then(|f| file_of(f as usize)) == server;
    if stock {
        known.get_or_init(|| function);
    }
    stock
}

//! A line of CONTEXT for ERRORs: the index for which a table is being read. An error of an
//! expression does not name its index, and the statement need not have named it.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use pgrx::pg_sys::{self, ErrorContextCallback, Relation};

use crate::pg::error;

/// As long as it lives, errors name the index for which the table is being read.
pub struct Reading<'n> {
    node: &'n mut MaybeUninit<ErrorContextCallback>,
}

impl<'n> Reading<'n> {
    /// Puts the line on the server's stack of error contexts.
    ///
    /// # Safety
    /// On the server's thread, below a witness. `index` must be open. The result must be dropped in
    /// the frame that has the node, last in first out.
    pub unsafe fn new(
        node: &'n mut MaybeUninit<ErrorContextCallback>,
        index: Relation,
    ) -> Reading<'n> {
        let this = node.as_mut_ptr();
        // SAFETY: the server's stack is a plain global of its thread; the node outlives its place
        // there.
        unsafe {
            this.write(ErrorContextCallback {
                previous: pg_sys::error_context_stack,
                callback: Some(say),
                arg: index.cast(),
            });
            pg_sys::error_context_stack = this;
        }
        Reading { node }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        // SAFETY: written by `new`. All that was put on the stack above has been taken off: the
        // bindings restore the stack of their caller, with or without an ERROR.
        unsafe { pg_sys::error_context_stack = self.node.assume_init_ref().previous };
    }
}

/// Runs while an ERROR is handled: it may raise none.
unsafe extern "C-unwind" fn say(index: *mut c_void) {
    let index: Relation = index.cast();
    // SAFETY: the index is open as long as the line is on the stack.
    unsafe {
        error::errcontext_msg(
            c"while reading the table of nitro index \"%s\"".as_ptr(),
            (*(*index).rd_rel).relname.data.as_ptr(),
        );
    }
}

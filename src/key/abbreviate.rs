//! Abbreviations of collated strings: eight bytes that compare like them.
//!
//! Under most collations a library compares two strings, which takes some hundred nanoseconds. For
//! ICU the server's sort support makes a number of the first eight bytes of a string's sort key.
//! Almost all comparisons are then those of two numbers. (The server does not trust the C library
//! with that, and neither does nitro.) The numbers depend on the version of the collation, as the
//! order does.

use super::codec::Layout;
use super::scratch::Scratch;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::pg_sys::{self, Oid, SortSupportData};
use std::cell::Cell;
use std::ptr::NonNull;

/// The server's state keeps a copy of the longest string. After one of more bytes it is made anew.
const LONG: usize = 1 << 14;

/// Abbreviates the strings of one collation.
pub struct Abbreviator {
    typid: Oid,
    collation: Oid,
    /// Holds nothing but the server's state.
    context: pg_sys::MemoryContext,
    /// The server's state. Taken away during a call: an ERROR leaves it half changed, and it is
    /// made anew.
    support: Cell<Option<NonNull<SortSupportData>>>,
}

impl Abbreviator {
    /// That of a comparison function, if there is one for this collation.
    ///
    /// # Safety
    /// Needs catalogue access; `parent` must outlive the abbreviator.
    pub unsafe fn new(
        compare: Oid,
        collation: Oid,
        parent: pg_sys::MemoryContext,
    ) -> Option<Abbreviator> {
        let typid = match compare.to_u32() {
            pg_sys::F_BTTEXTCMP => pg_sys::TEXTOID,
            pg_sys::F_BPCHARCMP => pg_sys::BPCHAROID,
            pg_sys::F_BTNAMECMP => pg_sys::NAMEOID,
            _ => return None,
        };
        // SAFETY: a new context in one that outlives it; the name is a constant.
        let context = unsafe {
            pg_sys::AllocSetContextCreateExtended(
                parent,
                c"nitro abbreviations".as_ptr(),
                0,
                1024,
                pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
            )
        };
        let abbreviator = Abbreviator { typid, collation, context, support: Cell::new(None) };
        let support = abbreviator.prepare();
        // SAFETY: made just now.
        if unsafe { support.as_ref() }.abbrev_converter.is_none() {
            // SAFETY: no pointer into it is left.
            unsafe { pg_sys::MemoryContextDelete(context) };
            return None;
        }
        abbreviator.support.set(Some(support));
        Some(abbreviator)
    }

    /// Makes the server's state.
    fn prepare(&self) -> NonNull<SortSupportData> {
        // SAFETY: the content of the context is not used when `support` is empty. The server
        // allocates its state in the current context.
        unsafe {
            pg_sys::MemoryContextReset(self.context);
            let _inside = Inside::of(self.context);
            let support: *mut SortSupportData =
                pg_sys::palloc0(size_of::<SortSupportData>()).cast();
            (*support).ssup_cxt = self.context;
            (*support).ssup_collation = self.collation;
            (*support).abbreviate = true;
            pg_sys::varstr_sortsupport(support, self.typid, self.collation);
            NonNull::new_unchecked(support)
        }
    }

    /// A number that compares like the strings as far as it goes; equal strings have the same.
    pub fn abbreviate(&self, layout: Layout, bytes: &[u8]) -> u64 {
        let mut scratch = Scratch::new();
        let string = scratch.datum(layout, bytes);
        let support = self.support.take().unwrap_or_else(|| self.prepare());
        // SAFETY: state of this collation in our context, which is where it lets its copies grow;
        // the string lives across the call. The converter is the server's own, and runs no code of
        // users. It makes numbers that are compared without sign.
        let abbrev = unsafe {
            let convert = (*support.as_ptr()).abbrev_converter.expect("a collation that has them");
            let _inside = Inside::of(self.context);
            pg_guard_ffi_boundary(|| convert(string, support.as_ptr()))
        };
        if bytes.len() <= LONG {
            self.support.set(Some(support));
        }
        abbrev.value() as u64
    }
}

/// Makes a memory context the current one, for as long as this lives; also an ERROR ends it.
struct Inside(pg_sys::MemoryContext);

impl Inside {
    /// # Safety
    /// The context must exist, and the current one for as long as this lives.
    unsafe fn of(context: pg_sys::MemoryContext) -> Inside {
        // SAFETY: by contract.
        Inside(unsafe { pg_sys::MemoryContextSwitchTo(context) })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // SAFETY: it exists, by the contract of `of`.
        unsafe { pg_sys::MemoryContextSwitchTo(self.0) };
    }
}

//! Comparison functions of operator classes.

use super::abbreviate::Abbreviator;
use super::codec::Layout;
use super::collation;
use super::scratch::Scratch;
use super::strcoll::Locale;
use crate::pg::text;
use pgrx::pg_sys::{self, Oid};
use std::cell::Cell;
use std::cmp::Ordering;

/// An operator class's comparison function, ready to be called.
pub struct Comparator {
    function: *mut pg_sys::FmgrInfo,
    collation: Oid,
    /// Whether a call is under way. Functions keep the state of a call in `function`. So a function
    /// that comes back to this index by a query of its own gets another place.
    called: Cell<bool>,
    pub(super) abbreviator: Option<Abbreviator>,
    /// Compares in place of the function.
    pub(super) locale: Option<Locale>,
}

/// Ends a call, also when an ERROR of the function unwinds.
struct Called<'a>(&'a Cell<bool>);

impl Drop for Called<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Comparator {
    /// Looks the function up; its state lives in `context`.
    ///
    /// # Safety
    /// `function` must be a btree comparison function; `context` must outlive the comparator.
    pub unsafe fn new(function: Oid, collation: Oid, context: pg_sys::MemoryContext) -> Comparator {
        // SAFETY: plain allocation in a context that outlives us, then a catalogue look-up.
        unsafe {
            let info = pg_sys::MemoryContextAllocZero(context, size_of::<pg_sys::FmgrInfo>());
            pg_sys::fmgr_info_cxt(function, info.cast(), context);
            let strings = collation::compares_strings(function);
            Comparator {
                function: info.cast(),
                collation,
                called: Cell::new(false),
                abbreviator: Abbreviator::new(function, collation, context),
                locale: strings.then(|| collation::libc_locale(collation)).flatten(),
            }
        }
    }

    /// The function's name and argument types.
    pub(super) fn name(&self) -> String {
        // SAFETY: a function that is looked up; the name is nul-terminated.
        unsafe { text::from_pointer(pg_sys::format_procedure_qualified((*self.function).fn_oid)) }
    }

    /// The function, with no state of earlier calls.
    unsafe fn fresh(&self) -> *mut pg_sys::FmgrInfo {
        // SAFETY: allocation in the current context, then a copy that shares nothing that changes.
        unsafe {
            let info = pg_sys::palloc(size_of::<pg_sys::FmgrInfo>()).cast();
            pg_sys::fmgr_info_copy(info, self.function, pg_sys::CurrentMemoryContext);
            info
        }
    }

    /// Compares two values; an ERROR of the function unwinds.
    pub(super) fn compare(&self, layout: Layout, a: &[u8], b: &[u8]) -> Ordering {
        // Whatever the order, equal bytes are equal; with many duplicates this is the common case.
        if a == b {
            return Ordering::Equal;
        }
        if let Some(locale) = &self.locale {
            // Raw segments of char have no blanks at their end.
            return locale.compare(a, b);
        }
        let (mut x, mut y) = (Scratch::new(), Scratch::new());
        let (x, y) = (x.datum(layout, a), y.datum(layout, b));
        let outermost = !self.called.replace(true);
        let _called = outermost.then(|| Called(&self.called));
        // SAFETY: a comparison function of the values' type; the datums live across the call, and
        // so does a description in the current context.
        let r = unsafe {
            let function = match outermost {
                true => self.function,
                false => self.fresh(),
            };
            pg_sys::FunctionCall2Coll(function, self.collation, x, y)
        };
        (r.value() as i32).cmp(&0)
    }
}

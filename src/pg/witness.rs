//! Errors of the server that pass through Rust keep all their fields.
//!
//! The bindings turn an ERROR into a panic, so that destructors run. At the boundary to the server
//! they throw it on as it is, from the server's error stack. An ERROR that was kept meanwhile
//! (`subtransaction`) is not there any more, and they raise it anew. They copy SQLSTATE (known
//! ones), level, message, DETAIL, HINT and location, as UTF-8. The rest is lost: CONTEXT,
//! positions, names of schema, table, column, type and constraint, and bytes that are not UTF-8.
//!
//! So every function that the server calls begins with `witness!()`. It puts a callback on the
//! server's stack of error contexts, which runs twice:
//! 1. while the ERROR is first raised, after the callbacks of everything that the function called.
//!    The innermost witness keeps a copy of the error ([`observe`]): its CONTEXT so far is what
//!    lies below us;
//! 2. while the bindings raise it anew, if they do. The unwinding function has left [`RETURNING`]
//!    on the stack, which restores the fields ([`restore`]). The callbacks above add their CONTEXT
//!    as usual. The code that catches the ERROR restores the stack, which also removes that entry.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use pgrx::pg_sys::panic::ErrorReportWithLevel;
use pgrx::pg_sys::{self, ErrorContextCallback, ErrorData};

use crate::pg::{error, memory, text};

// Without the bindings' guard: these run while an ERROR is handled, and an ERROR in them is the
// server's.
unsafe extern "C-unwind" {
    #[cfg_attr(not(test), link_name = "__real_CopyErrorData")]
    fn CopyErrorData() -> *mut ErrorData;
    fn MemoryContextReset(context: pg_sys::MemoryContext);
    fn errposition(position: c_int) -> c_int;
    fn internalerrposition(position: c_int) -> c_int;
    fn internalerrquery(query: *const c_char) -> c_int;
    fn errhidestmt(hide: bool) -> c_int;
    fn errhidecontext(hide: bool) -> c_int;
}

/// The innermost witness.
static INNERMOST: AtomicPtr<Node> = AtomicPtr::new(null_mut());
/// The last error that a witness saw, and the memory context that holds it and nothing else.
static SEEN: AtomicPtr<ErrorData> = AtomicPtr::new(null_mut());
static MEMORY: AtomicPtr<pg_sys::MemoryContextData> = AtomicPtr::new(null_mut());
/// The context of a copy that is only read. A copy goes with its context: the server's
/// `FreeErrorData` leaves the names of file and function behind.
static SCRATCH: AtomicPtr<pg_sys::MemoryContextData> = AtomicPtr::new(null_mut());

/// The context of the bindings' copies, which are gone before the next one is made.
static PASSING: AtomicPtr<pg_sys::MemoryContextData> = AtomicPtr::new(null_mut());

/// The entry that an unwinding function leaves behind.
static mut RETURNING: ErrorContextCallback =
    ErrorContextCallback { previous: null_mut(), callback: Some(restore), arg: null_mut() };

/// A witness' place on the server's stack; lies in the frame of the function.
pub struct Node {
    callback: ErrorContextCallback,
    outer: *mut Node,
}

/// Takes the witness off the stack again.
pub struct Witness<'n> {
    node: &'n mut MaybeUninit<Node>,
    /// Whether the caller is the bindings' guard, which throws the error on or raises it anew.
    returns: bool,
    /// A destructor that runs because of another panic.
    unwinding: bool,
}

/// Begins a function that the server calls.
macro_rules! witness {
    () => {
        let mut node = std::mem::MaybeUninit::uninit();
        // SAFETY: the witness lives in the same frame, is dropped before the node, and this is the
        // outermost frame under the bindings' guard.
        let _witness = unsafe { crate::pg::witness::Witness::new(&mut node, true) };
    };
}
pub(crate) use witness;

impl<'n> Witness<'n> {
    /// Puts a witness on the stack. `returns`: an ERROR that leaves the caller is raised anew at
    /// once.
    ///
    /// # Safety
    /// On the server's thread; the witness must be dropped in the frame that made it, last in first
    /// out.
    #[inline]
    pub unsafe fn new(node: &'n mut MaybeUninit<Node>, returns: bool) -> Witness<'n> {
        let this = node.as_mut_ptr();
        // SAFETY: the server's stack is a plain global of its thread; the node outlives its place
        // there.
        unsafe {
            let callback = ErrorContextCallback {
                previous: pg_sys::error_context_stack,
                callback: Some(observe),
                arg: this.cast(),
            };
            node.write(Node { callback, outer: INNERMOST.load(Relaxed) });
            pg_sys::error_context_stack = &raw mut (*this).callback;
        }
        INNERMOST.store(this, Relaxed);
        Witness { node, returns, unwinding: std::thread::panicking() }
    }
}

impl Drop for Witness<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: written by `new`. All that was put on the stack above has been taken off: the
        // bindings restore the stack of their caller, with or without an ERROR.
        unsafe {
            let node = self.node.assume_init_ref();
            INNERMOST.store(node.outer, Relaxed);
            pg_sys::error_context_stack = node.callback.previous;
            if std::thread::panicking() && self.returns && !self.unwinding {
                RETURNING.previous = node.callback.previous;
                pg_sys::error_context_stack = &raw mut RETURNING;
            }
        }
    }
}

/// Makes the memory for errors, once, when there is plenty.
pub fn install() {
    for memory in [&SCRATCH, &MEMORY, &PASSING] {
        // SAFETY: a context that lives as long as the process; its children inherit it.
        let context = unsafe {
            pg_sys::AllocSetContextCreateInternal(
                pg_sys::TopMemoryContext,
                c"nitro error".as_ptr(),
                pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
            )
        };
        memory.store(context, Relaxed);
    }
}

/// Copies the ERROR that the server is reporting. The copy lives until the next one in this
/// context.
///
/// # Safety
/// Where the server reports something, after [`install`]; nothing else is in the context, and the
/// last copy is used no more.
unsafe fn copy_into(context: &AtomicPtr<pg_sys::MemoryContextData>) -> *mut ErrorData {
    memory::make_room();
    // SAFETY: by contract.
    unsafe {
        let context = context.load(Relaxed);
        MemoryContextReset(context);
        let before = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = context;
        let copy = CopyErrorData();
        pg_sys::CurrentMemoryContext = before;
        copy
    }
}

/// A copy to look at.
///
/// # Safety
/// As `copy_into`.
unsafe fn copy() -> *mut ErrorData {
    // SAFETY: by contract.
    unsafe { copy_into(&SCRATCH) }
}

/// Bytes that are left of a text for which the bindings would find no memory.
const CUT: usize = 32 << 10;

/// Cuts the texts that the bindings copy if there is no memory for that, which would be the end of
/// the process. The error itself stays as it is: where it is thrown on, or raised anew, nothing is
/// missing.
///
/// # Safety
/// A copy of an error.
#[cfg(not(test))]
unsafe fn cut_to_memory(copy: &ErrorData) {
    let texts = [copy.message, copy.detail, copy.hint].map(|text| {
        // SAFETY: null or nul-terminated.
        let len = if text.is_null() { 0 } else { unsafe { CStr::from_ptr(text) }.count_bytes() };
        (text, len)
    });
    // The texts as they are. Text that is not UTF-8 is copied twice, and one copy is longer.
    let bytes: usize = texts.iter().map(|(_, len)| 4 * len).sum();
    if bytes > CUT && !memory::is_there(bytes) {
        for (text, len) in texts {
            if len > CUT {
                // SAFETY: before the end of the text.
                unsafe { *text.add(CUT) = 0 };
            }
        }
    }
}

/// Stands in the place of `CopyErrorData` for the bindings. They free the copy before they do
/// anything else.
#[cfg(not(test))]
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __wrap_CopyErrorData() -> *mut ErrorData {
    // SAFETY: the server reports something; the copy is not null.
    unsafe {
        let copy = match PASSING.load(Relaxed).is_null() {
            // Nothing is kept yet.
            true => CopyErrorData(),
            false => copy_into(&PASSING),
        };
        cut_to_memory(&*copy);
        copy
    }
}

/// Keeps a copy of an ERROR that is being raised.
unsafe extern "C-unwind" fn observe(node: *mut c_void) {
    if INNERMOST.load(Relaxed) != node.cast() || MEMORY.load(Relaxed).is_null() {
        return;
    }
    // SAFETY: called by the server while it reports something, on its own thread.
    unsafe {
        let copy = copy();
        if (*copy).elevel >= pg_sys::PGERROR as c_int {
            SEEN.store(copy, Relaxed);
            SCRATCH.store(MEMORY.swap(SCRATCH.load(Relaxed), Relaxed), Relaxed);
        }
    }
}

/// The error that was seen last, if it is the one with this message and line.
fn seen(message: &str, line: c_int) -> Option<&'static ErrorData> {
    // SAFETY: null, or an error that stays until the next one is seen.
    unsafe {
        let seen = SEEN.load(Relaxed).as_ref()?;
        if seen.lineno != line || seen.message.is_null() {
            return None;
        }
        let all = CStr::from_ptr(seen.message).to_string_lossy();
        // Where it was cut there may have been the middle of a character.
        let whole = || message.trim_end_matches(char::REPLACEMENT_CHARACTER);
        let cut = || message.len() + 4 > CUT && all.starts_with(whole());
        (all == message || cut()).then_some(seen)
    }
}

/// The texts of an ERROR, with the bytes that the bindings lost.
pub struct Said {
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
}

/// Returns the texts of an ERROR that came to Rust as `report`.
pub fn said(report: &ErrorReportWithLevel) -> Said {
    match seen(report.message(), report.line_number() as c_int) {
        Some(seen) => {
            // SAFETY: null or nul-terminated; the error stays until the next one is seen.
            let text = |s: *mut c_char| unsafe { (!s.is_null()).then(|| text::from_pointer(s)) };
            Said {
                message: text(seen.message).unwrap_or_default(),
                detail: text(seen.detail),
                hint: text(seen.hint),
            }
        }
        None => Said {
            message: report.message().to_owned(),
            detail: report.detail().map(str::to_owned),
            hint: report.hint().map(str::to_owned),
        },
    }
}

/// Gives the error that is being raised anew the fields that it had before.
unsafe extern "C-unwind" fn restore(_: *mut c_void) {
    if MEMORY.load(Relaxed).is_null() {
        return;
    }
    // SAFETY: called by the server while it raises an error, on its own thread; the functions are
    // those of `ereport`, on nul-terminated strings, which they copy.
    unsafe {
        let raised = copy();
        let first = match (*raised).message {
            message if message.is_null() => None,
            message => seen(&CStr::from_ptr(message).to_string_lossy(), (*raised).lineno),
        };
        let Some(first) = first else { return };
        error::errcode(first.sqlerrcode);
        let plain = c"%s".as_ptr();
        error::errmsg_internal(plain, first.message);
        if !first.detail.is_null() {
            error::errdetail_internal(plain, first.detail);
        }
        if !first.detail_log.is_null() {
            error::errdetail_log(plain, first.detail_log);
        }
        if !first.hint.is_null() {
            error::errhint(plain, first.hint);
        }
        if !first.context.is_null() {
            error::errcontext_msg(plain, first.context);
        }
        if !first.internalquery.is_null() {
            internalerrquery(first.internalquery);
        }
        errposition(first.cursorpos);
        internalerrposition(first.internalpos);
        errhidestmt(first.hide_stmt);
        errhidecontext(first.hide_ctx);
        for (field, text) in [
            (pg_sys::PG_DIAG_SCHEMA_NAME, first.schema_name),
            (pg_sys::PG_DIAG_TABLE_NAME, first.table_name),
            (pg_sys::PG_DIAG_COLUMN_NAME, first.column_name),
            (pg_sys::PG_DIAG_DATATYPE_NAME, first.datatype_name),
            (pg_sys::PG_DIAG_CONSTRAINT_NAME, first.constraint_name),
        ] {
            if !text.is_null() {
                error::err_generic_string(c_int::from(field), text);
            }
        }
    }
}

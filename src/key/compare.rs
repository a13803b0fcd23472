//! The order of keys that have columns without a byte encoding.

use super::abbreviate::Abbreviator;
use super::codec::{self, Codec, Layout, NULL_FIRST, SENTINEL};
use super::collation;
use super::desc::{Column, KeyDesc};
use super::strcoll::Locale;
use crate::pg::error::Failure;
use crate::pg::memory;
use crate::pg::text;
use pgrx::pg_sys::{self, Datum, Oid};
use pgrx::{PgSqlErrorCode, varlena};
use std::cell::Cell;
use std::cmp::Ordering;
use std::mem::MaybeUninit;

/// An operator class's comparison function, ready to be called.
pub struct Comparator {
    function: *mut pg_sys::FmgrInfo,
    collation: Oid,
    /// A call is under way. Functions keep the state of a call where `function` is, so one that comes back
    /// to this index by a query of its own gets a place of its own.
    called: Cell<bool>,
    abbreviator: Option<Abbreviator>,
    /// Compares in place of the function.
    locale: Option<Locale>,
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
    fn name(&self) -> String {
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
    fn compare(&self, layout: Layout, a: &[u8], b: &[u8]) -> Ordering {
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
        // SAFETY: a comparison function of the values' type; the datums live across the call, and so does
        // a description in the current context.
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

/// Words of a value that is short enough for the stack.
const SHORT: usize = 32;

/// An aligned copy of a value, on the stack if it is short. Per call, because a comparison function
/// may run queries that compare keys of the same index.
pub(super) struct Scratch {
    short: [MaybeUninit<u64>; SHORT],
    long: Vec<u64>,
}

impl Scratch {
    pub(super) fn new() -> Scratch {
        Scratch { short: [MaybeUninit::uninit(); SHORT], long: Vec::new() }
    }

    /// A datum of this layout with these bytes; valid as long as the scratch is neither moved nor reused.
    pub(super) fn datum(&mut self, layout: Layout, bytes: &[u8]) -> Datum {
        let header = match layout {
            Layout::Varlena | Layout::BlankPadded => pg_sys::VARHDRSZ,
            _ => 0,
        };
        let total = match layout {
            Layout::Name => pg_sys::NAMEDATALEN as usize,
            Layout::CString => bytes.len() + 1,
            Layout::Value(_) => 8,
            _ => header + bytes.len(),
        };
        let words = total.div_ceil(8);
        let p: *mut u8 = if words <= SHORT {
            self.short.as_mut_ptr().cast()
        } else {
            memory::resize(&mut self.long, words, 0);
            self.long.as_mut_ptr().cast()
        };
        // SAFETY: `p` has `words` aligned words; `total` bytes of them are written below, and a
        // word that holds an unstored tail (name, cstring, value) is zeroed first.
        unsafe {
            if total > header + bytes.len() {
                p.write_bytes(0, total);
            }
            if header != 0 {
                varlena::set_varsize_4b(p.cast(), total as i32);
            }
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), p.add(header), bytes.len());
            match layout {
                Layout::Value(n) => {
                    let shift = 64 - 8 * u32::from(n);
                    Datum::from((p.cast::<i64>().read() << shift >> shift) as usize)
                }
                _ => Datum::from(p.cast::<core::ffi::c_void>()),
            }
        }
    }
}

impl Column {
    /// The order of two segments in the index.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match (&self.comparator, self.codec) {
            // Different first bytes: one is NULL, whose marker says where it goes.
            (Some(comparator), Codec::Raw(layout)) if a[0] == b[0] => {
                let order = match codec::is_marker(a[0]) {
                    true => Ordering::Equal,
                    false => comparator.compare(layout, codec::get_raw(a), codec::get_raw(b)),
                };
                if self.desc { order.reverse() } else { order }
            }
            _ => a.cmp(b),
        }
    }

    /// What `of` says of the value of a raw segment, in index order, and with the NULLs in their place.
    fn number(&self, segment: &[u8], of: impl FnOnce(Layout, &[u8]) -> u64) -> u64 {
        match (segment[0], self.codec) {
            (NULL_FIRST, _) => 0,
            (first, Codec::Raw(layout)) if !codec::is_marker(first) => {
                let number = of(layout, codec::get_raw(segment));
                if self.desc { !number } else { number }
            }
            _ => u64::MAX,
        }
    }
}

impl KeyDesc {
    /// Compares two segments of a column in index order.
    pub fn compare_segment(&self, col: usize, a: &[u8], b: &[u8]) -> Ordering {
        self.columns[col].compare(a, b)
    }

    /// Compares two keys, column by column. A key that ends (a search key) is before, [`SENTINEL`]
    /// after everything that starts like it.
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let (mut x, mut y) = (a, b);
        for column in &self.columns[..self.nkeys] {
            match (x.first(), y.first()) {
                (Some(&f), Some(&g)) if f != SENTINEL && g != SENTINEL => {
                    let (s, rest_x) = x.split_at(column.segment_len(x));
                    let (t, rest_y) = y.split_at(column.segment_len(y));
                    let order = column.compare(s, t);
                    if order != Ordering::Equal {
                        return order;
                    }
                    (x, y) = (rest_x, rest_y);
                }
                _ => break,
            }
        }
        // What is left: INCLUDE columns and payload, or the end of a search key. Equal values with
        // different bytes (see `closed`) are told apart by the whole keys.
        x.cmp(y).then_with(|| a.cmp(b))
    }

    /// A comparison function contradicts itself.
    pub fn inconsistent(&self) -> ! {
        let functions = self.columns.iter().filter_map(|column| column.comparator.as_ref());
        let mut names: Vec<String> = functions.map(Comparator::name).collect();
        names.sort();
        names.dedup();
        Failure::new(
            PgSqlErrorCode::ERRCODE_DATA_EXCEPTION,
            format!("comparison function {} is not consistent", names.join(" or ")),
        )
        .detail("The function of an operator class must define one total order of the values.")
        .raise()
    }

    /// A number that compares like whole keys as far as it goes: up to eight bytes of the leading column, or
    /// the abbreviation of its string.
    pub fn abbreviate(&self, key: &[u8]) -> u64 {
        let leading = &self.columns[0];
        let Some(&first) = key.first() else { return 0 };
        if let Some(comparator) = &leading.comparator {
            let Some(abbreviator) = &comparator.abbreviator else { return 0 };
            return leading.number(key, |layout, s| abbreviator.abbreviate(layout, s));
        }
        let n = if first == SENTINEL { 1 } else { leading.segment_len(key).min(8) };
        let mut bytes = [0; 8];
        bytes[..n].copy_from_slice(&key[..n]);
        u64::from_be_bytes(bytes)
    }

    /// A number that most likely compares like whole keys as far as it goes, better than
    /// [`KeyDesc::abbreviate`]; `None` if there is none for this index.
    pub fn guess(&self, key: &[u8]) -> Option<u64> {
        let leading = &self.columns[0];
        let locale = leading.comparator.as_ref()?.locale.as_ref()?;
        Some(leading.number(key, |_, string| locale.guess(string)))
    }
}

/// The order of an index that is not [`KeyDesc::is_memcmp`].
#[derive(Clone, Copy)]
pub struct KeyRef<'a>(pub &'a KeyDesc);

impl nitro_engine::KeyOrder for KeyRef<'_> {
    const MEMCMP: bool = false;

    fn abbrev(&self, key: &[u8]) -> u64 {
        self.0.abbreviate(key)
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        self.0.compare(a, b)
    }

    fn inconsistent(&self) -> ! {
        self.0.inconsistent()
    }
}

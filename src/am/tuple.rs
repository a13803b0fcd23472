//! Tuples for index-only scans: the exact datums back from the key bytes.
//!
//! The server's own `index_form_tuple` allocates, compresses wide values and refuses tuples above
//! 8191 bytes. So this file lays out the index tuple, in a buffer that every entry uses again.
//! Wider rows go to the executor as heap tuples. The planner, which looks for the ends of a column
//! (18+), takes index tuples only. Without one it goes on.

use nitro_engine::Cursor;
use pgrx::pg_sys::{self, Datum, IndexScanDesc};
use pgrx::varlena;

use crate::key::KeyDesc;
use crate::key::datum::LONGEST_SHORT;
use crate::pg::memory;

/// Header of an index tuple: heap TID and `t_info`.
const HEADER: usize = 8;
/// Header with the null bitmap of INDEX_MAX_KEYS bits, aligned.
const HEADER_WITH_NULLS: usize = 16;
/// Largest size that `t_info` can express (INDEX_SIZE_MASK).
const MAX_SIZE: usize = 0x1fff;
const HAS_VARIABLE: u16 = 0x4000;
const HAS_NULLS: u16 = 0x8000;

/// How a column lies in a tuple.
struct Layout {
    length: i16,
    align: usize,
    by_value: bool,
    may_be_short: bool,
}

/// Forms one tuple at a time.
pub struct TupleFormer {
    columns: Vec<Layout>,
    /// Offsets of the columns, if all are passed by value and the buffer holds a tuple without
    /// NULLs. The next tuple of this kind differs only in its values.
    template: Vec<usize>,
    /// Some column's datum points to memory, which comes from here.
    context: Option<pg_sys::MemoryContext>,
    values: Vec<Datum>,
    isnull: Vec<bool>,
    /// Words, because a tuple is aligned.
    buffer: Vec<u64>,
}

impl TupleFormer {
    /// Makes a former for the index of a scan. Memory that it allocates from the server is in a
    /// child of the current memory context.
    ///
    /// # Safety
    /// `scan` must be an open index scan, `desc` the description of its index.
    pub unsafe fn new(scan: IndexScanDesc, desc: &KeyDesc) -> TupleFormer {
        // SAFETY: by contract.
        let attributes = unsafe { pgrx::PgTupleDesc::from_pg_unchecked((*scan).xs_itupdesc) };
        let columns: Vec<Layout> = attributes
            .iter()
            .zip(&desc.columns)
            .map(|(a, column)| Layout {
                length: a.attlen,
                align: match a.attalign as u8 {
                    b's' => 2,
                    b'i' => 4,
                    b'd' => 8,
                    _ => 1,
                },
                by_value: a.attbyval,
                may_be_short: column.short,
            })
            .collect();
        let n = columns.len();
        let context = columns.iter().any(|c| !c.by_value).then(|| {
            // SAFETY: an ordinary child context; it goes away with its parent.
            unsafe {
                pg_sys::AllocSetContextCreateInternal(
                    pg_sys::CurrentMemoryContext,
                    c"nitro index-only tuple".as_ptr(),
                    0,
                    1024,
                    pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
                )
            }
        });
        TupleFormer {
            columns,
            template: Vec::new(),
            context,
            values: vec![Datum::from(0); n],
            isnull: vec![false; n],
            buffer: Vec::new(),
        }
    }

    /// Puts the tuple of entry `i` into the scan descriptor; it lives until the next call. False:
    /// it is too large for the planner, which goes on without.
    ///
    /// # Safety
    /// `scan` must be the scan that the former was made for, the cursor one with keys.
    pub unsafe fn form(
        &mut self,
        scan: IndexScanDesc,
        desc: &KeyDesc,
        cursor: &Cursor,
        i: usize,
    ) -> bool {
        // SAFETY: by contract; the context switch is undone, and by abort on ERROR.
        unsafe {
            let Some(context) = self.context else {
                self.form_by_value(scan, desc, cursor, i);
                return true;
            };
            pg_sys::MemoryContextReset(context);
            let previous = pg_sys::MemoryContextSwitchTo(context);
            desc.decode(cursor.key(i), &mut self.values, &mut self.isnull);
            let planner = (*(*scan).xs_snapshot).snapshot_type
                == pg_sys::SnapshotType::SNAPSHOT_NON_VACUUMABLE;
            (*scan).xs_hitup = std::ptr::null_mut();
            let fits = self.lay_out();
            if fits {
                (*scan).xs_itup = self.buffer.as_mut_ptr().cast();
            } else if !planner {
                (*scan).xs_hitup = pg_sys::heap_form_tuple(
                    (*scan).xs_hitupdesc,
                    self.values.as_mut_ptr(),
                    self.isnull.as_mut_ptr(),
                );
            }
            pg_sys::MemoryContextSwitchTo(previous);
            fits || !planner
        }
    }

    /// Whether [`TupleFormer::form_by_value`] will do.
    pub fn is_by_value(&self) -> bool {
        self.context.is_none()
    }

    /// [`TupleFormer::form`] for an index whose columns are all passed by value: no call of the
    /// server, nothing that can fail.
    ///
    /// # Safety
    /// As `form`.
    #[inline]
    pub unsafe fn form_by_value(
        &mut self,
        scan: IndexScanDesc,
        desc: &KeyDesc,
        cursor: &Cursor,
        i: usize,
    ) {
        // SAFETY: by contract; the template's offsets were laid out for these columns.
        unsafe {
            desc.decode(cursor.key(i), &mut self.values, &mut self.isnull);
            if self.template.is_empty() || self.isnull.contains(&true) {
                self.lay_out();
            } else {
                let tuple = self.buffer.as_mut_ptr().cast::<u8>();
                for (c, &at) in self.template.iter().enumerate() {
                    let (value, to) = (self.values[c].value(), tuple.add(at));
                    match self.columns[c].length {
                        8 => to.cast::<u64>().write(value as u64),
                        4 => to.cast::<u32>().write(value as u32),
                        2 => to.cast::<u16>().write(value as u16),
                        _ => to.write(value as u8),
                    }
                }
            }
            (*scan).xs_itup = self.buffer.as_mut_ptr().cast();
        }
    }

    /// Writes the values as an index tuple; false if they are too large for one.
    unsafe fn lay_out(&mut self) -> bool {
        let nulls = self.isnull.contains(&true);
        self.template.clear();
        let mut at = if nulls { HEADER_WITH_NULLS } else { HEADER };
        let mut info = if nulls { HAS_NULLS } else { 0 };
        self.buffer.clear();
        self.reserve(at);
        for c in 0..self.columns.len() {
            if self.isnull[c] {
                continue;
            }
            if nulls {
                self.bytes()[HEADER + c / 8] |= 1 << (c % 8);
            }
            let Layout { length, align, by_value, may_be_short } = self.columns[c];
            let value = self.values[c];
            if by_value {
                let length = length as usize;
                at = at.next_multiple_of(align);
                if self.context.is_none() && !nulls {
                    self.template.push(at);
                }
                self.reserve(at + length);
                self.bytes()[at..at + length]
                    .copy_from_slice(&value.value().to_le_bytes()[..length]);
                at += length;
                continue;
            }
            let pointer = value.cast_mut_ptr::<u8>();
            // SAFETY: a datum of this column, made by `decode`: fixed length, or a flat varlena, or
            // a zero-terminated string.
            let image = unsafe {
                match length {
                    -1 => {
                        let data = varlena::varsize_any_exhdr(pointer.cast());
                        if may_be_short && data <= LONGEST_SHORT {
                            self.reserve(at + 1);
                            self.bytes()[at] = ((data + 1) as u8) << 1 | 1;
                            at += 1;
                            std::slice::from_raw_parts(
                                varlena::vardata_any(pointer.cast()).cast(),
                                data,
                            )
                        } else {
                            at = at.next_multiple_of(align);
                            std::slice::from_raw_parts(
                                pointer,
                                varlena::varsize_any(pointer.cast()),
                            )
                        }
                    }
                    -2 => std::ffi::CStr::from_ptr(pointer.cast()).to_bytes_with_nul(),
                    n => {
                        at = at.next_multiple_of(align);
                        std::slice::from_raw_parts(pointer, n as usize)
                    }
                }
            };
            if length < 0 {
                info |= HAS_VARIABLE;
            }
            if at + image.len() > MAX_SIZE - HEADER {
                return false;
            }
            self.reserve(at + image.len());
            self.bytes()[at..at + image.len()].copy_from_slice(image);
            at += image.len();
        }
        info |= at.next_multiple_of(8) as u16;
        self.bytes()[HEADER - 2..HEADER].copy_from_slice(&info.to_ne_bytes());
        true
    }

    /// Makes room for `length` bytes, zeroed: padding must be zero, that is how the server tells it
    /// from a one-byte header.
    fn reserve(&mut self, length: usize) {
        let words = length.div_ceil(8);
        if self.buffer.len() < words {
            memory::resize(&mut self.buffer, words, 0);
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        let length = self.buffer.len() * 8;
        // SAFETY: the same memory as bytes.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.as_mut_ptr().cast(), length) }
    }
}

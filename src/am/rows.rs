//! Row comparisons: `(a, b) > (x, y)`, with which pages of a list are fetched.

use pgrx::pg_sys;

use crate::key::{Bounds, Edge, Interval, KeyDesc, SENTINEL};
use crate::pg::memory;

/// The end of a range of rows: `(a, b) > (x, y)` is `a >= x`, and among the rows with `a = x` those
/// behind y.
pub struct RowEnd {
    /// The first column that is compared.
    pub column: usize,
    /// Of rows below; otherwise, of rows above.
    pub upper: bool,
    /// The column's value there.
    pub first: Vec<u8>,
    /// The bytes that follow it in a key, as a bound.
    rest: Vec<u8>,
}

impl RowEnd {
    /// The conditions of a row comparison beyond its first column. A further column counts if it
    /// follows in the index, in the same direction, and all columns before it have the values that
    /// they are compared with. The entries of the index then lie in the order of the rows.
    ///
    /// # Safety
    /// `header` must be an initialised row comparison of this index.
    pub unsafe fn of(desc: &KeyDesc, header: &pg_sys::ScanKeyData) -> Option<RowEnd> {
        // SAFETY: members follow one another until SK_ROW_END.
        unsafe {
            let mut member = header.sk_argument.cast_mut_ptr::<pg_sys::ScanKeyData>();
            let column = (*member).sk_attno as usize - 1;
            let descending = desc.columns[column].desc;
            let strategy = (*member).sk_strategy as u32;
            let greater = [pg_sys::BTGreaterStrategyNumber, pg_sys::BTGreaterEqualStrategyNumber]
                .contains(&strategy);
            let strict =
                [pg_sys::BTGreaterStrategyNumber, pg_sys::BTLessStrategyNumber].contains(&strategy);
            let upper = greater == descending;
            let mut segments = Vec::new();
            let mut whole = false;
            for next in column.. {
                let key = &*member;
                let fits = key.sk_attno as usize == next + 1
                    && next < desc.nkeys
                    && !desc.is_element(next)
                    && desc.columns[next].desc == descending
                    && key.sk_flags as u32 & pg_sys::SK_ISNULL == 0;
                if !fits {
                    break;
                }
                let equal = pg_sys::BTEqualStrategyNumber as u16;
                let bound =
                    desc.bound(next, equal, key.sk_subtype, key.sk_collation, key.sk_argument);
                let Some(Interval { lower: Edge::Before(segment), upper: Edge::After(same) }) =
                    bound.interval.filter(|_| !bound.lossy)
                else {
                    break;
                };
                if segment != same {
                    break;
                }
                segments.push(segment);
                whole = key.sk_flags as u32 & pg_sys::SK_ROW_END != 0;
                if whole {
                    break;
                }
                member = member.add(1);
            }
            if segments.len() < 2 {
                return None;
            }
            let mut rest = Vec::new();
            segments[1..].iter().for_each(|segment| memory::append(&mut rest, segment));
            // Are the rows with these values inside?
            let inside = !(whole && strict);
            if inside == upper {
                rest.push(SENTINEL);
            }
            Some(RowEnd { column, upper, first: segments.swap_remove(0), rest })
        }
    }

    /// Appends the bound to the values of the columns before.
    pub fn append(&self, key: &mut Vec<u8>) {
        memory::append(key, &self.first);
        memory::append(key, &self.rest);
    }
}

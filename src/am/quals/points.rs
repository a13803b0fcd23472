//! Conditions that are an equality on each of the first columns: their range needs no intervals.

use pgrx::pg_sys;

use super::{Plan, Range};
use crate::key::{Bounds, KeyDesc, SENTINEL};
use crate::pg::memory;

impl Plan {
    /// Finds the range of conditions that are an equality on each of the first columns, in their
    /// order. Most joins have these. Returns false if a plan is needed.
    ///
    /// # Safety
    /// As `compile`.
    pub unsafe fn range_of_points(
        desc: &KeyDesc,
        keys: &[pg_sys::ScanKeyData],
        range: &mut Range,
    ) -> bool {
        range.lower.clear();
        range.upper.clear();
        range.unbounded = false;
        for (c, key) in keys.iter().enumerate() {
            let simple = key.sk_attno as usize == c + 1
                && key.sk_flags == 0
                && key.sk_strategy == pg_sys::BTEqualStrategyNumber as u16
                && !desc.is_element(c);
            let (of, collation, arg) = (key.sk_subtype, key.sk_collation, key.sk_argument);
            // SAFETY: by contract; the argument of a condition that is no search for NULL, list or
            // row is a value.
            let mut append =
                || unsafe { desc.append_point(c, of, collation, arg, &mut range.lower) };
            if !simple || !append() {
                return false;
            }
        }
        memory::append(&mut range.upper, &range.lower);
        range.upper.push(SENTINEL);
        !keys.is_empty()
    }

    /// Digests conditions that are an equality on each of the first columns, and finds their range;
    /// false: [`Plan::compile`] has to.
    ///
    /// # Safety
    /// As `compile`.
    pub unsafe fn compile_points(
        &mut self,
        desc: &KeyDesc,
        keys: &[pg_sys::ScanKeyData],
        range: &mut Range,
    ) -> bool {
        // SAFETY: by contract.
        if !unsafe { Plan::range_of_points(desc, keys, range) } {
            return false;
        }
        self.clear();
        true
    }
}

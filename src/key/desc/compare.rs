//! The order of keys that have columns without a byte encoding.

use super::KeyDesc;
use crate::key::codec::SENTINEL;
use crate::key::comparator::Comparator;
use crate::pg::error::Failure;
use pgrx::PgSqlErrorCode;
use std::cmp::Ordering;

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
        // The rest: INCLUDE columns and payload, or the end of a search key. The whole keys tell
        // equal values with different bytes apart (see `closed`).
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

    /// Returns a number that compares like whole keys as far as it goes: up to eight bytes of the
    /// leading column, or the abbreviation of its string.
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

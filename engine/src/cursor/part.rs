//! Parts of a range: where to cut it, so that several processes read it, each entry once.
//!
//! A part is a range between two separators, positions in the order of all entries, (key, TID), which never changes.
//! Leaves only say which separators give parts of a good size; whatever happens to them, an entry belongs to exactly
//! one of the parts that meet at a separator.

use super::{Cursor, left_of};
use crate::key::Probe;
use crate::memory;
use crate::mutants::mutant;
use crate::range::{Low, LowBuf};
use crate::root::Index;
use crate::{KeyOrder, Process, Tid};
use core::cmp::Ordering;

/// A position in the order of all entries: before the entry with this key and TID, if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Separator {
    /// Need not be the key of any entry.
    pub key: Vec<u8>,
    /// Among entries with this key.
    pub tid: Tid,
}

impl Separator {
    /// How it lies to the position before all entries with a key.
    pub fn compare<O: KeyOrder>(&self, order: &O, key: &[u8]) -> Ordering {
        crate::compare(order, &self.key, key).then(self.tid.cmp(&0))
    }

    pub(crate) fn of(low: &Low<'_>) -> Separator {
        Separator { key: memory::copy(low.key), tid: low.tid.unwrap_or(0) }
    }

    fn set(&mut self, low: &Low<'_>) {
        memory::set(&mut self.key, low.key);
        self.tid = low.tid.unwrap_or(0);
    }
}

/// Longest key of a separator that is looked for: who shares it has a place of fixed size for it.
pub const MAX_SEPARATOR_LEN: usize = 16 << 10;

/// So often leaves that change under it are looked at anew, before the rest of the range is not cut.
const TRIES: u32 = 8;

impl Cursor {
    /// Lets the range begin at a separator. What was read is forgotten.
    pub fn begin_at(&mut self, separator: &Separator) {
        let upper = self.bounded.then(|| core::mem::take(&mut self.upper));
        let upper_tid = self.upper_tid;
        self.set_range(&separator.key, upper.as_deref(), self.sn);
        (self.lower_tid, self.upper_tid) = (separator.tid, upper_tid);
    }

    /// Lets the range end before a separator. What was read is forgotten.
    pub fn end_at(&mut self, separator: &Separator) {
        let (lower, lower_tid) = (core::mem::take(&mut self.lower), self.lower_tid);
        self.set_range(&lower, Some(&separator.key), self.sn);
        (self.lower_tid, self.upper_tid) = (lower_tid, separator.tid);
    }

    /// Finds a separator inside of the range, at most so many leaves from its beginning (going backward, from its
    /// end), and says how many; 0: the range is too short for that, changes too fast, or its keys are too long.
    pub fn cut<O: KeyOrder>(
        &self,
        forward: bool,
        leaves: usize,
        p: &Process,
        index: Index,
        order: &O,
        at: &mut Separator,
    ) -> usize {
        index.check_order::<O>();
        let _section = index.enter(p);
        let lower = Probe::new(order, &self.lower, self.lower_tid);
        let upper = match self.bounded {
            true => Probe::new(order, &self.upper, self.upper_tid),
            false => Probe::end(order),
        };
        let cut = (0..TRIES).find_map(|_| {
            let mut found = 0;
            let mut leaf = index.seek(if forward { &lower } else { &upper }, false).leaf;
            let mut low = LowBuf::new(index.area);
            for n in 1..=leaves {
                let candidate = if forward {
                    let v = index.block(leaf).view();
                    let next = v.b.next();
                    if next == 0 || v.dead() || !v.valid() {
                        break;
                    }
                    leaf = next;
                    next
                } else {
                    leaf
                };
                // A leaf that was split since it was found leads to one whose low key is not in the range: a part
                // that ends there would be empty, and the next one would begin before this one.
                let inside = |probe: &Probe<'_, O>, wanted: Ordering| {
                    probe
                        .compare_low(index.area, candidate)
                        .is_ok_and(|ordering| ordering == wanted)
                };
                let behind = inside(&lower, Ordering::Less)
                    || mutant!("a separator lies behind the beginning of its range");
                if behind && inside(&upper, Ordering::Greater) {
                    let Some(low) = low.load(candidate).filter(|low| !low.is_first()) else {
                        break;
                    };
                    if low.key.len() <= MAX_SEPARATOR_LEN {
                        at.set(&low);
                        found = n;
                    }
                } else if found > 0 {
                    break;
                }
                if !forward {
                    let Some((left, _)) = left_of(index, leaf) else { break };
                    leaf = left;
                }
            }
            (found > 0).then_some(found)
        });
        cut.unwrap_or(0)
    }
}

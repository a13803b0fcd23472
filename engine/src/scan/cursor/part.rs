//! Parts of a range: where to cut it, so that several processes read it, each entry once.
//!
//! A part is a range between two separators. These are positions in the order of all entries, (key,
//! TID), which never changes. Leaves only tell which separators give parts of a good size. Whatever
//! happens to the leaves, an entry belongs to exactly one of the parts that meet at a separator.

use super::Cursor;
use crate::index::root::Index;
use crate::key::buffer;
use crate::key::order::{KeyOrder, Tid};
use crate::memory::process::Process;
use crate::node::low_key::{Low, LowKeyCopy};
use crate::node::probe::Probe;
use crate::scan::ahead;
use crate::sync::mutants::mutant;
use crate::tree::seek;
use core::cmp::Ordering;

/// A position in the order of all entries: before the entry with this key and TID, if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Separator {
    /// The key. An entry with this key need not exist.
    pub key: Vec<u8>,
    /// The place among entries with this key.
    pub tid: Tid,
}

impl Separator {
    /// Compares the separator with the position before all entries with a key.
    pub fn compare<O: KeyOrder>(&self, order: &O, key: &[u8]) -> Ordering {
        crate::key::order::compare(order, &self.key, key).then(self.tid.cmp(&0))
    }

    fn set(&mut self, low: &Low<'_>) {
        buffer::set(&mut self.key, low.key);
        self.tid = low.tid.unwrap_or(0);
    }
}

/// Bytes of the longest key of a separator that [`Cursor::cut`] returns. Callers that share it keep
/// a place of fixed size for it.
pub const MAX_SEPARATOR_LEN: usize = 16 << 10;

/// Number of attempts with leaves that change. After these the rest of the range is not cut.
const TRIES: u32 = 8;

impl Cursor {
    /// Lets the range begin at a separator, and forgets the batch.
    pub fn begin_at(&mut self, separator: &Separator) {
        let upper = self.bounded.then(|| core::mem::take(&mut self.upper));
        let upper_tid = self.upper_tid;
        self.set_bounds(&separator.key, upper.as_deref());
        (self.lower_tid, self.upper_tid) = (separator.tid, upper_tid);
    }

    /// Lets the range end before a separator, and forgets the batch.
    pub fn end_at(&mut self, separator: &Separator) {
        let (lower, lower_tid) = (core::mem::take(&mut self.lower), self.lower_tid);
        self.set_bounds(&lower, Some(&separator.key));
        (self.lower_tid, self.upper_tid) = (lower_tid, separator.tid);
    }

    /// Finds a separator inside of the range, at most this number of leaves from its beginning
    /// (going backward: from its end). Returns the number of leaves. Returns 0 if the range is too
    /// short, changes too fast, or has too long keys.
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
            let start = seek::seek(&index, if forward { &lower } else { &upper }, false).leaf;
            let is = |probe: &Probe<'_, O>, leaf, wanted: Ordering| {
                probe.compare_low(index.area, leaf).is_ok_and(|ordering| ordering == wanted)
            };
            let behind = |leaf| is(&lower, leaf, Ordering::Less);
            let before = |leaf| is(&upper, leaf, Ordering::Greater);
            let anywhere = mutant!("a separator lies behind the beginning of its range");
            // Going forward a part ends where another leaf begins. Going backward it ends where its
            // last leaf begins. If a range ends there, too, it has nothing of that leaf, as it is
            // behind another part.
            let outside = usize::from(!forward && !before(start) && !anywhere);
            let ends = ahead::leaves(index, start, forward, leaves + outside)?;
            let ends = ends.get(outside..)?;
            // One beyond the far end of the range is followed by others that are, unless they
            // change meanwhile.
            let inside = match forward {
                true => ends.partition_point(|&leaf| before(leaf)),
                false => ends.partition_point(|&leaf| behind(leaf)),
            };
            if inside == 0 {
                return Some(0);
            }
            let (mut low, mut long) = (LowKeyCopy::new(index.area), false);
            let found = (1..=inside).rev().find(|&n| {
                let leaf = ends[n - 1];
                // The leaf may have been split since it was found. It then leads to a leaf whose
                // low key is not in the range. A part that ends there would be empty, and the next
                // one would begin before this one.
                let within = behind(leaf) && before(leaf) || anywhere;
                let low = low.load(leaf).filter(|low| within && !low.is_first());
                let fits = low.filter(|low| low.key.len() <= MAX_SEPARATOR_LEN);
                long |= low.is_some() && fits.is_none();
                fits.inspect(|low| at.set(low)).is_some()
            });
            // Keys that are too long would be so the next time.
            found.or(long.then_some(0))
        });
        cut.unwrap_or(0)
    }
}

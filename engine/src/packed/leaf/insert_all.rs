//! Inserting several entries in place, as [`Leaf::insert`] does it with one.

use super::{Found, Leaf};
use crate::key::order::Tid;
use crate::packed::bits::{Array, Draft};
use crate::packed::encode::tail_bytes;
use crate::packed::layout::{Layout, MAX_ENTRIES};
use crate::packed::shape::fits;
use crate::sync::mutants::mutant;

/// Most entries that are inserted at once.
const MOST: usize = 32;

/// The place of a new entry, and its stored parts.
#[derive(Clone, Copy, Default)]
struct Step<'a> {
    /// The leaf has this number of keys, entries and symbols of tails in front of it.
    k: usize,
    rank: usize,
    symbol: usize,
    tid: u64,
    key: KeyOf<'a>,
}

/// The key of a new entry.
#[derive(Clone, Copy, Default)]
enum KeyOf<'a> {
    /// The leaf has it.
    #[default]
    Known,
    /// The new entry before has it, and the leaf does not.
    Repeated,
    /// It comes with this entry.
    New { head: u64, tail: &'a [u8] },
}

impl KeyOf<'_> {
    fn is_new(&self) -> bool {
        matches!(self, KeyOf::New { .. })
    }
}

impl Leaf<'_> {
    /// Arranges this leaf with the first of these entries of byte order, as many as have room in
    /// the leaf as it is. The entries ascend strictly by key and TID. Those that are there are
    /// left out. Returns how many of the entries are in the leaf then, and how many of them come.
    /// If none comes, the content of `draft` has no meaning.
    pub fn insert_all<'k>(
        &self,
        new: impl Iterator<Item = (&'k [u8], Tid)>,
        draft: &mut Draft,
    ) -> (usize, usize) {
        let mut steps = [Step::default(); MOST];
        let (done, count) =
            if self.layout.is_inside() { self.plan(new, &mut steps) } else { (0, 0) };
        let steps = &steps[..count];
        let Some(&Step { k, rank, symbol, .. }) = steps.first() else { return (done, 0) };
        let (words, l) = (self.words, &self.layout);
        let keys = steps.iter().filter(|step| step.key.is_new()).count();
        draft.clear();
        draft.add(3, 4);
        draft.set_word(3, Layout { n: l.n + count, d: l.d + keys, ..*l }.counts());
        let tids = steps.iter().map(|step| (l.tids.bit(step.rank), l.tids.width, step.tid));
        draft.with(words, l.tids.bit(rank)..l.tids.bit(l.n), tids);
        if keys > 0 {
            let heads = steps.iter().filter_map(|step| match step.key {
                KeyOf::New { head, .. } => Some((l.heads.bit(step.k), l.heads.width, head)),
                _ => None,
            });
            draft.with(words, l.heads.bit(k)..l.heads.bit(l.d), heads);
        }
        if steps.iter().any(|step| step.symbols() > 0) {
            let symbols = steps.iter().flat_map(|step| {
                let before = l.tails.bit(step.symbol);
                step.tail().iter().map(move |&byte| (before, l.tails.width, self.symbol_of(byte)))
            });
            let end = self.tail_start(l.d);
            draft.with(words, l.tails.bit(symbol)..l.tails.bit(end), symbols);
        }
        self.raise(l.ends, steps, draft, |step| (step.rank as u64, 1));
        self.raise(l.tail_ends, steps, draft, |step| (step.symbol as u64, step.symbols() as u64));
        (done, count)
    }

    /// Finds the places of the entries. Returns the same as [`Leaf::insert_all`].
    fn plan<'k>(
        &self,
        new: impl Iterator<Item = (&'k [u8], Tid)>,
        steps: &mut [Step<'k>],
    ) -> (usize, usize) {
        let l = &self.layout;
        let end = self.tail_start(l.d);
        let (mut keys, mut symbols, mut done, mut count) = (0, 0, 0, 0);
        let mut before: Option<(&[u8], Step<'_>)> = None;
        for (key, tid) in new {
            let found = self.search(key, tid);
            if found.equal > 0 {
                done += 1;
                continue;
            }
            let Some(to) = steps.get_mut(count) else { break };
            let Some(step) = self.step(&found, (key, tid), before) else { break };
            // In a torn leaf places may not ascend.
            let descends =
                |b: Step<'_>| b.k > step.k || b.rank > step.rank || b.symbol > step.symbol;
            keys += usize::from(step.key.is_new());
            symbols += step.symbols();
            let (n, d) = (l.n + count + 1, l.d + keys);
            let room = n <= MAX_ENTRIES
                && l.tids.bit(n) <= 8 * l.ends.offset
                && l.heads.bit(d) <= 8 * l.tids.offset
                && l.ends.bit(d) <= 8 * l.tail_ends.offset
                && l.tail_ends.bit(d) <= 8 * l.tails.offset
                && l.tails.bit(end + symbols) <= 8 * l.size;
            let descends = before.is_some_and(|(_, b)| descends(b))
                && !mutant!("places of a run that descend end it");
            if !room || step.symbol > end || descends {
                break;
            }
            (*to, before) = (step, Some((key, step)));
            (done, count) = (done + 1, count + 1);
        }
        (done, count)
    }

    /// Where an entry goes that was not found, behind the one `before`. None: it cannot be in the
    /// leaf as it is.
    fn step<'k>(
        &self,
        found: &Found,
        (key, tid): (&'k [u8], Tid),
        before: Option<(&[u8], Step<'_>)>,
    ) -> Option<Step<'k>> {
        let l = &self.layout;
        let (k, rank) = (found.key.min(l.d), found.rank.min(l.n));
        let (Some(narrow), true) = self.tid_number(tid) else { return None };
        let tid = fits(narrow, 0, l.tids.width)?;
        let before = before.filter(|before| before.0 == key).map(|(_, step)| step.key);
        let key = if found.same && k < l.d {
            KeyOf::Known
        } else if let Some(before) = before
            && !mutant!("a key that comes twice is new once")
        {
            // A torn leaf may have the key for the entry before and not for this one.
            let came =
                !matches!(before, KeyOf::Known) || mutant!("a key that was known before is known");
            came.then_some(KeyOf::Repeated)?
        } else {
            KeyOf::New { head: self.head_of(key, 0)?, tail: tail_bytes(l, key) }
        };
        let fits = key.is_new() || l.ends.width > 0;
        fits.then(|| Step { k, rank, symbol: self.tail_start(k), tid, key })
    }

    /// Arranges an array of sums up to and with each key. `of` has for an entry that comes the sum
    /// in front of it in the leaf, and how much it adds.
    fn raise(
        &self,
        array: Array,
        steps: &[Step<'_>],
        draft: &mut Draft,
        of: impl Fn(&Step<'_>) -> (u64, u64),
    ) {
        if array.width == 0 {
            return;
        }
        let start = array.bit(steps.first().map_or(0, |step| step.k));
        let numbers = steps.iter().filter(|step| step.key.is_new()).map(|step| {
            let (sum, more) = of(step);
            (array.bit(step.k), array.width, sum + more)
        });
        draft.with(self.words, start..array.bit(self.layout.d), numbers);
        // The sums of keys from `from` on are to be raised by `sum`.
        let (mut from, mut sum, mut keys) = (0, 0, 0);
        for step in steps {
            let (at, more) = (step.k + keys, of(step).1);
            match step.key {
                KeyOf::Known => {
                    draft.shift_each(array, from, at, sum, false);
                    from = at;
                }
                // The sum of a new key has its own part already.
                KeyOf::New { .. } => {
                    draft.shift_each(array, from, at + 1, sum, false);
                    (from, keys) = (at + 1, keys + 1);
                }
                KeyOf::Repeated => draft.shift_each(array, at - 1, at, more, false),
            }
            sum += more;
        }
        draft.shift_each(array, from, self.layout.d + keys, sum, false);
    }
}

impl<'a> Step<'a> {
    /// The symbols that come into the tails.
    fn tail(&self) -> &'a [u8] {
        match self.key {
            KeyOf::New { tail, .. } => tail,
            _ => &[],
        }
    }

    fn symbols(&self) -> usize {
        self.tail().len()
    }
}

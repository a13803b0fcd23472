//! Looking up many keys at once: groups of keys go down level by level, so that their waits for
//! memory overlap.

use crate::area::Ref;
use crate::barrier::Process;
use crate::block::{View, tid_of};
use crate::key::{Probe, Retry};
use crate::prefetch;
use crate::root::Index;
use crate::{KeyOrder, Tid};
use core::cmp::Ordering;

/// Keys that are on their way together; more do not fit the processor's queue of misses.
const GROUP: usize = 16;

/// Where more entries of a key may be.
enum More {
    Nowhere,
    /// In the same state of the leaf, from this rank on.
    Here(usize),
    /// In this leaf.
    At(Ref),
}

impl Index {
    /// All living entries of exactly these keys: `found` gets the position in `keys` and the TID, for
    /// each key in order of the TIDs. It is called outside the barrier and may do anything.
    pub fn lookup_batch<O: KeyOrder>(
        &self,
        p: &Process,
        order: &O,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, Tid),
    ) {
        self.check_order::<O>();
        let mut tids = Vec::with_capacity(GROUP);
        for (group, keys) in keys.chunks(GROUP).enumerate() {
            {
                let _section = self.enter(p);
                let probes: [Option<Probe<'_, O>>; GROUP] =
                    core::array::from_fn(|i| keys.get(i).map(|key| Probe::new(order, key, 0)));
                let mut at = [0 as Ref; GROUP];
                for (at, probe) in at.iter_mut().zip(probes.iter().flatten()) {
                    *at = self.top(probe);
                }
                for (at, probe) in at.iter_mut().zip(probes.iter().flatten()) {
                    *at = self.descend(probe, *at, prefetch::leaf).unwrap_or(0);
                }
                for (i, probe) in probes.iter().flatten().enumerate() {
                    self.equal_entries(probe, at[i], &mut |tid| tids.push((i, tid)));
                }
            }
            for (i, tid) in tids.drain(..) {
                found(group * GROUP + i, tid);
            }
        }
    }

    /// The living entries with the probe's key, whose TID is 0; `leaf` (0: unknown) is not to the
    /// right of the first.
    fn equal_entries<O: KeyOrder>(
        &self,
        probe: &Probe<'_, O>,
        leaf: Ref,
        found: &mut dyn FnMut(Tid),
    ) {
        let spot = if leaf == 0 { None } else { self.settle(probe, leaf, false) };
        let spot = spot.unwrap_or_else(|| self.seek(probe, false));
        let (mut v, mut from) = (spot.v, spot.place.rank);
        // Above what has been reported.
        let mut after: Option<Tid> = None;
        loop {
            let mut tids = [0; crate::block::SLOTS];
            if let Ok((n, last, more)) = self.equal_in_leaf(probe, &v, from, &mut tids) {
                tids[..n].iter().for_each(|&tid| found(tid));
                after = last.or(after);
                match more {
                    More::Nowhere => return,
                    More::Here(rank) => {
                        from = rank;
                        continue;
                    }
                    More::At(next) => (v, from) = (self.block(next).view(), 0),
                }
                if !v.dead() {
                    continue;
                }
            }
            // Search the place again.
            let probe = Probe::new(probe.order, probe.key, after.unwrap_or(0));
            let spot = self.seek(&probe, after.is_some());
            (v, from) = (spot.v, spot.place.rank);
        }
    }

    /// From a rank on: how many living entries have the key, the last TID of any with it, and where more
    /// may be.
    fn equal_in_leaf<O: KeyOrder>(
        &self,
        probe: &Probe<'_, O>,
        v: &View,
        from: usize,
        tids: &mut [Tid; crate::block::SLOTS],
    ) -> Result<(usize, Option<Tid>, More), Retry> {
        let b = v.b;
        if let Some(leaf) = v.packed()? {
            let (end, next) = (probe.bound_packed(v, &leaf, from, true)?, b.next());
            let n = leaf.tids(from..end, tids);
            let last = n.checked_sub(1).map(|i| tids[i]);
            let more = match end {
                _ if n > 0 && from + n < end => More::Here(from + n),
                _ if end < leaf.len() || next == 0 => More::Nowhere,
                _ => More::At(next),
            };
            return if v.valid() { Ok((n, last, more)) } else { Err(Retry) };
        }
        let skip = b.skip();
        let prefix = probe.prefix(skip);
        let (mut n, mut last, mut next) = (0, None, b.next());
        let shared = !O::MEMCMP || skip == 0 || probe.compare_shared(b, skip) == Ordering::Equal;
        for rank in from..v.mask().count_ones() as usize {
            let slot = v.slot(rank);
            let word = b.tid_word(slot);
            let equal = shared
                && b.prefix(slot) == prefix
                && probe.compare_key(self.area, v, slot, word)? == Ordering::Equal;
            if !equal {
                next = 0;
                break;
            }
            last = Some(tid_of(word));
            if b.dead(slot) == 0 {
                tids[n] = tid_of(word);
                n += 1;
            }
        }
        let more = if next == 0 { More::Nowhere } else { More::At(next) };
        if v.valid() { Ok((n, last, more)) } else { Err(Retry) }
    }
}

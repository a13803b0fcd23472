//! Parts of packed leaves, and leaves with one more entry, whose bits were copied. They are
//! compared with a sorted vector, and with an encoding of the same entries.

use super::layout::{Form, LOW, Layout};
use super::tests::{Entry, Kind, block, check, entries, key, mix, read, sizes, tid};
use super::words::Words;
use super::*;
use crate::Tid;
use crate::sync::atomic::plain::AtomicU64;
use core::convert::Infallible;
use core::ops::Range;
use proptest::prelude::*;

/// Entries whose order a function says: by their first bytes, and then all.
struct Numbered<'a>(&'a [Entry]);

impl Sorted for Numbered<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn key(&self, i: usize) -> &[u8] {
        &self.0[i].0
    }
    fn tid(&self, i: usize) -> Tid {
        self.0[i].1
    }
    fn number(&self, i: usize) -> Option<u64> {
        Some(number(&self.0[i].0))
    }
}

fn number(key: &[u8]) -> u64 {
    crate::key::bytes::prefix_at(key, 0) >> 40
}

/// A leaf and its entries.
struct Packed {
    memory: Vec<AtomicU64>,
    model: Vec<Entry>,
    compared: bool,
    draft: Box<Draft>,
}

impl Packed {
    fn new(compared: bool, size: usize) -> Packed {
        Packed { memory: block(size), model: Vec::new(), compared, draft: Box::default() }
    }

    fn size(&self) -> usize {
        8 * self.memory.len()
    }

    fn leaf(&self) -> Leaf<'_> {
        Leaf::new(&self.memory).unwrap()
    }

    fn layout(&self) -> Layout {
        Layout::load(Words(&self.memory)).unwrap()
    }

    /// Encodes these entries.
    fn encode(&mut self, entries: &[Entry], low: &[u8], bounds: &Bounds<'_>) -> bool {
        let (mut shape, size) = (Shape::default(), self.size());
        let fits = if self.compared {
            let entries = Numbered(entries);
            shape.extend(&entries, entries.len());
            encode(&mut self.draft, &entries, &shape, low, bounds, size)
        } else {
            shape.extend(entries, entries.len());
            encode(&mut self.draft, entries, &shape, low, bounds, size)
        };
        if fits {
            self.draft.store(&self.memory);
            self.model = entries.to_vec();
        }
        fits
    }

    /// Encodes as many of these entries as it finds to have room.
    fn fill(&mut self, entries: &[Entry], low: &[u8], bounds: &Bounds<'_>) {
        let mut n = entries.len().min(MAX_ENTRIES);
        while !self.encode(&entries[..n], low, bounds) {
            n = n * 7 / 8;
            assert!(n > 0);
        }
    }

    fn search(&self, key: &[u8], tid: Tid) -> Found {
        let leaf = self.leaf();
        if !self.compared {
            return leaf.search(key, tid);
        }
        let spelling = leaf.spelling();
        let compare = |k| {
            let mut other = Vec::new();
            leaf.key(k, spelling.as_ref(), &mut other);
            Ok::<_, Infallible>(key.cmp(&other[..]))
        };
        let Ok(found) = leaf.search_by(number(key), tid, compare);
        found
    }

    /// It has what it is to have, and each of some of them is found.
    fn verify(&self) -> Result<(), TestCaseError> {
        let (leaf, model) = (self.leaf(), &self.model);
        prop_assert_eq!(&read(&leaf), model);
        for i in (0..model.len()).step_by(1 + model.len() / 6) {
            let (key, tid) = &model[i];
            let rank = model.partition_point(|e| e < &model[i]);
            prop_assert_eq!(self.search(key, *tid).rank, rank);
            if !self.compared {
                check(&leaf, model, key, *tid)?;
                check(&leaf, model, &[&key[..], &[0]].concat(), *tid)?;
            }
        }
        Ok(())
    }

    /// Takes what was arranged; all of the block was, so that between the arrays there is nothing.
    fn rearranged(&mut self, low: usize) -> Result<(), TestCaseError> {
        self.draft.store(&self.memory);
        let (l, symbols) = (self.layout(), self.leaf().tail_start(self.layout().d));
        let arrays = [
            (l.heads.bit(l.d), l.tids.offset),
            (l.tids.bit(l.n), l.ends.offset),
            (l.ends.bit(l.d), l.tail_ends.offset),
            (l.tail_ends.bit(l.d), l.tails.offset),
            (l.tails.bit(symbols), l.size),
            (8 * (LOW + low), l.template()),
        ];
        for (i, (end, next)) in arrays.into_iter().enumerate() {
            let nothing = (end..8 * next).all(|bit| Words(&self.memory).bits(bit) & 1 == 0);
            prop_assert!(nothing, "something behind array {}: {:?}", i, l);
        }
        Ok(())
    }

    /// The entries at these ranks in a leaf of their own, if copies do.
    fn part(
        &self,
        ranks: Range<usize>,
        low: &[u8],
        bounds: &Bounds<'_>,
        size: usize,
    ) -> Result<Option<Packed>, TestCaseError> {
        let mut part = Packed::new(self.compared, size);
        if !self.leaf().rearrange(ranks.clone(), Some(low), bounds, size, &mut part.draft) {
            return Ok(None);
        }
        part.rearranged(low.len())?;
        part.model = self.model[ranks.clone()].to_vec();
        for (i, &byte) in low.iter().enumerate() {
            prop_assert_eq!(Words(&part.memory).bits(8 * (LOW + i)) as u8, byte);
        }
        part.verify()?;
        if self.leaf().copies_well(&ranks) {
            let mut encoded = Packed::new(self.compared, size);
            let fits = encoded.encode(&part.model, low, bounds);
            // Another form may be shorter; what of that is common the leaf looks at.
            if fits && encoded.layout().form == part.layout().form {
                let (copied, encoded) = (part.leaf().used(), encoded.leaf().used());
                let a_bit_each = 64 + ranks.len() / 4;
                prop_assert!(copied <= encoded * 17 / 16 + a_bit_each, "{copied} {encoded}");
            }
        }
        Ok(Some(part))
    }

    /// Keeps the first `n` entries, where they are if they may.
    fn cut_off(&mut self, n: usize, low: usize, bounds: &Bounds<'_>) -> Result<(), TestCaseError> {
        let size = self.size();
        let leaf = Leaf::new(&self.memory).unwrap();
        if leaf.cut_off(n, bounds, &mut self.draft) {
            self.draft.store(&self.memory);
        } else if leaf.rearrange(0..n, None, bounds, size, &mut self.draft) {
            self.rearranged(low)?;
        } else {
            return Ok(());
        }
        self.model.truncate(n);
        self.verify()
    }

    /// Inserts in place, or by copying bits. False: neither does.
    fn insert(&mut self, (key, tid): Entry, low: usize) -> Result<bool, TestCaseError> {
        let found = self.search(&key, tid);
        let (number, leaf) = (number(&key), Leaf::new(&self.memory).unwrap());
        let grows = if found.same { Grows::Entries } else { Grows::Keys };
        let page = block(self.size());
        if leaf.insert(&found, &key, number, tid, &mut self.draft) {
            self.draft.store(&self.memory);
        } else if leaf.insert_rearranged(&found, (&key, number, tid), grows, &page, &mut self.draft)
        {
            self.rearranged(low)?;
        } else {
            return Ok(false);
        }
        self.model.insert(found.rank, (key, tid));
        self.verify()?;
        Ok(true)
    }

    fn remove(&mut self, ranks: &[u16]) -> Result<(), TestCaseError> {
        prop_assert!(Leaf::new(&self.memory).unwrap().remove_all(ranks, &mut self.draft));
        self.draft.store(&self.memory);
        for &rank in ranks.iter().rev() {
            self.model.remove(rank.into());
        }
        self.verify()
    }
}

proptest! {
    #![proptest_config(crate::seeds::of("proptest-regressions/packed_rearranged.txt"))]
    /// A leaf that is cut, takes inserts and removals, and is cut again.
    #[test]
    fn copied_bits_are_the_same_entries(
        kind in prop::sample::select(super::tests::KINDS.to_vec()),
        compared in any::<bool>(),
        tids in 0u8..3,
        numbers in prop::collection::vec(any::<u64>(), 2..900),
        close in any::<bool>(),
        twice in any::<bool>(),
        size in sizes(),
        low in 0usize..40,
        changes in prop::collection::vec((0u8..12, any::<u64>()), 1..60),
    ) {
        let near = |x: u64| if close { numbers[0].wrapping_add(x % 5000) } else { x };
        let numbers: Vec<u64> = numbers.iter().map(|&x| near(x)).collect();
        let all = entries(kind, tids, &numbers, twice);
        let open = Bounds { low: &[], high: None, coming: Grows::Keys.into() };
        let mut packed = Packed::new(compared, size);
        let mut low = vec![3; low];
        packed.fill(&all, &low, &open);
        for (change, x) in changes {
            let (n, at) = (packed.model.len(), x as usize >> 8);
            let grows = [Grows::Keys, Grows::Below, Grows::Entries][at % 3];
            let coming = Coming { grows, tid: (at % 2 == 0).then(|| tid(tids, mix(x))) };
            match change {
                0 | 1 if n >= 2 => {
                    let cut = 1 + at % (n - 1);
                    let sep = packed.model[cut].0.clone();
                    let last = [&packed.model[n - 1].0[..], &[1]].concat();
                    let first = packed.model[0].0.clone();
                    if change == 0 {
                        let high = (at % 5 > 0).then_some(&last[..]);
                        let bounds = Bounds { low: &sep, high, coming };
                        let new_low = vec![5; at % 120];
                        let size = if at % 7 == 0 { 4096 } else { size };
                        if let Some(part) = packed.part(cut..n, &new_low, &bounds, size)? {
                            (packed, low) = (part, new_low);
                        }
                    } else {
                        let bounds = Bounds { low: &first, high: Some(&sep), coming };
                        packed.cut_off(cut, low.len(), &bounds)?;
                    }
                }
                2 if n >= 2 => {
                    let gone = (0..n - 1).filter(|&i| mix(x ^ i as u64).is_multiple_of(5));
                    let gone: Vec<u16> = gone.map(|rank| rank as u16).collect();
                    if !gone.is_empty() {
                        packed.remove(&gone)?;
                    }
                }
                _ => {
                    let near = packed.model[at % n].0.clone();
                    let key = if change < 5 { near } else { key(kind, numbers[at % numbers.len()] ^ (x % 4)) };
                    let entry = (key, tid(tids, mix(x)));
                    if !packed.model.contains(&entry) && !packed.insert(entry.clone(), low.len())? {
                        let mut more = packed.model.clone();
                        more.insert(more.partition_point(|e| e < &entry), entry);
                        packed.encode(&more, &low, &Bounds { coming, ..open });
                    }
                }
            }
        }
    }
}

/// All forms, with and without an alphabet, several entries of a key, and tails of several lengths.
/// Each is cut by bits, and arranged anew for another entry of a key.
#[test]
fn every_form_is_rearranged() {
    use Kind::*;
    let mut seen = Vec::new();
    let kinds = [Int, Long, Decimal, Hex, FixedBytes, LongBytes, Scattered, Pair, LongText];
    let cases = kinds.into_iter().flat_map(|kind| [(kind, false, 1), (kind, false, 3)]);
    let compared = [Hex, Decimal, LongBytes].map(|kind| (kind, true, 1));
    for (kind, compared, several) in cases.chain(compared) {
        let numbers: Vec<u64> = (0..60).map(mix).collect();
        let keys = entries(kind, 1, &numbers, false);
        let mut all: Vec<Entry> = keys.clone();
        (1..several).for_each(|i| all.extend(keys.iter().map(|(k, tid)| (k.clone(), tid + i))));
        all.sort();
        let open = Bounds { low: &[], high: None, coming: Grows::Keys.into() };
        let mut packed = Packed::new(compared, 16384);
        packed.fill(&all, &[7], &open);
        let (n, l) = (all.len(), packed.layout());
        assert_eq!(packed.model, all);
        let name = format!("{kind:?}, {:?}", l.form);
        // Another entry of a key has no place where each has one.
        let (key, tid) = all[20].clone();
        let no_place = several == 1 && !matches!(kind, Int | Decimal);
        let found = packed.search(&key, tid + 9);
        let in_place =
            packed.leaf().insert(&found, &key, number(&key), tid + 9, &mut Draft::default());
        assert!(!no_place || !in_place, "{name}");
        assert!(packed.insert((key, tid + 9), 1).unwrap(), "{name}");
        let sep = packed.model[n / 2].0.clone();
        let bounds = Bounds { low: &sep, high: None, coming: Grows::Keys.into() };
        let right = packed.part(n / 2..n + 1, &[5; 33], &bounds, 16384).unwrap();
        let right = right.unwrap_or_else(|| panic!("{name}"));
        assert!(right.layout().ends.width > 0 || several == 1, "{name}");
        let left = Bounds { low: &[], high: Some(&sep), coming: Grows::Keys.into() };
        packed.cut_off(n / 2, 1, &left).unwrap();
        assert_eq!(packed.model.len(), n / 2, "{name}");
        seen.push((l.form, l.symbols > 0, l.tail_ends.width > 0, l.ends.width > 0));
    }
    let of = |form, alphabet, vary| {
        let with = |ends| seen.contains(&(form, alphabet, vary, ends));
        with(false) && (form == Form::Compared || with(true))
    };
    for (form, alphabet, vary) in [
        (Form::Adjacent, false, false),
        (Form::Scattered, false, false),
        (Form::Short, false, false),
        (Form::Wide, false, false),
        (Form::Wide, false, true),
        (Form::Wide, true, false),
        (Form::Wide, true, true),
        (Form::Compared, true, false),
        (Form::Compared, true, true),
    ] {
        assert!(of(form, alphabet, vary), "{form:?} {alphabet} {vary} of {seen:?}");
    }
}

/// A longer low key may take a larger block. There are more bits for the ends of tails then.
#[test]
fn a_part_has_a_larger_block() {
    for (kind, compared) in [(Kind::Zeros, false), (Kind::Zeros, true), (Kind::Letters, true)] {
        let numbers: Vec<u64> = (0..60).map(|i| mix(i) | 11).collect();
        let mut packed = Packed::new(compared, 1792);
        let open = Bounds { low: &[], high: None, coming: Grows::Keys.into() };
        packed.fill(&entries(kind, 1, &numbers, false), &[], &open);
        let n = packed.model.len();
        let part = packed.part(n / 2..n, &[5; 900], &open, 16384).unwrap();
        let (before, after) = (packed.layout(), part.expect("copies do").layout());
        assert_eq!(after.tail_ends.width > 0, before.tail_ends.width > 0);
        assert!(after.tail_ends.width == 0 || after.tail_ends.width > before.tail_ends.width);
    }
}

/// All entries of a leaf are those of one key: it is cut among them.
#[test]
fn a_key_is_cut() {
    let all: Vec<Entry> = (0..400).map(|i| (b"one".to_vec(), i << 16 | 1)).collect();
    let open = Bounds { low: &[], high: None, coming: Grows::Entries.into() };
    let mut packed = Packed::new(false, 1792);
    packed.fill(&all, &[], &open);
    assert_eq!(packed.model.len(), 400);
    let bounds = Bounds { low: b"one", high: None, coming: Grows::Entries.into() };
    let mut right = packed.part(150..400, &[5; 9], &bounds, 1792).unwrap().unwrap();
    let left = Bounds { low: &[], high: Some(b"one"), coming: Grows::Entries.into() };
    packed.cut_off(150, 0, &left).unwrap();
    for (half, tid) in [(&mut packed, 70 << 16), (&mut right, 401 << 16 | 1)] {
        assert!([150, 250].contains(&half.model.len()));
        assert!(half.insert((b"one".to_vec(), tid), 0).unwrap());
    }
}

/// Keys of a part that are all alike where others of the leaf were not are encoded: that is
/// shorter.
#[test]
fn a_part_that_copied_bits_would_make_larger_is_encoded() {
    let well = |keys: &[&str], part: Range<usize>| {
        let all: Vec<Entry> = keys.iter().map(|key| (key.as_bytes().to_vec(), 1)).collect();
        let open = Bounds { low: &[], high: None, coming: Grows::Keys.into() };
        let mut packed = Packed::new(false, 1792);
        packed.fill(&all, &[], &open);
        assert_eq!(packed.model, all);
        packed.leaf().copies_well(&part)
    };
    // More than they share with the others, by half of a head.
    assert!(!well(&["a\0", "bbbbcdefghij\0", "bbbbdefghijkl\0"], 1..3));
    assert!(well(&["a\0", "bbbbcdefghij\0", "bcdefghijkl\0"], 1..3));
    // Fewer letters.
    let letters = "abcdefghijklmnopqrstuvw\0";
    assert!(!well(&[letters, "xbba\0", "xzyaaaaaaaaa\0"], 1..3));
    assert!(well(&[letters, letters.replace('v', "w").as_str()], 0..2));
    // One length.
    assert!(!well(&["abcdefghijk", "bcdefghijklmnopq", "ccdefghijklmnopr"], 1..3));
    assert!(well(&["abcdefghijk", "bcdefghijklmnopq", "ccdefghijklmno"], 1..3));
    // Seven bytes.
    assert!(!well(&["abcdefghijk", "b", "cd"], 1..3));
    assert!(!well(&["a", "ab", "bc"], 1..3));
    assert!(well(&["a", "ab", "bc"], 0..2));
}

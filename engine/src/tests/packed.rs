//! Packed leaves beside a sorted vector, and in pieces.

use super::words::Words;
use super::*;
use crate::Tid;
use crate::sync::atomic::plain::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use proptest::prelude::*;

pub(super) type Entry = (Vec<u8>, Tid);

impl Sorted for [Entry] {
    fn len(&self) -> usize {
        <[Entry]>::len(self)
    }
    fn key(&self, i: usize) -> &[u8] {
        &self[i].0
    }
    fn tid(&self, i: usize) -> Tid {
        self[i].1
    }
}

pub(super) fn mix(i: u64) -> u64 {
    let z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Keys as they occur.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Few,
    Int,
    Long,
    Decimal,
    Hex,
    Letters,
    Email,
    Unicode,
    Uuid,
    Device,
    Scattered,
    Suffixed,
    Zeros,
    Empty,
    FixedBytes,
    LongText,
    LongBytes,
    /// Two numbers of several lengths,
    Pair,
    /// Keys that differ only in zeros at the end.
    Ended,
}
pub(super) use Kind::*;

pub(super) const KINDS: [Kind; 19] = [
    Few, Int, Long, Decimal, Hex, Letters, Email, Unicode, Uuid, Device, Scattered, Suffixed,
    Zeros, Empty, FixedBytes, LongText, LongBytes, Pair, Ended,
];

pub(super) fn key(kind: Kind, x: u64) -> Vec<u8> {
    let text = |text: String| [text.as_bytes(), &[0]].concat();
    match kind {
        Few => ((x % 3) as u32).to_be_bytes().into(),
        Int => ((x % 5000) as u32).to_be_bytes().into(),
        Long => x.to_be_bytes().into(),
        Decimal => text((x % 100_000).to_string()),
        // Many end with the first letter.
        Letters => {
            text((0..12).map(|i| ['a', 'a', 'b', 'c'][(x >> (5 * i)) as usize % 4]).collect())
        }
        Hex => text(format!("{x:016x}{:016x}", mix(x))),
        Email => {
            text(format!("{}{}@{}.org", ["anna", "jo", "max"][x as usize % 3], x % 997, x % 7))
        }
        Unicode => text(["ä", "öß", "日本", "é", "aé"][x as usize % 5].repeat(1 + x as usize % 4)),
        Uuid => [x, mix(x)].map(u64::to_be_bytes).concat(),
        Device => [&((x % 3) as u32).to_be_bytes()[..], &(x % 9999).to_be_bytes()].concat(),
        Scattered => {
            let mut key = vec![7; 64];
            for (i, byte) in [(3, 0), (20, 1), (21, 2), (63, 3)] {
                key[i] = (x >> (8 * byte)) as u8;
            }
            key
        }
        Suffixed => [&[1, 2][..], &(x as u16).to_be_bytes(), &[9; 5]].concat(),
        Zeros => (0..x % 12).map(|i| [0, 1, 255, 0][(x >> (5 + 2 * i)) as usize % 4]).collect(),
        Empty => Vec::new(),
        FixedBytes => (0..11 + 2 * 8).map(|i| (mix(x ^ i) % 3) as u8).collect(),
        LongText => text(
            "common ".repeat(x as usize % 2 * 30) + &format!("{x:x}").repeat(1 + x as usize % 7),
        ),
        Pair => [x % 40, x >> 40 & 0xfff]
            .map(|n| {
                let bytes = 8 - (n | 1).leading_zeros() as usize / 8;
                [&[0xC0 + bytes as u8][..], &n.to_be_bytes()[8 - bytes..]].concat()
            })
            .concat(),
        Ended => [&[5, 6][..], &vec![x as u8 % 2; x as usize % 7]].concat(),
        LongBytes => [&vec![0; 280 + x as usize % 2][..], &x.to_be_bytes()].concat(),
    }
}

/// TIDs near each other, of a table, and anything.
pub(super) fn tid(kind: u8, x: u64) -> Tid {
    match kind % 3 {
        0 => ((x % 40) << 16) | ((x >> 8) % 5),
        1 => ((x % 13_000) << 16) | (1 + (x >> 32) % 226),
        _ => x >> 16,
    }
}

/// Memory of a block.
pub(super) fn block(size: usize) -> Vec<AtomicU64> {
    (0..size / 8).map(|_| AtomicU64::new(u64::MAX)).collect()
}

pub(super) fn shape_of(entries: &[Entry]) -> Shape {
    let mut shape = Shape::default();
    shape.extend(entries, entries.len());
    shape
}

/// Encodes as many of the entries as fit and returns how many.
pub(super) fn fill(entries: &[Entry], bounds: &Bounds<'_>, low: &[u8], to: &[AtomicU64]) -> usize {
    let (mut shape, mut draft) = (Shape::default(), Draft::default());
    let size = 8 * to.len();
    let mut n = 0;
    while n < entries.len() {
        let before = shape.clone();
        shape.extend(entries, n + 1);
        if shape.size(entries, low.len(), size) > size {
            shape = before;
            break;
        }
        n += 1;
    }
    assert!(n > 0, "not even one");
    assert!(
        encode(&mut draft, &entries[..n], &shape, low, bounds, size),
        "the size is known before"
    );
    draft.store(to);
    n
}

pub(super) fn read(leaf: &Leaf<'_>) -> Vec<Entry> {
    let (mut tids, mut keys, mut ends) = ([0; PART], Vec::new(), [0; PART]);
    let (mut all, mut rank) = (Vec::new(), 0);
    while rank < leaf.len() {
        // Parts of different length.
        let to = rank + 1 + rank * 7 % PART;
        let n = leaf.tids(rank..to, &mut tids);
        keys.clear();
        assert_eq!(leaf.keys(rank..to, &mut keys, &mut ends), n);
        let mut start = 0;
        for i in 0..n {
            all.push((keys[start..ends[i] as usize].to_vec(), tids[i]));
            start = ends[i] as usize;
        }
        assert_eq!(start, keys.len());
        rank += n;
    }
    all
}

/// Keys at and around `key`.
fn around(key: &[u8]) -> Vec<Vec<u8>> {
    let mut keys = vec![key.to_vec(), [key, &[0]].concat(), [key, &[255]].concat()];
    for cut in 0..key.len() {
        if cut < 3 || cut + 12 > key.len() || cut % 16 == 0 {
            keys.push(key[..cut].to_vec());
            keys.push([&key[..cut], &[0]].concat());
            for by in [1, 255, 128] {
                let mut other = key.to_vec();
                other[cut] = other[cut].wrapping_add(by);
                keys.push(other);
            }
        }
    }
    keys
}

pub(super) fn check(
    leaf: &Leaf<'_>,
    model: &[Entry],
    probe: &[u8],
    tid: Tid,
) -> Result<(), TestCaseError> {
    let below = model.partition_point(|e| &e.0[..] < probe);
    prop_assert_eq!(leaf.lower_bound(probe), below, "below {:?}", probe);
    let found = leaf.search(probe, tid);
    let rank = model.partition_point(|e| (&e.0[..], e.1) < (probe, tid));
    let equal = model[rank..].iter().take_while(|e| e.0 == probe && e.1 == tid).count();
    let same = model.get(below).is_some_and(|e| e.0 == probe);
    prop_assert_eq!(
        (found.same, found.rank, found.equal),
        (same, rank, equal),
        "{:?} {}",
        probe,
        tid
    );
    Ok(())
}

pub(super) fn entries(kind: Kind, tids: u8, numbers: &[u64], twice: bool) -> Vec<Entry> {
    let mut all: Vec<_> = numbers.iter().map(|&x| (key(kind, x), tid(tids, mix(x)))).collect();
    all.sort();
    if !twice {
        all.dedup();
    }
    all
}

pub(super) fn sizes() -> impl Strategy<Value = usize> {
    prop::sample::select(vec![1792usize, 2304, 4096, 16384])
}

/// Offsets that need more bits than those of the leaf: behind all of their page, before the next
/// one's.
#[test]
fn offsets_that_are_not_in_the_leaf() {
    let entries: Vec<Entry> =
        (0..40u64).map(|i| (b"one".to_vec(), ((i / 4) << 16) | (i % 4))).collect();
    let memory = block(1792);
    let bounds = Bounds { low: b"", high: None, coming: Grows::Keys.into() };
    let n = fill(&entries, &bounds, b"", &memory);
    assert_eq!(n, entries.len());
    let leaf = Leaf::new(&memory).unwrap();
    for page in 0..11 {
        for offset in [0, 3, 4, 7, 8, 100, 0xffff] {
            check(&leaf, &entries, b"one", (page << 16) | offset).unwrap();
        }
    }
    check(&leaf, &entries, b"one", Tid::MAX).unwrap();
}

proptest! {
    #![proptest_config(crate::seeds::of("proptest-regressions/packed.txt"))]
    /// Encoded entries are found and read, and no others are found.
    #[test]
    fn encoded_entries_are_found(
        kind in prop::sample::select(KINDS.to_vec()),
        tids in 0u8..3,
        numbers in prop::collection::vec(any::<u64>(), 1..1200),
        close in any::<bool>(),
        twice in any::<bool>(),
        size in sizes(),
        low in 0usize..40,
        bounded in any::<bool>(),
    ) {
        let numbers: Vec<u64> = match close {
            true => numbers.iter().map(|x| numbers[0].wrapping_add(x % 5000)).collect(),
            false => numbers,
        };
        let all = entries(kind, tids, &numbers, twice);
        let high = [&all[all.len() - 1].0[..], &[0]].concat();
        let bounds = Bounds {
            low: if bounded { &all[0].0 } else { &[] },
            high: bounded.then_some(&high[..]),
            coming: Coming { grows: Grows::Keys, tid: bounded.then_some(13_000 << 16) },
        };
        let memory = block(size);
        let n = fill(&all, &bounds, &vec![5; low], &memory);
        let model = &all[..n];
        let leaf = Leaf::new(&memory).unwrap();
        prop_assert_eq!(leaf.len(), n);
        prop_assert_eq!(&read(&leaf)[..], model);
        for (i, (key, tid)) in model.iter().enumerate() {
            check(&leaf, model, key, *tid)?;
            if i % (1 + n / 20) == 0 {
                for probe in around(key) {
                    for tid in [*tid, 0, tid + 1, tid.wrapping_sub(1), 1 << 47, Tid::MAX] {
                        check(&leaf, model, &probe, tid)?;
                    }
                }
            }
        }
        // The first words belong to the index, but for two.
        for (i, word) in memory[..8].iter().enumerate() {
            prop_assert_eq!(word.load(Relaxed) == u64::MAX, i != 3 && i != 4);
        }
        for (i, byte) in (0..low).map(|i| (i, Words(&memory).bits(8 * (104 + i)) as u8)) {
            prop_assert_eq!(byte, 5, "low key at {}", i);
        }
    }

    /// Inserts and removals in place, or by another encoding, are those of a sorted vector.
    #[test]
    fn changes_in_place_are_those_of_a_vector(
        kind in prop::sample::select(KINDS.to_vec()),
        tids in 0u8..3,
        numbers in prop::collection::vec(any::<u64>(), 1..400),
        changes in prop::collection::vec((any::<bool>(), any::<u64>()), 1..400),
        close in any::<bool>(),
        size in sizes(),
    ) {
        let near = |x: u64| if close { numbers[0].wrapping_add(x % 5000) } else { x };
        let start: Vec<u64> = numbers.iter().map(|&x| near(x)).collect();
        let mut model = entries(kind, tids, &start, false);
        let bounds = Bounds { low: &[], high: None, coming: Grows::Keys.into() };
        let memory = block(size);
        let n = fill(&model, &bounds, &[], &memory);
        model.truncate(n - n / 4);
        model.truncate(fill(&model, &bounds, &[], &memory));
        let mut draft = Draft::default();
        for (insert, x) in changes {
            let x = near(x);
            let leaf = Leaf::new(&memory).unwrap();
            if insert || model.len() < 2 {
                let (key, tid) = (key(kind, x), tid(tids, mix(x)));
                let found = leaf.search(&key, tid);
                let rank = model.partition_point(|e| (&e.0, e.1) <= (&key, tid));
                let fits = leaf.insert(&found, &key, 0, tid, &mut draft);
                model.insert(rank, (key, tid));
                if fits {
                    draft.store(&memory);
                } else {
                    let shape = shape_of(&model);
                    if !encode(&mut draft, &model[..], &shape, &[], &bounds, size) {
                        model.remove(rank);
                        continue;
                    }
                    draft.store(&memory);
                }
            } else if x % 8 == 0 {
                let some = (0..model.len()).filter(|&i| mix(x ^ i as u64).is_multiple_of(5));
                let gone: Vec<u16> = some.skip(x as usize / 8 % 20).map(|rank| rank as u16).collect();
                prop_assert_eq!(leaf.remove_all(&gone, &mut draft), !gone.is_empty());
                if !gone.is_empty() {
                    draft.store(&memory);
                }
                for rank in gone.into_iter().rev() {
                    model.remove(rank.into());
                }
            } else {
                let rank = x as usize % model.len();
                prop_assert!(leaf.remove(rank, &mut draft));
                draft.store(&memory);
                model.remove(rank);
            }
            let leaf = Leaf::new(&memory).unwrap();
            prop_assert_eq!(read(&leaf), &model[..]);
            check(&leaf, &model, &key(kind, x), tid(tids, mix(x)))?;
        }
        while !model.is_empty() {
            prop_assert!(Leaf::new(&memory).unwrap().remove(0, &mut draft));
            draft.store(&memory);
            model.remove(0);
            prop_assert_eq!(read(&Leaf::new(&memory).unwrap()), &model[..]);
        }
        check(&Leaf::new(&memory).unwrap(), &model, b"anything", 7)?;
    }
}

/// The range differs in more columns than the entries.
#[test]
fn a_range_wider_than_its_content() {
    let key = |i: u64| (i * 5000).to_be_bytes().to_vec();
    let all: Vec<(Vec<u8>, Tid)> = (1..200).map(|i| (key(i), i << 16 | 1)).collect();
    let high = (1u64 << 20).to_be_bytes();
    let bounds = Bounds { low: &[0; 3], high: Some(&high), coming: Grows::Keys.into() };
    let memory = block(1792);
    assert_eq!(fill(&all, &bounds, &[], &memory), all.len());
    let leaf = Leaf::new(&memory).unwrap();
    for (rank, (key, tid)) in all.iter().enumerate() {
        let found = leaf.search(key, *tid);
        assert_eq!((found.rank, found.equal), (rank, 1));
    }
}

/// A key that goes on where the first one ends has a zero inside once a third key has shown that
/// less is shared.
#[test]
fn a_zero_behind_the_end_of_the_first_key() {
    let keys: [&[u8]; 4] = [b"ab\0", b"ab\0c\0", b"abd\0", b"abdd\0"];
    let all: Vec<Entry> = (1..).zip(keys).map(|(tid, key)| (key.to_vec(), tid)).collect();
    let bounds = Bounds { low: b"", high: None, coming: Grows::Keys.into() };
    let memory = block(1792);
    assert_eq!(fill(&all, &bounds, &[], &memory), all.len());
    assert_eq!(read(&Leaf::new(&memory).unwrap()), all);
}

/// Two numbers of several lengths have no tails; of keys that are longer there have to be some.
#[test]
fn short_keys_are_in_heads() {
    let form = |keys: &[Vec<u8>]| {
        let mut entries: Vec<Entry> = keys.iter().map(|key| (key.clone(), 1 << 16 | 1)).collect();
        entries.sort();
        shape_of(&entries).content(&entries[..], 1792).form
    };
    let pairs: Vec<Vec<u8>> = (0..300).map(|i| key(Pair, mix(i))).collect();
    assert_eq!(form(&pairs), layout::Form::Short);
    assert_eq!(form(&[vec![1], vec![1, 2, 3, 4, 5, 6, 7, 8]]), layout::Form::Short);
    assert_eq!(form(&[vec![1], vec![1, 2, 3, 4, 5, 6, 7, 8, 9]]), layout::Form::Wide);
}

//! Orders that contradict themselves: whatever they say, everything comes to an end.

use crate::memory::area::tests::Mapping;
use crate::memory::process::Process;
use crate::node::low_key::LowKeyCopy;
use crate::prelude::*;
use crate::sync::stop::doing;
use crate::tree::insert::MOST_SPLITS;
use crate::tree::seek::{TURNS, steps};
use crate::{Cursor, Index, IndexOptions, InsertError, KeyOrder, Memcmp, TOGETHER, Tid};
use core::cell::Cell;
use core::cmp::Ordering;
use core::sync::atomic::Ordering::Relaxed;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

const CURRENT: u32 = u32::MAX - 1;

/// How an order lies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    /// The number of a key is not the same each time.
    Numbers,
    /// Numbers ascend where keys descend.
    AgainstNumbers,
    Random,
    /// Each second answer is turned round.
    Flipping,
    AlwaysLess,
    AlwaysGreater,
    /// A key is below itself.
    NeverEqual,
    /// Stone, paper, scissors.
    Round,
    /// The order is turned round after a while.
    Reversed,
}

const LIES: [Lie; 9] = [
    Lie::Numbers,
    Lie::AgainstNumbers,
    Lie::Random,
    Lie::Flipping,
    Lie::AlwaysLess,
    Lie::AlwaysGreater,
    Lie::NeverEqual,
    Lie::Round,
    Lie::Reversed,
];

/// Unwinds where an order is found out.
struct FoundOut;

struct Liar {
    lie: Lie,
    asked: Cell<u64>,
    reversed: Cell<bool>,
}

impl Liar {
    fn new(lie: Lie) -> Liar {
        Liar { lie, asked: Cell::new(0), reversed: Cell::new(false) }
    }

    fn random(&self) -> u64 {
        self.asked.set(self.asked.get() + 1);
        mix(self.asked.get())
    }
}

impl KeyOrder for Liar {
    const MEMCMP: bool = false;

    fn abbrev(&self, key: &[u8]) -> u64 {
        match self.lie {
            Lie::Numbers => self.random(),
            Lie::AgainstNumbers => crate::key::bytes::prefix_at(key, 0),
            _ => 0,
        }
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let honest = a.cmp(b);
        let class = |key: &[u8]| key.last().map_or(0, |&byte| byte % 3);
        match self.lie {
            Lie::Numbers => honest,
            Lie::AgainstNumbers => honest.reverse(),
            Lie::Random => {
                [Ordering::Less, Ordering::Equal, Ordering::Greater][self.random() as usize % 3]
            }
            Lie::Flipping => {
                self.asked.set(self.asked.get() + 1);
                if self.asked.get().is_multiple_of(2) { honest.reverse() } else { honest }
            }
            Lie::AlwaysLess => Ordering::Less,
            Lie::AlwaysGreater => Ordering::Greater,
            Lie::NeverEqual if honest.is_eq() => Ordering::Less,
            Lie::NeverEqual => honest,
            Lie::Round => match (class(a) + 3 - class(b)) % 3 {
                0 => honest,
                1 => Ordering::Greater,
                _ => Ordering::Less,
            },
            Lie::Reversed if self.reversed.get() => honest.reverse(),
            Lie::Reversed => honest,
        }
    }

    fn inconsistent(&self) -> ! {
        resume_unwind(Box::new(FoundOut));
    }
}

fn mix(i: u64) -> u64 {
    let z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 27)
}

fn world(
    order: &impl KeyOrder,
    rows: u64,
    key: impl Fn(u64) -> Vec<u8>,
) -> (Mapping, Process, Index) {
    let area = Mapping::new(16 << 20, 1);
    // SAFETY: one process.
    let p = unsafe { Process::attach(*area, 0) };
    let index = Index::create(&p, &IndexOptions::default()).unwrap();
    for i in 0..rows {
        attempt(|| _ = index.insert(&p, order, &key(i), i).unwrap());
    }
    (area, p, index)
}

/// False: the order was found out.
fn attempt(act: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(()) => true,
        Err(found_out) if found_out.is::<FoundOut>() => false,
        Err(panic) => resume_unwind(panic),
    }
}

/// One thing that a server does.
fn act(p: &Process, index: Index, order: &Liar, cursor: &mut Cursor, i: u64) {
    let (key, tid): (_, Tid) = (mix(i) % 20_000, mix(!i) % 4);
    let bytes = |key: u64| [&key.to_be_bytes()[..], &[b'x'; 20][..(key % 20) as usize]].concat();
    match mix(i + 7) % 16 {
        0..6 => match index.insert(p, order, &bytes(key), tid) {
            Ok(_) | Err(InsertError::TooManyLives) => {}
            Err(e) => panic!("{e}"),
        },
        6..8 => _ = index.insert_new_in_term(p, order, &bytes(key), tid, index.term()).unwrap(),
        8..11 => _ = index.remove(p, order, &bytes(key), tid),
        11 => _ = index.contains(p, order, &bytes(key), tid),
        12..15 => {
            cursor.read_few(i.is_multiple_of(3));
            cursor.set_range(&bytes(key), Some(&bytes(key + 90)), CURRENT);
            for _ in 0..10 {
                match mix(i) & 1 == 0 {
                    true => cursor.next(p, index, order),
                    false => cursor.prev(p, index, order),
                };
                if mix(i) & 14 == 0 {
                    cursor.remove(p, index, &(0..cursor.len() as u16).collect::<Vec<_>>());
                }
            }
        }
        _ => {
            let mut cursors: [_; TOGETHER] = core::array::from_fn(|j| {
                let mut cursor = Box::new(Cursor::new(false));
                cursor.set_range(&bytes(key + j as u64), None, CURRENT);
                cursor
            });
            Cursor::first_of_each(&mut cursors, 2, p, index, order);
        }
    }
}

#[test]
fn every_call_ends_under_any_order() {
    for lie in LIES {
        let order = Liar::new(lie);
        let (_area, p, index) = world(&order, 0, |_| Vec::new());
        let mut cursor = Cursor::new(true);
        for i in 0..15_000 {
            order.reversed.set(i > 8000);
            let snapshot = (i % 64 == 0).then(|| index.create_snapshot(&p, 1, &mut || ()).unwrap());
            let most = 10 * u64::from(index.stats().blocks[0]) + 100_000;
            let step = || _ = attempt(|| act(&p, index, &order, &mut cursor, i));
            let (aside, _) = steps::of(step);
            assert!(aside < most, "{lie:?}: {aside} steps");
            if let Some(snapshot) = snapshot {
                index.release(&p, snapshot);
            }
        }
        let stats = index.stats();
        assert!(stats.splits < 15_000, "{lie:?}: {} splits", stats.splits);
        assert_eq!(index.area.usage().active, 0, "{lie:?}: left inside the barrier");
    }
}

/// Keys and TIDs that ascend among others: a leaf is cut where the new entry comes, and the new
/// leaf is empty. An order that leads the entry to the full leaf again has it cut again.
#[test]
fn an_insert_ends_where_its_splits_are_in_vain() {
    let mut found_out = 0;
    for lie in LIES {
        let order = Liar::new(lie);
        let key = |i: u64| [&b"z"[..], &i.to_be_bytes()].concat();
        let (_area, p, index) = world(&order, 100, key);
        for i in 100..2000u64 {
            let before = index.stats().splits;
            let ended = attempt(|| _ = index.insert(&p, &order, &i.to_be_bytes(), i).unwrap());
            let splits = index.stats().splits - before;
            assert!(splits <= 1 + MOST_SPLITS, "{lie:?}: {splits} splits by one insert");
            found_out += u32::from(!ended);
            if !ended {
                break;
            }
        }
    }
    assert!(found_out > 0);
}

/// Keys whose numbers are not the same each time, inserted and looked up.
#[test]
fn numbers_that_change_lead_to_some_place() {
    let order = Liar::new(Lie::Numbers);
    let (_area, p, index) = world(&order, 0, |_| Vec::new());
    for i in 0..60_000u64 {
        let key = (i * 7919 % 60_000).to_be_bytes();
        let (aside, ways) = steps::of(|| {
            attempt(|| _ = index.insert(&p, &order, &key, i).unwrap());
            attempt(|| _ = index.contains(&p, &order, &key, i));
        });
        assert!(aside < 1000 && ways < 1000, "{aside} steps, {ways} ways");
    }
}

/// Calls every key too great but the low key of one index node. That one it calls smaller each
/// second time, up to a number of answers.
struct Fickle {
    low: Vec<u8>,
    asked: Cell<u64>,
    until: u64,
}

impl KeyOrder for Fickle {
    const MEMCMP: bool = false;
    fn abbrev(&self, _: &[u8]) -> u64 {
        0
    }
    fn compare(&self, _: &[u8], b: &[u8]) -> Ordering {
        self.asked.set(self.asked.get() + u64::from(b == self.low));
        let smaller = b == self.low && self.asked.get() % 2 == 1 && self.asked.get() <= self.until;
        if smaller { Ordering::Greater } else { Ordering::Less }
    }
    fn inconsistent(&self) -> ! {
        resume_unwind(Box::new(FoundOut));
    }
}

/// The flat top leads to the second index node, which then is too far to the right. The way from
/// the first node leads there, too, or to a place.
#[test]
fn a_search_without_a_way_raises() {
    let honest = Liar::new(Lie::Reversed);
    let (area, p, index) = world(&honest, 16_000, |i| i.to_be_bytes().to_vec());
    let second = index.block(index.shared().node.load(Relaxed)).next();
    let mut low = LowKeyCopy::new(*area);
    let low = low.load(second).expect("a second index node").key.to_vec();
    let in_vain = 1 + u64::from(TURNS);
    for (until, finds) in [(u64::MAX, false), (2 * in_vain, true)] {
        let order = Fickle { low: low.clone(), asked: Cell::new(0), until };
        let mut ended = true;
        let look = || ended = attempt(|| assert!(!index.contains(&p, &order, b"key", 1)));
        let (_, ways) = steps::of(look);
        assert_eq!((ended, ways), (finds, in_vain + 1));
        assert_eq!(area.usage().active, 0, "left inside the barrier");
    }
    assert!(index.contains(&p, &honest, &7u64.to_be_bytes(), 7));
}

/// Invisible entries are passed in parts. A scan goes on by its rank there, not by a search that an
/// order could lead back.
#[test]
fn a_scan_ends_where_nothing_is_visible() {
    for forward in [true, false] {
        // Not yet.
        let honest = Liar::new(Lie::Reversed);
        let (_area, p, index) = world(&honest, 50, |i| i.to_be_bytes().to_vec());
        let snapshot = index.create_snapshot(&p, 1, &mut || ()).unwrap();
        (1..49u64).for_each(|i| assert!(index.remove(&p, &honest, &i.to_be_bytes(), i)));
        let mut cursor = Cursor::new(true);
        cursor.read_few(true);
        cursor.set_range(&[], None, CURRENT);
        let mut copied = 0;
        let count = move |point| {
            copied += u32::from(point == "scan: copied");
            assert!(copied < 1000, "a scan does not end");
        };
        let lie = if forward { Lie::AlwaysLess } else { Lie::AlwaysGreater };
        let order = Liar::new(lie);
        let mut tids = Vec::new();
        doing(count, || {
            while match forward {
                true => cursor.next(&p, index, &order),
                false => cursor.prev(&p, index, &order),
            } > 0
            {
                tids.extend_from_slice(cursor.tids());
            }
        });
        tids.sort_unstable();
        assert_eq!(tids, [0, 49]);
        index.release(&p, snapshot);
    }
}

/// Byte order has nothing to say: where it finds no place the index is damaged.
#[test]
#[should_panic(expected = "the index is damaged")]
fn an_order_of_bytes_says_that_the_index_is_damaged() {
    Memcmp.inconsistent();
}

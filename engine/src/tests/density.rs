//! Bytes per entry of usual columns: leaves, index nodes, chunks and the root. A change that makes
//! one of them worse by a twentieth must change the number here. So must one that makes it better.

use crate::build::adopt;
use crate::collect::collector;
use crate::memory::area::tests::Mapping;
use crate::memory::process::Process;
use crate::prelude::*;
use crate::{Builder, Forms, Index, IndexOptions, KeyOrder, Memcmp, Sweep, Swept, Tid};
use std::cmp::Ordering;
use std::fmt::Write;

const ROWS: u64 = 40_000;
/// Of extents that are as large as they can be one is no great part.
const ROWS_HELD: u64 = 1_000_000;

fn mix(i: u64) -> u64 {
    let z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Where a row is: 100 on a page.
fn tid(row: u64) -> Tid {
    (row / 100) << 16 | (row % 100 + 1)
}

/// Keys as PostgreSQL's columns are written.
#[derive(Default)]
struct Key(Vec<u8>);

impl Key {
    fn int(mut self, v: u64) -> Key {
        if v < 64 {
            self.0.push(0x80 | v as u8);
        } else {
            let bytes = 8 - v.leading_zeros() as usize / 8;
            self.0.push(0xC0 + bytes as u8);
            self.0.extend_from_slice(&v.to_be_bytes()[8 - bytes..]);
        }
        self
    }
    fn text(mut self, text: &str) -> Key {
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
        self
    }
    fn uuid(mut self, high: u64, low: u64) -> Key {
        self.0.push(0x80);
        self.0.extend_from_slice(&high.to_be_bytes());
        self.0.extend_from_slice(&low.to_be_bytes());
        self
    }
}

/// Letters that a number chooses.
fn letters(seed: u64, n: u64, of: &str) -> String {
    let of = of.as_bytes();
    (0..n).map(|i| of[(mix(seed * 1000 + i) % of.len() as u64) as usize] as char).collect()
}

const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const NOW: u64 = 813_000_000_000_000;

fn mail(i: u64) -> Key {
    Key::default().text(&format!(
        "{}.{}{}@example{}.com",
        letters(mix(i) % 500, 6, &LETTERS[26..52]),
        letters(mix(i) % 9973, 7, &LETTERS[26..52]),
        i,
        mix(i) % 50
    ))
}

fn line(i: u64) -> Key {
    Key::default().int(i / 8 % 100).int(i / 800).int(i % 8)
}

/// Ten of a millisecond.
fn v7(i: u64) -> Key {
    Key::default().uuid((NOW / 1000 + i / 10) << 16 | 0x7000 | (mix(i) % 4096), mix(!i))
}

fn text(i: u64) -> Key {
    Key::default().text(&letters(i, 25, LETTERS))
}

fn url(i: u64) -> Key {
    let common = "https://www.example.com/a/rather/long/path/of/some/department/";
    Key::default().text(&format!("{common}{:016x}", mix(i)))
}

/// Returns a text as it is written for a comparison function: its length, and no end.
fn raw(mut text: Key) -> Key {
    text.0.pop();
    text.0.insert(0, text.0.len() as u8);
    text
}

/// One of 4000 elements; the ten of a row are different ones.
fn element(i: u64) -> u64 {
    mix(i) % 400 * 10 + i % 10
}

/// How an index came to be.
const HOW: [&str; 3] = ["built", "random inserts", "inserts in the order of the rows"];

/// A column: its name, the key of a row, and bytes per entry.
type Column = (&'static str, fn(u64) -> Key, [f64; 3]);

const COLUMNS: &[Column] = &[
    ("int, 10 values", |i| Key::default().int(mix(i) % 10), [2.6, 3.2, 2.9]),
    (
        "text, 7 values",
        |i| {
            Key::default().text(
                ["pending", "paid", "packed", "shipped", "delivered", "returned", "cancelled"]
                    [(mix(i) % 7) as usize],
            )
        },
        [2.5, 2.9, 2.9],
    ),
    ("int, 40 values", |i| Key::default().int(mix(i) % 40), [2.9, 3.3, 3.3]),
    ("int, 100k values", |i| Key::default().int(mix(i) % 100_000), [5.7, 6.2, 5.9]),
    ("int, ascending", |i| Key::default().int(i), [3.6, 4.0, 4.0]),
    (
        "timestamptz, unique",
        |i| Key::default().int(NOW + mix(i) % 31_536_000_000_000),
        [8.8, 9.0, 9.0],
    ),
    (
        "timestamptz, ascending",
        |i| Key::default().int(NOW + i * 1_000_000 + mix(i) % 1_000_000),
        [6.3, 6.6, 6.7],
    ),
    (
        "timestamptz, descending",
        |i| Key::default().int(NOW - i * 1_000_000 - mix(i) % 1_000_000),
        [6.3, 6.6, 6.5],
    ),
    ("int8, random", |i| Key::default().int(mix(i) >> 1), [11.6, 12.4, 12.4]),
    (
        "(int, timestamptz), 40 devices",
        |i| Key::default().int(mix(i) % 40).int(NOW + i * 1_000_000),
        [8.1, 8.5, 8.6],
    ),
    ("40 ascending streams", |i| Key::default().int(i % 40).int(i / 40), [5.3, 5.9, 5.7]),
    (
        "(int, int) of several lengths",
        |i| Key::default().int(mix(i) % 20_000).int(mix(!i) % 5000),
        [8.2, 8.5, 8.9],
    ),
    (
        "40 descending streams",
        |i| Key::default().int(mix(i) % 40).int(NOW - i * 1_000_000),
        [8.1, 8.6, 8.6],
    ),
    ("(tenant, order, line)", line, [5.2, 5.7, 5.6]),
    ("(order, line)", |i| Key::default().int(i / 8).int(i % 8), [4.2, 4.4, 4.4]),
    ("uuid v4", |i| Key::default().uuid(mix(i), mix(!i)), [21.2, 21.7, 21.8]),
    (
        "uuid v7",
        |i| Key::default().uuid((NOW / 1000 + i) << 16 | 0x7000 | (mix(i) % 4096), mix(!i)),
        [15.2, 15.2, 15.5],
    ),
    ("uuid v7, 10 per ms", v7, [14.8, 15.3, 15.3]),
    (
        "md5",
        |i| Key::default().text(&format!("{:016x}{:016x}", mix(i), mix(!i))),
        [22.0, 22.3, 22.1],
    ),
    ("text, 25 of 62 characters", text, [25.3, 25.3, 25.3]),
    ("e-mail addresses", mail, [32.2, 33.9, 34.0]),
    ("URLs, 60 common bytes", url, [13.6, 14.7, 14.5]),
    ("150 bytes", |i| Key::default().text(&letters(i, 149, LETTERS)), [152.0, 133.2, 133.1]),
    ("523 bytes", |i| Key::default().text(&letters(i, 522, LETTERS)), [681.9, 693.6, 693.2]),
    ("8200 bytes", |i| Key::default().text(&letters(i, 8199, LETTERS)), [9312.0, 9320.7, 9322.4]),
];

/// With fillfactor 100.
const FULL: &[Column] = &[
    ("(tenant, order, line)", line, [4.8, 5.3, 5.1]),
    ("uuid v7, 10 per ms", v7, [13.2, 13.3, 13.8]),
];

/// Under a comparison function.
const COMPARED: &[Column] = &[
    ("e-mail addresses", mail, [36.9, 39.2, 39.2]),
    ("text, 25 of 62 characters", |i| raw(text(i)), [28.2, 27.6, 27.6]),
    ("URLs, 60 common bytes", |i| raw(url(i)), [14.2, 13.6, 13.6]),
];

/// Of arrays and documents: ten entries have the TID of one row.
const ELEMENTS: &[Column] = &[
    ("elements, int", |i| Key::default().int(element(i)), [2.7, 3.2, 3.2]),
    ("elements, text", |i| Key::default().text(&format!("tag{}", element(i))), [3.0, 3.5, 3.3]),
];

fn create(p: &Process, fillfactor: u8, forms: Forms) -> Index {
    let index = Index::create(p, &IndexOptions { fillfactor, key_len_hint: 0 }).unwrap();
    index.force(forms);
    index
}

/// Returns the bytes in use per entry.
fn density(p: &Process, index: Index) -> f64 {
    let used = index.allocator().bytes() - index.allocator().idle();
    let density = used as f64 / index.stats().live as f64;
    // SAFETY: no other process knows it.
    unsafe { index.destroy(p) };
    density
}

/// Byte order, by a function.
struct Compared;

impl KeyOrder for Compared {
    const MEMCMP: bool = false;
    fn abbrev(&self, key: &[u8]) -> u64 {
        key.first().map_or(0, |&first| u64::from(first) + 1)
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }
}

/// Returns the bytes that the index holds per entry, after VACUUM.
fn held(p: &Process, index: Index) -> f64 {
    collector::collect_all(&index, p);
    index.verify(p, &Memcmp, true, &mut |_, _| ()).unwrap();
    let held = index.allocator().bytes() as f64 / index.stats().live as f64;
    // SAFETY: no other process knows it.
    unsafe { index.destroy(p) };
    held
}

fn inserted<O: KeyOrder>(
    p: &Process,
    order: &O,
    fillfactor: u8,
    forms: Forms,
    entries: impl Iterator<Item = (Vec<u8>, Tid)>,
) -> Index {
    let index = create(p, fillfactor, forms);
    entries.for_each(|(key, tid)| assert!(index.insert(p, order, &key, tid).unwrap()));
    let mut sweep = Sweep::new(p, index);
    while sweep.next_leaves(100) == Swept::More {}
    index.verify(p, order, true, &mut |_, _| ()).unwrap();
    index
}

fn built<O: KeyOrder>(
    p: &Process,
    order: &O,
    fillfactor: u8,
    forms: Forms,
    mut entries: Vec<(Vec<u8>, Tid)>,
) -> Index {
    let index = create(p, fillfactor, forms);
    entries.sort();
    let mut builder = Builder::new(p, index);
    entries.iter().for_each(|(key, tid)| builder.push(order, key, *tid).unwrap());
    adopt::adopt(&index, p, vec![builder.finish().unwrap()]).unwrap();
    index
}

fn entries(key: fn(u64) -> Key, rows: u64) -> Vec<(Vec<u8>, Tid)> {
    (0..rows).map(|row| (key(row).0, tid(row))).collect()
}

/// Returns the columns whose bytes are not those of the table.
fn verdicts<O: KeyOrder>(
    order: &O,
    fillfactor: u8,
    columns: &[Column],
    entries: impl Fn(&Column) -> Vec<(Vec<u8>, Tid)>,
) {
    let area = Mapping::new(1 << 30, 1);
    // SAFETY: the only process.
    let p = unsafe { Process::attach(*area, 0) };
    let mut table = String::new();
    for column in columns {
        let (name, _, expected) = column;
        let in_order = entries(column);
        let mut shuffled = in_order.clone();
        shuffled.sort_by_key(|(_, tid)| mix(*tid));
        let now = [
            built(&p, order, fillfactor, Forms::Best, in_order.clone()),
            inserted(&p, order, fillfactor, Forms::Best, shuffled.into_iter()),
            inserted(&p, order, fillfactor, Forms::Best, in_order.into_iter()),
        ];
        for ((how, index), expected) in HOW.iter().zip(now).zip(expected) {
            let now = density(&p, index);
            let verdict = match now / expected {
                1.05.. => "worse than",
                ..0.95 => "better; put it in place of",
                _ => continue,
            };
            writeln!(table, "{name}, {how}: {now:.1} bytes per entry, {verdict} {expected:.1}")
                .unwrap();
        }
    }
    assert!(table.is_empty(), "\n{table}");
}

fn of_rows(&(name, key, _): &Column) -> Vec<(Vec<u8>, Tid)> {
    entries(key, if name == "8200 bytes" { ROWS / 10 } else { ROWS })
}

#[test]
fn bytes_per_entry() {
    verdicts(&Memcmp, 90, COLUMNS, of_rows);
}

#[test]
fn bytes_in_full_leaves() {
    verdicts(&Memcmp, 100, FULL, of_rows);
}

/// Leaves whose keys a function orders.
#[test]
fn bytes_under_a_comparator() {
    verdicts(&Compared, 90, COMPARED, of_rows);
}

#[test]
fn bytes_of_elements() {
    verdicts(&Memcmp, 90, ELEMENTS, |(_, key, _)| {
        (0..ROWS).map(|i| (key(i).0, tid(i / 10))).collect()
    });
}

/// New versions of all rows come in the order of their keys: the leaves that were cut for them are
/// full, before any VACUUM.
#[test]
fn new_versions_in_the_order_of_keys() {
    let area = Mapping::new(1 << 30, 1);
    // SAFETY: the only process.
    let p = unsafe { Process::attach(*area, 0) };
    let key = |row| Key::default().int(row).0;
    // Number of rows that were written in between.
    for between in [3 * ROWS, 12 * ROWS, 50 * ROWS] {
        let index = create(&p, 90, Forms::Best);
        let mut builder = Builder::new(&p, index);
        (0..ROWS).for_each(|row| builder.push(&Memcmp, &key(row), tid(row)).unwrap());
        adopt::adopt(&index, &p, vec![builder.finish().unwrap()]).unwrap();
        let new = |row| tid(row + between);
        (0..ROWS).for_each(|row| assert!(index.insert(&p, &Memcmp, &key(row), new(row)).unwrap()));
        let (now, expected) = (density(&p, index), 4.9);
        let close = (expected * 0.95..expected * 1.05).contains(&now);
        assert!(close, "{between} between: {now:.2} bytes per entry");
    }
}

/// A sweep that finds another process collecting returns `Busy`, and goes on where it was.
#[test]
fn a_sweep_beside_a_collector() {
    let area = Mapping::new(1 << 30, 1);
    // SAFETY: the only process.
    let p = unsafe { Process::attach(*area, 0) };
    let index = create(&p, 90, Forms::Best);
    let key = |i| Key::default().int(mix(i)).0;
    (0..ROWS).for_each(|i| assert!(index.insert(&p, &Memcmp, &key(i), tid(i)).unwrap()));
    let before = index.stats().blocks[0];
    let (mut sweep, mut visited) = (Sweep::new(&p, index), 0);
    loop {
        {
            let _collecting = index.shared().collecting.try_lock().expect("nobody else is there");
            assert_eq!(sweep.next_leaves(1), Swept::Busy);
            assert_eq!(index.collect(&p, 1), None);
        }
        if sweep.next_leaves(1) == Swept::End {
            break;
        }
        visited += 1;
        assert!(visited <= before, "{before} leaves, and no end");
    }
    collector::collect_all(&index, &p);
    let after = index.stats().blocks[0];
    assert!(after < before * 9 / 10, "{before} to {after} leaves");
}

/// Keys that ascend in groups, or among others, take hardly more than the same keys built
/// bottom-up.
#[test]
fn ascending_groups_share_leaves() {
    let area = Mapping::new(1 << 30, 1);
    // SAFETY: the only process.
    let p = unsafe { Process::attach(*area, 0) };
    type Case = (&'static str, u8, u64, f64, fn(u64) -> Key);
    let wide: fn(u64) -> Key = |i| Key::default().uuid(i / 8, i % 8);
    let stream: fn(u64) -> Key = |i| Key::default().int(i % 1000).int(NOW + i);
    let three: fn(u64) -> Key = |i| Key::default().uuid(i / 3, i % 3);
    let cases: [Case; 10] = [
        ("(tenant, order, line)", 90, ROWS, 1.15, line),
        ("(tenant, order, line)", 100, ROWS, 1.15, line),
        ("(order, line), 8 bytes each", 90, ROWS, 1.15, wide),
        ("(order, line), 8 bytes each", 100, ROWS, 1.15, wide),
        // Leaves are cut inside a group.
        ("(order, line), 3 lines", 90, ROWS, 1.15, three),
        ("(order, line), 3 lines", 100, ROWS, 1.15, three),
        ("uuid v7", 90, ROWS, 1.15, v7),
        // The identifiers of a millisecond are in no order: they need some room, however full
        // leaves are to be.
        ("uuid v7", 100, ROWS, 1.25, v7),
        ("1000 streams", 90, 300_000, 1.15, stream),
        ("1000 streams", 100, 300_000, 1.15, stream),
    ];
    for (name, fillfactor, rows, most, key) in cases {
        let entries = entries(key, rows);
        let built = built(&p, &Memcmp, fillfactor, Forms::Slots, entries.clone());
        let built = density(&p, built);
        let grown = inserted(&p, &Memcmp, fillfactor, Forms::Slots, entries.into_iter());
        let grown = density(&p, grown);
        assert!(
            grown <= built * most,
            "{name}, fillfactor {fillfactor}: built {built:.1}, grown {grown:.1}"
        );
    }
}

/// Rows came in random order, and so did their TIDs. The index holds hardly more than one that is
/// built of them: leaves, index nodes, and free blocks of both.
#[test]
fn random_rows_beside_a_build() {
    let area = Mapping::new(1 << 30, 1);
    // SAFETY: the only process.
    let p = unsafe { Process::attach(*area, 0) };
    for (name, fillfactor, key) in [
        ("(tenant, order, line)", 90, line as fn(u64) -> Key),
        ("(tenant, order, line)", 100, line),
        ("int, ascending", 90, |i| Key::default().int(i)),
    ] {
        let mut rows: Vec<u64> = (0..ROWS_HELD).collect();
        rows.sort_by_key(|&row| mix(row));
        let entries = rows.iter().zip(0..).map(|(&row, at)| (key(row).0, tid(at)));
        let entries: Vec<_> = entries.collect();
        let grown = inserted(&p, &Memcmp, fillfactor, Forms::Best, entries.iter().cloned());
        let grown = held(&p, grown);
        let built = held(&p, built(&p, &Memcmp, fillfactor, Forms::Best, entries));
        assert!(
            grown <= built * 1.12,
            "{name}, fillfactor {fillfactor}: built {built:.2}, grown {grown:.2}"
        );
    }
}

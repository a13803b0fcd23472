//! What a reverse map takes: `cargo run --release --example reverse [rows]`.
//! Rows come in the order of their TIDs, 80 a block, as the rows of a table do.

mod common;

use common::{area, cpu, mix};
use nitro_engine::adopt;
use nitro_engine::prelude::*;
use nitro_engine::{
    Builder, Change, Index, IndexOptions, Memcmp, Process, REVERSE_OPTIONS, ReverseMap, Sweep,
    Swept, reverse_entry,
};

fn tid(row: u64) -> u64 {
    (row / 80) << 16 | (row % 80 + 1)
}

fn bytes(index: &Index) -> f64 {
    let stats = index.stats();
    stats.bytes as f64 / stats.live as f64
}

fn swept(p: &Process, index: &Index) -> f64 {
    let mut sweep = Sweep::new(p, *index);
    while sweep.next_leaves(1000) == Swept::More {}
    index.collect_in_steps(p, 1000, || ());
    bytes(index)
}

/// Builds both indexes from `rows` rows, then sets as many new ones.
fn run(p: &Process, name: &str, rows: u64, key: &dyn Fn(u64) -> Vec<u8>) {
    let create = || Index::create(p, &IndexOptions::default()).unwrap();
    let build = |index: Index, mut all: Vec<(Vec<u8>, u64)>| {
        all.sort_unstable();
        let mut builder = Builder::new(p, index);
        all.iter().for_each(|(key, tid)| builder.push(&Memcmp, key, *tid).unwrap());
        let chain = builder.finish().unwrap();
        adopt(&index, p, vec![chain]).unwrap();
    };
    let (main, map) = (create(), Index::create(p, &REVERSE_OPTIONS).unwrap());
    build(main, (0..rows).map(|row| (key(row), tid(row))).collect());
    let entry = |row| {
        let mut entry = Vec::new();
        reverse_entry(tid(row), &key(row), &mut entry);
        (entry, 1)
    };
    build(map, (0..rows).map(entry).collect());
    let built = (bytes(&main), bytes(&map));
    let both = ReverseMap::of(main, map);
    let mut change = Change::default();
    let new: Vec<_> = (rows..2 * rows).map(|row| (tid(row), key(row))).collect();
    let alone = {
        let alone = create();
        build(alone, (0..rows).map(|row| (key(row), tid(row))).collect());
        let used = cpu();
        for (tid, key) in &new {
            alone.insert(p, &Memcmp, key, *tid).unwrap();
        }
        let ns = (cpu() - used) / rows as f64;
        // SAFETY: nobody else knows it.
        unsafe { alone.destroy(p) };
        ns
    };
    let used = cpu();
    for block in new.chunks(80) {
        change.clear();
        for (tid, key) in block {
            change.tid(*tid);
            change.key(key);
        }
        both.set(p, &Memcmp, &mut change).unwrap();
    }
    let ns = (cpu() - used) / rows as f64;
    let loaded = (bytes(&main), bytes(&map));
    let swept = (swept(p, &main), swept(p, &map));
    let column =
        |(main, map): (f64, f64)| format!("{main:5.1} + {map:5.1} ({:.2})", 1.0 + map / main);
    println!(
        "{name:<22} {ns:5.0} ns a new row, {alone:5.0} in the index alone; bytes an entry built {}, with new rows {}, swept {}",
        column(built),
        column(loaded),
        column(swept)
    );
    both.verify(p, &Memcmp).unwrap();
    // SAFETY: nobody else knows them.
    unsafe {
        main.destroy(p);
        map.destroy(p);
    }
}

fn main() {
    let rows = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let area = area(4 << 30);
    // SAFETY: the only process.
    let p = unsafe { Process::attach(area, 0) };
    run(&p, "int of 1000 values", rows, &|i| ((mix(i) % 1000) as u32).to_be_bytes().to_vec());
    run(&p, "int8, random", rows, &|i| mix(i).to_be_bytes().to_vec());
    run(&p, "int8, ascending", rows, &|i| i.to_be_bytes().to_vec());
    run(&p, "uuid", rows, &|i| [mix(i).to_be_bytes(), mix(!i).to_be_bytes()].concat());
    run(&p, "text of 25 characters", rows, &|i| format!("customer-{:016x}", mix(i)).into_bytes());
    run(&p, "md5", rows, &|i| format!("{:016x}{:016x}", mix(i), mix(!i)).into_bytes());
}

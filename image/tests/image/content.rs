//! Contents of images for the tests, written and read through the store.

use std::io;

use nitro_image::{Damage, Disk, Draft, Manifest, ShardSummary, Store};

pub const DATABASE: u32 = 16384;
pub const INCARNATION: u128 = 0x0123_4567_89ab_cdef_0011_2233_4455_6677;

/// Another index, whose small images are in the same file.
pub const NEIGHBOUR: u128 = 0xfedc_ba98_7654_3210_0000_0000_0000_0077;

pub type Entries = Vec<(Vec<u8>, u64)>;

/// Frames as short as this make several of each shard below, and each image carries some of them.
pub const FRAME: usize = 64;

/// Different for every seed, but for a part that most have in common with the one before.
pub fn shards(seed: u64) -> Vec<Entries> {
    let entry = |shard: u64, seed: u64, n: u64| {
        let key = format!("shard {shard} of {seed:02}: {:04}", n / 2);
        (key.into_bytes(), seed << 16 | n)
    };
    let shard = |shard: u64| {
        let common = (0..30).map(|n| entry(shard, seed / 4, n + 100));
        common.chain((0..10 + seed % 7).map(|n| entry(shard, seed, n))).collect()
    };
    (0..2).map(shard).collect()
}

pub fn manifest(lsn: u64, generation: u64, shards: Vec<ShardSummary>) -> Manifest {
    Manifest {
        system: 7_234_567_890_123_456_789,
        lsn,
        end: lsn + 0x1000,
        timeline: 1,
        mark: 0x0123_4567_89ab_cdef,
        server: 180_001,
        slot: true,
        database: DATABASE,
        index: 16400,
        heap_tablespace: 1663,
        heap_file: 16390,
        incarnation: INCARNATION,
        generation,
        name: "orders_customer_idx".into(),
        columns: vec!["int4_ops 1".into(), "text_ops C".into()],
        entries: shards.iter().map(|shard| shard.entries).sum(),
        operations: lsn,
        taken: 1_700_000_000,
        shards,
        carried: vec![],
    }
}

/// Writes the shards of an image, and makes the manifest for it.
pub fn write<D: Disk>(draft: &Draft<'_, D>, lsn: u64, content: &[Entries]) -> io::Result<Manifest> {
    let mut summaries = Vec::new();
    for (shard, entries) in content.iter().enumerate() {
        let mut writer = draft.shard(shard as u32)?;
        for (key, tid) in entries {
            writer.push(key, *tid)?;
        }
        summaries.push(draft.finish_shard(writer)?);
    }
    let carried = draft.carried();
    Ok(Manifest { carried, ..manifest(lsn, draft.generation(), summaries) })
}

/// Begins, writes and commits an image.
pub fn take<D: Disk>(store: &Store<D>, lsn: u64) -> io::Result<Manifest> {
    take_of(store, INCARNATION, lsn)
}

/// The same, of any index.
pub fn take_of<D: Disk>(store: &Store<D>, incarnation: u128, lsn: u64) -> io::Result<Manifest> {
    let draft = store.begin(DATABASE, incarnation)?;
    let manifest = Manifest { incarnation, ..write(&draft, lsn, &shards(lsn))? };
    draft.commit(&manifest)?;
    Ok(manifest)
}

/// Reads all shards of an image.
pub fn load<D: Disk>(store: &Store<D>, manifest: &Manifest) -> Result<Vec<Entries>, Damage> {
    let shard = |shard| {
        let mut reader = store.open_shard(manifest, shard)?;
        let mut entries = Vec::new();
        while let Some((key, tid)) = reader.next()? {
            entries.push((key.to_vec(), tid));
        }
        Ok(entries)
    };
    (0..manifest.shards.len() as u32).map(shard).collect()
}

/// The images of the store, newest first; every one must be intact.
pub fn intact<D: Disk>(store: &Store<D>) -> Vec<Manifest> {
    intact_of(store, INCARNATION)
}

/// The same, of any index.
pub fn intact_of<D: Disk>(store: &Store<D>, incarnation: u128) -> Vec<Manifest> {
    store
        .images(DATABASE, incarnation)
        .into_iter()
        .map(|image| {
            let manifest = image.expect("a readable manifest");
            assert_eq!(load(store, &manifest).expect("intact shards"), shards(manifest.operations));
            manifest
        })
        .collect()
}

//! What is fuzzed: by cargo-fuzz for long, by the tests of this crate for a moment.

use crate::{Manifest, ShardId, ShardReader, ShardSummary};

/// The shard that [`shard`] takes its bytes for.
pub const SHARD: ShardId = ShardId { database: 5, incarnation: 7, generation: 3, shard: 1 };

/// Reads any bytes as a shard, to the end or the first damage. The first bytes are the summary, so
/// that a fuzzer can make it fit. Returns how many entries an accepted shard has.
pub fn shard(bytes: &[u8]) -> Option<u64> {
    let (summary, file) = bytes.split_first_chunk::<20>()?;
    let number = |from: usize, to: usize| {
        summary[from..to].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    };
    let summary =
        ShardSummary { entries: number(0, 8), bytes: number(8, 16), crc: number(16, 20) as u32 };
    let mut reader = ShardReader::new(file, SHARD, &summary).ok()?;
    let mut entries = 0;
    loop {
        match reader.next() {
            Ok(Some((key, tid))) => {
                assert!(key.len() <= crate::MAX_KEY && tid >> crate::TID_BITS == 0);
                entries += 1;
            }
            Ok(None) => break,
            Err(_) => {
                assert!(reader.next().is_err(), "damage is forgotten");
                return None;
            }
        }
    }
    assert_eq!((entries, file.len() as u64), (summary.entries, summary.bytes));
    assert!(matches!(reader.next(), Ok(None)));
    Some(entries)
}

/// Reads any bytes as a manifest, which must be the ones that it is written as.
pub fn manifest(bytes: &[u8]) -> Option<Manifest> {
    let manifest = Manifest::decode(bytes).ok()?;
    assert_eq!(manifest.encode(), bytes);
    Some(manifest)
}

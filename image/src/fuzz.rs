//! The fuzzed functions. cargo-fuzz runs them for long, the tests of this crate briefly.

use std::io::Cursor;

use crate::shard::{CARRIED, Digest, Frame, HEADER, Place, encode_header};
use crate::{Manifest, ShardId, ShardReader, ShardSummary};

/// The shard that [`shard`] takes its bytes for.
pub const SHARD: ShardId = ShardId { database: 5, incarnation: 7, generation: 3, shard: 1 };

/// Length of the summary in front of a shard.
const SUMMARY: usize = 20;

/// Reads any bytes as a shard, to the end or the first damage. The first bytes are the summary, so
/// that a fuzzer can make it fit. Returns how many entries an accepted shard has.
pub fn shard(bytes: &[u8]) -> Option<u64> {
    let (summary, file) = bytes.split_first_chunk::<SUMMARY>()?;
    let number = |from: usize, to: usize| {
        summary[from..to].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    };
    let summary =
        ShardSummary { entries: number(0, 8), bytes: number(8, 16), crc: number(16, 20) as u32 };
    // Each file of an older image is this one.
    let older = |_, _| Ok(Cursor::new(file));
    let mut reader = ShardReader::new(Cursor::new(file), SHARD, &summary, older).ok()?;
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

/// Makes the header, all digests, checksums and the summary right, for whatever is between them:
/// what [`shard`] then meets are the lengths and contents of frames.
pub fn mend_shard(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().max(SUMMARY + HEADER), 0);
    let (summary, file) = bytes.split_at_mut(SUMMARY);
    let (header, mut crc) = encode_header(&SHARD);
    file[..HEADER].copy_from_slice(&header);
    let (mut at, mut entries) = (HEADER, 0);
    while let Some(head) = file[at..].first_chunk() {
        let mut frame = Frame::decode(head);
        let packed = frame.packed as usize;
        let carried = frame.entries & CARRIED != 0;
        let (tail, body) = match (frame.is_closing(), carried) {
            (true, _) => (packed, 0),
            (false, true) => (size_of::<Digest>() + Place::SIZE, 0),
            (false, false) => (size_of::<Digest>(), packed),
        };
        let tail = at + Frame::SIZE..at + Frame::SIZE + tail;
        if file.len() < tail.end + body {
            break;
        }
        if !frame.is_closing() {
            let place = file[tail.clone()].last_chunk().filter(|_| carried).map(Place::decode);
            let from = place.map_or(tail.end, |place| place.at as usize);
            // None if the place is not in the file.
            let entries = file.get(from..from.saturating_add(packed)).map(blake3::hash);
            if let Some(digest) = entries {
                file[tail.start..][..size_of::<Digest>()].copy_from_slice(digest.as_bytes());
            }
        }
        frame.crc = frame.continued(crc, &file[tail.clone()]);
        crc = frame.crc;
        file[at..tail.start].copy_from_slice(&frame.encode());
        entries += u64::from(frame.entries & !CARRIED);
        at = tail.end + body;
    }
    summary[..8].copy_from_slice(&entries.to_le_bytes());
    summary[8..16].copy_from_slice(&(file.len() as u64).to_le_bytes());
    summary[16..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Reads any bytes as a manifest, which must be the ones that it is written as.
pub fn manifest(bytes: &[u8]) -> Option<Manifest> {
    let manifest = Manifest::decode(bytes).ok()?;
    assert_eq!(manifest.encode(), bytes);
    Some(manifest)
}

/// Puts the checksum that a manifest must have behind any bytes.
pub fn mend_manifest(bytes: &[u8]) -> Vec<u8> {
    let crc = crc32fast::hash(bytes);
    [bytes, format!("crc32 {crc:08x}\n").as_bytes()].concat()
}

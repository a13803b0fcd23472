//! Shards: what is written is read; what is cut, changed, mixed up or misplaced is refused.

use std::io::Cursor;

use nitro_image::{Damage, MAX_KEY, ShardId, ShardReader, ShardSummary, ShardWriter};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::content::Entries;

const ID: ShardId = ShardId { database: 5, incarnation: 1 << 100 | 7, generation: 9, shard: 3 };

/// Small frames, so that small shards have several.
const FRAME: usize = 64;

pub fn write(id: ShardId, frame: usize, entries: &[(Vec<u8>, u64)]) -> (Vec<u8>, ShardSummary) {
    let mut writer = ShardWriter::with_frame_size(Vec::new(), id, frame).unwrap();
    for (key, tid) in entries {
        writer.push(key, *tid).unwrap();
        assert!(writer.bytes_written() >= 48);
    }
    let (file, summary) = writer.finish().unwrap();
    assert_eq!((summary.bytes, summary.entries), (file.len() as u64, entries.len() as u64));
    (file, summary)
}

pub fn read(file: &[u8], id: ShardId, summary: &ShardSummary) -> Result<Entries, Damage> {
    let missing = |generation, shard| Err(Damage::Carried { generation, shard, what: "missing" });
    let mut reader = ShardReader::new(Cursor::new(file), id, summary, missing)?;
    let mut entries = Vec::new();
    while let Some((key, tid)) = reader.next()? {
        entries.push((key.to_vec(), tid));
    }
    assert!(reader.next().unwrap().is_none());
    Ok(entries)
}

fn some_entries() -> Entries {
    (0..60).map(|n| (format!("key {:03}", n / 3).into_bytes(), n << 16 | (n % 7))).collect()
}

/// Keys of every kind: of a small alphabet, so that many are equal or share prefixes, long, empty.
fn entries() -> impl Strategy<Value = Entries> {
    let key = prop_oneof![
        6 => vec(0u8..3, 0..12),
        3 => vec(any::<u8>(), 0..40),
        1 => (any::<u8>(), prop_oneof![9 => 0..=1usize << 15, 1 => 0..=MAX_KEY, 1 => Just(MAX_KEY)])
            .prop_map(|(byte, length)| vec![byte; length]),
    ];
    let tid = prop_oneof![0u64..1 << 48, 0u64..100, Just((1 << 48) - 1)];
    vec((key, tid), 0..200).prop_map(|mut entries| {
        entries.sort();
        entries
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn reads_what_was_written(entries in entries(), frame in 1usize..300_000) {
        let (file, summary) = write(ID, frame, &entries);
        prop_assert_eq!(read(&file, ID, &summary).unwrap(), entries);
    }

    #[test]
    fn order_is_not_its_business(entries in vec((vec(any::<u8>(), 0..20), 0u64..1 << 48), 0..50)) {
        let (file, summary) = write(ID, FRAME, &entries);
        prop_assert_eq!(read(&file, ID, &summary).unwrap(), entries);
    }
}

#[test]
fn full_frames() {
    let entries: Entries = (0..200_000u64)
        .map(|n| ((n * 0x9e37).to_be_bytes().to_vec(), n.wrapping_mul(0x9e37_79b9) & 0xffff_ffff))
        .collect();
    let (file, summary) = write(ID, usize::MAX, &entries);
    assert_eq!(read(&file, ID, &summary).unwrap(), entries);
}

#[test]
fn every_changed_bit_is_noticed() {
    let (file, summary) = write(ID, FRAME, &some_entries());
    for at in 0..file.len() {
        for bit in 0..8 {
            let mut file = file.clone();
            file[at] ^= 1 << bit;
            assert!(read(&file, ID, &summary).is_err(), "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn every_other_length_is_noticed() {
    let (file, summary) = write(ID, FRAME, &some_entries());
    for length in 0..file.len() {
        let damage = read(&file[..length], ID, &summary).unwrap_err();
        assert!(matches!(damage, Damage::Truncated), "{length}: {damage}");
    }
    let longer = [&file[..], &[0]].concat();
    assert!(matches!(read(&longer, ID, &summary), Err(Damage::Trailing)));
}

#[test]
fn a_shard_belongs_to_one_place() {
    let entries = some_entries();
    let (file, summary) = write(ID, FRAME, &entries);
    for other in [
        ShardId { database: 6, ..ID },
        ShardId { incarnation: 7, ..ID },
        ShardId { generation: 8, ..ID },
        ShardId { shard: 2, ..ID },
    ] {
        match read(&file, other, &summary) {
            Err(Damage::Foreign(found)) => assert_eq!(*found, ID),
            result => panic!("{result:?}"),
        }
        // Not even with a header that fits: the checksum of the frames began with the other one.
        let (twin, _) = write(other, FRAME, &entries);
        let mixed = [&twin[..48], &file[48..]].concat();
        assert!(matches!(read(&mixed, other, &summary), Err(Damage::Checksum { frame: 0 })));
    }
}

/// Length of the digest behind the head of a frame.
const DIGEST: usize = 32;

/// The running checksum `crc`, continued over `bytes`.
fn continued(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}

/// The same shard as release 0.2.0 writes it: without digests, the checksum over all.
fn as_before(file: &[u8], entries: u64) -> (Vec<u8>, ShardSummary) {
    let mut header = file[..44].to_vec();
    header[8] = 1;
    let mut crc = continued(0, &header);
    let mut old = [&header[..], &crc.to_le_bytes()].concat();
    let closing = &file[file.len() - 32..];
    let split = |frame: &[u8]| (frame[..12].to_vec(), frame[16 + DIGEST..].to_vec());
    let all = frames(file).into_iter().map(split);
    for (head, packed) in all.chain([(closing[..12].to_vec(), closing[16..].to_vec())]) {
        crc = continued(continued(crc, &head), &packed);
        old.extend([&head[..], &crc.to_le_bytes(), &packed].concat());
    }
    let summary = ShardSummary { entries, bytes: old.len() as u64, crc };
    (old, summary)
}

#[test]
fn shards_without_digests_are_read() {
    let (file, summary) = write(ID, FRAME, &some_entries());
    let (old, summary) = as_before(&file, summary.entries);
    assert_eq!(read(&old, ID, &summary).unwrap(), some_entries());
    for at in 0..old.len() {
        let mut changed = old.clone();
        changed[at] ^= 1 << (at % 8);
        assert!(read(&changed, ID, &summary).is_err(), "byte {at}");
        assert!(read(&old[..at], ID, &summary).is_err(), "length {at}");
    }
}

/// The frames of a file, without its header and closing frame.
fn frames(file: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    let mut rest = &file[48..];
    while rest.len() > 32 {
        let packed = u32::from_le_bytes(rest[4..8].try_into().unwrap()) as usize;
        let (frame, tail) = rest.split_at(16 + DIGEST + packed);
        frames.push(frame);
        rest = tail;
    }
    frames
}

#[test]
fn frames_have_one_order() {
    let (file, summary) = write(ID, FRAME, &some_entries());
    let good = frames(&file);
    assert!(good.len() > 4);
    let (header, closing) = (&file[..48], &file[file.len() - 32..]);
    let with = |frames: &[&[u8]]| {
        let file = [header, &frames.concat(), closing].concat();
        read(&file, ID, &ShardSummary { bytes: file.len() as u64, ..summary })
    };
    assert!(with(&good).is_ok());
    for at in 0..good.len() - 1 {
        let mut swapped = good.clone();
        swapped.swap(at, at + 1);
        assert!(matches!(with(&swapped), Err(Damage::Checksum { frame }) if frame == at as u64));
        let mut lost = good.clone();
        lost.remove(at);
        assert!(matches!(with(&lost), Err(Damage::Checksum { frame }) if frame == at as u64));
        let mut twice = good.clone();
        twice.insert(at, good[at]);
        assert!(with(&twice).is_err());
    }
    assert!(with(&good[..good.len() - 1]).is_err());
}

#[test]
fn an_intact_shard_must_be_the_one_of_the_manifest() {
    let (file, summary) = write(ID, FRAME, &some_entries());
    for (other, differs) in [
        (ShardSummary { entries: 59, ..summary }, "number of entries"),
        (ShardSummary { bytes: summary.bytes + 1, ..summary }, "length"),
        (ShardSummary { crc: !summary.crc, ..summary }, "checksum"),
    ] {
        match read(&file, ID, &other) {
            Err(Damage::Summary { what }) => assert_eq!(what, differs),
            result => panic!("{result:?}"),
        }
    }
}

/// A frame with good checksums and bad contents, as only a bug or malice would write it.
#[test]
fn checksums_are_not_trusted() {
    let (file, _) = write(ID, FRAME, &[]);
    let header = &file[..48];
    let crc = crc32fast::hash(&header[..44]);
    let forged = |raw: u32, entries: u32, packed: &[u8]| {
        let mut head = Vec::new();
        for field in [raw, packed.len() as u32, entries] {
            head.extend(field.to_le_bytes());
        }
        let digest = *blake3::hash(packed).as_bytes();
        let (tail, body) = if raw == 0 { (packed, &[][..]) } else { (&digest[..], packed) };
        let crc = continued(crc, &[&head, tail].concat()).to_le_bytes();
        let file = [header, &head, &crc, tail, body].concat();
        let summary = ShardSummary { entries: 0, bytes: file.len() as u64, crc: 0 };
        match read(&file, ID, &summary) {
            Err(Damage::Frame { frame: 0, what }) => what,
            result => panic!("{result:?}"),
        }
    };
    let pack = |raw: &[u8]| snap::raw::Encoder::new().compress_vec(raw).unwrap();
    let entry = |raw: &[u8]| forged(raw.len() as u32, 1, &pack(raw));
    let out_of_range = "an entry out of range";
    assert_eq!(entry(&[1, 0, 0]), out_of_range, "shares a byte with no key");
    assert_eq!(entry(&[0, 2, 7, 0]), out_of_range, "ends in its key");
    assert_eq!(entry(&[0, 1, 7]), out_of_range, "ends before its TID");
    assert_eq!(entry(&[0, 0, 1]), out_of_range, "TID -1");
    assert_eq!(entry(&[0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1]), out_of_range);
    assert_eq!(entry(&[0xff; 40]), out_of_range, "an endless number");
    let mut long = vec![0, 0x81, 0x80, 0x40];
    long.resize(4 + MAX_KEY + 1, 7);
    long.push(0);
    assert_eq!(entry(&long), out_of_range, "a key of 1 MB and a byte");
    assert_eq!(forged(3, 2, &pack(&[0, 0, 0])), out_of_range, "fewer than promised");
    assert_eq!(entry(&[0, 0, 0, 0]), "bytes after its last entry");
    assert_eq!(forged(3, 0, &pack(&[0, 0, 0])), "no entries");
    assert_eq!(forged(4, 1, &pack(&[0, 0, 0])), "two lengths");
    assert_eq!(forged(3, 1, &[3, 0xff, 0xff]), "not compressed by snappy");
    assert_eq!(forged(0, 0, &[0; 15]), "wrong totals");
    assert_eq!(forged(0, 0, &[1; 16]), "wrong totals");
    assert_eq!(forged(1 << 21, 1, &[]), "too large");
}

#[test]
fn lengths_are_refused_before_memory_is_taken() {
    let (file, summary) = write(ID, FRAME, &[]);
    let file = [&file[..48], &[1, 0, 0, 0], &[0xff; 12]].concat();
    let damage = read(&file, ID, &summary).unwrap_err();
    assert!(matches!(damage, Damage::Frame { frame: 0, what: "too large" }), "{damage}");
}

#[test]
fn other_files_are_refused() {
    let (mut file, summary) = write(ID, FRAME, &[]);
    assert!(matches!(read(&[b'x'; 100], ID, &summary), Err(Damage::Magic)));
    file[8] = 3;
    assert!(matches!(read(&file, ID, &summary), Err(Damage::Version(3))));
}

#[test]
fn entries_out_of_range_are_not_written() {
    let mut writer = ShardWriter::new(Vec::new(), ID).unwrap();
    assert!(writer.push(&[0; MAX_KEY + 1], 0).is_err());
    assert!(writer.push(&[], 1 << 48).is_err());
    writer.push(&[0; MAX_KEY], (1 << 48) - 1).unwrap();
    let (file, summary) = writer.finish().unwrap();
    assert_eq!(read(&file, ID, &summary).unwrap().len(), 1);
}

/// An output that has room for so many bytes, and after it said so once for any number.
struct Full(Option<usize>);

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let taken = bytes.len().min(self.0.unwrap_or(usize::MAX));
        if taken == 0 {
            self.0 = None;
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.0 = self.0.map(|room| room - taken);
        Ok(taken)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_failed_writer_does_not_finish() {
    let (file, _) = write(ID, FRAME, &some_entries());
    for room in 0..file.len() {
        let Ok(mut writer) = ShardWriter::with_frame_size(Full(Some(room)), ID, FRAME) else {
            continue;
        };
        let _ = some_entries().iter().map(|(key, tid)| writer.push(key, *tid)).count();
        assert!(writer.finish().is_err(), "{room} bytes");
    }
}

//! The fuzz targets for a moment: random bytes, and good files with random changes.

use nitro_image::fuzz;

use crate::content;
use crate::rng::Rng;
use crate::shard::write;

/// Some bytes changed, inserted, removed, or copied from elsewhere.
fn mutate(bytes: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..1 + rng.below(4) {
        let at = rng.below(bytes.len());
        let end = (at + rng.below(20)).min(bytes.len());
        match rng.below(5) {
            0 if at < bytes.len() => bytes[at] = rng.next() as u8,
            1 => bytes.insert(at, rng.next() as u8),
            2 => drop(bytes.drain(at..end)),
            3 => bytes.truncate(at),
            _ => {
                let piece = bytes[at..end].to_vec();
                let to = rng.below(bytes.len());
                drop(bytes.splice(to..to, piece));
            }
        }
    }
}

fn random(rng: &mut Rng) -> Vec<u8> {
    (0..rng.below(400)).map(|_| rng.next() as u8).collect()
}

#[test]
fn shards() {
    let mut rng = Rng(6);
    let entries = &content::shards(1)[0];
    let (file, summary) = write(fuzz::SHARD, 64, entries);
    let mut good = summary.entries.to_le_bytes().to_vec();
    good.extend(summary.bytes.to_le_bytes());
    good.extend(summary.crc.to_le_bytes());
    good.extend(file);
    assert_eq!(fuzz::shard(&good), Some(summary.entries));
    assert_eq!(fuzz::mend_shard(&good), good);
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        mutate(&mut bytes, &mut rng);
        assert_eq!(fuzz::shard(&bytes).is_some(), bytes == good);
        fuzz::shard(&fuzz::mend_shard(&bytes));
        fuzz::shard(&random(&mut rng));
    }
}

/// A frame that is in the shard already comes again, by its place.
#[test]
fn carried_frames() {
    const FIRST: usize = 20 + 48;
    let mut rng = Rng(8);
    let (file, summary) = write(fuzz::SHARD, 64, &content::shards(1)[0]);
    let mut good = [&[0; 20], &file[..]].concat();
    let number = |at: usize| u32::from_le_bytes(good[at..at + 4].try_into().unwrap());
    let (packed, entries) = (number(FIRST + 4), number(FIRST + 8));
    let place = [
        [1u64; 2].map(u64::to_le_bytes).concat()[..12].to_vec(),
        (48u64 + 48).to_le_bytes().to_vec(),
    ];
    let mut frame = good[FIRST..FIRST + 48].to_vec();
    frame[11] |= 0x80;
    frame.extend(place.concat());
    let end = FIRST + 48 + packed as usize;
    good.splice(end..end, frame);
    // One more in the totals.
    let totals = good.len() - 16;
    good[totals..totals + 8].copy_from_slice(&(summary.entries + u64::from(entries)).to_le_bytes());
    good[totals + 8] += 1;
    let good = fuzz::mend_shard(&good);
    assert_eq!(fuzz::shard(&good), Some(summary.entries + u64::from(entries)));
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        mutate(&mut bytes, &mut rng);
        assert_eq!(fuzz::shard(&bytes).is_some(), bytes == good);
        // Only where the other numbers in the place have changed.
        accepted += u64::from(fuzz::shard(&fuzz::mend_shard(&bytes)).is_some());
    }
    assert!((1..2000).contains(&accepted), "{accepted}");
}

#[test]
fn manifests() {
    let mut rng = Rng(7);
    let good = content::manifest(1, 2, vec![]).encode();
    assert!(fuzz::manifest(&good).is_some());
    assert_eq!(fuzz::mend_manifest(&good[..good.len() - 15]), good);
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        mutate(&mut bytes, &mut rng);
        assert_eq!(fuzz::manifest(&bytes).is_some(), bytes == good);
        fuzz::manifest(&fuzz::mend_manifest(&bytes[..bytes.len().saturating_sub(15)]));
        fuzz::manifest(&random(&mut rng));
    }
}

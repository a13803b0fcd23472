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

//! Small images on a real file system: several in a file.

use std::fs;
use std::path::PathBuf;

use nitro_image::{Damage, Manifest, RealDisk, Store};
use tempfile::TempDir;

use crate::content::{
    DATABASE, INCARNATION, NEIGHBOUR, intact, intact_of, load, shards, take, take_of, write,
};
use crate::rng::Rng;

fn store() -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(RealDisk, folder.path().join("pg_nitro"));
    (folder, store)
}

fn database(folder: &TempDir) -> PathBuf {
    folder.path().join(format!("pg_nitro/{DATABASE}"))
}

/// The one file that the database has, and no folder.
fn file(folder: &TempDir) -> PathBuf {
    let names = fs::read_dir(database(folder)).unwrap().map(|entry| entry.unwrap().path());
    let [file] = names.collect::<Vec<_>>().try_into().expect("one file");
    assert!(file.ends_with("small-77"), "{file:?}");
    file
}

fn generations(store: &Store, incarnation: u128) -> Vec<u64> {
    intact_of(store, incarnation).iter().map(|image| image.generation).collect()
}

#[test]
fn a_file_has_two_images_of_each_index() {
    let (folder, store) = store();
    for lsn in 1..=4 {
        assert_eq!(take(&store, lsn).unwrap().generation, lsn);
        take_of(&store, NEIGHBOUR, lsn).unwrap();
        file(&folder);
    }
    assert_eq!(generations(&store, INCARNATION), [4, 3]);
    assert_eq!(generations(&store, NEIGHBOUR), [4, 3]);
    assert_eq!(store.incarnations(DATABASE).unwrap(), [INCARNATION, NEIGHBOUR].into());
    store.remove(&intact(&store)[0]).unwrap();
    assert_eq!(generations(&store, INCARNATION), [3]);
    store.discard(DATABASE, INCARNATION).unwrap();
    assert_eq!(generations(&store, INCARNATION), []);
    assert_eq!(generations(&store, NEIGHBOUR), [4, 3]);
    store.remove_database(DATABASE).unwrap();
    assert!(store.databases().unwrap().is_empty() && !database(&folder).exists());
}

#[test]
fn a_refresh_replaces_the_manifest() {
    let (folder, store) = store();
    let first = take(&store, 1).unwrap();
    take_of(&store, NEIGHBOUR, 1).unwrap();
    let refreshed = Manifest { lsn: 0xffff_ffff_ffff, ..first.clone() };
    store.refresh(&refreshed).unwrap();
    assert_eq!(intact(&store), [refreshed]);
    assert_eq!(generations(&store, NEIGHBOUR), [1]);
    file(&folder);
    let mut differs = first.clone();
    differs.shards[0].crc ^= 1;
    assert!(store.refresh(&differs).is_err());
    store.discard(DATABASE, INCARNATION).unwrap();
    let gone = store.refresh(&first).unwrap_err();
    assert_eq!(gone.kind(), std::io::ErrorKind::NotFound);
}

/// What is too large, or finds no room, has a folder; what shrinks comes back.
#[test]
fn an_image_moves_by_its_size() {
    let (folder, store) = store();
    let large = |lsn: u64| {
        let mut rng = Rng(lsn);
        let mut key = || (0..40).map(|_| rng.next() as u8).collect::<Vec<u8>>();
        let mut keys: Vec<_> = (0..2000).map(|_| key()).collect();
        keys.sort();
        vec![keys.into_iter().zip(0..).collect::<Vec<_>>()]
    };
    let own = database(&folder).join(format!("{INCARNATION:032x}"));
    let take_large = |lsn| {
        let draft = store.begin(DATABASE, INCARNATION).unwrap();
        let manifest = write(&draft, lsn, &large(lsn)).unwrap();
        draft.commit(&manifest).unwrap();
        assert_eq!(load(&store, &manifest).unwrap(), large(lsn));
    };
    let numbers = || store.images(DATABASE, INCARNATION).into_iter().map(|i| i.unwrap().generation);
    take(&store, 1).unwrap();
    take_large(2);
    assert!(own.join("2/shard-0").exists());
    assert_eq!(numbers().collect::<Vec<_>>(), [2, 1]);
    take_large(3);
    assert_eq!(numbers().collect::<Vec<_>>(), [3, 2]);
    assert!(!database(&folder).join("small-77").exists());
    take(&store, 4).unwrap();
    assert_eq!(numbers().collect::<Vec<_>>(), [4, 3]);
    take(&store, 5).unwrap();
    assert_eq!(numbers().collect::<Vec<_>>(), [5, 4]);
    file(&folder);
}

#[test]
fn a_file_is_bounded() {
    let (folder, store) = store();
    let name = |n: u128| n << 8 | 0x77;
    // Their manifests are long.
    let take = |n: u128| {
        let draft = store.begin(DATABASE, name(n)).unwrap();
        let manifest = write(&draft, 1, &shards(1)).unwrap();
        let columns = vec!["x".repeat(30_000)];
        let manifest = Manifest { incarnation: name(n), columns, ..manifest };
        draft.commit(&manifest).unwrap();
    };
    (0..20).for_each(take);
    let length = fs::metadata(database(&folder).join("small-77")).unwrap().len();
    assert!((200 << 10..=256 << 10).contains(&length), "{length}");
    assert!((0..20).all(|n| generations(&store, name(n)) == [1]));
    assert_eq!(fs::read_dir(database(&folder)).unwrap().count(), 20 - 8 + 1);
}

#[test]
fn a_draft_leaves_nothing() {
    let (folder, store) = store();
    take(&store, 1).unwrap();
    let draft = store.begin(DATABASE, INCARNATION).unwrap();
    write(&draft, 2, &shards(2)).unwrap();
    drop(draft);
    assert_eq!(generations(&store, INCARNATION), [1]);
    file(&folder);
    // A process that was killed.
    std::mem::forget(store.begin(DATABASE, INCARNATION).unwrap());
    store.sweep(DATABASE, INCARNATION, None).unwrap();
    file(&folder);
    let temporary = database(&folder).join("small-77.tmp");
    fs::write(&temporary, "half").unwrap();
    take(&store, 2).unwrap();
    file(&folder);
    fs::write(&temporary, "half").unwrap();
    store.discard(DATABASE, INCARNATION).unwrap();
    assert_eq!(fs::read_dir(database(&folder)).unwrap().count(), 0);
}

#[test]
fn processes_write_one_file() {
    let (folder, store) = store();
    let index = |n: u128| {
        let (store, n) = (&store, n << 8 | 0x77);
        move || (1..=20).for_each(|lsn| drop(take_of(store, n, lsn).unwrap()))
    };
    std::thread::scope(|scope| (1..=4).for_each(|n| drop(scope.spawn(index(n)))));
    assert!((1..=4).all(|n| generations(&store, n << 8 | 0x77) == [20, 19]));
    file(&folder);
}

/// A file with an image each of two indexes: its path, its bytes, and the length of the first.
fn two() -> (TempDir, Store, PathBuf, Vec<u8>, usize) {
    let (folder, store) = store();
    take(&store, 1).unwrap();
    let path = file(&folder);
    let first = fs::metadata(&path).unwrap().len() as usize;
    take_of(&store, NEIGHBOUR, 2).unwrap();
    let bytes = fs::read(&path).unwrap();
    (folder, store, path, bytes, first)
}

fn loaded(store: &Store, incarnation: u128) -> Result<(), Damage> {
    for image in store.images(DATABASE, incarnation) {
        let manifest = image?;
        let content = load(store, &manifest)?;
        assert_eq!(content, shards(manifest.operations), "an image that was never written");
    }
    Ok(())
}

#[test]
fn a_bit_of_every_byte_costs_one_image() {
    let (_folder, store, path, bytes, first) = two();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(&path, &damaged).unwrap();
        let found = (loaded(&store, INCARNATION).is_ok(), loaded(&store, NEIGHBOUR).is_ok());
        assert_eq!(found, (at >= first, at < first), "byte {at}");
    }
    // The next image drops what is damaged.
    let mut damaged = bytes.clone();
    damaged[first] ^= 1;
    fs::write(&path, &damaged).unwrap();
    take(&store, 3).unwrap();
    assert!(store.images(DATABASE, NEIGHBOUR).is_empty());
    assert_eq!(generations(&store, INCARNATION), [2, 1]);
}

#[test]
fn every_cut_is_found() {
    let (_folder, store, path, bytes, first) = two();
    for length in 0..bytes.len() {
        fs::write(&path, &bytes[..length]).unwrap();
        let [own, other] = [INCARNATION, NEIGHBOUR].map(|index| loaded(&store, index));
        assert!(own.is_ok() == (length == 0 || length >= first), "{length}: {own:?}");
        assert!(other.is_ok() == (length == 0 || length == first), "{length}: {other:?}");
    }
    fs::write(&path, [&bytes[..], b"more"].concat()).unwrap();
    loaded(&store, INCARNATION).unwrap();
    loaded(&store, NEIGHBOUR).unwrap();
}

#[test]
fn a_file_of_another_database_is_refused() {
    let (folder, store, path, ..) = two();
    let other = folder.path().join("pg_nitro/7");
    fs::create_dir(&other).unwrap();
    fs::copy(&path, other.join("small-77")).unwrap();
    let [image] = store.images(7, INCARNATION).try_into().unwrap();
    assert!(matches!(image, Err(Damage::Misplaced)), "{image:?}");
}

/// Other indexes are still found, so the WAL since their images is kept and they are brought up.
#[test]
fn a_file_that_cannot_be_read_hides_no_other() {
    let (folder, store) = store();
    take(&store, 1).unwrap();
    fs::create_dir(database(&folder).join("small-78")).unwrap();
    let [image] = store.images(DATABASE, INCARNATION + 1).try_into().unwrap();
    assert!(matches!(image, Err(Damage::Io(_))), "{image:?}");
    assert_eq!(store.incarnations(DATABASE).unwrap(), [INCARNATION].into());
}

#[test]
fn garbage_is_no_image() {
    let (_folder, store, path, bytes, _) = two();
    let mut rng = Rng(11);
    for _ in 0..1000 {
        let mut damaged = bytes.clone();
        for _ in 0..1 + rng.below(3) {
            let (from, length) = (rng.below(damaged.len()), 1 + rng.below(200));
            let piece: Vec<u8> = match rng.below(3) {
                0 => (0..length).map(|_| rng.next() as u8).collect(),
                1 => damaged.iter().skip(rng.below(damaged.len())).take(length).copied().collect(),
                _ => vec![],
            };
            let to = (from + rng.below(200)).min(damaged.len());
            damaged.splice(from..to, piece);
        }
        fs::write(&path, &damaged).unwrap();
        let _ = (loaded(&store, INCARNATION), loaded(&store, NEIGHBOUR));
        if rng.chance(2) {
            take(&store, 5).unwrap();
            assert_eq!(
                load(&store, store.images(DATABASE, INCARNATION)[0].as_ref().unwrap()).unwrap(),
                shards(5)
            );
            store.discard(DATABASE, INCARNATION).unwrap();
        }
    }
}

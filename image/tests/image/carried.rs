//! Frames that an image carries over from older ones: what that writes, keeps and refuses.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use nitro_image::{CarriedFile, Damage, Manifest, RealDisk, Store};
use tempfile::TempDir;

use crate::content::{DATABASE, Entries, INCARNATION, load, write};
use crate::rng::Rng;

/// Short frames: each image has many.
fn store() -> (TempDir, Store) {
    store_of(4096)
}

fn store_of(frame: usize) -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(RealDisk, folder.path().join("pg_nitro")).with_frame_size(frame);
    (folder, store)
}

/// Most that may be written of a large image with few changes: a place takes 68 bytes for 8 kB.
const LITTLE: f64 = 0.05;

fn own(folder: &TempDir) -> PathBuf {
    folder.path().join(format!("pg_nitro/{DATABASE}/{INCARNATION:032x}"))
}

fn shard(folder: &TempDir, file: &CarriedFile) -> PathBuf {
    own(folder).join(format!("{}/shard-{}", file.generation, file.shard))
}

/// The entry number `n`, of a row that was written at `at`.
fn entry(n: u64, at: u64) -> (Vec<u8>, u64) {
    let key = n << 24 | Rng(n).next() >> 40;
    (key.to_be_bytes().to_vec(), (at << 16) + 1 + n % 100)
}

fn ascending(from: u64, to: u64) -> Entries {
    (from..to).map(|n| entry(n, n / 100)).collect()
}

/// Makes an image of these entries, in two shards.
fn image(store: &Store, lsn: u64, entries: &Entries) -> Manifest {
    let (low, high) = entries.split_at(entries.len() / 2);
    let content = vec![low.to_vec(), high.to_vec()];
    let draft = store.begin(DATABASE, INCARNATION).unwrap();
    let manifest = write(&draft, lsn, &content).unwrap();
    draft.commit(&manifest).unwrap();
    assert_eq!(load(store, &manifest).unwrap(), content);
    manifest
}

/// The paths of the files below the index' folder, and their bytes.
fn files(folder: &Path) -> Vec<(PathBuf, u64)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let metadata = entry.metadata().unwrap();
        match metadata.is_dir() {
            true => all.extend(files(&entry.path())),
            false => all.push((entry.path(), metadata.len())),
        }
    }
    all
}

/// Says which part of an image was written.
fn part(image: &Manifest) -> f64 {
    image.written() as f64 / image.bytes() as f64
}

#[test]
fn ascending_inserts_write_little() {
    let (_folder, store) = store_of(16 << 10);
    let whole = image(&store, 1, &ascending(0, 400_000));
    assert!(whole.carried.is_empty());
    let next = image(&store, 2, &ascending(0, 404_000));
    assert!(part(&next) < LITTLE, "{}", part(&next));
    assert!(next.entries == 404_000 && next.bytes() > whole.bytes());
    // Nothing at all has changed.
    let same = image(&store, 3, &ascending(0, 404_000));
    assert!(part(&same) < LITTLE / 2.0, "{}", part(&same));
}

#[test]
fn a_change_in_the_middle_writes_a_few_frames() {
    let (_folder, store) = store_of(16 << 10);
    let mut entries = ascending(0, 400_000);
    image(&store, 1, &entries);
    entries.insert(33_333, (entries[33_333].0.clone(), 7));
    let next = image(&store, 2, &entries);
    assert!(part(&next) < LITTLE, "{}", part(&next));
    entries.drain(20_000..40_000);
    let next = image(&store, 3, &entries);
    assert!(part(&next) < LITTLE, "{}", part(&next));
}

/// Then nearly every frame has a change.
#[test]
fn random_changes_write_no_more_than_everything() {
    let (_folder, store) = store();
    let (_other, fresh) = self::store();
    let mut entries = ascending(0, 100_000);
    image(&store, 1, &entries);
    let mut rng = Rng(1);
    for n in 0..1000 {
        let at = rng.below(entries.len());
        entries[at].1 = 5000 << 16 | n;
    }
    let (next, whole) = (image(&store, 2, &entries), image(&fresh, 2, &entries));
    assert!(next.written() <= whole.written(), "{} of {}", next.written(), whole.written());
}

/// Changes an index in one of several ways.
fn change(entries: &mut Entries, turn: u64, rng: &mut Rng) {
    let length = entries.len();
    let from = rng.below(length);
    match rng.below(5) {
        0 | 1 => {
            let next = 1_000_000 * turn;
            entries.extend(ascending(next, next + rng.below(3000) as u64));
        }
        2 => drop(entries.drain(from..(from + rng.below(length / 4)).min(length))),
        3 => entries[from..(from + 2000).min(length)].iter_mut().for_each(|(_, tid)| *tid += 1),
        _ => (0..10).for_each(|_| entries[rng.below(length)].1 += 1),
    }
}

#[test]
fn files_are_few_and_bounded() {
    let (folder, store) = store();
    let mut rng = Rng(2);
    let mut entries = ascending(0, 20_000);
    let mut images = vec![image(&store, 1, &entries)];
    let mut written = 0;
    for turn in 2..150 {
        if entries.len() < 5000 {
            entries = ascending(turn << 32, (turn << 32) + 20_000);
        }
        change(&mut entries, turn, &mut rng);
        images.push(image(&store, turn, &entries));
        let newest: Vec<_> = images.iter().rev().take(4).collect();
        let most = newest.iter().map(|image| image.bytes()).max().unwrap();
        let found = files(&own(&folder));
        let bytes: u64 = found.iter().map(|(_, bytes)| bytes).sum();
        assert!(bytes <= 4 * most + 20_000, "turn {turn}: {bytes} bytes on disk, {most} needed");
        // Exactly what the newest two name.
        let mut named = BTreeSet::new();
        for image in &newest[..2] {
            let folder_of = own(&folder).join(image.generation.to_string());
            named.extend([0, 1].map(|shard| folder_of.join(format!("shard-{shard}"))));
            named.insert(folder_of.join("manifest"));
            named.extend(image.carried.iter().map(|file| shard(&folder, file)));
            let older: BTreeSet<_> = image.carried.iter().map(|file| file.generation).collect();
            assert!(older.len() <= 16, "{older:?}");
        }
        assert_eq!(found.into_iter().map(|(path, _)| path).collect::<BTreeSet<_>>(), named);
        let before = store.images(DATABASE, INCARNATION).pop().unwrap().unwrap();
        assert_eq!(&before, newest[1]);
        load(&store, &before).unwrap();
        written += newest[0].written();
    }
    let all: u64 = images[1..].iter().map(Manifest::bytes).sum();
    assert!(written * 2 < all, "{written} of {all} bytes were written");
}

/// Small changes come for long: the image is not made of ever more files.
#[test]
fn generations_are_few() {
    let (_folder, store) = store();
    image(&store, 1, &ascending(0, 20_000));
    let mut most = 0;
    for turn in 1..50 {
        let next = image(&store, 1 + turn, &ascending(0, 20_000 + turn * 300));
        let older: BTreeSet<_> = next.carried.iter().map(|file| file.generation).collect();
        most = most.max(older.len());
        assert!(older.contains(&1), "the large file stays");
        assert!(part(&next) < 0.4, "{}", part(&next));
    }
    assert!((9..=16).contains(&most), "{most}");
}

/// Less than half of a file is needed: the image after that writes the rest anew.
#[test]
fn a_file_of_little_use_is_left_behind() {
    let (folder, store) = store();
    let store = store.without_collections();
    image(&store, 1, &ascending(0, 20_000));
    let carries = |image: &Manifest| image.carried.iter().any(|file| file.generation == 1);
    assert!(carries(&image(&store, 2, &ascending(0, 4000))));
    for turn in 3..5 {
        assert!(!carries(&image(&store, turn, &ascending(0, 4000))));
    }
    assert!(!own(&folder).join("1").exists(), "{:?}", files(&own(&folder)));
}

/// A frame by itself: TID 0 ends a frame. Its key does not compress.
fn lone(n: u64) -> (Vec<u8>, u64) {
    let mut rng = Rng(n + 1);
    (std::iter::once(n as u8).chain((0..300).map(|_| rng.next() as u8)).collect(), 0)
}

/// Each image adds equally much, so no generation has less than another.
#[test]
fn equal_generations_are_few_and_open_one_by_one() {
    let (folder, store) = store();
    let store = store.without_collections();
    let mut most = 0;
    for turn in 1..60 {
        let next = image(&store, turn, &(0..2 * turn).map(lone).collect());
        let older: BTreeSet<_> = next.carried.iter().map(|file| file.generation).collect();
        most = most.max(older.len());
        assert!(older.len() <= 16, "turn {turn}: {older:?}");
        if older.len() < 16 {
            continue;
        }
        let mut reader = store.open_shard(&next, 0).unwrap();
        while reader.next().unwrap().is_some() {
            let open = open_below(&own(&folder));
            assert!(open <= 2, "{open} files of one shard are open");
        }
    }
    assert_eq!(most, 16);
}

/// Returns how many files below a folder this process has open.
fn open_below(folder: &Path) -> usize {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let files = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    files.filter(|file| file.starts_with(folder)).count()
}

/// An image that carries frames, and the file that most of them are in.
fn carrying() -> (TempDir, Store, Manifest, PathBuf) {
    let (folder, store) = store();
    image(&store, 1, &ascending(0, 20_000));
    let manifest = image(&store, 2, &ascending(0, 20_500));
    let path = shard(&folder, &manifest.carried[0]);
    assert!(path.ends_with("1/shard-0"));
    (folder, store, manifest, path)
}

fn damage(store: &Store, manifest: &Manifest) -> String {
    load(store, manifest).unwrap_err().to_string()
}

#[test]
fn damage_of_a_carried_file_is_found() {
    let (_folder, store, manifest, path) = carrying();
    let good = fs::read(&path).unwrap();
    let mut found = 0;
    for at in (0..good.len()).step_by(101) {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&path, &bytes).unwrap();
        match load(&store, &manifest) {
            // Heads of an older list are not needed.
            Ok(content) => assert_eq!(content.concat(), ascending(0, 20_500)),
            Err(Damage::Carried { generation: 1, shard: 0, what: "has a bad checksum" }) => {
                found += 1
            }
            Err(damage) => panic!("{damage}"),
        }
        // It is damage of the older image in any case.
        let images = store.images(DATABASE, INCARNATION);
        assert!(load(&store, images[1].as_ref().unwrap()).is_err(), "byte {at}");
    }
    assert!(found > good.len() / 101 * 9 / 10, "{found}");
    let told = |what| format!("it uses shard 0 of image 1, and that shard {what}");
    fs::write(&path, &good[..good.len() - 1]).unwrap();
    assert_eq!(damage(&store, &manifest), told("has the wrong length"));
    fs::write(&path, [&good[..], b"x"].concat()).unwrap();
    assert_eq!(damage(&store, &manifest), told("has the wrong length"));
    fs::copy(path.with_file_name("shard-1"), &path).unwrap();
    assert_ne!(damage(&store, &manifest), "");
    fs::remove_file(&path).unwrap();
    assert_eq!(damage(&store, &manifest), told("is missing"));
}

#[test]
fn a_damaged_file_is_not_carried_again() {
    for cut in [0, 1] {
        let (_folder, store, manifest, path) = carrying();
        match cut {
            0 => fs::remove_file(&path).unwrap(),
            _ => fs::write(&path, "short").unwrap(),
        }
        // All is well again.
        let next = image(&store, 3, &ascending(0, 20_500));
        assert!(next.written() > manifest.bytes() / 3);
        assert!(next.carried.iter().all(|file| (file.generation, file.shard) != (1, 0)));
    }
    // A list that is not whole is no base.
    let (folder, store, ..) = carrying();
    let list = own(&folder).join("2/shard-1");
    let mut bytes = fs::read(&list).unwrap();
    bytes[60] ^= 1;
    fs::write(&list, bytes).unwrap();
    assert!(image(&store, 3, &ascending(0, 20_500)).carried.is_empty());
}

#[test]
fn every_byte_of_a_list_counts() {
    let (folder, store) = store();
    let store = store.without_collections();
    image(&store, 1, &ascending(0, 3000));
    let manifest = image(&store, 2, &ascending(0, 3100));
    assert!(!manifest.carried.is_empty());
    for file in ["2/shard-0", "2/shard-1"] {
        let path = own(&folder).join(file);
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(&path, &bytes).unwrap();
            assert!(load(&store, &manifest).is_err(), "byte {at} of {file}");
        }
        fs::write(&path, &good).unwrap();
    }
    assert!(load(&store, &manifest).is_ok());
}

#[test]
fn the_manifest_names_each_file() {
    let (_folder, store, manifest, _) = carrying();
    let without = Manifest { carried: manifest.carried[1..].to_vec(), ..manifest.clone() };
    let told = "it uses shard 0 of image 1, and that shard is not in the manifest";
    assert_eq!(damage(&store, &without), told);
    assert!(store.refresh(&without).is_err());
    store.refresh(&Manifest { lsn: 77, ..manifest }).unwrap();
    assert_eq!(store.images(DATABASE, INCARNATION)[0].as_ref().unwrap().lsn, 77);
    let draft = store.begin(DATABASE, INCARNATION).unwrap();
    let manifest = write(&draft, 3, &[ascending(0, 20_500)]).unwrap();
    assert!(!manifest.carried.is_empty());
    let error = draft.commit(&Manifest { carried: vec![], ..manifest }).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

/// What is written of it would be small, but what it refers to is in folders.
#[test]
fn an_image_that_carries_has_a_folder() {
    let (folder, store, manifest, _) = carrying();
    assert!(manifest.written() < 64 << 10 && manifest.bytes() > 64 << 10);
    assert!(own(&folder).join("2/manifest").exists());
    // It shrinks, and stands alone.
    let small = image(&store, 3, &ascending(100_000, 100_100));
    assert!(small.carried.is_empty() && !own(&folder).join("3").exists());
    image(&store, 4, &ascending(100_000, 100_100));
    assert!(!own(&folder).exists(), "{:?}", files(&own(&folder)));
}

/// Removed by its manifest: what newer images carry of it stays.
#[test]
fn a_removed_image_leaves_what_is_carried() {
    let (folder, store, manifest, path) = carrying();
    let [_, older] = store.images(DATABASE, INCARNATION).try_into().unwrap();
    store.remove(&older.unwrap()).unwrap();
    load(&store, &manifest).unwrap();
    store.sweep(DATABASE, INCARNATION, None).unwrap();
    assert!(path.exists() && !own(&folder).join("1/manifest").exists());
    load(&store, &manifest).unwrap();
    store.remove(&manifest).unwrap();
    store.sweep(DATABASE, INCARNATION, None).unwrap();
    assert!(!own(&folder).exists());
}

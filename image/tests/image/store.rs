//! The store on a real file system.

use std::fs;
use std::path::PathBuf;

use nitro_image::{Damage, Manifest, RealDisk, Store};
use tempfile::TempDir;

use crate::content::{DATABASE, INCARNATION, intact, load, shards, take, write};

fn store() -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(RealDisk, folder.path().join("pg_nitro")).without_collections();
    (folder, store)
}

fn generation(folder: &TempDir, generation: u64) -> PathBuf {
    let incarnation = format!("pg_nitro/{DATABASE}/{INCARNATION:032x}/{generation}");
    folder.path().join(incarnation)
}

fn generations(store: &Store) -> Vec<u64> {
    intact(store).iter().map(|image| image.generation).collect()
}

#[test]
fn nothing_yet() {
    let (_folder, store) = store();
    assert!(store.images(DATABASE, INCARNATION).is_empty());
    assert!(store.databases().unwrap().is_empty());
    assert!(store.incarnations(DATABASE).unwrap().is_empty());
    store.discard(DATABASE, INCARNATION).unwrap();
    store.sweep(DATABASE, INCARNATION, None).unwrap();
    store.remove_database(DATABASE).unwrap();
}

#[test]
fn two_images_are_kept() {
    let (folder, store) = store();
    for lsn in 1..=4 {
        assert_eq!(take(&store, lsn).unwrap().generation, lsn);
    }
    assert_eq!(generations(&store), [4, 3]);
    assert!(!generation(&folder, 2).exists());
    assert_eq!(store.databases().unwrap(), [DATABASE]);
    assert_eq!(store.incarnations(DATABASE).unwrap(), [INCARNATION].into());
}

#[test]
fn a_draft_is_no_image() {
    let (folder, store) = store();
    take(&store, 1).unwrap();
    let draft = store.begin(DATABASE, INCARNATION).unwrap();
    write(&draft, 2, &shards(2)).unwrap();
    assert_eq!(generations(&store), [1]);
    store.sweep(DATABASE, INCARNATION, Some(draft.generation())).unwrap();
    assert!(generation(&folder, 2).join("shard-1").exists());
    drop(draft);
    assert!(!generation(&folder, 2).exists());
}

#[test]
fn threads_write_shards() {
    let (_folder, store) = store();
    let draft = store.begin(DATABASE, INCARNATION).unwrap();
    let content = shards(1);
    let shard = |number: usize| {
        let mut writer = draft.shard(number as u32).unwrap();
        content[number].iter().for_each(|(key, tid)| writer.push(key, *tid).unwrap());
        draft.finish_shard(writer).unwrap()
    };
    let summaries = std::thread::scope(|scope| {
        let threads = [0, 1].map(|number| scope.spawn(move || shard(number)));
        threads.map(|thread| thread.join().unwrap()).to_vec()
    });
    let manifest = crate::content::manifest(1, draft.generation(), summaries);
    draft.commit(&manifest).unwrap();
    assert_eq!(intact(&store), [manifest]);
}

#[test]
fn a_commit_needs_all_it_names() {
    let (_folder, store) = store();
    let wrong: [fn(&mut Manifest); 6] = [
        |manifest| manifest.shards.truncate(1),
        |manifest| manifest.shards[1].crc ^= 1,
        |manifest| manifest.generation += 1,
        |manifest| manifest.incarnation += 1,
        |manifest| manifest.entries += 1,
        |manifest| manifest.name = "x".repeat(nitro_image::MAX_MANIFEST),
    ];
    for change in wrong {
        let draft = store.begin(DATABASE, INCARNATION).unwrap();
        let mut manifest = write(&draft, 1, &shards(1)).unwrap();
        change(&mut manifest);
        assert_eq!(draft.commit(&manifest).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
        assert!(store.images(DATABASE, INCARNATION).is_empty());
    }
    let draft = store.begin(DATABASE, INCARNATION).unwrap();
    let manifest = write(&draft, 1, &shards(1)).unwrap();
    let _unfinished = draft.shard(1).unwrap();
    drop(draft);
    let draft = store.begin(DATABASE, INCARNATION).unwrap();
    assert!(draft.commit(&manifest).is_err(), "of another draft");
}

#[test]
fn refresh_keeps_the_shards() {
    let (_folder, store) = store();
    let first = take(&store, 1).unwrap();
    let later = Manifest { lsn: 77, ..first.clone() };
    store.refresh(&later).unwrap();
    assert_eq!(intact(&store), [later]);
    assert!(store.refresh(&Manifest { shards: vec![], ..first.clone() }).is_err());
    let draft = store.begin(DATABASE, INCARNATION).unwrap();
    let manifest = write(&draft, 2, &shards(2)).unwrap();
    let error = store.refresh(&manifest).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "a draft is not to be refreshed");
    drop(draft);
    store.discard(DATABASE, INCARNATION).unwrap();
    let error = store.refresh(&first).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn discard_removes_all_there_is() {
    let (folder, store) = store();
    take(&store, 1).unwrap();
    take(&store, 2).unwrap();
    let incarnation = generation(&folder, 1).parent().unwrap().to_path_buf();
    fs::write(incarnation.join("note"), "not ours").unwrap();
    fs::create_dir_all(incarnation.join("9/folder")).unwrap();
    let draft = store.begin(DATABASE, INCARNATION).unwrap();
    let manifest = write(&draft, 3, &shards(3)).unwrap();
    store.discard(DATABASE, INCARNATION).unwrap();
    assert!(!incarnation.exists());
    assert!(draft.commit(&manifest).is_err());
    assert!(store.images(DATABASE, INCARNATION).is_empty());
    assert_eq!(take(&store, 4).unwrap().generation, 1);
    store.remove_database(DATABASE).unwrap();
    assert!(store.databases().unwrap().is_empty());
}

#[test]
fn sweep_removes_orphans() {
    let (folder, store) = store();
    for lsn in 1..=3 {
        take(&store, lsn).unwrap();
    }
    fs::write(generation(&folder, 3).join("manifest.tmp"), "half").unwrap();
    fs::create_dir(generation(&folder, 7)).unwrap();
    fs::write(generation(&folder, 7).join("shard-0"), "half").unwrap();
    fs::create_dir(generation(&folder, 1)).unwrap();
    store.sweep(DATABASE, INCARNATION, None).unwrap();
    assert_eq!(generations(&store), [3, 2]);
    assert!(!generation(&folder, 7).exists() && !generation(&folder, 1).exists());
    assert!(!generation(&folder, 3).join("manifest.tmp").exists());
}

/// Damages a file of generation 2 and says what the store finds.
fn damaged(change: impl Fn(PathBuf)) -> String {
    let (folder, store) = store();
    take(&store, 1).unwrap();
    take(&store, 2).unwrap();
    change(generation(&folder, 2));
    let [newest, older] = store.images(DATABASE, INCARNATION).try_into().unwrap();
    assert!(load(&store, &older.unwrap()).is_ok());
    newest.and_then(|manifest| load(&store, &manifest)).unwrap_err().to_string()
}

#[test]
fn damage_is_told() {
    let cut = |path: PathBuf| {
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    };
    assert_eq!(damaged(|folder| fs::remove_file(folder.join("shard-1")).unwrap()), {
        Damage::Missing { shard: 1 }.to_string()
    });
    assert_eq!(damaged(|folder| cut(folder.join("shard-1"))), Damage::Truncated.to_string());
    assert_eq!(damaged(|folder| cut(folder.join("manifest"))), "bad checksum in the manifest");
    let longer = |folder: PathBuf| {
        let path = folder.join("shard-0");
        let bytes = [fs::read(&path).unwrap(), vec![0]].concat();
        fs::write(path, bytes).unwrap();
    };
    assert_eq!(damaged(longer), Damage::Trailing.to_string());
    // A file of another image, with all checksums right: of the same length or not.
    let mixed = |file: &'static str| {
        move |folder: PathBuf| {
            drop(fs::copy(folder.with_file_name("1").join(file), folder.join(file)))
        }
    };
    assert_eq!(damaged(mixed("manifest")), Damage::Misplaced.to_string());
    assert_ne!(damaged(mixed("shard-0")), "");
}

#[test]
fn shards_are_refused_before_they_are_read() {
    let (folder, store) = store();
    let manifest = take(&store, 1).unwrap();
    let path = generation(&folder, 1).join("shard-0");
    let good = fs::read(&path).unwrap();
    fs::write(&path, &good[..good.len() - 1]).unwrap();
    assert!(matches!(store.open_shard(&manifest, 0), Err(Damage::Truncated)));
    fs::write(&path, [&good[..], &[0]].concat()).unwrap();
    assert!(matches!(store.open_shard(&manifest, 0), Err(Damage::Trailing)));
    assert!(matches!(store.open_shard(&manifest, 2), Err(Damage::Missing { shard: 2 })));
}

//! Small images share few files. Their indexes come back from them. Damage of an image, or the end
//! of an index, concerns no other index in the file.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nitro_server_tests::{Server, wait_until};

const TABLES: usize = 15;
const READY: &str = "SELECT count(*) > 0 AND bool_and(state = 'ready') FROM pg_stat_nitro_indexes";

/// Makes tables with ten small indexes each.
fn make_tables(server: &Server, database: &str, tables: usize) {
    let mut session = server.session_as("postgres", database);
    session.sql("CREATE EXTENSION IF NOT EXISTS nitro");
    for table in 0..tables {
        let columns: Vec<_> = (0..10).map(|column| format!("a{column} int")).collect();
        session.sql(&format!(
            "CREATE TABLE t{table} ({}); \
             INSERT INTO t{table} SELECT {} FROM generate_series(1, 50) i",
            columns.join(", "),
            ["i"; 10].join(", "),
        ));
        for column in 0..10 {
            session.sql(&format!("CREATE INDEX ON t{table} USING nitro (a{column})"));
        }
    }
}

/// Waits until each index of a database has an image.
fn imaged(server: &Server, database: &str) {
    let mut session = server.session_as("postgres", database);
    wait_until("images", || {
        session.value(
            "SELECT count(*) > 0 AND bool_and(image_time IS NOT NULL) FROM pg_stat_nitro_indexes",
        ) == "t"
    });
}

fn folder(server: &Server, database: &str) -> PathBuf {
    let oid = server.value(&format!("SELECT oid FROM pg_database WHERE datname = '{database}'"));
    server.data().join("pg_nitro").join(oid)
}

/// The files and folders of a database, with the length of each.
fn found(folder: &Path) -> BTreeMap<String, u64> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeMap::new() };
    let named = entries.flatten().map(|entry| {
        let length = entry.metadata().map_or(0, |metadata| metadata.len());
        (entry.file_name().to_string_lossy().into_owned(), length)
    });
    named.collect()
}

fn verify(server: &Server) {
    let wrong = "SELECT count(*) \
        FROM pg_class c JOIN pg_am a ON a.oid = relam AND amname = 'nitro', \
        LATERAL (SELECT nitro_verify(c.oid::regclass)) v";
    server.sql(wrong);
}

#[test]
fn small_images_share_files() {
    let mut server = Server::new().conf("nitro.backup_rate = 0").start();
    make_tables(&server, "postgres", TABLES);
    server.sql("CREATE DATABASE other");
    make_tables(&server, "other", 1);
    server.sql("CHECKPOINT");
    imaged(&server, "postgres");
    imaged(&server, "other");
    let here = folder(&server, "postgres");
    wait_until("drafts are gone", || found(&here).keys().all(|name| name.starts_with("small-")));
    let files = found(&here);
    assert!((50..10 * TABLES).contains(&files.len()), "{files:?}");

    // Changes since are read from the WAL.
    for table in 0..TABLES {
        server.sql(&format!("UPDATE t{table} SET a1 = a1 + 100 WHERE a2 = 7"));
    }
    server.crash();
    // A bit of the last image of a file with several.
    let (name, length) = files.iter().max_by_key(|(_, length)| **length).expect("there are files");
    let mut bytes = fs::read(here.join(name)).expect("the server is down");
    bytes[*length as usize - 20] ^= 4;
    fs::write(here.join(name), bytes).expect("the server is down");
    server.start();
    // The damaged one may be the only one of its index, which is then built by the first query.
    server.wait_until(&format!(
        "SELECT count(*) FILTER (WHERE loads > 0 AND state = 'ready') >= {} \
         FROM pg_stat_nitro_indexes",
        10 * TABLES - 1
    ));
    let warnings = || server.log().matches("its image is not used: bad checksum").count();
    wait_until("the damage is told", || warnings() > 0);
    assert_eq!(warnings(), 1, "one image is damaged");
    verify(&server);

    // A large image has a folder.
    server.sql(
        "CREATE TABLE large AS SELECT md5(i::text) AS s FROM generate_series(1, 20000) i; \
         CREATE INDEX large_s ON large USING nitro (s); CHECKPOINT",
    );
    imaged(&server, "postgres");
    wait_until("a folder", || found(&here).keys().any(|name| name.len() == 32));

    // Images of dropped indexes are removed, and the files with them.
    let elsewhere = folder(&server, "other");
    assert!(!found(&elsewhere).is_empty());
    let tables: Vec<_> = (0..TABLES).map(|table| format!("t{table}")).collect();
    server.sql(&format!("DROP TABLE {}", tables.join(", ")));
    server.sql("DROP DATABASE other");
    server.sql("CHECKPOINT");
    wait_until("the files are gone", || {
        !found(&here).keys().any(|name| name.starts_with("small-")) && !elsewhere.exists()
    });
    server.crash();
    server.start();
    server.wait_until(READY);
    verify(&server);
}

/// The number of each file of a database. A file that is written again has another one.
fn inodes(folder: &Path) -> BTreeMap<String, u64> {
    let inode = |name: String| {
        let metadata = fs::metadata(folder.join(&name)).expect("it was listed");
        (name, metadata.ino())
    };
    found(folder).into_keys().map(inode).collect()
}

/// Indexes that do not change cost a checkpoint nothing, until much WAL was written since.
#[test]
fn idle_indexes_keep_their_images() {
    let mut server =
        Server::new().conf("nitro.max_wal_lag = 64MB").conf("checkpoint_timeout = 1h").start();
    make_tables(&server, "postgres", TABLES);
    imaged(&server, "postgres");
    server.wait_until("SELECT state = 'nitro' FROM nitro_slot");
    let here = folder(&server, "postgres");
    let all = 10 * TABLES;
    // A checkpoint after a change, and the images that it asks for. Returns how many are new.
    let round = |change: &str, least: usize| {
        server.sql(change);
        let lsn = server.value("SELECT pg_current_wal_insert_lsn()");
        let new = format!("SELECT count(*) FROM pg_stat_nitro_indexes WHERE image_lsn >= '{lsn}'");
        server.sql("CHECKPOINT");
        server.wait_until(&format!("SELECT ({new}) >= {least}"));
        server.wait_until(
            "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'nitro builder'",
        );
        server.value(&new).parse::<usize>().expect("a number")
    };
    // All ten indexes of this table get an entry.
    let update = "UPDATE t0 SET a1 = a1 + 100 WHERE a2 = 7";
    round(update, 10);
    let before = inodes(&here);
    assert_eq!(round(update, 10), 10, "idle indexes have new images");
    let after = inodes(&here);
    let written = after.iter().filter(|(name, inode)| before.get(*name) != Some(inode)).count();
    assert!((1..=10).contains(&written), "{written} of {} files were written", after.len());

    let wal = "SELECT count(pg_logical_emit_message(false, '', repeat('x', 1000))) \
        FROM generate_series(1, 6000)";
    assert_eq!(round(wal, all), all, "old images stay");
    server.crash();
    server.start();
    server.wait_until(READY);
    verify(&server);
}

/// A damaged image is removed. Its index does not change, and has a new one at the next checkpoint.
#[test]
fn an_idle_index_without_an_image_gets_one() {
    let server = Server::new().conf("checkpoint_timeout = 1h").start();
    // The large image keeps the slot.
    server.sql(
        "CREATE TABLE large AS SELECT md5(i::text) AS s FROM generate_series(1, 20000) i; \
         CREATE INDEX large_s ON large USING nitro (s)",
    );
    imaged(&server, "postgres");
    server.sql("CREATE TABLE t AS SELECT i FROM generate_series(1, 50) i");
    server.sql("CREATE INDEX t_i ON t USING nitro (i)");
    imaged(&server, "postgres");
    server.wait_until("SELECT state = 'nitro' FROM nitro_slot");
    server.wait_until(
        "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'nitro builder'",
    );
    let here = folder(&server, "postgres");
    let files = found(&here);
    let small = files.keys().find(|name| name.starts_with("small-")).expect("a small image");
    let mut bytes = fs::read(here.join(small)).expect("it can be read");
    let last = bytes.len() - 20;
    bytes[last] ^= 4;
    fs::write(here.join(small), bytes).expect("it can be written");
    server.sql("SELECT nitro_verify_images('t_i')");
    assert_eq!(server.value("SELECT nitro_verify_images('t_i')"), "0", "it was removed");
    server.sql("CHECKPOINT");
    server.wait_until("SELECT nitro_verify_images('t_i') = 1");
}

/// A process holds the lock of the folder and does not go on. The image of an index that has not
/// changed is renewed in a folder of its own, which needs no lock.
#[test]
fn renewing_an_unchanged_image_needs_no_lock() {
    let server = Server::new().start();
    server.sql("CREATE TABLE t AS SELECT i FROM generate_series(1, 50) i");
    server.sql("CREATE INDEX t_i ON t USING nitro (i)");
    imaged(&server, "postgres");
    let here = folder(&server, "postgres");
    wait_until("it is collected", || found(&here).keys().all(|name| name.starts_with("small-")));
    let lock = fs::File::open(&here).expect("a folder");
    lock.lock().expect("a lock, while no image is written");
    assert_eq!(server.value("SELECT nitro_backup('t_i')"), "1");
    assert!(found(&here).keys().any(|name| name.len() == 32));
    drop(lock);
    assert_eq!(server.value("SELECT nitro_verify_images('t_i')"), "2");
}

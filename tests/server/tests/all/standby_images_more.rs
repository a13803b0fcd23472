//! Images of standbys: imported snapshots, WAL that is removed meanwhile, locks of the primary,
//! builders that end, kinds of keys.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use nitro_server_tests::{Random, Server, Session, seed, wait_until};

use crate::standbys::{await_followed, primary};

/// A standby asks for its primary again after this time.
const SOON: &str = "wal_retrieve_retry_interval = '200ms'";

/// How often an index of a server was loaded from an image, and built.
fn origin(server: &Server, index: &str) -> (String, String) {
    let row = server.sql(&format!(
        "SELECT loads, builds FROM pg_stat_nitro_indexes WHERE indexrelid = '{index}'::regclass"
    ));
    let text = |i: usize| row[0][i].clone().unwrap_or_default();
    (text(0), text(1))
}

/// A snapshot is taken before recovery comes to the end of an image. Another transaction imports it
/// later, and goes on when the first one has ended.
#[test]
fn imported_snapshots_do_not_read_the_image() {
    let primary = primary().conf(SOON).start();
    primary.sql("CREATE TABLE t (id int, k int); INSERT INTO t SELECT i, i % 50 FROM generate_series(1, 6000) i;
                 CREATE INDEX t_k ON t USING nitro (k)");
    let mut late = primary.standby();
    late.catch_up(&primary);
    late.stop();
    primary.sql("DELETE FROM t WHERE id <= 600");
    let early = primary.standby();
    await_followed(&early);
    assert_eq!(early.value("SELECT nitro_backup('t_k')"), "1");
    let target = late.data().join("pg_nitro");
    let _ = fs::remove_dir_all(&target);
    let copied =
        Command::new("cp").arg("-a").arg(early.data().join("pg_nitro")).arg(&target).status();
    assert!(copied.expect("cp runs").success());
    let source = fs::read_to_string(late.data().join("postgresql.auto.conf")).expect("a file");
    let source = source.lines().rfind(|line| line.starts_with("primary_conninfo"));
    let source = source.expect("where the primary is").to_owned();
    late.conf("max_standby_streaming_delay = -1");
    late.remove("postgresql.auto.conf");
    late.start();
    let query = "SELECT count(*) FROM t WHERE k = 7";
    let (mut old, mut young): (Session, Session) = (late.session(), late.session());
    old.sql("BEGIN ISOLATION LEVEL REPEATABLE READ");
    let snapshot = old.value("SELECT pg_export_snapshot()");
    assert_eq!(old.value(query), "120");
    late.conf(&source);
    late.reload();
    late.catch_up(&primary);
    late.wait_until("SELECT state IN ('building', 'following') FROM pg_stat_nitro_indexes");
    // Time enough to load it.
    sleep(Duration::from_secs(2));
    young.sql(&format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{snapshot}'"
    ));
    assert_eq!(young.value(query), "120");
    old.sql("COMMIT");
    sleep(Duration::from_secs(2));
    young.sql("SET LOCAL enable_seqscan = off");
    assert_eq!(young.value(query), "120");
    young.sql("COMMIT");
    await_followed(&late);
    assert_eq!(origin(&late, "t_k"), ("1".to_owned(), "0".to_owned()));
}

/// While an index is loaded, restartpoints remove the WAL since its image was read.
#[test]
fn a_long_load_leaves_other_indexes_alone() {
    let primary = primary().conf("wal_keep_size = 0").conf(SOON).start();
    primary.sql("CREATE TABLE t (id int, k int); INSERT INTO t SELECT i, i % 50 FROM generate_series(1, 6000) i;
                 CREATE TABLE u (id int, k int); INSERT INTO u SELECT i, i % 50 FROM generate_series(1, 6000) i;
                 CREATE INDEX t_k ON t USING nitro (k); CREATE INDEX u_k ON u USING nitro (k)");
    primary.sql("VACUUM t, u");
    let mut standby = primary.standby();
    standby.conf("nitro.backup = on\nnitro.follow = on");
    standby.reload();
    await_followed(&standby);
    assert_eq!(standby.value("SELECT nitro_backup('t_k')"), "1");
    standby.conf("nitro.follow = off\nnitro.backup = off");
    standby.restart();
    standby.conf("max_standby_streaming_delay = -1\nhot_standby_feedback = on");
    standby.reload();
    let mut old = standby.session();
    old.sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM u");
    standby.conf("nitro.follow = on");
    standby.reload();
    standby.sql("SELECT count(*) FROM t WHERE k = 7");
    standby.wait_until(
        "SELECT state = 'following' FROM pg_stat_nitro_indexes WHERE indexrelid = 'u_k'::regclass",
    );
    standby.wait_until(
        "SELECT state = 'building' FROM pg_stat_nitro_indexes WHERE indexrelid = 't_k'::regclass",
    );
    sleep(Duration::from_secs(1));
    for _ in 0..4 {
        primary.sql("INSERT INTO t VALUES (1, 1); INSERT INTO u VALUES (1, 1); SELECT pg_switch_wal(); CHECKPOINT");
        standby.catch_up(&primary);
        standby.sql("CHECKPOINT");
    }
    old.sql("COMMIT");
    standby.wait_until(
        "SELECT state = 'following' FROM pg_stat_nitro_indexes WHERE indexrelid = 't_k'::regclass",
    );
    // The follower comes for it.
    sleep(Duration::from_secs(2));
    assert_eq!(origin(&standby, "t_k"), ("1".to_owned(), "0".to_owned()), "{}", standby.log());
    await_followed(&standby);
    assert_eq!(origin(&standby, "u_k"), ("0".to_owned(), "1".to_owned()), "{}", standby.log());
}

/// Two databases, and one builder at a time.
#[test]
fn builders_of_databases_take_turns() {
    let primary = primary().conf("nitro.max_builders = 1").start();
    primary.sql("CREATE DATABASE other");
    let databases = ["postgres", "other"];
    for database in databases {
        let mut session = primary.session_as("postgres", database);
        session.sql("CREATE EXTENSION IF NOT EXISTS nitro");
        for i in 0..40 {
            session.sql(&format!(
                "CREATE TABLE t{i} (id int, k int);
                 INSERT INTO t{i} SELECT i, i % 50 FROM generate_series(1, 300) i;
                 CREATE INDEX t{i}_k ON t{i} USING nitro (k)"
            ));
            session.sql(&format!("VACUUM t{i}"));
        }
    }
    let mut standby = primary.standby();
    let wait_for = |standby: &Server, what: &str| {
        for database in databases {
            let mut session = standby.session_as("postgres", database);
            let query =
                format!("SELECT count(*) FILTER (WHERE {what}) = 40 FROM pg_stat_nitro_indexes");
            wait_until(what, || session.value(&query) == "t");
        }
    };
    wait_for(&standby, "image_time IS NOT NULL");
    standby.restart();
    wait_for(&standby, "state = 'following'");
    for database in databases {
        let mut session = standby.session_as("postgres", database);
        assert_eq!(session.value("SELECT sum(loads) FROM pg_stat_nitro_indexes"), "40");
    }
}

/// The images of a database go with it on a standby, too.
#[test]
fn images_of_a_dropped_database_are_removed() {
    let primary = primary().start();
    primary.sql("CREATE DATABASE other");
    let table = "CREATE TABLE t (id int, k int); INSERT INTO t SELECT i, i % 50 FROM generate_series(1, 3000) i;
                 CREATE INDEX t_k ON t USING nitro (k)";
    primary.sql(table);
    primary.session_as("postgres", "other").sql(&format!("CREATE EXTENSION nitro; {table}"));
    let mut standby = primary.standby();
    for database in ["postgres", "other"] {
        let mut session = standby.session_as("postgres", database);
        wait_until("the index has an image", || {
            session.value("SELECT coalesce(bool_and(image_time IS NOT NULL), false) FROM pg_stat_nitro_indexes ") == "t"
        });
    }
    let folders = || fs::read_dir(standby.data().join("pg_nitro")).map_or(0, Iterator::count);
    assert_eq!(folders(), 2);
    primary.sql("DROP DATABASE other");
    standby.catch_up(&primary);
    standby.restart();
    await_followed(&standby);
    let folders = || fs::read_dir(standby.data().join("pg_nitro")).map_or(0, Iterator::count);
    wait_until("the folder is gone", || folders() == 1);
}

/// A lock of the primary ends the load of an image of its table. Recovery does not wait for it.
#[test]
fn replay_does_not_wait_for_a_load() {
    let primary = primary().conf("max_standby_streaming_delay = -1").start();
    primary.sql("CREATE TABLE t (id int, k int); INSERT INTO t SELECT i, i % 50 FROM generate_series(1, 1000000) i;
                 CREATE INDEX t_k ON t USING nitro (k, id)");
    primary.sql("VACUUM t");
    let mut standby = primary.standby();
    await_followed(&standby);
    assert_eq!(standby.value("SELECT nitro_backup('t_k')"), "1");
    standby.conf("nitro.backup_workers = 1");
    standby.restart();
    standby.wait_until("SELECT state = 'building' FROM pg_stat_nitro_indexes");
    primary.sql("ALTER TABLE t ADD COLUMN v int");
    standby.catch_up(&primary);
    let said = "another process waits for a lock on the index or its table";
    assert!(standby.log().contains(said), "{}", standby.log());
    await_followed(&standby);
    assert_eq!(standby.value("SELECT count(*) FROM t WHERE k = 7"), "20000");
}

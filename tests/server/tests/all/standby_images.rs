//! Images that standbys make of the indexes that they follow, and load when they start again.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{scope, sleep};
use std::time::Duration;

use nitro_server_tests::{Random, Server, Session, seed, wait_until};

use crate::promotion::stop_follower;
use crate::standbys::{
    TABLE, await_followed, change, compare, primary, random_condition, uses_index,
};

/// A standby asks for its primary again after this time.
pub const SOON: &str = "wal_retrieve_retry_interval = '200ms'";

/// How often the indexes of a server were loaded from images, and built, in its life.
fn origins(server: &Server) -> (u32, u32) {
    let row = server.sql("SELECT sum(loads), sum(builds) FROM pg_stat_nitro_indexes");
    let number = |i: usize| row[0][i].as_deref().and_then(|text| text.parse().ok());
    (number(0).expect("a number"), number(1).expect("a number"))
}

/// Makes images of this number of indexes, as soon as no builder makes one of them.
#[track_caller]
pub fn back_up(server: &Server, indexes: u32) {
    let mut session = server.session();
    wait_until("images of all indexes", || {
        session.value("SELECT nitro_backup(NULL)") == indexes.to_string()
    });
}

/// Compares all indexes of the table with it.
fn check(server: &Server, random: &mut Random) {
    let mut session = server.session();
    for _ in 0..30 {
        compare(&mut session, &random_condition(random));
    }
}

/// Changes in a few blocks of the table: an image is loaded if most of the table is as it was.
fn change_little(server: &Server, random: &mut Random) {
    for _ in 0..3 {
        let (from, k) = (random.below(6000), random.below(50));
        let some = format!("id BETWEEN {from} AND {}", from + random.below(30));
        server.sql(&match random.below(6) {
            0 => format!("DELETE FROM t WHERE {some}"),
            1 => format!(
                "INSERT INTO t SELECT i, {k}, 'v' || i % 300, ARRAY[{}]
                     FROM generate_series(1, 20) i",
                k % 20
            ),
            2 => format!("BEGIN; UPDATE t SET k = {k} WHERE {some}; ROLLBACK"),
            3 => "VACUUM (TRUNCATE off) t".to_owned(),
            _ => format!("UPDATE t SET k = {k}, v = 'v{k}' WHERE {some}"),
        });
    }
}

/// A primary with a table and four indexes, and a standby with images of them.
fn pair(random: &mut Random) -> (Server, Server) {
    let primary = primary().start();
    primary.sql(TABLE);
    primary.sql("VACUUM t");
    let standby = primary.standby();
    await_followed(&standby);
    change_little(&primary, random);
    standby.catch_up(&primary);
    back_up(&standby, 4);
    (primary, standby)
}

/// Copies the images of a server, which need not run, to another one, which does not.
fn copy_images(from: &Path, to: &Server) {
    let target = to.data().join("pg_nitro");
    let _ = fs::remove_dir_all(&target);
    let copied = Command::new("cp").arg("-a").arg(from).arg(&target).status();
    assert!(copied.expect("cp runs").success());
}

/// The number of folders and files below the images of a server.
fn files_of_images(server: &Server) -> usize {
    let output = Command::new("find").arg(server.data().join("pg_nitro")).output();
    String::from_utf8_lossy(&output.expect("find runs").stdout).lines().count()
}

#[test]
fn a_standby_comes_back_from_its_images() {
    let mut random = Random::new(seed());
    let (primary, mut standby) = pair(&mut random);
    for kill in [false, true, false, true] {
        change_little(&primary, &mut random);
        standby.catch_up(&primary);
        if kill {
            standby.crash();
            standby.start();
        } else {
            standby.restart();
        }
        await_followed(&standby);
        assert_eq!(origins(&standby), (4, 0));
        standby.catch_up(&primary);
        check(&standby, &mut random);
        change_little(&primary, &mut random);
        standby.catch_up(&primary);
        check(&standby, &mut random);
        // Else too many blocks may have changed at the next start.
        back_up(&standby, 4);
    }
}

/// A restart of a standby whose WAL since the image is gone compares the pages of the table.
#[test]
fn without_wal_the_pages_tell() {
    let mut random = Random::new(seed());
    let (primary, mut standby) = pair(&mut random);
    primary.sql("ALTER SYSTEM SET wal_keep_size = 0");
    primary.reload();
    standby.conf("wal_keep_size = 0");
    standby.conf("nitro.backup = off");
    standby.reload();
    for _ in 0..3 {
        change_little(&primary, &mut random);
        primary.sql("SELECT pg_switch_wal(); CHECKPOINT");
        standby.catch_up(&primary);
        standby.sql("CHECKPOINT");
    }
    standby.restart();
    await_followed(&standby);
    assert_eq!(origins(&standby), (4, 0));
    assert!(standby.log().contains("comparing the pages of its table with its image"));
    check(&standby, &mut random);
    change_little(&primary, &mut random);
    standby.catch_up(&primary);
    check(&standby, &mut random);
}

/// An image has what the index reflects, and that may be behind the pages.
#[test]
fn an_image_is_as_old_as_its_index() {
    let mut random = Random::new(seed());
    let (primary, mut standby) = pair(&mut random);
    // The follower is killed with the server.
    let _stopped = stop_follower(&standby);
    change_little(&primary, &mut random);
    primary.sql("UPDATE t SET k = 49 WHERE id BETWEEN 100 AND 110");
    standby.catch_up(&primary);
    // Without a change the image gets a new manifest. Its LSN must be the old one.
    back_up(&standby, 4);
    standby.crash();
    standby.start();
    await_followed(&standby);
    assert_eq!(origins(&standby), (4, 0));
    check(&standby, &mut random);
    compare(&mut standby.session(), "k = 49");
}

/// Images are made while the primary changes the table, and the standby is killed at any time.
#[test]
fn images_beside_changes_and_kills() {
    let mut random = Random::new(seed());
    let primary = primary().start();
    primary.sql(TABLE);
    let mut standby = primary.standby();
    await_followed(&standby);
    let mut loads = 0;
    for _ in 0..6 {
        let stop = AtomicBool::new(false);
        let seed = random.below(1 << 30);
        let round = Duration::from_millis(random.below(1500));
        scope(|scope| {
            scope.spawn(|| {
                let mut random = Random::new(seed);
                while !stop.load(Relaxed) {
                    change_little(&primary, &mut random);
                }
            });
            scope.spawn(|| {
                let mut session = standby.session();
                while !stop.load(Relaxed) {
                    // An exclusive lock of a VACUUM may be in the way.
                    let _ = session.try_sql("SELECT nitro_backup(NULL)");
                }
            });
            sleep(Duration::from_millis(500) + round);
            stop.store(true, Relaxed);
        });
        standby.crash();
        standby.start();
        await_followed(&standby);
        loads += origins(&standby).0;
        standby.catch_up(&primary);
        check(&standby, &mut random);
    }
    assert!(loads > 0, "no index was loaded");
}

/// Builders of a standby sort the entries of a large table while the primary changes it.
#[test]
fn a_large_table_is_sorted_beside_changes() {
    let mut random = Random::new(seed());
    let primary = primary().conf("nitro.backup = off").start();
    primary.sql(TABLE);
    primary.sql(
        "INSERT INTO t SELECT i, i % 50, 'v' || i % 300, ARRAY[i % 20]
             FROM generate_series(1, 60000) i",
    );
    for _ in 0..3 {
        let stop = AtomicBool::new(false);
        let seed = random.below(1 << 30);
        let standby = scope(|scope| {
            scope.spawn(|| change(&primary, seed, &stop));
            let standby = primary.standby();
            await_followed(&standby);
            sleep(Duration::from_millis(300));
            stop.store(true, Relaxed);
            standby
        });
        standby.catch_up(&primary);
        check(&standby, &mut random);
        let log = standby.log();
        assert!(log.matches("built from its table").count() >= 4, "{log}");
        // The reverse map knows all of it.
        primary.sql("DELETE FROM t WHERE id % 3 = 0");
        primary.sql("VACUUM (TRUNCATE off) t");
        primary.sql("UPDATE t SET k = k + 1 WHERE id % 7 = 0");
        standby.catch_up(&primary);
        check(&standby, &mut random);
    }
}

/// The history of a standby leaves the WAL of its image before the end of that WAL.
#[test]
fn an_image_of_a_history_that_was_left_is_not_used() {
    let mut old = primary().conf("wal_log_hints = on").conf(SOON).start();
    old.sql(
        "CREATE TABLE t (id int, k int); INSERT INTO t SELECT i, i % 50
        FROM generate_series(1, 6000) i;
             CREATE INDEX t_k ON t USING nitro (k)",
    );
    // Readers of its pages write no hints later.
    old.sql("VACUUM t");
    let (mut new, mut standby) = (old.standby(), old.standby());
    await_followed(&standby);
    new.catch_up(&old);
    new.stop();
    // Its index has no entries of the old rows then, nor has that of the standby.
    old.sql("UPDATE t SET k = 77 WHERE id <= 300");
    old.sql("VACUUM t");
    standby.catch_up(&old);
    back_up(&standby, 1);
    standby.stop();
    let images = standby.data().join("pg_nitro");
    let aside = standby.data().with_file_name("images");
    fs::rename(&images, &aside).expect("the images can be moved");
    old.crash();
    // Without its primary it has not seen the update.
    new.start();
    new.promote();
    new.sql(
        "UPDATE t SET k = 88 WHERE id > 5900; SELECT pg_switch_wal(); UPDATE t
        SET k = 89 WHERE id > 5950",
    );
    standby.rewind(&new);
    standby.stop();
    copy_images(&aside, &standby);
    standby.start();
    standby.catch_up(&new);
    await_followed(&standby);
    let mut session = standby.session();
    for k in [77, 88, 89, 3] {
        let query = format!("SELECT count(*) FROM t WHERE k = {k}");
        session.sql("SET enable_seqscan = off");
        let by_index = session.value(&query);
        session
            .sql("RESET enable_seqscan; SET enable_indexscan = off; SET enable_bitmapscan = off");
        assert_eq!(by_index, session.value(&query), "k = {k}");
        session.sql("RESET ALL");
    }
    assert!(standby.log().contains("the server has left the timeline of its WAL"));
}

/// A standby whose image is newer than its files, and a transaction whose snapshot was taken before
/// recovery came to the end of the image. The image lacks rows that the snapshot sees.
struct Behind {
    standby: Server,
    old: Session,
    _primary: Server,
}

const OF_ONE_KEY: &str = "SELECT count(*) FROM t WHERE k = 7";

impl Behind {
    /// `off` is the mechanism that the standby does without.
    fn start(off: &str) -> Behind {
        let primary = primary().conf(SOON).start();
        primary.sql(
            "CREATE TABLE t (id int, k int);
             INSERT INTO t SELECT i, i % 50 FROM generate_series(1, 6000) i;
             CREATE INDEX t_k ON t USING nitro (k)",
        );
        let mut late = primary.standby();
        late.catch_up(&primary);
        late.stop();
        primary.sql("DELETE FROM t WHERE id <= 600");
        let early = primary.standby();
        await_followed(&early);
        back_up(&early, 1);
        copy_images(&early.data().join("pg_nitro"), &late);
        let source = fs::read_to_string(late.data().join("postgresql.auto.conf")).expect("a file");
        let source = source.lines().rfind(|line| line.starts_with("primary_conninfo"));
        let source = source.expect("where the primary is").to_owned();
        late.conf(&format!("nitro.debug_break = {off}\nmax_standby_streaming_delay = -1"));
        late.remove("postgresql.auto.conf");
        late.start();
        let mut old: Session = late.session();
        old.sql("BEGIN ISOLATION LEVEL REPEATABLE READ");
        assert_eq!(old.value(OF_ONE_KEY), "120");
        late.conf(&source);
        late.reload();
        late.catch_up(&primary);
        old.sql("SET LOCAL enable_seqscan = off");
        Behind { standby: late, old, _primary: primary }
    }
}

#[test]
fn older_snapshots_do_not_read_the_image() {
    let Behind { standby, old, .. } = &mut Behind::start("none");
    standby.wait_until("SELECT state = 'building' FROM pg_stat_nitro_indexes");
    // Time enough to load it.
    sleep(Duration::from_secs(2));
    assert_eq!(old.value(OF_ONE_KEY), "120");
    assert_eq!(standby.value("SELECT state FROM pg_stat_nitro_indexes"), "building");
    old.sql("COMMIT");
    await_followed(standby);
    assert_eq!(origins(standby), (1, 0));
    old.sql("SET enable_seqscan = off");
    assert_eq!(old.value(OF_ONE_KEY), "108");
}

/// If the older snapshot goes on, the index is built from the table, which has its rows.
#[test]
fn an_older_snapshot_that_goes_on_is_no_obstacle() {
    let Behind { standby, old, .. } = &mut Behind::start("none");
    await_followed(standby);
    assert_eq!(origins(standby), (0, 1));
    assert!(uses_index(old, OF_ONE_KEY));
    assert_eq!(old.value(OF_ONE_KEY), "120");
    old.sql("COMMIT; SET enable_seqscan = off");
    assert_eq!(old.value(OF_ONE_KEY), "108");
}

/// Why that has to be so.
#[test]
fn an_older_snapshot_would_miss_rows() {
    let Behind { standby, old, .. } = &mut Behind::start("standby_snapshots");
    await_followed(standby);
    assert_eq!(old.value(OF_ONE_KEY), "108");
}

/// Another transaction imports the older snapshot later, and goes on when the first one has ended.
#[test]
fn imported_snapshots_do_not_read_the_image() {
    let Behind { standby, old, .. } = &mut Behind::start("none");
    let mut young = standby.session();
    let snapshot = old.value("SELECT pg_export_snapshot()");
    standby.wait_until("SELECT state = 'building' FROM pg_stat_nitro_indexes");
    // Time enough to load it.
    sleep(Duration::from_secs(2));
    young.sql(&format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{snapshot}'"
    ));
    assert_eq!(young.value(OF_ONE_KEY), "120");
    old.sql("COMMIT");
    sleep(Duration::from_secs(2));
    young.sql("SET LOCAL enable_seqscan = off");
    assert_eq!(young.value(OF_ONE_KEY), "120");
    assert_eq!(standby.value("SELECT state FROM pg_stat_nitro_indexes"), "building");
    young.sql("COMMIT");
    await_followed(standby);
    assert_eq!(origins(standby), (1, 0));
}

/// After a promotion the images of the standby are not used.
#[test]
fn a_promoted_server_does_without() {
    // Its images would be right after a promotion.
    let primary = primary().conf("nitro.backup = off").start();
    primary.sql(TABLE);
    let mut standby = primary.standby();
    standby.conf("nitro.backup = on");
    standby.reload();
    await_followed(&standby);
    back_up(&standby, 4);
    let aside = standby.data().with_file_name("images");
    assert!(
        Command::new("cp")
            .arg("-a")
            .arg(standby.data().join("pg_nitro"))
            .arg(&aside)
            .status()
            .is_ok()
    );
    standby.promote();
    standby.sql("UPDATE t SET k = k + 1 WHERE id % 5 = 0");
    standby.crash();
    copy_images(&aside, &standby);
    standby.start();
    let mut session = standby.session();
    session.sql(
        "SELECT nitro_verify(indexrelid::regclass) FROM pg_index WHERE indrelid = 't'::regclass",
    );
    assert_eq!(origins(&standby), (0, 4));
    assert!(standby.log().contains("it was made while this server was a standby"));
    let mut random = Random::new(seed());
    for _ in 0..30 {
        compare(&mut session, &random_condition(&mut random));
    }
}

/// A primary's images, which come with its base backup, are removed: they prove nothing here.
/// Images of indexes that are gone are removed, too.
#[test]
fn images_that_serve_no_index_are_removed() {
    let primary = primary().start();
    primary.sql(
        "CREATE TABLE t (id int, k text);
        INSERT INTO t SELECT i, repeat(md5(i::text), 4) FROM generate_series(1, 3000) i;
                 CREATE INDEX t_k ON t USING nitro (k); CREATE INDEX t_id ON t USING nitro (id)",
    );
    back_up(&primary, 2);
    let standby = primary.standby();
    await_followed(&standby);
    assert_eq!(origins(&standby), (0, 2));
    back_up(&standby, 2);
    let before = files_of_images(&standby);
    primary.sql("DROP INDEX t_k; CREATE INDEX t_new ON t USING nitro (id, k)");
    standby.catch_up(&primary);
    standby.wait_until(
        "SELECT count(*) = 2 AND bool_and(image_time IS NOT NULL) FROM pg_stat_nitro_indexes",
    );
    let known = || standby.value("SELECT count(*) FROM pg_stat_nitro_indexes");
    assert_eq!(known(), "2");
    for _ in 0..100 {
        if files_of_images(&standby) <= before {
            return;
        }
        sleep(Duration::from_millis(200));
    }
    panic!("{} files, before {before}", files_of_images(&standby));
}

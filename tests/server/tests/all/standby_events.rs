//! Indexes of a standby beside other events: locks that replay waits for, DDL on the primary,
//! little memory, code of indexes that runs queries, and the end of the follower.

use std::time::{Duration, Instant};

use nitro_server_tests::{Server, Session};

use crate::promotion::signal;
use crate::standbys::{await_followed, primary, uses_index};

/// Time limit for immediate actions of replay and of the follower.
const SOON: Duration = Duration::from_secs(10);

/// A primary with a table and an index, and a standby that follows it.
fn pair() -> (Server, Server) {
    let primary = primary().start();
    primary.sql(
        "CREATE TABLE t (id int, k int);
         INSERT INTO t SELECT i, i % 50 FROM generate_series(1, 5000) i;
         CREATE INDEX t_k ON t USING nitro (k)",
    );
    let standby = primary.standby();
    for line in [
        "max_standby_streaming_delay = -1",
        "deadlock_timeout = '300ms'",
        "nitro.follow_timeout = '60s'",
    ] {
        standby.conf(line);
    }
    standby.reload();
    await_followed(&standby);
    (primary, standby)
}

/// The rows of a condition by an index and by the table.
fn both(session: &mut Session, condition: &str) -> (String, String) {
    let query = format!("SELECT count(*) FROM t WHERE {condition}");
    session.sql("SET enable_seqscan = off");
    let by_index = session.value(&query);
    session.sql("RESET enable_seqscan; SET enable_indexscan = off; SET enable_bitmapscan = off");
    let by_table = session.value(&query);
    session.sql("RESET ALL");
    (by_index, by_table)
}

#[track_caller]
fn same(standby: &Server, condition: &str) {
    let (by_index, by_table) = both(&mut standby.session(), condition);
    assert_eq!(by_index, by_table, "{condition}");
}

#[test]
fn a_scan_that_holds_replay_up_ends() {
    let (primary, standby) = pair();
    let mut reader = standby.session();
    let mut tries = 0;
    loop {
        reader.sql("BEGIN; SET LOCAL enable_seqscan = off; SELECT count(*) FROM t WHERE k = 1");
        // Replay inserts a row and waits for the reader's lock, both before the follower looks.
        let insert = format!("INSERT INTO t VALUES ({}, 1)", 10_000 + tries);
        primary.sql(&format!("BEGIN; {insert}; ALTER TABLE t ADD c{tries} int; COMMIT"));
        standby.wait_until(
            "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'",
        );
        let got = reader.try_sql("SELECT count(*) FROM t WHERE k = 1");
        reader.sql("ROLLBACK");
        tries += 1;
        match got {
            Err(error) => {
                assert_eq!(error.code, "40001", "{error}");
                break;
            }
            Ok(_) => assert!(tries < 30, "the follower was quicker every time"),
        }
    }
    standby.catch_up(&primary);
    same(&standby, "k = 1");
    let mut session = standby.session();
    assert!(uses_index(&mut session, "SELECT * FROM t WHERE k = 1"));
}

/// The follower reads a block once for all indexes of a table. One that cannot go on leaves the
/// others alone.
#[test]
fn indexes_of_a_table_go_apart() {
    let (primary, standby) = pair();
    primary.sql(
        "CREATE FUNCTION only_primary(k int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
             BEGIN
                 IF k = 77 AND pg_is_in_recovery() THEN RAISE EXCEPTION 'not here'; END IF;
                 RETURN k;
             END $$;
         CREATE INDEX t_id ON t USING nitro (id);
         CREATE INDEX t_f ON t USING nitro (only_primary(k));
         CREATE INDEX t_fails ON t USING nitro (only_primary(k - 1));
         CREATE INDEX t_both ON t USING nitro (k, id)",
    );
    standby.catch_up(&primary);
    standby.wait_until(
        "SELECT count(*) = 5 AND bool_and(state = 'following') FROM pg_stat_nitro_indexes",
    );
    // In one step of the follower replay holds the lock of one index, and another one cannot take a
    // row of the last block.
    let pid = standby
        .session()
        .value("SELECT pid FROM pg_stat_activity WHERE backend_type = 'nitro follower'");
    signal("STOP", &pid);
    let mut writer = primary.session();
    writer.sql(
        "BEGIN; ALTER INDEX t_f SET TABLESPACE pg_default;
         INSERT INTO t VALUES (9001, 1); UPDATE t SET k = 51 WHERE id = 9;
         INSERT INTO t SELECT i, 60 + i / 10000 * 18 FROM generate_series(9500, 10000) i",
    );
    standby.catch_up(&primary);
    standby.wait_until("SELECT count(*) > 0 FROM pg_locks WHERE mode = 'AccessExclusiveLock'");
    let replayed = standby.session().value("SELECT pg_last_wal_replay_lsn()");
    signal("CONT", &pid);
    standby.wait_until(&format!(
        "SELECT count(*) = 3 AND bool_and(indexrelname NOT IN ('t_f', 't_fails'))
         FROM pg_stat_nitro_indexes WHERE reflects_lsn >= '{replayed}'"
    ));
    writer.sql("COMMIT");
    standby.catch_up(&primary);
    same(&standby, "only_primary(k) = 60");
    for condition in
        ["id = 9001", "only_primary(k) = 51", "k = 51 AND id = 9", "only_primary(k) = 9"]
    {
        same(&standby, condition);
    }
    // One of them cannot take a row. The others go on.
    primary.sql("INSERT INTO t VALUES (9002, 77), (9003, 52)");
    standby.catch_up(&primary);
    standby.wait_until(
        "SELECT bool_and((state = 'following') = (indexrelname NOT IN ('t_f', 't_fails'))) \
         FROM pg_stat_nitro_indexes",
    );
    assert!(standby.log().contains("\"t_f\" is not kept up to date by this standby: not here"));
    for condition in ["id = 9002", "k = 77", "k = 52 AND id = 9003"] {
        same(&standby, condition);
    }
}

/// The owner of a table loses the right to call a function of one index. The others go on.
#[test]
fn an_index_that_cannot_be_prepared_goes_alone() {
    let (primary, standby) = pair();
    primary.sql(
        "CREATE ROLE alice; ALTER TABLE t OWNER TO alice;
         CREATE FUNCTION positive(int) RETURNS bool IMMUTABLE LANGUAGE plpgsql
             AS 'BEGIN RETURN $1 > 0; END';
         CREATE INDEX t_id ON t USING nitro (id);
         CREATE INDEX t_part ON t USING nitro (k) WHERE positive(k);
         CREATE INDEX t_both ON t USING nitro (k, id)",
    );
    standby.catch_up(&primary);
    standby.wait_until(
        "SELECT count(*) = 4 AND bool_and(state = 'following') FROM pg_stat_nitro_indexes",
    );
    primary.sql("REVOKE EXECUTE ON FUNCTION positive FROM PUBLIC; INSERT INTO t VALUES (9001, 1)");
    standby.catch_up(&primary);
    standby.wait_until(
        "SELECT state <> 'following' FROM pg_stat_nitro_indexes WHERE indexrelname = 't_part'",
    );
    assert!(
        standby.log().contains("\"t_part\" is not kept up to date by this standby: permission")
    );
    for condition in ["id = 9001", "k = 1"] {
        same(&standby, condition);
    }
    let others = "SELECT bool_and(state = 'following')
                  FROM pg_stat_nitro_indexes WHERE indexrelname <> 't_part'";
    assert_eq!(standby.value(others), "t", "{}", standby.log());
}

/// REINDEX gives an index a new file, for which the directory has no place. The others go on.
#[test]
fn an_index_without_a_place_goes_alone() {
    let (primary, standby) = pair();
    primary.sql("CREATE INDEX t_id ON t USING nitro (id)");
    standby.catch_up(&primary);
    standby.wait_until(
        "SELECT count(*) = 2 AND bool_and(state = 'following') FROM pg_stat_nitro_indexes",
    );
    let pid =
        standby.value("SELECT pid FROM pg_stat_activity WHERE backend_type = 'nitro follower'");
    signal("STOP", &pid);
    standby.conf("nitro.max_indexes_per_database = 1");
    standby.conf("nitro.follow_timeout = '20s'");
    standby.reload();
    standby.wait_until("SELECT current_setting('nitro.max_indexes_per_database') = '1'");
    primary.sql("REINDEX INDEX t_k; INSERT INTO t VALUES (9001, 1)");
    standby.catch_up(&primary);
    signal("CONT", &pid);
    same(&standby, "id = 9001");
}

/// Code of an index raises each time an ERROR that may pass. The others go on, also those of other
/// tables.
#[test]
fn an_index_that_is_disturbed_each_time_goes_alone() {
    let (primary, standby) = pair();
    primary.sql(
        "CREATE FUNCTION disturbed(k int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
             BEGIN
                 IF k = 77 AND pg_is_in_recovery() THEN RAISE SQLSTATE '40001'; END IF;
                 IF k = 78 AND pg_is_in_recovery() THEN RAISE SQLSTATE '55P03'; END IF;
                 RETURN k;
             END $$;
         CREATE INDEX t_id ON t USING nitro (id);
         CREATE INDEX t_conflict ON t USING nitro (disturbed(k));
         CREATE INDEX t_lock ON t USING nitro (disturbed(k + 1));
         CREATE TABLE u (id int); INSERT INTO u VALUES (1);
         CREATE INDEX u_id ON u USING nitro (id)",
    );
    standby.catch_up(&primary);
    standby.wait_until(
        "SELECT count(*) = 5 AND bool_and(state = 'following') FROM pg_stat_nitro_indexes",
    );
    standby.conf("nitro.follow_timeout = '20s'");
    standby.reload();
    primary.sql("INSERT INTO t VALUES (9001, 77); INSERT INTO u VALUES (2)");
    standby.catch_up(&primary);
    for condition in ["id = 9001", "k = 77"] {
        same(&standby, condition);
    }
    let mut session = standby.session();
    session.sql("SET enable_seqscan = off");
    assert_eq!(session.value("SELECT count(*) FROM u WHERE id = 2"), "1");
    // When the code raises no ERROR any more, they follow, too.
    for statement in ["DELETE FROM t WHERE k = 77", "VACUUM t", "INSERT INTO t VALUES (9002, 52)"] {
        primary.sql(statement);
    }
    standby.catch_up(&primary);
    same(&standby, "disturbed(k) = 52");
    same(&standby, "disturbed(k + 1) = 53");
}

#[test]
fn ddl_of_the_primary_gives_memory_back() {
    let (primary, standby) = pair();
    for (statement, condition) in [
        ("TRUNCATE t; INSERT INTO t SELECT i, i % 7 FROM generate_series(1, 3000) i", "k = 3"),
        ("REINDEX INDEX t_k", "k = 4"),
        ("VACUUM FULL t", "k = 5"),
        ("ALTER TABLE t ALTER k TYPE bigint", "k = 6"),
        ("REINDEX INDEX CONCURRENTLY t_k", "k = 2"),
        ("UPDATE t SET k = 70 WHERE k = 2", "k = 70"),
    ] {
        primary.sql(statement);
        standby.catch_up(&primary);
        same(&standby, condition);
        // Asked for again and again, as queries do.
        let mut session = standby.session();
        standby.wait_until("SELECT bool_and(state = 'following') FROM pg_stat_nitro_indexes");
        assert!(uses_index(&mut session, &format!("SELECT * FROM t WHERE {condition}")));
        same(&standby, condition);
    }
    // A database with a follower in it goes.
    primary.sql("CREATE DATABASE other");
    primary.session_as("postgres", "other").sql(
        "CREATE EXTENSION nitro; CREATE TABLE t AS SELECT i FROM generate_series(1, 1000) i; \
         CREATE INDEX t_i ON t USING nitro (i)",
    );
    standby.catch_up(&primary);
    {
        let mut session = standby.session_as("postgres", "other");
        nitro_server_tests::wait_until("the other database is followed", || {
            uses_index(&mut session, "SELECT * FROM t WHERE i = 4")
        });
    }
    primary.sql("DROP DATABASE other");
    let begun = Instant::now();
    standby.catch_up(&primary);
    assert!(begun.elapsed() < SOON, "replay waited for the follower of the database");
    // The follower of another database gives its memory back, and that of indexes.
    standby.wait_until("SELECT indexes = 1 FROM nitro_memory");
    primary.sql("DROP INDEX t_k; CREATE INDEX t_id ON t USING nitro (id)");
    standby.catch_up(&primary);
    await_followed(&standby);
    standby.wait_until("SELECT indexes = 1 FROM nitro_memory");
}

#[test]
fn little_memory_gives_the_index_up_on_the_standby_alone() {
    let primary = primary().start();
    primary.sql(
        "CREATE TABLE t (id int, k text);
         INSERT INTO t SELECT i, md5(i::text) || md5((i * 2)::text)
             FROM generate_series(1, 300000) i;
         CREATE INDEX t_k ON t USING nitro (k)",
    );
    let mut standby = primary.standby();
    standby.conf("nitro.max_memory = '16MB'");
    standby.restart();
    standby
        .wait_until("SELECT EXISTS (SELECT FROM pg_stat_nitro_indexes WHERE state <> 'following')");
    let mut session = standby.session();
    nitro_server_tests::wait_until("the index was given up", || {
        standby.log().contains("is not kept up to date by this standby")
    });
    let by = "k = md5(77::text) || md5(154::text)";
    assert!(!uses_index(&mut session, &format!("SELECT * FROM t WHERE {by}")));
    same(&standby, by);
    assert_eq!(primary.value("SELECT state FROM pg_stat_nitro_indexes"), "ready");
    standby.conf("nitro.max_memory = '256MB'");
    standby.restart();
    await_followed(&standby);
    same(&standby, by);
}

#[test]
fn code_of_an_index_may_ask_its_table() {
    let (primary, standby) = pair();
    primary.sql("DELETE FROM t WHERE id > 200");
    primary.sql("VACUUM t");
    primary.sql(
        "CREATE FUNCTION asks(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
             'BEGIN RETURN i + 0 * (SELECT count(*) FROM public.t WHERE k = 1); END';
         CREATE INDEX n_asks ON t USING nitro (asks(k))",
    );
    standby.catch_up(&primary);
    await_followed(&standby);
    let mut session = standby.session();
    for i in 0..20 {
        primary.sql(&format!(
            "INSERT INTO t VALUES ({i}, {i}); UPDATE t SET k = k + 1 WHERE id = {i}"
        ));
        standby.catch_up(&primary);
        let (by_index, by_table) = both(&mut session, &format!("asks(k) = {}", i + 1));
        assert_eq!(by_index, by_table);
    }
    assert!(uses_index(&mut session, "SELECT * FROM t WHERE asks(k) = 3"));
    assert!(!standby.log().contains("is not kept up to date"), "{}", standby.log());
}

#[test]
fn a_follower_that_ends_is_followed_by_another() {
    let (primary, standby) = pair();
    for _ in 0..3 {
        standby.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE backend_type = 'nitro follower'",
        );
        primary.sql("UPDATE t SET k = 60 WHERE id % 50 = 3; UPDATE t SET k = 3 WHERE id % 50 = 4");
        standby.catch_up(&primary);
        // No query waits for a follower that is gone, and each query asks for another one.
        same(&standby, "k = 60");
        let mut session = standby.session();
        nitro_server_tests::wait_until("the index is followed again", || {
            uses_index(&mut session, "SELECT * FROM t WHERE k = 60")
        });
        same(&standby, "k = 3");
    }
}

/// A transaction of the primary locks the table for long, after it has changed it.
#[test]
fn a_follower_sleeps_while_a_lock_is_in_its_way() {
    let (primary, standby) = pair();
    let mut long = primary.session();
    long.sql("BEGIN; LOCK TABLE t; INSERT INTO t VALUES (1, 1)");
    primary.sql("CREATE TABLE other ()");
    standby.catch_up(&primary);
    // The follower has noted the row then.
    std::thread::sleep(Duration::from_millis(300));
    standby.wait_until(
        "SELECT wait_event = 'NitroFollowerMain' OR wait_event = 'Extension' FROM pg_stat_activity \
         WHERE backend_type = 'nitro follower'",
    );
    long.sql("COMMIT");
    standby.catch_up(&primary);
    same(&standby, "k = 1");
}

/// The follower cannot give an index up whose table is locked.
#[test]
fn following_is_switched_off_beside_a_lock() {
    let (primary, standby) = pair();
    let mut reader = standby.session();
    reader.sql("SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan");
    reader.sql("PREPARE q AS SELECT count(*) FROM t WHERE k = 1");
    assert_eq!(reader.value("EXECUTE q"), "100");
    let mut long = primary.session();
    long.sql("BEGIN; LOCK TABLE t");
    primary.sql("CREATE TABLE other ()");
    standby.catch_up(&primary);
    standby.conf("nitro.follow = off");
    standby.reload();
    standby.wait_until(
        "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'nitro follower'",
    );
    long.sql("INSERT INTO t VALUES (1, 1); COMMIT");
    standby.catch_up(&primary);
    assert!(!uses_index(&mut standby.session(), "SELECT * FROM t WHERE k = 1"));
    assert_eq!(reader.value("EXECUTE q"), "101");
    reader.sql("DEALLOCATE q");
    standby.wait_until("SELECT bool_and(state = 'standby') FROM pg_stat_nitro_indexes");
    standby.conf("nitro.follow = on");
    standby.reload();
    nitro_server_tests::wait_until("the index is followed again", || {
        uses_index(&mut standby.session(), "SELECT * FROM t WHERE k = 1")
    });
    same(&standby, "k = 1");
}

/// VACUUM of a TOAST table does not wait for snapshots of other databases. A standby does, so a row
/// without its values is one that snapshots might see.
#[test]
fn a_deleted_row_whose_values_are_gone() {
    let primary = primary().start();
    primary.sql("CREATE DATABASE other");
    primary.sql(
        "CREATE TABLE t (id int, k text);
         ALTER TABLE t ALTER k SET STORAGE EXTERNAL;
         INSERT INTO t SELECT i, repeat(md5(i::text), 100) FROM generate_series(1, 50) i;
         CREATE INDEX t_k ON t USING nitro (md5(k))",
    );
    let mut long = primary.session_as("postgres", "other");
    long.sql("BEGIN; SELECT pg_current_xact_id()");
    primary.sql("DELETE FROM t WHERE id IN (7, 8, 9)");
    let toast = "SELECT reltoastrelid::regclass FROM pg_class WHERE relname = 't'";
    primary.sql(&format!("VACUUM {}", primary.value(toast)));
    let standby = primary.standby();
    await_followed(&standby);
    let condition = |id: u32| format!("md5(k) = md5(repeat(md5('{id}'), 100))");
    let mut session = standby.session();
    for id in 1..=50 {
        let query = format!("SELECT count(*) FROM t WHERE {}", condition(id));
        assert_eq!(session.value(&query), if (7..10).contains(&id) { "0" } else { "1" });
    }
    assert!(!standby.log().contains("is not kept up to date"), "{}", standby.log());
    long.sql("COMMIT");
}

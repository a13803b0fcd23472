//! The views of a standby's follower, and waits for WAL.

use std::process::Command;
use std::time::{Duration, Instant};

use nitro_server_tests::Server;

use crate::standbys::{await_followed, primary};

fn signal(name: &str, pid: &str) {
    let done = Command::new("kill").args(["-s", name, pid]).status();
    assert!(done.is_ok_and(|status| status.success()), "kill -s {name} {pid}");
}

/// A primary with a table and an index, and a standby that follows it.
fn pair() -> (Server, Server) {
    let primary = primary().start();
    primary.sql(
        "CREATE ROLE carl LOGIN; CREATE ROLE watcher LOGIN IN ROLE pg_monitor;
         CREATE TABLE t (id int, k int);
         INSERT INTO t SELECT i, i % 50 FROM generate_series(1, 5000) i;
         CREATE INDEX t_k ON t USING nitro (k)",
    );
    let standby = primary.standby();
    standby.conf("max_standby_streaming_delay = -1");
    standby.reload();
    await_followed(&standby);
    (primary, standby)
}

/// The position behind all that was committed.
fn position(primary: &Server) -> String {
    primary.value("SELECT pg_current_wal_insert_lsn()")
}

#[test]
fn a_view_says_how_far_the_follower_has_come() {
    let (primary, standby) = pair();
    assert_eq!(primary.value("SELECT count(*) FROM pg_stat_nitro_followers"), "0");
    primary.sql("UPDATE t SET k = 60 WHERE k = 7; DELETE FROM t WHERE k = 8");
    primary.sql("VACUUM t");
    standby.catch_up(&primary);
    standby.wait_until(
        "SELECT lag_bytes = 0 AND lag_ms = 0 AND reflects_lsn <= decoded_lsn AND records > 300
                AND rows >= 100 AND blocks > 20 AND removed >= 200
                AND pid IN (SELECT pid FROM pg_stat_activity WHERE backend_type = 'nitro follower')
         FROM pg_stat_nitro_followers WHERE datname = current_database()",
    );
    standby.wait_until(
        "SELECT reflects_lsn = pg_last_wal_replay_lsn() AND reverse_bytes > 0
         FROM pg_stat_nitro_indexes WHERE indexrelname = 't_k'",
    );
    // A follower that does not go on.
    let pid = standby.value("SELECT pid FROM pg_stat_nitro_followers");
    signal("STOP", &pid);
    primary.sql("INSERT INTO t SELECT i, 61 FROM generate_series(1, 2000) i");
    standby.catch_up(&primary);
    let mut session = standby.session();
    session.sql("SET enable_seqscan = off; SET nitro.follow_timeout = 300");
    assert_eq!(session.error("SELECT count(*) FROM t WHERE k = 61").code, "55000");
    let behind = "SELECT lag_bytes > 100000 AND lag_ms >= 300 AND waits = 1 AND waited_ms >= 300
                  FROM pg_stat_nitro_followers";
    assert_eq!(standby.value(behind), "t");
    signal("CONT", &pid);
    session.sql("RESET nitro.follow_timeout");
    assert_eq!(session.value("SELECT count(*) FROM t WHERE k = 61"), "2000");
    // A lock that recovery holds.
    let mut locker = primary.session();
    locker.sql("BEGIN; INSERT INTO t VALUES (1, 62); LOCK TABLE t IN ACCESS EXCLUSIVE MODE");
    primary.sql("CREATE TABLE other ()");
    standby.catch_up(&primary);
    standby.wait_until("SELECT refused_locks > 0 AND lag_bytes > 0 FROM pg_stat_nitro_followers");
    locker.sql("COMMIT");
    standby.catch_up(&primary);
    standby.wait_until("SELECT lag_bytes = 0 FROM pg_stat_nitro_followers");
    standby.sql("SELECT nitro_stat_reset()");
    standby.wait_until(
        "SELECT waits = 0 AND refused_locks = 0 AND stats_reset > now() - interval '1 minute'
         FROM pg_stat_nitro_followers",
    );
    // Of other databases, members of pg_monitor alone know.
    primary.sql("CREATE DATABASE other");
    primary.session_as("postgres", "other").sql(
        "CREATE EXTENSION nitro; CREATE TABLE u (i int); CREATE INDEX u_i ON u USING nitro (i)",
    );
    standby.catch_up(&primary);
    standby.session_as("postgres", "other").sql("SELECT nitro_ready()");
    standby.wait_until("SELECT count(pid) = 2 FROM pg_stat_nitro_followers");
    for (role, rows) in [("carl", "1"), ("watcher", "2")] {
        let count = "SELECT count(*) FROM pg_stat_nitro_followers";
        assert_eq!(standby.session_as(role, "postgres").value(count), rows, "{role}");
    }
}

#[test]
fn a_client_waits_for_what_it_has_written() {
    let (primary, standby) = pair();
    let mut session = standby.session_as("carl", "postgres");
    primary.sql("GRANT SELECT ON t TO carl");
    standby.catch_up(&primary);
    // On a primary all that is written is there.
    primary.sql(&format!("CALL nitro_wait_for('{}')", position(&primary)));
    assert_eq!(primary.session().error("CALL nitro_wait_for('FFFF/0')").code, "55000");
    // Recovery stands still: the time ends, a cancel ends it, and it goes on.
    standby.sql("SELECT pg_wal_replay_pause()");
    primary.sql("INSERT INTO t VALUES (5001, 70)");
    let target = position(&primary);
    let begun = Instant::now();
    let error = session.error(&format!("CALL nitro_wait_for('{target}', '200ms')"));
    assert_eq!(error.code, "57014", "{error}");
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert_eq!(session.error(&format!("CALL nitro_wait_for('{target}', '0')")).code, "57014");
    session.sql("SET statement_timeout = '100ms'");
    let error = session.error(&format!("CALL nitro_wait_for('{target}')"));
    assert!(error.message.contains("statement timeout"), "{error}");
    session.sql("RESET statement_timeout; SET enable_seqscan = off");
    let pid = session.pid();
    let waiter = session.begin(&format!("CALL nitro_wait_for('{target}', '1 minute')"));
    standby.wait_until(&format!(
        "SELECT wait_event IN ('NitroReplay', 'Extension') AND backend_xmin IS NULL \
         FROM pg_stat_activity WHERE pid = {pid}"
    ));
    assert!(!waiter.is_done());
    standby.sql("SELECT pg_wal_replay_resume()");
    let (mut session, done) = waiter.finish();
    done.expect("the position is replayed");
    assert_eq!(session.value("SELECT count(*) FROM t WHERE k = 70"), "1");
    // Replay waits for snapshots: rows that a waiter's snapshot saw are removed.
    standby.sql("SELECT pg_wal_replay_pause()");
    primary.sql("DELETE FROM t WHERE k = 70");
    primary.sql("VACUUM t");
    let waiter = session.begin(&format!("CALL nitro_wait_for('{}')", position(&primary)));
    standby.sql("SELECT pg_wal_replay_resume()");
    let (mut session, done) = waiter.finish();
    done.expect("replay does not wait for it");
    assert_eq!(session.value("SELECT count(*) FROM t WHERE k = 70"), "0");
    refusals(&mut session, &target);
    // A promotion ends it.
    let waiter = session.begin("CALL nitro_wait_for('FFFF/0')");
    standby.wait_until(&format!("SELECT state = 'active' FROM pg_stat_activity WHERE pid = {pid}"));
    standby.promote();
    let (mut session, done) = waiter.finish();
    assert_eq!(done.expect_err("it is never replayed").code, "55000");
    session.sql(&format!("CALL nitro_wait_for('{target}')"));
}

#[test]
fn a_scan_that_is_not_bounded_gives_no_wrong_row() {
    let (primary, standby) = pair();
    primary.sql(
        "CREATE TABLE u AS SELECT i AS id, i % 50 AS k, ARRAY[i % 50] AS tags
             FROM generate_series(1, 5000) i;
         CREATE INDEX u_k ON u USING nitro (k); CREATE INDEX u_tags ON u USING nitro (tags)",
    );
    primary.sql("VACUUM u");
    standby.catch_up(&primary);
    standby.wait_until("SELECT count(*) = 3 FROM pg_stat_nitro_indexes WHERE state = 'following'");
    let pid = standby.value("SELECT pid FROM pg_stat_nitro_followers");
    signal("STOP", &pid);
    // Rows of other keys take the places of rows that are gone, and the end of the table is cut
    // off.
    primary.sql("DELETE FROM u WHERE ctid > '(30,0)' OR k IN (1, 9)");
    primary.sql("VACUUM u");
    primary.sql("INSERT INTO u SELECT i, 99, '{99}' FROM generate_series(1, 60) i");
    assert_eq!(primary.value("SELECT k FROM u WHERE ctid = '(0,1)'"), "99");
    standby.catch_up(&primary);
    let mut session = standby.session();
    session.sql("SET enable_seqscan = off; SET nitro.follow_timeout = 200");
    assert_eq!(session.error("SELECT count(*) FROM u WHERE k = 3").code, "55000");
    session.sql("SET nitro.scan_consistency = not_bounded; SET enable_bitmapscan = off");
    let plan = format!("{:?}", session.sql("EXPLAIN SELECT * FROM u WHERE k = 3 ORDER BY k"));
    assert!(plan.contains("Seq Scan") || plan.contains("Bitmap"), "{plan}");
    session.sql("RESET enable_bitmapscan");
    for column in ["k = ", "tags @> ARRAY["] {
        let by = |k: &str| {
            let end = if column.ends_with('[') { "]" } else { "" };
            format!("FROM u WHERE {column}{k}{end}")
        };
        // Its row is there, and was there before.
        let (there, missing) = (by("3"), by("99"));
        let wanted = primary.value(&format!("SELECT count(*) {there}"));
        assert_eq!(session.value(&format!("SELECT count(*) {there}")), wanted);
        assert_eq!(session.value(&format!("SELECT count(*) {missing}")), "0");
        assert_eq!(session.value(&format!("SELECT count(*) {}", by("1"))), "0");
        // Entries behind the end of the table are not looked up.
        let plan =
            session.sql(&format!("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) SELECT {}", by("3")));
        let plan = plan.into_iter().flatten().flatten().collect::<Vec<_>>().join("\n");
        let scan = plan.split("Bitmap Index Scan").nth(1).unwrap_or_else(|| panic!("{plan}"));
        let found = scan.split("rows=").nth(1).and_then(|rest| rest.split(['.', ' ']).next());
        let before = primary.value(&format!("SELECT count(*) {}", by("3")));
        assert_eq!(found, Some(before.as_str()), "{plan}");
    }
    // Another session waits, and may not do so.
    let mut carl = standby.session_as("carl", "postgres");
    assert_eq!(carl.error("SET nitro.scan_consistency = not_bounded").code, "42501");
    signal("CONT", &pid);
    session.sql("RESET nitro.scan_consistency; RESET nitro.follow_timeout");
    assert_eq!(session.value("SELECT count(*) FROM u WHERE k = 99"), "60");
}

/// Where a snapshot is, or may be, it is refused, and the session goes on.
fn refusals(session: &mut nitro_server_tests::Session, target: &str) {
    let call = format!("CALL nitro_wait_for('{target}')");
    for before in ["BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1"] {
        assert_eq!(session.error(&format!("{before}; {call}")).code, "55000", "{before}");
        session.sql("ROLLBACK");
    }
    for block in [
        format!("DO $$ BEGIN {call}; END $$"),
        format!("DO $$ BEGIN {call}; EXCEPTION WHEN sqlstate '57014' THEN END $$"),
        format!("BEGIN; DO $$ BEGIN {call}; END $$"),
    ] {
        assert_eq!(session.error(&block).code, "55000", "{block}");
        session.sql("ROLLBACK");
    }
    // Code that catches the ERROR goes on with its snapshot.
    let caught = format!(
        "DO $$ DECLARE n int; BEGIN BEGIN {call}; EXCEPTION WHEN OTHERS THEN END;
           SELECT count(*) INTO n FROM t; ASSERT n > 0; END $$"
    );
    session.sql(&caught);
    session.sql(&format!("BEGIN; {caught}; SELECT count(*) FROM t; COMMIT"));
    session.sql("SET default_transaction_isolation = 'repeatable read'");
    assert_eq!(session.error(&call).code, "55000");
    session.sql("RESET default_transaction_isolation");
    assert_eq!(session.error("CALL nitro_wait_for(NULL)").code, "22004");
    assert_eq!(session.error(&format!("CALL nitro_wait_for('{target}', '-1s')")).code, "22003");
    session.sql(&format!("CALL nitro_wait_for('{target}', '100 years')"));
}

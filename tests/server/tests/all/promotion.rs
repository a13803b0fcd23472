//! Promotion: indexes that a standby followed are taken over, right from the first statement on.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use nitro_server_tests::{Random, Server, Session, seed, wait_until};

use crate::standbys::{TABLE, await_followed, change, compare, primary, random_condition};

pub fn signal(name: &str, pid: &str) {
    let done = Command::new("kill").args(["-s", name, pid]).status();
    assert!(done.is_ok_and(|status| status.success()), "kill -s {name} {pid}");
}

/// Stops the process that follows the database, and gives its PID.
pub fn stop_follower(standby: &Server) -> String {
    let pid = standby
        .value("SELECT pid FROM pg_stat_activity WHERE backend_type = 'nitro follower' LIMIT 1");
    signal("STOP", &pid);
    pid
}

fn await_ready(server: &Server) {
    server.wait_until("SELECT bool_and(state = 'ready') FROM pg_stat_nitro_indexes");
}

/// Every index has what its table has.
pub fn verify(server: &Server) {
    server.sql(
        "SELECT nitro_verify(indexrelid, true) FROM pg_stat_nitro_indexes ORDER BY indexrelid",
    );
}

#[test]
fn a_promoted_standby_has_its_indexes() {
    let primary = primary().start();
    primary.sql(TABLE);
    let standby = primary.standby();
    await_followed(&standby);
    let mut old = standby.session();
    old.sql(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL enable_seqscan = off;
         DECLARE c CURSOR FOR SELECT id FROM t WHERE k BETWEEN 3 AND 20",
    );
    old.sql("FETCH 5 FROM c");
    standby.promote();
    standby.sql("UPDATE t SET k = 60 WHERE k = 7; DELETE FROM t WHERE k = 9");
    standby.sql("VACUUM t");
    await_ready(&standby);
    let mut session = standby.session();
    for condition in ["k = 60", "k = 7", "k = 9", "v = 'v9'", "tags @> '{4}'"] {
        compare(&mut session, condition);
    }
    assert_eq!(old.sql("FETCH ALL FROM c").len(), 18 * 120 - 5);
    old.sql("COMMIT");
    verify(&standby);
    let log = standby.log();
    assert_eq!(log.matches("has caught up with its table").count(), 4, "{log}");
    assert!(!log.contains("rebuilt from its table"), "{log}");
}

/// A row is deleted and its line pointer freed after a promotion. The line pointer gets another row
/// when the builder that takes the index over has read the WAL, and has not looked at the block.
/// Returns how many rows the index finds by the key that was deleted.
fn reused_beside_takeover(broken: &str) -> String {
    // Without images no builder comes before it is asked for.
    let primary = primary().conf("nitro.backup = off").start();
    primary.sql(
        "CREATE TABLE t (id int, k int);
         INSERT INTO t SELECT i, i FROM generate_series(1, 100) i;
         CREATE INDEX t_k ON t USING nitro (k)",
    );
    let standby = primary.standby();
    await_followed(&standby);
    let follower = stop_follower(&standby);
    standby.promote();
    standby.conf(&format!("nitro.debug_break = {broken}\nnitro.debug_stop = 'TakeOverRead'"));
    standby.reload();
    let mut writer = standby.session();
    writer.sql("SET nitro.enable_scan = off");
    writer.sql("DELETE FROM t WHERE id = 3");
    writer.sql("VACUUM (INDEX_CLEANUP on) t");
    // The builder is among the next processes that begin.
    let mut gate = standby.stop_next();
    let query = "SELECT count(*) FROM t WHERE k = 3";
    assert_eq!(standby.value(query), "0");
    gate.await_stopped();
    assert_eq!(writer.value("INSERT INTO t VALUES (1000, 777) RETURNING ctid"), "(0,3)");
    gate.open();
    await_ready(&standby);
    signal("CONT", &follower);
    let mut session = standby.session();
    session.sql("SET enable_seqscan = off; SET enable_bitmapscan = off");
    assert_eq!(session.value("SELECT count(*) FROM t WHERE k = 777"), "1", "{broken}");
    session.value("SELECT id FROM t WHERE k = 3 UNION ALL SELECT 0 ORDER BY 1 DESC LIMIT 1")
}

#[test]
fn a_line_pointer_that_is_used_again_beside_the_takeover() {
    assert_eq!(reused_beside_takeover("none"), "0");
    // Planted: the row is found by the key of the one before it.
    assert_eq!(reused_beside_takeover("follow_once"), "1000");
    assert_eq!(reused_beside_takeover("follow_takeover"), "1000");
}

#[test]
fn records_that_are_gone_mean_a_new_build() {
    let primary = primary().conf("min_wal_size = '32MB'").start();
    primary.sql(TABLE);
    let standby = primary.standby();
    standby.conf("wal_keep_size = 0");
    standby.reload();
    await_followed(&standby);
    let follower = stop_follower(&standby);
    standby.promote();
    let mut session = standby.session();
    session.sql("SET nitro.enable_scan = off");
    session.sql("UPDATE t SET k = 60 WHERE k = 7; DELETE FROM t WHERE k = 9");
    session.sql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots");
    for _ in 0..3 {
        session.sql("SELECT pg_switch_wal()");
        session.sql("CHECKPOINT");
    }
    session.sql("RESET nitro.enable_scan");
    // Each query asks for what is not ready.
    wait_until("all indexes are ready", || {
        for condition in ["k = 60", "k = 9", "v = 'v9'", "tags @> '{4}'"] {
            compare(&mut session, condition);
        }
        session.value(
            "SELECT bool_and(state = 'ready') FROM pg_stat_nitro_indexes \
             WHERE indexrelname <> 't_k_third'",
        ) == "t"
    });
    signal("CONT", &follower);
    verify(&standby);
}

/// Stops the writers also where a comparison fails, so that the test ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Compares the answers to some random conditions.
fn compare_some(session: &mut Session, random: &mut Random, n: u32) {
    for _ in 0..n {
        compare(session, &random_condition(random));
    }
}

#[test]
fn switchovers_under_load() {
    let seed = seed();
    let rounds = if std::env::var_os("LONG").is_some() { 20 } else { 3 };
    let mut server = primary().start();
    server.sql(TABLE);
    let mut random = Random::new(seed);
    for round in 0..rounds {
        let standby = server.standby();
        await_followed(&standby);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (old, stop) = (&server, &stop);
            let stopping = Stop(stop);
            let writer = scope.spawn(move || change(old, seed + round, stop));
            std::thread::sleep(Duration::from_millis(1500 + random.below(1000)));
            // The old primary goes on for a while: its last changes are not the new one's.
            standby.promote();
            // Transactions that were prepared when the old primary was left would hold their rows
            // for ever.
            for name in standby.sql("SELECT gid FROM pg_prepared_xacts").iter().flatten().flatten()
            {
                standby.sql(&format!("ROLLBACK PREPARED '{name}'"));
            }
            let new = &standby;
            let new_writers: Vec<_> = (0..2)
                .map(|i| scope.spawn(move || change(new, seed + 100 + round * 2 + i, stop)))
                .collect();
            let mut session = standby.session();
            compare_some(&mut session, &mut random, 10);
            drop(stopping);
            writer.join().expect("the writer of the old primary goes on");
            for writer in new_writers {
                writer.join().expect("a writer of the new primary goes on");
            }
            compare_some(&mut session, &mut random, 10);
        });
        await_ready(&standby);
        verify(&standby);
        let log = standby.log();
        assert!(!log.contains("rebuilt from its table"), "round {round}: {log}");
        server = standby;
    }
}

/// A takeover that fails leaves the index to scans that began in recovery. The index fails as any
/// other one does, and can be built again.
#[test]
fn a_takeover_that_fails() {
    // Without images no worker is sent for it.
    let primary = primary().conf("nitro.backup = off").start();
    primary.sql(
        "CREATE TABLE t (id int, k int) WITH (fillfactor = 50);
         INSERT INTO t SELECT i, i FROM generate_series(1, 1000) i;
         CREATE FUNCTION same(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql
             AS 'BEGIN RETURN i; END';
         CREATE INDEX t_same ON t USING nitro (same(k))",
    );
    let standby = primary.standby();
    await_followed(&standby);
    let mut old = standby.session();
    old.sql(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL enable_seqscan = off;
         SET LOCAL enable_bitmapscan = off;
         DECLARE c CURSOR FOR SELECT k FROM t WHERE same(k) BETWEEN 1 AND 900",
    );
    old.sql("FETCH 1 FROM c");
    let follower = stop_follower(&standby);
    standby.promote();
    let mut writer = standby.session();
    writer.sql("SET nitro.enable_scan = off; UPDATE t SET id = -id WHERE k = 5");
    writer.sql(
        "CREATE OR REPLACE FUNCTION same(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
             'BEGIN IF i = 5 THEN RAISE ''not this one''; END IF; RETURN i; END'",
    );
    let states = "SELECT string_agg(state, ' ') FROM pg_stat_nitro_indexes";
    let mut session = standby.session();
    // While a scan reads it, no process builds it.
    wait_until("the index was given up", || {
        session.sql("SELECT FROM t WHERE same(k) = 7 AND k > 5");
        session.value(states) == "unbuilt"
    });
    assert_eq!(old.sql("FETCH ALL FROM c").len(), 899);
    old.sql("COMMIT");
    wait_until("the index has failed", || {
        session.sql("SELECT FROM t WHERE same(k) = 7 AND k > 5");
        session.value(states) == "failed"
    });
    writer.sql("DELETE FROM t WHERE k = 5");
    writer.sql("REINDEX INDEX t_same");
    assert_eq!(session.value(states), "ready");
    assert_eq!(session.value("SELECT count(*) FROM t WHERE same(k) BETWEEN 1 AND 10"), "9");
    signal("CONT", &follower);
    verify(&standby);
}

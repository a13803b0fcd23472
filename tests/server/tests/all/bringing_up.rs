//! How indexes come back after a crash: which of them a plan waits for, in which order builders
//! take them, and how often their table is read.

use nitro_server_tests::{Builder, Server, Session};

/// A server whose plans wait for an hour, so that a wait that should not be never ends.
fn patient() -> Builder {
    Server::new().conf("nitro.max_loading_wait = '1h'").conf("max_worker_processes = 16")
}

/// A function for expressions of indexes that stops a process at the row with this value, while the
/// gate is shut.
const GATE: &str = "CREATE FUNCTION gate(i int, at int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS \
    'BEGIN IF i = at THEN PERFORM pg_advisory_xact_lock_shared(1); END IF; RETURN i; END'";

/// Shuts the gate by something that outlives a crash.
fn shut(server: &Server) {
    server.sql("BEGIN; SELECT pg_advisory_xact_lock(1); PREPARE TRANSACTION 'gate'");
}

fn open(server: &Server) {
    server.sql("ROLLBACK PREPARED 'gate'");
}

fn at_gate(server: &Server) {
    server.wait_until(
        "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted",
    );
}

fn state(server: &Server, index: &str) -> String {
    server.value(&format!(
        "SELECT coalesce((SELECT state FROM pg_stat_nitro_indexes \
                          WHERE indexrelid = '{index}'::regclass), 'unbuilt')"
    ))
}

fn all_ready(server: &Server, number: usize) {
    server.wait_until(&format!(
        "SELECT count(*) = {number} FROM pg_stat_nitro_indexes WHERE state = 'ready'"
    ));
}

fn plan(session: &mut Session, query: &str) -> String {
    let rows = session.sql(&format!("SET enable_seqscan = off; EXPLAIN {query}"));
    rows.into_iter().flatten().flatten().collect::<Vec<_>>().join("\n")
}

/// The lines of the log that say that an index has come up, as (process, index), in their order.
fn came_up(server: &Server) -> Vec<(String, String)> {
    let log = server.log();
    let lines = log.lines().filter(|line| {
        line.contains("rebuilt from its table") || line.contains("loaded from its image")
    });
    lines
        .map(|line| {
            let process = line.split(['[', ']']).nth(1).unwrap_or_default();
            let index = line.split('"').nth(1).unwrap_or_default();
            (process.to_owned(), index.to_owned())
        })
        .collect()
}

fn indexes(server: &Server) -> Vec<String> {
    came_up(server).into_iter().map(|(_, index)| index).collect()
}

/// A table whose index `t_gated` has an image, and whose builder stops at a row that came after it:
/// `t_gated` is catching up. `t_other` is ready.
fn stopped_while_it_catches_up() -> Server {
    let mut server = patient().start();
    server.sql(GATE);
    server.sql("CREATE TABLE t (id int, a int, b int)");
    server.sql("INSERT INTO t SELECT i, i, i % 10 FROM generate_series(1, 5000) i");
    server.sql("CREATE INDEX t_other ON t USING nitro (a)");
    server.sql("CREATE INDEX t_gated ON t USING nitro (gate(id, 6000)) WHERE b < 9");
    server.sql("ANALYZE t");
    server.sql("SELECT nitro_backup()");
    insert_after_images(&server, "INSERT INTO t VALUES (6000, 6000, 1)");
    shut(&server);
    server.crash();
    server.start();
    at_gate(&server);
    server.sql("SELECT nitro_verify('t_other')");
    assert_eq!(state(&server, "t_gated"), "catching up");
    server
}

/// Runs a statement that no image has: images are off from before it until the next start.
fn insert_after_images(server: &Server, statement: &str) {
    server.sql("ALTER SYSTEM SET nitro.backup = off");
    server.reload();
    // Each wait has a session of its own, which begins as each new builder: without images.
    server.wait_until("SELECT NOT current_setting('nitro.backup')::bool");
    server.wait_until(
        "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'nitro builder'",
    );
    server.sql(statement);
    server.sql("ALTER SYSTEM RESET nitro.backup");
}

#[test]
fn plans_wait_for_what_they_can_use() {
    let server = stopped_while_it_catches_up();
    let mut session = server.session();
    // None of these ends if it waits.
    for query in [
        "SELECT * FROM t WHERE a = 5",
        "SELECT * FROM t ORDER BY a LIMIT 5",
        "SELECT count(*) FROM t",
        "SELECT id, b FROM t",
        "SELECT * FROM t x JOIN t y ON x.a = y.a WHERE x.a < 9",
    ] {
        assert!(!plan(&mut session, query).contains("t_gated"), "{query}");
    }
    // Each of these waits: for its condition, its join, its order, its groups, the predicate of the
    // index, or a condition on a subquery.
    for query in [
        "SELECT * FROM t WHERE gate(id, 6000) = 5 AND b < 9",
        "SELECT * FROM t x JOIN t y ON gate(x.id, 6000) = y.a WHERE x.b < 3",
        "SELECT * FROM t WHERE b < 9 ORDER BY gate(id, 6000) LIMIT 5",
        "SELECT gate(id, 6000), count(*) FROM t GROUP BY 1",
        "SELECT count(*) FROM t WHERE b < 9",
        "SELECT * FROM (SELECT id, b FROM t UNION ALL SELECT a, b FROM t) u WHERE id = 5",
    ] {
        let waiting = server.session().begin(&format!("EXPLAIN {query}"));
        let pid = waiting.pid();
        server.wait_until(&format!(
            "SELECT wait_event IN ('NitroPlan', 'Extension') FROM pg_stat_activity \
             WHERE pid = {pid}"
        ));
        server.sql(&format!("SELECT pg_cancel_backend({pid})"));
        assert_eq!(waiting.finish().1.expect_err("it was cancelled").code, "57014", "{query}");
    }
    // The wait has a bound, and there are those who do not want to wait.
    let gated = "SELECT * FROM t WHERE gate(id, 6000) = 5 AND b < 9";
    for setting in ["nitro.max_loading_wait = '10ms'", "nitro.when_loading = skip"] {
        session.sql(&format!("SET {setting}"));
        assert!(!plan(&mut session, gated).contains("t_gated"), "{setting}");
        session.sql("RESET ALL");
    }
    let waiting = server.session().begin(&format!("SET enable_seqscan = off; EXPLAIN {gated}"));
    open(&server);
    let rows = waiting.finish().1.expect("it waits and is planned");
    assert!(format!("{rows:?}").contains("t_gated"), "{rows:?}");
}

#[test]
fn plans_of_a_statement_share_one_limit_of_waiting() {
    let server = stopped_while_it_catches_up();
    // A hundred plans in one statement: a bound for each would take minutes, and the statement does
    // not.
    let mut session = server.session();
    session.sql("SET nitro.max_loading_wait = '5s'; SET statement_timeout = '2min'");
    session.sql(
        "DO $$ BEGIN FOR i IN 1..100 LOOP \
         EXECUTE 'EXPLAIN SELECT * FROM t WHERE gate(id, 6000) = 5 AND b < 9'; END LOOP; END $$",
    );
    open(&server);
}

/// Partitions whose columns have other numbers than those of their parent. Each has an index with
/// an image, and a row at the gate that came after it.
fn gated_partitions(server: &Server) {
    server.sql(GATE);
    server.sql("CREATE TABLE p (k int, v int) PARTITION BY RANGE (k)");
    server.sql(
        "DO 'BEGIN FOR i IN 0..23 LOOP \
           EXECUTE format(''CREATE TABLE p%s (gone int, v int, k int NOT NULL)'', i); \
           EXECUTE format(''ALTER TABLE p%s DROP COLUMN gone'', i); \
           EXECUTE format(''ALTER TABLE p ATTACH PARTITION p%s FOR VALUES FROM (%s) TO (%s)'', \
               i, i * 100, i * 100 + 100); \
         END LOOP; END'",
    );
    server.sql("INSERT INTO p SELECT i, i FROM generate_series(0, 2399) i");
    server.sql("CREATE INDEX p_gated ON p USING nitro (gate(v, 6000))");
    server.sql("SELECT nitro_backup()");
    insert_after_images(server, "INSERT INTO p SELECT i * 100, 6000 FROM generate_series(0, 23) i");
}

#[test]
fn plans_of_partitions_share_one_limit_of_waiting() {
    let mut server = patient().start();
    gated_partitions(&server);
    shut(&server);
    server.crash();
    server.start();
    at_gate(&server);
    let query = "SELECT * FROM p WHERE gate(v, 6000) = 5";
    // A bound for each partition would be longer than the timeout.
    let mut session = server.session();
    session.sql("SET nitro.max_loading_wait = '2s'; SET statement_timeout = '40s'");
    plan(&mut session, query);
    session.sql("RESET ALL");
    // This one does not end if it waits.
    plan(&mut session, "SELECT * FROM p WHERE k = 5 OR k = 305");
    let waiting = server.session().begin(&format!("SET enable_seqscan = off; EXPLAIN {query}"));
    let pid = waiting.pid();
    server.wait_until(&format!(
        "SELECT wait_event IN ('NitroPlan', 'Extension') FROM pg_stat_activity WHERE pid = {pid}"
    ));
    open(&server);
    let rows = waiting.finish().1.expect("it waits and is planned");
    let plan = format!("{rows:?}");
    assert_eq!(
        plan.matches("Index Scan").count() + plan.matches("Index Only").count(),
        24,
        "{plan}"
    );
    all_ready(&server, 24);
    assert_eq!(server.value("SELECT count(*) FROM p WHERE gate(v, 6000) = 6000"), "24");
    server.sql("SELECT nitro_verify('p0_gate_idx', true), nitro_verify('p23_gate_idx', true)");
}

#[test]
fn a_plan_does_not_wait_behind_a_lock_of_its_own_session() {
    let server = stopped_while_it_catches_up();
    let mut session = server.session();
    let pid = server.value("SELECT pid FROM pg_stat_activity WHERE backend_type = 'nitro builder'");
    server.sql(&format!("SELECT pg_terminate_backend({pid})"));
    session.sql("BEGIN; LOCK TABLE t");
    session.sql("SELECT * FROM t WHERE gate(id, 7000) = 5 AND b < 9");
    session.sql("ROLLBACK");
    open(&server);
}

#[test]
fn no_wait_for_an_outdated_image() {
    let mut server = patient().start();
    server.sql(GATE);
    server.sql("CREATE TABLE t (id int, pad text)");
    server.sql("INSERT INTO t SELECT i, repeat('x', 700) FROM generate_series(1, 5000) i");
    server.sql("CREATE INDEX t_gated ON t USING nitro (gate(id, 6000))");
    server.sql("SELECT nitro_backup()");
    insert_after_images(
        &server,
        "UPDATE t SET pad = pad || 'y' WHERE id % 2 = 0; INSERT INTO t VALUES (6000, '')",
    );
    shut(&server);
    server.crash();
    server.start();
    at_gate(&server);
    assert_eq!(state(&server, "t_gated"), "building");
    // It does not end if it waits.
    let mut session = server.session();
    assert!(!plan(&mut session, "SELECT * FROM t WHERE gate(id, 6000) = 5").contains("t_gated"));
    open(&server);
    all_ready(&server, 1);
    // It is looked at once.
    assert_eq!(server.log().matches("its image is not loaded").count(), 1);
}

/// Blocks of the table that were asked for since the server started, per block that it has; once
/// builders have ended.
fn readings(server: &Server) -> f64 {
    server.wait_until(
        "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'nitro builder'",
    );
    let ratio = server.value(
        "SELECT (heap_blks_read + heap_blks_hit)::float8 / (pg_relation_size('t') / 8192) \
         FROM pg_statio_user_tables WHERE relname = 't'",
    );
    ratio.parse().expect("a number")
}

/// A table of six indexes and some hundred pages.
fn six_indexes(server: &Server) {
    server.sql(
        "CREATE TABLE t (id int, a int, b text COLLATE \"C\", c timestamptz, d uuid, e int[])",
    );
    server.sql(
        "INSERT INTO t SELECT i, i % 77, md5(i::text), now(), md5(i::text)::uuid, ARRAY[i, i % 10] \
         FROM generate_series(1, 30000) i",
    );
    server.sql(
        "CREATE INDEX t_a ON t USING nitro (a); CREATE INDEX t_b ON t USING nitro (b); \
         CREATE INDEX t_c ON t USING nitro (c); CREATE INDEX t_d ON t USING nitro (d); \
         CREATE INDEX t_e ON t USING nitro (e); CREATE INDEX t_id ON t USING nitro (id)",
    );
    server.sql("VACUUM ANALYZE t");
}

#[test]
fn a_table_is_read_once() {
    let mut server =
        Server::new().conf("nitro.backup = off").conf("nitro.max_builders = 1").start();
    six_indexes(&server);
    server.crash();
    server.start();
    server.sql("EXPLAIN SELECT * FROM t WHERE a = 5");
    all_ready(&server, 6);
    let readings = readings(&server);
    assert!((1.0..2.0).contains(&readings), "the table was read {readings} times");
    for index in ["t_a", "t_b", "t_c", "t_d", "t_e", "t_id"] {
        server.sql(&format!("SELECT nitro_verify('{index}', true)"));
    }
}

/// After a promotion the indexes of a server that did not follow are built like any others.
#[test]
fn a_table_is_read_once_after_a_promotion() {
    let server = Server::new()
        .conf("nitro.backup = off")
        .conf("nitro.max_builders = 1")
        .conf("nitro.follow = off")
        .start();
    six_indexes(&server);
    let standby = server.standby();
    standby.promote();
    standby.sql("SELECT pg_stat_reset()");
    standby.sql("EXPLAIN SELECT * FROM t WHERE a = 5");
    all_ready(&standby, 6);
    let readings = readings(&standby);
    assert!((1.0..2.0).contains(&readings), "the table was read {readings} times");
}

/// Stops a server whose indexes have images, and removes the WAL since: the pages of the table have
/// to say which of its rows have changed.
fn without_wal(server: &mut Server) {
    server.sql("SELECT nitro_backup()");
    insert_after_images(server, "UPDATE t SET a = a WHERE id % 1000 = 0");
    server.conf("nitro.backup = off");
    server.reload();
    server.sql("SELECT pg_switch_wal()");
    server.sql("CHECKPOINT");
    let current = server.value("SELECT pg_walfile_name(pg_current_wal_insert_lsn())");
    server.sql("SELECT pg_stat_reset()");
    server.stop();
    let wal = server.data().join("pg_wal");
    for entry in std::fs::read_dir(wal).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.len() == current.len() && name < current.as_str() {
            std::fs::remove_file(&path).expect("it can be removed");
        }
    }
}

#[test]
fn pages_are_compared_once() {
    let mut server = Server::new().conf("nitro.max_builders = 1").conf("wal_keep_size = 0").start();
    six_indexes(&server);
    without_wal(&mut server);
    server.start();
    all_ready(&server, 6);
    assert_eq!(server.log().matches("comparing the pages of its table").count(), 6);
    let readings = readings(&server);
    assert!((1.0..2.0).contains(&readings), "the table was read {readings} times");
    for index in ["t_a", "t_b", "t_c", "t_d", "t_e", "t_id"] {
        server.sql(&format!("SELECT nitro_verify('{index}', true)"));
    }
}

/// Until the keeper has looked at the slot, an image whose WAL is gone is neither used nor removed.
#[test]
fn an_image_is_not_refused_before_the_keeper_has_looked() {
    let mut server = Server::new().conf("wal_keep_size = 0").start();
    six_indexes(&server);
    without_wal(&mut server);
    // There is no place for a keeper.
    server.conf("max_worker_processes = 0");
    server.start();
    server.sql("SELECT nitro_verify('t_a')");
    assert!(server.log().contains("the keeper has not looked at the replication slot"));
    server.conf("max_worker_processes = 8");
    server.restart();
    all_ready(&server, 6);
    assert_eq!(
        server.log().matches("\" loaded from its image").count(),
        6,
        "{:?}",
        came_up(&server)
    );
}

/// Keeps a builder at work on another table, asks for indexes by `wanted`, and lets it go on.
fn asked_meanwhile(builders: usize, wanted: &[&str]) -> Server {
    let mut server = Server::new()
        .conf("nitro.backup = off")
        .conf("max_worker_processes = 16")
        .conf(&format!("nitro.max_builders = {builders}"))
        .start();
    server.sql(GATE);
    server.sql("CREATE TABLE other (i int); INSERT INTO other SELECT generate_series(1, 100)");
    server.sql("CREATE INDEX other_i ON other USING nitro (gate(i, 50))");
    six_indexes(&server);
    if server.value("SHOW server_version_num").parse::<u32>().is_ok_and(|number| number >= 180_000)
    {
        server.sql("DROP INDEX t_id; CREATE UNIQUE INDEX t_id ON t USING nitro (id)");
    }
    server.crash();
    server.start();
    server.sql("SELECT 1");
    shut(&server);
    server.sql("EXPLAIN SELECT * FROM other WHERE gate(i, 50) = 1");
    at_gate(&server);
    for query in wanted {
        server.sql(&format!("EXPLAIN {query}"));
    }
    open(&server);
    all_ready(&server, 7);
    server
}

#[test]
fn the_most_wanted_indexes_come_first() {
    let wanted = [
        "SELECT * FROM t WHERE d = gen_random_uuid()",
        "SELECT * FROM t WHERE b = 'x'",
        "SELECT * FROM t WHERE b = 'y' ORDER BY a",
        "SELECT * FROM t WHERE b = 'z' AND a = 1",
    ];
    let server = asked_meanwhile(1, &wanted);
    let order = indexes(&server);
    assert_eq!(order[0], "other_i");
    let unique =
        server.value("SELECT indisunique FROM pg_index WHERE indexrelid = 't_id'::regclass");
    let expected = match unique.as_str() {
        "t" => vec!["t_id", "t_b", "t_a", "t_d"],
        _ => vec!["t_b", "t_a", "t_d"],
    };
    assert_eq!(order[1..=expected.len()], expected, "{order:?}");
}

#[test]
fn builders_share_a_table() {
    // One is at the gate of the other table, so two are left.
    let mut server = Server::new()
        .conf("nitro.backup = off")
        .conf("max_worker_processes = 16")
        .conf("nitro.max_builders = 2")
        .start();
    server.sql(GATE);
    six_indexes(&server);
    server.sql("INSERT INTO t VALUES (-1, -1)");
    server.sql("DROP INDEX t_a, t_b");
    server.sql(
        "CREATE INDEX t_a ON t USING nitro (gate(a, -1)); \
         CREATE INDEX t_b ON t USING nitro (gate(id, -1))",
    );
    server.crash();
    server.start();
    shut(&server);
    server.sql("EXPLAIN SELECT * FROM t WHERE gate(a, -1) = 5");
    server.sql("EXPLAIN SELECT * FROM t WHERE gate(id, -1) = 5");
    // Each has one of these in its share, or the first one has both: then the other one is done.
    at_gate(&server);
    open(&server);
    all_ready(&server, 6);
    let processes: std::collections::BTreeSet<_> =
        came_up(&server).into_iter().map(|(process, _)| process).collect();
    assert_eq!(processes.len(), 2, "{:?}", came_up(&server));
}

#[test]
fn an_index_that_fails_stops_no_other() {
    let mut server =
        Server::new().conf("nitro.backup = off").conf("nitro.max_builders = 1").start();
    six_indexes(&server);
    server.sql(
        "CREATE FUNCTION picky(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql \
             AS 'BEGIN RETURN i; END'; \
         CREATE INDEX t_picky ON t USING nitro (picky(id))",
    );
    server.sql(
        "CREATE OR REPLACE FUNCTION picky(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS \
         'BEGIN IF i = 20000 THEN RAISE ''bad luck''; END IF; RETURN i; END'",
    );
    server.crash();
    server.start();
    server.sql("EXPLAIN SELECT * FROM t WHERE a = 5");
    all_ready(&server, 6);
    server.wait_until("SELECT count(*) = 1 FROM pg_stat_nitro_indexes WHERE state = 'failed'");
    for index in ["t_a", "t_b", "t_c", "t_d", "t_e", "t_id"] {
        server.sql(&format!("SELECT nitro_verify('{index}', true)"));
    }
}

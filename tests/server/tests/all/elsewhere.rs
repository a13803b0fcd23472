//! Indexes that some servers host and others do not: the storage parameters `maintenance` and
//! `hosts`, and the setting `nitro.host`.

use nitro_server_tests::{Server, Session, wait_until};

use crate::standbys::{compare, primary, uses_index};

const ELSEWHERE: &str = "0A000";
const NOT_HERE: &str = "55000";

fn state(server: &Server, index: &str) -> String {
    let query = format!("SELECT state FROM pg_stat_nitro_indexes WHERE indexrelname = '{index}'");
    server.value(&query)
}

/// Waits until an index is in a state, while queries ask for it.
#[track_caller]
fn await_state(server: &Server, index: &str, wanted: &str) {
    wait_until(&format!("{index} is {wanted}"), || {
        server.sql("SELECT nitro_ready()");
        state(server, index) == wanted
    });
}

fn explain(session: &mut Session, query: &str) -> String {
    format!("{:?}", session.sql(&format!("EXPLAIN (COSTS OFF, NITRO) {query}")))
}

#[test]
fn the_primary_does_without_an_index_of_standbys() {
    let mut server = Server::new().start();
    server.sql(
        "CREATE TABLE t (id int, k int, v text);
         INSERT INTO t SELECT i, i % 50, 'v' || i FROM generate_series(1, 20000) i;
         CREATE INDEX t_id ON t USING nitro (id);
         CREATE INDEX t_k ON t USING nitro (k) WITH (maintenance = standby, hosts = 'a, b');
         CREATE INDEX t_v ON t USING nitro (v) WITH (maintenance = 'standby');
         CREATE TABLE p (k int) PARTITION BY RANGE (k);
         CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
         CREATE INDEX p_k ON p USING nitro (k) WITH (maintenance = standby);
         CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20);
         INSERT INTO p SELECT i % 20 FROM generate_series(1, 100) i; ANALYZE p, t",
    );
    server
        .sql("CREATE INDEX CONCURRENTLY t_vc ON t USING nitro (v, k) WITH (maintenance = standby)");
    let away = ["t_k", "t_v", "t_vc", "p1_k_idx", "p2_k_idx"];
    let all_away = |server: &Server| {
        for index in away {
            assert_eq!(state(server, index), "elsewhere", "{index}");
        }
    };
    all_away(&server);
    let mut session = server.session();
    session.sql("SET enable_seqscan = off");
    assert!(!uses_index(&mut session, "SELECT * FROM t WHERE k = 3"));
    if session.value("SELECT current_setting('server_version_num')::int >= 180000") == "t" {
        let plan = explain(&mut session, "SELECT * FROM t WHERE k = 3");
        assert!(plan.contains("t_k (elsewhere)"), "{plan}");
    }
    assert_eq!(session.value("SELECT count(*) FROM t WHERE k = 3"), "400");
    assert_eq!(session.value("SELECT nitro_ready()"), "t");
    // Writes, and what a server may do to the index, leave it there.
    server.sql(
        "UPDATE t SET k = k + 1, v = v || 'w' WHERE id < 1000; DELETE FROM t WHERE id > 19000",
    );
    server.sql("VACUUM t");
    server.sql("REINDEX INDEX t_k; REINDEX TABLE t");
    server.sql("REINDEX INDEX CONCURRENTLY t_v");
    server.sql("VACUUM FULL t");
    server.sql("ALTER TABLE t ALTER k TYPE bigint; ALTER TABLE t SET TABLESPACE pg_default");
    server.sql("BEGIN; TRUNCATE p; INSERT INTO p VALUES (1), (11); COMMIT");
    all_away(&server);
    // A key that no host could keep.
    let long =
        "INSERT INTO t SELECT 1, 1, string_agg(md5(i::text), '') FROM generate_series(1, 40000) i";
    assert_eq!(session.error(long).code, "54000");
    for call in ["nitro_verify('t_k')", "nitro_verify_images('t_k')"] {
        let error = session.error(&format!("SELECT {call}"));
        assert_eq!(error.code, NOT_HERE, "{error}");
        assert!(error.message.contains("is not kept on this server"), "{error}");
    }
    assert_eq!(session.error("CLUSTER t USING t_k").code, NOT_HERE);
    assert_eq!(session.value("SELECT nitro_backup()"), "1");
    // What only the primary can look after.
    for (statement, code) in [
        ("CREATE INDEX ON u USING nitro (i) WITH (maintenance = standby)", ELSEWHERE),
        (
            "CREATE TEMP TABLE w (i int); \
             CREATE INDEX ON w USING nitro (i) WITH (maintenance = standby)",
            ELSEWHERE,
        ),
        ("ALTER INDEX u_i SET (maintenance = standby)", ELSEWHERE),
        ("ALTER INDEX e_i SET (maintenance = standby)", ELSEWHERE),
        ("ALTER TABLE t SET UNLOGGED", ELSEWHERE),
        ("BEGIN; ALTER INDEX u_i SET (maintenance = standby); COMMIT", ELSEWHERE),
        ("ALTER INDEX t_id SET (maintenance = nobody)", "22023"),
        ("ALTER INDEX t_id SET (hosts = 'a,')", "22023"),
        ("ALTER INDEX t_id SET (hosts = '')", "22023"),
        ("ALTER INDEX t_id SET (maintenance = 'primary', hosts = 'a')", "22023"),
    ] {
        server.sql(
            "DROP TABLE IF EXISTS u, e; CREATE UNLOGGED TABLE u (i int);
             CREATE INDEX u_i ON u USING nitro (i);
             CREATE TABLE e (i int, CONSTRAINT e_i EXCLUDE USING nitro (i WITH =))",
        );
        let error = server.session().error(statement);
        assert_eq!(error.code, code, "{statement}: {error}");
    }
    assert_eq!(state(&server, "t_id"), "ready");
    old_snapshots(&server);
    come_and_go(&mut server);
}

/// A snapshot that is older than the index does not use it: its CREATE INDEX did not look at
/// chains of HOT updates.
fn old_snapshots(server: &Server) {
    server.sql(
        "CREATE TABLE h (k int) WITH (fillfactor = 50); \
         INSERT INTO h SELECT 1 FROM generate_series(1, 50)",
    );
    let mut old = server.session();
    old.sql(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; \
         SET LOCAL enable_seqscan = off; SELECT count(*) FROM h",
    );
    server.sql("UPDATE h SET k = 2");
    server.sql("CREATE INDEX h_k ON h USING nitro (k) WITH (maintenance = standby)");
    server.sql("ALTER INDEX h_k RESET (maintenance)");
    await_state(server, "h_k", "ready");
    assert_eq!(old.value("SELECT count(*) FROM h WHERE k = 1"), "50");
    old.sql("COMMIT; SET enable_seqscan = off");
    assert!(uses_index(&mut old, "SELECT * FROM h WHERE k = 2"));
    assert_eq!(old.value("SELECT count(*) FROM h WHERE k = 2"), "50");
}

/// ALTER INDEX brings an index here and sends it away.
fn come_and_go(server: &mut Server) {
    let used = |server: &Server| {
        server.value("SELECT used FROM nitro_memory").parse::<u64>().expect("a number")
    };
    let before = used(server);
    server.sql("ALTER INDEX t_k RESET (maintenance)");
    await_state(server, "t_k", "ready");
    server.sql("SELECT nitro_verify('t_k', true)");
    assert!(used(server) > before);
    // What is rolled back, also in part, leaves it here.
    let mut session = server.session();
    session.sql(
        "BEGIN; ALTER INDEX t_k SET (maintenance = standby); \
         INSERT INTO t VALUES (1, 77, 'x'); ROLLBACK",
    );
    session.sql(
        "BEGIN; SAVEPOINT s; ALTER INDEX t_k SET (maintenance = standby); ROLLBACK TO s; \
         INSERT INTO t VALUES (2, 77, 'y'); COMMIT",
    );
    session.sql("ALTER INDEX t_k SET (fillfactor = 80)");
    assert_eq!(state(server, "t_k"), "ready");
    session.sql("SET enable_seqscan = off");
    assert_eq!(session.value("SELECT count(*) FROM t WHERE k = 77"), "1");
    // Inside the transaction it is what it was.
    session.sql(
        "PREPARE q AS SELECT count(*) FROM t WHERE k = 77; \
         SET plan_cache_mode = force_generic_plan",
    );
    assert_eq!(session.value("EXECUTE q"), "1");
    session.sql(
        "BEGIN; ALTER INDEX t_k SET (maintenance = standby); INSERT INTO t VALUES (3, 77, 'z')",
    );
    assert_eq!(session.value("EXECUTE q"), "2");
    session.sql("COMMIT");
    assert_eq!(state(server, "t_k"), "elsewhere");
    assert!(used(server) <= before, "its memory is free");
    assert_eq!(session.value("EXECUTE q"), "2");
    server.sql("VACUUM t");
    // The way back, over a crash.
    server.sql("ALTER INDEX t_k SET (maintenance = all)");
    server.crash();
    server.start();
    await_state(server, "t_k", "ready");
    server.sql("SELECT nitro_verify('t_k', true)");
    // A dump has the parameters.
    let file = server.data().join("../dump.sql");
    let done =
        server.output("pg_dump", |command| command.args(["-d", "postgres", "-f"]).arg(&file));
    assert!(done.status.success(), "{done:?}");
    server.sql("CREATE DATABASE restored");
    let done = server.output("psql", |command| {
        command.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", "restored", "-f"]).arg(&file)
    });
    assert!(done.status.success(), "{done:?}");
    let parameters = |database: &str| {
        server.session_as("postgres", database).sql(
            "SELECT relname, reloptions FROM pg_class WHERE relkind IN ('i', 'I') \
                 AND reloptions IS NOT NULL ORDER BY 1",
        )
    };
    assert!(parameters("restored").len() >= 6);
    assert_eq!(parameters("restored"), parameters("postgres"));
}

#[test]
fn standbys_keep_what_they_host() {
    let primary = primary().start();
    primary.sql(
        "CREATE TABLE t (id int, k int, v text, tags int[]);
         INSERT INTO t SELECT i, i % 50, 'v' || i % 300, ARRAY[i % 20]
             FROM generate_series(1, 5000) i;
         CREATE INDEX t_k ON t USING nitro (k) WITH (maintenance = standby, hosts = 'a');
         CREATE INDEX t_v ON t USING nitro (v) WITH (maintenance = primary);
         CREATE INDEX t_tags ON t USING nitro (tags) WITH (hosts = 'b')",
    );
    let [a, mut b] = ["a", "b"].map(|name| {
        let standby = primary.standby();
        standby.conf(&format!("nitro.host = '{name}'"));
        standby.reload();
        standby
    });
    let states = |server: &Server| ["t_k", "t_v", "t_tags"].map(|index| state(server, index));
    let await_states = |server: &Server, wanted: [&str; 3]| {
        wait_until(&format!("{wanted:?}"), || {
            server.sql("SELECT nitro_ready()");
            states(server) == wanted
        });
    };
    assert_eq!(states(&primary), ["elsewhere", "ready", "ready"]);
    await_states(&a, ["following", "elsewhere", "elsewhere"]);
    await_states(&b, ["elsewhere", "elsewhere", "following"]);
    for standby in [&a, &b] {
        assert_eq!(standby.value("SELECT nitro_ready()"), "t");
    }
    primary.sql("UPDATE t SET k = 60 WHERE k = 7; DELETE FROM t WHERE k = 8");
    primary.sql("VACUUM t");
    for (standby, used) in [(&a, "k = 60"), (&b, "tags @> '{4}'")] {
        standby.catch_up(&primary);
        let mut session = standby.session();
        assert!(uses_index(&mut session, &format!("SELECT * FROM t WHERE {used}")));
        for condition in ["k = 60", "k = 7", "k = 8", "v = 'v8'", "tags @> '{4}'"] {
            compare(&mut session, condition);
        }
    }
    // To another host, while a query of the old one goes on.
    let mut reader = a.session();
    reader.sql(
        "BEGIN; SET LOCAL enable_seqscan = off; DECLARE c CURSOR FOR SELECT id FROM t WHERE k = 60",
    );
    reader.sql("FETCH 5 FROM c");
    a.conf("nitro.host = 'c'");
    b.conf("nitro.host = 'a'");
    a.reload();
    b.reload();
    await_states(&a, ["elsewhere"; 3]);
    await_states(&b, ["following", "elsewhere", "elsewhere"]);
    assert_eq!(reader.sql("FETCH ALL FROM c").len(), 95);
    reader.sql("COMMIT");
    a.wait_until("SELECT used = 0 FROM nitro_memory");
    primary.sql("ALTER INDEX t_k SET (hosts = 'a, c')");
    primary.sql("INSERT INTO t VALUES (0, 60, 'new', '{4}')");
    a.catch_up(&primary);
    await_states(&a, ["following", "elsewhere", "elsewhere"]);
    compare(&mut a.session(), "k = 60");
    // A host that is promoted keeps it until it starts anew.
    b.catch_up(&primary);
    b.promote();
    b.sql(
        "INSERT INTO t VALUES (-1, 60, 'newer', '{4}'); UPDATE t SET k = 60 WHERE k = 9; \
         DELETE FROM t WHERE k = 10",
    );
    b.sql("VACUUM t");
    wait_until("the promoted server has what it kept, and what primaries keep", || {
        b.sql("SELECT nitro_ready()");
        states(&b) == ["ready", "ready", "ready"]
    });
    b.sql("SELECT nitro_verify('t_k', true)");
    for condition in ["k = 60", "k = 9", "k = 10", "v = 'newer'"] {
        compare(&mut b.session(), condition);
    }
    b.restart();
    await_states(&b, ["elsewhere", "ready", "ready"]);
    compare(&mut b.session(), "k = 60");
}

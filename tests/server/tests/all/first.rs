//! The harness itself, and the way of an index through a crash.

use nitro_server_tests::{Server, wait_until};

/// Rows by the index and by the table alone.
fn both_ways(server: &Server, condition: &str) -> [String; 2] {
    ["enable_seqscan", "enable_indexscan"].map(|off| {
        let query = format!(
            "SET enable_bitmapscan = off; SET {off} = off; \
             SELECT coalesce(string_agg(id::text, ',' ORDER BY id), '') FROM t WHERE {condition}"
        );
        server.value(&query)
    })
}

#[test]
fn an_index_is_back_after_a_crash() {
    let mut server = Server::new().start();
    server.sql("CREATE TABLE t (id int, k int)");
    server.sql("INSERT INTO t SELECT i, i % 100 FROM generate_series(1, 5000) i");
    server.sql("CREATE INDEX t_k ON t USING nitro (k)");
    // The one that CREATE INDEX asked for may be in the way.
    let mut session = server.session();
    wait_until("an image is made", || session.try_sql("SELECT nitro_backup('t_k')").is_ok());
    server.sql("UPDATE t SET k = 200 WHERE id % 7 = 0");
    server.crash();
    server.start();
    assert_eq!(server.value("SELECT count(*) FROM t WHERE k = 200"), "714");
    server.wait_until("SELECT state = 'ready' FROM pg_stat_nitro_indexes");
    for condition in ["k = 200", "k = 7", "k > 98"] {
        let [by_index, by_table] = both_ways(&server, condition);
        assert_eq!(by_index, by_table, "{condition}");
    }
}

#[test]
fn errors_and_notices_are_seen() {
    let server = Server::new().start();
    let mut session = server.session();
    let error = session.error("SELECT nitro_verify('pg_class')");
    assert_eq!(error.code, "42809");
    session.sql("DO $$ BEGIN RAISE WARNING 'told'; END $$");
    assert_eq!(session.notices(), ["WARNING: told"]);
    let waiting = session.begin("SELECT pg_sleep(60)");
    server.wait_until("SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
    assert!(!waiting.is_done());
    server.sql(&format!("SELECT pg_cancel_backend({})", waiting.pid()));
    let (mut session, outcome) = waiting.finish();
    assert_eq!(outcome.expect_err("it was cancelled").code, "57014");
    assert_eq!(session.value("SELECT 1"), "1");
}

//! Indexes that have grown are packed without VACUUM.

use nitro_server_tests::{Server, Session};

/// Bytes of an index.
fn bytes(server: &Server, index: &str) -> f64 {
    let bytes =
        format!("SELECT bytes FROM pg_stat_nitro_indexes WHERE indexrelid = '{index}'::regclass");
    server.value(&bytes).parse().unwrap()
}

/// Inserts rows in random order.
fn insert(session: &mut Session, from: u32, to: u32) {
    session.sql(&format!(
        "INSERT INTO t SELECT hashint8(i), md5(i::text),
             ARRAY[i % 1000, i % 777 + 1000, i % 555 + 2000]
         FROM generate_series({from}, {to}) i"
    ));
}

fn make_table(server: &Server) {
    server.sql(
        "CREATE TABLE t (k int8, s text, a int[]) WITH (autovacuum_enabled = off);
         CREATE INDEX t_k ON t USING nitro (k);
         CREATE INDEX t_s ON t USING nitro (s);
         CREATE INDEX t_a ON t USING nitro (a)",
    );
}

/// The answers by the indexes are those of the table.
fn same(server: &Server) {
    let mut session = server.session();
    for condition in ["k BETWEEN -1000000 AND 20000000", "s > 'f'", "a @> '{7}'"] {
        let counts = ["off", "on"].map(|on| {
            session.sql(&format!(
                "SET enable_seqscan = {}; SET enable_indexscan = {on}; SET enable_bitmapscan = {on};
                 SET enable_indexonlyscan = {on}",
                if on == "on" { "off" } else { "on" },
            ));
            session.value(&format!("SELECT count(*) FROM t WHERE {condition}"))
        });
        assert_eq!(counts[0], counts[1], "{condition}");
    }
}

/// Rows that come a few at a time leave indexes that are little larger than VACUUM leaves them.
#[test]
fn indexes_that_grow_are_packed_without_vacuum() {
    let server = Server::new().conf("nitro.pack = on").start();
    make_table(&server);
    let mut session = server.session();
    insert(&mut session, 1, 60_000);
    for part in 0..8 {
        insert(&mut session, 60_001 + part * 2_500, 62_500 + part * 2_500);
    }
    // They begin with 42, 80 and 120 bytes a row.
    server.wait_until("SELECT bool_and(bytes < 80000 * 30) FROM pg_stat_nitro_indexes");
    same(&server);
    let indexes = ["t_k", "t_s", "t_a"];
    let packed = indexes.map(|index| bytes(&server, index));
    server.sql("VACUUM t");
    for (index, packed) in indexes.into_iter().zip(packed) {
        let least = bytes(&server, index);
        assert!(packed <= 1.4 * least, "{index}: {packed} bytes, {least} after VACUUM");
    }
}

/// A session that needs a lock does not wait until an index is packed.
#[test]
fn packing_gives_way_to_locks() {
    let server = Server::new().conf("nitro.pack = on").start();
    make_table(&server);
    // The builder is among the next processes that begin.
    let mut gate = server.stop_next();
    let mut writer = server.session();
    insert(&mut writer, 1, 20_000);
    server.conf("nitro.debug_stop = 'Packed'");
    server.reload();
    let builder = gate.await_stopped();
    writer.sql("SET nitro.debug_stop = 'None'");
    let writer = writer.begin("DROP TABLE t");
    server.wait_until(
        "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'",
    );
    gate.let_pass(builder);
    writer.finish().1.expect("the table is dropped");
}

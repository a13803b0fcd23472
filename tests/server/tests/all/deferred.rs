//! Entries of statements of many rows wait and are inserted together (`nitro.insert_memory`).
//! Answers are those of the table, whatever the statement reads and however it ends. The tests of
//! the single rules are in `deferred_rules`.

use nitro_server_tests::Server;

/// Starts a server with a table `t` and two nitro indexes on it. The functions `by_index` and
/// `by_table` count its rows from a key on.
pub fn server() -> Server {
    // Builds for tests let the third entry of a statement wait.
    let server = Server::new().conf("work_mem = 4MB").start();
    server.sql(
        "CREATE TABLE t (id int, k int8, s text COLLATE \"C\") WITH (autovacuum_enabled = off);
         CREATE INDEX t_k ON t USING nitro (k);
         CREATE INDEX t_s ON t USING nitro (s, id);
         CREATE FUNCTION by_index(from_id int8) RETURNS bigint LANGUAGE plpgsql
             SET enable_seqscan = off AS
             'BEGIN RETURN (SELECT count(*) FROM t WHERE k >= from_id); END';
         CREATE FUNCTION by_table(from_id int8) RETURNS bigint LANGUAGE plpgsql
             SET enable_indexscan = off SET enable_bitmapscan = off SET enable_indexonlyscan = off
             AS 'BEGIN RETURN (SELECT count(*) FROM t WHERE k >= from_id); END'",
    );
    server
}

/// Each index has the entries of its table, and no index has others that a query would find.
pub fn check(server: &Server) {
    let mut session = server.session();
    for (condition, columns) in [("k > -1", "k"), ("s > ''", "s, id")] {
        let mut rows = |index: &str, table: &str| {
            session.sql(&format!(
                "SET enable_seqscan = {table}; SET enable_indexscan = {index};
                 SET enable_bitmapscan = off; SET enable_indexonlyscan = {index}"
            ));
            session.sql(&format!("SELECT {columns} FROM t WHERE {condition} ORDER BY {columns}"))
        };
        assert_eq!(rows("on", "off"), rows("off", "on"), "{condition}");
    }
    session.sql("SELECT nitro_verify('t_k', true), nitro_verify('t_s', true)");
}

/// Functions and triggers that read the table in the middle of the statement see what the snapshot
/// of their query sees.
#[test]
fn reads_inside_the_statement() {
    let server = server();
    let mut session = server.session();
    session.sql(
        "CREATE FUNCTION compare() RETURNS trigger LANGUAGE plpgsql AS
         'BEGIN
              IF by_index(-1) <> by_table(-1) THEN
                  RAISE ''% and %'', by_index(-1), by_table(-1);
              END IF;
              RETURN NEW;
          END';
         CREATE FUNCTION compared(i int) RETURNS int LANGUAGE plpgsql AS
         'BEGIN
              IF i % 50 = 0 AND by_index(-1) <> by_table(-1) THEN RAISE ''row %'', i; END IF;
              RETURN i;
          END'",
    );
    session.sql(
        "INSERT INTO t SELECT compared(i), hashint4(i)::int8 + 4000000000, md5(i::text)
         FROM generate_series(1, 2000) i",
    );
    check(&server);
    for when in [
        "BEFORE INSERT OR UPDATE ON t FOR EACH ROW",
        "AFTER INSERT OR UPDATE ON t FOR EACH ROW",
        "AFTER INSERT OR UPDATE ON t FOR EACH STATEMENT",
    ] {
        session.sql(&format!(
            "CREATE TRIGGER compares {when} EXECUTE FUNCTION compare();
             INSERT INTO t SELECT i, i, md5(i::text) FROM generate_series(3000, 3100) i;
             UPDATE t SET k = k + 1, s = s || 'x' WHERE id % 20 = 0;
             DROP TRIGGER compares ON t"
        ));
        check(&server);
    }
    // All parts of a query have one snapshot.
    let seen = session.value(
        "WITH new AS (INSERT INTO t SELECT i, i, 'with' FROM generate_series(5000, 5500) i
                      RETURNING id)
         SELECT CASE WHEN by_index(5000) = by_table(5000) THEN (SELECT count(*) FROM new) END",
    );
    assert_eq!(seen, "501");
    check(&server);
}

/// A statement finds the rows that it changes by the index into which it inserts.
#[test]
fn the_statement_reads_its_own_index() {
    let server = server();
    let mut session = server.session();
    session.sql(
        "INSERT INTO t SELECT i, i, md5(i::text) FROM generate_series(1, 3000) i;
         CREATE TABLE other AS SELECT i AS k, i * 2 AS new FROM generate_series(1, 4000) i;
         ANALYZE t; ANALYZE other; SET enable_seqscan = off; SET enable_hashjoin = off;
         SET enable_mergejoin = off;
         UPDATE t SET k = k + 10000 WHERE k BETWEEN 100 AND 2000;
         UPDATE t SET k = other.new FROM other WHERE t.k = other.k;
         MERGE INTO t USING other ON t.k = other.k
             WHEN MATCHED THEN UPDATE SET k = -other.k
             WHEN NOT MATCHED THEN INSERT VALUES (other.k, other.k + 50000, 'merged')",
    );
    check(&server);
    // A cursor that was opened before reads none of the new rows.
    session.sql(
        "BEGIN;
         DECLARE c CURSOR FOR SELECT k FROM t WHERE k > 10000 ORDER BY k;
         FETCH 5 FROM c",
    );
    session.sql("INSERT INTO t SELECT i, i + 10000, 'late' FROM generate_series(1, 1000) i");
    let rest = session.sql("FETCH ALL FROM c").len();
    session.sql("COMMIT");
    let late = session.value("SELECT count(*) FROM t WHERE k > 10000 AND s = 'late'");
    let all = session.value("SELECT count(*) FROM t WHERE k > 10000");
    let [late, all] = [late, all].map(|count| count.parse::<usize>().unwrap());
    assert_eq!(rest + 5, all - late);
    check(&server);
}

/// Rows of savepoints that are rolled back never come; those around them do.
#[test]
fn subtransactions() {
    let server = server();
    let mut session = server.session();
    // Each call inserts, fails or goes on, three deep, while the statement that calls it inserts.
    session.sql(
        "CREATE FUNCTION deep(i int, depth int) RETURNS int LANGUAGE plpgsql AS
         'BEGIN
              INSERT INTO t SELECT j, j, ''deep'' || depth
                  FROM generate_series(i * 100 + depth * 20, i * 100 + depth * 20 + 9) j;
              IF depth < 3 THEN
                  BEGIN
                      PERFORM deep(i, depth + 1);
                      IF (i >> depth) % 2 = 0 THEN RAISE ''no''; END IF;
                  EXCEPTION WHEN raise_exception THEN NULL;
                  END;
              END IF;
              INSERT INTO t SELECT j, j, ''after'' || depth
                  FROM generate_series(i * 100 + depth * 20 + 10, i * 100 + depth * 20 + 15) j;
              RETURN i;
          END';
         INSERT INTO t SELECT deep(i, 0), -i, 'outer' FROM generate_series(1, 64) i",
    );
    check(&server);
    session.sql("SET work_mem = '64kB'; DELETE FROM t");
    session.sql("INSERT INTO t SELECT deep(i, 0), -i, 'outer' FROM generate_series(1, 300) i");
    check(&server);
    // VACUUM gives the TIDs of aborted rows to others.
    session.sql(
        "BEGIN; SAVEPOINT a; INSERT INTO t SELECT i, i, 'gone' FROM generate_series(1, 500) i;
         ROLLBACK TO a; INSERT INTO t SELECT i, i, 'stays' FROM generate_series(1, 500) i; COMMIT",
    );
    session.sql("VACUUM t");
    session.sql("INSERT INTO t SELECT i, i, 'again' FROM generate_series(1, 1500) i");
    check(&server);
}

/// The commands that insert, and ways in which they end.
#[test]
fn commands_and_ends() {
    let server = Server::new().conf("max_prepared_transactions = 2").start();
    let mut session = server.session();
    session.sql(
        "CREATE TABLE t (id int, k int8, s text COLLATE \"C\") PARTITION BY RANGE (id);
         CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (1000);
         CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (1000) TO (100000);
         CREATE INDEX t_k ON t USING nitro (k);
         CREATE UNIQUE INDEX t_id ON t USING btree (id)",
    );
    let same = |server: &Server| {
        let count = |on: &str, off: &str| {
            let mut session = server.session();
            session.sql(&format!(
                "SET enable_seqscan = {off}; SET enable_indexscan = {on};
                 SET enable_bitmapscan = {on}; SET enable_indexonlyscan = {on}"
            ));
            session.sql("SELECT k FROM t WHERE k > -1000000 ORDER BY k")
        };
        assert_eq!(count("on", "off"), count("off", "on"));
    };
    let file = server.data().join("rows.csv");
    session.sql(&format!(
        "COPY (SELECT i, i * 7, md5(i::text) FROM generate_series(1, 3000) i) TO '{0}';
         COPY t FROM '{0}'",
        file.display()
    ));
    same(&server);
    // The first row is there: all of the COPY goes.
    session.error(&format!("COPY t FROM '{}'", file.display()));
    same(&server);
    session.sql(
        "INSERT INTO t SELECT i, i, 'conflict' FROM generate_series(2900, 3300) i
             ON CONFLICT (id) DO UPDATE SET k = excluded.k + 1;
         INSERT INTO t SELECT i, i, 'nothing' FROM generate_series(3200, 3600) i
             ON CONFLICT DO NOTHING",
    );
    same(&server);
    // Rows move to another partition.
    session.sql("UPDATE t SET id = id + 10000, k = k + 3 WHERE id < 800");
    same(&server);
    session.sql(
        "BEGIN; INSERT INTO t SELECT i, i, 'two phases' FROM generate_series(20000, 20500) i;
         PREPARE TRANSACTION 'p'",
    );
    same(&server);
    session.sql("COMMIT PREPARED 'p'");
    same(&server);
    session.sql(
        "BEGIN; INSERT INTO t SELECT i, i, 'no' FROM generate_series(30000, 30500) i; ROLLBACK",
    );
    same(&server);
    assert_eq!(
        session
            .sql("INSERT INTO t SELECT i, i, 'r' FROM generate_series(40000, 40499) i RETURNING k")
            .len(),
        500
    );
    same(&server);
}

/// Parts of WITH that nothing reads run when the statement is finished. Their entries come before
/// the table may get other rows under the same TIDs.
#[test]
fn a_part_that_nothing_reads() {
    let server = server();
    let mut session = server.session();
    session.sql("BEGIN");
    session.sql(
        "WITH new AS (INSERT INTO t SELECT i, i, 'gone' FROM generate_series(1, 1000) i RETURNING k)
         SELECT 1",
    );
    session.sql("TRUNCATE t");
    session.sql("INSERT INTO t SELECT i, i + 5000, 'stays' FROM generate_series(1, 500) i");
    session.sql("COMMIT");
    assert_eq!(server.value("SELECT nitro_verify('t_k', false)"), "500");
    check(&server);
    // The same with COPY.
    let file = server.data().join("rows.csv");
    server.sql(&format!("COPY t TO '{}'", file.display()));
    session.sql("BEGIN; TRUNCATE t");
    session.sql(&format!("COPY t FROM '{}'", file.display()));
    session.sql("TRUNCATE t");
    session.sql("INSERT INTO t SELECT i, i + 5000, 'stays' FROM generate_series(1, 300) i");
    session.sql("COMMIT");
    assert_eq!(server.value("SELECT nitro_verify('t_k', false)"), "300");
    check(&server);
}

//! The rules of `src/am/deferred.rs`. Each test holds one: which entries wait, when they are
//! drained, or how a drain goes on beside readers, images and errors.

use nitro_server_tests::{Server, Session, wait_until};

use crate::deferred::{check, server};

/// Returns the number of entries that a statement published before it failed. Entries that still
/// waited are dropped.
fn published(session: &mut Session, index: &str, statement: &str) -> usize {
    session.sql("BEGIN");
    let error = session.error(statement);
    assert!(["P0001", "22P02"].contains(&&*error.code), "{error}");
    session.sql("ROLLBACK");
    let entries = session.value(&format!("SELECT nitro_verify('{index}', false)"));
    session.sql("TRUNCATE w, v");
    entries.parse().expect("a number")
}

/// Makes an image, which waits for no drain. The background may be making another one.
fn image(server: &Server, index: &str) {
    let mut session = server.session();
    wait_until("an image", || session.try_sql(&format!("SELECT nitro_backup('{index}')")).is_ok());
}

/// Entries of a statement wait if nothing needs them at once, and as long as their memory suffices.
#[test]
fn entries_that_wait() {
    let server = server();
    let mut session = server.session();
    session.sql(
        "CREATE TABLE w (k int, own int, e int[]) PARTITION BY RANGE (k);
         CREATE TABLE v (k int UNIQUE);
         CREATE TABLE w1 PARTITION OF w FOR VALUES FROM (0) TO (1000000);
         CREATE FUNCTION fails(i int, at int) RETURNS int LANGUAGE plpgsql AS
             'BEGIN IF i = at THEN RAISE ''enough''; END IF; RETURN i; END';
         CREATE FUNCTION compare_own(int, int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
             'BEGIN RETURN $1 - $2; END';
         CREATE OPERATOR CLASS own FOR TYPE int USING nitro AS OPERATOR 1 <, OPERATOR 2 <=,
             OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 compare_own(int, int);
         CREATE INDEX w_k ON w1 USING nitro (k);
         CREATE INDEX w_own ON w1 USING nitro (own own);
         CREATE INDEX w_e ON w1 USING nitro (e array_ops);
         CREATE INDEX v_k ON v USING nitro (k)",
    );
    let insert = "INSERT INTO w SELECT fails(i, 100), -i, ARRAY[i] FROM generate_series(1, 100) i";
    // The first entries are published at once: one for each index.
    assert_eq!(published(&mut session, "w_k", insert), 1);
    assert_eq!(published(&mut session, "w_own", insert), 99, "a comparison function");
    assert_eq!(published(&mut session, "w_e", insert), 99, "elements");
    let conflict = format!("{insert} ON CONFLICT DO NOTHING");
    assert_eq!(published(&mut session, "w_k", &conflict), 99);
    let part = format!("WITH v AS (INSERT INTO v VALUES (1) ON CONFLICT DO NOTHING) {insert}");
    assert_eq!(published(&mut session, "w_k", &part), 99);

    let file = server.data().join("rows.csv");
    session.sql(&format!(
        "COPY (SELECT i::text, i, '{{}}' FROM generate_series(1, 1500) i
               UNION ALL SELECT 'no', 0, '') TO '{0}'",
        file.display()
    ));
    let copy = format!("COPY w FROM '{}'", file.display());
    assert_eq!(published(&mut session, "w_k", &copy), 1);
    session.sql(
        "CREATE FUNCTION into_v() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN INSERT INTO v VALUES (NEW.k) ON CONFLICT DO NOTHING; RETURN NEW; END';
         CREATE TRIGGER into_v BEFORE INSERT ON w FOR EACH ROW EXECUTE FUNCTION into_v()",
    );
    assert_eq!(published(&mut session, "v_k", &copy), 1500, "ON CONFLICT inside COPY");
    session.sql("DROP TRIGGER into_v ON w");

    // Entries that were drained do not go. Memory that is allocated counts: it is more than used.
    let many = insert.replace("100", "2200");
    assert_eq!(published(&mut session, "w_k", &many), 1);
    session.sql("SET nitro.insert_memory = '64kB'");
    assert!(published(&mut session, "w_k", &many) > 1_000, "64 kB are used up");
    session.sql("RESET nitro.insert_memory; SET enable_seqscan = off");
    // A snapshot that sees none of the rows drains none.
    session.sql(
        "CREATE FUNCTION before(i int) RETURNS int LANGUAGE plpgsql STABLE AS
             'BEGIN RETURN i + (SELECT count(*) FROM w1 WHERE k = i); END';
         CREATE FUNCTION after(i int) RETURNS int LANGUAGE plpgsql AS
             'BEGIN IF i < 50 THEN PERFORM count(*) FROM w1 WHERE k = i; END IF; RETURN i; END'",
    );
    let reads =
        |function: &str| insert.replace("fails(i, 100)", &format!("fails({function}(i), 100)"));
    assert_eq!(published(&mut session, "w_k", &reads("before")), 1);
    // One reader after the other: no more entries wait.
    assert_eq!(published(&mut session, "w_k", &reads("after")), 99);

    // Entries of a savepoint go with it.
    session.sql(
        "CREATE FUNCTION tries(i int) RETURNS int LANGUAGE plpgsql AS
             'BEGIN
                  BEGIN
                      INSERT INTO w SELECT i * 100 + j FROM generate_series(1, 20) j;
                      RAISE ''no'';
                  EXCEPTION WHEN raise_exception THEN NULL;
                  END;
                  RETURN i;
              END';
         INSERT INTO w SELECT CASE WHEN i > 5 THEN tries(i) ELSE i END
             FROM generate_series(1, 10) i",
    );
    assert_eq!(session.value("SELECT nitro_verify('w_k', true)"), (10 + 5).to_string());

    // Off: nothing is drained.
    let gate = server.stop_at(&mut session, "DrainBegun");
    session.sql("SET nitro.insert_memory = 0; SET lock_timeout = '1s'");
    session.sql("INSERT INTO w SELECT i FROM generate_series(1, 100) i");
    gate.open();
}

/// A snapshot between the commands of two statements sees the rows of the first.
#[test]
fn a_snapshot_between_two_commands() {
    let server = server();
    let mut session = server.session();
    session.sql(
        "CREATE FUNCTION opens(i int) RETURNS int LANGUAGE plpgsql SET enable_seqscan = off AS
         'DECLARE
              c CURSOR FOR SELECT count(*) FROM t WHERE k >= 0;
              seen int;
          BEGIN
              IF i = 20 THEN
                  OPEN c;
                  INSERT INTO t SELECT j, j, ''inside'' FROM generate_series(1, 10) j;
                  FETCH c INTO seen;
                  CLOSE c;
              END IF;
              RETURN seen;
          END';
         INSERT INTO t SELECT opens(i), i, 'outer' FROM generate_series(1, 40) i",
    );
    assert_eq!(server.value("SELECT max(id) FROM t WHERE s = 'outer'"), "19");
    check(&server);
}

/// Every snapshot of the transaction sees the rows of COPY FREEZE, also one from before it.
#[test]
fn frozen_rows() {
    let server = server();
    let file = server.data().join("rows.csv");
    server.sql(&format!(
        "CREATE FUNCTION reads() RETURNS trigger LANGUAGE plpgsql STABLE SET enable_seqscan = off AS
             'BEGIN NEW.id := (SELECT count(*) FROM t WHERE k > 0); RETURN NEW; END';
         COPY (SELECT 0, i, 'frozen' FROM generate_series(1, 300) i) TO '{}'",
        file.display()
    ));
    server.sql(&format!(
        "BEGIN; TRUNCATE t;
         CREATE TRIGGER reads BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION reads();
         COPY t FROM '{}' WITH (FREEZE); COMMIT",
        file.display()
    ));
    let wrong = server.value("SELECT count(*) FROM t WHERE id <> k - 1");
    assert_eq!(wrong, "0", "rows that did not see those before them");
    check(&server);
}

/// Parallel workers see the rows that waited when their plan started.
#[test]
fn parallel_workers() {
    let server = server();
    let mut session = server.session();
    session.sql(
        "INSERT INTO t SELECT i, i, md5(i::text) FROM generate_series(1, 20000) i;
         CREATE FUNCTION by_workers(i int) RETURNS SETOF bigint LANGUAGE plpgsql
             SET enable_seqscan = off SET enable_bitmapscan = off SET parallel_setup_cost = 0
             SET parallel_tuple_cost = 0 SET min_parallel_index_scan_size = 0
             SET min_parallel_table_scan_size = 0 SET parallel_leader_participation = off AS
             'DECLARE line text; plan text;
              BEGIN
                  FOR line IN EXPLAIN SELECT count(s) FROM t WHERE k > 10000 LOOP
                      plan := concat(plan, line);
                  END LOOP;
                  IF plan !~ ''Workers Planned.*Parallel'' THEN RAISE ''%'', plan; END IF;
                  RETURN QUERY SELECT count(s) - 10000 FROM t WHERE k > 10000;
              END'",
    );
    session.sql("VACUUM ANALYZE t");
    session.sql(
        "INSERT INTO t
             SELECT CASE WHEN i % 10 = 0 THEN (SELECT n FROM by_workers(i) n) END, 30000 + i, 'new'
             FROM generate_series(1, 30) i",
    );
    let seen = session
        .value("SELECT string_agg(id::text, ' ' ORDER BY k) FROM t WHERE s = 'new' AND id >= 0");
    assert_eq!(seen, "9 19 29");
    check(&server);
}

/// A reader of a serializable transaction and a statement whose entries wait conflict.
#[test]
fn serializable_readers() {
    let server = server();
    server.sql("INSERT INTO t SELECT i, i, 'old' FROM generate_series(1, 1000) i");
    server.sql("VACUUM ANALYZE t");
    let begin = "BEGIN ISOLATION LEVEL SERIALIZABLE; SET LOCAL enable_seqscan = off;";
    let (mut a, mut b) = (server.session(), server.session());
    for session in [&mut a, &mut b] {
        session.sql(begin);
    }
    assert_eq!(a.value("SELECT count(*) FROM t WHERE k BETWEEN 2000 AND 3000"), "0");
    assert_eq!(b.value("SELECT count(*) FROM t WHERE k BETWEEN 4000 AND 5000"), "0");
    a.sql("INSERT INTO t SELECT i, i, 'a' FROM generate_series(4000, 4200) i");
    let b_failed = b
        .try_sql("INSERT INTO t SELECT i, i, 'b' FROM generate_series(2000, 2200) i; COMMIT")
        .err();
    let a_failed = a.try_sql("COMMIT").err();
    let failed = b_failed.or(a_failed).expect("one of them fails");
    assert_eq!(failed.code, "40001");
    check(&server);
}

/// A serializable reader that comes after the rows and before their entries conflicts.
#[test]
fn a_serializable_reader_before_a_drain() {
    let server = server();
    server.sql("INSERT INTO t SELECT i, i, 'old' FROM generate_series(1, 1000) i");
    server.sql("VACUUM ANALYZE t");
    let begin = "BEGIN ISOLATION LEVEL SERIALIZABLE; SET LOCAL enable_seqscan = off;";
    let (mut a, mut b) = (server.session(), server.session());
    let mut gate = server.stop_at(&mut a, "DrainBegun");
    for session in [&mut a, &mut b] {
        session.sql(begin);
    }
    assert_eq!(a.value("SELECT count(*) FROM t WHERE k BETWEEN 2000 AND 3000"), "0");
    let insert = a.begin("INSERT INTO t (k) SELECT generate_series(4000, 4200)");
    gate.await_stopped();
    // The entries of the first rows are there. This range has none.
    assert_eq!(b.value("SELECT count(*) FROM t WHERE k BETWEEN 4100 AND 5000"), "0");
    gate.open();
    let (mut a, inserted) = insert.finish();
    let a_failed = inserted.and_then(|_| a.try_sql("COMMIT")).err();
    let b_failed = b.try_sql("INSERT INTO t (k) VALUES (2500); COMMIT").err();
    let failed = a_failed.or(b_failed).expect("one of them fails");
    assert_eq!(failed.code, "40001");
    check(&server);
}

/// A drain that is cancelled inside a savepoint keeps the rows of the transaction around it.
#[test]
fn a_cancel_in_a_drain() {
    for point in ["DrainBegun", "DrainPublished"] {
        let server = server();
        let mut session = server.session();
        session.sql(
            "CREATE FUNCTION inside(i int) RETURNS int LANGUAGE plpgsql AS
             'BEGIN
                  IF i = 4000 THEN
                      BEGIN
                          INSERT INTO t SELECT j, j, ''inside''
                              FROM generate_series(90001, 90500) j;
                          PERFORM by_index(0);
                      EXCEPTION WHEN query_canceled THEN NULL;
                      END;
                  END IF;
                  RETURN i;
              END'",
        );
        let mut gate = server.stop_at(&mut session, point);
        let insert = session
            .begin("INSERT INTO t SELECT inside(i), i, 'outer' FROM generate_series(1, 5000) i");
        let pid = gate.await_stopped();
        server.sql(&format!("SELECT pg_cancel_backend({pid})"));
        // It goes on behind the savepoint, and stops at the end of the statement.
        server.wait_until(&format!(
            "SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = {pid} \
             AND wait_event = 'advisory'"
        ));
        gate.open();
        let (_, result) = insert.finish();
        result.expect("the cancel is caught");
        assert_eq!(server.value("SELECT count(*) FROM t WHERE s = 'outer'"), "5000");
        assert_eq!(server.value("SELECT count(*) FROM t WHERE s = 'inside'"), "0");
        check(&server);
    }
}

/// Entries that no end of a statement has drained are in the index when their transaction ends.
#[test]
fn ends_of_transactions() {
    let mut server = server();
    server.conf("nitro.debug_break = 'statement_ends'");
    server.restart();
    let mut session = server.session();
    session.sql("INSERT INTO t SELECT i, i, 'committed' FROM generate_series(1, 100) i");
    check(&server);
    session.sql("BEGIN");
    session.sql("INSERT INTO t SELECT i, i, 'prepared' FROM generate_series(1, 100) i");
    session.sql("PREPARE TRANSACTION 'p'");
    assert_eq!(server.value("SELECT nitro_verify('t_k', false)"), "200");
    drop(session);
    server.crash();
    server.start();
    server.sql("COMMIT PREPARED 'p'");
    check(&server);
    assert_eq!(server.value("SELECT count(*) FROM t WHERE k > 0"), "200");
}

/// A process forgets its statements when they end, not when its transaction does.
#[test]
fn statements_that_have_ended() {
    let server = server();
    let mut session = server.session();
    let status = format!("/proc/{}/status", session.pid());
    let mut kilobytes_after = |statements: u32| -> u64 {
        session.sql(&format!(
            "DO 'BEGIN
                 FOR i IN 1..{statements} LOOP INSERT INTO t SELECT WHERE false; END LOOP;
             END'"
        ));
        let status = std::fs::read_to_string(&status).expect("the process runs");
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).expect("a size");
        line.split_whitespace().nth(1).and_then(|size| size.parse().ok()).expect("kB")
    };
    // A statement that is not forgotten takes more than 50 bytes.
    let (before, after) = (kilobytes_after(1_000), kilobytes_after(100_000));
    assert!(after < before + 2_000, "{before} kB and {after} kB");
}

/// An image that begins while entries wait, and a crash: no row is lost.
#[test]
fn an_image_beside_a_drain() {
    let mut server = server();
    server.sql("INSERT INTO t SELECT i, i, 'old' FROM generate_series(1, 1000) i");
    let mut session = server.session();
    let mut gate = server.stop_at(&mut session, "DrainBegun");
    let insert =
        session.begin("INSERT INTO t SELECT i, i, 'new' FROM generate_series(2000, 4000) i");
    gate.await_stopped();
    // The rows are in the table, before the LSN of the image. Their entries are not in the index.
    image(&server, "t_k");
    image(&server, "t_s");
    gate.open();
    insert.finish().1.expect("rows are inserted");
    server.crash();
    server.start();
    check(&server);
    assert_eq!(server.value("SELECT count(*) FROM t WHERE k >= 2000"), "2001");
}

/// An image is made while rows of a transaction wait. Rows of a later subtransaction wait with
/// them, and the older ones are not forgotten.
#[test]
fn rows_from_before_an_image() {
    let mut server = server();
    server.sql("INSERT INTO t SELECT i, i, 'old' FROM generate_series(1, 1000) i");
    let mut session = server.session();
    session.sql(
        "CREATE FUNCTION later(i int) RETURNS bool LANGUAGE plpgsql AS
         'BEGIN
              IF i = 200 THEN
                  PERFORM pg_advisory_lock_shared(1);
                  BEGIN
                      INSERT INTO t SELECT j, j, ''later'' FROM generate_series(5001, 5010) j;
                  EXCEPTION WHEN raise_exception THEN NULL;
                  END;
              END IF;
              RETURN i < 200;
          END'",
    );
    let mut control = server.session();
    control.sql("SELECT pg_advisory_lock(1)");
    let pid = session.pid();
    let insert = session.begin(
        "INSERT INTO t SELECT i, 2000 + i, 'new' FROM generate_series(1, 200) i WHERE later(i)",
    );
    server.wait_until(&format!(
        "SELECT count(*) = 1 FROM pg_locks WHERE pid = {pid} AND locktype = 'advisory' \
         AND NOT granted"
    ));
    image(&server, "t_k");
    image(&server, "t_s");
    control.sql("SELECT pg_advisory_unlock(1)");
    insert.finish().1.expect("rows are inserted");
    server.crash();
    server.start();
    check(&server);
    assert_eq!(server.value("SELECT count(*) FROM t WHERE k >= 2000"), "209");
}

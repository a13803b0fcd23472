//! Values of an index that a plan has from the last plan of its session (`src/state/known.rs`), and
//! changes that take them away. Each mechanism is also switched off. Then the same plan is wrong.

use nitro_server_tests::{Server, Session, wait_until};

use crate::standbys::{await_followed, primary};

/// The plan of a query, with its costs.
fn plan(session: &mut Session, query: &str) -> String {
    let lines = session.sql(&format!("EXPLAIN {query}"));
    lines.into_iter().flatten().flatten().collect::<Vec<_>>().join("\n")
}

/// Whether the plan of a query has an index.
fn uses(session: &mut Session, query: &str) -> bool {
    plan(session, query).contains("Index")
}

/// The cost of a plan.
fn cost(session: &mut Session, query: &str) -> f64 {
    let plan = plan(session, query);
    let cost = plan.split_once("..").and_then(|(_, rest)| rest.split_once(' '));
    cost.and_then(|(cost, _)| cost.parse().ok()).unwrap_or_else(|| panic!("no cost: {plan}"))
}

/// A server with a table whose rows came in no order, and an index that was there before them. The
/// mechanism is switched off.
fn server(broken: &str) -> Server {
    let server = Server::new()
        .conf("nitro.backup = off")
        // Entries that come one by one leave an index that REINDEX makes smaller.
        .conf("nitro.insert_memory = 0")
        .conf("enable_seqscan = off")
        .conf("enable_bitmapscan = off")
        .conf("allow_in_place_tablespaces = on")
        .conf(&format!("nitro.debug_break = {broken}"))
        .start();
    server.sql(
        "CREATE TABLE t (k int, c text, v int);
         CREATE INDEX t_k ON t USING nitro (k DESC NULLS LAST);
         CREATE INDEX t_c ON t USING nitro (c text_pattern_ops);
         CREATE INDEX t_kv ON t USING nitro (k, v DESC);
         INSERT INTO t SELECT hashint4(i) % 100000, 'w' || i, i FROM generate_series(1, 20000) i",
    );
    server.sql("VACUUM ANALYZE t");
    server.sql("CREATE TABLESPACE other LOCATION ''");
    server
}

/// REINDEX in the transaction that plans makes the index smaller. Returns what a plan costs before
/// and after.
fn reindexed(broken: &str) -> (f64, f64) {
    let server = server(broken);
    let mut session = server.session();
    let query = "SELECT k, v FROM t ORDER BY k, v DESC";
    session.sql("BEGIN");
    let before = cost(&mut session, query);
    session.sql("REINDEX INDEX t_kv");
    (before, cost(&mut session, query))
}

#[test]
fn a_plan_sees_that_its_index_has_changed() {
    let (before, after) = reindexed("none");
    assert!(after < before, "{after} < {before}");
    let (before, after) = reindexed("known_relations");
    assert!(after >= before, "the plan knows it although it should not: {after}, {before}");
}

/// The table gets another file, for which the index has no entries before the commit. Returns
/// whether a plan uses the index then.
fn used_in_another_file(broken: &str) -> bool {
    let server = server(broken);
    let mut session = server.session();
    let query = "SELECT v FROM t WHERE k = 5";
    session.sql("BEGIN");
    assert!(uses(&mut session, query));
    session.sql("ALTER TABLE t SET TABLESPACE other");
    uses(&mut session, query)
}

#[test]
fn a_plan_sees_that_its_table_has_another_file() {
    assert!(!used_in_another_file("none"));
    assert!(used_in_another_file("known_relations"));
}

/// btree's family gets an operator that nitro's has not. So it is shown no more, and LIKE is no
/// condition of the index. Returns whether it is one to a session that has planned before.
fn has_patterns(broken: &str) -> bool {
    let server = server(broken);
    let mut session = server.session();
    let query = "SELECT v FROM t WHERE c LIKE 'w12%'";
    let has_condition = |session: &mut Session| plan(session, query).contains("Index Cond");
    assert!(has_condition(&mut session));
    assert!(has_condition(&mut session));
    server.sql("ALTER OPERATOR FAMILY text_pattern_ops USING btree ADD OPERATOR 1 < (name, text)");
    assert!(!has_condition(&mut server.session()));
    has_condition(&mut session)
}

#[test]
fn a_plan_sees_that_operator_families_have_changed() {
    assert!(!has_patterns("none"));
    assert!(has_patterns("known_families"));
}

/// Queries whose plans go by the order, the size and the families of an index.
const QUERIES: [&str; 8] = [
    "SELECT v FROM t WHERE k = 5",
    "SELECT k FROM t WHERE k = 5",
    "SELECT k FROM t ORDER BY k DESC NULLS LAST LIMIT 10",
    "SELECT k FROM t ORDER BY k NULLS FIRST LIMIT 10",
    "SELECT k, v FROM t ORDER BY k, v DESC LIMIT 10",
    "SELECT k, v FROM t WHERE (k, v) > (7, 5) AND k < 1000",
    "SELECT v FROM t WHERE c LIKE 'w12%'",
    "SELECT count(*) FROM t a JOIN t b ON a.k = b.k WHERE a.v < 10",
];

fn plans(session: &mut Session) -> Vec<String> {
    QUERIES.map(|query| plan(session, query)).to_vec()
}

/// A session that has planned before plans like one that has not, whatever others have done since.
#[test]
fn an_old_session_plans_as_a_new_one() {
    let server = server("none");
    let mut old = server.session();
    let first = plans(&mut old);
    assert!(first.iter().all(|plan| plan.contains("Index")), "{first:#?}");
    assert_eq!(first, plans(&mut old));
    for change in [
        "REINDEX TABLE t",
        "ALTER INDEX t_k SET (fillfactor = 50)",
        "ALTER INDEX t_k RENAME TO t_renamed; ALTER INDEX t_renamed RENAME TO t_k",
        "DROP INDEX t_k; CREATE INDEX t_k ON t USING nitro (k)",
        "DROP INDEX t_k; CREATE INDEX t_k ON t USING nitro (v)",
        "DROP INDEX t_k; CREATE INDEX t_k ON t USING nitro (k DESC NULLS LAST) WHERE v > 0",
        "DROP INDEX t_k; CREATE INDEX t_k ON t USING nitro (k DESC NULLS LAST)",
        "ALTER TABLE t ADD COLUMN more int; ALTER TABLE t DROP COLUMN more",
        "ALTER TABLE t ALTER k TYPE bigint",
        "ALTER TABLE t SET TABLESPACE other",
        "ALTER INDEX t_k SET TABLESPACE other",
        "ALTER TABLE t CLUSTER ON t_k; CLUSTER t",
        "TRUNCATE t; INSERT INTO t SELECT i, 'w' || i, i FROM generate_series(1, 3000) i",
        "ALTER DATABASE postgres SET nitro.max_memory_per_database = '1GB'",
        "ANALYZE t",
        "VACUUM t",
    ] {
        for statement in change.split("; ") {
            server.sql(statement);
        }
        // The first plan sends for what has to be built.
        plans(&mut server.session());
        server.wait_until("SELECT bool_and(state = 'ready') FROM pg_stat_nitro_indexes");
        let (new, again) = (plans(&mut server.session()), plans(&mut old));
        assert_eq!(new, again, "after {change}");
        let rows = QUERIES.map(|query| old.sql(query).len());
        assert_eq!(rows, QUERIES.map(|query| server.sql(query).len()), "after {change}");
    }
}

/// The order that a plan hides from the server is there for everything else.
#[test]
fn an_index_keeps_its_order() {
    let server = server("none");
    let mut session = server.session();
    for _ in 0..3 {
        plans(&mut session);
    }
    let of = |session: &mut Session, table: &str| {
        let definitions = session.sql(&format!(
            "SELECT regexp_replace(pg_get_indexdef(indexrelid), '.* USING ', '') FROM pg_index \
             WHERE indrelid = '{table}'::regclass ORDER BY 1"
        ));
        format!("{definitions:?}")
    };
    let property = "SELECT pg_index_column_has_property('t_k', 1, 'returnable')";
    assert_eq!(session.value(property), "t");
    session.sql("CREATE TABLE same (LIKE t INCLUDING INDEXES)");
    assert_eq!(of(&mut session, "same"), of(&mut session, "t"));
    // An ERROR while the table is planned, and a rolled back subtransaction.
    session.error("SELECT k / 0 FROM t WHERE k = 1 / 0");
    session.sql("BEGIN; SAVEPOINT a");
    session.error("SELECT v FROM t WHERE k = 1 / 0 ORDER BY k");
    session.sql("ROLLBACK TO a");
    let rows = session.sql("SELECT k, v FROM t WHERE (k, v) > (7, 5) ORDER BY k, v DESC LIMIT 3");
    session.sql("CREATE TABLE more (LIKE t INCLUDING INDEXES)");
    assert_eq!(of(&mut session, "more"), of(&mut session, "t"));
    session.sql("COMMIT");
    let by_table = server.sql(
        "SET nitro.enable_scan = off; \
         SELECT k, v FROM t WHERE (k, v) > (7, 5) ORDER BY k, v DESC LIMIT 3",
    );
    assert_eq!(rows, by_table);
}

/// An index that another session gives up is in no plan any more.
#[test]
fn a_plan_sees_that_its_index_was_given_up() {
    let server = server("none");
    let mut session = server.session();
    let query = "SELECT v FROM t WHERE k = 5";
    assert!(uses(&mut session, query));
    server.sql("DROP INDEX t_kv; ALTER INDEX t_k SET (max_memory = '1MB')");
    assert!(uses(&mut session, query));
    server.sql(
        "SET nitro.when_full = give_up_index; \
         INSERT INTO t SELECT hashint4(i), 'x', i FROM generate_series(1, 300000) i",
    );
    let gone = "SELECT given_up > 0 AND state <> 'ready' FROM pg_stat_nitro_indexes \
        WHERE indexrelname = 't_k'";
    assert_eq!(server.value(gone), "t");
    assert!(!uses(&mut session, query));
}

/// On a standby a session plans with the facts that it knows, and without an index that the primary
/// has dropped.
#[test]
fn a_standby_sees_that_an_index_has_gone() {
    let primary = primary().conf("enable_seqscan = off").start();
    primary.sql(
        "CREATE TABLE t (k int, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 1000) i;
         CREATE INDEX t_k ON t USING nitro (k); CREATE INDEX t_v ON t USING nitro (v DESC)",
    );
    primary.sql("VACUUM ANALYZE t");
    let standby = primary.standby();
    await_followed(&standby);
    let mut session = standby.session();
    let queries = ["SELECT v FROM t WHERE k = 5", "SELECT v FROM t ORDER BY v DESC LIMIT 3"];
    let first = queries.map(|query| plan(&mut session, query));
    assert!(first.iter().all(|plan| plan.contains("Index")), "{first:?}");
    assert_eq!(first, queries.map(|query| plan(&mut session, query)));
    primary.sql("ALTER INDEX t_k SET (maintenance = 'primary')");
    standby.catch_up(&primary);
    wait_until("the index is elsewhere", || !uses(&mut session, queries[0]));
    assert!(uses(&mut session, queries[1]));
    assert_eq!(session.value(queries[0]), "5");
    // Recovery ends: the indexes are taken over, and the session goes on.
    standby.promote();
    standby
        .wait_until("SELECT state = 'ready' FROM pg_stat_nitro_indexes WHERE indexrelname = 't_v'");
    assert!(uses(&mut session, queries[1]));
    assert_eq!(session.value("SELECT v FROM t ORDER BY v DESC LIMIT 1"), "1000");
}

/// The server folds a predicate that is always true in each plan. Its function copies the table
/// there: the index of the copy is in the same order.
#[test]
fn a_predicate_that_copies_its_table_sees_the_order() {
    let server = Server::new().conf("enable_seqscan = off").start();
    server.sql(
        "CREATE FUNCTION copy() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
             PERFORM set_config('my.copy', 'off', false);
             CREATE TABLE copied (LIKE t INCLUDING INDEXES);
         END $$;
         CREATE FUNCTION holds() RETURNS bool IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
             IF current_setting('my.copy', true) = 'on' THEN PERFORM copy(); END IF;
             RETURN true;
         END $$;
         CREATE TABLE t (k int, v int);
         CREATE INDEX t_k ON t USING nitro (k DESC) WHERE holds();
         INSERT INTO t SELECT i, i FROM generate_series(1, 1000) i",
    );
    server.sql("VACUUM ANALYZE t");
    let mut session = server.session();
    let query = "SELECT v FROM t WHERE k = 5";
    assert!(uses(&mut session, query));
    assert!(uses(&mut session, query));
    session.sql("SET my.copy = on");
    assert!(uses(&mut session, query));
    let copied = session.sql("SELECT pg_get_indexdef('copied_k_idx'::regclass)");
    let copied = copied.into_iter().flatten().flatten().collect::<String>();
    assert!(copied.contains("(k DESC)"), "{copied}");
}

//! Index-only scans, aggregates in the index, counted elements and batched joins on standbys: what
//! counts of the visibility map there, also over a promotion.

use std::process::Command;

use nitro_server_tests::{Gate, Random, Server, Session};

use crate::standbys::{await_followed, primary};

/// Plans that read no table where the visibility map says that they need not.
const INDEX_ONLY: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off; \
    SET enable_sort = off; SET enable_hashjoin = off; SET enable_mergejoin = off; \
    SET enable_material = off; SET enable_memoize = off; SET max_parallel_workers_per_gather = 0";

/// Plans with processes that share a scan.
const PARALLEL: &str = "SET LOCAL parallel_setup_cost = 0; SET LOCAL parallel_tuple_cost = 0; \
    SET LOCAL min_parallel_index_scan_size = 0; SET LOCAL max_parallel_workers_per_gather = 2";

/// Queries that read no table: by the server's function, by nitro's, in the index, and in a join.
fn queries(random: &mut Random) -> Vec<(&'static str, String)> {
    let (k, tag) = (random.below(50), random.below(20));
    let range = format!("k BETWEEN {k} AND {}", k + random.below(9));
    let aggregate = "SET LOCAL nitro.enable_aggregate = on";
    let scan = "SET LOCAL nitro.enable_aggregate = off";
    let stock = "SET LOCAL nitro.enable_aggregate = off; SET LOCAL nitro.enable_fast_scan = off";
    let counted =
        "SELECT count(*) || ' ' || coalesce(sum(k), 0) || ' ' || coalesce(max(k), -1) FROM t";
    let joined = "SELECT count(*) || ' ' || coalesce(sum(d.id), 0) FROM d JOIN t ON t.k = d.k";
    vec![
        (aggregate, format!("{counted} WHERE {range}")),
        (scan, format!("{counted} WHERE {range}")),
        (PARALLEL, format!("{counted} WHERE k > {k}")),
        (stock, format!("{counted} WHERE {range}")),
        (aggregate, format!("SELECT count(*) FROM t WHERE tags @> ARRAY[{tag}]")),
        (aggregate, format!("SELECT count(*) FROM t WHERE tags && ARRAY[{tag}, 3]")),
        (
            scan,
            format!(
                "SELECT count(id) || ' ' || coalesce(sum(id), 0) FROM t \
                 WHERE {range} AND id % 3 = 0"
            ),
        ),
        (scan, format!("{joined} WHERE d.id < {}", 3 * k)),
        (
            aggregate,
            "SELECT string_agg(k || ':' || n, ' ') \
             FROM (SELECT k, count(*) n FROM t GROUP BY k ORDER BY k) s"
                .to_owned(),
        ),
    ]
}

/// Compares the answers of these queries with those of sequential scans, in one snapshot. Returns
/// how many plans in ten have an index-only scan or an aggregate in the index.
pub fn compare_index_only(session: &mut Session, random: &mut Random) -> usize {
    let (mut planned, queries) = (0, queries(random));
    let all = queries.len();
    for (settings, query) in queries {
        session.sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL nitro.enable_scan = off");
        let by_table = session.value(&query);
        session.sql(
            "SET LOCAL nitro.enable_scan = on; SET LOCAL enable_seqscan = off; \
             SET LOCAL enable_hashjoin = off",
        );
        session.sql(&format!(
            "SET LOCAL enable_mergejoin = off; SET LOCAL enable_material = off; {settings}"
        ));
        if !query.contains("tags") {
            session.sql("SET LOCAL enable_bitmapscan = off");
        }
        let plan = plan_of(session, &query);
        planned += usize::from(plan.contains("Index Only Scan") || plan.contains("NitroAggregate"));
        let by_index =
            session.try_sql(&query).unwrap_or_else(|error| panic!("{error}\nby: {query}"));
        session.sql("COMMIT");
        assert_eq!(by_index[0][0].as_deref(), Some(by_table.as_str()), "{settings}: {query}");
    }
    planned * 10 / all
}

/// The table that the queries of [`compare_index_only`] join.
pub const OUTER: &str = "CREATE TABLE d (id int, k int); \
    INSERT INTO d SELECT i, i * 7 % 50 FROM generate_series(1, 150) i; ANALYZE d";

/// Makes a table whose rows are in the order of their keys, and the table that its queries join.
fn pair() -> (Server, Server) {
    let primary = primary().conf("nitro.backup = off").start();
    primary.sql(
        "CREATE TABLE t (k int, v int, tags int[]) WITH (vacuum_truncate = off);
         INSERT INTO t SELECT i, i, ARRAY[i % 10] FROM generate_series(1, 20000) i;
         CREATE INDEX t_k ON t USING nitro (k, v);
         CREATE INDEX t_tags ON t USING nitro (tags);
         CREATE TABLE d AS SELECT i id, 100 * i k FROM generate_series(1, 60) i",
    );
    primary.sql("VACUUM (ANALYZE, FREEZE) t, d");
    let standby = primary.standby();
    await_followed(&standby);
    (primary, standby)
}

fn plan_of(session: &mut Session, query: &str) -> String {
    format!("{:?}", session.sql(&format!("EXPLAIN (COSTS OFF) {query}")))
}

fn signal(name: &str, pid: &str) {
    let done = Command::new("kill").args(["-s", name, pid]).status();
    assert!(done.is_ok_and(|status| status.success()), "kill -s {name} {pid}");
}

/// Removes rows on the primary, so that the bits of their pages are set, and waits until the
/// standby has replayed that.
fn vacuum(primary: &Server, standby: &Server) {
    primary.sql("VACUUM (INDEX_CLEANUP on, FREEZE) t");
    standby.catch_up(primary);
}

/// Switches a mechanism off in new sessions of a standby.
fn plant(standby: &Server, broken: &str) {
    standby.conf(&format!("nitro.debug_break = {broken}"));
    standby.reload();
    standby.wait_until(&format!("SELECT current_setting('nitro.debug_break') = '{broken}'"));
}

/// Runs `work` while the follower of a standby stands still.
fn without_follower<R>(standby: &Server, work: impl FnOnce() -> R) -> R {
    let follower = standby
        .value("SELECT pid FROM pg_stat_activity WHERE backend_type = 'nitro follower' LIMIT 1");
    signal("STOP", &follower);
    let result = work();
    signal("CONT", &follower);
    result
}

#[test]
fn a_standby_has_the_plans_of_its_primary() {
    let (primary, standby) = pair();
    // The follower packs what it has built, as CREATE INDEX does.
    for index in ["t_k", "t_tags"] {
        let used = format!(
            "(bytes - free_bytes) FROM pg_stat_nitro_indexes WHERE indexrelname = '{index}'"
        );
        let most = primary.value(&format!("SELECT {used}"));
        standby.wait_until(&format!("SELECT 1.25 * {most} > {used}"));
    }
    let mut session = standby.session();
    session.sql("SET enable_seqscan = off; SET max_parallel_workers_per_gather = 0");
    let plan = plan_of(&mut session, "SELECT k, v FROM t WHERE k < 300");
    assert!(plan.contains("Index Only Scan"), "{plan}");
    for query in ["SELECT count(*), sum(v) FROM t", "SELECT count(*) FROM t WHERE tags @> '{4}'"] {
        let plan = plan_of(&mut session, query);
        assert!(plan.contains("NitroAggregate"), "{plan}");
    }
    // Nothing was fetched from the table.
    session.sql("SET nitro.enable_aggregate = off; SET enable_bitmapscan = off");
    for fast in ["on", "off"] {
        let query =
            "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT v FROM t WHERE k < 300";
        let plan =
            format!("{:?}", session.sql(&format!("SET nitro.enable_fast_scan = {fast}; {query}")));
        assert!(plan.contains("Heap Fetches: 0"), "{plan}");
    }
}

/// A scan reads entries that the follower has not removed yet, of rows whose line pointers are free
/// and whose pages are all-visible again. Returns how many rows it finds of those that were
/// deleted.
fn rows_of_freed(
    (primary, standby): &(Server, Server),
    (from, broken, settings, cursor): (u32, &str, &str, &str),
) -> usize {
    let to = from + 50;
    primary.sql(&format!("DELETE FROM t WHERE k BETWEEN {from} AND {to}"));
    standby.catch_up(primary);
    plant(standby, broken);
    let mut session = standby.session();
    session.sql(&format!("{INDEX_ONLY}; {settings}"));
    session.sql(&format!("BEGIN; DECLARE c CURSOR FOR {cursor}"));
    assert_eq!(session.sql("FETCH 1 FROM c").len(), 1);
    let rows = without_follower(standby, || {
        vacuum(primary, standby);
        session.sql("FETCH ALL FROM c")
    });
    assert!(rows.len() > 1000, "{cursor}");
    session.sql("COMMIT");
    let freed = |row: &Vec<Option<String>>| {
        let k = row[0].as_deref().and_then(|k| k.parse::<u32>().ok());
        k.is_some_and(|k| (from..=to).contains(&k))
    };
    rows.into_iter().filter(freed).count()
}

#[test]
fn bits_behind_what_the_index_reflects_do_not_count() {
    let servers = pair();
    let stock = "SET nitro.enable_fast_scan = off";
    let cases = [
        ("", "SELECT k FROM t ORDER BY k"),
        (stock, "SELECT k FROM t ORDER BY k"),
        ("", "SELECT k FROM t ORDER BY k DESC"),
        (stock, "SELECT k FROM t ORDER BY k DESC"),
        ("", "SELECT k, count(*) FROM t GROUP BY k"),
    ];
    for (from, (settings, cursor)) in (1000..).step_by(2000).zip(cases) {
        assert_eq!(
            rows_of_freed(&servers, (from, "none", settings, cursor)),
            0,
            "{settings}, {cursor}"
        );
        // Planted: rows that were deleted before the snapshot was taken.
        let planted = rows_of_freed(&servers, (from + 1000, "follow_map", settings, cursor));
        assert!(planted > 0, "{settings}, {cursor}");
    }
}

/// While the follower stands still, a query that needs a newer index ends with an error. Without
/// the wait it misses rows.
#[test]
fn a_query_waits_for_what_was_replayed() {
    let (primary, standby) = pair();
    let count = "SELECT count(*) FROM t WHERE k BETWEEN 30000 AND 30009";
    let counted = |broken: &str| {
        plant(&standby, broken);
        let mut session = standby.session();
        session.sql(&format!("{INDEX_ONLY}; SET nitro.follow_timeout = 300"));
        session.try_sql(count).map(|rows| rows[0][0].clone())
    };
    without_follower(&standby, || {
        primary.sql("INSERT INTO t SELECT i, i, '{}' FROM generate_series(30000, 30009) i");
        standby.catch_up(&primary);
        assert!(counted("none").is_err_and(|error| error.message.contains("t_k")));
        // Planted: no row is found.
        assert_eq!(counted("follow_bound").ok().flatten().as_deref(), Some("0"));
    });
    plant(&standby, "none");
    let mut session = standby.session();
    session.sql(INDEX_ONLY);
    assert_eq!(session.value(count), "10");
}

/// The follower removes entries of line pointers that are free. Without that an index-only scan
/// finds rows that are gone.
#[test]
fn entries_of_freed_rows_go() {
    let (primary, standby) = pair();
    let mut found = Vec::new();
    for (broken, from) in [("none", 1000), ("follow_gone", 3000)] {
        plant(&standby, broken);
        let range = format!("k BETWEEN {from} AND {}", from + 50);
        primary.sql(&format!("DELETE FROM t WHERE {range}"));
        vacuum(&primary, &standby);
        let mut session = standby.session();
        session.sql(INDEX_ONLY);
        found.push(session.value(&format!("SELECT count(*) FROM t WHERE {range}")));
    }
    // Planted: rows are found.
    assert_eq!(found, ["0", "51"]);
}

/// An index is given up while queries read it, and is wanted again. Their answers stay those of the
/// table, and none fails.
#[test]
fn an_index_that_is_given_up_beside_its_readers() {
    let (primary, standby) = pair();
    primary.sql("DELETE FROM t WHERE k BETWEEN 1801 AND 3299");
    standby.catch_up(&primary);
    let mut session = standby.session();
    session.sql(INDEX_ONLY);
    session.sql("BEGIN ISOLATION LEVEL REPEATABLE READ");
    session.sql("DECLARE a CURSOR FOR SELECT k FROM t ORDER BY k; FETCH 1 FROM a");
    session.sql("DECLARE b CURSOR FOR SELECT d.id FROM d JOIN t ON t.k = d.k; FETCH 2 FROM b");
    session.sql("SET LOCAL nitro.enable_batched_joins = off");
    session.sql("DECLARE c CURSOR FOR SELECT d.id FROM d JOIN t ON t.k = d.k; FETCH 2 FROM c");
    session.sql("DECLARE d CURSOR FOR SELECT count(*) FROM t GROUP BY k; FETCH 1 FROM d");
    // Its memory stays as long as the transaction has locks.
    let followers = "FROM pg_stat_activity WHERE backend_type = 'nitro follower'";
    for (follow, n) in [("off", 0), ("on", 1)] {
        standby.conf(&format!("nitro.follow = {follow}"));
        standby.reload();
        // Each query asks for a follower.
        nitro_server_tests::wait_until(follow, || {
            standby.sql("SELECT FROM t WHERE tags @> '{1000}'");
            standby.value(&format!("SELECT count(*) {followers}")) == n.to_string()
        });
        let state = "SELECT string_agg(DISTINCT state, ' ') FROM pg_stat_nitro_indexes";
        assert_eq!(standby.value(state), "standby");
    }
    vacuum(&primary, &standby);
    primary.sql("INSERT INTO t SELECT i, -1, '{}' FROM generate_series(1801, 3299) i");
    standby.catch_up(&primary);
    for (cursor, rows) in [("a", 18_501 - 1), ("b", 46 - 2), ("c", 46 - 2), ("d", 18_501 - 1)] {
        assert_eq!(session.sql(&format!("FETCH ALL FROM {cursor}")).len(), rows, "{cursor}");
    }
    session.sql("COMMIT");
}

/// A query that computes an aggregate stands between two batches, or has read all elements, while
/// replay frees line pointers and sets bits. Returns its result, and the result of the table alone.
fn counted_beside(
    (primary, standby): &(Server, Server),
    (broken, query, pauses): (&str, &str, bool),
    delete: &str,
) -> (String, String) {
    plant(standby, broken);
    primary.sql(delete);
    standby.catch_up(primary);
    let by_table = standby.value(&format!("SET nitro.enable_scan = off; {query}"));
    let mut session = standby.session();
    session.sql("SET enable_seqscan = off; SET max_parallel_workers_per_gather = 0");
    let mut gate = standby.stop_at(&mut session, "AggregateAdds");
    let running = session.begin(query);
    gate.await_stopped();
    let rest = |gate: Gate| {
        vacuum(primary, standby);
        gate.open();
        running.finish().1.unwrap_or_else(|error| panic!("{error}"))
    };
    let rows = if pauses { without_follower(standby, || rest(gate)) } else { rest(gate) };
    (rows[0][0].clone().unwrap_or_default(), by_table)
}

#[test]
fn counts_beside_replay_of_vacuum() {
    let servers = pair();
    let sums = "SELECT count(*) || ' ' || sum(v) FROM t WHERE k > 0";
    // All elements are read before the first one is counted.
    let elements = "SELECT count(*) FROM t WHERE tags && '{4, 5}'";
    let one = "SELECT count(*) FROM t WHERE tags @> '{7}'";
    let cases = [
        (sums, true, "k BETWEEN 9000 AND 9400"),
        (elements, false, "v BETWEEN 100 AND 300"),
        (one, true, "v BETWEEN 3000 AND 3400"),
    ];
    for (query, pauses, some) in cases {
        let (by_index, by_table) = counted_beside(
            &servers,
            ("none", query, pauses),
            &format!("DELETE FROM t WHERE {some}"),
        );
        assert_eq!(by_index, by_table, "{query}");
        let more = some.replace("BETWEEN ", "BETWEEN 3 + ").replace("AND ", "AND 900 + ");
        // Planted: deleted rows are counted.
        let (by_index, by_table) = counted_beside(
            &servers,
            ("follow_map", query, pauses),
            &format!("DELETE FROM t WHERE {more}"),
        );
        assert_ne!(by_index, by_table, "{query}");
    }
}

/// A join has looked up some outer rows. Their entries go, recovery ends, and the index gets READY.
/// Returns how many rows the join finds of these.
fn joined_over_promotion(broken: &str) -> usize {
    let (primary, standby) = pair();
    primary.sql("DELETE FROM t WHERE k BETWEEN 1801 AND 3299");
    standby.catch_up(&primary);
    plant(&standby, broken);
    let mut session = standby.session();
    session.sql(INDEX_ONLY);
    let join = "SELECT d.id, t.k FROM d LEFT JOIN t ON t.k = d.k";
    let plan = plan_of(&mut session, join);
    assert!(plan.contains("Nested Loop") && plan.contains("Index Only Scan using t_k"), "{plan}");
    session.sql(&format!("BEGIN ISOLATION LEVEL REPEATABLE READ; DECLARE c CURSOR FOR {join}"));
    // The sixteen rows behind these are looked up with the last one.
    assert_eq!(session.sql("FETCH 17 FROM c").len(), 17);
    // These read on, also of rows that the new primary deletes.
    session.sql("DECLARE r CURSOR FOR SELECT k FROM t ORDER BY k; FETCH 100 FROM r");
    session.sql("DECLARE s CURSOR FOR SELECT count(*) FROM t GROUP BY k; FETCH 100 FROM s");
    session.sql("SET LOCAL nitro.enable_fast_scan = off");
    session.sql("DECLARE q CURSOR FOR SELECT k FROM t ORDER BY k; FETCH 100 FROM q");
    vacuum(&primary, &standby);
    standby.promote();
    standby.wait_until("SELECT bool_and(state = 'ready') FROM pg_stat_nitro_indexes");
    let rows = session.sql("FETCH ALL FROM c");
    assert_eq!(rows.len(), 60 - 17);
    if broken == "none" {
        standby.sql(
            "DELETE FROM t WHERE k > 15000; UPDATE t SET v = -v WHERE k BETWEEN 7000 AND 9000",
        );
        standby.sql("VACUUM t");
        standby.sql("INSERT INTO t SELECT i, i, '{1}' FROM generate_series(15001, 20000) i");
        let all = session.value("SET LOCAL nitro.enable_scan = off; SELECT count(*) FROM t");
        for cursor in ["r", "s", "q"] {
            let n = session.sql(&format!("FETCH ALL FROM {cursor}")).len();
            assert_eq!((100 + n).to_string(), all, "{cursor}");
        }
    }
    let dead = |row: &&Vec<Option<String>>| {
        let id = row[0].as_deref().and_then(|id| id.parse::<u32>().ok());
        row[1].is_some() && id.is_some_and(|id| (19..33).contains(&id))
    };
    rows.iter().filter(dead).count()
}

#[test]
fn what_was_looked_up_in_recovery_keeps_its_bound() {
    assert_eq!(joined_over_promotion("none"), 0);
    // Planted: rows that were deleted before the snapshot was taken.
    assert!(joined_over_promotion("follow_batch") > 0);
}

/// A table of two pages of the map, with rows on both sides of the border. It has holes: pages that
/// were never written are empty to the server.
#[test]
fn several_pages_of_the_map() {
    const BLOCKS: u64 = 32_672;
    let primary = primary().start();
    primary.sql(
        "CREATE TABLE t (k int, v int, pad text DEFAULT repeat('x', 390)) WITH (fillfactor = 80)",
    );
    // Both pages have bits at the same places.
    primary.sql("INSERT INTO t SELECT i * 619 % 2000, i FROM generate_series(601, 1100) i");
    let file = primary.data().join(primary.value("SELECT pg_relation_filepath('t')"));
    let file = std::fs::File::options().write(true).open(file);
    file.and_then(|file| file.set_len((BLOCKS - 10) * 8192)).expect("the file can be enlarged");
    // A new session knows of no page with room but the last one.
    primary.sql("INSERT INTO t SELECT i * 619 % 2000, i FROM generate_series(1, 600) i");
    primary.sql("CREATE INDEX t_k ON t USING nitro (k, v)");
    primary.sql("VACUUM t");
    primary.sql("UPDATE pg_class SET relallvisible = relpages WHERE relname = 't'");
    let standby = primary.standby();
    await_followed(&standby);
    let mut session = standby.session();
    session.sql(INDEX_ONLY);
    for change in [
        "DELETE FROM t WHERE v % 97 < 5",
        "UPDATE t SET v = v + 1000 WHERE v % 150 = 9",
        "VACUUM t",
    ] {
        primary.sql(change);
        standby.catch_up(&primary);
        let expected = primary.value(
            "SELECT count(*) || ' ' || sum(v) FROM t WHERE ctid < '(50,0)' OR ctid >= '(32600,0)'",
        );
        for settings in [
            "SET nitro.enable_aggregate = on; SET nitro.enable_fast_scan = on",
            "SET nitro.enable_aggregate = off",
            "SET nitro.enable_fast_scan = off",
        ] {
            session.sql(settings);
            let query = "SELECT count(*) || ' ' || sum(v) FROM t WHERE k >= 0";
            let plan = plan_of(&mut session, query);
            assert!(plan.contains("Index Only Scan"), "{plan}");
            assert_eq!(session.value(query), expected, "{change}, {settings}");
        }
    }
}

#!/usr/bin/env bash
# Queries that set bits of the visibility map (from 19 on): WAL without a change of rows, between an image and its use.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"
. "$(dirname "$0")/by_hand.sh"
[ "$(major)" -ge 19 ] || { note "left out: before 19 only VACUUM sets them"; exit 0; }
new_server "${by_hand[@]}"
sql "CREATE EXTENSION pageinspect; CREATE EXTENSION pg_visibility"
visible() { sql "SELECT all_visible FROM pg_visibility_map_summary('t')"; }
read_again() { tail -n 1 <<< "$(grep -E 'index "t_nitro" loaded' "$NITRO_TMP/main.log" | sed -E 's/.* ([0-9]+) blocks read again.*/\1/')"; }

sql "CREATE TABLE t (k int, pad text) WITH (autovacuum_enabled = off)"
for checksums in off hints; do
    note "a query between an image and a crash ($checksums)"
    [ "$checksums" = off ] || { settings "wal_log_hints = on"; restart; }
    sql "TRUNCATE t; INSERT INTO t SELECT i, repeat('x', 50) FROM generate_series(1, 20000) i"
    sql "CREATE INDEX IF NOT EXISTS t_nitro ON t USING nitro (k); CREATE INDEX IF NOT EXISTS t_btree ON t (k)"
    sql "DELETE FROM t WHERE k < 2000 AND k % 40 = 0"
    backup t_nitro
    assert_eq "pages visible to all before" "$(visible)" 0
    # Marks pages without dead rows, with a WAL record. Prunes the other pages.
    sql "SET nitro.enable_scan = off; SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off; SELECT sum(k) FROM t; SELECT count(pad) FROM t" > /dev/null
    n=$(visible); [ "$n" -gt 0 ] || fail "the query has marked no page"
    # Rows visible to all are read from the index alone.
    plan=$(sql "ANALYZE t; SET enable_seqscan = off; SET enable_bitmapscan = off; EXPLAIN SELECT k FROM t WHERE k > 15000")
    [[ $plan == *"Index Only Scan"* ]] || fail "$plan"
    sql "INSERT INTO t SELECT i, 'y' FROM generate_series(30001, 30100) i; DELETE FROM t WHERE k BETWEEN 100 AND 200"
    crash; start
    loaded t_nitro
    note "$n pages were marked, $(read_again) of $(sql "SELECT pg_relation_size('t') / 8192") blocks read again"
    verdict_queries=("SELECT k FROM t WHERE k BETWEEN 50 AND 400" "SELECT k FROM t WHERE k > 19000 ORDER BY k")
    verified t; same_answers t "${verdict_queries[@]}"

    note "queries alone, and the TIDs that they find dead are used again ($checksums)"
    sql "DELETE FROM t WHERE k BETWEEN 1000 AND 2000"; backup t_nitro
    sql "SET nitro.enable_scan = off; SELECT count(*) FROM t WHERE pad > ''; VACUUM (INDEX_CLEANUP on) t; INSERT INTO t SELECT i, repeat('z', 50) FROM generate_series(40001, 40900) i; SELECT count(*) FROM t WHERE pad > ''" > /dev/null
    crash; start
    loaded t_nitro
    verified t; same_answers t "${verdict_queries[@]}" "SELECT k FROM t WHERE k > 40500 ORDER BY k"
done

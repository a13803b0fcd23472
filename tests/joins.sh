#!/usr/bin/env bash
# Nested loops that look outer rows up ahead, and VACUUM: TIDs that the loops hold are not used again.
. "$(dirname "$0")/lib.sh"
new_server
plans="SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_bitmapscan = off; SET enable_memoize = off; SET enable_material = off; SET enable_sort = off"
event=NitroTidTokens
[ "$(major)" -ge 17 ] || event=Extension

# Dead rows are among the looked-up rows when the cursor stops: their entries are there, and their pages are
# not all-visible.
tables() {
    sql "CREATE TABLE o (k int) WITH (autovacuum_enabled = off); CREATE TABLE i (k int, v int) WITH (autovacuum_enabled = off);
         INSERT INTO o SELECT generate_series(1, 300); INSERT INTO i SELECT k, k FROM o; CREATE INDEX ON i USING nitro (k)"
    sql "VACUUM ANALYZE o, i"
    sql "SET nitro.enable_scan = off; DELETE FROM i WHERE k BETWEEN 20 AND 30"
}

index_only() { # FAST SCAN
    note "VACUUM beside an index-only inner side, nitro.enable_fast_scan = $1"
    tables; session reader; session vacuum
    local pid query="SELECT o.k FROM o JOIN i ON i.k = o.k"
    ask reader "$plans; SET nitro.enable_fast_scan = $1" > /dev/null
    [[ $(ask reader "EXPLAIN $query") == *"Index Only Scan"* ]] || fail "no index-only scan"
    # 1, 1, 2, 4, 8 rows, and then 16 at once.
    ask reader "BEGIN; DECLARE c CURSOR FOR $query; FETCH 17 FROM c" > /dev/null
    pid=$(ask vacuum "SELECT pg_backend_pid()")
    tell vacuum "VACUUM (INDEX_CLEANUP on) i"
    wait_until "SELECT state = 'idle' OR wait_event = '$event' FROM pg_stat_activity WHERE pid = $pid"
    assert_eq "rows" "$(ask reader "FETCH 3 FROM c" | xargs)" "18 19 31"
    assert_eq "VACUUM waits" "$(sql "SELECT wait_event FROM pg_stat_activity WHERE pid = $pid")" $event
    # The token that is held then is newer.
    ask reader "FETCH 2 FROM c" > /dev/null
    answer vacuum > /dev/null
    assert_eq "the rest" "$(ask reader "FETCH ALL FROM c" | wc -l)" $((300 - 11 - 22))
    ask reader "COMMIT" > /dev/null; end reader; end vacuum
    sql "SELECT nitro_verify('i_k_idx', true); DROP TABLE o, i" > /dev/null
}

rows_of_the_table() {
    note "VACUUM and rows in the place of those that it removes beside an inner side with rows of the table"
    tables; session reader
    ask reader "$plans; BEGIN; DECLARE c CURSOR FOR SELECT i.v FROM o JOIN i ON i.k = o.k; FETCH 17 FROM c" > /dev/null
    sql "VACUUM (INDEX_CLEANUP on) i"
    sql "INSERT INTO i SELECT k, -k FROM generate_series(1, 300) k"
    assert_eq "rows" "$(ask reader "FETCH 3 FROM c" | xargs)" "18 19 31"
    assert_eq "the rest" "$(ask reader "FETCH ALL FROM c" | grep -vc -)" $((300 - 11 - 20))
    ask reader "COMMIT" > /dev/null; end reader
    sql "SELECT nitro_verify('i_k_idx', true); DROP TABLE o, i" > /dev/null
}

at_its_end() {
    note "VACUUM beside a cursor that has come to its end"
    tables; session reader
    ask reader "$plans; BEGIN; DECLARE c CURSOR FOR SELECT o.k FROM o JOIN i ON i.k = o.k; FETCH ALL FROM c" > /dev/null
    [[ $(sql "SET statement_timeout = '60s'; VACUUM (VERBOSE, INDEX_CLEANUP on) i" 2>&1) == *"index scan needed"* ]] || fail "VACUUM had nothing to do"
    ask reader "COMMIT" > /dev/null; end reader
    sql "SELECT nitro_verify('i_k_idx', true); DROP TABLE o, i" > /dev/null
}

# A loop that is left, in several ways, leaves nothing that VACUUM would wait for.
left_behind() {
    note "loops that fail, are cancelled, closed and rolled back"
    tables; session reader
    local query="SELECT o.k FROM o JOIN i ON i.k = o.k" n
    ask reader "$plans; SET statement_timeout = 0" > /dev/null
    for n in "ROLLBACK" "CLOSE c" "SELECT 1 / 0; ROLLBACK" "SAVEPOINT a; FETCH 3 FROM c; ROLLBACK TO a"; do
        ask reader "BEGIN; DECLARE c CURSOR FOR $query; FETCH 17 FROM c" > /dev/null
        ask reader "$n" > /dev/null
        sql "SET nitro.enable_scan = off; DELETE FROM i WHERE k = (SELECT min(k) FROM i)"
        if [[ $n == SAVEPOINT* ]]; then ask reader "CLOSE c" > /dev/null; fi
        sql "SET statement_timeout = '60s'; VACUUM (INDEX_CLEANUP on) i"
        ask reader "ROLLBACK" > /dev/null
    done
    ask reader "BEGIN; SET LOCAL statement_timeout = 50; SELECT count(*) FROM (SELECT i.v, pg_sleep(0.01) FROM o JOIN i ON i.k = o.k) q; SELECT 1" > /dev/null
    sql "SET statement_timeout = '60s'; VACUUM (INDEX_CLEANUP on) i"
    ask reader "ROLLBACK" > /dev/null; end reader
    sql "SELECT nitro_verify('i_k_idx', true); DROP TABLE o, i" > /dev/null
}

# The server frees nothing of a cursor that fails in a savepoint, until the transaction ends.
failed_in_a_savepoint() { # QUERY
    note "a FETCH fails in a savepoint: $1"
    tables; session reader
    ask reader "$plans; SET statement_timeout = 0; BEGIN; DECLARE c CURSOR FOR $1; FETCH 3 FROM c; SAVEPOINT a" > /dev/null
    [[ $(ask reader "FETCH ALL FROM c" 2>&1) == *"division by zero"* ]] || fail "it did not fail"
    ask reader "ROLLBACK TO a" > /dev/null
    sql "SET statement_timeout = '60s'; VACUUM (INDEX_CLEANUP on) i"
    assert_eq "the transaction goes on" "$(ask reader "SELECT count(*) FROM i")" 289
    ask reader "ROLLBACK" > /dev/null; end reader
    sql "SELECT nitro_verify('i_k_idx', true); DROP TABLE o, i" > /dev/null
}

run index_only on
run index_only off
run rows_of_the_table
run at_its_end
run left_behind
run failed_in_a_savepoint "SELECT 1 / (k - 50) FROM i"
run failed_in_a_savepoint "SELECT 1 / (i.k - 50) FROM o JOIN i ON i.k = o.k"
run failed_in_a_savepoint "SELECT sum(1 / (k - 50)) OVER (ORDER BY k) FROM i GROUP BY k"

#!/usr/bin/env bash
# Serializable transactions. One stands between its check for readers and its entry. The server checks
# before the entry exists, and locks the whole index for a reader. A reader in between does not find the
# entry, and that check misses it. Orders of whole statements are in specs/serializable.spec and in the
# server's own tests (tests/core/run.sh).
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
new_server -c "nitro.backup = off" -c "max_worker_processes = 1" -c "default_transaction_isolation = serializable"
sql "CREATE TABLE t (k int, v int) WITH (autovacuum_enabled = off); INSERT INTO t SELECT i, i FROM generate_series(1, 2000) i
    ; CREATE INDEX t_k_nitro ON t USING nitro (k); CREATE TABLE e (a int[]); INSERT INTO e SELECT ARRAY[i, i + 1] FROM generate_series(1, 2000) i; CREATE INDEX e_a_nitro ON e USING nitro (a)
    ; VACUUM ANALYZE t, e" 2> /dev/null

one_fails() { # HOW they read, PLAN, TABLE, 'SELECT' of nothing, 'VALUES' that it would have found
    note "$1"
    local pid out plans="SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_indexscan = off; SET enable_indexonlyscan = off; SET $2 = on"
    session writer; session reader; session control
    ask writer "$plans; SET nitro.debug_stop = 'InsertInHeap'" > /dev/null; ask reader "$plans" > /dev/null
    [[ $(ask reader "EXPLAIN $4") == *"$3"_*_nitro* ]] || fail "another plan: $(ask reader "EXPLAIN $4")"
    pid=$(ask writer "SELECT pg_backend_pid()")
    ask control "SELECT pg_advisory_lock(1852404850, $pid)" > /dev/null
    assert_eq "the writer reads" "$(ask writer "BEGIN; $4")" 0
    tell writer "INSERT INTO $3 VALUES $5"
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = $pid AND NOT granted"
    assert_eq "the reader reads" "$(ask reader "BEGIN; $4")" 0
    ask control "SELECT pg_advisory_unlock_all()" > /dev/null
    out=$(answer writer)
    out+=$(ask reader "INSERT INTO $3 VALUES $5")$(ask writer "COMMIT")$(ask reader "COMMIT")
    [[ $out == *"could not serialize access"* ]] || fail "both have read nothing, and both have inserted: $out"
    end writer; end reader; end control
    sql "TRUNCATE e; DELETE FROM t WHERE k > 2000; VACUUM t; INSERT INTO e SELECT ARRAY[i, i + 1] FROM generate_series(1, 2000) i; ANALYZE e"
}
one_fails "an index scan" enable_indexscan t "SELECT count(v) FROM t WHERE k BETWEEN 3000 AND 4000" "(3500, 1)"
one_fails "an index-only scan" enable_indexonlyscan t "SELECT count(*) FROM t WHERE k > 3000" "(3500, 1)"
one_fails "a bitmap scan" enable_bitmapscan t "SELECT count(v) FROM t WHERE k > 3000" "(3500, 1)"
one_fails "a bitmap scan of elements" enable_bitmapscan e "SELECT count(*) FROM e WHERE a @> '{3500}'" "('{3500}')"

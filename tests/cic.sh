#!/usr/bin/env bash
# CREATE INDEX CONCURRENTLY and REINDEX CONCURRENTLY beside writers.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/writers.sh"
note "seed $NITRO_SEED"
rounds=${LONG:+20}; rounds=${rounds:-3}
new_server -c "log_min_messages = error"

sql "CREATE TABLE t (id bigserial PRIMARY KEY, k int, s text, n int DEFAULT 0) WITH (fillfactor = 80)"
sql "INSERT INTO t (k, s) SELECT (random() * 1000)::int, md5(i::text) FROM generate_series(1, 20000) i; ANALYZE t"
check() {
    verified t
    same_answers t "SELECT k FROM t WHERE k > -500 ORDER BY k DESC" "SELECT id, k, s, n FROM t WHERE s COLLATE \"C\" > '3'" \
        "SELECT k FROM t WHERE k IN (5, 17, 400, 900) ORDER BY k" "SELECT id FROM t WHERE n % 7 = 1 AND k > 100"
}
declare -A definition=([k]="(k)" [s]="(s COLLATE \"C\", id) INCLUDE (n)" [p]="((n % 7), k) WHERE n > 0" [x]="((k * 2)) WHERE k < 500")
for kind in k s p x; do sql "CREATE INDEX t_${kind}_btree ON t ${definition[$kind]}"; done
sql "CREATE INDEX t_all_btree ON t ((n % 7), k)"
start_writers 500 25000
for round in $(seq "$rounds"); do
    for kind in k s p x; do sql "CREATE INDEX CONCURRENTLY t_${kind}_nitro ON t USING nitro ${definition[$kind]}"; done
    sql "CREATE INDEX CONCURRENTLY t_all_nitro ON t USING nitro ((n % 7), k)"
    sql "VACUUM (INDEX_CLEANUP on) t"
    stop_writers; check; start_writers 500 25000
    for kind in k s p x all; do sql "REINDEX INDEX CONCURRENTLY t_${kind}_nitro"; done
    sql "REINDEX TABLE CONCURRENTLY t"
    stop_writers; check; start_writers 500 25000
    # With an older snapshot, for which the drop waits.
    session old
    ask old "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t" > /dev/null
    old_rows=$(ask old "SET nitro.enable_scan = off; SELECT count(*), sum(k) FROM t")
    sql "VACUUM (INDEX_CLEANUP on) t"
    sql "DROP INDEX CONCURRENTLY t_k_nitro" & drop=$!
    assert_eq "the old snapshot" "$(ask old "SET nitro.enable_scan = on; SET enable_seqscan = off; SELECT count(*), sum(k) FROM t WHERE k > -100000 OR k IS NULL")" "$old_rows"
    ask old "COMMIT" > /dev/null; end old; wait "$drop"
    sql "CREATE INDEX CONCURRENTLY t_k_nitro ON t USING nitro (k)"
    [ "$round" = "$rounds" ] || for kind in k s p x all; do sql "DROP INDEX CONCURRENTLY t_${kind}_nitro"; done
done
stop_writers; check

note "a cancelled CREATE INDEX CONCURRENTLY leaves an invalid index that hurts nobody"
session idle; session build
ask idle "BEGIN; UPDATE t SET n = n + 1 WHERE id = (SELECT min(id) FROM t)" > /dev/null
pid=$(ask build "SELECT pg_backend_pid()")
tell build "CREATE INDEX CONCURRENTLY t_left_nitro ON t USING nitro (k)"
wait_until "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $pid"
sql "SELECT pg_cancel_backend($pid)" > /dev/null
[[ $(answer build) == *"canceling statement"* ]] || fail "not cancelled"
ask idle "COMMIT" > /dev/null; end idle; end build
assert_eq "invalid" "$(sql "SELECT indisvalid FROM pg_index WHERE indexrelid = 't_left_nitro'::regclass")" f
sql "INSERT INTO t (k, s) SELECT i, 'x' FROM generate_series(1, 500) i; DELETE FROM t WHERE k < 50; VACUUM (INDEX_CLEANUP on) t"
crash; start
sql "INSERT INTO t (k, s) SELECT i, 'x' FROM generate_series(1, 500) i; VACUUM (INDEX_CLEANUP on) t"
check
sql "REINDEX INDEX CONCURRENTLY t_left_nitro"
check
note "CREATE INDEX CONCURRENTLY ends in a crash"
session idle; session build
ask idle "BEGIN; UPDATE t SET n = n + 1 WHERE id = (SELECT min(id) FROM t)" > /dev/null
tell build "REINDEX INDEX CONCURRENTLY t_left_nitro"
wait_until "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'REINDEX%' AND wait_event_type = 'Lock'"
crash; start; end idle; end build
sql "INSERT INTO t (k, s) SELECT i, 'x' FROM generate_series(1, 500) i"
check
sql "DROP INDEX IF EXISTS t_left_nitro_ccnew; REINDEX INDEX CONCURRENTLY t_left_nitro"
check

note "an estimate by a GIN index that nobody has made yet"
sql "CREATE TABLE g AS SELECT ARRAY[i, i % 7] AS tags FROM generate_series(1, 1000) i; ANALYZE g"
session writer
ask writer "BEGIN; INSERT INTO g VALUES ('{1}')" > /dev/null
! PGOPTIONS="-c statement_timeout=300ms" "${PSQL[@]}" -p "$(port)" -c "CREATE INDEX CONCURRENTLY g_gin ON g USING gin (tags)" 2> /dev/null || fail "the index was made"
ask writer "COMMIT" > /dev/null; end writer
assert_eq "its file" "$(sql "SELECT pg_relation_size('g_gin')")" 0
assert_eq "its estimate" "$(sql "SELECT nitro_estimate_size('g_gin') > 0")" t

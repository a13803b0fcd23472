#!/usr/bin/env bash
# REPACK in all its forms (from 19 on) beside writers, where it fails, and where its session ends in the middle.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/writers.sh"
[ "$(major)" -ge 19 ] || { note "left out: REPACK came with 19"; exit 0; }
note "seed $NITRO_SEED"
rounds=${LONG:+20}; rounds=${rounds:-2}
new_server -c "log_min_messages = error" -c "deadlock_timeout = 200ms"

sql "CREATE TABLE t (id bigserial PRIMARY KEY, k int, s text, n int DEFAULT 0, a int[]) WITH (fillfactor = 80)"
sql "INSERT INTO t (k, s, a) SELECT (random() * 1000)::int, md5(i::text), ARRAY[i % 7, i % 11] FROM generate_series(1, 10000) i; ANALYZE t"
sql "CREATE INDEX t_k_nitro ON t USING nitro (k); CREATE INDEX t_s_nitro ON t USING nitro (s COLLATE \"C\" DESC) INCLUDE (n);
     CREATE INDEX t_p_nitro ON t USING nitro (k, id) WHERE n % 2 = 0; CREATE INDEX t_x_nitro ON t USING nitro ((k % 100));
     CREATE INDEX t_a_nitro ON t USING nitro (a array_ops)"
for i in k:k s:'s COLLATE "C" DESC' x:'(k % 100)'; do sql "CREATE INDEX t_${i%%:*}_btree ON t (${i#*:})"; done
check() {
    verified t
    same_answers t "SELECT k FROM t WHERE k > -500 ORDER BY k DESC" "SELECT id, k, s, n FROM t WHERE s COLLATE \"C\" > '3'" \
        "SELECT id, k FROM t WHERE k % 100 BETWEEN 5 AND 9"
    assert_eq "rows by element" "$(sql "SET enable_seqscan = off; SELECT count(*), sum(id) FROM t WHERE a @> '{5}'")" \
        "$(sql "SET nitro.enable_scan = off; SELECT count(*), sum(id) FROM t WHERE a @> '{5}'")"
}
forms=("REPACK t" "REPACK t USING INDEX t_pkey" "REPACK t USING INDEX t_k_nitro"
    "REPACK (CONCURRENTLY) t" "REPACK (CONCURRENTLY) t USING INDEX t_pkey" "REPACK (CONCURRENTLY) t USING INDEX t_s_nitro"
    "REPACK (CONCURRENTLY, ANALYZE) t")
for ((round = 1; round <= rounds; round++)); do
    note "round $round"
    start_writers 300 12000 a 'ARRAY[:k % 7]'
    # Each in a session that has not touched nitro before, and that ends afterwards.
    for form in "${forms[@]}"; do sql "$form" > /dev/null; verified t; done
    stop_writers; check
    sql "VACUUM (INDEX_CLEANUP on) t"; check
    crash; start; check
done

note "the order of a nitro index is the order of the table"
sql "REPACK t USING INDEX t_k_nitro"
assert_eq "rows behind a larger one" "$(sql "SELECT count(*) FROM (SELECT k, lag(k) OVER (ORDER BY ctid) AS before FROM t) q WHERE k < before")" 0

note "an index that cannot be built ends the command, and nothing else"
sql "CREATE TABLE e (id int PRIMARY KEY, k int); INSERT INTO e SELECT i, i FROM generate_series(1, 1000) i"
sql "CREATE FUNCTION public.checked(i int, at int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
     'BEGIN IF i = at AND current_setting(''test.fail'', true) = ''on'' THEN RAISE ''no''; END IF;
      IF i = at AND current_setting(''test.wait'', true) = ''on'' THEN PERFORM pg_advisory_xact_lock_shared(1); END IF; RETURN i; END'"
sql "CREATE INDEX e_k_nitro ON e USING nitro (k); CREATE INDEX e_x_nitro ON e USING nitro (public.checked(k, 500))"
ready e_k_nitro e_x_nitro
memory="SELECT used, indexes FROM nitro_memory"
for form in "REPACK e" "REPACK (CONCURRENTLY) e" "REPACK (CONCURRENTLY) e USING INDEX e_k_nitro"; do
    sql "VACUUM e"; before=$(sql "$memory")
    session s; ask s "SET test.fail = on" > /dev/null
    [[ $(ask s "$form") == *"no"* ]] || fail "$form does not fail"
    assert_eq "the session goes on" "$(ask s "SELECT nitro_verify('e_k_nitro', true)")" 1000
    end s
    wait_until "SELECT '$before' = (SELECT used || '|' || indexes FROM nitro_memory)"
    verified e; assert_eq "rows" "$(sql "SET enable_seqscan = off; SELECT count(*) FROM e WHERE k > 100")" 900
done

note "its session is terminated while it builds an index"
for form in "REPACK e" "REPACK (CONCURRENTLY) e"; do
    sql "VACUUM e"; before=$(sql "$memory")
    session keeper; ask keeper "SELECT pg_advisory_lock(1)" > /dev/null
    session s; ask s "SET test.wait = on" > /dev/null; pid=$(ask s "SELECT pg_backend_pid()")
    tell s "$form"
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE pid = $pid AND locktype = 'advisory' AND NOT granted"
    sql "SELECT pg_terminate_backend($pid)" > /dev/null
    wait_until "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid"
    end s; end keeper
    wait_until "SELECT '$before' = (SELECT used || '|' || indexes FROM nitro_memory)"
    verified e
    sql "REPACK (CONCURRENTLY) e"; verified e
done
crash; start; verified e

[ "$(logged 'terminated by signal|is not the latest entry')" = 0 ] || fail "a process has crashed"

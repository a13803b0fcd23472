#!/usr/bin/env bash
# Without shared_preload_libraries: clear errors, no crash, the table stays readable, DROP works, and a
# server that gets the library back has its indexes back.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"

says() { # WHAT STATEMENT: fails with the one error that explains itself
    local out
    out=$("${PSQL[@]}" -p "$(port)" -v VERBOSITY=verbose -v ON_ERROR_STOP=1 -c "$2" 2>&1) && fail "$1 should have failed"
    [[ $out =~ 55000.*'nitro must be loaded by "shared_preload_libraries"' ]] || fail "$1: $out"
    [[ $out == *HINT:*shared_preload_libraries* ]] || fail "$1: no HINT: $out"
}

note "never preloaded"
new_server -c "shared_preload_libraries = ''"
sql "CREATE TABLE t (i int, s text)"
sql "INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, 1000) i"
says "CREATE INDEX" "CREATE INDEX t_i_nitro ON t USING nitro (i)"
says "CREATE INDEX on an empty table" "CREATE TABLE e (i int); CREATE INDEX ON e USING nitro (i)"
says "CREATE UNLOGGED" "CREATE UNLOGGED TABLE u (i int); CREATE INDEX ON u USING nitro (i)"
says "CREATE INDEX CONCURRENTLY" "CREATE INDEX CONCURRENTLY t_i_nitro ON t USING nitro (i)"
sql "DROP INDEX IF EXISTS t_i_nitro"
says "memory view" "SELECT * FROM nitro_memory"
says "index view" "SELECT * FROM pg_stat_nitro_indexes"
assert_eq "the table" "$(sql "SELECT count(*), sum(i) FROM t")" "1000|500500"
sql "SET nitro.enable_scan = off; RESET nitro.enable_scan"
sql "DROP EXTENSION nitro CASCADE"
assert_eq "the same server" "$(logged 'was terminated by signal')" 0

note "preload taken away from a server that has indexes"
node=second
new_server
sql "CREATE TABLE t (i int, s text, d timestamp)"
sql "INSERT INTO t SELECT i, 'row ' || i, '2020-01-01'::timestamp + i * interval '1 min' FROM generate_series(1, 20000) i"
sql "CREATE INDEX t_i_nitro ON t USING nitro (i)"
sql "CREATE INDEX t_s_nitro ON t USING nitro (s COLLATE \"C\", d DESC) WHERE i % 2 = 0"
sql "CREATE INDEX t_i_btree ON t (i)"
sql "CREATE UNLOGGED TABLE u AS SELECT i FROM t; CREATE INDEX u_nitro ON u USING nitro (i)"
same_answers t "SELECT i FROM t WHERE i BETWEEN 100 AND 900 ORDER BY i"
stop
cp "$(data)/postgresql.conf" "$NITRO_TMP/with"
settings "shared_preload_libraries = ''"
start
for q in "SELECT count(*) FROM t WHERE i = 77" "SELECT i FROM t WHERE i BETWEEN 5 AND 9 ORDER BY i" "SELECT max(i), min(i) FROM t" \
    "SELECT count(*) FROM t WHERE i IN (1, 5, 9)" "SELECT count(*) FROM u WHERE i < 50" \
    "SELECT count(*) FROM t a JOIN t b USING (i) WHERE a.i < 10"; do
    [[ $(sql "SET enable_seqscan = off; EXPLAIN $q") != *_nitro* ]] || fail "planned with an index that cannot work: $q"
done
assert_eq "reads" "$(sql "SET enable_seqscan = off; SELECT i FROM t WHERE i BETWEEN 5 AND 9 ORDER BY i")" $'5\n6\n7\n8\n9'
says "INSERT" "INSERT INTO t VALUES (0, '', now())"
says "non-HOT UPDATE" "UPDATE t SET i = -i WHERE i = 5"
says "COPY" "COPY t FROM PROGRAM 'echo 1,a,2020-01-01' (FORMAT csv)"
says "REINDEX" "REINDEX INDEX t_i_nitro"
says "verify" "SELECT nitro_verify('t_i_nitro', true)"
says "VACUUM FULL" "VACUUM FULL t"
says "TRUNCATE" "TRUNCATE t"
sql "DELETE FROM t WHERE i = 20000"
# Nothing is in memory, so nothing holds up VACUUM: an anti-wraparound VACUUM must get through.
sql "VACUUM (INDEX_CLEANUP on, FREEZE) t"
sql "ANALYZE t"
assert_eq "nothing lost" "$(sql "SELECT count(*), sum(i) FROM t")" "19999|199990000"
"$NITRO_BIN/pg_dump" -p "$(port)" > "$NITRO_TMP/dump" || fail "pg_dump"
sql "DROP INDEX t_s_nitro"
says "INSERT into an unlogged table" "INSERT INTO u SELECT 1"
sql "DROP TABLE u"
assert_eq "no crash" "$(logged 'was terminated by signal')" 0
stop
cp "$NITRO_TMP/with" "$(data)/postgresql.conf"
start
ready t_i_nitro
sql "INSERT INTO t VALUES (0, 'zero', now())"
verified t
same_answers t "SELECT i FROM t WHERE i BETWEEN 0 AND 900 ORDER BY i DESC" "SELECT i FROM t WHERE i > 19990"
sql "VACUUM t"
verified t
sql "DROP TABLE t; DROP EXTENSION nitro"

note "a server that pg_upgrade starts has the library, and no process of the background"
working="SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'nitro%'"
wait_until "SELECT ($working) > 0"
stop
"$NITRO_BIN/pg_ctl" -D "$(data)" -l "$NITRO_TMP/$node.log" -t 300 -w -o -b start > "$NITRO_TMP/pg_ctl.out" || fail "no start"
sleep 1
assert_eq "at work" "$(sql "$working")" 0
stop

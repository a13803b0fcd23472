#!/usr/bin/env bash
# After any end of a server or of one backend: right answers, indexes rebuilt on demand.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
note "seed $NITRO_SEED"
rows=${LONG:+300000}; rows=${rows:-15000}
new_server -c "nitro.backup = off"

sql "CREATE TABLE t (i int, s text, d timestamptz, n numeric, pad text DEFAULT 'x')"
fill() { # FROM TO
    sql "INSERT INTO t SELECT i, CASE WHEN i % 50 <> 0 THEN md5((i / 2)::text) END, '2024-01-01'::timestamptz + i % 977 * interval '1 h', i % 1009 / 7.0
         FROM generate_series($1, $2) i"
}
fill 1 "$rows"
for kind in nitro btree; do
    sql "CREATE INDEX t_i_$kind ON t USING $kind (i)"
    sql "CREATE INDEX t_s_$kind ON t USING $kind (s COLLATE \"C\" DESC NULLS LAST, i)"
    sql "CREATE INDEX t_d_$kind ON t USING $kind (d, n) INCLUDE (i)"
    sql "CREATE INDEX t_e_$kind ON t USING $kind ((i % 100)) WHERE n > 50"
done
sql "VACUUM ANALYZE t"
check() { # WHAT
    verified t
    same_answers t "SELECT i FROM t WHERE i > $rows - 3000 ORDER BY i" "SELECT i FROM t WHERE i < 3000 ORDER BY i DESC" \
        "SELECT s, i FROM t WHERE s COLLATE \"C\" > 'f' ORDER BY s COLLATE \"C\" DESC NULLS LAST, i" \
        "SELECT d, n, i FROM t WHERE d < '2024-01-10'" "SELECT i % 100 AS m FROM t WHERE n > 50 AND i % 100 IN (3, 5, 7) ORDER BY i % 100" \
        "SELECT pad, i FROM t WHERE s COLLATE \"C\" IS NULL" ||
        fail "$1"
}
check "before"

note "clean restart: the worker builds after the first query that would use the index"
restart
assert_eq "state" "$(state t_i_nitro)" unbuilt
from=$(log_end)
[[ $(sql "EXPLAIN (COSTS OFF) SELECT * FROM t WHERE i = 1") != *_nitro* ]] || fail "an unbuilt index was planned"
built t_i_nitro
[ "$(logged 'nitro index "t_i_nitro" rebuilt from its table: [0-9]+ entries in [0-9]+ ms' "$from")" = 1 ] || fail "no LOG line of the rebuild"
sql "SET enable_seqscan = off; SELECT count(*) FROM t WHERE i % 100 = 1 AND n > 50" > /dev/null
built t_e_nitro
check "clean restart"

note "inserts while the index is unbuilt, built after them"
restart
fill $((rows + 1)) $((rows + 500)); rows=$((rows + 500))
assert_eq "an insert builds nothing" "$(state t_i_nitro)" unbuilt
sql "UPDATE t SET i = -i WHERE i BETWEEN 100 AND 200; DELETE FROM t WHERE i BETWEEN 300 AND 400"
check "inserts before the build"

note "immediate stop"
sql "UPDATE t SET i = i + 1 WHERE i % 97 = 0"
restart immediate; check "immediate stop"

note "kill -9 of everything"
sql "DELETE FROM t WHERE i % 89 = 0"; fill $((rows + 1)) $((rows + 500)); rows=$((rows + 500))
crash; start; check "crash"

# One backend dies in the middle of a statement. The server restarts its processes.
background() { # STATEMENT: runs it again and again until told to stop; sets pid to its backend
    : > "$NITRO_TMP/go"
    (
        while [ -f "$NITRO_TMP/go" ]; do
            PGAPPNAME=victim "${PSQL[@]}" -p "$(port)" <<< "$1" || sleep 0.1
        done > /dev/null 2>&1
    ) &
    background=$!
    wait_until "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'victim' AND state = 'active'"
}
victim() { sql "SELECT pid FROM pg_stat_activity WHERE application_name = 'victim' ORDER BY pid LIMIT 1"; }
die() { # WHAT: kills it at some moment of its work
    random 300; sleep "0.$(printf %03d "$REPLY")"
    until kill_backend "$(victim)"; do :; done
    rm "$NITRO_TMP/go"
    wait "$background" || true
    check "$1"
}
note "kill -9 of a backend in an insert storm, VACUUM, CREATE INDEX, a rebuild"
background "INSERT INTO t SELECT 1000000 + i, md5(i::text), now(), i FROM generate_series(1, 5000) i"
die "killed in an insert storm"
sql "DELETE FROM t WHERE i > 1000000"
background "UPDATE t SET n = n + 1 WHERE i % 5 = 0; VACUUM (INDEX_CLEANUP on) t"
die "killed in VACUUM"
background "CREATE INDEX more_nitro ON t USING nitro (n, i); DROP INDEX more_nitro"
die "killed in CREATE INDEX"
sql "DROP INDEX IF EXISTS more_nitro"
restart
# Slow enough to be caught in the middle.
sql "CREATE FUNCTION slowly(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN IF i % 10 = 0 THEN PERFORM pg_sleep(0.001); END IF; RETURN i; END'"
sql "CREATE INDEX t_slow_nitro ON t USING nitro (slowly(i))"
restart
background "SELECT nitro_verify('t_slow_nitro')"
die "killed in a rebuild"
sql "DROP INDEX t_slow_nitro"

note "several backends ask at once"
restart
for i in 1 2 3 4 5; do session "s$i"; done
for i in 1 2 3 4 5; do tell "s$i" "SELECT nitro_verify('t_s_nitro', true)"; done
want=$(sql "SELECT count(*) FROM t")
for i in 1 2 3 4 5; do assert_eq "backend $i" "$(answer "s$i")" "$want"; end "s$i"; done
assert_eq "one rebuild" "$(logged 't_s_nitro" rebuilt' "$(grep -n 'ready to accept' "$NITRO_TMP/main.log" | tail -1 | cut -d: -f1)")" 1

note "a statement_timeout shorter than the rebuild: it goes on where it was"
sql "CREATE TABLE big AS SELECT i, md5(i::text) s FROM generate_series(1, ${LONG:+1}150000) i; CREATE INDEX big_nitro ON big USING nitro (i, s COLLATE \"C\")"
sql "VACUUM ANALYZE big"
restart
start_ms=$(date +%s%3N); ready big_nitro; whole=$(($(date +%s%3N) - start_ms))
restart
timeout_ms=$((whole / 5 + 20)) tries=0 walked=0 stuck=0
until "${PSQL[@]}" -p "$(port)" -v ON_ERROR_STOP=1 -c "SET statement_timeout = $timeout_ms" -c "SELECT nitro_verify('big_nitro')" > "$NITRO_TMP/out" 2>&1; do
    grep -q "statement timeout" "$NITRO_TMP/out" || fail "$(cat "$NITRO_TMP/out")"
    [ "$(state big_nitro)" != ready ] || break
    now=$(sql "SELECT heap_blocks_walked FROM pg_stat_nitro_indexes WHERE indexrelid = 'big_nitro'::regclass")
    now=${now:-0}              # the time may be over before the rebuild begins
    [ "$now" -ge "$walked" ] || fail "progress lost: $walked blocks, then $now"
    if [ "$now" -gt "$walked" ]; then stuck=0; else stuck=$((stuck + 1)); fi
    walked=$now tries=$((tries + 1))
    [ "$stuck" -lt 20 ] || fail "no progress: 20 times $timeout_ms ms at $walked blocks; a whole rebuild takes $whole ms"
done
note "rebuild of $whole ms under statement_timeout = $timeout_ms ms: $((tries + 1)) attempts"
verified big

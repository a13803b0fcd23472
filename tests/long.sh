#!/usr/bin/env bash
# Long values after a crash, by images and without, on a promoted standby, in little memory of the area and
# of the process. Their answers are tested by sql/long.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"

new_server -c "nitro.max_memory = 400MB" -c "nitro.backup_workers = 2" -c "max_parallel_workers_per_gather = 0" -c "jit = off"
sql "CREATE FUNCTION value(i int) RETURNS text LANGUAGE sql AS \$\$ SELECT CASE i % 4 WHEN 0 THEN i::text WHEN 1 THEN repeat('x', i * 997 % 240000) || i
         WHEN 2 THEN (SELECT left(string_agg(md5(g || ' ' || i), ''), i * 1009 % 50000) FROM generate_series(0, 1600) g) ELSE repeat(chr(97 + i % 26), 900000 + i) END \$\$"
words
sql "CREATE TABLE t (id serial, s text); INSERT INTO t (s) SELECT value(i) FROM generate_series(1, 80) i"
sql "CREATE INDEX t_s_nitro ON t USING nitro (s COLLATE \"C\", id); CREATE INDEX t_words_nitro ON t USING nitro (s COLLATE words, id)"
check() {
    verified t
    same_answers t "SELECT id, md5(s) FROM t WHERE s COLLATE \"C\" > 'm' ORDER BY s COLLATE \"C\", id" "SELECT id FROM t WHERE s COLLATE words > 'm' ORDER BY s COLLATE words, id"
}
changed() {
    sql "INSERT INTO t (s) SELECT value(i) FROM generate_series($1, $1 + 8) i; UPDATE t SET s = s || 'u' WHERE id % 11 = 0; DELETE FROM t WHERE id % 13 = 5"
}

note "images"
imaged t_s_nitro t_words_nitro
changed 1000
for how in crash "restart immediate" restart; do
    from=$(log_end)
    case $how in crash) crash; start ;; *) $how ;; esac
    for i in t_s_nitro t_words_nitro; do built $i; assert_eq "$i after $how" "$(came_from $i "$from")" image; done
    check
    images_right t_s_nitro t_words_nitro
    checkpointed t_s_nitro t_words_nitro
    changed $((2000 + from % 1000))
done

note "a rebuild, with memory for a few values at a time"
setting maintenance_work_mem 1MB
stop
rm -rf "$(data)/pg_nitro"/*
from=$(log_end)
start
ready t_s_nitro t_words_nitro
for i in t_s_nitro t_words_nitro; do assert_eq "$i" "$(came_from $i "$from")" table; done
check
setting maintenance_work_mem 64MB

note "a value that is too long changes nothing, also while the index is not there"
for what in "INSERT INTO t (s) VALUES (repeat('x', 1048500))" "UPDATE t SET s = repeat('x', 1048500) WHERE id = 4"; do
    [[ $(sql_fails "$what") == 54000* ]] || fail "$what"
done
check

note "no memory of the area for one more: 53200, and the index goes on"
sql "CREATE TABLE f (s text); CREATE INDEX f_nitro ON f USING nitro (s COLLATE \"C\") WITH (max_memory = '4MB')"
[[ $(sql_fails "INSERT INTO f SELECT repeat(chr(96 + i), 1000000) FROM generate_series(1, 10) i") == 53[24]00* ]] || fail "no limit"
sql "INSERT INTO f SELECT repeat(chr(96 + i), 1000000) FROM generate_series(1, 2) i; INSERT INTO f SELECT i FROM generate_series(1, 1000) i"
assert_eq "rows" "$(sql "SELECT nitro_verify('f_nitro', true) >= 1002")" t
sql "DROP TABLE f"

note "no memory of the process"
base=$(sql "CREATE FUNCTION mapped() RETURNS int LANGUAGE sql AS \$\$ SELECT substring(pg_read_file('/proc/self/status') FROM 'VmSize:\s*(\d+)')::int \$\$; SELECT mapped()")
started=$(sql "SELECT pg_postmaster_start_time(), pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")
declare -A seen
for mb in 2 5 9 150; do
    for what in "SELECT count(s) FROM t WHERE s COLLATE \"C\" > 'm'" "SELECT sum(length(s)) FROM (SELECT s FROM t ORDER BY s COLLATE words DESC, id DESC) q" "SELECT nitro_verify('t_words_nitro', false)" \
        "INSERT INTO t (s) VALUES (repeat('q', 1000000))" "SELECT nitro_backup('t_words_nitro')"; do
        session limited
        prlimit --pid "$(ask limited 'SELECT pg_backend_pid()')" --as=$(((base + mb * 1024) * 1024)): 2> /dev/null
        out=$(ask limited "\\set VERBOSITY sqlstate"$'\n'"SET enable_seqscan = off; SET enable_sort = off; $what") || out="ERROR: no answer"
        end limited
        case $out in *ERROR*) out=$(sed -n 's/.*ERROR: *//p' <<< "$out" | head -n 1) ;; *) out=ok ;; esac
        # 22023: the server's error when a collator gets no memory.
        case $out in ok | 53200 | 22023) seen[$out]=1 ;; *) fail "$what with $mb MB: $out" ;; esac
    done
done
[ -n "${seen[ok]:-}" ] && [ -n "${seen[53200]:-}" ] || fail "the limits do not tell apart"
assert_eq "no restart" "$(sql "SELECT pg_postmaster_start_time(), pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")" "$started"
assert_eq "no crash" "$(grep -cE 'terminated by|reinitializing|memory allocation of' "$NITRO_TMP/main.log" || true)" 0
check

note "a promoted standby"
from_port=$(port)
node=standby
"$NITRO_BIN/pg_basebackup" -h "$NITRO_TMP" -p "$from_port" -D "$(data)" -X stream -c fast -R 2>&1 || fail "pg_basebackup"
echo 5433 > "$(data)/nitro.port"
settings "port = 5433"
start
node=main
changed 4000
lsn=$(sql "SELECT pg_current_wal_flush_lsn()")
node=standby
wait_until "SELECT pg_last_wal_replay_lsn() >= '$lsn'"
sql "SELECT pg_promote()" > /dev/null
wait_until "SELECT NOT pg_is_in_recovery()"
[[ $(sql_fails "INSERT INTO t (s) VALUES (repeat('x', 1048500))") == 54000* ]] || fail "no limit on the standby"
check

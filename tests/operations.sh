#!/usr/bin/env bash
# The view of an operator: the log at start, the holders of memory, and the state after a restart. The
# messages when memory is short, when files are damaged or cannot be written, and when the preload is
# missing.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"
in_folders
log() { grep -cE "$1" "$NITRO_TMP/$node.log" || true; }
said() { [ "$(log "$1")" -gt 0 ] || fail "the log does not say: $1"; }
state() { sql "SELECT state FROM pg_stat_nitro_indexes WHERE indexrelname = '$1'"; }

note "the area, and who holds it"
new_server -c "nitro.max_memory = 64MB" -c "nitro.max_indexes = 100"
said 'LOG:  nitro: 64 MB of shared memory for at most 100 indexes'
sql "CREATE DATABASE other"
psql -XqAt -p "$(port)" -d other -c "CREATE EXTENSION nitro" -c "CREATE TABLE o AS SELECT i FROM generate_series(1, 200000) i" \
    -c "CREATE INDEX o_i ON o USING nitro (i)"
sql "CREATE TABLE t AS SELECT i, md5(i::text) AS s FROM generate_series(1, 100000) i; CREATE INDEX t_i ON t USING nitro (i)"
assert_eq "by database" "$(sql "SELECT string_agg(datname || ' ' || indexes || ' ' || (bytes > 200000), ',' ORDER BY datname) FROM nitro_memory_by_database")" \
    "other 1 true,postgres 1 true"
sql "CREATE ROLE watcher; GRANT CREATE ON SCHEMA public TO watcher; CREATE ROLE monitor IN ROLE pg_monitor"
for who in "watcher postgres" "monitor other,postgres"; do
    assert_eq "seen by ${who% *}" "$(sql "SET ROLE ${who% *}; SELECT string_agg(datname, ',' ORDER BY datname) FROM nitro_memory_by_database")" "${who#* }"
    assert_eq "indexes seen by ${who% *}" "$(sql "SET ROLE ${who% *}; SELECT string_agg(datname || coalesce(' ' || indexrelname, ''), ',' ORDER BY datname) FROM nitro_indexes_all")" \
        "$(sed -E 's/(postgres)/\1 t_i/' <<< "${who#* }")"
done
assert_eq "it sums up" "$(sql "SELECT sum(d.bytes) <= m.used AND sum(d.bytes) > m.used / 2 FROM nitro_memory m, nitro_memory_by_database d GROUP BY m.used")" t
out=$("${PSQL[@]}" -p "$(port)" -v VERBOSITY=verbose -c "CREATE INDEX t_s ON t USING nitro (s, decode(repeat(s, 20), 'hex'))" \
    -c "CREATE INDEX t_s2 ON t USING nitro (s, decode(repeat(s, 20), 'hex'))" 2>&1 || true)
[[ $out == *'53200: out of nitro memory'*'(database "postgres": '*' bytes, database "other": '*' bytes, others: '*nitro_memory_by_database* ]] || fail "$out"
out=$("${PSQL[@]}" -p "$(port)" -c "ALTER TABLE t OWNER TO watcher; SET ROLE watcher" -c "CREATE INDEX t_s3 ON t USING nitro (s, decode(repeat(s, 20), 'hex'))" 2>&1 || true)
[[ $out == *'(database "postgres": '*' bytes, others: '* && $out != *other\"* ]] || fail "one who may not know of other databases: $out"
sql "ALTER TABLE t OWNER TO postgres"

note "wrong relations"
sql "CREATE TABLE p (i int) PARTITION BY RANGE (i); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (9); CREATE INDEX p_i ON p USING nitro (i)"
sql "CREATE INDEX t_b ON t (i)"
for what in p_i t_b t; do
    for call in "nitro_verify" "nitro_backup"; do
        assert_eq "$call('$what')" "$(sql_fails "SELECT $call('$what')" | cut -c 1-5)" 42809
    done
done
[[ $(sql_fails "SELECT nitro_backup('p_i')") == *'"p_i"' ]] || fail "the index is not named"
# The origin of an error: not the line that raises all of them.
out=$("${PSQL[@]}" -p "$(port)" -v VERBOSITY=verbose -c "SELECT nitro_verify('t')" 2>&1 || true)
[[ $out == *"LOCATION:"*verify.rs* ]] || fail "$out"

note "files that cannot be written, and damaged ones"
backup t_i
sql "INSERT INTO t SELECT i FROM generate_series(200001, 200100) i"
chmod a-w "$(data)"/pg_nitro/*/*
out=$(tried t_i)
chmod u+w "$(data)"/pg_nitro/*/*
[[ $out == *WARNING*pg_nitro/*[Pp]"ermission denied"* ]] || fail "$out"
counts() { sql "SELECT builds, loads, images > 0, images_failed > 0 FROM pg_stat_nitro_indexes WHERE indexrelname = 't_i'"; }
assert_eq "it is counted" "$(counts)" "1|0|t|t"
crash; start
ready t_i
assert_eq "loaded" "$(counts)" "0|1|f|f"
backup t_i
crash
for f in "$(data)"/pg_nitro/*/*/*/shard-0; do printf 'x' | dd of="$f" bs=1 seek=5000 conv=notrunc status=none; done
start
ready t_i
said 'WARNING:  nitro index "t_i": its image is not used: bad checksum'

note "not touched since the start"
setting nitro.backup off
crash
rm -r "$(data)/pg_nitro"
start
assert_eq "state" "$(state t_i)" unbuilt
assert_eq "rows" "$(sql "SELECT count(*), count(relid), count(schemaname), count(scans) FROM pg_stat_nitro_indexes")" "3|3|3|3"

note "less memory than the indexes need"
stop
settings "nitro.max_memory = 16MB" "log_line_prefix = '%m [%p] %b %e '"
start
for _ in $(seq 600); do
    sql "SET enable_seqscan = off; SELECT count(*) FROM t WHERE s = 'x'" > /dev/null
    [ "$(log 'WARNING:  nitro could not .*out of nitro memory')" = 0 ] || break
    sleep 0.1
done
said ' 53200 WARNING:  nitro could not .*: out of nitro memory'

note "without the preload"
stop
settings "shared_preload_libraries = ''" "log_error_verbosity = default"
start
sql "CREATE DATABASE third"
out=$(psql -XqAt -p "$(port)" -d third -c "CREATE EXTENSION nitro" 2>&1)
[[ $out == *WARNING*'nitro must be loaded by "shared_preload_libraries"'*HINT* ]] || fail "CREATE EXTENSION is silent: $out"
sql_fails "SELECT nitro_memory_stats()" > /dev/null
assert_eq "settings stay" "$(log 'invalid configuration parameter name|removing it')" 0

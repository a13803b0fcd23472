#!/usr/bin/env bash
# The memory of the area: raised and lowered by a reload, given back to the operating system, refused by it, and
# fresh after a crash in the same postmaster.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"

file() { # the file in memory, as the postmaster has it open
    local f
    for f in "/proc/$(postmaster)/fd"/*; do
        [[ $(readlink "$f") != "/memfd:nitro"* ]] || { echo "$f"; return; }
    done
    fail "the postmaster has no file in memory"
}
held() { stat -L -c '%b' "$(file)" | awk '{ print $1 * 512 }'; } # bytes of the operating system's memory
mappings() { # of the postmaster: where they are, and how many descriptors
    grep -F /memfd:nitro "/proc/$(postmaster)/maps" | cut -d ' ' -f 1
    find "/proc/$(postmaster)/fd" -lname '/memfd:nitro*' | wc -l
}
limit() { # MB, by a reload; what the area says, not what a session has read
    setting nitro.max_memory "${1}MB"
    wait_until "SELECT total = $1 * 1024 * 1024 FROM nitro_memory"
}
committed() { sql "SELECT committed FROM nitro_memory"; }
full() { # STATEMENT: 53200, and the area is full
    local out
    out=$("${PSQL[@]}" -p "$(port)" -v VERBOSITY=verbose -c "$1" 2>&1) && fail "should be out of memory: $1"
    [[ $out == *"53200: "* && $out == *HINT:*'Raise "nitro.max_memory"'* && $out != *"operating system"* ]] || fail "$out"
}
MB=$((1024 * 1024))

# A pool of huge pages comes last if the kernel has one. Otherwise the kernel is asked for transparent ones.
free=$(awk '/^HugePages_Free/ { print $2 }' /proc/meminfo)
new_server -c "huge_pages = $([ "$free" = 0 ] && echo try || echo off)" -c "nitro.max_memory = 16MB" -c "nitro.reserved_memory = 256MB" -c "checkpoint_timeout = 1h" \
    -c "nitro.backup = off" -c "max_connections = 20"
[ "$(logged 'LOG:  nitro: 16 MB of shared memory for at most 4096 indexes, .*huge pages.*; up to 256 MB')" = 1 ] || fail "the log at start"
assert_eq "reserved" "$(sql "SELECT reserved FROM nitro_memory")" $((256 * MB))
empty=$(committed)
[ "$empty" -le $((4 * MB)) ] || fail "an empty area takes $empty bytes"
[ "$(held)" -le $((empty + MB)) ] || fail "an empty area takes $(held) bytes of the system"
assert_eq "in /dev/shm" "$(stat -L -c %d "$(file)" | grep -cx "$(stat -c %d /dev/shm)" || true)" 0
sql "CREATE TABLE big AS SELECT i, repeat(md5(i::text), 8) AS s FROM generate_series(1, 80000) i"
sql "CREATE TABLE small AS SELECT i, md5(i::text) AS s FROM big; CREATE INDEX small_btree ON small (i)"

note "raised and lowered with data"
make="CREATE INDEX big_nitro ON big USING nitro (s COLLATE \"C\")"
sql "CREATE INDEX small_nitro ON small USING nitro (i); CREATE INDEX big_btree ON big (s COLLATE \"C\")"
full "$make"
limit 128
sql "$make"
much=$(committed)
[ "$much" -gt $((16 * MB)) ] || fail "the index is too small: $much bytes"
[ "$(held)" -ge "$much" ] || fail "$much bytes are committed, and the system has given $(held)"
limit 16
query="SELECT s FROM big WHERE s COLLATE \"C\" > 'e' ORDER BY s COLLATE \"C\""
same_answers big "$query"
verified big
assert_eq "free" "$(sql "SELECT free, largest_free FROM nitro_memory")" "0|0"
full "CREATE INDEX small_s_nitro ON small USING nitro (s)"
full "INSERT INTO big SELECT i, 'more' || i || s FROM big"
limit 128
sql "INSERT INTO big SELECT i, 'more' || i FROM generate_series(1, 1000) i"
same_answers big "$query"
verified big
limit 16
sql "DROP INDEX big_nitro"
wait_until "SELECT committed <= total AND free > 0 FROM nitro_memory"
sql "CREATE INDEX small_s_nitro ON small USING nitro (s)"
verified small
sql "DROP INDEX small_s_nitro"

note "no further than what is reserved"
[[ $(sql_fails "ALTER SYSTEM SET nitro.max_memory = '257MB'") == 22023:* ]] || fail "257MB is taken"
settings "nitro.max_memory = 300MB"; sql "ALTER SYSTEM RESET nitro.max_memory; SELECT pg_reload_conf()" > /dev/null
wait_until "SELECT pg_read_file('../main.log') LIKE '%invalid value for parameter \"nitro.max_memory\": 300%'"
assert_eq "total" "$(sql "SELECT total FROM nitro_memory")" $((16 * MB))
# The default is larger: without the setting it is all reserved memory, also after a crash.
sed -i '/nitro.max_memory/d' "$(data)/postgresql.conf"; sql "SELECT pg_reload_conf()" > /dev/null
wait_until "SELECT total = 256 * 1024 * 1024 FROM nitro_memory"
kill_backend "$(sql "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")"
wait_until "SELECT total = 256 * 1024 * 1024 FROM nitro_memory"
settings "nitro.max_memory = 128MB"; sql "SELECT pg_reload_conf()" > /dev/null
wait_until "SELECT total = 128 * 1024 * 1024 FROM nitro_memory"

note "given back to the system"
sql "DROP INDEX small_nitro"
wait_until "SELECT committed = $empty FROM nitro_memory"
before=$(held)
for _ in 1 2 3; do
    sql "$make"
    [ "$(held)" -gt $((before + 16 * MB)) ] || fail "the index takes nothing"
    sql "DROP INDEX big_nitro"
    [ "$(held)" -le $((before + 2 * MB)) ] || fail "$before bytes grew to $(held)"
done
sql "$make"; one=$(held)
sql "DELETE FROM big WHERE i % 10 <> 0; VACUUM big; VACUUM big"
note "after VACUUM of nine rows in ten $(held) bytes of $one are held, $(sql "SELECT used FROM nitro_memory") are used"
[ "$(held)" -lt "$one" ] || fail "$(held) bytes of $one are held"
verified big
sql "DELETE FROM big; VACUUM big; VACUUM big"
[ "$(held)" -le $((before + 4 * MB)) ] || fail "an empty index: $before bytes grew to $(held)"
verified big
sql "DROP INDEX big_nitro; TRUNCATE big; INSERT INTO big SELECT i, repeat(md5(i::text), 8) FROM generate_series(1, 20000) i"

note "some grow while others give back"
storm() { # one session's part
    local i out
    for i in $(seq 15); do
        out=$("${PSQL[@]}" -p "$(port)" -v ON_ERROR_STOP=1 -v VERBOSITY=verbose -c "CREATE INDEX storm_${1}_nitro ON storm_$1 USING nitro (s)" \
            -c "DROP INDEX storm_${1}_nitro" 2>&1) || [[ $out == *"53200: "*'Raise "nitro.max_memory"'* ]] || { echo "$out"; return 1; }
    done
}
before=$(committed) storms=()
for i in 1 2 3 4; do sql "CREATE TABLE storm_$i AS SELECT repeat(md5(i::text), 8) AS s FROM generate_series(1, 30000) i"; done
for i in 1 2 3 4; do storm $i > "$NITRO_TMP/storm.$i" & storms+=($!); done
for _ in $(seq 20); do random 3; limit $((16 + REPLY * 8)); done
for i in 1 2 3 4; do wait "${storms[i - 1]}" || fail "$(cat "$NITRO_TMP/storm.$i")"; done
wait_until "SELECT committed = $before FROM nitro_memory"
assert_eq "sum" "$(sql "SELECT used + free + overhead = total FROM nitro_memory")" t
limit 128

note "refused by the system"
refused() { # STATEMENT [USED]: a session gets nothing from its n-th request on, for each n, until it needs no more
    local n out
    for n in $(seq 40); do
        if out=$("${PSQL[@]}" -p "$(port)" -v ON_ERROR_STOP=1 -v VERBOSITY=verbose \
            -c "SET nitro.debug_fail_commit = $n" -c "$1" 2>&1); then break; fi
        [[ $out == *"53200: "*"the operating system has no more memory"* && $out == *HINT:* ]] || fail "request $n: $out"
        assert_eq "rows after request $n" "$(sql "SELECT count(*) FROM t")" 0
        [ -z "${2:-}" ] || assert_eq "used after request $n" "$(sql "SELECT used FROM nitro_memory")" "$2"
    done
    note "$n requests: $1"
    [ "$n" -gt 3 ] && [ "$n" -lt 40 ] || fail "$n requests"
}
sql "CREATE TABLE t (LIKE big)"
refused "$make" "$(sql "SELECT used FROM nitro_memory")"
verified big
same_answers big "$query"
sql "CREATE INDEX t_nitro ON t USING nitro (s COLLATE \"C\")"
refused "INSERT INTO t SELECT * FROM big"
verified t
sql "DROP TABLE t"

note "fresh after a crash in the same postmaster"
sql "DROP INDEX big_nitro; CREATE INDEX small_nitro ON small USING nitro (i)"
there=$(mappings) started=$(postmaster) before=$(held)
[ "$(wc -l <<< "$there")" -ge 2 ] || fail "no mapping: $there"
for i in $(seq 20); do
    sql "CREATE INDEX big_$i ON big USING nitro (s)" # comes back when it is asked for; here nobody does
    if [ $((i % 2)) = 0 ]; then
        kill_backend "$(sql "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")"
    else # one who is taking memory: each statement does so some ten times, and nothing else for long
        session taking
        pid=$(ask taking "SELECT pg_backend_pid()") held=$(held)
        tell taking "DO 'BEGIN LOOP DROP INDEX IF EXISTS taken; COMMIT; CREATE INDEX taken ON big USING nitro (s); COMMIT; END LOOP; END'"
        until [ "$(held)" != "$held" ]; do :; done
        kill_backend "$pid"
        end taking
    fi
    wait_until "SELECT true"
    [ "$(sql "SELECT used FROM nitro_memory")" -le $((4 * MB)) ] || fail "the area is not empty after crash $i"
    assert_eq "mappings after crash $i" "$(mappings)" "$there"
    [ "$(held)" -le $((before + 2 * MB)) ] || fail "crash $i: $before bytes grew to $(held)"
    assert_eq "in motion after crash $i" "$(committed)" "$empty"
    verified small # brings it up
    same_answers small "SELECT i FROM small WHERE i BETWEEN 100 AND 200 ORDER BY i"
    sql "DROP INDEX big_$i"
done
assert_eq "the postmaster" "$(postmaster)" "$started"

note "less than what was there, over a crash"
sql "DROP INDEX IF EXISTS taken; INSERT INTO big SELECT i, repeat(md5(i::text), 8) FROM generate_series(20001, 80000) i; $make"
limit 16
kill_backend "$(sql "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")"
wait_until "SELECT total = 16 * 1024 * 1024 FROM nitro_memory"
verified small
[[ $(sql_fails "SELECT nitro_verify('big_nitro', true)") == 53200:* ]] || fail "80 000 rows of 256 bytes in 16 MB"
limit 128
verified big
same_answers big "$query"
sql "DROP INDEX big_nitro; ALTER SYSTEM RESET nitro.max_memory"

note "other ways to start"
stop
settings "nitro.reserved_memory = '64GB'"
(ulimit -v $((32 * 1024 * 1024)); "$NITRO_BIN/pg_ctl" -D "$(data)" -l "$NITRO_TMP/main.log" -w start > "$NITRO_TMP/pg_ctl.out") &&
    fail "it starts without addresses"
[ "$(logged 'FATAL:  could not reserve addresses for 65[0-9]* MB of nitro.s memory: Cannot allocate memory')" = 1 ] || fail "no FATAL about addresses"
settings "nitro.reserved_memory = '256MB'"
[[ $("$NITRO_BIN/postgres" --single -D "$(data)" postgres <<< "SELECT nitro_verify('small_nitro', true) AS n" 2>&1) == *'n = "80000"'* ]] ||
    fail "single-user mode"
start
verified small
stop
settings "nitro.reserved_memory = 64MB"
"$NITRO_BIN/pg_ctl" -D "$(data)" -l "$NITRO_TMP/main.log" -w start > "$NITRO_TMP/pg_ctl.out" && fail "it starts with less than max_memory reserved"
[ "$(logged 'FATAL:  "nitro.max_memory" must not be larger than "nitro.reserved_memory"')" = 1 ] || fail "no FATAL"
settings "nitro.reserved_memory = '256GB'"
start
assert_eq "reserved" "$(sql "SELECT reserved FROM nitro_memory")" $((256 * 1024 * MB))
verified small
stop
settings "nitro.max_memory = '256GB'" "nitro.reserved_memory = 0"
start
assert_eq "total" "$(sql "SELECT total, used + free + overhead = total FROM nitro_memory")" "$((256 * 1024 * MB))|t"
verified small
[ "$(held)" -lt $((64 * MB)) ] || fail "256 GB take $(held) bytes"

note "huge pages"
if [ "$free" -lt 64 ] || [ "$free" -gt 512 ]; then
    note "left out: the kernel's pool has $free free, wanted are 64 to 512"
else
    sql "DROP TABLE IF EXISTS big"
    stop
    settings "huge_pages = on" "shared_buffers = 16MB" "nitro.max_memory = 16MB" "nitro.reserved_memory = 2GB"
    start
    [ "$(logged 'LOG:  nitro: 16 MB of shared memory for at most 4096 indexes, huge pages; up to 2048 MB')" = 1 ] || fail "the log at start"
    verified small
    settings "nitro.max_memory = 2GB"; sql "SELECT pg_reload_conf()" > /dev/null
    wait_until "SELECT total = 2048::bigint * 1024 * 1024 FROM nitro_memory"
    sql "CREATE TABLE wide AS SELECT i, repeat(md5(i::text), 64) AS s FROM generate_series(1, $((free * 1200))) i"
    out=$("${PSQL[@]}" -p "$(port)" -v VERBOSITY=verbose -c "CREATE INDEX wide_nitro ON wide USING nitro (s)" 2>&1) && fail "more than the pool has"
    [[ $out == *"53200: "*"the operating system has no more memory"* ]] || fail "$out"
    verified small
    same_answers small "SELECT i FROM small WHERE i BETWEEN 100 AND 200 ORDER BY i"
    kill_backend "$(sql "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")"
    verified small
fi

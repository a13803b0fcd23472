#!/usr/bin/env bash
# A server in a memory cgroup, and a server on a machine with vm.overcommit_memory = 2. The user of the
# tests can set neither, so a part is left out where its condition is missing:
#   NITRO_TEST_CGROUP   a folder of a memory cgroup (v1 or v2) without processes. The user of the test may write to it
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"
rows() { echo "INSERT INTO t SELECT i, repeat(md5(i::text), 17) FROM generate_series($1, $2) i"; }
table() { sql "CREATE TABLE t (i int, s text); CREATE INDEX t_nitro ON t USING nitro (s COLLATE \"C\"); CREATE INDEX t_btree ON t (s COLLATE \"C\"); $(rows 1 1000)"; }
answers() { verified t; same_answers t "SELECT i FROM t WHERE s COLLATE \"C\" > 'e'"; }
full() { # the server says so
    local out
    out=$("${PSQL[@]}" -p "$(port)" -v VERBOSITY=verbose -c "$(rows 1001 400000)" 2>&1) && fail "there is memory"
    [[ $out == *"53200: out of nitro memory"*DETAIL:*HINT:* ]] || fail "$out"
}

group=${NITRO_TEST_CGROUP:-}
in_a_cgroup() { # LIMIT
    local limit=memory.max
    [ -e "$group/$limit" ] || limit=memory.limit_in_bytes
    echo "$1" > "$group/$limit"
    # Processes that are started from there are in it, too.
    (echo "$BASHPID" > "$group/cgroup.procs" && start)
    grep -q "^$(postmaster)\$" "$group/cgroup.procs" || fail "the server is not in its cgroup"
}
killed() { logged 'was terminated by signal 9'; }
if [ -n "$group" ]; then
    note "a cgroup with room for nitro.max_memory beside all else"
    new_server -c "nitro.max_memory = 64MB" -c "shared_buffers = 32MB" -c "max_parallel_maintenance_workers = 0"
    stop; in_a_cgroup 256M
    table; full; answers
    sql "CHECKPOINT; SELECT nitro_backup()" > /dev/null
    sql "DELETE FROM t; VACUUM t; $(rows 1 5000)"; full; answers
    assert_eq "killed" "$(killed)" 0

    note "a cgroup that is smaller: the kernel may kill, as it does everywhere"
    stop; settings "nitro.max_memory = 1GB"; in_a_cgroup 96M
    "${PSQL[@]}" -p "$(port)" -c "$(rows 10001 150000)" > "$NITRO_TMP/said" 2>&1 || true
    note "$(head -n 1 "$NITRO_TMP/said" | cut -c 1-100); killed: $(killed)"
    [ "$(killed)" -gt 0 ] || grep -q "out of nitro memory" "$NITRO_TMP/said" || fail "neither killed nor refused"
    # Whichever process was killed: with more memory the server comes back.
    "$NITRO_BIN/pg_ctl" -D "$(data)" -m immediate -w stop > "$NITRO_TMP/said" 2>&1 || rm -f "$(data)/postmaster.pid"
    in_a_cgroup 1G; answers
    stop
else
    note "left out: no cgroup (NITRO_TEST_CGROUP)"
fi

if [ "$(cat /proc/sys/vm/overcommit_memory)" = 2 ]; then
    note "vm.overcommit_memory = 2: what is only reserved is not counted"
    node=strict limit=$(sed -n 's/^CommitLimit: *\([0-9]*\) kB/\1/p' /proc/meminfo)
    new_server -c "nitro.max_memory = 64MB" -c "nitro.reserved_memory = $((limit * 2 / 1024))MB"
    table; full; answers
    crash; start; answers
    setting nitro.max_memory 256MB; sql "$(rows 20001 60000)"; answers
    stop
else
    note "left out: vm.overcommit_memory is $(cat /proc/sys/vm/overcommit_memory)"
fi

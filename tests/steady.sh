#!/usr/bin/env bash
# In the steady state a look-up and an insert take no lock and make no system call of their own. A debugger
# counts both while statements of few and of many rows run. The server's own ones are the same without the
# index.
. "$(dirname "$0")/lib.sh"
few=100 many=300
command -v gdb > /dev/null || { note "left out: no gdb here"; exit 0; }
new_server -c "nitro.backup = off" -c "jit = off" -c "max_parallel_workers_per_gather = 0"
session s
pid=$(ask s "SELECT pg_backend_pid()")
gdb -nx -q -batch -p "$pid" -ex detach > "$NITRO_TMP/gdb" 2>&1 && ! grep -q 'ptrace:\|Could not attach' "$NITRO_TMP/gdb" ||
    { note "left out: no process may be looked at here ($(grep -m 1 'ptrace' "$NITRO_TMP/gdb"))"; exit 0; }

# counted STATEMENT: sets locks and calls, counted between two marks.
counted() {
    : > "$NITRO_TMP/gdb"
    gdb -nx -q -batch -p "$pid" -ex "break pg_sleep" -ex "continue" \
        -ex "break LWLockAcquire" -ex "ignore 2 1000000000" -ex "break LWLockConditionalAcquire" -ex "ignore 3 1000000000" \
        -ex "catch syscall" -ex "ignore 4 1000000000" -ex "continue" -ex "info breakpoints" > "$NITRO_TMP/gdb" 2>&1 &
    local gdb=$!
    # From here on statements sent to the session wait for the debugger.
    until grep -q '^Breakpoint 1 at' "$NITRO_TMP/gdb"; do kill -0 $gdb || fail "gdb: $(cat "$NITRO_TMP/gdb")"; sleep 0.1; done
    ask s "SELECT pg_sleep(0); $1; SELECT pg_sleep(0)" > "$NITRO_TMP/answer"
    wait $gdb || { cat "$NITRO_TMP/gdb"; fail "gdb"; }
    read -r locks calls < <(awk '/^[0-9]+ / { number = $1 }
        /already hit/ { n = $0; gsub(/[^0-9]/, "", n); hit[number] = n }
        END { print hit[2] + hit[3], int(hit[4] / 2) }' "$NITRO_TMP/gdb")
}
# least STATEMENT: the least of three times. Now and then a process reports statistics or receives
# invalidations.
least() {
    local i l=1000000 c=1000000
    for i in 1 2 3; do
        counted "$1"
        l=$((locks < l ? locks : l)) c=$((calls < c ? calls : c))
    done
    locks=$l calls=$c
}
# growth STATEMENT: the cost of the rows between few and many. @ is their number.
growth() {
    local l c
    ask s "${1//@/$few}" > "$NITRO_TMP/answer"
    least "${1//@/$few}"; l=$locks c=$calls
    least "${1//@/$many}"
    locks=$((locks - l)) calls=$((calls - c))
}
# none WHAT STATEMENT [LOCKS CALLS]: fails if more rows cost more than these, or than nothing. A busy
# machine disturbs it. So it measures three times: a lock for each row shows each time.
none() {
    local more_locks more_calls
    for _ in 1 2 3; do
        growth "$2"
        note "$1: $locks locks, $calls system calls"
        more_locks=$((locks - ${3:-0})) more_calls=$((calls - ${4:-0}))
        [ ${more_locks#-} -gt 12 ] || [ ${more_calls#-} -gt 12 ] || return 0
    done
    fail "$1: $more_locks locks and $more_calls system calls more for $((many - few)) rows more"
}

sql "CREATE TABLE t AS SELECT i, md5(i::text) AS s FROM generate_series(1, 20000) i;
     CREATE INDEX ON t USING nitro (i); CREATE INDEX ON t USING nitro (s); CREATE TABLE b AS SELECT i FROM t; CREATE INDEX ON b (i); VACUUM ANALYZE t; VACUUM ANALYZE b"
ask s "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_material = off; SET enable_memoize = off" > /dev/null
look_ups() { echo "SELECT count(*) FROM generate_series(1, @) g JOIN $1"; }
for join in "t ON t.i = g" "t ON t.s = md5(g::text)"; do
    [[ $(ask s "EXPLAIN $(look_ups "$join" | sed s/@/9/)") == *"Index Only Scan"* ]] || fail "another plan"
    none "look-ups, $join" "$(look_ups "$join")"
done
# Shows that the debugger sees locks: a btree locks each page.
growth "$(look_ups "b ON b.i = g")"
note "look-ups in a btree: $locks locks"
[ "$locks" -ge $((many - few)) ] || fail "the debugger does not see locks"

# The same rows go into tables that differ only in the index.
sql "CREATE TABLE plain (i int, s text); CREATE TABLE indexed (i int, s text); CREATE INDEX ON indexed USING nitro (i); CREATE INDEX ON indexed USING nitro (s)"
insert() { echo "INSERT INTO $1 SELECT hashint4(g + (SELECT count(*)::int FROM t)), md5(g::text) FROM generate_series(1, @) g"; }
for table in plain indexed; do ask s "$(insert $table | sed s/@/20000/)" > /dev/null; done
growth "$(insert plain)"
note "inserts without an index: $locks locks, $calls system calls"
none "inserts" "$(insert indexed)" "$locks" "$calls"

#!/usr/bin/env bash
# Parallel scans whose processes fail. One process has the right to cut parts, and the other processes wait
# for it. Then any process is cancelled, terminated or killed. No process hangs, and the next query is
# right.
. "$(dirname "$0")/lib.sh"

new_server -c "nitro.backup = off"
stops=$("${PSQL[@]}" -p "$(port)" -c "SELECT count(*) FROM pg_settings WHERE name = 'nitro.debug_stop'")
[ "$stops" = 1 ] || { note "left out: a build without stop points"; exit 0; }
class=1852404850
parallel="SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
          SET min_parallel_index_scan_size = 0; SET max_parallel_workers_per_gather = 3; SET cpu_tuple_cost = 1; SET random_page_cost = 0; SET seq_page_cost = 0; SET jit = off"
query="SELECT count(*), sum(a) FROM (SELECT a, pad FROM t WHERE a > 10 AND pad <> '' OFFSET 0) q"
right="100000|5001050000"
sql "CREATE TABLE t (a int, pad text) WITH (parallel_workers = 3); INSERT INTO t SELECT i, 'pad' FROM generate_series(1, 100010) i;
     CREATE INDEX t_a ON t USING nitro (a); VACUUM ANALYZE t"

begin() { # a session that is about to run the query, of which the leader's process ID is known
    session q
    leader=$(ask q "$parallel; SET parallel_leader_participation = $1; SET nitro.debug_stop = 'PartSeized'; SELECT pg_backend_pid()")
    [[ $(ask q "EXPLAIN $query") == *"Parallel Index Scan using t_a"* ]] || fail "another plan"
}
hold() { # WHO: the locks of the processes that stop. Workers are among the next ones that begin
    session control
    case $1 in
    leader) ask control "SELECT pg_advisory_lock($class, $leader)" ;;
    worker) ask control "SELECT count(pg_advisory_lock($class, p)) FROM $(next_pids "$leader")" ;;
    esac > /dev/null
}
let_go() { end control; }
stopped="SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid = $class"
waiting="SELECT pid FROM pg_stat_activity WHERE wait_event = 'NitroParallelScan'"
[ "$(major)" -ge 17 ] || waiting="SELECT pid FROM pg_stat_activity WHERE wait_event = 'Extension' AND (pid = \$leader OR leader_pid = \$leader)"
reached() { # one process stands there, and others wait for it
    wait_until "SELECT count(*) = 1 FROM ($stopped) s"
    wait_until "SELECT count(*) >= 1 FROM (${waiting//\$leader/$leader}) s"
}
over() { # WHAT WANTED: how it ended for the query, and that nothing is left of it
    local got
    got=$(answer q)
    [[ $got == *"$2"* ]] || fail "$1: $got"
    wait_until "SELECT count(*) = 0 FROM pg_stat_activity WHERE leader_pid = $leader"
    let_go
    assert_eq "$1, again" "$(ask q "SET nitro.debug_stop = 'None'; $query")" "$right"
    end q
}
lost() { # WHAT: the connection is, and nothing is left of it
    # psql has reported it and ended.
    for _ in $(seq 1800); do kill -0 "${session_pid[q]}" 2> /dev/null || break; sleep 0.1; done
    ! kill -0 "${session_pid[q]}" 2> /dev/null || fail "$1: the query did not end"
    wait_until "SELECT count(*) = 0 FROM pg_stat_activity WHERE leader_pid = $leader"
    let_go; end q
}

failing() { # WHO SIGNAL: what becomes of a query when the one that stands there, one that waits for it or the leader is ended
    local who=$1 target
    note "$2 the $who"
    case $who in
    "leader that has it") begin on; hold leader ;;
    *) begin off; hold worker ;;
    esac
    tell q "$query"
    reached
    case $who in
    *"has it") target=$(sql "$stopped") ;;
    "worker that waits") target=$(sql "${waiting//\$leader/$leader} AND pid <> $leader LIMIT 1") ;;
    *) target=$leader ;;
    esac
    case $2 in
    cancel | terminate) assert_eq "$2" "$(sql "SELECT pg_${2}_backend($target)")" t ;;
    kill) kill_backend "$target" || fail "it was gone" ;;
    esac
    case "$who $2" in
    "leader"*terminate | *kill) lost "$who, $2" ;;
    *cancel) over "$who, $2" "canceling statement due to user request" ;;
    *) over "$who, $2" "due to administrator command" ;;
    esac
    session q; assert_eq "$who, $2: another one" "$(ask q "$parallel; SELECT nitro_verify('t_a') IS NOT NULL; $query")" "t"$'\n'"$right"; end q
}

for signal in cancel terminate kill; do
    for who in "worker that has it" "worker that waits" "leader that has it" "leader that waits for workers"; do run failing "$who" $signal; done
done

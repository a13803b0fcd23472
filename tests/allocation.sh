#!/usr/bin/env bash
# A process gets no more memory from the system (ulimit -v, which stands for vm.overcommit_memory = 2). Its
# statement fails with 53200, or succeeds with less. The server stays up.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"
in_folders
. "$(dirname "$0")/by_hand.sh"

new_server -c "nitro.max_memory = 300MB" -c "max_parallel_maintenance_workers = 0" \
    -c "jit = off" -c "shared_buffers = 16MB" -c "max_parallel_workers_per_gather = 0"
sql "CREATE TABLE t AS SELECT i, md5(i::text) || md5((i+1)::text) AS s, ARRAY[i % 3, i % 7 + 10, i] AS a FROM generate_series(1, 100000) i"
sql "CREATE TABLE big (s text, a int[]); CREATE INDEX big_s ON big USING nitro (s); CREATE INDEX big_a ON big USING nitro (a)"
sql "CREATE INDEX t_i ON t USING nitro (i); CREATE INDEX t_a ON t USING nitro (a); ANALYZE t"
sql "CREATE TABLE d AS SELECT i % 100 AS k, jsonb_build_array(i, 's' || i) AS j FROM generate_series(1, 5000) i;
     CREATE INDEX d_j ON d USING nitro (j jsonb_array_ops); CREATE INDEX d_k_j ON d USING nitro (k, j jsonb_array_ops); ANALYZE d"
started=$(sql "SELECT pg_postmaster_start_time(), pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")

# The memory that a fresh backend has mapped: the limits begin a little above it.
base=$(sql "CREATE FUNCTION mapped() RETURNS int LANGUAGE sql AS \$\$
    SELECT substring(pg_read_file('/proc/self/status') FROM 'VmSize:\s*(\d+)')::int \$\$; SELECT mapped()")
# MB: runs a statement in a session that may map MB more. Prints its SQLSTATE or ok.
limited() { local mb=$1; shift; starved $((mb * 1024)) "$@"; }
starved() { # KB
    local kb=$1 out; shift
    session limited
    # Loading a library takes addresses.
    ask limited "LOAD 'plpgsql'" > /dev/null
    prlimit --pid "$(ask limited 'SELECT pg_backend_pid()')" --as=$(((base + kb) * 1024)): 2> /dev/null
    out=$(ask limited "\\set VERBOSITY sqlstate"$'\n'"$*") || { echo "no answer"; return; }
    end limited
    case $out in *ERROR*) sed -n 's/.*ERROR: *//p' <<< "$out" | head -n 1 ;; *) echo ok ;; esac
}
build() { limited "$1" "SET maintenance_work_mem = '1GB'; CREATE INDEX t_n ON t USING nitro (s COLLATE \"C\", (s || 'x') COLLATE \"C\"); DROP INDEX t_n;"; }
scan() { limited "$1" "SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM t WHERE i = ANY (ARRAY(SELECT generate_series(1, 250000))) AND i > 0;"; }
elements() { limited "$1" "SET enable_seqscan = off; SELECT count(*) FROM t WHERE a @> ARRAY[1, 12];"; }
many() { limited "$1" "SET enable_seqscan = off; SELECT count(*) FROM t WHERE a @> (SELECT array_agg(g) FROM generate_series(1, 30000) g);"; }
some() { limited "$1" "SET enable_seqscan = off; SELECT count(*) FROM t WHERE a && (SELECT array_agg(g) FROM generate_series(1, 60000) g);"; }
documents() { limited "$1" "SET enable_seqscan = off; SELECT count(*) FROM d WHERE j @> (SELECT jsonb_agg(g) FROM generate_series(1, 15000) g);"; }
keys() { limited "$1" "SET enable_seqscan = off; SELECT count(*) FROM d WHERE j ?| (SELECT array_agg(g::text) FROM generate_series(1, 30000) g);"; }
product() { limited "$1" "SET enable_seqscan = off; SELECT count(*) FROM d WHERE k = ANY (ARRAY(SELECT generate_series(1, 20000))) AND j ?& ARRAY(SELECT 's' || generate_series(1, 300));"; }
verify() { limited "$1" "SELECT nitro_verify('t_a', true);"; }
image() { limited "$1" "SELECT nitro_backup('t_i');"; }
text() { limited "$1" "INSERT INTO big (s) SELECT repeat(chr(1), 10000000);"; }
array() { limited "$1" "INSERT INTO big (a) SELECT array_agg(i) FROM generate_series(1, 300000) i;"; }

declare -A seen
for work in build scan elements many some documents keys product verify image text array; do
    result=
    limits="2 12 25 30 35 40 150"
    # The server's own ERROR may meet a full memory context anywhere.
    case $work in many | keys | product) limits="1 2 3 4 5 6 7 8 9 $limits" ;; esac
    for mb in $limits; do
        got=$($work "$mb")
        case $got in
            ok | 53200 | 54000) ;;
            *) fail "$work with $mb MB: $got" ;;
        esac
        result+=" $mb:$got" seen[$got]=1
    done
    note "$work$result"
done
# The server's own ERROR passes through Rust with hardly any memory left. It does so more than once in a
# session, and with a long message.
sql "CREATE TABLE long (s text); INSERT INTO long SELECT repeat('x', 150000)"
many="SELECT count(*) FROM t WHERE a @> (SELECT array_agg(g) FROM generate_series(1, 30000) g);"
again() { starved "$1" "SET enable_seqscan = off; BEGIN; SAVEPOINT a; $many ROLLBACK TO a; $many ROLLBACK TO a; $many ROLLBACK TO a; COMMIT;"; }
twice() { starved "$1" "SET enable_seqscan = off; $many $many $many"; }
caught() { starved "$1" "SET enable_seqscan = off; DO \$\$ BEGIN FOR i IN 1..20 LOOP BEGIN PERFORM ($(sed 's/;$//' <<< "$many")); EXCEPTION WHEN out_of_memory THEN NULL; END; END LOOP; END \$\$;"; }
message() { starved "$1" "CREATE INDEX ON long USING nitro ((s::int));"; }
sql "CREATE TABLE huge (s text); INSERT INTO huge SELECT repeat('x', 1000000)"
huge() { starved "$1" "CREATE INDEX ON huge USING nitro ((s::int));"; }
for work in again twice caught message huge; do
    result="" last= from=0 to=2048 step=64
    # There is memory for the server's copy, and none for ours.
    [ $work != huge ] || { from=2800; to=4000; step=40; }
    for ((kb = from; kb <= to; kb += step)); do
        got=$($work $kb)
        case $got in
            ok | 53200 | 22P02) ;;
            *) fail "$work with $kb kB: $got" ;;
        esac
        [ "$got" = "$last" ] || result+=" $kb:$got" last=$got
    done
    note "$work$result"
done
[ -n "${seen[ok]:-}" ] && [ -n "${seen[53200]:-}" ] || fail "the limits do not tell apart"
assert_eq "no restart" "$(sql "SELECT pg_postmaster_start_time(), pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")" "$started"
assert_eq "no crash" "$(grep -cE 'terminated by|reinitializing|memory allocation of' "$NITRO_TMP/main.log" || true)" 0

# With less memory than the sort may use, the runs are shorter: CREATE INDEX succeeds, as with btree.
assert_eq "a build with less memory" "$(build 12)" ok
sql "SELECT nitro_verify(c.oid, true) FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE amname = 'nitro' AND relname LIKE 't%'" > /dev/null

# Bringing an index up from its image: the blocks that the WAL names need more memory than the reserve has.
checkpointer="SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'"
ended() { logged 'background worker "nitro builder".*exited' "$1"; }
by_verify() { starved "$1" "SELECT nitro_verify('f_nitro', false);"; }
# The postmaster passes its limit on to new processes. This session is older.
by_builder() {
    local i p
    p=$(postmaster)
    session before
    prlimit --pid "$p" --as=$(((base + $1) * 1024)):
    ask before "SET enable_seqscan = off; SET nitro.when_loading = skip; SELECT s FROM f WHERE i = 77" > /dev/null
    for i in $(seq 600); do [ "$(ended "$from")" = 0 ] || break; sleep 0.1; done
    prlimit --pid "$p" --as=unlimited:
    end before
    [ "$i" -lt 600 ] && echo ok || echo "no builder"
}
changed() { sql "INSERT INTO f VALUES ($RANDOM + 10000); UPDATE f SET s = s"; }
brought_up() { # WORK KB
    local got from how server images
    mechanism builders; restart immediate
    # The keeper's builder has ended.
    [ "$1" != by_builder ] || mechanism none
    wait_until "$idle_keeper"; server=$(sql "$checkpointer"); from=$(log_end)
    got=$("$1" "$2")
    [[ $got == ok || $got == 53200 ]] || fail "$1 with $2 kB: $got"
    assert_eq "$1 with $2 kB: no crash" "$(sql "$checkpointer")" "$server"
    how=$(came_from f_nitro "$from")
    if [ "$(state f_nitro)" != ready ]; then
        # The index then comes from its image, unless the image is lost or a builder has begun with the
        # table. A builder has time, so it may have begun to sort.
        how="not up" images=$(generations f_nitro) from=$(log_end)
        [ "$(state f_nitro)" = unbuilt ] && [ "$1" != by_builder ] || images=
    fi
    mechanism none
    verified f; same_answers f "SELECT i FROM f WHERE i > 8900"
    [ "$how" != "not up" ] || [ -z "$images" ] || assert_eq "$1 with $2 kB: later" "$(came_from f_nitro "$from")" image
    result+=" $2:$got,$how" seen[$how]=1
    [ -n "$(generations f_nitro)" ] || backup f_nitro
    changed
}
settings "max_worker_processes = 3" "max_logical_replication_workers = 0" "full_page_writes = off" "log_min_messages = debug1"
restart
sql "CREATE EXTENSION pageinspect; CREATE TABLE f (i int, s text) WITH (fillfactor = 10);
     INSERT INTO f SELECT i, repeat('x', 450) FROM generate_series(1, 9000) i; CREATE INDEX f_nitro ON f USING nitro (i); CREATE INDEX f_btree ON f (i); ANALYZE f"
backup f_nitro; changed
# A query has no time for a sort. It loads an image even if most of it has changed.
export PGOPTIONS="-c statement_timeout=1h"
for work in by_verify by_builder; do
    # The error at the lower limits differs from one server to the next.
    result= limits="0 0 300 600 8000"
    [ -z "$LONG" ] || limits=$(seq 0 200 8000)
    for kb in $limits; do brought_up $work "$kb"; done
    note "$work$result"
done
[ -n "${seen[image]:-}" ] && [ -n "${seen[not up]:-}" ] || fail "the limits do not tell apart"
assert_eq "no crash" "$(logged 'terminated by|reinitializing|memory allocation of')" 0

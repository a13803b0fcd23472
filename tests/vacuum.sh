#!/usr/bin/env bash
# VACUUM and the states of an index. Entries that VACUUM removes stay away until their TIDs are used again,
# in every state of the index. VACUUM waits only for processes that may still use the TIDs, and the deadlock
# detector sees these waits.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"
in_folders
quiet=(-c "deadlock_timeout = 200ms" -c "bgwriter_lru_maxpages = 0")
# No place for workers: an index is brought up only by a statement.
alone=(-c "max_worker_processes = 1" -c "max_logical_replication_workers = 0")
new_server "${quiet[@]}" "${alone[@]}"
sql "CREATE EXTENSION pageinspect"
# The gate is shut while a session holds advisory lock 1 exclusively.
sql "CREATE FUNCTION gate(i int, at int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
     'BEGIN IF i = at THEN PERFORM pg_advisory_xact_lock_shared(1); END IF; RETURN i; END'"
index_plans="SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off"
event=NitroTidTokens
[ "$(sql "SHOW server_version_num")" -ge 170000 ] || event=Extension
shut() { session gate_keeper; ask gate_keeper "SELECT pg_advisory_lock(1)" > /dev/null; }
open_gate() { end gate_keeper; }
at_gate() { wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"; }
pid() { ask "$1" "SELECT pg_backend_pid()"; }
picky() { sql "CREATE OR REPLACE FUNCTION picky(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN IF i = 1042 THEN $1 END IF; RETURN i; END'"; }
at_build_lock() { wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'object' AND NOT granted"; }
verdict() { # MECHANISM TABLE 'QUERY'...: right answers, or wrong ones if the mechanism is off
    local off=$1; shift
    if [ "$off" = none ]; then verified "$1"; same_answers "$@"; else wrong "$@"; fi
    [ "$off" = none ] || mechanism none
    sql "DROP TABLE $1"
}

# A TID is dead before the image. VACUUM removes its entry from an index that publishes but is not ready,
# and stops before its second pass. The index fails, and is brought up again.
fails_beside_vacuum() { # STATE that VACUUM meets
    note "VACUUM of an index that is $1, which then fails and is brought up again, before VACUUM's second heap pass"
    picky "NULL;"
    sql "CREATE TABLE v (k int, b int, pad text) WITH (autovacuum_enabled = off); INSERT INTO v SELECT i, i, repeat('x', 70) FROM generate_series(1, 70) i"
    sql "CREATE INDEX v_nitro ON v USING nitro (k, picky(b)); CREATE INDEX v_b ON v (b); CREATE INDEX v_btree ON v (k)"
    sql "INSERT INTO v SELECT i, i, repeat('f', 70) FROM generate_series(71, 110) i; DELETE FROM v WHERE k IN (7, 8, 9)"
    for _ in 1 2; do sql "SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM v" > /dev/null; done
    assert_eq "dead line pointers" "$(sql "SELECT count(*) FROM heap_page_items(get_raw_page('v', 0)) WHERE lp_flags = 3")" 3
    sql "CHECKPOINT"
    backup v_nitro
    local shard from; shard=$(newest v_nitro)/shard-0
    sql "INSERT INTO v VALUES (1042, 1042, 'p')"
    assert_eq "another block" "$(sql "SELECT (ctid::text::point)[0] > 0 FROM v WHERE k = 1042")" t
    picky "PERFORM pg_advisory_xact_lock_shared(1);"
    crash; [ "$1" != building ] || chmod 000 "$shard"
    start; shut; session loader; session cursor; session vacuum
    local pid; pid=$(pid loader)
    tell loader "SELECT nitro_verify('v_nitro', false)"; at_gate
    assert_eq state "$(state v_nitro)" "$1"
    sql "SELECT pg_cancel_backend($pid)" > /dev/null
    [[ $(answer loader) == *canceling* ]] || fail "not cancelled"
    open_gate
    assert_eq state "$(state v_nitro)" "$1"
    # An index-only cursor pins a leaf of the btree. VACUUM has finished with our index and stops at that
    # leaf.
    ask cursor "$index_plans; SET nitro.enable_scan = off; BEGIN; DECLARE c CURSOR FOR SELECT b FROM v WHERE b > 0 ORDER BY b; FETCH 1 FROM c" > /dev/null
    tell vacuum "VACUUM (INDEX_CLEANUP on) v"
    wait_until "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'BufferPin' OR wait_event = 'BufferCleanup'"
    [ "$1" != building ] || chmod 600 "$shard"
    picky "RAISE EXCEPTION ''bad luck'';"
    [[ $(sql_fails "SELECT nitro_verify('v_nitro', false)") == *"bad luck" ]] || fail "another error"
    assert_eq state "$(state v_nitro)" failed
    picky "NULL;"; from=$(log_end)
    ready v_nitro
    assert_eq "v_nitro" "$(came_from v_nitro "$from")" table
    ask cursor "COMMIT" > /dev/null; answer vacuum > /dev/null; end cursor; end vacuum; end loader
    sql "INSERT INTO v SELECT 2000 + i, 0, repeat('z', 70) FROM generate_series(1, 60) i"
    assert_eq "the TID was used again" "$(sql "SELECT k > 2000 FROM v WHERE ctid = '(0,7)'")" t
    verdict none v "SELECT * FROM v WHERE k = 7" "SELECT k FROM v WHERE k < 3000 ORDER BY k"
}

# The rows are dead to the walk's own snapshot, but not to an older snapshot, which ends in the middle of
# the walk.
waits_for_a_walk() { # MECHANISM
    note "VACUUM beside a walk that has copied rows which die meanwhile (off: $1)"
    sql "CREATE TABLE w (k int) WITH (autovacuum_enabled = off); INSERT INTO w SELECT generate_series(1, 1000); CREATE INDEX w_nitro ON w USING nitro (gate(k, 500)); CREATE INDEX w_btree ON w (k)"
    stop; rm -rf "$(data)/pg_nitro"; start; mechanism "$1"
    session old; session builder; session vacuum
    ask old "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM w" > /dev/null
    sql "SET nitro.enable_scan = off; DELETE FROM w WHERE k < 100"
    shut; tell builder "SELECT nitro_verify('w_nitro', false)"; at_gate
    ask old "COMMIT" > /dev/null; end old
    tell vacuum "VACUUM (INDEX_CLEANUP on) w"
    if [ "$1" = none ]; then at_build_lock; else answer vacuum > /dev/null; fi
    # Also rows that come and move meanwhile.
    sql "SET nitro.enable_scan = off; INSERT INTO w SELECT generate_series(5001, 5200); UPDATE w SET k = -k WHERE k IN (200, 300)"
    open_gate; answer builder > /dev/null; end builder
    [ "$1" != none ] || answer vacuum > /dev/null
    end vacuum
    sql "SET nitro.enable_scan = off; INSERT INTO w SELECT generate_series(6001, 6200)"
    any_plan=1 verdict "$1" w "SELECT k FROM w WHERE gate(k, 500) < 100" "SELECT k FROM w WHERE gate(k, 500) > 100 ORDER BY gate(k, 500)"
}

# A row that is dead, but not yet to all snapshots, has lost its TOAST data when the walk evaluates it.
evaluates_a_row_without_toast() {
    note "a walk copies a deleted row, VACUUM takes its TOAST data away, the walk evaluates it"
    local toast
    sql "CREATE TABLE x (k int, long text) WITH (autovacuum_enabled = off); ALTER TABLE x ALTER long SET STORAGE EXTERNAL"
    sql "INSERT INTO x SELECT i, CASE WHEN i % 10 = 0 THEN repeat('x', 5000) ELSE 'short' END FROM generate_series(1, 100) i; CREATE INDEX x_nitro ON x USING nitro (gate(k, 5), length(long), md5(long)); CREATE INDEX x_btree ON x (k)"
    toast=$(sql "SELECT reltoastrelid::regclass FROM pg_class WHERE relname = 'x'")
    stop; rm -rf "$(data)/pg_nitro"; start
    session old; session builder
    ask old "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM x" > /dev/null
    sql "SET nitro.enable_scan = off; DELETE FROM x WHERE k IN (10, 20, 30)"
    shut; tell builder "SELECT nitro_verify('x_nitro', true)"; at_gate
    ask old "COMMIT" > /dev/null; end old
    assert_eq "chunks" "$(sql "SELECT count(*) FROM $toast")" 21
    sql "VACUUM (INDEX_CLEANUP on) $toast"
    assert_eq "no chunks of theirs" "$(sql "SELECT count(*) FROM heap_page_items(get_raw_page('$toast', 0)) WHERE lp_flags = 1 AND t_xmax <> 0")" 0
    open_gate
    assert_eq "entries" "$(answer builder)" 97
    end builder
    assert_eq state "$(state x_nitro)" ready
    sql "VACUUM (INDEX_CLEANUP on) x; INSERT INTO x VALUES (1, repeat('y', 5000))"
    any_plan=1 verdict none x "SELECT k FROM x WHERE gate(k, 5) > 0"
}

# Index-only cursors of another session hold tokens. VACUUM waits only for the tokens of its own index.
waits_for_its_own_tokens() {
    note "VACUUM beside idle index-only cursors of other indexes, in this database and in another"
    sql "CREATE ROLE mallory LOGIN; CREATE DATABASE d OWNER mallory"
    (export PGDATABASE=d; sql "CREATE EXTENSION nitro; GRANT ALL ON SCHEMA public TO mallory")
    local make="CREATE TABLE m1 (k int); CREATE TABLE m2 (k int); CREATE TABLE m3 (k int);
        INSERT INTO m1 SELECT generate_series(1, 1000); INSERT INTO m2 SELECT k FROM m1; INSERT INTO m3 SELECT k FROM m1;
        CREATE INDEX m1_nitro ON m1 USING nitro (k); CREATE INDEX m2_nitro ON m2 USING nitro (k); CREATE INDEX m3_nitro ON m3 USING nitro (k)"
    (export PGDATABASE=d PGUSER=mallory; sql "$make; VACUUM m1, m2, m3")
    sql "$make; CREATE TABLE u (k int); INSERT INTO u SELECT k FROM m1; CREATE INDEX u_nitro ON u USING nitro (k); VACUUM m1, m2, m3, u"
    # Before the cursors, whose snapshots would keep the rows.
    sql "SET nitro.enable_scan = off; DELETE FROM u WHERE k < 100; DELETE FROM m1 WHERE k > 900; DELETE FROM m3 WHERE k > 900"
    local i n p
    PGDATABASE=d PGUSER=mallory session far; session near; session vacuum
    for i in far near; do
        ask $i "$index_plans; BEGIN; SELECT count(*) FROM m3 WHERE k = 4" > /dev/null
        for n in 1 2; do
            [[ $(ask $i "EXPLAIN SELECT k FROM m$n WHERE k > 0 ORDER BY k") == *"Index Only Scan"* ]] || fail "no index-only scan"
            ask $i "DECLARE c$n CURSOR FOR SELECT k FROM m$n WHERE k > 0 ORDER BY k; FETCH 1 FROM c$n" > /dev/null
        done
    done
    tell vacuum "VACUUM (VERBOSE, INDEX_CLEANUP on) u"
    [[ $(answer vacuum) == *"index scan needed"* ]] || fail "VACUUM had nothing to do"
    # A finished statement on m3 holds no token, though its transaction keeps the lock of the table.
    [[ $(sql "SET statement_timeout = '60s'; VACUUM (VERBOSE, INDEX_CLEANUP on) m3" 2>&1) == *"index scan needed"* ]] || fail "VACUUM had nothing to do"
    # Several tokens, and this index among them.
    p=$(pid vacuum)
    local waited="SELECT waited_ms FROM nitro_waits WHERE event = 'NitroTidTokens'" before; before=$(sql "$waited")
    tell vacuum "VACUUM (INDEX_CLEANUP on) m1"
    wait_until "SELECT wait_event = '$event' FROM pg_stat_activity WHERE pid = $p"
    ask near "FETCH ALL FROM c2; CLOSE c2" > /dev/null
    sleep 0.3
    wait_until "SELECT state = 'active' AND wait_event = '$event' FROM pg_stat_activity WHERE pid = $p"
    ask near "CLOSE c1" > /dev/null; answer vacuum > /dev/null
    [ "$(sql "$waited")" -gt "$before" ] || fail "that VACUUM waited is not counted: still $before ms"
    ask near "COMMIT" > /dev/null; end near
    # An index that is not in memory has no readers.
    stop; rm -rf "$(data)/pg_nitro"; start
    sql "SET nitro.enable_scan = off; DELETE FROM u WHERE k < 200"
    session near; ask near "$index_plans; SET nitro.when_loading = 'wait'" > /dev/null
    ready m1_nitro m2_nitro
    for n in 1 2; do ask near "BEGIN; DECLARE c$n CURSOR FOR SELECT k FROM m$n WHERE k > 0 ORDER BY k; FETCH 1 FROM c$n" > /dev/null; done
    [[ $(sql "VACUUM (VERBOSE, INDEX_CLEANUP on) u" 2>&1) == *"index scan needed"* ]] || fail "VACUUM had nothing to do"
    assert_eq "still unbuilt" "$(state u_nitro)" unbuilt
    verified u
    end near; end far 2> /dev/null || true; end vacuum
    sql "DROP TABLE u, m1, m2, m3"; sql_alone "DROP DATABASE d"; sql "DROP ROLE mallory"
}

# The only worker stands at another index. VACUUM once waited for it, and the deadlock detector did not see
# that.
waits_where_it_is_seen() {
    note "VACUUM of an index whose image is not loaded, while the worker stands still elsewhere"
    sql "CREATE FUNCTION gates(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
         'BEGIN IF i = 5000 THEN PERFORM pg_advisory_xact_lock_shared(1), pg_advisory_xact_lock_shared(2); END IF; RETURN i; END'"
    sql "CREATE TABLE t1 (i int); INSERT INTO t1 SELECT generate_series(1, 1000); CREATE INDEX t1_nitro ON t1 USING nitro (gates(i)); CREATE TABLE t2 (i int); INSERT INTO t2 SELECT generate_series(1, 1000); CREATE INDEX t2_nitro ON t2 USING nitro (i); CREATE INDEX t2_btree ON t2 (i)"
    backup t1_nitro; sql "INSERT INTO t1 VALUES (5000); DELETE FROM t1 WHERE i < 10; DELETE FROM t2 WHERE i < 50"; backup t2_nitro
    # It is shut across the restart.
    sql "BEGIN; SELECT pg_advisory_xact_lock(1); PREPARE TRANSACTION 'gate'" > /dev/null
    crash; sed -i '/^max_worker_processes/d' "$(data)/postgresql.conf"
    start
    # The worker first loads the index with the older image, and stops at the gate.
    wait_until "SELECT count(*) = 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE locktype = 'advisory' AND NOT granted AND backend_type = 'nitro builder'"
    session vacuum
    tell vacuum "VACUUM (INDEX_CLEANUP on) t2"; answer vacuum > /dev/null
    assert_eq "loaded by VACUUM" "$(state t2_nitro)" "catching up"
    sql "SET nitro.enable_scan = off; INSERT INTO t2 SELECT generate_series(2001, 2100)"
    verified t2; same_answers t2 "SELECT * FROM t2 WHERE i < 60" "SELECT i FROM t2 WHERE i > 900 ORDER BY i"

    note "VACUUM behind a load behind a transaction that waits for VACUUM"
    session gate_keeper; ask gate_keeper "SELECT pg_advisory_lock(2)" > /dev/null
    sql "COMMIT PREPARED 'gate'"
    tell vacuum "VACUUM (INDEX_CLEANUP on) t1"; at_build_lock
    assert_eq "who is in its way" "$(sql "SELECT b.backend_type FROM pg_stat_activity a, unnest(pg_blocking_pids(a.pid)) p JOIN pg_stat_activity b ON b.pid = p WHERE a.query LIKE 'VACUUM%t1%' AND a.state = 'active'")" "nitro builder"
    tell gate_keeper "BEGIN; ALTER TABLE t1 ADD COLUMN x int"
    local told; told="$(answer gate_keeper)"
    # Whichever session gets the error, the other sessions go on.
    [[ $told == *"deadlock detected"* ]] || told="$(answer vacuum)"
    [[ $told == *"deadlock detected"* ]] || [ "$(logged 'deadlock detected')" != 0 ] || fail "nobody was told of the deadlock: $told"
    end gate_keeper; end vacuum
    verified t1
    sql "DROP TABLE t1, t2"
    stop; settings "max_worker_processes = 1"; start
}

# VACUUM waits for the end of a session with a cursor. The session waits for a lock of VACUUM, or for a
# session that waits for one.
waits_for_who_waits_for_it() { # BETWEEN: there or not
    note "a session that VACUUM waits for waits for VACUUM, another one between them $1"
    sql "CREATE TABLE d (i int) WITH (autovacuum_enabled = off); INSERT INTO d SELECT generate_series(1, 1000); CREATE INDEX ON d USING nitro (i); CREATE TABLE e (i int)"
    sql "VACUUM d"; sql "SET nitro.enable_scan = off; DELETE FROM d WHERE i BETWEEN 20 AND 900"
    local reader between vacuum told
    session reader; session vacuum; session between
    ask reader "SET enable_seqscan = off; SET enable_bitmapscan = off; BEGIN; DECLARE c CURSOR FOR SELECT i FROM d; FETCH 3 FROM c" > /dev/null
    ask vacuum "SET deadlock_timeout = '1s'" > /dev/null
    vacuum=$(pid vacuum)
    tell vacuum "VACUUM (INDEX_CLEANUP on) d"
    wait_until "SELECT wait_event = '$event' FROM pg_stat_activity WHERE pid = $vacuum"
    # A session that soon gives up is seen waiting at most once.
    local i
    for i in 1 2 3; do
        [[ $(ask reader "SAVEPOINT a; SET LOCAL lock_timeout = 900; LOCK d IN SHARE MODE; ROLLBACK TO a" 2>&1) == *"lock timeout"* ]] || fail "no timeout: $(logged "timeout")"
        ask reader "ROLLBACK TO a" > /dev/null
    done
    assert_eq "VACUUM waits" "$(sql "SELECT wait_event = '$event' FROM pg_stat_activity WHERE pid = $vacuum")" t
    if [ "$1" = there ]; then
        between=$(pid between); ask between "BEGIN; LOCK e" > /dev/null; tell between "LOCK d IN SHARE MODE"
        wait_until "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $between"
        # One session waits for VACUUM, but VACUUM does not wait for that session.
        sleep 2.5
        assert_eq "VACUUM waits" "$(sql "SELECT wait_event = '$event' FROM pg_stat_activity WHERE pid = $vacuum")" t
        tell reader "LOCK e"
    else
        tell reader "LOCK d IN SHARE MODE"
    fi
    told=$(answer vacuum)
    [[ $told == *"deadlock detected"* ]] || fail "VACUUM said: $told"
    if [ "$1" = there ]; then answer between > /dev/null; ask between "ROLLBACK" > /dev/null; fi
    answer reader > /dev/null
    assert_eq "the rest" "$(ask reader "FETCH ALL FROM c" | wc -l)" 116
    ask reader "COMMIT" > /dev/null; end reader; end vacuum; end between
    sql "VACUUM (INDEX_CLEANUP on) d"; verified d; sql "DROP TABLE d, e"
}

# Where workers may vacuum indexes, VACUUM is parallel from its beginning, without subtransactions before
# 17.
loads_in_a_parallel_operation() { # WAL: there or gone
    note "VACUUM with parallel workers of an index whose image is not loaded, its WAL $1"
    sql "CREATE TABLE p (i int) WITH (autovacuum_enabled = off); INSERT INTO p SELECT generate_series(1, 1000)"
    sql "CREATE INDEX p_nitro ON p USING nitro (i); CREATE INDEX p_btree ON p (i); CREATE INDEX p_other ON p (i)"
    backup p_nitro
    local segment; segment=$(sql "SELECT pg_walfile_name(pg_current_wal_lsn())")
    sql "DELETE FROM p WHERE i < 50; SELECT pg_switch_wal(); CHECKPOINT" > /dev/null
    crash; start
    [ "$1" = there ] || rm "$(data)/pg_wal/$segment"
    sql "SET min_parallel_index_scan_size = 0; VACUUM (PARALLEL 2, INDEX_CLEANUP on) p"
    if [ "$1" = there ]; then assert_eq "loaded by VACUUM" "$(state p_nitro)" "catching up"; fi
    sql "SET nitro.enable_scan = off; INSERT INTO p SELECT generate_series(2001, 2100)"
    ready p_nitro; verified p; same_answers p "SELECT * FROM p WHERE i < 60" "SELECT i FROM p WHERE i > 900 ORDER BY i"
    sql "DROP TABLE p"
}

# An index that a worker vacuums is finished. A nitro index has a file of one page, too small to get a
# worker for itself.
has_workers() {
    note "VACUUM with a parallel worker"
    stop; settings "max_worker_processes = 8"; start
    sql "CREATE TABLE q (i int) WITH (autovacuum_enabled = off); INSERT INTO q SELECT generate_series(1, 1000)"
    sql "CREATE INDEX q_nitro ON q USING nitro (i); CREATE INDEX q_more_nitro ON q USING nitro ((i % 7)); CREATE INDEX q_btree ON q (i)"
    sql "DELETE FROM q WHERE i < 50"
    local out; out=$(sql "VACUUM (VERBOSE, PARALLEL 2, INDEX_CLEANUP on) q" 2>&1)
    [[ $out == *"index scan needed"* && $out != *"parallel vacuum worker"* ]] || fail "$out"
    sql "INSERT INTO q SELECT generate_series(1001, 1020); DELETE FROM q WHERE i % 10 = 0"
    out=$(sql "SET min_parallel_index_scan_size = 0; VACUUM (VERBOSE, PARALLEL 2, INDEX_CLEANUP on) q" 2>&1)
    [[ $out =~ "launched "[12]" parallel vacuum worker"s?" for index vacuuming" ]] || fail "$out"
    sql "SET nitro.enable_scan = off; INSERT INTO q SELECT generate_series(2001, 2100)"
    verified q; same_answers q "SELECT i FROM q WHERE i BETWEEN 40 AND 120" "SELECT i FROM q WHERE i % 7 = 3"
    sql "DROP TABLE q"
}

for state in "catching up" building; do run fails_beside_vacuum "$state"; done
for off in none walks; do run waits_for_a_walk $off; done
run evaluates_a_row_without_toast
run waits_for_its_own_tokens
run waits_where_it_is_seen
for between in gone there; do run waits_for_who_waits_for_it $between; done
for wal in there gone; do run loads_in_a_parallel_operation $wal; done
run has_workers

#!/usr/bin/env bash
# Schedules that break naive images: what is written while an image is made, what is recycled while none is
# loaded, WAL that is not there, histories that fork. Each asserts that it got where it wanted.
#
# Most have a switch (nitro.debug_break) that takes one mechanism away: the same schedule must then go wrong, which
# shows that it would notice. Those that need no image (F11, F12, F13) are in schedules.sh. Insert-if-absent (F7) has
# none: it is inside the engine, which knows no settings; the engine's own tests (snapshot_tests.rs) fail without it.
#
# The server has no place for workers, so images are made and loaded exactly when a statement says so; an
# advisory lock taken by an index expression stops a process exactly there. What remains to chance (which
# instruction of a backup another process meets) is left to the storm at the end.
#
# Not tested here:
# - the order inside a backup (F5: LSN, term, writers) beyond what a stopped writer can see: there is no point
#   between its steps at which a process could be stopped from outside; the storm meets it by chance;
# - logical apply and table sync (F4): they take the same path as a process without knowledge of its statement,
#   since all that counts is the transaction ID;
# - a machine that loses what was written but not flushed (F9, fsync = off): needs another machine;
# - checkpoints that stand still behind a slot's owner (F14): the slot is held for no time that could be met.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"
note "seed $NITRO_SEED"
by_hand=(-c "max_worker_processes = 1" -c "max_logical_replication_workers = 0" -c "deadlock_timeout = 200ms"
    -c "wal_keep_size = 0" -c "min_wal_size = 32MB" -c "checkpoint_timeout = 1h" -c "bgwriter_lru_maxpages = 0")
new_server "${by_hand[@]}"
sql "CREATE EXTENSION pageinspect"
# Both locks are shut by taking them exclusively; 2 stops a process before it comes to the index under test.
sql "CREATE FUNCTION gate(i int, at int, lock int DEFAULT 1) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
     'BEGIN IF i = at THEN PERFORM pg_advisory_xact_lock_shared(lock); END IF; RETURN i; END'"
sql "CREATE TABLE noise (i int); CREATE FUNCTION noise() RETURNS void LANGUAGE plpgsql AS
     'BEGIN INSERT INTO public.noise VALUES (1); EXCEPTION WHEN division_by_zero THEN NULL; END'"
sql "CREATE FUNCTION noisy(i int, at int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
     'BEGIN IF i = at THEN PERFORM pg_advisory_xact_lock_shared(1); PERFORM public.noise(); END IF; RETURN i; END'"
# Settings of its own keep a function from being inlined.
sql "CREATE FUNCTION plain(i int) RETURNS int IMMUTABLE LANGUAGE sql SET work_mem = '4MB' AS 'SELECT public.gate(i, 1000)'"
shut() { session gate_keeper; ask gate_keeper "SELECT pg_advisory_lock(1)" > /dev/null; }
open_gate() { end gate_keeper; }
at_gate() { wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"; }
index_plans="SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off"
version=$(sql "SHOW server_version_num")

verdict() { # MECHANISM TABLE 'QUERY'...: right answers, or wrong ones if the mechanism is off
    local off=$1; shift
    if [ "$off" = none ]; then verified "$1"; same_answers "$@"; else wrong "$@"; fi
    [ "$off" = none ] || mechanism none
    sql "DROP TABLE $1"
}
keeper() { sql "SELECT pid FROM pg_stat_activity WHERE backend_type = 'nitro keeper'"; }
idle_keeper="SELECT wait_event IN ('NitroKeeperMain', 'Extension') FROM pg_stat_activity WHERE backend_type = 'nitro keeper'"
stop_keeper() { # while it has neither a lock nor the slot
    local p; p=$(keeper)
    while kill -STOP "$p"; [ "$(sql "$idle_keeper")" != t ]; do kill -CONT "$p"; sleep 0.05; done
}
# By its first scan or check; with a mechanism off it may be damaged. The keeper has looked at the slot before.
bring_up() { wait_until "$idle_keeper"; "${PSQL[@]}" -p "$(port)" <<< "SELECT nitro_verify('$1')" > /dev/null 2>&1 || true; }
loaded() { # INDEX: it comes from its image, here and now
    local from; from=$(log_end)
    bring_up "$1"
    assert_eq "$1" "$(came_from "$1" "$from")" image
}
rebuilt() { # INDEX REASON [FROM_LINE of the log]: its image is refused for this reason
    local from; from=$(log_end)
    ready "$1"
    assert_eq "$1" "$(came_from "$1" "$from")" table
    # The keeper may have been faster.
    [ "$(logged "\"$1\": (its image is not used|an image is removed): .*($2)" "${3:-$from}")" -ge 1 ] || fail "$1: no reason in the log like: $2"
}
# All WAL before the last checkpoint of a stopped server is removed, as an archiver or an admin would.
without_wal() {
    "$NITRO_BIN/pg_archivecleanup" "$(data)/pg_wal" "$("$NITRO_BIN/pg_controldata" "$(data)" | sed -n "s/.*REDO WAL file: *//p")"
}
# A clean stop makes last images of what has changed; some schedules are about those from before.
stop_as_is() { setting nitro.backup off; stop; sed -i '/nitro.backup /d' "$(data)/postgresql.auto.conf"; }
switch_wal() { sql "SELECT pg_switch_wal(); CHECKPOINT" > /dev/null; }

# --- what is written while an image is made ------------------------------------------------------------
# The rows of a statement are in the heap, the last entry is not published when the image is made.
straddler() { # MECHANISM, HOW the rows are written
    note "an insert that straddles an image: $2 (off: $1)"
    local off=$1 how=$2 key="gate(g, 1000)" damaged
    case $how in "a function that writes") key="noisy(g, 1000)" ;; "a function of SQL") key="plain(g)" ;; esac
    sql "CREATE TABLE s (k int, g int); INSERT INTO s SELECT i, i FROM generate_series(1, 300) i; CREATE INDEX s_nitro ON s USING nitro (k, $key); CREATE INDEX s_btree ON s (k)"
    mechanism "$off"
    backup s_nitro
    shut; session writer
    case $how in
        insert | "beside a delete" | "a function that writes" | "a function of SQL" | "two images") tell writer "INSERT INTO s SELECT i, i FROM generate_series(951, 1000) i" ;;
        copy)
            # The whole batch is in the heap before its first entry is made.
            seq 1000 1040 | awk '{ print $1 "\t" $1 }' > "$NITRO_TMP/rows"
            tell writer "COPY s FROM '$NITRO_TMP/rows'" ;;
        update) tell writer "UPDATE s SET k = 1000, g = 1000 WHERE k = 5" ;;
        "an unchanged index") tell writer "INSERT INTO s VALUES (1000, 1000)" ;;
        subtransaction)
            ask writer "BEGIN; INSERT INTO s VALUES (900, 1); SAVEPOINT a" > /dev/null
            tell writer "INSERT INTO s VALUES (1000, 1000)" ;;
        "an exception block") tell writer "DO 'BEGIN BEGIN INSERT INTO s VALUES (1000, 1000); EXCEPTION WHEN division_by_zero THEN NULL; END; END'" ;;
        "a prepared transaction")
            ask writer "BEGIN" > /dev/null
            tell writer "INSERT INTO s VALUES (1000, 1000)" ;;
    esac
    at_gate
    backup s_nitro
    if [ "$how" = "two images" ]; then
        damaged=$(newest s_nitro)
        sql "INSERT INTO noise VALUES (1); DELETE FROM s WHERE k = 1; VACUUM (INDEX_CLEANUP on) noise; CREATE TABLE later (i int); DROP TABLE later"
        session other; ask other "INSERT INTO s SELECT i, i FROM generate_series(2001, 2400) i" > /dev/null; end other
        backup s_nitro
        [ "$(newest s_nitro)" != "$damaged" ] || fail "only one image"
        damaged=$(newest s_nitro)
    fi
    # Moves the LSN of the writer's page, so that it makes no record of its own: this one has to count.
    [ "$how" != "beside a delete" ] || sql "DELETE FROM s WHERE k = 299"
    open_gate; answer writer > /dev/null
    case $how in
        subtransaction) ask writer "RELEASE a; COMMIT" > /dev/null ;;
        "a prepared transaction") ask writer "PREPARE TRANSACTION 'p'" > /dev/null ;;
    esac
    end writer
    crash
    [ "$how" != "two images" ] || rm "$damaged/shard-0"
    start; loaded s_nitro
    [ "$how" != "a prepared transaction" ] || sql "COMMIT PREPARED 'p'"
    sql "TRUNCATE noise"
    verdict "$off" s "SELECT * FROM s WHERE k = 1000" "SELECT k FROM s WHERE k > 250 ORDER BY k" "SELECT * FROM s WHERE k < 20"
}

no_image_of_half_an_index() { # MECHANISM
    note "no image of an index that is being built or validated (F6; off: $1)"
    sql "CREATE TABLE h (k int, g int); INSERT INTO h SELECT i, i FROM generate_series(1, 500) i; CREATE INDEX h_nitro ON h USING nitro (k, gate(g, 400)); CREATE INDEX h_btree ON h (k)"
    mechanism "$1"
    restart; shut; session builder
    tell builder "SELECT nitro_verify('h_nitro')"; at_gate
    if [ "$1" != none ]; then
        backup h_nitro
        open_gate; answer builder > /dev/null; end builder
        crash; start; loaded h_nitro
        verdict "$1" h "SELECT k FROM h WHERE k < 600 ORDER BY k"
        return
    fi
    [[ $(sql_fails "SELECT nitro_backup('h_nitro')") == 55000:* ]] || fail "an image of half an index"
    open_gate; answer builder > /dev/null
    backup h_nitro
    # Between build and validation, with a row that only the validation will index: written before the index was
    # ready for inserts, committed after the build.
    local in_phase="SELECT count(*) = 1 FROM pg_stat_progress_create_index WHERE phase ="
    session one; session two; session old
    ask one "BEGIN; INSERT INTO h VALUES (1, 1)" > /dev/null
    tell builder "CREATE INDEX CONCURRENTLY h_cic_nitro ON h USING nitro (gate(g, 400), k)"
    wait_until "$in_phase 'waiting for writers before build'"
    [[ $(sql_fails "SELECT nitro_backup('h_cic_nitro')") == 55000:* ]] || fail "an image of an index that is not ready"
    ask two "BEGIN; INSERT INTO h VALUES (2, 2)" > /dev/null
    ask one "COMMIT" > /dev/null; end one
    wait_until "$in_phase 'waiting for writers before validation'"
    [[ $(sql_fails "SELECT nitro_backup('h_cic_nitro')") == 55000:* ]] || fail "an image of an index that is not validated"
    ask old "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM noise" > /dev/null
    ask two "COMMIT" > /dev/null; end two
    wait_until "$in_phase 'waiting for old snapshots'"
    [[ $(sql_fails "SELECT nitro_backup('h_cic_nitro')") == 55000:* ]] || fail "an image of an index that is not valid"
    end old; answer builder > /dev/null; end builder
    backup h_cic_nitro h_nitro
    sql "INSERT INTO h SELECT i, i FROM generate_series(501, 600) i"
    crash; start; loaded h_nitro; loaded h_cic_nitro
    verdict none h "SELECT k FROM h WHERE k < 600 ORDER BY k"
}

# --- what is recycled while no image is loaded ---------------------------------------------------------
recycled() { # MECHANISM
    note "rows that come, go and move after the image (off: $1)"
    sql "CREATE TABLE r (k int, pad text) WITH (autovacuum_enabled = off, fillfactor = 90); INSERT INTO r SELECT i, repeat('x', 50) FROM generate_series(1, 2000) i"
    sql "CREATE INDEX r_nitro ON r USING nitro (k); CREATE INDEX r_btree ON r (k)"
    mechanism "$1"
    backup r_nitro
    sql "DELETE FROM r WHERE k BETWEEN 100 AND 300; VACUUM (INDEX_CLEANUP on) r; INSERT INTO r SELECT i, repeat('y', 50) FROM generate_series(10001, 10150) i"
    sql "UPDATE r SET k = -k WHERE k % 50 = 0; UPDATE r SET pad = 'hot' WHERE k % 70 = 0; VACUUM (FREEZE) r; UPDATE r SET k = k + 20000 WHERE k BETWEEN 10001 AND 10020"
    crash; start; loaded r_nitro
    verdict "$1" r "SELECT * FROM r WHERE k BETWEEN 90 AND 310" "SELECT k FROM r WHERE k > -5000 ORDER BY k" "SELECT * FROM r WHERE k > 10000"
}

# F1: rows are dead in the image, VACUUM is between its passes when the image is loaded.
vacuum_before_the_load() { # MECHANISM
    note "VACUUM of an index whose image is loaded before its second heap pass (off: $1)"
    sql "CREATE TABLE v (k int, b int, pad text) WITH (autovacuum_enabled = off); INSERT INTO v SELECT i, i, repeat('x', 70) FROM generate_series(1, 70) i"
    sql "CREATE INDEX v_nitro ON v USING nitro (k); CREATE INDEX v_b ON v (b); CREATE INDEX v_btree ON v (k)"
    sql "DELETE FROM v WHERE k = 7; SELECT count(*) FROM v; INSERT INTO v SELECT 71, 71, repeat('y', 70)" > /dev/null
    sql "SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM v" > /dev/null
    assert_eq "a dead line pointer" "$(sql "SELECT count(*) FROM heap_page_items(get_raw_page('v', 0)) WHERE lp_flags = 3")" 1
    # Hint bits are on disk before the image: setting them later could name the block.
    sql "CHECKPOINT"
    backup v_nitro
    mechanism "$1"
    crash; start
    session cursor; session vacuum
    # An index-only cursor pins a leaf of the btree, and VACUUM, done with ours, stops at it.
    ask cursor "$index_plans; SET nitro.enable_scan = off; BEGIN; DECLARE c CURSOR FOR SELECT b FROM v WHERE b > 0 ORDER BY b; FETCH 1 FROM c" > /dev/null
    tell vacuum "VACUUM (INDEX_CLEANUP on) v"
    wait_until "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'BufferPin' OR wait_event = 'BufferCleanup'"
    local from; from=$(log_end)
    bring_up v_nitro
    [ "$1" != none ] || assert_eq "its image was forgotten" "$(came_from v_nitro "$from")" table
    ask cursor "COMMIT" > /dev/null; answer vacuum > /dev/null; end cursor; end vacuum
    sql "INSERT INTO v VALUES (1007, 1007, repeat('z', 70))"
    assert_eq "the TID was used again" "$(sql "SELECT ctid FROM v WHERE k = 1007")" "(0,7)"
    verdict "$1" v "SELECT * FROM v WHERE k = 7" "SELECT * FROM v WHERE k = 1007" "SELECT k FROM v WHERE k < 2000 ORDER BY k"
}

image_that_stays() {
    note "VACUUM of an index whose image can neither be loaded nor removed"
    [ "$(id -u)" != 0 ] || { note "root may remove everything: not tested"; return; }
    sql "CREATE TABLE i (k int) WITH (autovacuum_enabled = off); INSERT INTO i SELECT generate_series(1, 1000); CREATE INDEX i_nitro ON i USING nitro (k); CREATE INDEX i_btree ON i (k)"
    backup i_nitro
    local f; f=$(newest i_nitro)
    sql "DELETE FROM i WHERE k < 500"
    crash; chmod 500 "$f"; start
    [[ $(sql_fails "VACUUM (INDEX_CLEANUP on) i") == "58030: could not remove the images"* ]] || fail "VACUUM went on"
    sql "VACUUM (INDEX_CLEANUP off) i; INSERT INTO i SELECT generate_series(2001, 2300)"
    [[ $(sql_fails "VACUUM (INDEX_CLEANUP on) i") == "58030: could not remove the images"* ]] || fail "VACUUM went on"
    chmod 700 "$f"
    sql "VACUUM (INDEX_CLEANUP on) i; INSERT INTO i SELECT generate_series(3001, 3300)"
    assert_eq "the image" "$(generations i_nitro)" ""
    verdict none i "SELECT * FROM i WHERE k < 600" "SELECT k FROM i WHERE k > 900 ORDER BY k"
}

# F3, in the image and in the look at changed blocks.
hot_chains_older_than_the_index() { # MECHANISM, HOW the index is made
    note "HOT chains older than the index, $2, image, the block changes, power cut (F3; off: $1)"
    sql "CREATE TABLE f3 (a int PRIMARY KEY, b int) WITH (fillfactor = 50); INSERT INTO f3 SELECT i, 1 FROM generate_series(1, 50) i"
    sql "BEGIN; CREATE TABLE f3_other (i int); PREPARE TRANSACTION 'old'" > /dev/null
    sql "UPDATE f3 SET b = 2 WHERE a % 2 = 0; CREATE INDEX f3_nitro ON f3 USING nitro (b); CREATE INDEX f3_btree ON f3 (b)"
    [ "$2" != REINDEX ] || sql "REINDEX TABLE f3"
    assert_eq "broken chains" "$(sql "SELECT indcheckxmin FROM pg_index WHERE indexrelid = 'f3_nitro'::regclass")" t
    mechanism "$1"
    backup f3_nitro
    sql "UPDATE f3 SET b = 3 WHERE a = 13; SELECT 1 FROM f3 WHERE a = 2 FOR UPDATE" > /dev/null
    crash; start; loaded f3_nitro
    sql "ROLLBACK PREPARED 'old'"
    if [ "$1" = none ]; then
        same_answers f3 "SELECT * FROM f3 WHERE b = 1" "SELECT * FROM f3 WHERE b = 2"
        sql "VACUUM f3"
    fi
    verdict "$1" f3 "SELECT * FROM f3 WHERE b = 1" "SELECT * FROM f3 WHERE b = 2" "SELECT b FROM f3 WHERE b > 0 ORDER BY b DESC"
}

inserted_during_the_load() { # MECHANISM
    note "a row is in the heap, the load indexes it, then its own insertion arrives; an unflushed tail (F7, F10; off: $1)"
    sql "CREATE TABLE f7 (k int, g int); INSERT INTO f7 SELECT i, i FROM generate_series(1, 1000) i"
    # Indexes are served in the order of their OIDs: the writer stops before it comes to ours.
    sql "CREATE INDEX f7_gate ON f7 (gate(g, 1000)); CREATE INDEX f7_nitro ON f7 USING nitro (k); CREATE INDEX f7_btree ON f7 (k)"
    backup f7_nitro; mechanism "$1"
    crash; start; shut; session writer
    # Nobody else flushes the tail meanwhile. They are stopped where they hold no lock.
    local others; mapfile -t others < <(sql "SELECT pid FROM pg_stat_activity WHERE backend_type IN ('walwriter', 'background writer')")
    while kill -STOP "${others[@]}"; [ "$(sql "SELECT count(*) FROM pg_stat_activity WHERE backend_type IN ('walwriter', 'background writer') AND wait_event_type = 'Activity'")" != 2 ]; do
        kill -CONT "${others[@]}"; sleep 0.05
    done
    tell writer "INSERT INTO f7 VALUES (5000, 1000)"; at_gate
    sql "SET synchronous_commit = off; INSERT INTO f7 SELECT i, 1 FROM generate_series(5001, 5010) i"
    loaded f7_nitro
    kill -CONT "${others[@]}"
    [ "$1" != none ] || assert_eq "the load saw the rows" "$(sql "SELECT nitro_verify('f7_nitro', true)")" 1011
    sql "INSERT INTO f7 VALUES (5500, 1)"
    open_gate; answer writer > /dev/null; end writer
    [ "$1" != none ] || assert_eq "once" "$(sql "SELECT nitro_verify('f7_nitro', true)")" 1012
    verdict "$1" f7 "SELECT * FROM f7 WHERE k = 5000" "SELECT k FROM f7 WHERE k > 900 ORDER BY k"
}

interrupted_load() {
    note "a load that stops at a changed row: writers and VACUUM meanwhile, cancel, another one goes on"
    sql "CREATE TABLE c (k int, g int) WITH (autovacuum_enabled = off); INSERT INTO c SELECT i, i FROM generate_series(1, 2000) i; CREATE INDEX c_nitro ON c USING nitro (k, gate(g, 5000)); CREATE INDEX c_btree ON c (k)"
    backup c_nitro
    sql "DELETE FROM c WHERE k < 100; INSERT INTO c VALUES (5000, 5000)"
    crash; start; shut; session loader; session vacuum
    local from pid; from=$(log_end) pid=$(ask loader "SELECT pg_backend_pid()")
    tell loader "SELECT nitro_verify('c_nitro')"; at_gate
    assert_eq "state" "$(state c_nitro)" "catching up"
    [[ $(sql_fails "SELECT nitro_backup('c_nitro')") == 55000:* ]] || fail "an image of half an index"
    sql "SET nitro.enable_scan = off; UPDATE c SET k = -k WHERE k BETWEEN 300 AND 400; DELETE FROM c WHERE k BETWEEN 500 AND 600"
    tell vacuum "VACUUM (INDEX_CLEANUP on) c"
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'object' AND NOT granted"
    sql "SELECT pg_cancel_backend($pid)" > /dev/null
    [[ $(answer loader) == *canceling* ]] || fail "not cancelled"
    answer vacuum > /dev/null
    assert_eq "state" "$(state c_nitro)" "catching up"
    sql "SET nitro.enable_scan = off; INSERT INTO c SELECT i, i FROM generate_series(6001, 6300) i"
    tell loader "SELECT nitro_verify('c_nitro', true)"; at_gate
    sql "SET nitro.enable_scan = off; INSERT INTO c SELECT i, i FROM generate_series(6301, 6400) i"
    open_gate; answer loader > /dev/null; end loader; end vacuum
    assert_eq "not rebuilt" "$(logged 'c_nitro" rebuilt' "$from")" 0
    verdict none c "SELECT * FROM c WHERE k < 610" "SELECT k FROM c WHERE k > 4000 ORDER BY k"
}

poison_row_in_the_load() {
    note "a row that came after the image cannot be indexed any more (F11)"
    sql "CREATE FUNCTION picky(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN i; END'"
    sql "CREATE TABLE f11 (i int); INSERT INTO f11 SELECT generate_series(1, 500); CREATE INDEX f11_nitro ON f11 USING nitro (picky(i)); CREATE INDEX f11_btree ON f11 (i)"
    backup f11_nitro
    sql "INSERT INTO f11 VALUES (1042)"
    sql "CREATE OR REPLACE FUNCTION picky(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN IF i = 1042 THEN RAISE EXCEPTION ''bad luck'' USING ERRCODE = ''22000''; END IF; RETURN i; END'"
    crash; start
    # By the planner, which waits for the load.
    assert_eq "rows" "$(sql "SELECT count(*) FROM f11 WHERE i > 400")" 101
    assert_eq "state" "$(state f11_nitro)" failed
    mechanism failures; restart immediate
    assert_eq "without its mechanism" "$(sql_fails "SELECT count(*) FROM f11 WHERE i > 400")" "22000: bad luck"
    mechanism none
    [[ $(sql_fails "SELECT nitro_verify('f11_nitro')") == "22000: bad luck" ]] || fail "the original error"
    assert_eq "state" "$(state f11_nitro)" failed
    sql "INSERT INTO f11 VALUES (600); VACUUM (INDEX_CLEANUP on) f11" 2> /dev/null
    assert_eq "rows" "$(sql "SELECT count(*) FROM f11 WHERE i > 400")" 102
    sql "CREATE OR REPLACE FUNCTION picky(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN i; END'"
    sql "DELETE FROM f11 WHERE i = 3; VACUUM (INDEX_CLEANUP on) f11; INSERT INTO f11 VALUES (700)"
    restart; ready f11_nitro
    any_plan=1 verdict none f11 "SELECT i FROM f11 WHERE picky(i) BETWEEN 2 AND 800"
}

deadlock_in_the_load() {
    note "a load behind a lock of a transaction that waits for the load (F12)"
    sql "CREATE TABLE f12_other (f int); INSERT INTO f12_other VALUES (1); CREATE TABLE f12 (i int); INSERT INTO f12 SELECT generate_series(1, 50)"
    sql "CREATE FUNCTION reads_other(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN i * (SELECT f FROM public.f12_other); END'"
    sql "CREATE INDEX f12_nitro ON f12 USING nitro (reads_other(i)); CREATE INDEX f12_btree ON f12 (reads_other(i))"
    backup f12_nitro
    sql "INSERT INTO f12 VALUES (77)"
    crash; start; session writer; session loader
    ask writer "BEGIN; LOCK TABLE f12_other" > /dev/null
    local from told; from=$(log_end)
    tell loader "SELECT nitro_verify('f12_nitro')"
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND relation = 'f12_other'::regclass"
    # By the planner, which waits for the load.
    tell writer "SELECT count(*) FROM f12 WHERE reads_other(i) = 5"
    local first second
    first=$(answer writer); ask writer "ROLLBACK" > /dev/null; second=$(answer loader)
    # The writer, if it is the one, is told by the log: its query is planned without the index.
    told=$(grep -c 'deadlock detected' <<< "$first$second" || true)
    assert_eq "one of them is told" $((told + $(logged 'planned without its nitro index: deadlock detected' "$from"))) 1
    end writer; end loader
    verdict none f12 "SELECT i FROM f12 WHERE reads_other(i) > 5 ORDER BY reads_other(i)"
}

# --- tables that change as a whole ---------------------------------------------------------------------
whole_tables() {
    note "truncation by VACUUM, TRUNCATE, REINDEX, VACUUM FULL, another tablespace, another type"
    local t all="shrunk emptied rebuilt packed moved unmoved typed undone"
    for t in $all; do
        sql "CREATE TABLE $t (k int, pad text) WITH (autovacuum_enabled = off); INSERT INTO $t SELECT i, repeat('x', 100) FROM generate_series(1, 3000) i; CREATE INDEX ${t}_nitro ON $t USING nitro (k); CREATE INDEX ${t}_btree ON $t (k)"
    done
    sql "ALTER TABLE typed ADD v varchar(10); CREATE INDEX typed_v_nitro ON typed USING nitro (v COLLATE \"C\"); INSERT INTO typed SELECT i, 'x', i FROM generate_series(3001, 3100) i"
    for t in $all typed_v; do backup "${t}_nitro"; done
    sql "DELETE FROM shrunk WHERE k > 1000; VACUUM (INDEX_CLEANUP on, TRUNCATE on) shrunk"
    [ "$(sql "SELECT pg_relation_size('shrunk') / 8192")" -lt 30 ] || fail "not truncated"
    sql "INSERT INTO shrunk SELECT i, repeat('y', 100) FROM generate_series(10001, 12000) i"
    sql "TRUNCATE emptied; INSERT INTO emptied SELECT i, 'y' FROM generate_series(10001, 10500) i"
    sql "REINDEX TABLE rebuilt; DELETE FROM packed WHERE k % 2 = 0; VACUUM FULL packed; ALTER TABLE moved SET TABLESPACE other; INSERT INTO moved VALUES (10001, 'y')"
    sql "BEGIN; ALTER TABLE unmoved SET TABLESPACE other; INSERT INTO unmoved VALUES (10001, 'y'); ROLLBACK; INSERT INTO unmoved VALUES (10002, 'y')"
    sql "ALTER TABLE typed ALTER v TYPE text; INSERT INTO typed VALUES (10001, 'y', 'text')"
    sql "BEGIN; TRUNCATE undone; INSERT INTO undone VALUES (10001, 'y'); ROLLBACK; BEGIN; REINDEX INDEX undone_nitro; ROLLBACK; INSERT INTO undone VALUES (10002, 'y')"
    crash; start
    loaded shrunk_nitro; loaded unmoved_nitro; loaded undone_nitro
    rebuilt moved_nitro "the table was moved"
    for t in $all; do
        verified "$t"
        same_answers "$t" "SELECT k FROM $t WHERE k > 500 ORDER BY k" "SELECT * FROM $t WHERE k < 300"
        sql "INSERT INTO $t SELECT i, 'z' FROM generate_series(20001, 20500) i"
        same_answers "$t" "SELECT k FROM $t WHERE k > 10000 ORDER BY k"
        sql "DROP TABLE $t"
    done
}

# F9: the relation was truncated, extended again and not used yet when the server died: such a page has no LSN.
pages_without_lsn() { # MECHANISM
    note "new pages without an LSN where the image has rows, without WAL (off: $1)"
    sql "CREATE TABLE n (k int, pad text) WITH (autovacuum_enabled = off); INSERT INTO n SELECT i, repeat('x', 700) FROM generate_series(1, 500) i; CREATE INDEX n_nitro ON n USING nitro (k); CREATE INDEX n_btree ON n (k)"
    sql "CREATE INDEX n_len_nitro ON n USING nitro (length(pad), k)"
    backup n_nitro n_len_nitro; mechanism "$1"
    sql "DELETE FROM n WHERE k > 200; VACUUM (INDEX_CLEANUP on, TRUNCATE on) n; UPDATE n SET k = -k WHERE k % 20 = 0"
    switch_wal
    local file from; file=$(data)/$(sql "SELECT pg_relation_filepath('n')")
    stop_as_is; without_wal
    truncate -s "+$((8192 * 20))" "$file"
    from=$(log_end); start
    bring_up n_nitro; bring_up n_len_nitro
    assert_eq "by pages" "$(logged 'comparing the pages of its table' "$from")" 2
    assert_eq "source" "$(came_from n_nitro "$from")" image
    # The free pages become known, and their TIDs are used.
    sql "VACUUM n; INSERT INTO n SELECT i, repeat('y', 700) FROM generate_series(1001, 1250) i"
    assert_eq "used again" "$(sql "SELECT count(*) > 0 FROM n WHERE ctid >= '(25,1)' AND k > 1000")" t
    verdict "$1" n "SELECT k FROM n WHERE k BETWEEN 150 AND 600" "SELECT k, length(pad) FROM n WHERE length(pad) = 700 AND k > 900 ORDER BY k"
}

# --- histories that fork -------------------------------------------------------------------------------
# The data directory comes from a backup, the folder of images stayed: it was on another disk, say.
images_of_the_future() { # MECHANISM
    note "an older data directory with newer images (off: $1)"
    sql "CREATE TABLE a (k int, pad text) WITH (autovacuum_enabled = off); INSERT INTO a SELECT i, 'x' FROM generate_series(1, 1000) i; CREATE INDEX a_nitro ON a USING nitro (k); CREATE INDEX a_btree ON a (k)"
    mechanism "$1"
    backup a_nitro; stop
    cp -a "$(data)" "$NITRO_TMP/old"
    start; ready a_nitro
    sql "DELETE FROM a WHERE k < 500; VACUUM (INDEX_CLEANUP on) a; INSERT INTO a SELECT i, 'y' FROM generate_series(2001, 2400) i"
    rm -r "$(folder a_nitro)"; backup a_nitro; stop
    mv "$(data)/pg_nitro" "$NITRO_TMP/new"; rm -r "$(data)"; mv "$NITRO_TMP/old" "$(data)"; rm -r "$(data)/pg_nitro"; mv "$NITRO_TMP/new" "$(data)/pg_nitro"
    local from; from=$(log_end); start
    if [ "$1" = none ]; then rebuilt a_nitro "newer than the server's WAL" "$from"; else loaded a_nitro; fi
    verdict "$1" a "SELECT * FROM a WHERE k < 600" "SELECT k FROM a WHERE k > 900 ORDER BY k"
}

reset_wal() {
    note "pg_resetwal after a power cut: pages may be older than the image; the image does not come back later either (F9)"
    sql "CREATE TABLE z (k int, pad text) WITH (autovacuum_enabled = off); INSERT INTO z SELECT i, 'x' FROM generate_series(1, 100) i; CREATE INDEX z_nitro ON z USING nitro (k)"
    sql "CREATE INDEX z_pad_nitro ON z USING nitro (pad COLLATE \"C\", k); CREATE INDEX z_btree ON z (k); CHECKPOINT"
    sql "INSERT INTO z SELECT i, 'lost' FROM generate_series(101, 150) i"
    backup z_nitro z_pad_nitro
    crash
    "$NITRO_BIN/pg_resetwal" -f "$(data)" > /dev/null
    local from; from=$(log_end); start
    assert_eq "rows are lost" "$(sql "SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM z")" 100
    rebuilt z_nitro "WAL since it was made (cannot be used|is gone)" "$from"
    # Nobody needs the other one in this server life; a clean stop takes the slot away.
    sql "CHECKPOINT"; restart
    sql "REINDEX INDEX z_btree; INSERT INTO z SELECT i, 'new' FROM generate_series(201, 260) i"
    ready z_nitro z_pad_nitro
    verdict none z "SELECT * FROM z WHERE k > 90" "SELECT k FROM z WHERE pad COLLATE \"C\" = 'lost'" "SELECT k FROM z WHERE pad COLLATE \"C\" > 'm' ORDER BY pad COLLATE \"C\", k"
}

other_level() {
    note "wal_level = minimal in between, and a start with it after a clean stop (F9, F14)"
    sql "CREATE TABLE m (k int, pad text) WITH (autovacuum_enabled = off); INSERT INTO m SELECT i, 'x' FROM generate_series(1, 1000) i; CREATE INDEX m_nitro ON m USING nitro (k); CREATE INDEX m_btree ON m (k)"
    sql "CREATE TABLE m2 AS SELECT * FROM m; CREATE INDEX m2_nitro ON m2 USING nitro (k); CREATE INDEX m2_btree ON m2 (k)"
    backup m_nitro m2_nitro
    stop_as_is
    settings "wal_level = minimal" "max_wal_senders = 0"; start
    [[ $(sql_fails "SELECT nitro_backup('m_nitro')") == 55000:* ]] || fail "an image without a feed"
    sql "DELETE FROM m WHERE k < 500; VACUUM (INDEX_CLEANUP on) m; INSERT INTO m SELECT i, 'y' FROM generate_series(2001, 2400) i"
    # A table with a new file is not logged at all.
    sql "BEGIN; ALTER TABLE m2 SET TABLESPACE other; DELETE FROM m2 WHERE k < 500; INSERT INTO m2 SELECT i, 'y' FROM generate_series(2001, 2400) i; COMMIT"
    crash; start
    verified m2; same_answers m2 "SELECT k FROM m2 WHERE k > 0 ORDER BY k"
    stop; settings "wal_level = replica" "max_wal_senders = 10"; start
    ready m_nitro m2_nitro
    verdict none m "SELECT * FROM m WHERE k < 600" "SELECT k FROM m WHERE k > 900 ORDER BY k"
    verdict none m2 "SELECT * FROM m2 WHERE k < 600" "SELECT k FROM m2 WHERE k > 900 ORDER BY k"
}

changes() { # TABLE N: changes of every sort
    sql "DELETE FROM $1 WHERE k % 17 = $2 % 17; UPDATE $1 SET k = k + 3 WHERE k % 19 = 0; VACUUM (INDEX_CLEANUP on) $1
         ; INSERT INTO $1 SELECT i, 'n' || $2 FROM generate_series($2 * 10000, $2 * 10000 + 300) i; UPDATE $1 SET pad = 'hot' WHERE k % 23 = 0"
}
fork_table() {
    sql "CREATE TABLE f (k int, pad text) WITH (autovacuum_enabled = off); INSERT INTO f SELECT i, 'x' FROM generate_series(1, 3000) i; CREATE INDEX f_nitro ON f USING nitro (k); CREATE INDEX f_btree ON f (k)"
}
right() { verified f; same_answers f "SELECT k FROM f WHERE k > 0 ORDER BY k" "SELECT * FROM f WHERE k BETWEEN 500 AND 700"; }
copy() { # FROM TO [OPTION...]: a base backup of one server as another, not started
    local from_port to=$2
    node=$1 from_port=$(port); node=$to; shift 2
    "$NITRO_BIN/pg_basebackup" -h "$NITRO_TMP" -p "$from_port" -D "$(data)" -X stream "$@" > "$NITRO_TMP/basebackup" 2>&1 || fail "pg_basebackup: $(cat "$NITRO_TMP/basebackup")"
    echo $((5432 + $(find "$NITRO_TMP" -maxdepth 1 -name '*.data' | wc -l))) > "$(data)/nitro.port"
    settings "port = $(port)"
}

# A server of its own for each fork, with an archive.
forks() {
    note "base backup while images are replaced; PITR; promotion; pg_rewind"
    stop; mkdir "$NITRO_TMP/archive"; node=one
    new_server "${by_hand[@]}" -c "archive_mode = on" -c "archive_command = 'cp %p $NITRO_TMP/archive/%f'" -c "wal_log_hints = on" -c "wal_keep_size = 512MB"
    sql "CREATE EXTENSION pageinspect"
    fork_table; backup f_nitro
    # The backup takes its time, and images come and go meanwhile.
    (
        for i in $(seq 1 400); do
            [ ! -f "$NITRO_TMP/enough" ] || exit 0
            sql "DELETE FROM f WHERE k = $i; INSERT INTO f VALUES ($((100000 + i)), 'b'); SELECT nitro_backup('f_nitro')" > /dev/null
        done
    ) &
    local images=$! gen target
    gen=$(generations f_nitro)
    copy one two -c fast --max-rate=20M -R
    touch "$NITRO_TMP/enough"; wait "$images"; node=one
    [ "$(generations f_nitro)" != "$gen" ] || fail "no images were replaced"
    changes f 2; backup f_nitro
    # Both images may have been replaced while they were copied: one whole image beside the torn ones.
    local f; f=$(folder f_nitro); mkdir -p "${f/one.data/two.data}"; cp -a "$(newest f_nitro)" "${f/one.data/two.data}/"

    note "- PITR to a point before the newest image"
    cp -a "$NITRO_TMP/two.data" "$NITRO_TMP/three.data"
    target=$(sql "SELECT pg_create_restore_point('here')"); [ -n "$target" ]
    changes f 3; backup f_nitro
    local switched; switched=$(sql "SELECT pg_walfile_name(pg_switch_wal())")
    wait_until "SELECT last_archived_wal >= '$switched' FROM pg_stat_archiver"
    local source=""; source=$(folder f_nitro)
    node=three; echo 5435 > "$(data)/nitro.port"; rm "$(data)/standby.signal"; touch "$(data)/recovery.signal"
    settings "port = 5435" "archive_mode = off" "primary_conninfo = ''" "restore_command = 'cp $NITRO_TMP/archive/%f %p'" "recovery_target_name = 'here'" "recovery_target_action = 'promote'"
    # An image that is newer than the point is only there if somebody put it there.
    rm -r "$(data)/${source#"$NITRO_TMP/one.data/"}"; cp -a "$source" "$(data)/${source#"$NITRO_TMP/one.data/"}"
    start; wait_until "SELECT NOT pg_is_in_recovery()"
    right
    assert_eq "the point" "$(sql "SELECT count(*) FROM f WHERE pad = 'n3'")" 0
    changes f 4; backup f_nitro; crash; start; loaded f_nitro; right
    stop immediate; rm -r "$(data)"

    note "- promotion of a standby"
    node=two; start
    (node=one; changes f 5)
    target=$(node=one; sql "SELECT pg_current_wal_flush_lsn()")
    wait_until "SELECT pg_last_wal_replay_lsn() >= '$target'"
    sql "SELECT pg_promote()" > /dev/null; wait_until "SELECT NOT pg_is_in_recovery()"
    loaded f_nitro; right
    changes f 6; backup f_nitro; changes f 7
    # The old primary goes its own way, with images of its own.
    node=one; changes f 8; backup f_nitro; changes f 9; backup f_nitro
    cp -a "$(folder f_nitro)" "$NITRO_TMP/other_timeline"

    note "- an image of a timeline that was left before, put there by hand"
    node=two; crash
    local here=${source/one.data/two.data}
    mv "$here" "$NITRO_TMP/own"; cp -a "$NITRO_TMP/other_timeline" "$here"
    local from; from=$(log_end); start
    rebuilt f_nitro "timeline 1|WAL since it was made is gone" "$from"
    right
    backup f_nitro
    changes f 10; crash; start; loaded f_nitro; right

    note "- pg_rewind of the old primary"
    node=one; stop
    changes_two=$(node=two; sql "CHECKPOINT; SELECT sum(k) FROM f")
    (node=two; stop)
    "$NITRO_BIN/pg_rewind" -D "$NITRO_TMP/one.data" --source-pgdata "$NITRO_TMP/two.data" -c > "$NITRO_TMP/rewind" 2>&1 ||
        "$NITRO_BIN/pg_rewind" -D "$NITRO_TMP/one.data" --source-pgdata "$NITRO_TMP/two.data" > "$NITRO_TMP/rewind" 2>&1 || fail "pg_rewind: $(cat "$NITRO_TMP/rewind")"
    # The configuration of the other one came along.
    settings "port = $(port)" "primary_conninfo = ''" "archive_mode = off"; rm -f "$(data)/standby.signal"
    start; right
    assert_eq "rows" "$(sql "SELECT sum(k) FROM f")" "$changes_two"
    changes f 11; backup f_nitro; crash; start; loaded f_nitro; right
    stop immediate
    rm -r "$NITRO_TMP/one.data" "$NITRO_TMP/two.data" "$NITRO_TMP/archive"
    node=main; start
}

# --- the slot --------------------------------------------------------------------------------------------
slot() { sql "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'nitro'"; }
slot_is_no_burden() {
    note "the slot: gone after a clean stop, made again, dropped by hand, switched off, bounded (F14)"
    sql "CREATE TABLE w (k int, pad text) WITH (autovacuum_enabled = off); INSERT INTO w SELECT i, 'x' FROM generate_series(1, 1000) i; CREATE INDEX w_nitro ON w USING nitro (k); CREATE INDEX w_btree ON w (k)"
    backup w_nitro
    wait_until "SELECT count(*) = 1 FROM pg_replication_slots WHERE slot_name = 'nitro' AND NOT active"
    stop
    [ ! -e "$(data)/pg_replslot/nitro" ] || fail "a clean stop left the slot"
    settings "shared_preload_libraries = ''" "wal_level = minimal" "max_wal_senders = 0"; start
    assert_eq "without nitro" "$(slot)" 0
    sql "DELETE FROM w WHERE k = 3; VACUUM (INDEX_CLEANUP off) w"
    [[ $(sql_fails "INSERT INTO w VALUES (2001, 'without')") == *"must be loaded by"* ]] || fail "a row without its entry"
    stop; settings "shared_preload_libraries = 'nitro'" "wal_level = replica" "max_wal_senders = 10"; start
    verified w; same_answers w "SELECT k FROM w WHERE k > 900 ORDER BY k" "SELECT * FROM w WHERE k < 10"

    backup w_nitro
    wait_until "SELECT count(*) = 1 FROM pg_replication_slots WHERE slot_name = 'nitro'"
    stop_keeper; sql "SELECT pg_drop_replication_slot('nitro')"; kill -CONT "$(keeper)"; sql "CHECKPOINT"
    wait_until "SELECT count(*) = 1 FROM pg_replication_slots WHERE slot_name = 'nitro'"
    # Kept by nobody, the WAL of a crash is not there; the pages tell.
    backup w_nitro
    stop_keeper; sql "SELECT pg_drop_replication_slot('nitro'); DELETE FROM w WHERE k < 100; VACUUM (INDEX_CLEANUP on) w; INSERT INTO w SELECT i, 'y' FROM generate_series(3001, 3090) i"
    switch_wal; switch_wal
    local from; from=$(log_end)
    crash; without_wal; start; loaded w_nitro
    assert_eq "by pages" "$(logged 'comparing the pages of its table' "$from")" 1
    verified w; same_answers w "SELECT k FROM w WHERE k > 900 ORDER BY k" "SELECT * FROM w WHERE k < 110"

    setting nitro.use_slot off
    wait_until "SELECT count(*) = 0 FROM pg_replication_slots WHERE slot_name = 'nitro'"
    sql "INSERT INTO w VALUES (4001, 'z')"; backup w_nitro
    assert_eq "the manifest says so" "$(entry "$(newest w_nitro)" slot)" no
    sql "INSERT INTO w VALUES (4002, 'z')"
    crash; start; loaded w_nitro
    verified w
    sql "INSERT INTO w VALUES (4003, 'z')"; backup w_nitro; switch_wal
    sql "INSERT INTO w VALUES (4004, 'z')"
    stop_as_is; without_wal; start
    rebuilt w_nitro "WAL since it was made cannot be used"
    verified w
    setting nitro.use_slot on

    note "nitro.max_wal_lag, max_slot_wal_keep_size"
    sql "INSERT INTO w VALUES (4005, 'z')"; backup w_nitro
    local image i; image=$(image_lsn w_nitro)
    wait_until "SELECT restart_lsn <= '$image' FROM pg_replication_slots WHERE slot_name = 'nitro'"
    setting nitro.max_wal_lag 64MB
    for i in 1 2 3 4 5 6; do sql "CREATE TABLE x (i int); DROP TABLE x; SELECT pg_switch_wal()" > /dev/null; done
    # No image succeeds here, and yet the slot moves.
    sql "CHECKPOINT"
    wait_until "SELECT pg_current_wal_insert_lsn() - restart_lsn <= 64 * 1024 * 1024 FROM pg_replication_slots WHERE slot_name = 'nitro'"
    setting nitro.max_wal_lag 4GB
    sql "DELETE FROM w WHERE k BETWEEN 200 AND 300; VACUUM (INDEX_CLEANUP on) w; INSERT INTO w SELECT i, 'y' FROM generate_series(5001, 5090) i; CHECKPOINT"
    crash; start; ready w_nitro; verified w

    sql "INSERT INTO w VALUES (4005, 'z')"; backup w_nitro; sql "CHECKPOINT"
    setting max_slot_wal_keep_size 32MB
    stop_keeper
    sql "DELETE FROM w WHERE k BETWEEN 400 AND 500; VACUUM (INDEX_CLEANUP on) w; INSERT INTO w SELECT i, 'y' FROM generate_series(6001, 6090) i"
    for i in 1 2 3 4 5; do sql "CREATE TABLE x (i int); DROP TABLE x; SELECT pg_switch_wal()" > /dev/null; done
    sql "CHECKPOINT"
    assert_eq "invalidated" "$(sql "SELECT wal_status FROM pg_replication_slots WHERE slot_name = 'nitro'")" lost
    from=$(log_end)
    crash; without_wal; start; loaded w_nitro
    assert_eq "by pages" "$(logged 'comparing the pages of its table' "$from")" 1
    sql "CHECKPOINT"
    wait_until "SELECT wal_status <> 'lost' FROM pg_replication_slots WHERE slot_name = 'nitro'"
    sql "ALTER SYSTEM RESET max_slot_wal_keep_size; SELECT pg_reload_conf()" > /dev/null
    verdict none w "SELECT k FROM w WHERE k > 900 ORDER BY k" "SELECT * FROM w WHERE k < 600"
    wait_until "SELECT count(*) = 1 FROM pg_replication_slots WHERE slot_name = 'nitro'"
}

all_slots_taken() {
    note "no free replication slot"
    sql "SELECT pg_create_physical_replication_slot('s' || i) FROM generate_series(1, 9) i" > /dev/null
    setting nitro.use_slot off; sql "CHECKPOINT"
    wait_until "SELECT count(*) = 0 FROM pg_replication_slots WHERE slot_name = 'nitro'"
    sql "SELECT pg_create_physical_replication_slot('s10')" > /dev/null
    setting nitro.use_slot on
    sql "CREATE TABLE w (k int); INSERT INTO w SELECT generate_series(1, 1000); CREATE INDEX w_nitro ON w USING nitro (k); CREATE INDEX w_btree ON w (k)"
    backup w_nitro
    assert_eq "the manifest says so" "$(entry "$(newest w_nitro)" slot)" no
    sql "DELETE FROM w WHERE k < 100; VACUUM w; INSERT INTO w SELECT generate_series(2001, 2100)"
    crash; start; loaded w_nitro
    sql "SELECT pg_drop_replication_slot('s' || i) FROM generate_series(1, 10) i; CHECKPOINT" > /dev/null
    wait_until "SELECT count(*) = 1 FROM pg_replication_slots WHERE slot_name = 'nitro'"
    verdict none w "SELECT k FROM w WHERE k > 900 ORDER BY k" "SELECT * FROM w WHERE k < 110"
}

# --- by chance -------------------------------------------------------------------------------------------
storm() { # ROUNDS
    note "power cuts in a storm of writers, VACUUM and backups, with and without checksums and full page writes"
    sql "CREATE TABLE t (id bigserial PRIMARY KEY, k int, s text, n int DEFAULT 0) WITH (fillfactor = 80, autovacuum_enabled = off); INSERT INTO t (k, s) SELECT (random() * 1000)::int, md5(i::text) FROM generate_series(1, 5000) i"
    local kind round p
    for kind in nitro btree; do
        sql "CREATE INDEX t_k_$kind ON t USING $kind (k); CREATE INDEX t_s_$kind ON t USING $kind (s COLLATE \"C\", id) INCLUDE (n); CREATE INDEX t_p_$kind ON t USING $kind ((n % 7), k) WHERE n > 0"
    done
    backup t_k_nitro t_s_nitro t_p_nitro
    cat > "$NITRO_TMP/writers" <<'E2'
\set id random(1, 8000)
\set k random(1, 1000)
\set what random(1, 12)
\if :what <= 3
  INSERT INTO t (k, s) SELECT :k + i, md5((:k + i)::text) FROM generate_series(1, 5) i;
\elif :what <= 5
  UPDATE t SET k = :k WHERE id BETWEEN :id AND :id + 3;
\elif :what <= 7
  UPDATE t SET n = n + 1 WHERE id = :id;
\elif :what <= 9
  DELETE FROM t WHERE id BETWEEN :id AND :id + 8;
\elif :what = 10
  COPY t (k, s) FROM PROGRAM 'seq 1 50 | sed "s/.*/&\t&/"';
\else
  BEGIN;
  UPDATE t SET s = md5((:k + 1)::text), k = -k WHERE id BETWEEN :id AND :id + 5;
  SAVEPOINT a;
  INSERT INTO t (k, s) VALUES (:k, NULL);
  ROLLBACK TO a;
  INSERT INTO t (k, s) VALUES (:k, 'sub');
  COMMIT;
\endif
E2
    echo "SELECT nitro_backup();" > "$NITRO_TMP/backups"
    printf 'VACUUM (INDEX_CLEANUP on) t;\n\\sleep 100 ms\n' > "$NITRO_TMP/vacuums"
    for round in $(seq "$1"); do
        local all=()
        for p in writers writers backups vacuums; do
            "$NITRO_BIN/pgbench" -n -f "$NITRO_TMP/$p" -c 1 -T 600 --max-tries=5 --random-seed="$((NITRO_SEED + round))$((${#all[@]}))" -p "$(port)" > "$NITRO_TMP/pgbench.$p" 2>&1 & all+=($!)
        done
        random 2000; sleep "$((1 + REPLY / 1000)).$(printf %03d $((REPLY % 1000)))"
        case $((round % 3)) in 0) stop immediate ;; *) crash ;; esac
        for p in "${all[@]}"; do wait "$p" || true; done
        if [ $((round % 2)) = 1 ]; then
            sed -i '/^full_page_writes/d' "$(data)/postgresql.conf"; settings "full_page_writes = $([ $((round % 4)) = 1 ] && echo off || echo on)"
        fi
        local from; from=$(log_end)
        start
        for kind in k s p; do ready "t_${kind}_nitro"; assert_eq "round $round: $kind" "$(came_from "t_${kind}_nitro" "$from")" image; done
        verified t
        same_answers t "SELECT id, k FROM t WHERE k > -2000 ORDER BY k, id" "SELECT s, id, n FROM t WHERE s COLLATE \"C\" > '3'" "SELECT id FROM t WHERE n % 7 = 1 AND k > 100 AND n > 0"
        if [ "$round" = 2 ]; then
            stop
            if [ "$("$NITRO_BIN/pg_controldata" "$(data)" | sed -n 's/.*checksum version: *//p')" = 0 ]; then p=--enable; else p=--disable; fi
            "$NITRO_BIN/pg_checksums" $p -D "$(data)" > /dev/null 2>&1; start
            # VACUUM would forget images that no worker can load.
            ready t_k_nitro t_s_nitro t_p_nitro
        fi
    done
    sql "DROP TABLE t"
}

mkdir "$NITRO_TMP/other"; sql "CREATE TABLESPACE other LOCATION '$NITRO_TMP/other'"
for how in insert copy update; do run straddler none "$how"; run straddler straddlers "$how"; done
run straddler none "an unchanged index"; run straddler straddlers "an unchanged index"
for how in "beside a delete" "a function that writes" "a function of SQL" "two images" subtransaction "an exception block" "a prepared transaction"; do run straddler none "$how"; done
for off in none half_images; do run no_image_of_half_an_index $off; done
for off in none filter reread; do run recycled $off; done
for off in none forget; do run vacuum_before_the_load $off; done
run image_that_stays
for how in "CREATE INDEX" REINDEX; do for off in none chains; do run hot_chains_older_than_the_index $off "$how"; done; done
for off in none flush; do run inserted_during_the_load $off; done
run interrupted_load
run poison_row_in_the_load
run deadlock_in_the_load
run whole_tables
for off in none new_pages; do run pages_without_lsn $off; done
for off in none manifest; do run images_of_the_future $off; done
run reset_wal
run other_level
run forks
run slot_is_no_burden
run all_slots_taken
rounds=${LONG:+30}
run storm "${rounds:-4}"

#!/usr/bin/env bash
# Schedules that break naive versions of bulk delete, rebuild and insertion. Each asserts that it reached
# its moment, so that it cannot pass by missing it. An advisory lock taken by an index expression stops a
# process at that point.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"

new_server -c "nitro.backup = off" -c "max_prepared_transactions = 5" -c "deadlock_timeout = 200ms" -c "bgwriter_lru_maxpages = 0"
sql "CREATE EXTENSION pageinspect"
# Its value is immutable. The gate is shut while a session holds advisory lock 1 exclusively.
sql "CREATE FUNCTION gate(i int, at int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
     'BEGIN IF i = at THEN PERFORM pg_advisory_xact_lock_shared(1); END IF; RETURN i; END'"
version=$(sql "SHOW server_version_num")
shut() { session gate_keeper; ask gate_keeper "SELECT pg_advisory_lock(1)" > /dev/null; }
open_gate() { end gate_keeper; }
at_gate() { wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"; }
pid() { ask "$1" "SELECT pg_backend_pid()"; }
index_plans="SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off"
unbuild() { restart; }

dead_items_stay_out() {
    note "dead line pointers, restart, an index built between VACUUM's index pass and its second heap pass"
    sql "CREATE TABLE f1 (k int, b int, pad text) WITH (autovacuum_enabled = off)"
    sql "INSERT INTO f1 SELECT i, i, repeat('x', 70) FROM generate_series(1, 70) i"
    sql "CREATE INDEX f1_k_nitro ON f1 USING nitro (k)"
    sql "CREATE INDEX f1_b ON f1 (b); CREATE INDEX f1_k_btree ON f1 (k)"
    sql "DELETE FROM f1 WHERE k = 7; SELECT count(*) FROM f1" > /dev/null
    sql "INSERT INTO f1 SELECT 71, 71, repeat('y', 70)"
    sql "SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM f1" > /dev/null
    assert_eq "a dead line pointer" "$(sql "SELECT count(*) FROM heap_page_items(get_raw_page('f1', 0)) WHERE lp_flags = 3")" 1
    unbuild
    # An index-only cursor pins a leaf of the btree index. VACUUM has finished with our index and stops at
    # that leaf.
    session cursor; session vacuum
    ask cursor "$index_plans; SET nitro.enable_scan = off; BEGIN; DECLARE c CURSOR FOR SELECT b FROM f1 WHERE b > 0 ORDER BY b; FETCH 1 FROM c" > /dev/null
    tell vacuum "VACUUM (INDEX_CLEANUP on) f1"
    wait_until "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'BufferPin' OR wait_event = 'BufferCleanup'"
    assert_eq "not built by VACUUM" "$(state f1_k_nitro)" unbuilt
    sql "SELECT nitro_verify('f1_k_nitro', true)" > /dev/null
    ask cursor "COMMIT" > /dev/null
    answer vacuum > /dev/null
    sql "INSERT INTO f1 VALUES (1007, 1007, repeat('z', 70))"
    assert_eq "the TID was used again" "$(sql "SELECT ctid FROM f1 WHERE k = 1007")" "(0,7)"
    same_answers f1 "SELECT * FROM f1 WHERE k = 7" "SELECT * FROM f1 WHERE k = 1007" "SELECT k FROM f1 WHERE k < 2000 ORDER BY k"
    verified f1
    end cursor; end vacuum
}


killed_entry_in_index_only_cursor() { # HOW the cursor lets go, MECHANISM
    note "an index-only cursor that holds a killed entry, VACUUM; the cursor ends by: $1 (off: $2)"
    mechanism "$2"
    # About twenty rows a page: the cursor stands on a page that is all visible and pins none.
    sql "DROP TABLE IF EXISTS f2; CREATE TABLE f2 (k int, pad text) WITH (autovacuum_enabled = off)"
    sql "INSERT INTO f2 SELECT i, repeat('x', 360) FROM generate_series(1, 200) i; CREATE INDEX f2_nitro ON f2 USING nitro (k)"
    sql "VACUUM f2; DELETE FROM f2 WHERE k = 30"
    session cursor; session vacuum
    ask cursor "$index_plans; BEGIN; DECLARE c CURSOR FOR SELECT k FROM f2 WHERE k > 0 ORDER BY k" > /dev/null
    [[ $(ask cursor "EXPLAIN SELECT k FROM f2 WHERE k > 0 ORDER BY k") == *"Index Only Scan using f2_nitro"* ]] || fail "no index-only scan"
    assert_eq "first row" "$(ask cursor "FETCH 1 FROM c")" 1
    # Meets the dead row in the heap and kills its entry.
    sql "$index_plans; SET enable_indexonlyscan = off; SELECT count(*) FROM f2 WHERE k < 60" > /dev/null
    sql "$index_plans; SET enable_indexonlyscan = off; SELECT count(*) FROM f2 WHERE k < 60" > /dev/null
    local vacuum_pid cursor_pid event=NitroTidTokens
    vacuum_pid=$(pid vacuum) cursor_pid=$(pid cursor)
    [ "$version" -ge 170000 ] || event=Extension
    tell vacuum "VACUUM (INDEX_CLEANUP on) f2"
    if [ "$2" != none ]; then
        answer vacuum > /dev/null
        # Its page is all visible now, and the cursor does not look there.
        grep -qx 30 <<< "$(ask cursor "FETCH ALL FROM c")" || fail "without $2 the schedule proves nothing"
        mechanism none; end cursor; end vacuum
        return
    fi
    wait_until "SELECT wait_event = '$event' FROM pg_stat_activity WHERE pid = $vacuum_pid"
    sleep 0.5
    # VACUUM naps. Between two naps it shows no event.
    wait_until "SELECT state = 'active' AND wait_event = '$event' FROM pg_stat_activity WHERE pid = $vacuum_pid"
    local rows
    case $1 in
        fetching)
            rows=$(ask cursor "FETCH ALL FROM c")
            assert_eq "rows" "$(echo "$rows" | tr '\n' ' ')" "$(seq -s ' ' 2 200 | sed 's/ 30 / /') " ;;
        closing) ask cursor "CLOSE c" > /dev/null ;;
        rollback) ask cursor "ROLLBACK" > /dev/null ;;
        error) ask cursor "SELECT 1 / 0" > /dev/null ;;
        cancel)
            sql "SELECT pg_cancel_backend($vacuum_pid)" > /dev/null
            [[ $(answer vacuum) == *"canceling statement"* ]] || fail "VACUUM was not cancelled"
            tell vacuum "SELECT 1"
            rows=$(ask cursor "FETCH ALL FROM c")
            assert_eq "rows" "$(echo "$rows" | wc -l)" 198 ;;
        terminate) sql "SELECT pg_terminate_backend($cursor_pid)" > /dev/null ;;
    esac
    answer vacuum > /dev/null
    [ "$1" = terminate ] || ask cursor "ROLLBACK" > /dev/null
    sql "VACUUM (INDEX_CLEANUP on) f2"
    verified f2
    assert_eq "all" "$(sql "$index_plans; SELECT count(*) FROM f2 WHERE k > 0")" 199
    end cursor; end vacuum
}

kill_comes_too_late() {
    note "a scan kills an entry after VACUUM has removed it and an equal one has come in its place"
    sql "CREATE TABLE kill (k int, pad text) WITH (autovacuum_enabled = off)"
    sql "INSERT INTO kill SELECT i, repeat('x', 360) FROM generate_series(1, 200) i; CREATE INDEX kill_nitro ON kill USING nitro (k); CREATE INDEX kill_btree ON kill (k)"
    local old
    old=$(sql "SELECT ctid FROM kill WHERE k = 30")
    sql "DELETE FROM kill WHERE k = 30"
    session cursor
    ask cursor "$index_plans; SET enable_indexonlyscan = off; BEGIN; DECLARE c CURSOR FOR SELECT k FROM kill WHERE k > 0 ORDER BY k" > /dev/null
    # Has found the row dead, and still has its batch.
    assert_eq "rows" "$(ask cursor "FETCH 50 FROM c" | tail -n 1)" 51
    sql "VACUUM (INDEX_CLEANUP on) kill; INSERT INTO kill SELECT 30, repeat('y', 360) FROM generate_series(1, 40)"
    assert_eq "the TID was used again" "$(sql "SELECT count(*) FROM kill WHERE ctid = '$old'")" 1
    assert_eq "rows" "$(ask cursor "FETCH ALL FROM c" | wc -l)" 149
    end cursor
    same_answers kill "SELECT * FROM kill WHERE k = 30"
    verified kill
}

# A prepared transaction is older than the row's deletion: it keeps the root RECENTLY_DEAD over a crash.
hot_chain_older_than_the_index() { # HOW the index is made; HOW it gets unbuilt
    note "HOT update before $1, old snapshot, rebuild after $2"
    sql "DROP TABLE IF EXISTS f3; CREATE TABLE f3 (a int PRIMARY KEY, b int) WITH (fillfactor = 50)"
    sql "INSERT INTO f3 SELECT i, 1 FROM generate_series(1, 50) i"
    session old
    if [ "$2" = crash ]; then
        ask old "BEGIN; CREATE TABLE f3_other (i int); PREPARE TRANSACTION 'old'" > /dev/null
    else
        ask old "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM f3" > /dev/null
    fi
    sql "UPDATE f3 SET b = 2 WHERE a % 2 = 0"
    assert_eq "HOT updates" "$(sql "SELECT count(*) FROM heap_page_items(get_raw_page('f3', 0)) WHERE t_infomask2 & 16384 <> 0")" 25
    sql "CREATE INDEX f3_b_nitro ON f3 USING nitro (b); CREATE INDEX f3_b_btree ON f3 (b)"
    [ "$1" = "CREATE INDEX" ] || sql "REINDEX TABLE f3"
    assert_eq "broken chains" "$(sql "SELECT indcheckxmin FROM pg_index WHERE indexrelid = 'f3_b_nitro'::regclass")" t
    sql "UPDATE f3 SET a = -a WHERE a = 13"
    if [ "$2" = crash ]; then
        # The block gets a record, then all memory is lost.
        sql "CHECKPOINT; SELECT 1 FROM f3 WHERE a = 1 FOR UPDATE" > /dev/null
        crash; start
    else
        sql "ALTER INDEX f3_b_nitro SET TABLESPACE other"
        assert_eq "unbuilt" "$(state f3_b_nitro)" unbuilt
    fi
    ready f3_b_nitro
    if [ "$2" = crash ]; then
        sql "ROLLBACK PREPARED 'old'"
    else
        assert_eq "the old snapshot" "$(ask old "$index_plans; SELECT count(*), sum(b) FROM f3 WHERE b = 1")" "50|50"
        ask old "COMMIT" > /dev/null
    fi
    end old
    same_answers f3 "SELECT * FROM f3 WHERE b = 1" "SELECT * FROM f3 WHERE b = 2" "SELECT b FROM f3 WHERE b > 0 ORDER BY b DESC"
    verified f3
    sql "VACUUM f3"
    same_answers f3 "SELECT * FROM f3 WHERE b = 1" "SELECT * FROM f3 WHERE b = 2"
    verified f3
}

row_already_indexed_by_the_walk() { # WHO builds: foreground or worker
    note "a row is in the heap, a walk indexes it, then its own insertion arrives ($1 build)"
    sql "DROP TABLE IF EXISTS f7; CREATE TABLE f7 (k int, g int); INSERT INTO f7 SELECT i, i FROM generate_series(1, 100) i"
    # Inserts serve indexes in the order of their OIDs: the inserter stops before our index.
    sql "CREATE INDEX f7_gate ON f7 (gate(g, 1000)); CREATE INDEX f7_k_nitro ON f7 USING nitro (k); CREATE INDEX f7_k_btree ON f7 (k)"
    unbuild; shut
    session insert
    tell insert "INSERT INTO f7 VALUES (500, 1000)"
    at_gate
    assert_eq "not built by the insert" "$(state f7_k_nitro)" unbuilt
    if [ "$1" = worker ]; then
        sql "EXPLAIN SELECT * FROM f7 WHERE k = 1" > /dev/null
        built f7_k_nitro
    else
        ready f7_k_nitro
    fi
    assert_eq "the walk saw the row" "$(sql "SELECT entries FROM pg_stat_nitro_indexes WHERE indexrelid = 'f7_k_nitro'::regclass")" 101
    open_gate
    answer insert > /dev/null; end insert
    same_answers f7 "SELECT * FROM f7 WHERE k = 500" "SELECT k FROM f7 WHERE k > 90 ORDER BY k"
    assert_eq "entries" "$(sql "SELECT nitro_verify('f7_k_nitro', true)")" 101
}

first_insert_after_restart() {
    note "the first INSERT after a restart, unbuilt; then a walk beside open transactions"
    sql "DROP TABLE IF EXISTS f7; CREATE TABLE f7 (k int); INSERT INTO f7 SELECT generate_series(1, 100)"
    sql "CREATE INDEX f7_k_nitro ON f7 USING nitro (k); CREATE INDEX f7_k_btree ON f7 (k)"
    unbuild
    session one; session two; session three
    ask one "BEGIN; INSERT INTO f7 VALUES (501); SAVEPOINT s; INSERT INTO f7 VALUES (502); ROLLBACK TO s" > /dev/null
    ask two "BEGIN; INSERT INTO f7 VALUES (503)" > /dev/null
    ask three "BEGIN; UPDATE f7 SET k = 600 WHERE k = 50; DELETE FROM f7 WHERE k = 51" > /dev/null
    ready f7_k_nitro
    ask one "INSERT INTO f7 VALUES (504); COMMIT" > /dev/null
    ask two "ROLLBACK" > /dev/null
    same_answers f7 "SELECT k FROM f7 WHERE k > 40 ORDER BY k"
    ask three "COMMIT" > /dev/null
    same_answers f7 "SELECT k FROM f7 WHERE k > 40 ORDER BY k" "SELECT * FROM f7 WHERE k IN (50, 51, 501, 502, 503, 504, 600)"
    verified f7
    sql "VACUUM f7"; verified f7
    end one; end two; end three
}

toasted_keys() {
    note "toasted keys and expressions"
    sql "CREATE TABLE f8 (i int, big text, zip text); ALTER TABLE f8 ALTER big SET STORAGE external"
    sql "INSERT INTO f8 SELECT i, string_agg(md5(i::text || j), ''), repeat(md5(i::text), 2000) FROM generate_series(1, 200) i, generate_series(1, 150) j GROUP BY i"
    sql "CREATE INDEX f8_big_nitro ON f8 USING nitro (big COLLATE \"C\"); CREATE INDEX f8_zip_nitro ON f8 USING nitro (right(zip, 40) COLLATE \"C\", length(big))"
    sql "CREATE INDEX f8_zip_btree ON f8 (right(zip, 40) COLLATE \"C\", length(big))"
    sql "UPDATE f8 SET big = big || 'more' WHERE i % 3 = 0; DELETE FROM f8 WHERE i % 7 = 0"
    restart immediate
    ready f8_big_nitro f8_zip_nitro
    same_answers f8 "SELECT i FROM f8 WHERE right(zip, 40) COLLATE \"C\" > '8'"
    sql "INSERT INTO f8 SELECT 1000 + i, big, zip FROM f8"
    verified f8
    local i
    i=$(sql "$index_plans; SELECT count(*) FROM f8 WHERE big COLLATE \"C\" = (SELECT big FROM f8 WHERE i = 11)")
    assert_eq "equal large keys" "$i" 2
}

expression_fails_for_a_row_in_flight() {
    note "the expression fails for another session's uncommitted row"
    sql "CREATE TABLE f8x (i int, g int); INSERT INTO f8x SELECT i, i FROM generate_series(1, 100) i"
    sql "CREATE INDEX f8x_gate ON f8x (gate(g, 1000)); CREATE INDEX f8x_nitro ON f8x USING nitro ((1000 / i))"
    unbuild; shut
    session insert; session builder
    tell insert "INSERT INTO f8x VALUES (0, 1000)"
    at_gate
    local builder_pid event=NitroReady; builder_pid=$(pid builder)
    [ "$version" -ge 170000 ] || event=Extension
    tell builder "SELECT nitro_verify('f8x_nitro', true)"
    wait_until "SELECT wait_event = '$event' FROM pg_stat_activity WHERE pid = $builder_pid"
    open_gate
    [[ $(answer insert) == *"division by zero"* ]] || fail "the inserter must get its error"
    assert_eq "the innocent one" "$(answer builder)" 100
    assert_eq "state" "$(state f8x_nitro)" ready
    end insert; end builder
}

vacuum_evaluates_nothing() {
    note "VACUUM of an unbuilt index evaluates no expression"
    sql "CREATE FUNCTION loud(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RAISE LOG ''evaluated''; RETURN i; END'"
    sql "CREATE TABLE v (i int); INSERT INTO v SELECT generate_series(1, 50); CREATE INDEX v_nitro ON v USING nitro (loud(i))"
    sql "DELETE FROM v WHERE i < 20"
    unbuild
    local from; from=$(log_end)
    sql "VACUUM (INDEX_CLEANUP on, PARALLEL 2) v"
    assert_eq "evaluations" "$(logged ' evaluated' "$from")" 0
    assert_eq "state" "$(state v_nitro)" unbuilt
    verified v
}

parallel_query() {
    note "parallel query meets unbuilt indexes"
    sql "CREATE TABLE p AS SELECT i, i % 100 AS m FROM generate_series(1, 50000) i"
    sql "CREATE INDEX p_i_nitro ON p USING nitro (i); CREATE INDEX p_m_nitro ON p USING nitro (m); VACUUM ANALYZE p"
    local parallel="SET min_parallel_table_scan_size = 0; SET min_parallel_index_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0"
    local q="SELECT count(*), sum(b.m) FROM p a JOIN p b ON b.i = a.i + 1 WHERE a.m < 50" want
    want=$(sql "SET nitro.enable_scan = off; $q")
    unbuild
    session q
    ask q "$parallel; SET plan_cache_mode = force_generic_plan; PREPARE q AS $q" > /dev/null
    for _ in 1 2 3 4; do assert_eq "parallel join" "$(ask q "EXECUTE q")" "$want"; done
    [[ $(ask q "EXPLAIN EXECUTE q") == *Gather* ]] || fail "not parallel"
    built p_i_nitro
    # The plan that was made without the index does not stay forever.
    ask q "SET enable_hashjoin = off; SET enable_mergejoin = off; SELECT pg_current_xact_id()" > /dev/null
    for _ in 1 2 3 4; do assert_eq "parallel join, built" "$(ask q "EXECUTE q")" "$want"; done
    [[ $(ask q "EXPLAIN EXECUTE q") == *p_i_nitro* ]] || fail "the join does not use the index: $(ask q "EXPLAIN EXECUTE q")"
    end q
}

poison_row() {
    note "a live row whose expression fails: FAILED, in nobody's way, repaired by REINDEX"
    sql "CREATE FUNCTION picky(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN i; END'"
    sql "CREATE TABLE f11 (i int); INSERT INTO f11 SELECT generate_series(1, 500); CREATE INDEX f11_nitro ON f11 USING nitro (picky(i))"
    sql "CREATE INDEX f11_plain_nitro ON f11 USING nitro (i)"
    sql "CREATE OR REPLACE FUNCTION picky(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
         'BEGIN IF i = 42 THEN RAISE EXCEPTION ''bad luck'' USING ERRCODE = ''22000''; END IF; RETURN i; END'"
    unbuild
    local out
    for _ in 1 2 3; do
        assert_eq "scans" "$(sql "$index_plans; SELECT count(*) FROM f11 WHERE picky(i + 0) > 400 AND i > 100")" 100
        assert_eq "scans" "$(sql "$index_plans; SELECT count(*) FROM f11 WHERE i > 400 AND picky(i) > 400")" 100
    done
    wait_until "SELECT state = 'failed' FROM pg_stat_nitro_indexes WHERE indexrelid = 'f11_nitro'::regclass"
    for _ in $(seq 600); do [ "$(logged 'bad luck')" = 0 ] || break; sleep 0.1; done
    [ "$(logged 'bad luck')" -ge 1 ] || fail "the log does not say why"
    out=$(sql "INSERT INTO f11 VALUES (1001)" 2>&1)
    [[ $out == *WARNING*f11_nitro* ]] || fail "no WARNING: $out"
    assert_eq "one WARNING" "$(sql "INSERT INTO f11 VALUES (1002); UPDATE f11 SET i = 1003 WHERE i = 5" 2>&1)" ""
    [[ $(sql_fails "INSERT INTO f11 VALUES (42)") == "22000: bad luck" ]] || fail "the expression's own error"
    [[ $(sql_fails "SELECT nitro_verify('f11_nitro')") == "22000: bad luck" ]] || fail "the original error"
    sql "VACUUM (INDEX_CLEANUP on) f11"
    ready f11_plain_nitro
    assert_eq "rows" "$(sql "$index_plans; SELECT count(*) FROM f11 WHERE i > 0")" 502
    [[ $(sql_fails "REINDEX INDEX f11_nitro") == "22000: bad luck" ]] || fail "REINDEX meets it too"
    sql "CREATE OR REPLACE FUNCTION picky(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN i; END'"
    sql "REINDEX INDEX f11_nitro"
    assert_eq "repaired" "$(state f11_nitro)" ready
    assert_eq "no WARNING" "$(sql "INSERT INTO f11 VALUES (42)" 2>&1)" ""
    verified f11
    assert_eq "found" "$(sql "$index_plans; SELECT count(*) FROM f11 WHERE picky(i) = 42")" 2
}

deadlock_is_seen() {
    note "builder behind VACUUM FULL of the TOAST table behind a transaction that waits for the builder"
    sql "CREATE TABLE f12 (i int, big text); ALTER TABLE f12 ALTER big SET STORAGE external; INSERT INTO f12 SELECT i, repeat(md5(i::text), 200) FROM generate_series(1, 400) i"
    sql "CREATE INDEX f12_nitro ON f12 USING nitro (left(big, 20) COLLATE \"C\")"
    unbuild
    local toast
    toast=$(sql "SELECT reltoastrelid::regclass FROM pg_class WHERE relname = 'f12'")
    session writer; session full; session builder
    # No query may wake the worker: the foreground is to meet the deadlock.
    ask writer "SET nitro.enable_scan = off; BEGIN; UPDATE f12 SET big = big || 'x' WHERE i = 1" > /dev/null
    tell full "VACUUM FULL $toast"
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND relation = '$toast'::regclass"
    tell builder "SELECT nitro_verify('f12_nitro')"
    wait_until "SELECT count(*) = 2 FROM pg_locks WHERE NOT granted AND relation = '$toast'::regclass"
    tell writer "SELECT nitro_verify('f12_nitro')"
    # Either the server lets the builder pass before VACUUM FULL or one of them gets a deadlock error.
    # A builder that gave the TOAST table's lock back after each row would wait in the queue for each.
    local out
    out=$(answer writer); note "writer: ${out%%$'\n'*}"
    ask writer "COMMIT" > /dev/null
    out=$(answer builder); note "builder: ${out%%$'\n'*}"
    answer full > /dev/null
    verified f12
    end writer; end full; end builder
}

progress_is_kept() { # MECHANISM
    note "statements that end long before a rebuild would (F11; off: $1)"
    # Two rounds of blocks, of four, are done in the time of a statement.
    sql "CREATE TABLE f11p (i int, pad text) WITH (fillfactor = 10); INSERT INTO f11p SELECT i, repeat('x', 500) FROM generate_series(1, 256) i"
    sql "CREATE FUNCTION slow(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN i; END'; CREATE INDEX f11p_nitro ON f11p USING nitro (slow(i))"
    sql "CREATE OR REPLACE FUNCTION slow(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN IF i % 64 = 1 THEN PERFORM pg_sleep(0.2); END IF; RETURN i; END'"
    mechanism "$1"; unbuild
    local tries=0 most=20
    [ "$1" = none ] || most=3
    until "${PSQL[@]}" -p "$(port)" -v ON_ERROR_STOP=1 -c "SET statement_timeout = '600ms'" -c "SELECT nitro_verify('f11p_nitro')" > "$NITRO_TMP/out" 2>&1; do
        grep -q "statement timeout" "$NITRO_TMP/out" || fail "$(cat "$NITRO_TMP/out")"
        tries=$((tries + 1))
        [ "$tries" -lt "$most" ] || break
    done
    if [ "$1" = none ]; then
        [ "$tries" -gt 0 ] || fail "a whole rebuild in one statement"
        assert_eq "state after $tries attempts" "$(state f11p_nitro)" ready
    else
        assert_eq "attempts" "$tries" "$most"
    fi
    mechanism none
    sql "DROP TABLE f11p; DROP FUNCTION slow"
}

deadlock_is_reported() { # MECHANISM
    note "builder behind a lock of a transaction that waits for the builder (F12; off: $1)"
    mechanism "$1"
    sql "CREATE TABLE f12_other (f int); INSERT INTO f12_other VALUES (1); CREATE TABLE f12b (i int); INSERT INTO f12b SELECT generate_series(1, 50)"
    sql "CREATE FUNCTION reads_other(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN i * (SELECT f FROM public.f12_other); END'"
    sql "CREATE INDEX f12b_nitro ON f12b USING nitro (reads_other(i))"
    unbuild
    session writer; session builder
    local writer_pid; writer_pid=$(pid writer)
    ask writer "BEGIN; LOCK TABLE f12_other" > /dev/null
    tell builder "SELECT nitro_verify('f12b_nitro')"
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND relation = 'f12_other'::regclass"
    tell writer "SELECT nitro_verify('f12b_nitro')"
    local first second told=1
    if [ "$1" != none ]; then
        # Six times deadlock_timeout.
        sleep 1.2
        assert_eq "both wait" "$(sql "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%nitro_verify(''f12b_nitro'')%' AND pid <> pg_backend_pid()")" 2
        sql "SELECT pg_cancel_backend($writer_pid)" > /dev/null
        told=0
    fi
    first=$(answer writer)
    ask writer "ROLLBACK" > /dev/null
    second=$(answer builder)
    [ "$(grep -c 'deadlock detected' <<< "$first$second")" = $told ] || fail "writer: $first; builder: $second"
    verified f12b
    end writer; end builder
    mechanism none
    sql "DROP TABLE f12b, f12_other; DROP FUNCTION reads_other"
}

runs_as_owner() {
    note "index code of another role, triggered by a superuser (F13)"
    sql "CREATE ROLE alice LOGIN; CREATE SCHEMA a AUTHORIZATION alice"
    sql "SET ROLE alice; CREATE TABLE a.t (i int); INSERT INTO a.t SELECT generate_series(1, 10)"
    # An immutable function calls another function for the things that it may not do.
    sql "CREATE FUNCTION a.deeds() RETURNS void LANGUAGE plpgsql AS \$\$
         BEGIN
           BEGIN CREATE TEMP TABLE inside (i int); DROP TABLE inside; RAISE LOG 'spy: not restricted';
           EXCEPTION WHEN insufficient_privilege THEN NULL; WHEN OTHERS THEN RAISE LOG 'spy: %', SQLERRM; END;
           BEGIN EXECUTE 'ALTER ROLE alice SUPERUSER'; RAISE LOG 'spy: escalated';
           EXCEPTION WHEN insufficient_privilege THEN NULL; WHEN OTHERS THEN RAISE LOG 'spy: %', SQLERRM; END;
           BEGIN EXECUTE 'SET ROLE postgres'; RAISE LOG 'spy: escalated';
           EXCEPTION WHEN insufficient_privilege THEN NULL; WHEN OTHERS THEN RAISE LOG 'spy: %', SQLERRM; END;
         END \$\$; ALTER FUNCTION a.deeds OWNER TO alice"
    sql "CREATE FUNCTION a.spy(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS \$\$
         BEGIN
           IF i = 1 THEN
             RAISE LOG 'spy: user=% path=%', current_user, current_setting('search_path');
             PERFORM set_config('work_mem', '77MB', false), set_config('search_path', 'a', false), a.deeds();
           END IF;
           RETURN i;
         END \$\$; ALTER FUNCTION a.spy OWNER TO alice"
    sql "SET ROLE alice; CREATE INDEX t_nitro ON a.t USING nitro (a.spy(i)) WHERE a.spy(i) > 0"
    local from out who
    for how in foreground as_caller worker failing; do
        unbuild; from=$(log_end)
        case $how in
            foreground)
                who='client backend'
                out=$(sql "SET work_mem = '5MB'; SET search_path = public; SELECT nitro_verify('a.t_nitro', true); SHOW work_mem; SHOW search_path; SELECT current_user")
                assert_eq "the superuser's session" "$out" $'10\n5MB\npublic\npostgres' ;;
            as_caller)
                mechanism owner
                sql "SELECT nitro_verify('a.t_nitro')" > /dev/null
                mechanism none
                for out in user=postgres 'not restricted' escalated; do
                    [ "$(logged "spy: $out" "$from")" -ge 1 ] || fail "the function did not run as its caller: $out"
                done
                sql "ALTER ROLE alice NOSUPERUSER"
                continue ;;
            worker)
                # Only planned: a query evaluates the function with the rights of its user.
                who='nitro builder'
                sql "EXPLAIN SELECT * FROM a.t WHERE a.spy(i) = 3 AND a.spy(i) > 0" > /dev/null
                built a.t_nitro ;;
            failing)
                sql "INSERT INTO a.t VALUES (-5)"
                sql "CREATE OR REPLACE FUNCTION a.spy(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN PERFORM set_config(''work_mem'', ''77MB'', false); RETURN 1 / (i + 5); END'"
                out=$(sql "SET work_mem = '5MB'; SET search_path = public;
                    DO \$\$ BEGIN PERFORM nitro_verify('a.t_nitro'); EXCEPTION WHEN division_by_zero THEN RAISE LOG 'caught %', current_user; END \$\$;
                    SHOW work_mem; SHOW search_path; SELECT current_user")
                assert_eq "after an error" "$out" $'5MB\npublic\npostgres'
                assert_eq "the handler's role" "$(logged 'LOG:  caught postgres' "$from")" 1
                continue ;;
        esac
        out=$(tail -n "+$((from + 1))" "$NITRO_TMP/main.log" | grep "$who LOG:  spy: ")
        [[ $out == *user=alice* ]] || fail "$how: the function did not run as its table's owner"
        assert_eq "$how: another role" "$(grep 'user=' <<< "$out" | grep -v 'user=alice')" ""
        # Safe at first; later the value that the function has set.
        assert_eq "$how: search_path" "$(grep 'path=' <<< "$out" | grep -vE 'path=(pg_catalog, pg_temp|a)$')" ""
        assert_eq "$how: not restricted" "$(grep -E 'not restricted|escalated' <<< "$out")" ""
    done
    assert_eq "alice" "$(sql "SELECT rolsuper FROM pg_roles WHERE rolname = 'alice'")" f
    [[ $(sql_fails "SET ROLE alice; CREATE ROLE bob" ) == 42501* ]] || fail "alice has rights"
    sql "CREATE ROLE bob LOGIN; GRANT USAGE ON SCHEMA a TO bob"
    local PGUSER=bob
    [[ $(sql_fails "SELECT nitro_verify('a.t_nitro')") == 42501* ]] || fail "anybody may make the owner's code run"
}

index_before_table() {
    note "a process that waits for an index lets go of its table, which DROP of a partitioned table locks after the index"
    sql "CREATE TABLE d (k int) PARTITION BY RANGE (k); CREATE TABLE d1 PARTITION OF d FOR VALUES FROM (0) TO (100)"
    sql "INSERT INTO d SELECT generate_series(1, 50); CREATE INDEX d_k ON d USING nitro (k)"
    session drop; session image
    # REINDEX first takes the lock on the index that DROP also takes first. It leaves the table to readers.
    ask drop "BEGIN; REINDEX INDEX d1_k_idx" > /dev/null
    tell image "SELECT count(nitro_backup())"
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted"
    assert_eq "its table" "$(ask drop "DROP TABLE d; SELECT 'gone'")" gone
    ask drop "COMMIT" > /dev/null
    assert_eq "the image" "$(answer image)" 1
    end drop; end image
}

mkdir "$NITRO_TMP/other"; sql "CREATE TABLESPACE other LOCATION '$NITRO_TMP/other'"
run dead_items_stay_out
for how in fetching closing rollback error cancel terminate; do run killed_entry_in_index_only_cursor $how none; done
run killed_entry_in_index_only_cursor fetching tokens
run kill_comes_too_late
run hot_chain_older_than_the_index "CREATE INDEX" "a tablespace move"
run hot_chain_older_than_the_index "CREATE INDEX" crash
run hot_chain_older_than_the_index REINDEX crash
run row_already_indexed_by_the_walk foreground
run row_already_indexed_by_the_walk worker
run first_insert_after_restart
run toasted_keys
run expression_fails_for_a_row_in_flight
run vacuum_evaluates_nothing
run parallel_query
run poison_row
run deadlock_is_seen
for off in none progress; do run progress_is_kept $off; done
for off in none deadlocks; do run deadlock_is_reported $off; done
run runs_as_owner
run index_before_table

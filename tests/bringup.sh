#!/usr/bin/env bash
# Bringing an index up runs code of its owner. Here that code queries its own table, checks its own index,
# and fails. The process that brings the index up is stopped where it gives up. Afterwards the answers are
# right and no memory is lost. No piece of memory is used twice: the server's assertions see a root with two
# owners.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"
# No place for workers: an index is brought up only by a statement.
new_server -c "max_worker_processes = 1" -c "max_logical_replication_workers = 0" -c "bgwriter_lru_maxpages = 0"
sql "CREATE EXTENSION pageinspect"
used() { sql "SELECT used FROM nitro_memory"; }
index_plans="SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off"
# The keeper has looked at the slot before a session asks for an image.
started() { wait_until "SELECT wait_event IN ('NitroKeeperMain', 'Extension') FROM pg_stat_activity WHERE backend_type = 'nitro keeper'"; }

# Comparison functions of an operator class that query the table they order.
sql "CREATE TYPE c AS (x int)"
for o in 'lt <' 'le <=' 'eq =' 'ge >=' 'gt >'; do
    sql "CREATE FUNCTION ${o% *}(c, c) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT (\$1).x ${o#* } (\$2).x'; CREATE OPERATOR ${o#* } (LEFTARG = c, RIGHTARG = c, FUNCTION = ${o% *})"
done
sql "CREATE FUNCTION cmp(p c, q c) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
     'DECLARE n int; BEGIN SELECT count(*) INTO n FROM public.t WHERE id = 3; RETURN btint4cmp((p).x, (q).x); END'"
sql "CREATE OPERATOR CLASS c_ops FOR TYPE c USING nitro AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 cmp(c, c)"
sql "CREATE FUNCTION parent_name(i int) RETURNS text IMMUTABLE LANGUAGE plpgsql AS
     'DECLARE r text; BEGIN SELECT name INTO r FROM public.t WHERE id = i LIMIT 1; RETURN r; END'"
sql "CREATE FUNCTION as_name(i c) RETURNS text IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN public.parent_name((i).x); END'"
sql "CREATE CAST (c AS text) WITH FUNCTION as_name(c)"

own_table() { # WHAT queries the table, the index' columns, a condition that uses it, HOW it is brought up
    note "$1 that queries the index' own table; $4"
    local before from
    sql "CREATE TABLE t (id int, parent int, name text) WITH (autovacuum_enabled = off); CREATE INDEX t_btree ON t (id); INSERT INTO t SELECT i, i / 2, 'n' || i FROM generate_series(1, 300) i; ANALYZE t"
    before=$(used)
    sql "CREATE INDEX t_nitro ON t USING nitro $2; CREATE INDEX t_id_nitro ON t USING nitro (id)"
    ready t_nitro t_id_nitro
    backup t_id_nitro
    [ "$4" = "from its table" ] || backup t_nitro
    sql "INSERT INTO t SELECT i, i / 2, 'n' || i FROM generate_series(301, 350) i"
    crash; start; started; from=$(log_end)
    ready t_nitro
    assert_eq "state" "$(state t_nitro)" ready
    assert_eq "queries that went without it because of an error" "$(logged 'planned without|stack depth' "$from")" 0
    verified t
    any_plan=1 same_answers t "SELECT id FROM t WHERE $3" "SELECT id, name FROM t WHERE id BETWEEN 295 AND 320 ORDER BY id"
    sql "CREATE TABLE other (s text); INSERT INTO other SELECT 'card ' || i FROM generate_series(1, 2000) i; CREATE INDEX other_nitro ON other USING nitro (s COLLATE \"C\")"
    sql "INSERT INTO t SELECT i, i / 2, 'n' || i FROM generate_series(401, 600) i"
    verified other; verified t
    sql "DROP TABLE t, other"
    assert_eq "memory" "$(used)" "$before"
}

checks_itself() {
    note "CREATE INDEX with an expression that checks the very index"
    sql "CREATE TABLE s (i int); INSERT INTO s SELECT generate_series(1, 2000)"
    sql "CREATE FUNCTION check_self(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS \$\$
         BEGIN
             IF i = 2000 THEN PERFORM public.nitro_verify('public.s_nitro'::regclass, false); END IF;
             RETURN i;
         EXCEPTION WHEN object_not_in_prerequisite_state THEN RETURN i;
         END \$\$"
    local before; before=$(used)
    for _ in 1 2; do
        sql "CREATE INDEX s_nitro ON s USING nitro (check_self(i))"; verified s
        sql "REINDEX INDEX s_nitro"; verified s
        sql "DROP INDEX s_nitro"
        assert_eq "memory" "$(used)" "$before"
    done
    sql "CREATE INDEX s_nitro ON s USING nitro (check_self(i))"
    crash; start; verified s
    sql "DROP TABLE s"
}

# One index is brought up. Its code makes another index.
makes_another() {
    note "an expression that makes another index while its own is brought up"
    sql "CREATE TABLE m (i int); INSERT INTO m SELECT generate_series(1, 500)"
    sql "CREATE FUNCTION make() RETURNS void LANGUAGE plpgsql AS \$\$
         BEGIN
             CREATE TABLE public.made AS SELECT g FROM generate_series(1, 100) g;
             CREATE INDEX made_nitro ON public.made USING nitro (g);
             PERFORM count(*) FROM public.made WHERE g = 7;
             PERFORM public.nitro_verify('public.made_nitro'::regclass, true);
             DROP TABLE public.made;
         END \$\$"
    sql "CREATE FUNCTION making(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN IF i = 250 THEN PERFORM public.make(); END IF; RETURN i; END'"
    local before; before=$(used)
    sql "CREATE INDEX m_nitro ON m USING nitro (making(i))"; verified m
    crash; start; verified m
    sql "DROP TABLE m"
    assert_eq "memory" "$(used)" "$before"
}

# The queries of a comparison function.
saves_itself() {
    note "a comparison function that makes an image of its own index while a row is inserted"
    sql "CREATE TABLE b (i int); INSERT INTO b SELECT generate_series(1, 300)"
    sql "CREATE FUNCTION save() RETURNS void LANGUAGE plpgsql AS \$\$
         BEGIN PERFORM public.nitro_backup('public.b_nitro'::regclass); EXCEPTION WHEN object_not_in_prerequisite_state THEN NULL; END \$\$"
    sql "CREATE FUNCTION saving(p c, q c) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
         'BEGIN IF (p).x = 1042 THEN PERFORM public.save(); END IF; RETURN btint4cmp((p).x, (q).x); END'"
    sql "CREATE OPERATOR CLASS saving_ops FOR TYPE c USING nitro AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 saving(c, c)"
    sql "CREATE INDEX b_nitro ON b USING nitro ((ROW(i)::c) saving_ops)"
    started; backup b_nitro
    # It would wait for itself.
    sql "SET statement_timeout = '60s'; INSERT INTO b VALUES (1042)"
    verified b; backup b_nitro; images_right b_nitro
    sql "DROP TABLE b"
}

# If the transaction or the machine is to blame, the next process tries again. If the row is to blame, the
# index is given up.
whose_fault() { # WHAT fails, the index' column
    note "errors while an index is brought up, by their SQLSTATE: $1"
    local code want builder event=NitroReady
    [ "$(sql "SHOW server_version_num")" -ge 170000 ] || event=Extension
    sql "CREATE TABLE e (i int); INSERT INTO e SELECT generate_series(1, 500)"
    sql "CREATE FUNCTION moody(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS \$\$
         BEGIN IF i IN (400, 1000) AND current_setting('my.mood', true) <> '' THEN RAISE 'moody' USING ERRCODE = current_setting('my.mood'); END IF; RETURN i; END \$\$"
    sql "CREATE FUNCTION moody_cmp(p c, q c) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN btint4cmp(public.moody((p).x), public.moody((q).x)); END'"
    sql "CREATE OPERATOR CLASS moody_ops FOR TYPE c USING nitro AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 moody_cmp(c, c)"
    sql "CREATE INDEX e_nitro ON e USING nitro ($2)"
    for code in 25006 40001 53200 53400 54001 55006 57014 57P03 58030 22012 P0001; do
        case $code in 22012 | P0001) want=failed ;; *) want=building ;; esac
        crash; rm -rf "$(data)/pg_nitro"; start
        assert_eq "$code" "$(sql_fails "SET my.mood = '$code'; SELECT nitro_verify('e_nitro', false)")" "$code: moody"
        assert_eq "after $code" "$(state e_nitro)" $want
        verified e
    done
    note "the row that it fails for may go away"
    sql "DELETE FROM e WHERE i = 400"
    crash; rm -rf "$(data)/pg_nitro"; start
    session writer; session builder; builder=$(ask builder "SELECT pg_backend_pid()")
    ask writer "BEGIN; INSERT INTO e VALUES (1000)" > /dev/null
    tell builder "SET my.mood = 'P0001'; SELECT nitro_verify('e_nitro', false)"
    wait_until "SELECT wait_event = '$event' FROM pg_stat_activity WHERE pid = $builder"
    ask writer "ROLLBACK" > /dev/null
    assert_eq "then there is nothing wrong" "$(answer builder)" 499
    end writer; end builder
    sql "DROP TABLE e; DROP OPERATOR FAMILY moody_ops USING nitro; DROP FUNCTION moody_cmp, moody"
}

# The deadlock detector does not see waits inside the engine. So no process waits there while it holds
# locks.
nobody_waits() { # WHOSE comparison function
    note "an index is given up by who has a lock that a comparison function of $1 index waits for"
    local before inside column='i' used_by_y
    before=$(used)
    sql "CREATE TABLE x (i int); CREATE TABLE y (i int); INSERT INTO y SELECT generate_series(1, 1000); CREATE TABLE z (i int); INSERT INTO z VALUES (1)"
    sql "CREATE FUNCTION picky(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN i; END'"
    sql "CREATE FUNCTION patient(p c, q c) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
         'BEGIN IF 5000 IN ((p).x, (q).x) THEN PERFORM FROM public.x; END IF; RETURN btint4cmp((p).x, (q).x); END'"
    sql "CREATE OPERATOR CLASS patient_ops FOR TYPE c USING nitro AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 patient(c, c)"
    sql "CREATE INDEX y_nitro ON y USING nitro ((ROW(picky(i))::c) patient_ops); CREATE INDEX z_nitro ON z USING nitro ((ROW(i)::c) patient_ops)"
    sql "CREATE OR REPLACE FUNCTION picky(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
         'BEGIN IF i = 50 THEN PERFORM pg_advisory_xact_lock_shared(1); ELSIF i = 51 THEN RAISE ''bad luck''; END IF; RETURN i; END'"
    crash; rm -rf "$(data)/pg_nitro"; start; ready z_nitro
    session gate; session holder; session insert; inside=$(ask insert "SELECT pg_backend_pid()")
    ask gate "SELECT pg_advisory_lock(1)" > /dev/null
    ask holder "BEGIN; LOCK TABLE x; SAVEPOINT s" > /dev/null
    tell holder "SELECT nitro_verify('y_nitro', false)"
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    case $1 in
        the) tell insert "INSERT INTO y VALUES (4000); INSERT INTO y VALUES (5000)" ;;
        another) tell insert "INSERT INTO z VALUES (5000)" ;;
    esac
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE pid = $inside AND relation = 'x'::regclass AND NOT granted"
    used_by_y=$(used)
    end gate
    [[ $(answer holder) == *"bad luck"* ]] || fail "another error"
    assert_eq "state" "$(state y_nitro)" failed
    assert_eq "still inside" "$(sql "SELECT count(*) FROM pg_locks WHERE pid = $inside AND NOT granted")" 1
    assert_eq "memory that somebody may look at" "$(used)" "$used_by_y"
    ask holder "ROLLBACK TO s" > /dev/null
    sql "CREATE OR REPLACE FUNCTION picky(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN i; END'"
    case $2 in
        again) [ "$1" = the ] || assert_eq "built anew meanwhile" "$(ask holder "SELECT nitro_verify('y_nitro', false)")" 1000 ;;
        cancel) sql "SELECT pg_cancel_backend($inside)" > /dev/null; answer insert > /dev/null; tell insert "SELECT" ;;
        terminate) sql "SELECT pg_terminate_backend($inside)" > /dev/null ;;
        drop) ask holder "DROP INDEX y_nitro; COMMIT" > /dev/null ;;
    esac
    ask holder "COMMIT" > /dev/null; [ "$2" = terminate ] || answer insert > /dev/null
    [ "$2" = drop ] || verified y
    verified z
    end holder; end insert
    sql "DROP TABLE x, y, z; DROP OPERATOR FAMILY patient_ops USING nitro; DROP FUNCTION patient, picky"
    wait_until "SELECT used = $before FROM nitro_memory"
}

given_up() {
    note "a build fails while somebody is inside; then: $1"
    sql "CREATE FUNCTION picky(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN i; END'"
    sql "CREATE TABLE u (k int); INSERT INTO u SELECT generate_series(1, 100000); CREATE INDEX u_nitro ON u USING nitro (k); VACUUM u"
    sql "CREATE TABLE p (i int); INSERT INTO p SELECT generate_series(1, 2000); CREATE INDEX p_nitro ON p USING nitro (picky(i))"
    crash; rm -rf "$(data)/pg_nitro"; start; ready u_nitro
    local before inside
    before=$(used)
    session busy; inside=$(ask busy "SELECT pg_backend_pid()")
    ask busy "$index_plans" > /dev/null
    tell busy "DO 'BEGIN FOR i IN 1..100000 LOOP PERFORM count(*) FROM u WHERE k > 0; END LOOP; END'"
    sql "CREATE OR REPLACE FUNCTION picky(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN IF i = 1500 THEN RAISE EXCEPTION ''bad luck''; END IF; RETURN i; END'"
    # A process is stopped anywhere. It is inside the engine most of the time.
    while kill -STOP "$inside"; [ "$(glance "SELECT processes_inside FROM nitro_memory")" != 1 ]; do kill -CONT "$inside"; sleep 0.05; done
    for _ in 1 2 3; do [[ $(sql_fails "SELECT nitro_verify('p_nitro', false)") == *"bad luck" ]] || fail "another error"; done
    assert_eq "state" "$(state p_nitro)" failed
    [ "$(used)" -gt "$before" ] || fail "memory is free that somebody may look at"
    # The remains of the killed process hinder no other process, and no other process uses them.
    sql "INSERT INTO p SELECT generate_series(3001, 3100)" 2> /dev/null
    kill -CONT "$inside"; sql "SELECT pg_cancel_backend($inside)" > /dev/null; answer busy > /dev/null
    sql "CREATE OR REPLACE FUNCTION picky(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN i; END'"
    case $1 in
        build) verified p; sql "DROP INDEX p_nitro" ;;
        vacuum) sql "DELETE FROM p WHERE i < 100; VACUUM (INDEX_CLEANUP on) p" ;;
        drop) sql "DROP INDEX p_nitro" ;;
    esac
    wait_until "SELECT used = $before FROM nitro_memory"
    end busy
    sql "DROP TABLE p, u; DROP FUNCTION picky"
}

# F10, the last WAL that is read again: it ends where the loading ended, not where it began.
inserted_while_it_is_read() { # MECHANISM
    note "rows that come while the image is read (off: $1)"
    sql "CREATE TABLE r (k int) WITH (autovacuum_enabled = off); INSERT INTO r SELECT generate_series(1, 30000); CREATE INDEX r_nitro ON r USING nitro (k); CREATE INDEX r_btree ON r (k)"
    backup r_nitro; mechanism "$1"
    crash; start; started
    local pid from; from=$(log_end)
    session loader; session holder
    ask loader "SET nitro.debug_stop = 'LoadWal'"; pid=$(ask loader "SELECT pg_backend_pid()")
    ask holder "SELECT pg_advisory_lock(1852404850, $pid)" > /dev/null
    tell loader "SELECT nitro_verify('r_nitro', false)"
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = $pid"
    assert_eq "state" "$(state r_nitro)" loading
    sql "SET nitro.enable_scan = off; INSERT INTO r SELECT generate_series(400001, 401000); UPDATE r SET k = -k WHERE k BETWEEN 100 AND 120"
    end holder; answer loader > /dev/null; end loader
    assert_eq "r_nitro" "$(came_from r_nitro "$from")" image
    if [ "$1" = none ]; then
        verified r; same_answers r "SELECT k FROM r WHERE k > 29000 ORDER BY k" "SELECT * FROM r WHERE k < 130"
    else
        wrong r "SELECT k FROM r WHERE k > 29000 ORDER BY k"; mechanism none
    fi
    sql "DROP TABLE r"
}

wal_that_cannot_be_read() {
    note "WAL that cannot be read now: the index is not there, and its image is used later"
    local segment from
    sql "CREATE TABLE r (k int) WITH (autovacuum_enabled = off); INSERT INTO r SELECT generate_series(1, 2000); CREATE INDEX r_nitro ON r USING nitro (k); CREATE INDEX r_btree ON r (k)"
    backup r_nitro
    segment=$(data)/pg_wal/$(sql "SELECT pg_walfile_name('$(image_lsn r_nitro)')")
    sql "DELETE FROM r WHERE k < 100; VACUUM (INDEX_CLEANUP on) r; INSERT INTO r SELECT generate_series(3001, 3090); SELECT pg_switch_wal(); CHECKPOINT" > /dev/null
    # Here the keeper finds a place for a builder.
    crash; chmod 000 "$segment"; from=$(log_end)
    settings "max_worker_processes = 8"; start
    wait_until "SELECT count(*) = 1 FROM pg_stat_nitro_indexes WHERE state = 'unbuilt'"; no_builders
    assert_eq "without the index" "$(sql "SET nitro.enable_scan = off; SELECT count(*) FROM r WHERE k > 3000")" 90
    assert_eq "state" "$(state r_nitro)" unbuilt
    [ "$(logged '"r_nitro": its image is not used: .*ermission denied' "$from")" -ge 1 ] || fail "nothing in the log"
    chmod 600 "$segment"; from=$(log_end)
    ready r_nitro
    settings "max_worker_processes = 1"
    assert_eq "r_nitro" "$(came_from r_nitro "$from")" image
    verified r; same_answers r "SELECT k FROM r WHERE k > 1900 ORDER BY k" "SELECT * FROM r WHERE k < 200"
    sql "DROP TABLE r"
}

# A process that changes the terms of an index while it is read finds no memory in the area to charge.
other_terms() { # WHAT is changed
    note "another $1 while an image is read"
    local pid from before; before=$(used)
    sql "CREATE ROLE r1; CREATE ROLE r2; GRANT CREATE ON SCHEMA public TO r1, r2"
    sql "SET ROLE r1; CREATE FUNCTION seen(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN IF i < 0 THEN RAISE LOG ''seen by %'', current_user; END IF; RETURN i; END';
         CREATE TABLE m (k int) WITH (autovacuum_enabled = off); INSERT INTO m SELECT generate_series(1, 30000);
         CREATE INDEX m_nitro ON m USING nitro (seen(k)); CREATE INDEX m_btree ON m (k)"
    backup m_nitro; sql "INSERT INTO m VALUES (-1)"
    crash; start; started; from=$(log_end)
    session loader; session holder; session other
    ask loader "SET nitro.debug_stop = 'LoadRead'"; pid=$(ask loader "SELECT pg_backend_pid()")
    ask holder "SELECT pg_advisory_lock(1852404850, $pid)" > /dev/null
    tell loader "SELECT nitro_verify('m_nitro', false)"
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = $pid"
    case $1 in
        # The insert sees it first.
        limit) ask other "SET nitro.enable_scan = off; ALTER INDEX m_nitro SET (max_memory = '1MB'); INSERT INTO m VALUES (0)" ;;
        owner)
            tell other "REASSIGN OWNED BY r1 TO r2; DROP OWNED BY r1"
            wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'relation' AND NOT granted AND relation = 'm'::regclass" ;;
    esac
    end holder; answer loader > /dev/null; end loader
    [ "$1" != owner ] || answer other > /dev/null
    end other
    assert_eq "m_nitro" "$(came_from m_nitro "$from")" image
    assert_eq "by whom the new row was seen" "$(tail -n "+$((from + 1))" "$NITRO_TMP/$node.log" | grep -o 'seen by .*' | sort -u)" "seen by r1"
    case $1 in
        limit) [[ $(sql_fails "INSERT INTO m SELECT generate_series(1, 300000)") == '53400: nitro memory limit of the index exceeded'* ]] || fail "no limit" ;;
        owner)
            sql "INSERT INTO m VALUES (0)"
            assert_eq "who holds it" "$(sql "SELECT rolname, indexes, bytes = (SELECT bytes FROM pg_stat_nitro_indexes WHERE indexrelname = 'm_nitro') FROM nitro_memory_by_owner WHERE rolname LIKE 'r_'")" "r2|1|t" ;;
    esac
    verified m; any_plan=1 same_answers m "SELECT k FROM m WHERE seen(k) > 29000 ORDER BY k"
    sql "DROP TABLE m; DROP OWNED BY r1, r2; DROP ROLE r1, r2"
    wait_until "SELECT used = $before FROM nitro_memory"
}

# They have not been in the engine when they claim an index.
ended_anywhere() {
    [ "$(major)" -ge 17 ] || return 0
    note "sessions that load images before they have done anything else, and end somewhere in that"
    local ms
    sql "CREATE TABLE r (k int, s text COLLATE \"C\") WITH (autovacuum_enabled = off); INSERT INTO r SELECT i, md5(i::text) FROM generate_series(1, 40000) i;
         CREATE INDEX r_nitro ON r USING nitro (k); CREATE INDEX r_s_nitro ON r USING nitro (s); CREATE INDEX r_btree ON r (k)"
    backup r_nitro r_s_nitro
    sql "UPDATE r SET k = k WHERE k % 3 = 0"
    crash; start; started
    for ms in $(seq 4 4 80); do
        PGOPTIONS="-c transaction_timeout=${ms}ms" "${PSQL[@]}" -p "$(port)" -c "SELECT nitro_verify('r_s_nitro', false)" > /dev/null 2>&1 || true
    done
    verified r; any_plan=1 same_answers r "SELECT k FROM r WHERE k > 39000 ORDER BY k"
    sql "DROP TABLE r"
}

forgets_what_was_dropped() {
    note "what a session remembers of indexes that are gone"
    local n once="CREATE TABLE g (k int); CREATE INDEX g_nitro ON g USING nitro ((ROW(k)::c) c_ops); INSERT INTO g VALUES (1); DROP TABLE g"
    # Each has a memory context, because functions compare its keys.
    n=$(sql "$(for n in $(seq 100); do echo "$once;"; done) SELECT count(*) FROM pg_backend_memory_contexts WHERE name = 'nitro comparators'")
    [ "$n" -gt 0 ] && [ "$n" -lt 50 ] || fail "$n indexes are remembered"
}

for how in "from its image" "from its table"; do
    run own_table "an expression" '((parent_name(parent)) COLLATE "C")' "parent_name(parent) = 'n5'" "$how"
    run own_table "a predicate" '(id) WHERE parent_name(parent) IS NOT NULL' "parent_name(parent) IS NOT NULL AND id > 7" "$how"
    run own_table "a comparison function" '((ROW(id)::c) c_ops)' "ROW(id)::c >= ROW(30)::c" "$how"
    run own_table "a cast" '((ROW(parent)::c::text) COLLATE "C")' "ROW(parent)::c::text = 'n5'" "$how"
done
run checks_itself
run makes_another
run saves_itself
run whose_fault "an expression" '(moody(i))'
run whose_fault "a comparison function" '(ROW(i)::c) moody_ops'
for how in again cancel terminate drop; do for whose in the another; do run nobody_waits $whose $how; done; done
for off in none tail; do run inserted_while_it_is_read $off; done
run wal_that_cannot_be_read
run ended_anywhere
for what in limit owner; do run other_terms $what; done
run forgets_what_was_dropped
for how in build vacuum drop; do run given_up $how; done

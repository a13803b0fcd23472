#!/usr/bin/env bash
# An index without an image, or with a mostly outdated one, is built as by CREATE INDEX. Its table is read
# and sorted. Then changes since the beginning are read again. Rows of all kinds change while the builder
# stands between two steps. The builder is also cancelled and killed there. If the sort fails or time is
# short, the walk inserts instead. (Each pair of steps: steps.sh. The protocol: image/model.)
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"
. "$(dirname "$0")/by_hand.sh"
note "seed $NITRO_SEED"
new_server "${by_hand[@]}" -c "nitro.debug_stop = None"
sql "CREATE EXTENSION pageinspect"
words
class=1852404850 unique=UNIQUE; [ "$(major)" -ge 18 ] || unique=

# A row a page, so that a small table is large.
wide="WITH (autovacuum_enabled = off, fillfactor = 10)"
rows="SELECT i, i % 7, repeat('x', 700), ARRAY[i % 5, i % 11, i], 'w' || i * 37 % 400 || 'ä' FROM generate_series(1, 400) i"
columns="k int, g int, pad text, a int[], w text"
queries=("SELECT k, g FROM t WHERE k BETWEEN 50 AND 3000 ORDER BY k, g, ctid" "SELECT ctid FROM t WHERE k = 77" "SELECT count(*) FROM t WHERE k > 0")
table() {
    sql "CREATE TABLE t ($columns) $wide; INSERT INTO t $rows; CREATE INDEX t_nitro ON t USING nitro (k) INCLUDE (g); CREATE INDEX t_btree ON t (k) INCLUDE (g)"
}
# Without images.
lost() { crash; rm -rf "$(data)/pg_nitro"; start; wait_until "$idle_keeper"; }
# How the index was built, by the log from there on: sorted, walked, or neither.
how() { # INDEX FROM_LINE
    local sorted walked
    sorted=$(logged "nitro index \"$1\" rebuilt from its table: .* blocks read again since" "$2") walked=$(logged "nitro index \"$1\" rebuilt from its table: [0-9]+ entries in [0-9]+ ms\$" "$2")
    case $sorted$walked in 10) echo sorted ;; 01) echo walked ;; 00) echo not ;; *) echo "$sorted times sorted, $walked times walked" ;; esac
}
again() { sed -nE "s/.*nitro index \"$1\" rebuilt from its table: .*, ([0-9]+) blocks read again since.*/\1/p" "$NITRO_TMP/main.log" | tail -n 1; }
walked() { sql "SELECT heap_blocks_walked FROM pg_stat_nitro_indexes WHERE indexrelname = 't_pad_nitro'"; }
used() { sql "SELECT used FROM nitro_memory"; }
right() { verified t; same_answers t "${queries[@]}"; }
# A session that brings an index up and waits behind a point.
stop_at() { # POINT [INDEX]
    session builder; builder=$(ask builder "SET nitro.debug_stop = '$1'; SELECT pg_backend_pid()")
    session control; ask control "SELECT pg_advisory_lock($class, $builder)" > /dev/null
    tell builder "SELECT nitro_verify('${2:-t_nitro}', false)"
    waits "> 0"
}
waits() { wait_until "SELECT count(*) $1 FROM pg_locks WHERE classid = $class AND NOT granted"; }
go_on() { end control; answer builder; end builder; }
[ -n "$(sql "SELECT 1 FROM pg_settings WHERE name = 'nitro.debug_stop'")" ] || { note "left out: not a build for tests"; exit 0; }

kinds() {
    note "orders, expressions, conditions, elements"
    sql "CREATE TABLE t ($columns) $wide; INSERT INTO t $rows; UPDATE t SET pad = '' WHERE k % 3 = 0; DELETE FROM t WHERE k % 50 = 0; INSERT INTO t (k) SELECT NULL FROM generate_series(1, 20)
         ; CREATE INDEX t_nitro ON t USING nitro (k) INCLUDE (g); CREATE INDEX t_btree ON t (k) INCLUDE (g)
         ; CREATE INDEX t_w_nitro ON t USING nitro (w COLLATE words, g DESC NULLS LAST); CREATE INDEX t_w_btree ON t (w COLLATE words, g DESC NULLS LAST)
         ; CREATE INDEX t_part_nitro ON t USING nitro ((k * g), w) WHERE g > 2; CREATE INDEX t_a_nitro ON t USING nitro (a)
         ; CREATE $unique INDEX t_one_nitro ON t USING nitro (k, g)"
    lost
    local from i; from=$(log_end)
    for i in t t_w t_part t_a t_one; do ready "${i}_nitro"; assert_eq "$i" "$(how "${i}_nitro" "$from")" sorted; done
    # The hints that the first reader writes are no change of rows.
    assert_eq "blocks read again" "$(again t_w_nitro)" 0
    right
    same_answers t "SELECT k, w FROM t WHERE w COLLATE words BETWEEN 'w1' AND 'w3' ORDER BY w COLLATE words, g DESC NULLS LAST, ctid"
    any_plan=1 same_answers t "SELECT ctid FROM t WHERE k * g BETWEEN 100 AND 2000 AND g > 2" "SELECT ctid FROM t WHERE a @> '{3,7}'"
    [ -z "$unique" ] || assert_eq "unique" "$(sql_fails "INSERT INTO t VALUES (7, 0)")" '23505: duplicate key value violates unique constraint "t_one_nitro"'
    assert_eq "counted" "$(sql "SELECT builds || ' ' || loads FROM pg_stat_nitro_indexes WHERE indexrelname = 't_nitro'")" "1 0"
    sql "DROP TABLE t"
}

# All changes of rows between two steps, by transactions that end before and after.
changes() { # POINT MECHANISM
    note "rows that change while the builder stands at $1 (off: $2)"
    table; lost; mechanism "$2"
    session long; session other
    # Only processes that choose to wait for the builder do so.
    ask long "SET nitro.when_loading = skip; BEGIN; INSERT INTO t VALUES (501, 1, 'before'); UPDATE t SET k = 1001 WHERE k = 1; DELETE FROM t WHERE k = 2" > /dev/null
    stop_at "$1"
    sql "SET nitro.when_loading = skip; INSERT INTO t SELECT 600 + i, i, repeat('y', 700) FROM generate_series(1, 30) i; UPDATE t SET k = k + 2000 WHERE k BETWEEN 10 AND 30; UPDATE t SET pad = 'hot' WHERE k BETWEEN 40 AND 60
         ; DELETE FROM t WHERE k BETWEEN 61 AND 70; BEGIN; INSERT INTO t VALUES (700, 1, 'gone'); ROLLBACK; BEGIN; SAVEPOINT s; INSERT INTO t VALUES (701, 1); ROLLBACK TO s; INSERT INTO t VALUES (702, 1); COMMIT"
    ask other "SET nitro.when_loading = skip; BEGIN; INSERT INTO t VALUES (502, 1, 'meanwhile'); UPDATE t SET k = 1003 WHERE k = 3" > /dev/null
    go_on > /dev/null
    ask long "INSERT INTO t VALUES (503, 1, 'after'); COMMIT" > /dev/null; ask other "COMMIT" > /dev/null
    end long; end other
    if [ "$2" = none ]; then
        right
        # TIDs are used again.
        sql "VACUUM (INDEX_CLEANUP on) t; INSERT INTO t SELECT 3000 + i, i, repeat('z', 700) FROM generate_series(1, 80) i"
        right
    fi
    verdict "$2" t "${queries[@]}"
}

# A cancelled builder leaves nothing, and the next one walks. A killed builder makes the server restart.
ended() { # POINT
    note "a cancel at $1"
    local before from
    table; lost; before=$(used) from=$(log_end)
    stop_at "$1"
    sql "SELECT pg_cancel_backend($builder)" > /dev/null
    end control; answer builder > /dev/null; end builder
    # The next builder only reads changed blocks again.
    if [ "$1" = SortPublishes ]; then assert_eq "state" "$(state t_nitro)" "catching up"
    else
        assert_eq "state" "$(state t_nitro)" unbuilt
        assert_eq "memory" "$(used)" "$before"
        sql "INSERT INTO t VALUES (900, 1)"
    fi
    right
    [ "$1" = SortPublishes ] || assert_eq "then" "$(how t_nitro "$from")" walked
    note "the end of the session at $1"
    lost; stop_at "$1"
    sql "SELECT pg_terminate_backend($builder)" > /dev/null
    end control; end builder 2> /dev/null || true
    wait_until "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $builder)"
    right
    note "a kill at $1"
    lost; stop_at "$1"
    kill_backend "$builder"; end control; end builder
    right
    sql "DROP TABLE t"
}

# VACUUM waits for a sorting builder. The TIDs that VACUUM collected before are in no index.
beside_vacuum() { # MECHANISM
    note "VACUUM beside a builder that has read the table (off: $1)"
    table; lost
    # A snapshot still sees the deleted rows, so the sorted table keeps them.
    session old; ask old "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t" > /dev/null
    sql "DELETE FROM t WHERE k BETWEEN 100 AND 200"
    mechanism "$1"
    stop_at SortRead
    end old
    session cleaner; tell cleaner "VACUUM (INDEX_CLEANUP on, TRUNCATE off) t"
    if [ "$1" = walks ]; then
        answer cleaner > /dev/null
        sql "INSERT INTO t SELECT 3000 + i, i, repeat('z', 700) FROM generate_series(1, 150) i"
        # It finds the rows when it reads their blocks again. So the rows that now have the TIDs are there
        # twice.
        go_on > /dev/null
    else
        wait_until "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype = 'object' AND classid = 'pg_class'::regclass)"
        go_on > /dev/null
        answer cleaner > /dev/null
        sql "INSERT INTO t SELECT 3000 + i, i, repeat('z', 700) FROM generate_series(1, 150) i"
    fi
    end cleaner
    verdict "$1" t "SELECT k, g FROM t WHERE k BETWEEN 50 AND 3000 ORDER BY k, g, ctid" "SELECT k FROM t WHERE k > 3000"
}

# A process that may sort goes on with another's unfinished walk.
half_walked() {
    note "a walk that was cancelled"; local n
    # Each batch is full after some rows.
    table; sql "CREATE INDEX t_pad_nitro ON t USING nitro (k, (repeat(md5(k::text), 150)))"
    lost; session builder; builder=$(ask builder "SET maintenance_work_mem = '1MB'; SET statement_timeout = '1h'; SET nitro.debug_stop = 'WalkInserted'; SELECT pg_backend_pid()")
    session control; session again
    ask control "SELECT pg_advisory_lock($class, $builder)" > /dev/null
    tell builder "SELECT nitro_verify('t_pad_nitro', false)"
    waits "= 1"; tell again "SELECT pg_advisory_lock($class, $builder)"; waits "= 2"
    # The process arrives there once more.
    end control; answer again > /dev/null; waits "= 1"
    sql "SELECT pg_cancel_backend($builder)" > /dev/null; end again; answer builder > /dev/null; end builder
    n=$(walked); [ "$n" -gt 0 ] || fail "nothing is kept"
    stop_at BuildPublishes t_pad_nitro
    assert_eq "kept" "$(walked)" "$n"
    go_on > /dev/null; verified t
    sql "DROP TABLE t"
}

outdated() {
    note "an image of which little is left"
    local from
    table; backup t_nitro
    sql "UPDATE t SET k = k WHERE k % 10 = 0"; crash; start; loaded t_nitro; right
    backup t_nitro
    sql "UPDATE t SET k = k + 5000 WHERE k % 3 = 0"; crash; start; from=$(log_end)
    wait_until "$idle_keeper"
    ready t_nitro
    assert_eq "how" "$(how t_nitro "$from")" sorted
    [ "$(logged '"t_nitro": its image is not loaded: [0-9]+ of [0-9]+ blocks have changed since it was made' "$from")" = 1 ] || fail "no reason in the log"
    right
    backup t_nitro; images_right t_nitro
    crash; start; loaded t_nitro; right
    note "it is loaded where nobody may sort: by VACUUM, and where time is short"
    sql "UPDATE t SET k = k + 1 WHERE k < 5000"; crash; start; wait_until "$idle_keeper"; from=$(log_end)
    sql "VACUUM (INDEX_CLEANUP on) t"; right
    assert_eq "how" "$(how t_nitro "$from")" not
    backup t_nitro; sql "UPDATE t SET k = k - 1 WHERE k < 5000"; crash; start; wait_until "$idle_keeper"; from=$(log_end)
    sql "SET statement_timeout = '1h'; SELECT nitro_verify('t_nitro')" > /dev/null
    assert_eq "came from" "$(came_from t_nitro "$from")" image
    right
    sql "DROP TABLE t"
}

left_to_the_walk() { # WHAT SETTING DDL
    note "walked: $1"
    local from
    sql "CREATE ${3:-} TABLE t ($columns) $wide; INSERT INTO t $rows; CREATE INDEX t_nitro ON t USING nitro (k) INCLUDE (g); CREATE INDEX t_btree ON t (k) INCLUDE (g)"
    # The rows of an unlogged table are gone after a crash.
    if [ "${3:-}" = UNLOGGED ]; then stop; rm -rf "$(data)/pg_nitro"; start; wait_until "$idle_keeper"; else lost; fi
    from=$(log_end)
    sql "SET $2; SELECT nitro_verify('t_nitro', false)" > /dev/null
    assert_eq "how" "$(how t_nitro "$from")" walked
    right
    sql "DROP TABLE t"
}

trouble() {
    note "a row that fails"
    local from i before slot
    sql "CREATE FUNCTION fine(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
         'BEGIN IF i = 300 AND current_setting(''my.trouble'', true) <> '''' THEN RAISE ''trouble'' USING ERRCODE = current_setting(''my.trouble''); END IF; RETURN i; END'"
    sql "CREATE TABLE t ($columns) $wide; INSERT INTO t $rows; CREATE INDEX t_nitro ON t USING nitro (fine(k)); CREATE INDEX t_btree ON t (fine(k))"
    lost; before=$(used); from=$(log_end)
    assert_eq "a row" "$(sql_fails "SET my.trouble = 'P0001'; SELECT nitro_verify('t_nitro', false)")" "P0001: trouble"
    assert_eq "state" "$(state t_nitro)" failed
    wait_until "SELECT used = $before FROM nitro_memory"
    verified t; assert_eq "then" "$(how t_nitro "$from")" sorted
    lost
    assert_eq "the transaction" "$(sql_fails "SET my.trouble = '40001'; SELECT nitro_verify('t_nitro', false)")" "40001: trouble"
    assert_eq "state" "$(state t_nitro)" building
    verified t
    sql "DROP TABLE t"

    note "temporary files: more than there may be"
    table; sql "CREATE INDEX t_pad_nitro ON t USING nitro (k, (repeat(md5(k::text), 150)))"
    lost; from=$(log_end)
    sql "SET maintenance_work_mem = '1MB'; SELECT nitro_verify('t_pad_nitro')" > /dev/null
    assert_eq "spilt" "$(how t_pad_nitro "$from")" sorted
    lost; from=$(log_end)
    sql "SET maintenance_work_mem = '1MB'; SET temp_file_limit = '64kB'; SELECT nitro_verify('t_pad_nitro')" > /dev/null
    assert_eq "none to be had" "$(how t_pad_nitro "$from")" walked
    right

    for slot in off on; do
        note "the WAL would go while the table is read; the slot is $slot"
        setting nitro.use_slot $slot; lost; from=$(log_end)
        stop_at SortLoaded
        wait_until "SELECT (SELECT count(*) FROM pg_replication_slots) = ('$slot' = 'on')::int"
        for i in 1 2 3 4; do sql "INSERT INTO t SELECT 800 + i, $i, repeat('w', 700) FROM generate_series(1, 30) i"; switch_wal; done
        go_on > /dev/null
        case $slot in off) i=walked ;; on) i=sorted ;; esac
        assert_eq "how" "$(how t_nitro "$from")" $i
        right
    done
    sql "DROP TABLE t"
}

# Code of the index runs as the owner of the table, also in comparison functions. It may query its table and
# check its index.
code() {
    note "code that does what it may"
    local from
    sql "CREATE ROLE eve; GRANT ALL ON SCHEMA public TO eve; CREATE TABLE who (name text); GRANT ALL ON who TO eve"
    # A function marked immutable must not insert, but may call one that does.
    sql "SET ROLE eve; CREATE FUNCTION say() RETURNS void LANGUAGE sql AS 'INSERT INTO public.who VALUES (current_user)'
         ; CREATE FUNCTION more() RETURNS void LANGUAGE plpgsql AS 'BEGIN IF NOT EXISTS (SELECT FROM public.t WHERE k = 4000) THEN INSERT INTO public.t (k) VALUES (4000); END IF; END'
         ; CREATE FUNCTION look(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS \$\$
         BEGIN
             IF i % 100 = 0 THEN
                 PERFORM count(*) FROM public.t WHERE k = i;
                 BEGIN PERFORM public.nitro_verify('public.t_nitro'::regclass, false); EXCEPTION WHEN OTHERS THEN NULL; END;
                 PERFORM public.say();
             END IF;
             RETURN i;
         END \$\$
         ; CREATE TYPE c AS (x int)
         ; CREATE FUNCTION c_cmp(p c, q c) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN IF (p).x = 50 THEN PERFORM public.say(); END IF; RETURN btint4cmp((p).x, (q).x); END'"
    for o in 'lt <' 'le <=' 'eq =' 'ge >=' 'gt >'; do
        sql "SET ROLE eve; CREATE FUNCTION ${o% *}(c, c) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT (\$1).x ${o#* } (\$2).x'; CREATE OPERATOR ${o#* } (LEFTARG = c, RIGHTARG = c, FUNCTION = ${o% *})"
    done
    sql "CREATE OPERATOR CLASS c_ops FOR TYPE c USING nitro AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 c_cmp(c, c)"
    sql "CREATE TABLE t ($columns) $wide; INSERT INTO t $rows; ALTER TABLE t OWNER TO eve
         ; CREATE INDEX t_nitro ON t USING nitro (look(k)); CREATE INDEX t_c_nitro ON t USING nitro ((ROW(k)::c) c_ops); CREATE INDEX t_btree ON t (k)"
    lost; sql "TRUNCATE who"; from=$(log_end)
    verified t
    assert_eq "how" "$(how t_nitro "$from") $(how t_c_nitro "$from")" "sorted sorted"
    assert_eq "who" "$(sql "SELECT string_agg(DISTINCT name, ' ') FROM who")" eve
    # The rows that it has inserted into its own table are not in the blocks already read.
    sql "CREATE OR REPLACE FUNCTION look(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS \$\$
         BEGIN IF i = 350 THEN PERFORM public.more(); END IF; RETURN i; END \$\$"
    lost; from=$(log_end); ready t_nitro
    assert_eq "how" "$(how t_nitro "$from")" sorted
    assert_eq "a row of its own" "$(sql "SELECT count(*) FROM t WHERE k = 4000")" 1
    verified t
    sql "DROP TABLE t; DROP TABLE who; DROP FUNCTION look, say, more; DROP TYPE c CASCADE; REVOKE ALL ON SCHEMA public FROM eve; DROP ROLE eve"
}

run kinds
for point in SortClaimed SortRead SortLoaded SortPublishes; do
    run changes $point none
    run ended $point
done
run changes SortRead reread
run changes SortLoaded tail
run beside_vacuum none
run beside_vacuum walks
run half_walked
run outdated
run left_to_the_walk "time is short" "statement_timeout = '1h'"
[ "$(major)" -lt 17 ] || run left_to_the_walk "and that of a transaction" "transaction_timeout = '1h'"
run left_to_the_walk "without a feed" "work_mem = '4MB'" UNLOGGED
run trouble
run code

#!/usr/bin/env bash
# Unique indexes beside everything: no duplicate comes in, and none is reported without reason. Schedules
# stop an insert between its look at the key and its entry. Others have indexes that are not ready, prepared
# transactions, VACUUM and crashes. A storm comes last.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"

new_server -c "max_prepared_transactions = 5" -c "deadlock_timeout = 200ms" -c "nitro.backup = off"
[ "$(major)" -ge 18 ] || { note "left out: before 18 core takes no unique index of another access method"; exit 0; }
stops=$("${PSQL[@]}" -p "$(port)" -c "SELECT count(*) FROM pg_settings WHERE name = 'nitro.debug_stop'")

class=1852404850
table() { # a table with a unique index
    sql "DROP TABLE IF EXISTS u; CREATE TABLE u (k int, v text) WITH (autovacuum_enabled = off);
         INSERT INTO u SELECT i, 'old' FROM generate_series(1, 200) i; CREATE UNIQUE INDEX u_k ON u USING nitro (k)" 2> /dev/null
}
declare -A process
session control
stopped() { # NAME POINT STATEMENT: a session that stands there
    [ -n "${process[$1]:-}" ] || { session "$1"; process[$1]=$(ask "$1" "SELECT pg_backend_pid()"); }
    ask control "SELECT pg_advisory_lock($class, ${process[$1]})" > /dev/null
    tell "$1" "SET nitro.debug_stop = '$2'; $3"
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND pid = ${process[$1]}"
}
go() { ask control "SELECT pg_advisory_unlock($class, ${process[$1]})" > /dev/null; }
leave() { local s; for s; do ask "$s" "ROLLBACK; SET nitro.debug_stop = 'None'" > /dev/null 2>&1; end "$s"; unset "process[$s]"; done; }
waits() { wait_until "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND locktype = '$1'"; } # for a LOCKTYPE
duplicates() { sql "SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM (SELECT k FROM u GROUP BY k HAVING count(*) > 1) d"; }
whole() { # no duplicates, and what it must be
    assert_eq "$1: duplicates" "$(duplicates)" 0
    sql "SELECT nitro_verify('u_k', true)" > /dev/null
}
said() { [[ $2 == *"$3"* ]] || fail "$1: $2"; }
# A key of a deleted row: its entry stays while a snapshot can see the row. So no insert takes the key for a
# new one.
seen_before() { # KEY
    sql "INSERT INTO u VALUES ($1, 'gone')"
    session reader; ask reader "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM u" > /dev/null
    sql "DELETE FROM u WHERE k = $1"
}
told="duplicate key value violates unique constraint \"u_k\""

one_at_a_time() { # [MECHANISM]: between the look at the key and its entry nobody else gets in
    note "an insert that has looked and not published, and another one ${1:+without $1}"
    table; seen_before 500
    [ -z "${1:-}" ] || mechanism "$1"
    session b
    stopped a KeyChecked "INSERT INTO u VALUES (500, 'a')"
    tell b "INSERT INTO u VALUES (500, 'b')"
    if [ -z "${1:-}" ]; then
        waits page
        go a; answer a > /dev/null
        said "the second" "$(answer b)" "$told"
        whole "one at a time"
    else
        answer b > /dev/null; go a; answer a > /dev/null
        [ "$(duplicates)" = 1 ] || fail "no duplicate without $1: the schedule proves nothing"
        mechanism none
    fi
    leave a b reader
}

overtaken() { # [MECHANISM]: the look takes away the entry that made the key none that is new
    note "an insert that has looked and not published, and one with what is a new key by then ${1:+without $1}"
    table; sql "INSERT INTO u VALUES (500, 'gone'); DELETE FROM u WHERE k = 500"
    [ -z "${1:-}" ] || mechanism "$1"
    session b
    stopped a KeyChecked "INSERT INTO u VALUES (500, 'a')"
    assert_eq "it is" "$(ask b "INSERT INTO u VALUES (500, 'b')")" ""
    go a
    if [ -z "${1:-}" ]; then
        said "who looked" "$(answer a)" "$told"
        whole "overtaken"
        note "the same, and the other one goes back"
        sql "DELETE FROM u WHERE k = 500"
        stopped a KeyChecked "INSERT INTO u VALUES (500, 'a')"
        assert_eq "it is" "$(ask b "BEGIN; INSERT INTO u VALUES (500, 'b')")" ""
        go a; waits transactionid
        assert_eq "locks on pages meanwhile" "$(sql "SELECT count(*) FROM pg_locks WHERE locktype = 'page'")" 0
        session c; tell c "INSERT INTO u VALUES (500, 'c')"
        wait_until "SELECT count(*) = 2 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
        ask b "ROLLBACK" > /dev/null
        assert_eq "who looked" "$(answer a)" ""
        said "a third" "$(answer c)" "$told"
        assert_eq "the row" "$(sql "SELECT v FROM u WHERE k = 500")" a
        whole "overtaken, and back"
        leave c
    else
        answer a > /dev/null
        [ "$(duplicates)" = 1 ] || fail "no duplicate without $1: the schedule proves nothing"
        mechanism none
    fi
    leave a b
}

cancelled() {
    note "a wait for a key ends by cancel, statement timeout and the end of the first; savepoints keep no lock"
    table; seen_before 500
    session b
    stopped a KeyChecked "INSERT INTO u VALUES (500, 'a')"
    said "timeout" "$(ask b "SET statement_timeout = 100; INSERT INTO u VALUES (500, 'b')")" "statement timeout"
    tell b "SET statement_timeout = 0; BEGIN; SAVEPOINT s; INSERT INTO u VALUES (500, 'b')"
    waits page
    sql "SELECT pg_cancel_backend(pid) FROM pg_locks WHERE NOT granted AND locktype = 'page'" > /dev/null
    said "cancel" "$(answer b)" "canceling statement due to user request"
    ask b "ROLLBACK TO s" > /dev/null
    # The session that holds the key is ended: the key is free.
    sql "SELECT pg_cancel_backend(${process[a]})" > /dev/null
    said "the first" "$(answer a)" "canceling statement due to user request"
    ask b "INSERT INTO u VALUES (500, 'b'); COMMIT" > /dev/null
    go a
    assert_eq "locks on pages" "$(sql "SELECT count(*) FROM pg_locks WHERE locktype = 'page'")" 0
    assert_eq "the row" "$(sql "SELECT v FROM u WHERE k = 500")" b
    whole "cancelled"
    leave a b reader
}

recycled() { # [MECHANISM]: VACUUM and another row come between an entry and the look at its row
    note "a TID that VACUUM wants to free while its row is looked at ${1:+without $1}"
    table
    sql "DELETE FROM u WHERE k = 7"
    [ -z "${1:-}" ] || mechanism "$1"
    session v
    stopped a KeyRead "INSERT INTO u VALUES (7, 'a')"
    tell v "VACUUM (INDEX_CLEANUP on, TRUNCATE off) u"
    if [ -z "${1:-}" ]; then
        wait_until "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'NitroTidTokens'"
        go a
        assert_eq "no duplicate" "$(answer a)" ""
        answer v > /dev/null
        whole "recycled"
    else
        answer v > /dev/null
        assert_eq "the TID" "$(sql "INSERT INTO u VALUES (9999, 'v') RETURNING ctid")" "(0,7)"
        go a
        said "without $1 the schedule proves nothing" "$(answer a)" "$told"
        mechanism none
    fi
    leave a v
}

waits_for_transactions() { # [MECHANISM]
    note "a row of a transaction in progress ${1:+without $1}"
    table
    [ -z "${1:-}" ] || mechanism "$1"
    session a; session b
    ask a "BEGIN; INSERT INTO u VALUES (500, 'a')" > /dev/null
    tell b "INSERT INTO u VALUES (500, 'b')"
    if [ -z "${1:-}" ]; then
        waits transactionid
        assert_eq "locks on pages meanwhile" "$(sql "SELECT count(*) FROM pg_locks WHERE locktype = 'page'")" 0
        ask a "COMMIT" > /dev/null
        said "the second" "$(answer b)" "$told"
        whole "in progress"
    else
        answer b > /dev/null; ask a "COMMIT" > /dev/null
        [ "$(duplicates)" = 1 ] || fail "no duplicate without $1: the schedule proves nothing"
        mechanism none
    fi
    leave a b
}

prepared() {
    note "prepared transactions, over a restart, too"
    table
    sql "BEGIN; INSERT INTO u VALUES (500, 'p'); PREPARE TRANSACTION 'one'"
    sql "BEGIN; DELETE FROM u WHERE k = 7; PREPARE TRANSACTION 'two'"
    session b
    tell b "INSERT INTO u VALUES (500, 'b')"; waits transactionid
    sql "COMMIT PREPARED 'one'"
    said "committed" "$(answer b)" "$told"
    tell b "INSERT INTO u VALUES (7, 'b')"; waits transactionid
    sql "ROLLBACK PREPARED 'two'"
    said "rolled back" "$(answer b)" "$told"
    sql "BEGIN; INSERT INTO u VALUES (501, 'p'); PREPARE TRANSACTION 'three'"
    end b; end control; crash; start; session control; session b
    tell b "INSERT INTO u VALUES (501, 'b')"; waits transactionid
    sql "ROLLBACK PREPARED 'three'"
    assert_eq "free" "$(answer b)" ""
    assert_eq "the row" "$(sql "SELECT v FROM u WHERE k = 501")" b
    whole "prepared"
    leave b
}

other_chain() {
    note "an update that was aborted beside a lock that lasts, whose place is in another chain now"
    table
    sql "TRUNCATE u; INSERT INTO u VALUES (1, 'old'), (2, 'old')"
    # The row's xmax is a multixact with a running member, so nothing marks the other update as aborted.
    sql "BEGIN; SELECT FROM u WHERE k = 1 FOR KEY SHARE; PREPARE TRANSACTION 'lock'"
    assert_eq "a place" "$(sql "BEGIN; UPDATE u SET v = 'aborted' WHERE k = 1 RETURNING ctid; ROLLBACK")" "(0,3)"
    sql "VACUUM u"
    assert_eq "the same place" "$(sql "UPDATE u SET v = 'new' WHERE k = 2 RETURNING ctid")" "(0,3)"
    end control; crash; start; session control
    said "the key" "$(sql_fails "INSERT INTO u VALUES (1, 'again')")" "23505"
    whole "other chain"
    sql "ROLLBACK PREPARED 'lock'"
}

not_ready() { # IMAGE: right after a crash
    note "right after a crash, with $1"
    table
    [ "$1" = "no image" ] || { setting nitro.backup on; wait_until "SELECT nitro_backup('u_k') IS NOT NULL"; }
    sql "INSERT INTO u VALUES (300, 'after the image')"
    end control; crash; start; session control
    for k in 5 300; do said "$k" "$(sql_fails "INSERT INTO u VALUES ($k, 'again')")" "23505"; done
    assert_eq "NULL" "$(sql "INSERT INTO u VALUES (NULL, 'x'), (NULL, 'y') RETURNING v")" $'x\ny'
    sql "DELETE FROM u WHERE k IS NULL"
    whole "not ready"
    setting nitro.backup off
}

loading() { # [MECHANISM]: somebody else is at it
    note "while somebody else brings the index up ${1:+without $1}"
    table
    end control; crash; start; session control
    [ -z "${1:-}" ] || mechanism "$1"
    session b
    stopped a BuildPublishes "SELECT nitro_verify('u_k')"
    tell b "INSERT INTO u VALUES (5, 'b')"
    if [ -z "${1:-}" ]; then
        waits object
        said "cancel" "$(ask control "SELECT pg_cancel_backend(pid) FROM pg_locks WHERE NOT granted AND locktype = 'object'")" t
        said "the wait ends" "$(answer b)" "canceling statement due to user request"
        tell b "INSERT INTO u VALUES (5, 'b')"; waits object
        go a; answer a > /dev/null
        said "then" "$(answer b)" "$told"
        whole "loading"
    else
        answer b > /dev/null; go a; answer a > /dev/null
        [ "$(duplicates)" = 1 ] || fail "no duplicate without $1: the schedule proves nothing"
        mechanism none
    fi
    leave a b
}

both_fed() {
    note "two rows with one key that the walk has fed before either was looked at"
    table
    end control; crash; start; session control
    # Both are in the heap and wait for the index.
    stopped c BuildPublishes "SELECT nitro_verify('u_k')"
    session a; session b
    for s in a b; do tell $s "BEGIN; INSERT INTO u VALUES (500, '$s')"; done
    wait_until "SELECT count(*) = 2 FROM pg_locks WHERE NOT granted AND locktype = 'object'"
    go c; answer c > /dev/null
    for s in a b; do tell $s "COMMIT"; done
    out="$(answer a) $(answer a) $(answer b) $(answer b)"
    said "one of them" "$out" "deadlock detected"
    assert_eq "rows" "$(sql "SELECT count(*) FROM u WHERE k = 500")" 1
    whole "both fed"
    leave a b c
}

fails() {
    note "an index that cannot be built, or for which there is no memory"
    sql "DROP TABLE IF EXISTS u; CREATE TABLE u (k int, v text);
         CREATE OR REPLACE FUNCTION fine(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN IF i = 7 AND current_setting(''my.trouble'', true) = ''on'' THEN RAISE ''trouble''; END IF; RETURN i; END';
         INSERT INTO u SELECT i, 'old' FROM generate_series(1, 100) i; CREATE UNIQUE INDEX u_k ON u USING nitro (fine(k))"
    end control; crash; start; session control
    said "FAILED" "$(sql_fails "SET my.trouble = on; INSERT INTO u VALUES (5, 'x')")" "P0001: trouble"
    said "still" "$(sql_fails "SET my.trouble = on; INSERT INTO u VALUES (6, 'x')")" "P0001: trouble"
    said "which index" "$("${PSQL[@]}" -p "$(port)" -v VERBOSITY=verbose -c "SET my.trouble = on; INSERT INTO u VALUES (6, 'x')" 2>&1)" 'while reading the table of nitro index "u_k"'
    said "cured" "$(sql_fails "INSERT INTO u VALUES (5, 'x')")" "23505"
    assert_eq "rows" "$(sql "SELECT count(*) FROM u")" 100
    note "what an insert costs whose index cannot be built: a look at where it failed, not a walk over the table"
    sql "DROP TABLE u; CREATE TABLE u (k int, v text); CREATE SEQUENCE IF NOT EXISTS calls; INSERT INTO u SELECT i, 'old' FROM generate_series(1, 40000) i;
         CREATE OR REPLACE FUNCTION fine(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN PERFORM nextval(''public.calls''); IF i = 39999 AND current_setting(''my.trouble'', true) = ''on'' THEN RAISE ''trouble''; END IF; RETURN i; END';
         CREATE UNIQUE INDEX u_k ON u USING nitro (fine(k))"
    end control; crash; start; session control
    calls() { sql "SELECT setval('calls', 1)" > /dev/null; said "trouble" "$(sql_fails "SET my.trouble = on; INSERT INTO u VALUES (0, 'x')")" "P0001: trouble"; calls=$(sql "SELECT last_value FROM calls"); }
    calls; [ "$calls" -gt 39000 ] || fail "the first one has not walked: $calls"
    calls; [ "$calls" -lt 20000 ] || fail "the second one has walked again: $calls"
    said "cured" "$(sql_fails "INSERT INTO u VALUES (5, 'x')")" "23505"
    whole "where it failed"
    local when
    for when in error give_up_index; do
        sql "DROP TABLE u; CREATE TABLE u (k int, v text); CREATE UNIQUE INDEX u_k ON u USING nitro (v) WITH (max_memory = '4MB')"
        said "no memory, $when" "$(sql_fails "SET nitro.when_full = $when; INSERT INTO u SELECT i, repeat(md5(i::text), 8) FROM generate_series(1, 40000) i")" "53400"
        assert_eq "$when: state" "$(sql "SELECT state FROM pg_stat_nitro_indexes WHERE indexrelname = 'u_k'")" ready
        sql "VACUUM (INDEX_CLEANUP on) u"
        sql "INSERT INTO u SELECT i, repeat(md5(i::text), 8) FROM generate_series(1, 8000) i"
        said "build, $when" "$(sql_fails "SET nitro.when_full = $when; CREATE UNIQUE INDEX u_2 ON u USING nitro ((v || repeat(md5(v), 100))) WITH (max_memory = '1MB')")" "53400"
        said "$when: still unique" "$(sql_fails "SET nitro.when_full = $when; INSERT INTO u VALUES (1, repeat(md5('1'), 8))")" "23505"
        # There is no memory when the index is brought up.
        sql "ALTER INDEX u_k SET (max_memory = '1MB')"
        end control; crash; start; session control
        said "given up, $when" "$(sql_fails "SET nitro.when_full = $when; INSERT INTO u VALUES (1, repeat(md5('1'), 8))" | cut -c 1-2)" "53"
        sql "ALTER INDEX u_k RESET (max_memory)"
        said "there is some, $when" "$(sql_fails "INSERT INTO u VALUES (1, repeat(md5('1'), 8))")" "23505"
    done
}

concurrently() {
    note "CREATE UNIQUE INDEX CONCURRENTLY beside inserts: a duplicate is seen at build, at validation, or by the insert"
    table; sql "DROP INDEX u_k"
    session maker; session w
    ask w "BEGIN; INSERT INTO u VALUES (600, 'w')" > /dev/null
    tell maker "CREATE UNIQUE INDEX CONCURRENTLY u_k ON u USING nitro (k)"
    waits virtualxid
    # Neither in the snapshot of the build, nor in an index.
    sql "INSERT INTO u VALUES (600, 'other')"
    ask w "COMMIT" > /dev/null
    said "a duplicate" "$(answer maker)" "ERROR"
    assert_eq "not valid" "$(sql "SELECT indisvalid FROM pg_index WHERE indexrelid = 'u_k'::regclass")" f
    sql "DELETE FROM u WHERE v = 'other'; DROP INDEX u_k"
    leave maker w
    session maker; session w
    ask w "BEGIN ISOLATION LEVEL REPEATABLE READ; INSERT INTO u VALUES (601, 'w')" > /dev/null
    tell maker "CREATE UNIQUE INDEX CONCURRENTLY u_k ON u USING nitro (k)"
    waits virtualxid
    ask w "COMMIT" > /dev/null
    assert_eq "made" "$(answer maker)" ""
    said "unique" "$(sql_fails "INSERT INTO u VALUES (601, 'x')")" "23505"
    whole "concurrently"
    leave maker w
    [ "$stops" = 1 ] || return 0
    note "a row that validation inserts, and that was deleted and inserted anew meanwhile"
    sql "DROP INDEX u_k"
    session maker; session w; session x
    process[maker]=$(ask maker "SET nitro.debug_stop = 'InsertInHeap'; SELECT pg_backend_pid()")
    ask control "SELECT pg_advisory_lock($class, ${process[maker]})" > /dev/null
    ask w "BEGIN; INSERT INTO u VALUES (700, 'w')" > /dev/null
    tell maker "CREATE UNIQUE INDEX CONCURRENTLY u_k ON u USING nitro (k)"
    waits virtualxid
    # It knows that the index exists, but not that it takes rows.
    ask x "BEGIN; INSERT INTO u VALUES (701, 'x')" > /dev/null
    ask w "COMMIT" > /dev/null
    wait_until "SELECT indisready FROM pg_index WHERE indexrelid = 'u_k'::regclass"
    waits virtualxid
    ask x "COMMIT" > /dev/null
    waits advisory
    sql "DELETE FROM u WHERE k = 701; INSERT INTO u VALUES (701, 'again')"
    go maker
    assert_eq "no duplicate" "$(answer maker)" ""
    whole "validation"
    leave maker w x
}

storm() { # SECONDS
    setting nitro.backup on
    note "a storm: eight writers on a few keys, VACUUM, images; then a crash and another one"
    sql "DROP TABLE IF EXISTS u; CREATE TABLE u (k int, v text, n int DEFAULT 0) WITH (autovacuum_enabled = off, fillfactor = 70);
         CREATE UNIQUE INDEX u_k ON u USING nitro (k); CREATE UNIQUE INDEX u_v ON u USING nitro (v COLLATE \"C\") WHERE n % 2 = 0"
    cat > "$NITRO_TMP/storm" <<'S'
\set k random(1, 60)
\set j random(1, 60)
\set what random(1, 12)
\if :what <= 3
  INSERT INTO u VALUES (:k, NULL) ON CONFLICT (k) DO UPDATE SET n = u.n + 2;
\elif :what = 4
  INSERT INTO u VALUES (:k, :j) ON CONFLICT DO NOTHING;
\elif :what = 5
  DELETE FROM u WHERE k = :k;
\elif :what = 6
  UPDATE u SET n = n + 2 WHERE k = :k;
\else
  SELECT storm(:what, :k, :j);
\endif
S
    # Duplicates and deadlocks are part of it.
    sql "CREATE OR REPLACE FUNCTION storm(what int, a int, b int) RETURNS void LANGUAGE plpgsql AS \$\$
         BEGIN
           IF what = 7 THEN INSERT INTO u VALUES (a, b);
           ELSIF what = 8 THEN UPDATE u SET k = a, v = b WHERE k = b;
           ELSIF what = 9 THEN DELETE FROM u WHERE k = a; INSERT INTO u VALUES (a, a);
           ELSIF what = 10 THEN INSERT INTO u VALUES (a, a); RAISE EXCEPTION 'back';
           ELSIF what = 11 THEN
             BEGIN INSERT INTO u VALUES (b, b); EXCEPTION WHEN unique_violation THEN NULL; END;
             DELETE FROM u WHERE k = a; INSERT INTO u VALUES (a, NULL);
           ELSE UPDATE u SET n = n + 1 WHERE k = a;
           END IF;
         EXCEPTION WHEN unique_violation OR deadlock_detected OR raise_exception THEN NULL;
         END \$\$"
    local round end pid
    for round in 1 2; do
        "$NITRO_BIN/pgbench" -n -f "$NITRO_TMP/storm" -c 8 -j 1 -T "$1" --max-tries=100 --random-seed="$((NITRO_SEED + round))" -p "$(port)" > "$NITRO_TMP/pgbench" 2>&1 &
        pid=$! end=$((SECONDS + $1 - 1))
        while [ $SECONDS -lt $end ]; do
            glance "VACUUM (INDEX_CLEANUP on) u" > /dev/null
            glance "SELECT nitro_backup('u_k')" > /dev/null
            assert_eq "duplicates" "$(duplicates)" 0
            sleep 0.2
        done
        wait $pid || true
        ! grep -E "ERROR|aborted" "$NITRO_TMP/pgbench" | grep -v "duplicate key" || fail "a writer failed"
        grep -q "number of transactions actually processed: [1-9]" "$NITRO_TMP/pgbench" || fail "nobody wrote: $(cat "$NITRO_TMP/pgbench")"
        whole "storm"
        assert_eq "the second index" "$(sql "SELECT count(*) FROM (SELECT v FROM u WHERE n % 2 = 0 AND v IS NOT NULL GROUP BY v HAVING count(*) > 1) d")" 0
        sql "SELECT nitro_verify('u_v', true)" > /dev/null
        assert_eq "by the index" "$(sql "SET enable_seqscan = off; SELECT count(*), count(DISTINCT k) FROM u WHERE k > 0")" \
            "$(sql "SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off; SELECT count(*), count(*) FROM u WHERE k > 0")"
        assert_eq "locks" "$(sql "SELECT count(*) FROM pg_locks WHERE locktype = 'page'")" 0
        if [ $round = 1 ]; then
            end control; crash; start; session control
            for k in $(sql "SELECT k FROM u LIMIT 3"); do said "after the crash" "$(sql_fails "INSERT INTO u VALUES ($k, '-')")" "23505"; done
        fi
    done
}

one_key() {
    note "eight writers on one key"
    table
    cat > "$NITRO_TMP/one" <<'S'
INSERT INTO u VALUES (1000, 'x') ON CONFLICT DO NOTHING;
DELETE FROM u WHERE k = 1000;
S
    "$NITRO_BIN/pgbench" -n -f "$NITRO_TMP/one" -c 8 -j 1 -t 300 -p "$(port)" > "$NITRO_TMP/pgbench" 2>&1 || fail "$(cat "$NITRO_TMP/pgbench")"
    whole "one key"
    for _ in 1 2 3 4 5; do
        printf 'INSERT INTO u VALUES (2000, NULL);\n' > "$NITRO_TMP/one"
        "$NITRO_BIN/pgbench" -n -f "$NITRO_TMP/one" -c 8 -j 1 -t 1 -p "$(port)" > "$NITRO_TMP/pgbench" 2>&1 || true
        assert_eq "one came in" "$(sql "SELECT count(*) FROM u WHERE k = 2000")" 1
        sql "DELETE FROM u WHERE k = 2000"
    done
    whole "one key"
}

if [ "$stops" = 1 ]; then
    run one_at_a_time
    run one_at_a_time key_locks
    run overtaken
    run overtaken key_again
    run cancelled
    run recycled
    run recycled key_tokens
    run loading
    run loading key_ready
    run both_fed
fi
run waits_for_transactions
run waits_for_transactions key_waits
run prepared
run other_chain
run not_ready "no image"
run not_ready "an image"
run fails
run concurrently
run one_key
run storm "$([ -n "$LONG" ] && echo 60 || echo 8)"

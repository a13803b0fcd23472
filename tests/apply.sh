#!/usr/bin/env bash
# Some code chooses an index without the planner: logical replication looks for the row to change, an
# exclusion constraint for a conflict. It goes on when that index cannot be brought up. Logical replication
# finds rows by a unique index.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
new_server -c "nitro.backup = off" -c "wal_level = logical" -c "wal_retrieve_retry_interval = 500ms"
picky() { sql "CREATE OR REPLACE FUNCTION picky(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN IF i = 42 THEN $1 END IF; RETURN i; END'"; }
source() { (export PGDATABASE=source; sql "$@"); }
without="SET enable_indexscan = off; SET enable_bitmapscan = off;"

apply() {
    note "logical replication to a table without a key, whose index fails"
    sql "CREATE DATABASE source"
    source "CREATE TABLE t (a int, b int); ALTER TABLE t REPLICA IDENTITY FULL; CREATE PUBLICATION p FOR TABLE t; SELECT pg_create_logical_replication_slot('s', 'pgoutput')" > /dev/null
    picky "NULL;"
    sql "CREATE TABLE t (a int, b int); CREATE INDEX t_nitro ON t USING nitro (a, picky(b))"
    sql "CREATE SUBSCRIPTION sub CONNECTION 'host=$NITRO_TMP port=$(port) dbname=source user=postgres' PUBLICATION p WITH (create_slot = false, slot_name = 's', copy_data = false)" 2> /dev/null
    source "INSERT INTO t SELECT i, i FROM generate_series(1, 500) i"
    wait_until "$without SELECT count(*) = 500 FROM t"
    # The index can be brought up.
    restart
    source "UPDATE t SET b = -b WHERE a = 99; DELETE FROM t WHERE a = 100"
    wait_until "$without SELECT count(*) = 499 FROM t"
    # The index cannot be brought up.
    picky "RAISE EXCEPTION ''bad luck'';"; restart
    source "UPDATE t SET b = -b WHERE a IN (42, 200); DELETE FROM t WHERE a IN (101, 102)"
    wait_until "$without SELECT count(*) = 497 FROM t"
    source "INSERT INTO t SELECT 1000, 1000 FROM generate_series(1, 3); DELETE FROM t WHERE a = 103"
    wait_until "$without SELECT count(*) = 499 FROM t"
    assert_eq "errors" "$(sql "SELECT apply_error_count FROM pg_stat_subscription_stats")" 0
    assert_eq "rows" "$(sql "$without SELECT md5(string_agg(t::text, ';' ORDER BY a, b)) FROM t")" "$(source "SELECT md5(string_agg(t::text, ';' ORDER BY a, b)) FROM t")"
    # Only from 18 on this kind of index is chosen.
    [ "$(sql "SHOW server_version_num")" -lt 180000 ] || assert_eq "state" "$(state t_nitro)" failed
    picky "NULL;"; sql "REINDEX INDEX t_nitro"; verified t
    sql "ALTER SUBSCRIPTION sub DISABLE; ALTER SUBSCRIPTION sub SET (slot_name = NONE); DROP SUBSCRIPTION sub; DROP TABLE t" 2> /dev/null
}

exclusion() {
    note "an exclusion constraint whose index has failed; a partial one is checked by its index or not at all"
    sql "CREATE FUNCTION moody(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN IF i = 42 AND current_setting(''my.mood'', true) = ''bad'' THEN RAISE EXCEPTION ''bad luck''; END IF; RETURN i; END'"
    sql "CREATE TABLE e (k int, b int, EXCLUDE USING nitro (moody(k) WITH =)); INSERT INTO e SELECT i, i FROM generate_series(1, 300) i; UPDATE e SET b = -b WHERE k % 3 = 0; UPDATE e SET k = k + 1000 WHERE k > 290"
    sql "CREATE TABLE h (k int, b int, EXCLUDE USING nitro (k WITH =) WHERE (moody(b) > 0)); INSERT INTO h VALUES (1, -1), (2, 42), (3, 3)"
    restart
    local i
    for i in e_moody_excl h_k_excl; do [[ $(sql_fails "SET my.mood = 'bad'; SELECT nitro_verify('$i')") == *"bad luck" ]] || fail "another error"; done
    assert_eq "states" "$(state e_moody_excl) $(state h_k_excl)" "failed failed"
    for i in 7 9 1295; do [[ $(sql_fails "INSERT INTO e VALUES ($i, 7)") == *"23P01: "* ]] || fail "a conflict was not found: $i"; done
    sql "INSERT INTO e VALUES (295, 1)" 2> /dev/null
    [[ $(sql_fails "INSERT INTO e VALUES (295, 2)") == *"23P01: "* ]] || fail "a conflict was not found: 295"
    assert_eq "state" "$(state e_moody_excl)" failed
    [[ $(sql_fails "SET my.mood = 'bad'; INSERT INTO h VALUES (1, 1)") == *"bad luck" ]] || fail "the original error"
    sql "INSERT INTO h VALUES (1, 1)"
    [[ $(sql_fails "INSERT INTO h VALUES (3, 4)") == *"23P01: "* ]] || fail "a conflict was not found: 3"
    sql "REINDEX TABLE e"; verified e; verified h
    sql "DROP TABLE e, h"
}

identity() {
    note "logical replication by a unique index that is the replica identity, on both sides; a restart in between"
    [ "$(sql "SHOW server_version_num")" -ge 180000 ] || return 0
    local table="CREATE TABLE i (k int NOT NULL, v int); CREATE UNIQUE INDEX i_nitro ON i USING nitro (k); ALTER TABLE i REPLICA IDENTITY USING INDEX i_nitro"
    source "CREATE EXTENSION nitro; $table; CREATE PUBLICATION pi FOR TABLE i; SELECT pg_create_logical_replication_slot('si', 'pgoutput')" > /dev/null
    sql "$table"
    sql "CREATE SUBSCRIPTION subi CONNECTION 'host=$NITRO_TMP port=$(port) dbname=source user=postgres' PUBLICATION pi WITH (create_slot = false, slot_name = 'si', copy_data = false)" 2> /dev/null
    source "INSERT INTO i SELECT i, i FROM generate_series(1, 500) i; UPDATE i SET v = -v WHERE k % 3 = 0; UPDATE i SET k = k + 1000 WHERE k % 5 = 0; DELETE FROM i WHERE k % 7 = 0"
    restart
    source "UPDATE i SET v = v + 1; DELETE FROM i WHERE k % 11 = 0; INSERT INTO i VALUES (7, 7), (11, 11)"
    local all="SELECT count(*), md5(string_agg(i::text, ';' ORDER BY k)) FROM i"
    # Both are there before the first rows go, also if the restart comes earlier.
    wait_until "$without SELECT (SELECT count(*) FROM i WHERE k IN (7, 11)) = 2 AND NOT EXISTS (SELECT FROM i WHERE k = 22)"
    assert_eq "rows" "$(sql "$without $all")" "$(source "$without $all")"
    assert_eq "errors" "$(sql "SELECT sum(apply_error_count) FROM pg_stat_subscription_stats WHERE subname = 'subi'")" 0
    [[ $(sql_fails "INSERT INTO i VALUES (7, 8)") == *"23505: "* ]] || fail "not unique"
    # An existing row with the same key stops the worker, with the same message as for a btree, until the
    # row is gone.
    sql "INSERT INTO i VALUES (3000, 1)"
    source "INSERT INTO i VALUES (3000, 2)"
    wait_until "SELECT confl_insert_exists > 0 FROM pg_stat_subscription_stats WHERE subname = 'subi'"
    source "UPDATE i SET k = 3001 WHERE k = 3000"
    sql "INSERT INTO i VALUES (3001, 1); DELETE FROM i WHERE k = 3000"
    wait_until "SELECT confl_update_exists > 0 FROM pg_stat_subscription_stats WHERE subname = 'subi'"
    # The messages before 19, and since.
    local key='Key \(k\)=\(3001\); existing local row \(3001, 1\); remote row \(3001, 2\); replica identity \(k\)=\(3000\)'
    key+='|unique index "i_nitro", modified in .*: key \(k\)=\(3001\), local row \(3001, 1\)'
    [ "$(logged "$key")" -gt 0 ] || fail "another conflict"
    sql "DELETE FROM i WHERE k = 3001"
    wait_until "$without SELECT count(*) = 1 FROM i WHERE k = 3001 AND v = 2"
    sql "SELECT nitro_verify('i_nitro', true)" > /dev/null
}

run apply
run exclusion
run identity

#!/usr/bin/env bash
# Tables and databases that move, and come back to their old place: a file is not the same because it has
# the same name at the same place.
. "$(dirname "$0")"/lib.sh
. "$(dirname "$0")"/answers.sh
. "$(dirname "$0")"/image_files.sh
in_folders
. "$(dirname "$0")"/by_hand.sh
new_server "${by_hand[@]}"
mkdir "$NITRO_TMP/other"; sql "CREATE TABLESPACE other LOCATION '$NITRO_TMP/other'"

in_postgres() { PGDATABASE=postgres sql_alone "$@"; }
set_up() { # DATABASE
    in_postgres "CREATE DATABASE $1"
    PGDATABASE=$1 sql "CREATE EXTENSION nitro; CREATE EXTENSION pageinspect"
}
make() { # TABLE
    sql "CREATE TABLE $1 (k int, pad text) WITH (autovacuum_enabled = off); INSERT INTO $1 SELECT i, repeat('x', 50) FROM generate_series(1, 2000) i"
    sql "CREATE INDEX $1_nitro ON $1 USING nitro (k); CREATE INDEX $1_btree ON $1 (k)"
}
change() { # TABLE: rows go, their TIDs are used again
    sql "DELETE FROM $1 WHERE k BETWEEN 100 AND 300; VACUUM (INDEX_CLEANUP on) $1; INSERT INTO $1 SELECT i, repeat('y', 50) FROM generate_series(10001, 10150) i"
}
right() { verdict "$1" "$2" "SELECT k FROM $2 WHERE k BETWEEN 50 AND 400" "SELECT k FROM $2 WHERE k > 900 ORDER BY k"; }

database_there_and_back() { # MECHANISM
    note "a database moves to another tablespace and back between image and power cut (off: $1)"
    set_up d; export PGDATABASE=d
    make t; backup t_nitro
    in_postgres "ALTER DATABASE d SET TABLESPACE other"
    change t
    in_postgres "ALTER DATABASE d SET TABLESPACE pg_default"
    mechanism "$1"
    crash; start
    if [ "$1" = none ]; then rebuilt t_nitro "the database was moved"; else loaded t_nitro; fi
    right "$1" t
    if [ "$1" = none ]; then
        # From the first image after the move on, images are used again.
        make t; in_postgres "ALTER DATABASE d SET TABLESPACE other"; backup t_nitro; change t
        crash; start; loaded t_nitro; right none t
    fi
    export PGDATABASE=postgres; sql_alone "DROP DATABASE d"
}

database_of_the_same_number() {
    note "a database is dropped and made again by a copy of the same template, under the same OID"
    set_up t; PGDATABASE=t; make t
    PGDATABASE=postgres
    local again="CREATE DATABASE d TEMPLATE t OID 60000 STRATEGY file_copy"
    sql_alone "$again"
    export PGDATABASE=d
    sql "DELETE FROM t WHERE k < 1000; VACUUM (INDEX_CLEANUP on) t"; ready t_nitro; backup t_nitro
    # The keeper removes them with their database. A folder copied from elsewhere comes back.
    local images; images=$(dirname "$(folder t_nitro)"); cp -a "$images" "$NITRO_TMP/images"
    in_postgres "DROP DATABASE d"; in_postgres "$again"
    crash; rm -rf "$images"; mv "$NITRO_TMP/images" "$images"; start
    rebuilt t_nitro "does not know its mark"
    right none t
    export PGDATABASE=postgres; sql_alone "DROP DATABASE d"; sql_alone "DROP DATABASE t"
}

relations_there_and_back() {
    note "a table and an index move to another tablespace and back"
    set_up d; export PGDATABASE=d
    make t; make i; backup t_nitro i_nitro
    local from; from=$(log_end)
    sql "ALTER TABLE t SET TABLESPACE other; ALTER INDEX i_nitro SET TABLESPACE other"
    assert_eq "the entries of another file" "$(state t_nitro)" unbuilt
    change t; change i
    sql "ALTER TABLE t SET TABLESPACE pg_default; ALTER INDEX i_nitro SET TABLESPACE pg_default"
    crash; start
    # VACUUM has checked it already.
    rebuilt t_nitro "the table was moved" "$from"
    ready i_nitro
    right none t; right none i
    export PGDATABASE=postgres; sql_alone "DROP DATABASE d"
}

# Neither builders nor parallel workers can build one, and no end of a transaction tells its fate.
temporary_index() {
    note "a temporary index that moves, and one whose file goes to another index"
    sql "CREATE TABLE big (i int); INSERT INTO big SELECT generate_series(1, 30000); CREATE INDEX big_nitro ON big USING nitro (i); ANALYZE big"
    session x; local before query
    ask x "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET enable_bitmapscan = off" > /dev/null
    ask x "CREATE TEMP TABLE x (c varchar(10), k int); INSERT INTO x SELECT i, i FROM generate_series(1, 1000) i; CREATE INDEX x_nitro ON x USING nitro (c); ANALYZE x" > /dev/null
    query="SELECT count(*) FROM big WHERE i + 0 > (SELECT k FROM x WHERE c = '77')"
    [[ $(ask x "EXPLAIN $query") =~ x_nitro.*Parallel ]] || fail "another plan"
    # Some transaction checks which files are still in their place.
    ask x "ALTER INDEX x_nitro SET TABLESPACE other; CREATE TEMP TABLE y (); DROP TABLE y" > /dev/null
    assert_eq "rows" "$(ask x "$query")" 29923
    ask x "ALTER TABLE x ALTER c TYPE varchar(20)" > /dev/null
    before=$(sql "SELECT used, indexes FROM nitro_memory")
    sql "VACUUM big"
    assert_eq "memory after another session has looked for what is gone" "$(sql "SELECT used, indexes FROM nitro_memory")" "$before"
    assert_eq "entries" "$(ask x "SELECT nitro_verify('x_nitro', true)")" 1000
    end x
    wait_until "SELECT indexes = 1 FROM nitro_memory"
    sql "DROP TABLE big"
}

temporary_of_the_same_number() {
    note "a temporary index whose file has the number of another table's, and is built anew where it is"
    local n
    sql "CREATE TABLE t AS SELECT generate_series(1, 1000) AS k; CREATE INDEX t_nitro ON t USING nitro (k)"
    # REINDEX takes the next number that has no file of its kind. The file of a temporary table has another
    # name.
    n=$(sql "SELECT pg_relation_filenode('t_nitro')")
    stop; "$NITRO_BIN/pg_resetwal" -o $((n - 20)) "$(data)" > "$NITRO_TMP/resetwal" 2>&1 || fail "$(cat "$NITRO_TMP/resetwal")"; start
    ready t_nitro
    session temp
    ask temp "CREATE TEMP TABLE x (k int) ON COMMIT DELETE ROWS; CREATE INDEX x_nitro ON x USING nitro (k)" > /dev/null
    for _ in $(seq 60); do
        ask temp "REINDEX INDEX x_nitro" > /dev/null
        [ "$(ask temp "SELECT pg_relation_filenode('x_nitro')")" != "$n" ] || break
    done
    assert_eq "number" "$(ask temp "SELECT pg_relation_filenode('x_nitro')")" "$n"
    ask temp "BEGIN; INSERT INTO x SELECT generate_series(1, 1000); COMMIT; INSERT INTO x VALUES (7)" > /dev/null
    assert_eq "state" "$(state t_nitro)" ready
    assert_eq "rows of the one" "$(sql "SET enable_seqscan = off; SELECT count(*) FROM t WHERE k > 500")" 500
    assert_eq "rows of the other" "$(ask temp "BEGIN; INSERT INTO x VALUES (3), (4); SET LOCAL enable_seqscan = off; SELECT count(*) FROM x WHERE k < 9; COMMIT")" 2
    verified t
    end temp
    sql "DROP TABLE t"
}

for off in none moves; do run database_there_and_back $off; done
run database_of_the_same_number
run relations_there_and_back
run temporary_index
run temporary_of_the_same_number

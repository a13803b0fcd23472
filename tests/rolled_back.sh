#!/usr/bin/env bash
# Transactions that give a table or its indexes another file, write there, and end in every way. In the end
# a table has one of its files. Each index then has all rows of that file, and no entry of the other one.
# One in three of the table's moves runs, and one in twenty of the rest; with LONG=1 all.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
new_server
mkdir "$NITRO_TMP/other"; sql "CREATE TABLESPACE other LOCATION '$NITRO_TMP/other'"
# VACUUM finds the indexes that no end of a transaction reports.
sql "CREATE TABLE anchor (k int) WITH (autovacuum_enabled = off); CREATE INDEX anchor_nitro ON anchor USING nitro (k)"
memory() { sql "VACUUM anchor; SELECT used, indexes FROM nitro_memory"; }
sql "CREATE FUNCTION picky(i bigint) RETURNS bigint IMMUTABLE LANGUAGE plpgsql AS
     'BEGIN IF current_setting(''my.trouble'', true) = ''on'' THEN RAISE ''bad luck''; END IF; RETURN i; END'"

declare -A changes=(
    [move]="ALTER TABLE t SET TABLESPACE other"
    [move_twice]="ALTER TABLE t SET TABLESPACE other; INSERT INTO t SELECT i, 'between' FROM generate_series(1101, 1150) i; ALTER TABLE t SET TABLESPACE pg_default"
    [move_index]="ALTER INDEX t_nitro SET TABLESPACE other"
    [move_both]="ALTER TABLE t SET TABLESPACE other; ALTER INDEX t_nitro SET TABLESPACE other"
    [cluster]="CLUSTER t USING t_nitro" [reindex]="REINDEX TABLE t" [truncate]="TRUNCATE t"
    [retype]="ALTER TABLE t ALTER k TYPE bigint" [unlogged]="ALTER TABLE t SET UNLOGGED"
    [new_index]="DROP INDEX t_nitro; CREATE INDEX t_nitro ON t USING nitro (k)")
declare -A works=(
    [nothing]="SELECT"
    [read]="SET LOCAL enable_seqscan = off; SELECT count(*) FROM t WHERE k > 0"
    [insert]="INSERT INTO t SELECT i, 'rolled back' FROM generate_series(1001, 1100) i"
    [update]="UPDATE t SET k = k + 2000 WHERE k <= 100; SET LOCAL enable_seqscan = off; SELECT count(*) FROM t WHERE k > 0"
    [delete]="DELETE FROM t WHERE k <= 100; INSERT INTO t SELECT i, 'rolled back' FROM generate_series(1001, 1100) i"
    [truncate]="TRUNCATE t; INSERT INTO t SELECT i, 'rolled back' FROM generate_series(1001, 1020) i"
    [truncate_twice]="TRUNCATE t; INSERT INTO t VALUES (1001, 'rolled back'); TRUNCATE t")
ends="rollback error savepoint goes_on terminate prepared prepared_crash commit commit_prepared released"

right() {
    sql "INSERT INTO t SELECT i, 'new' FROM generate_series(3001, 3100) i"
    verified t
    same_answers t "SELECT * FROM t WHERE k BETWEEN 1001 AND 1150" "SELECT * FROM t WHERE k BETWEEN 2001 AND 2100" "SELECT * FROM t WHERE k > 0"
}
one() { # CHANGE WORK END
    note "$1, $2, $3"
    local before got want
    before=$(memory)
    sql "CREATE TABLE t (k int, pad text) WITH (autovacuum_enabled = off); INSERT INTO t SELECT i, 'old' FROM generate_series(1, 300) i
        ; CREATE INDEX t_nitro ON t USING nitro (k); CREATE INDEX t_pad_nitro ON t USING nitro (pad COLLATE \"C\", picky(k))"
    session x
    ask x "BEGIN; INSERT INTO t VALUES (2001, 'before')" > /dev/null
    case $3 in savepoint | goes_on | released) ask x "SAVEPOINT s" > /dev/null ;; esac
    got=$(ask x "${changes[$1]}; ${works[$2]}")
    [[ $got != *ERROR* ]] || fail "$got"
    case $3 in
        rollback) ask x "ROLLBACK" > /dev/null ;;
        error) ask x "SELECT 1 / 0; COMMIT" > /dev/null ;;
        savepoint) ask x "ROLLBACK TO s; COMMIT" > /dev/null ;;
        released) ask x "RELEASE s; ROLLBACK" > /dev/null ;;
        goes_on)
            ask x "ROLLBACK TO s; INSERT INTO t SELECT i, 'again' FROM generate_series(4001, 4100) i" > /dev/null
            want=$(ask x "SET LOCAL nitro.enable_scan = off; SELECT count(*) FROM t WHERE k > 1000")
            got=$(ask x "SET LOCAL nitro.enable_scan = on; SET LOCAL enable_seqscan = off; SELECT count(*) FROM t WHERE k > 1000")
            assert_eq "in the same transaction" "$got" "$want"
            ask x "COMMIT" > /dev/null ;;
        terminate) sql "SELECT pg_terminate_backend($(ask x "SELECT pg_backend_pid()"), 60000)" > /dev/null ;;
        prepared) ask x "PREPARE TRANSACTION 'p'" > /dev/null; sql "ROLLBACK PREPARED 'p'" ;;
        prepared_crash) ask x "PREPARE TRANSACTION 'p'" > /dev/null; crash; start; sql "ROLLBACK PREPARED 'p'" ;;
        commit) ask x "COMMIT" > /dev/null ;;
        commit_prepared) ask x "PREPARE TRANSACTION 'p'" > /dev/null; sql "COMMIT PREPARED 'p'" ;;
    esac
    right
    # Also in the session of that transaction, and after the addresses were used again.
    [[ $3 == terminate || $3 == prepared_crash ]] || ask x "INSERT INTO t SELECT i, 'newer' FROM generate_series(5001, 5050) i" > /dev/null
    end x
    sql "VACUUM (INDEX_CLEANUP on) t"; right
    sql "DROP TABLE t"
    [ "$3" = prepared_crash ] || assert_eq "memory" "$(memory)" "$before"
}

full() { # STATEMENT
    note "$1 that fails when the indexes are made anew"
    sql "CREATE TABLE t (k int, pad text) WITH (autovacuum_enabled = off); INSERT INTO t SELECT i, 'old' FROM generate_series(1, 300) i
        ; CREATE INDEX t_nitro ON t USING nitro (k); CREATE INDEX t_pad_nitro ON t USING nitro (pad COLLATE \"C\", picky(k)); DELETE FROM t WHERE k < 100"
    [[ $(PGOPTIONS="-c my.trouble=on" sql_fails "$1 t") == *"bad luck" ]] || fail "it did not fail"
    assert_eq "state" "$(state t_nitro)" ready
    right; sql "VACUUM (INDEX_CLEANUP on) t"; right
    sql "DROP TABLE t"
}

temporary() {
    note "a temporary table"
    local before end got want
    before=$(memory)
    session x
    ask x "CREATE TEMP TABLE x (k int); INSERT INTO x SELECT generate_series(1, 300); CREATE INDEX x_nitro ON x USING nitro (k)" > /dev/null
    for end in "ROLLBACK TO s; INSERT INTO x SELECT generate_series(3001, 3050)" "COMMIT" "ROLLBACK"; do
        ask x "BEGIN; SAVEPOINT s; ALTER TABLE x SET TABLESPACE $([ "$end" = COMMIT ] && echo other || echo pg_global)" > /dev/null
        ask x "ROLLBACK TO s; ALTER TABLE x SET TABLESPACE other; INSERT INTO x SELECT generate_series(1001, 1100); DELETE FROM x WHERE k < 50; $end" > /dev/null
        ask x "INSERT INTO x SELECT generate_series(2001, 2050)" > /dev/null
        want=$(ask x "SET nitro.enable_scan = off; SELECT count(*), sum(k) FROM x WHERE k > 0")
        got=$(ask x "SET nitro.enable_scan = on; SET enable_seqscan = off; SELECT count(*), sum(k) FROM x WHERE k > 0")
        assert_eq "after $end" "$got" "$want"
        ask x "COMMIT; ALTER TABLE x SET TABLESPACE pg_default" > /dev/null 2>&1
        [[ $(ask x "SELECT nitro_verify('x_nitro', true)") =~ ^[0-9]+$ ]] || fail "damaged after $end"
    done
    end x
    wait_until "SELECT indexes = 1 FROM nitro_memory"
    assert_eq "memory" "$(memory)" "$before"
}

for change in "${!changes[@]}"; do
    for work in "${!works[@]}"; do
        for end in $ends; do
            if [ "$change" = move ]; then random 3; else random 20; fi
            [[ -n $LONG || $REPLY == 0 ]] || continue
            run one "$change" "$work" "$end"
        done
    done
done
run full "VACUUM FULL"
run temporary

#!/usr/bin/env bash
# A process that brings up many indexes reads the WAL once for all of them, in whatever order their images
# were made.
. "$(dirname "$0")"/lib.sh
. "$(dirname "$0")"/answers.sh
. "$(dirname "$0")"/image_files.sh
. "$(dirname "$0")"/by_hand.sh
new_server "${by_hand[@]}" -c "max_wal_size = 4GB"
n=24
sql "CREATE TABLE p (k int, v int) PARTITION BY RANGE (k)"
sql "DO 'BEGIN FOR i IN 0..$((n - 1)) LOOP EXECUTE format(''CREATE TABLE p%s PARTITION OF p FOR VALUES FROM (%s) TO (%s)'', i, i * 100, i * 100 + 100); END LOOP; END'"
sql "INSERT INTO p SELECT i, i FROM generate_series(0, $((n * 100 - 1))) i; CREATE INDEX p_nitro ON p USING nitro (v); CREATE INDEX p_btree ON p (v); CREATE TABLE noise (i int, t text)"
# Some images are older than those before them, some newer; there is WAL between them.
for i in $(seq $((n / 2)) $((n - 1))) $(seq 0 $((n / 2 - 1))); do
    sql "INSERT INTO noise SELECT i, repeat('x', 200) FROM generate_series(1, 1000) i"
    backup "p${i}_v_idx"
done
change() { sql "DELETE FROM p WHERE v % 10 = 3; INSERT INTO p SELECT i, -i FROM generate_series(0, $((n * 100 - 1)), 7) i; INSERT INTO noise SELECT i, repeat('x', 200) FROM generate_series(1, 50000) i"; }
oldest=$(sql "SELECT min(image_lsn) FROM pg_stat_nitro_indexes")

read_once() { # STATEMENT: all indexes are loaded by it, and it reads no byte of the WAL twice
    local out ranges
    crash; start
    out=$("${PSQL[@]}" -p "$(port)" -v ON_ERROR_STOP=1 <<< "SET client_min_messages = debug1; $1" 2>&1) || fail "$1: $out"
    ranges=$(sed -n 's|.*nitro has read the WAL from \(.*\) to \(.*\)|(pg_lsn '"'\2' - '\1'"')|p' <<< "$out" | paste -sd+)
    [ -n "$ranges" ] || fail "no WAL was read: $out"
    assert_eq "no byte twice: $1" "$(sql "SELECT $ranges <= pg_current_wal_insert_lsn() - '$oldest'")" t
    assert_eq "loaded" "$(sql "SELECT count(*) FROM pg_stat_nitro_indexes WHERE state = '$2'")" $n
}
change
read_once "SELECT sum(nitro_verify(indexrelid)) FROM pg_index WHERE indexrelid::regclass::text LIKE 'p%v_idx'" ready
note "VACUUM"
change
read_once "VACUUM (INDEX_CLEANUP on) p" "catching up"
for i in 0 $((n / 2)) $((n - 1)); do verified "p$i"; done

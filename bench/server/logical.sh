#!/usr/bin/env bash
# bench/run.sh logical: logical replication into a table with INDEXES text indexes, nitro's or
# btrees, by turns (docs/index-node.md). ROWS: of each transfer (20000). INDEXES: 15. ROUNDS: how
# often (4).
# How long the apply worker of a subscriber takes for inserted and for updated rows, under a primary
# key and text indexes of one kind. Publisher and subscribers are databases of one server. The
# publisher writes first, then one subscriber applies: only it writes WAL.
export ROWS=${ROWS:-20000} INDEXES=${INDEXES:-15} ROUNDS=${ROUNDS:-4}
. "$(dirname "$0")/../../tests/lib.sh"
rows=${ROWS:-20000} indexes=${INDEXES:-15} rounds=${ROUNDS:-4} base=0
now() { date +%s%3N; }
at() { PGDATABASE=$1 sql "$2"; }
columns=$(seq -s, -f 'c%g text' "$indexes")
values=$(seq -s, -f "md5(i::text || '%g')" "$indexes")

subscriber() { # METHOD: a database with its table, its indexes and a subscription that stands still
    sql "CREATE DATABASE $1"
    at "$1" "CREATE EXTENSION nitro; CREATE TABLE document (id bigint PRIMARY KEY, $columns)" 2> /dev/null
    for i in $(seq "$indexes"); do at "$1" "CREATE INDEX ON document USING $1 (c$i)"; done
    sql "SELECT pg_create_logical_replication_slot('$1', 'pgoutput')" > /dev/null
    at "$1" "CREATE SUBSCRIPTION s_$1 CONNECTION 'host=$NITRO_TMP port=$(port) dbname=postgres user=postgres'
             PUBLICATION p WITH (create_slot = false, slot_name = '$1', copy_data = false, enabled = false)" 2> /dev/null
}

inserts() {
    local i
    for i in $(seq 10); do
        sql "INSERT INTO document SELECT i, $values FROM generate_series($base + 1, $base + $rows / 10) i"
        base=$((base + rows / 10))
    done
}
# Two of the columns, so no update is HOT; a tenth of the rows in a transaction.
updates() {
    local i
    for i in $(seq 10); do
        sql "UPDATE document SET c1 = md5(c1), c2 = md5(c2)
             WHERE id > $base - $rows + ($i - 1) * $rows / 10 AND id <= $base - $rows + $i * $rows / 10"
    done
}

apply() { # KIND METHOD: keeps processor time and elapsed time, us a row, and WAL, bytes a row
    local end from t pid="" used
    end=$(sql "SELECT pg_current_wal_insert_lsn()") from=$end t=$(now)
    at "$2" "ALTER SUBSCRIPTION s_$2 ENABLE"
    until [ -n "$pid" ]; do
        pid=$(sql "SELECT pid FROM pg_stat_subscription WHERE subname = 's_$2' AND pid IS NOT NULL")
    done
    wait_until "SELECT confirmed_flush_lsn >= '$end' FROM pg_replication_slots WHERE slot_name = '$2'"
    t=$(($(now) - t))
    used=$(awk -v ticks="$(getconf CLK_TCK)" '{ print ($14 + $15) * 1e6 / ticks }' "/proc/$pid/stat")
    awk -v used="$used" -v t=$t -v rows="$rows" -v wal="$(sql "SELECT pg_current_wal_insert_lsn() - '$from'")" \
        -v name="$1 $2" 'BEGIN { printf "%s %.1f %.1f %.0f\n", name, used / rows, t * 1000 / rows, wal / rows }' >> "$NITRO_TMP/figures"
    at "$2" "ALTER SUBSCRIPTION s_$2 DISABLE"
    wait_until "SELECT NOT active FROM pg_replication_slots WHERE slot_name = '$2'"
}
median() { awk -v name="$1 $2" -v c="$3" '$1 " " $2 == name { print $c }' "$NITRO_TMP/figures" | sort -g |
    awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

new_server -c "wal_level = logical" -c "nitro.backup = off" -c "autovacuum = off"
sql "CREATE TABLE document (id bigint PRIMARY KEY, $columns); CREATE PUBLICATION p FOR TABLE document"
methods=(nitro btree)
for am in "${methods[@]}"; do subscriber $am; done
for _ in $(seq "$rounds"); do
    for kind in inserts updates; do
        $kind
        for am in "${methods[@]}"; do apply $kind $am; done
    done
    methods=("${methods[1]}" "${methods[0]}")
done
at nitro "SELECT nitro_verify(indexrelid, true) FROM pg_stat_nitro_indexes" > /dev/null
echo
echo "| a row, median of $rounds | nitro | btree | btree / nitro |"
echo "| --- | --- | --- | --- |"
for kind in inserts updates; do
    for figure in "processor time of the apply worker, us:3" "elapsed, us:4" "WAL of the subscriber, bytes:5"; do
        n=$(median $kind nitro "${figure#*:}") b=$(median $kind btree "${figure#*:}")
        echo "| $kind, ${figure%:*} | $n | $b | $(awk "BEGIN { printf \"%.2f\", $b / $n }") |"
    done
done

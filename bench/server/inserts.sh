#!/usr/bin/env bash
# bench/run.sh inserts: statements of many rows: the indexes' part of their time.
# Entries are inserted one by one, or wait for a batch; btree stands beside. The memory after a load is
# measured, too. ROWS, ROUNDS (docs/benchmarks.md). PARTS: some of statements, and copy under ten indexes
# with its WAL.
export ROWS=${ROWS:-2000000} ROUNDS=${ROUNDS:-3} PARTS=${PARTS:-statements copy}
. "$(dirname "$0")/../../tests/lib.sh"
rows=${ROWS:-2000000} rounds=${ROUNDS:-3}
variants=(none one 4MB 64MB btree)
new_server -c "nitro.backup = off" -c "autovacuum = off" -c "nitro.pack = off"
psql="psql -X -q -A -t -v ON_ERROR_STOP=1 -d postgres"

# cost CASE VARIANT STATEMENT ROWS: keeps the statement's processor time (us a row) and its WAL (bytes a
# row).
cost() {
    local memory="SET work_mem = '64MB'; SET nitro.insert_memory = '64MB'" n=$4
    case $2 in one) memory="SET nitro.insert_memory = 0" ;; 4MB) memory="SET work_mem = '4MB'" ;; esac
    sql "CHECKPOINT"
    $psql > "$NITRO_TMP/ticks" << SQL
$memory;
CREATE TEMP TABLE ticks AS SELECT s[14]::bigint + s[15]::bigint AS n
    FROM (SELECT string_to_array(pg_read_file('/proc/self/stat'), ' ') AS s) x;
SELECT pg_current_wal_insert_lsn() AS lsn \gset
$3;
SELECT s[14]::bigint + s[15]::bigint - n, pg_current_wal_insert_lsn() - :'lsn'
    FROM (SELECT string_to_array(pg_read_file('/proc/self/stat'), ' ') AS s) x, ticks;
SQL
    awk -v tick="$(getconf CLK_TCK)" -v rows="$n" -v name="$1 $2" -F '|' \
        '{ printf "%s %.3f %.1f\n", name, $1 * 1e6 / tick / rows, $2 / rows }' "$NITRO_TMP/ticks" >> "$NITRO_TMP/figures"
}
best() { awk -v name="$1 $2" '$1 " " $2 == name { print $3 }' "$NITRO_TMP/figures" | sort -g | head -1; }
wal() { awk -v name="$1 $2" '$1 " " $2 == name { print $4 }' "$NITRO_TMP/figures" | sort -g | head -1; }
bytes() { sql "SELECT round(sum(bytes) / $1, 1) FROM pg_stat_nitro_indexes"; }

table() { # VARIANT INDEXED COLUMNS: an empty table and its indexes
    local am=nitro c; [ "$1" != btree ] || am=btree
    sql "DROP TABLE IF EXISTS t; CREATE TABLE t (LIKE source)" 2> /dev/null
    [ "$1" = none ] || for c in $2; do sql "CREATE INDEX ON t USING $am ($c)"; done
}

statements() { # VARIANT
    local v=$1 name columns
    for case in "bigint k" "texts a b c d e"; do
        read -r name columns <<< "$case"
        table "$v" "$columns"
        cost "empty-$name" "$v" "INSERT INTO t SELECT * FROM source" "$rows"
        case $v in none | btree) ;; *) echo "$name $v $(bytes "$rows")" >> "$NITRO_TMP/bytes" ;; esac
        if [ "$v" != none ]; then sql "REINDEX TABLE t"; fi
        cost "more-$name" "$v" "INSERT INTO t SELECT * FROM more" $((rows / 4))
        # Statements of a hundred rows.
        cost "hundred-$name" "$v" "DO 'BEGIN FOR i IN 0 .. $((rows / 800)) - 1 LOOP
            INSERT INTO t SELECT id + $rows, k # 2, l, a || 1, b || 1, c, d || 1, e || 1 FROM more
                WHERE id > i * 100 + $rows AND id <= i * 100 + 100 + $rows; END LOOP; END'" $((rows / 8))
    done
    table "$v" "k l"
    sql "INSERT INTO t SELECT * FROM source"
    if [ "$v" != none ]; then sql "REINDEX TABLE t"; fi
    cost update "$v" "UPDATE t SET e = e WHERE id % 4 = 0" $((rows / 4))
}
copy() { # VARIANT
    local v=$1
    table "$v" "id k l a b c d e c,id k,l"
    cost copy-ten "$v" "COPY t FROM '$NITRO_TMP/rows'" "$rows"
}

sql "CREATE TABLE source AS SELECT i::bigint AS id, hashint8extended(i, 7) AS k, hashint8extended(i, 9) AS l,
         md5(i::text) AS a, 'user' || hashint8extended(i, 1) % 100000000 || '@example.com' AS b,
         'city ' || hashint8extended(i, 2) % 5000 AS c, to_hex(hashint8extended(i, 3)) AS d,
         'https://www.example.org/item/' || to_hex(hashint8extended(i, 4)) AS e
     FROM generate_series(1, $rows) i;
     CREATE TABLE more AS SELECT * FROM source LIMIT 0;
     INSERT INTO more SELECT id + $rows, k # 1, l # 1, md5(a), 'x' || b, c, d || 'x', e || 'x' FROM source
         WHERE id <= $rows / 4;
     CREATE INDEX ON more (id)"
sql "COPY source TO '$NITRO_TMP/rows'"
for _ in $(seq "$rounds"); do
    for v in "${variants[@]}"; do
        for part in $PARTS; do $part "$v"; done
    done
done
echo "the indexes' part, us a row, best of $rounds; in brackets how many times btree's; nitro one by one, in 4 MB, in 64 MB; btree"
for name in empty-bigint empty-texts more-bigint more-texts hundred-bigint hundred-texts update copy-ten; do
    [ -n "$(best $name none)" ] || continue
    none=$(best $name none) btree=$(best $name btree)
    for v in one 4MB 64MB btree; do best $name $v; done |
        awk -v name=$name -v none="$none" -v btree="$btree" \
            '{ s = s sprintf(" %6.2f (%.1f)", $1 - none, (btree - none) / ($1 - none)) } END { printf "%-14s%s\n", name, s }'
done
[[ $PARTS != *copy* ]] || echo "WAL of COPY under ten indexes, bytes a row: without indexes $(wal copy-ten none), nitro $(wal copy-ten 64MB), btree $(wal copy-ten btree)"
echo "bytes of all indexes a row, loaded from empty"
[[ $PARTS != *statements* ]] || sort -u "$NITRO_TMP/bytes"

#!/usr/bin/env bash
# bench/run.sh unique: the cost of uniqueness for an insert, nitro beside btree.
# It has a throwaway server (PG_CONFIG: 18 or later). It inserts ROWS rows into an index with ROWS rows.
# docs/benchmarks.md says how to read it.
export ROWS=${ROWS:-1000000}
. "$(dirname "$0")/../../tests/lib.sh"
. "$(dirname "$0")/sample.sh"
rows=${ROWS:-1000000} repetitions=${REPETITIONS:-3}

new_server
[ "$(major)" -ge 18 ] || { note "left out: unique nitro indexes are of PostgreSQL 18 and later"; exit 0; }
[ "$(sql 'SHOW debug_assertions')" = off ] || note "THIS SERVER HAS ASSERTIONS: its times mean nothing"
keys() { # TYPE FIRST: rows in random order, each key once
    case $1 in
        int8) echo "SELECT i * 2654435761 % 4294967296 AS k, 0 AS v FROM generate_series($2, $2 + $rows - 1) i" ;;
        ascending) echo "SELECT i::int8 AS k, 0 AS v FROM generate_series($2, $2 + $rows - 1) i" ;;
        text) echo "SELECT md5(i::text) AS k, 0 AS v FROM generate_series($2, $2 + $rows - 1) i" ;;
    esac
}
for kind in ascending int8 text; do
    type=${kind/ascending/int8}
    for how in none nitro unique_nitro btree unique_btree; do
        table=t_${kind}_$how
        sql "CREATE TABLE $table (k $type, v int) WITH (autovacuum_enabled = off)"
        sql "$(keys $kind 1 | sed "s/^/INSERT INTO $table /")"
        case $how in
            none) ;;
            unique_*) sql "CREATE UNIQUE INDEX ON $table USING ${how#unique_} (k)" ;;
            *) sql "CREATE INDEX ON $table USING $how (k)" ;;
        esac
    done
    sql "CREATE TABLE source_$kind AS $(keys $kind $((rows + 1)))" 2> /dev/null
    # The rows of the round before go first, with their entries.
    measure "insert_$kind" -t "insert, $kind" -u "ns a row" -s "$(awk -v n="$rows" 'BEGIN { print 1e9 / n }')" \
        -a "none nitro unique_nitro btree unique_btree" \
        -b "DELETE FROM t_${kind}_@ USING source_$kind s WHERE t_${kind}_@.k = s.k; VACUUM t_${kind}_@; CHECKPOINT" \
        "INSERT INTO t_${kind}_@ SELECT * FROM source_$kind"
done
sort "$samples" | awk '
    { key = $1 " " $2; if (!(key in best) || $3 < best[key]) best[key] = $3; kinds[$1] }
    END {
        print "processor time of an insert without that of the table alone, ns a row, best of all"
        for (kind in kinds)
            printf "%s: nitro %d, unique %d; btree %d, unique %d\n", kind,
                (best[kind " nitro"] - best[kind " none"]) * 1e9 / '"$rows"', (best[kind " unique_nitro"] - best[kind " none"]) * 1e9 / '"$rows"',
                (best[kind " btree"] - best[kind " none"]) * 1e9 / '"$rows"', (best[kind " unique_btree"] - best[kind " none"]) * 1e9 / '"$rows"'
    }'

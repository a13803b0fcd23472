#!/usr/bin/env bash
# bench/run.sh arrays: array columns, nitro against GIN with its pending list (gin) and without
# (direct), in turns.
# ROWS rows have ELEMENTS elements each, out of DISTINCT values; INSERT_ROWS are inserted. Ranges of
# elements stand beside the plans that a table without an index on elements has (docs/arrays.md).
export ROWS=${ROWS:-1000000} ELEMENTS=${ELEMENTS:-10} DISTINCT=${DISTINCT:-100000} INSERT_ROWS=${INSERT_ROWS:-200000}
. "$(dirname "$0")/../../tests/lib.sh"
set -euo pipefail
rows=$ROWS insert_rows=$INSERT_ROWS repetitions=${REPETITIONS:-3}
. "$(dirname "$0")/sample.sh"
mark=METHOD
update_rows=$((insert_rows / 4))

step "$("$NITRO_BIN/postgres" --version); $rows rows, $ELEMENTS of $DISTINCT elements each, $insert_rows rows to insert"
new_server
[ "$(sql 'SHOW debug_assertions')" = off ] || note "THIS SERVER HAS ASSERTIONS: its times mean nothing"
step "making the tables"
sql "CREATE FUNCTION noise(i bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT hashint8extended(i, 7) & 9223372036854775807';
     CREATE FUNCTION elements(i bigint) RETURNS int[] LANGUAGE sql IMMUTABLE AS
         'SELECT array_agg((noise(i * 100 + j) % $DISTINCT)::int) FROM generate_series(1, $ELEMENTS) j';
     CREATE TABLE source AS SELECT i AS id, elements(i) AS a FROM generate_series(1, $rows) i;
     CREATE TABLE more AS SELECT i AS id, elements(-i) AS a FROM generate_series(1, $insert_rows) i;
     CREATE TABLE one AS SELECT (noise(i) % $DISTINCT)::int AS e FROM generate_series(1, 1000) i;
     CREATE TABLE three AS SELECT a[1:3] AS e FROM source WHERE id % ($rows / 1000) = 0;
     CREATE TABLE ten AS SELECT array_agg((noise(i * 10 + j) % $DISTINCT)::int) AS e FROM generate_series(1, 200) i, generate_series(1, 10) j GROUP BY i;
     CREATE TABLE side AS SELECT DISTINCT id, e FROM source, unnest(a) e; CREATE INDEX side_e ON side (e, id);"
for t in none nitro gin direct; do
    sql "CREATE TABLE $t AS TABLE source; ALTER TABLE $t ADD PRIMARY KEY (id); CREATE TABLE grow_$t (LIKE source); CREATE TABLE change_$t AS TABLE more"
done
sql "DROP TABLE source; VACUUM (FREEZE, ANALYZE)"
index() { # METHOD: what follows the table in its CREATE INDEX
    case $1 in nitro) echo "USING nitro (a)" ;; gin) echo "USING gin (a)" ;; direct) echo "USING gin (a) WITH (fastupdate = off)" ;; esac
}

step "processor time of the backend (elapsed) of each sample:"
million() { awk -v n="$1" 'BEGIN { print 1e6 / n }'; }
for m in nitro gin direct; do
    measure create -t "CREATE INDEX" -u s -s 1 -a $m -b "DROP INDEX IF EXISTS METHOD_a" "CREATE INDEX METHOD_a ON METHOD $(index $m)"
    for t in grow change; do sql "CREATE INDEX ${t}_${m}_a ON ${t}_$m $(index $m)"; done
done
sql "VACUUM ANALYZE"
measure insert -t "INSERT" -u us/row -s "$(million "$insert_rows")" -a "none nitro gin direct" \
    -b "TRUNCATE grow_METHOD; CHECKPOINT" "INSERT INTO grow_METHOD TABLE more"
change="UPDATE change_METHOD SET a = a[2:] || (id % $DISTINCT)::int WHERE id <= $update_rows"
measure update -t "UPDATE of the array" -u us/row -s "$(million "$update_rows")" -a "none nitro gin direct" \
    -b "VACUUM (INDEX_CLEANUP ON) change_METHOD; CHECKPOINT" "$change"
measure vacuum -t "VACUUM after it" -u us/row -s "$(million "$update_rows")" -a "none nitro gin direct" \
    -b "VACUUM (INDEX_CLEANUP ON) change_METHOD; CHECKPOINT; $change" "VACUUM (INDEX_CLEANUP ON) change_METHOD"

# GIN's pending list is merged before it is read.
sql "VACUUM ANALYZE"
plan=(-c "SET enable_seqscan = off" -c "SET enable_material = off" -c "SET enable_memoize = off")
all="nitro gin direct"
query() { echo "SELECT sum(n) FROM (SELECT e FROM $1 OFFSET 0) p, LATERAL (SELECT count(*) AS n FROM METHOD t WHERE $2) s"; }
measure one -w -t "one element, t.a @> ARRAY[e]" -u us -s 1e3 -a "$all" "$(query one 't.a @> ARRAY[e]')"
measure any -w -t "one element, e = ANY (t.a)" -u us -s 1e3 -a nitro "$(query one 'e = ANY (t.a)')"
measure three -w -t "three elements, @>" -u us -s 1e3 -a "$all" "$(query three 't.a @> e')"
measure ten -w -t "ten elements, &&" -u us -s 5e3 -a "$all" "$(query ten 't.a && e')"

# A range of elements that a thousandth of the rows matches.
width=$(awk -v d="$DISTINCT" -v n="$ELEMENTS" 'BEGIN { w = int(d / n / 1000); print (w > 0 ? w : 1) }')
measure range -w -t "range of elements, index" -u us -s 1e6 -a nitro \
    "SELECT count(*) FROM nitro WHERE a &<@ int4range(777, 777 + $width)"
measure joined -w -t "range of elements, side table with btree" -u us -s 1e6 -a none \
    "SELECT count(*) FROM METHOD t WHERE id IN (SELECT id FROM side WHERE e >= 777 AND e < 777 + $width)"
plan=(-c "SET enable_indexscan = off" -c "SET enable_bitmapscan = off")
measure scan -w -t "range of elements, sequential scan, operator" -u us -s 1e6 -r 2 -a nitro \
    "SELECT count(*) FROM nitro WHERE a &<@ int4range(777, 777 + $width)"
measure unnest -w -t "range of elements, sequential scan, unnest" -u us -s 1e6 -r 2 -a none \
    "SELECT count(*) FROM METHOD WHERE EXISTS (SELECT FROM unnest(a) e WHERE e >= 777 AND e < 777 + $width)"

step "table"
echo
sql "SELECT format(E'%s\t%s\t%s', t, round(coalesce((SELECT sum(bytes) FROM pg_stat_nitro_indexes WHERE indexrelname = t || '_a'), pg_relation_size(t || '_a')) / $rows, 1), '')
     FROM unnest('{nitro,gin,direct}'::text[]) t UNION ALL
     SELECT format(E'%s\t%s\t', 'side', round((pg_total_relation_size('side')::numeric) / $rows, 1))" > "$NITRO_TMP/sizes"
while IFS=$'\t' read -r method bytes _; do
    [ "$method" = side ] && method="side table"
    record size "size of the index" bytes/row "$method" - size "$bytes" -
done < "$NITRO_TMP/sizes"
wal insert INSERT "$insert_rows"
wal update "UPDATE of the array" "$update_rows"
wal vacuum "VACUUM after it" "$update_rows"
awk -F '\t' -v rows="$insert_rows" -v updates="$update_rows" '
    function best(m, a, what,    k) { k = m SUBSEP a SUBSEP what; return (k in least) ? least[k] : "" }
    FILENAME ~ /titles$/ { if (!($1 in title)) { order[++n] = $1; title[$1] = $2; scale[$1] = $3 } next }
    FILENAME ~ /samples$/ {
        split($0, f, " ")
        for (i = 3; i <= 5; i++) { k = f[1] SUBSEP f[2] SUBSEP i; if (!(k in least) || f[i] < least[k]) least[k] = f[i] }
        next
    }
    { size[$1] = $2 }
    function row(name, m, what, scale, less,    c, v, line) {
        line = sprintf("%-48s", name)
        for (c = 1; c <= 4; c++) {
            v = best(m, method[c], what)
            line = line (v == "" || less && c == 4 ? sprintf("%12s", "-") : sprintf("%12.2f", (v - (less ? best(m, "none", what) : 0)) * scale))
        }
        print line
    }
    END {
        split("nitro gin direct none", method, " ")
        print "best sample, processor time of the backend; direct: GIN with fastupdate = off"
        printf "%-48s%12s%12s%12s%12s\n", "", "nitro", "gin", "direct", "no index"
        for (i = 1; i <= n; i++) {
            m = order[i]; writes = m == "insert" || m == "update" || m == "vacuum"
            row(title[m] (writes ? " *" : ""), m, 3, scale[m], writes)
            if (writes) row("  WAL of the index, bytes/row", m, 5, 1 / (m == "insert" ? rows : updates), 1)
        }
        printf "%-48s%12.1f%12.1f%12.1f%12s\n", "size, bytes/row (nitro: memory)", size["nitro"], size["gin"], size["direct"], "-"
        printf "%-48s%12s%12s%12s%12.1f\n", "size of the side table, bytes/row", "-", "-", "-", size["side"]
        print "* less the same statement without index"
    }' "$titles" "$samples" "$NITRO_TMP/sizes"

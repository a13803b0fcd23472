#!/usr/bin/env bash
# bench/server/measure.sh: the measures in the server. run.sh starts it. In every measure the access methods
# take turns in one session. A sample is the backend's time for the statement, by getrusage.
. "$(dirname "$0")/../../tests/lib.sh"
set -euo pipefail
rows=${ROWS:-10000000} insert_rows=${INSERT_ROWS:-2000000} repetitions=${REPETITIONS:-3}
update_rows=$((insert_rows / 4))
. "$(dirname "$0")/sample.sh"
# show STATEMENT: prints the plan, once for each access method. The right index must be in it.
show() {
    local am text
    for am in nitro btree; do
        text=$(PGOPTIONS='' "${PSQL[@]}" -p "$(port)" "${plan[@]}" -c "EXPLAIN (COSTS OFF) ${1//@/$am}")
        sed 's/^/        | /' <<< "$text"
        grep -q "using points_$am" <<< "$text" || note "the index points_$am is not used"
    done
}
plan=(-c "SELECT")
join=(-c "SET enable_hashjoin = off" -c "SET enable_mergejoin = off" -c "SET enable_material = off"
      -c "SET enable_memoize = off" -c "SET enable_bitmapscan = off")
# Rows that the scan returns. index_only.sh counts rows in the index.
ordered=(-c "SET enable_seqscan = off" -c "SET enable_sort = off" -c "SET enable_bitmapscan = off" -c "SET nitro.enable_aggregate = off")

step "$("$NITRO_BIN/postgres" --version); $rows rows, $insert_rows rows to insert (ROWS, INSERT_ROWS)"
new_server
[ "$(sql 'SHOW debug_assertions')" = off ] || note "THIS SERVER HAS ASSERTIONS: its times mean nothing"
step "making the tables"
"${PSQL[@]}" -p "$(port)" -v ON_ERROR_STOP=1 -v rows="$rows" -v insert_rows="$insert_rows" -v update_rows="$update_rows" \
    -f "$(dirname "$0")/setup.sql"
# No page is all-visible before the commits of its rows are on disk.
sql "CHECKPOINT"; sql "VACUUM (FREEZE, ANALYZE) points, probe, words, numbers, changes_none, changes_nitro, changes_btree"

step "processor time of the backend (elapsed) of each sample:"
million() { awk -v n="$1" 'BEGIN { print 1e6 / n }'; }
drop="DROP INDEX IF EXISTS points_@"
create="CREATE INDEX points_@ ON points USING @ (@)"
measure create -t "CREATE INDEX, bigint" -u s -s 1 -f 1.5 -b "$drop" "$create"
measure parallel -t "CREATE INDEX, bigint, parallel workers allowed" -u s -s 1 -e \
    -b "SET max_parallel_maintenance_workers = 2; $drop" "$create"
measure text -t "CREATE INDEX, text" -u s -s 1 \
    -b "DROP INDEX IF EXISTS text_@" "CREATE INDEX text_@ ON words USING @ (a)"
sql "DROP INDEX text_nitro, text_btree"
sql "VACUUM ANALYZE points"

plan=("${join[@]}")
query="SELECT count(*) FROM probe p JOIN points t ON t.@ = p.k"
show "$query"
measure lookup -w -t "index-only lookup, nested loop" -u us -s 1 -f 1.7 "$query"
query="SELECT count(other) FROM (SELECT k FROM probe LIMIT 200000) p,
       LATERAL (SELECT CASE '@' WHEN 'nitro' THEN t.btree ELSE t.nitro END AS other FROM points t WHERE t.@ = p.k) s"
measure heap -w -t "lookup with heap fetch, nested loop" -u us -s 5 "${query//$'\n'/ }"
query="SELECT sum(k) FROM (SELECT k AS low FROM probe LIMIT 20000) p, LATERAL (SELECT t.@ AS k FROM points t WHERE t.@ >= low ORDER BY t.@ LIMIT 100) s"
measure page -w -t "seek and 100 rows, index only" -u us -s 50 "$query"

plan=("${ordered[@]}")
low=$((16777216 / 3)) high=$((16777216 / 3 + 16777216 / 10))
measure range -w -t "range of a tenth, index only" -u ns/row -s "$(million "$rows")e4" \
    "SELECT count(*) FROM points WHERE @ >= $low AND @ < $high"
query="SELECT count(*) FROM (SELECT @ FROM points ORDER BY @ OFFSET 0) s"
show "$query"
measure forward -w -t "whole table in order, index only" -u ns/row -s "$(million "$rows")e3" "$query"
measure backward -w -t "backward" -u ns/row -s "$(million "$rows")e3" \
    "SELECT count(*) FROM (SELECT @ FROM points ORDER BY @ DESC OFFSET 0) s"
plan=(-c "SELECT")

for am in nitro btree; do
    for column in a b c d e; do sql "CREATE INDEX words_${am}_$column ON words_$am USING $am ($column)"; done
    sql "CREATE INDEX numbers_${am}_k ON numbers_$am USING $am (k)"
    sql "CREATE INDEX changes_${am}_id ON changes_$am USING $am (id)"
    sql "CREATE INDEX changes_${am}_v ON changes_$am USING $am (v)"
done
change="UPDATE changes_@ SET v = (v * 1103515245 + 12345) & 1073741823"
measure insert -t "INSERT into 5 text indexes" -u us/row -s "$(million "$insert_rows")" -r "${INSERT_REPETITIONS:-1}" -f 2.5 \
    -a "none nitro btree" -b "TRUNCATE words_@" "INSERT INTO words_@ TABLE words"
measure one -t "INSERT into a bigint index" -u us/row -s "$(million "$insert_rows")" -r "${INSERT_REPETITIONS:-1}" \
    -a "none nitro btree" -b "TRUNCATE numbers_@" "INSERT INTO numbers_@ TABLE numbers"
measure update -t "UPDATE, not HOT, 2 bigint indexes" -u us/row -s "$(million "$update_rows")" -a "none nitro btree" \
    -b "VACUUM (INDEX_CLEANUP ON) changes_@" "$change"
measure vacuum -t "VACUUM after it" -u us/row -s "$(million "$update_rows")" -a "none nitro btree" \
    -b "VACUUM (INDEX_CLEANUP ON) changes_@; $change" "VACUUM (INDEX_CLEANUP ON) changes_@"

sizes() { # TITLE ENTRIES PATTERN: bytes per entry of all indexes whose names match
    sql "SELECT format(E'%s\t%s\t%s', '$1',
            round((SELECT sum(bytes) FROM pg_stat_nitro_indexes WHERE indexrelname LIKE replace('$3', '@', 'nitro')) / $2, 1),
            round((SELECT sum(pg_relation_size(oid)) FROM pg_class WHERE relkind = 'i' AND relname LIKE replace('$3', '@', 'btree')) / $2, 1))"
}
sizes "bigint, built" "$rows.0" 'points_@' > "$NITRO_TMP/sizes"
sizes "text, 5 indexes, inserted" "$insert_rows.0 / 5" 'words_@_%' >> "$NITRO_TMP/sizes"
while IFS=$'\t' read -r title nitro btree; do
    record "size of $title" "size, $title" "bytes an entry" nitro - size "$nitro" -
    record "size of $title" "size, $title" "bytes an entry" btree - size "$btree" -
done < "$NITRO_TMP/sizes"
wal insert "INSERT into 5 text indexes" "$insert_rows"
wal one "INSERT into a bigint index" "$insert_rows"
wal update "UPDATE, 2 bigint indexes" "$update_rows"

step "table"
echo
awk -F '\t' -v rows="$insert_rows" -v updates="$update_rows" -f "$(dirname "$0")/table.awk" "$titles" "$samples" "$NITRO_TMP/sizes"

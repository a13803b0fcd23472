#!/usr/bin/env bash
# bench/run.sh vacuum: VACUUM after a tenth of ROWS rows was deleted in one range, by btree and by
# nitro (docs/benchmarks.md).
export ROWS=${ROWS:-10000000} repetitions=${REPETITIONS:-3}
. "$(dirname "$0")/../../tests/lib.sh"
. "$(dirname "$0")/sample.sh"
new_server -c "nitro.backup = off"
step "$("$NITRO_BIN/postgres" --version); $ROWS rows (ROWS)"
[ "$(sql 'SHOW debug_assertions')" = off ] || note "THIS SERVER HAS ASSERTIONS: its times mean nothing"
for am in nitro btree; do
    sql "CREATE TABLE one_$am AS SELECT i::int8 AS id FROM generate_series(1, $ROWS) i; CREATE TABLE five_$am AS TABLE one_$am"
    sql "CREATE INDEX ON one_$am USING $am (id)"
    for _ in 1 2 3 4 5; do sql "CREATE INDEX ON five_$am USING $am (id)"; done
    sql "VACUUM ANALYZE one_$am, five_$am"
done
scale=$(awk -v n="$ROWS" 'BEGIN { print 10e6 / n }')
# The oldest rows go and as many new rows come, so every round has the same work.
for table in one five; do
    measure $table -w -t "VACUUM after DELETE of a tenth in one range, table and $table" -u "us a deleted row" -s "$scale" \
        -b "INSERT INTO ${table}_@ SELECT max + i FROM (SELECT max(id) FROM ${table}_@) m, generate_series(1, $ROWS / 10) i;
            DELETE FROM ${table}_@ WHERE id < (SELECT min(id) + $ROWS / 10 FROM ${table}_@)" \
        "VACUUM (INDEX_CLEANUP ON) ${table}_@"
done
# The table's part is the same with one index and with five. Without an index VACUUM takes another path
# through the table.
title="VACUUM after DELETE of a tenth in one range, the pass over an index"
printf 'pass\t%s\t%s\n' "$title, us a deleted row" "$scale" >> "$titles"
awk '$1 == "one" { if (!($2 in least) || $3 < least[$2]) { least[$2] = $3 } if (!($2 in soonest) || $4 < soonest[$2]) { soonest[$2] = $4 } }
     $1 == "five" { print "pass", $2, ($3 - least[$2]) / 4, ($4 - soonest[$2]) / 4 }' "$samples" > "$NITRO_TMP/pass"
cat "$NITRO_TMP/pass" >> "$samples"
while read -r _ am cpu elapsed; do
    record pass "$title" "us a deleted row" "$am" - cpu "$(awk "BEGIN { print $cpu * $scale }")" "$(awk "BEGIN { print $elapsed * $scale }")"
done < "$NITRO_TMP/pass"
relations "us a deleted row" btree nitro

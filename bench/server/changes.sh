#!/usr/bin/env bash
# bench/run.sh changes: which part of an image is written after which changes.
# It prints a table in Markdown, with the bytes of all files of the index. ROWS: 2000000
# (docs/benchmarks.md).
export ROWS=${ROWS:-2000000}
. "$(dirname "$0")/../../tests/lib.sh"
. "$(dirname "$0")/sample.sh"
rows=${ROWS:-2000000}
new_server -c "checkpoint_timeout = 1h" -c "nitro.backup_rate = 0" -c "autovacuum = off"
[ "$(sql 'SHOW debug_assertions')" = off ] || note "THIS SERVER HAS ASSERTIONS: its times mean nothing"
step "$rows rows (ROWS)"
sql "CREATE TABLE t (id bigint NOT NULL, r bigint NOT NULL, s text NOT NULL) WITH (fillfactor = 90)"
add() { # ROWS
    sql "INSERT INTO t SELECT i, hashint8extended(i, 7), 'user' || (hashint8extended(i, 1) & 134217727) || '@mail' || i % 50 || '.example.com'
         FROM generate_series((SELECT coalesce(max(id), 0) + 1 FROM t), (SELECT coalesce(max(id), 0) + $1 FROM t)) i"
}
add "$rows"
indexes=(t_id t_r t_s)
for column in id r s; do sql "CREATE INDEX t_$column ON t USING nitro ($column)"; done
sql "VACUUM (FREEZE, ANALYZE) t"
# The images that CREATE INDEX asks for.
wait_until "SELECT count(*) = 3 FROM pg_stat_nitro_indexes WHERE image_time IS NOT NULL"
wait_until "SELECT count(*) = 0 FROM pg_stat_progress_nitro"

declare -A whole
# newest INDEX: the folder of its newest image
newest() { grep -lx "name $1" "$(data)"/pg_nitro/*/*/*/manifest | xargs ls -t | head -n 1 | xargs dirname; }
# image TITLE: makes an image of each index, and prints a line of the table
image() {
    local index written needed files ms line="| $1"
    for index in "${indexes[@]}"; do
        ms=$(date +%s%3N); sql "SELECT nitro_backup('$index')" > /dev/null; ms=$(($(date +%s%3N) - ms))
        read -r written needed < <(awk '/^shard/ { w += $3 } /^carried/ { c += $6 } END { print w, w + c }' "$(newest "$index")/manifest")
        : "${whole[$index]:=$written}"
        files=$(find "$(dirname "$(newest "$index")")" -type f -printf '%s\n' | awk '{ s += $1 } END { print s }')
        line+=$(awk -v w="$written" -v n="$needed" -v f="$files" -v ms="$ms" 'BEGIN { printf " | %.2f MB, %.1f %% | %.2f | %d", w / 1e6, 100 * w / n, f / n, ms }')
        record "changes_$index" "image of $index, $1" "%" nitro - size "$(awk "BEGIN { print 100 * $written / $needed }")" -
    done
    echo "$line |" >> "$NITRO_TMP/table"
    step "$1"
}
image "first image"
for _ in 1 2 3; do add $((rows / 100)); image "1 % inserted, ids ascending"; done
sql "UPDATE t SET s = s || '!' WHERE id = $((rows / 2))"; image "one row updated"
sql "DELETE FROM t WHERE id BETWEEN $((rows / 3)) AND $((rows / 3 + rows / 100))"
sql "VACUUM (INDEX_CLEANUP on) t"; image "1 % deleted, ids in a row, VACUUM"
sql "UPDATE t SET r = r + 1 WHERE hashint8extended(id, 3) % 100 = 0"; image "1 % updated, here and there"
for _ in $(seq 3); do add $((rows / 100)); image "1 % inserted, ids ascending"; done
for index in "${indexes[@]}"; do sql "SELECT nitro_verify_images('$index')" > /dev/null; done
crash; start
wait_until "SELECT count(*) = ${#indexes[@]} FROM pg_stat_nitro_indexes WHERE state = 'ready'"
for index in "${indexes[@]}"; do sql "SELECT nitro_verify('$index', true)" > /dev/null; done

exec 2>&1
echo
"$NITRO_BIN/postgres" --version
echo "$rows rows. For each index: bytes written and their part of the image, files of the index beside the image, milliseconds"
echo
echo "| change | bigint, ascending | files | ms | bigint, random | files | ms | text | files | ms |"
echo "|---|---|---|---|---|---|---|---|---|---|"
cat "$NITRO_TMP/table"

#!/usr/bin/env bash
# bench/server/papers.sh: workloads of the papers over connections, in elapsed time. run.sh starts it. A
# paper's figures on its own machines stand beside ours. Each access method has a database. fsync = off: the
# papers' figures wait for no disk either, but most of them wait for a network.
. "$(dirname "$0")/../../tests/lib.sh"
. "$(dirname "$0")/sample.sh"
rows=${ROWS:-1000000} seconds=${SECONDS_EACH:-3} repetitions=${REPETITIONS:-3}
methods=(nitro btree)
new_server -c "nitro.backup_rate = 0"
step "$("$NITRO_BIN/postgres" --version); $rows rows (ROWS), $seconds s each (SECONDS_EACH), best of $repetitions (REPETITIONS)"
[ "$(sql 'SHOW debug_assertions')" = off ] || note "THIS SERVER HAS ASSERTIONS: its times mean nothing"
for am in "${methods[@]}"; do
    sql "CREATE DATABASE $am"; PGDATABASE=$am sql "CREATE EXTENSION nitro"
done
in_each() { for am in "${methods[@]}"; do PGDATABASE=$am sql "${1//@/$am}" > /dev/null; done; }
now() { date +%s%3N; }

# --- results -----------------------------------------------------------------------------------------
# sample NAME TITLE UNIT AT METHOD VALUE: bench/all.sh takes less as better, so a rate becomes a time there.
sample() {
    local unit=$3 value=$6
    if [[ $unit = */s ]]; then unit=us value=$(awk "BEGIN { printf \"%.3f\", 1e6 / $value }"); fi
    record "$1" "$2" "$unit" "$5" "$4" elapsed "$value" -
    printf '%s\t' "$@" >> "$NITRO_TMP/figures"; echo >> "$NITRO_TMP/figures"
}
# paper NAME TITLE UNIT AT VALUE WHERE: the paper's figure.
paper() { sample "$1" "$2" "$3" "$4" paper "$5"; echo "$1	$4	$6" >> "$NITRO_TMP/where"; }
# The best sample of each measure, a line for each measure.
table() {
    printf '\n| %s | at | unit | nitro | btree | paper | where |\n| --- | --- | --- | --- | --- | --- | --- |\n' "$1"
    awk -F'\t' -v which="$2" '
        FNR == NR { where[$1, $2] = $3; next }
        $1 !~ which { next }
        { k = $1 FS $4; if (!(k in seen)) { seen[k] = 1; order[++n] = k; title[k] = $2; unit[k] = $3; at[k] = $4; key[k] = $1 SUBSEP $4 }
          rate = $3 == "/s"
          if (!((k, $5) in best) || rate && $6 > best[k, $5] || !rate && $6 < best[k, $5]) best[k, $5] = $6 + 0 }
        END { for (i = 1; i <= n; i++) { k = order[i]
              printf "| %s | %s | %s | %s | %s | %s | %s |\n", title[k], at[k], unit[k],
                  figure("nitro"), figure("btree"), figure("paper"), where[key[k]] } }
        function figure(method) { return (k, method) in best ? sprintf(best[k, method] < 1000 ? "%.4g" : "%.0f", best[k, method]) : "" }' "$NITRO_TMP/where" "$NITRO_TMP/figures"
}
: > "$NITRO_TMP/where"; : > "$NITRO_TMP/figures"

# bench OPTIONS...: runs pgbench in the database $am, with the script on standard input.
bench() {
    cat > "$NITRO_TMP/script"
    pgbench -n -M prepared -p "$(port)" -j 1 -T "$seconds" -f "$NITRO_TMP/script" "$@" $am > "$NITRO_TMP/said" 2>&1 || { cat "$NITRO_TMP/said" >&2; fail "pgbench"; }
    cat "$NITRO_TMP/said"
}
per_second() { awk -v times="${1:-1}" '/^tps = / { printf "%.2f", $3 * times }'; }
# rates NAME TITLE AT CLIENTS TIMES SCRIPT: transactions a second, times TIMES operations in each. @ is the
# access method.
rates() {
    local am i
    for i in $(seq "$repetitions"); do for am in "${methods[@]}"; do
        sample "$1" "$2" "/s" "$3" $am "$(bench -c "$4" <<< "${6//@/$am}" | per_second "$5")"
    done; done
    step "$2, $3: $(tail -n 2 "$NITRO_TMP/figures" | cut -f 5,6 | xargs)"
}
# latencies NAME TITLE AT "PERCENTILE..." SCRIPT: latencies of one client, in microseconds.
latencies() {
    local am p
    for am in "${methods[@]}"; do
        rm -f "$NITRO_TMP"/log.*
        bench -c 1 -l --log-prefix="$NITRO_TMP/log" <<< "$5" > "$NITRO_TMP/out"
        cut -d' ' -f3 "$NITRO_TMP"/log.* | sort -n > "$NITRO_TMP/sorted"
        for p in $4; do
            sample "$1-p$p" "$2, p$p" us "$3" $am "$(awk -v p="$p" -v n="$(wc -l < "$NITRO_TMP/sorted")" 'NR == int((n - 1) * p / 100) + 1' "$NITRO_TMP/sorted")"
        done
    done
    step "$2, $3: p${4%% *} $(grep -P "^$1-p${4%% *}\t.*\t$3\t(nitro|btree)" "$NITRO_TMP/figures" | cut -f 5,6 | xargs)"
}

# --- Nitro, section 10: indexes of Couchbase -----------------------------------------------------------
# documents INDEXES: inserts, updates and deletes the rows of a table with INDEXES indexes on strings of 25
# bytes.
documents() {
    local n=$1 am i kind t since fields values changed
    fields=$(seq -s ', ' -f 'f%.0f text COLLATE "C"' "$n") values=$(seq -s ', ' -f "left(md5(i || '.%.0f'), 25)" "$n")
    changed=$(for i in $(seq "$n"); do printf ', f%s = left(md5(f%s), 25)' "$i" "$i"; done)
    in_each "SET client_min_messages = warning; DROP TABLE IF EXISTS docs; CREATE TABLE docs (id text COLLATE \"C\", $fields)"
    for i in $(seq "$n"); do in_each "CREATE INDEX ON docs USING @ (f$i)"; done
    for am in "${methods[@]}"; do
        for kind in create update delete; do
            case $kind in
                create) t="INSERT INTO docs SELECT 'doc-' || i, $values FROM generate_series(1, $documents) i" ;;
                update) t="UPDATE docs SET ${changed#, }" ;;
                delete) t="DELETE FROM docs; VACUUM docs" ;;
            esac
            since=$(now); PGDATABASE=$am sql "$t"
            sample "gsi-$kind" "documents, by indexes: $kind, entries of indexes" "/s" "$n" $am \
                "$(awk "BEGIN { printf \"%.0f\", $documents * $n * 1000 / ($(now) - $since) }")"
            # The next measure must not pay for this experiment.
            [ $kind != create ] || PGDATABASE=$am sql "VACUUM ANALYZE docs"
        done
    done
    step "documents with $n indexes: $(grep -P "^gsi-.*\t$n\t(nitro|btree)" "$NITRO_TMP/figures" | cut -f 1,5,6 | xargs)"
}
gsi() {
    local here documents=$((rows / 5))
    documents 15
    here="Nitro, table 1: 15 indexes, 33M documents, 32 virtual cores"
    paper gsi-create "documents, by indexes: create, entries of indexes" "/s" 15 1658031 "$here"
    paper gsi-update "documents, by indexes: update, entries of indexes" "/s" 15 822680 "$here"
    paper gsi-delete "documents, by indexes: delete, entries of indexes" "/s" 15 1578316 "$here"
    documents=$rows
    documents 1
    here="Nitro, section 10, experiment 1: all that four client machines could send"
    paper gsi-update "documents, by indexes: update, entries of indexes" "/s" 1 252000 "$here"
    paper gsi-delete "documents, by indexes: delete, entries of indexes" "/s" 1 290000 "$here"
    # The second test of experiment 1: look-ups beside updates.
    in_each "INSERT INTO docs SELECT 'doc-' || i, left(md5(i || '.1'), 25) FROM generate_series(1, $rows) i; VACUUM ANALYZE docs; CREATE INDEX ON docs USING @ (id)"
    local am pid i
    for i in $(seq "$repetitions"); do for am in "${methods[@]}"; do
        echo "\\set i random(1, $rows)
UPDATE docs SET f1 = left(md5(f1), 25) WHERE id = 'doc-' || :i;" > "$NITRO_TMP/updates"
        pgbench -n -M prepared -p "$(port)" -c 1 -T "$((seconds + 1))" -f "$NITRO_TMP/updates" $am > "$NITRO_TMP/updated" 2>&1 & pid=$!
        sample gsi-lookup "look-ups of one client beside updates of another" "/s" - $am "$(bench -c 1 <<< "\\set i random(1, $rows)
SELECT id FROM docs WHERE f1 = left(md5(:i || '.1'), 25);" | per_second)"
        wait $pid
        sample gsi-lookup-updates "the updates beside them" "/s" - $am "$(per_second < "$NITRO_TMP/updated")"
    done; done
    paper gsi-lookup-updates "the updates beside them" "/s" - 65000 "Nitro, section 10, experiment 1; of its scans a plot without figures"
    # Experiment 3: backup and recovery of an index.
    am=nitro
    local since from
    PGDATABASE=nitro
    for i in $(seq "$repetitions"); do
        sql "UPDATE docs SET f1 = left(md5(f1), 25) WHERE id = 'doc-1'"
        since=$(now); sql "SELECT nitro_backup('docs_f1_idx')" > /dev/null
        sample gsi-backup "backup of an index, entries" "/s" - nitro "$(awk "BEGIN { printf \"%.0f\", $rows * 1000 / ($(now) - $since) }")"
    done
    from=$(wc -l < "$NITRO_TMP/main.log"); restart
    wait_until "SELECT count(*) > 0 FROM pg_stat_nitro_indexes WHERE indexrelname = 'docs_f1_idx' AND state = 'ready'"
    sample gsi-recovery "recovery of an index, entries" "/s" - nitro "$(tail -n "+$((from + 1))" "$NITRO_TMP/main.log" |
        sed -nE 's/.*"docs_f1_idx" loaded from its image: ([0-9]+) entries in ([0-9]+) ms.*/\1 \2/p' | awk '{ printf "%.0f", $1 * 1000 / ($2 > 0 ? $2 : 1) }')"
    PGDATABASE=postgres
    in_each "DROP TABLE docs"
}

# --- SLIK: objects with a primary key and secondary keys of 30 bytes, and 100 bytes more --------------------
pk="left(md5(:i || 'p'), 30)" sk="left(md5(:i || 's'), 30)"
objects() { # TABLE ROWS SECONDARY
    local keys values
    keys=$(seq -s ', ' -f 's%.0f text COLLATE "C"' "$3") values=$(for _ in $(seq "$3"); do printf "left(md5(i || 's'), 30), "; done)
    in_each "CREATE TABLE $1 (pk text COLLATE \"C\", $keys, value text) WITH (fillfactor = 90);
        INSERT INTO $1 SELECT left(md5(i || 'p'), 30), $values repeat(md5(i::text), 3) || 'four' FROM generate_series(1, $2) i;
        CREATE INDEX ON $1 USING @ (pk); CREATE INDEX ON $1 USING @ (s1); VACUUM ANALYZE $1"
}
slik() {
    local n here
    for n in 1000 $((rows / 10)) "$rows"; do
        objects "slik$n" "$n" 1
        latencies slik4-lookup "SLIK figure 4: look-up by the secondary key" "$n" "50 10 90" "\\set i random(1, $n)
SELECT value FROM slik$n WHERE s1 = $sk;"
        # The new key has other neighbours in the index, so the index is written.
        latencies slik4-overwrite "SLIK figure 4: overwrite" "$n" "50 10 90" "\\set i random(1, $n)
UPDATE slik$n SET s1 = left(md5(s1), 30), value = repeat(md5(:i || 'v'), 3) || 'four' WHERE pk = $pk;"
    done
    here="SLIK, section 4.1.1: by InfiniBand, a write is replicated three times"
    paper slik4-lookup-p50 "SLIK figure 4: look-up by the secondary key, p50" us 1000 11 "$here"
    paper slik4-lookup-p50 "SLIK figure 4: look-up by the secondary key, p50" us "$rows" 13.1 "$here"
    paper slik4-overwrite-p50 "SLIK figure 4: overwrite, p50" us 1000 31.4 "$here"
    paper slik4-overwrite-p50 "SLIK figure 4: overwrite, p50" us "$rows" 37 "$here"
    in_each "DROP TABLE slik1000, slik$((rows / 10)), slik$rows"

    objects five "$((rows / 5))" 10
    local last=1 set="s1 = left(md5(s1), 30)" i
    for n in 1 2 5 10; do
        for i in $(seq $((last + 1)) "$n"); do
            in_each "CREATE INDEX ON five USING @ (s$i)"; set+=", s$i = left(md5(s$i), 30)"
        done
        last=$n
        latencies slik5 "SLIK figure 5: overwrite, by secondary indexes" "$n" 50 "\\set i random(1, $((rows / 5)))
UPDATE five SET $set WHERE pk = $pk;"
    done
    here="SLIK, section 4.1.2: each index on a server of its own"
    paper slik5-p50 "SLIK figure 5: overwrite, by secondary indexes, p50" us 1 32.4 "$here"
    paper slik5-p50 "SLIK figure 5: overwrite, by secondary indexes, p50" us 10 49.8 "$here"
    in_each "DROP TABLE five"

    objects tail "$rows" 1
    local tail="50 99 99.9 99.99"
    latencies slik10-lookup "SLIK figure 10: look-up" - "$tail" "\\set i random(1, $rows)
SELECT value FROM tail WHERE s1 = $sk;"
    for n in 1 10 100 1000 10000; do
        rates slik11 "SLIK figure 11: objects of ranges of so many" "$n" 1 "$n" "\\set i random(1, $rows)
SELECT value FROM tail WHERE s1 >= $sk ORDER BY s1 LIMIT $n;"
    done
    paper slik11 "SLIK figure 11: objects of ranges of so many" "/s" 10000 1700000 "SLIK, section 4.3.2: 2M at the peak, then 1.7M"
    latencies slik10-write "SLIK figure 10: overwrite" - "$tail" "\\set i random(1, $rows)
UPDATE tail SET s1 = left(md5(s1), 30) WHERE pk = $pk;"
    here="SLIK, section 4.3.1: of 100M operations"
    paper slik10-lookup-p50 "SLIK figure 10: look-up, p50" us - 15 "$here"
    paper slik10-write-p50 "SLIK figure 10: overwrite, p50" us - 36 "$here"
    in_each "DROP TABLE tail"
}

# --- YCSB A and E, by Couchbase ---------------------------------------------------------------------------
# Keys are drawn as in YCSB: a few are in most requests, and they lie anywhere.
zipfian="\\set z random_zipfian(1, $rows, 1.001)
\\set i permute(:z, $rows) + 1"
key="'user' || hashint8extended(:i, 7)"
ycsb() {
    local n here
    in_each "CREATE TABLE users (key text COLLATE \"C\", field text) WITH (fillfactor = 90);
        INSERT INTO users SELECT 'user' || hashint8extended(i, 7), repeat(md5(i::text), 3) FROM generate_series(1, $rows) i;
        CREATE INDEX ON users USING @ (key); VACUUM ANALYZE users"
    for n in 1 4; do
        rates ycsb-a "YCSB A: half of it look-ups, half updates" "$n" "$n" 2 "$zipfian
SELECT field FROM users WHERE key = $key;
$zipfian
UPDATE users SET field = md5(field) WHERE key = $key;"
        # One of twenty requests inserts.
        rates ycsb-e "YCSB E: short ranges, and inserts" "$n" "$n" 20 "$(for n in $(seq 19); do echo "$zipfian
\\set n random(1, 100)
SELECT key FROM users WHERE key >= $key ORDER BY key LIMIT :n;"; done)
\\set i random($rows + 1, 1000000000)
INSERT INTO users VALUES ($key, md5(:i::text));"
    done
    here="Couchbase, figure 15: 10M documents, 4 nodes, 128 threads of 4 clients"
    paper ycsb-a "YCSB A: half of it look-ups, half updates" "/s" 4 178000 "$here"
    paper ycsb-e "YCSB E: short ranges, and inserts" "/s" 4 5400 "${here/15/16}"
    in_each "DROP TABLE users"
}

# --- ForestDB: four readers and a writer ------------------------------------------------------------------
forest() {
    local bytes n here am i pid title document
    for bytes in 48 1024; do
        # Pages are full: the new version of a row is on another page, and gets an index entry.
        n=$((rows / 5)) title="ForestDB: four readers beside a writer, keys of $bytes bytes"
        document="rpad(md5(:i::text), $bytes, 'key')"
        in_each "CREATE TABLE forest (key text COLLATE \"C\", document text);
            ALTER TABLE forest ALTER key SET STORAGE plain;
            INSERT INTO forest SELECT ${document//:i/i}, repeat(md5(i::text), 32) FROM generate_series(1, $n) i;
            CREATE INDEX ON forest USING @ (key); VACUUM ANALYZE forest"
        for i in $(seq "$repetitions"); do for am in "${methods[@]}"; do
            echo "\\set i random(1, $n)
UPDATE forest SET document = repeat(md5(:i::text), 32) WHERE key = $document;" > "$NITRO_TMP/writes"
            pgbench -n -M prepared -p "$(port)" -c 1 -T "$((seconds + 1))" -f "$NITRO_TMP/writes" $am > "$NITRO_TMP/written" 2>&1 & pid=$!
            sample "forest$bytes-reads" "$title: reads" "/s" - $am "$(bench -c 4 <<< "\\set i random(1, $n)
SELECT document FROM forest WHERE key = $document;" | per_second)"
            wait $pid
            sample "forest$bytes-writes" "$title: writes" "/s" - $am "$(per_second < "$NITRO_TMP/written")"
        done; done
        step "$title: $(tail -n 4 "$NITRO_TMP/figures" | cut -f 1,5,6 | xargs)"
        in_each "DROP TABLE forest"
    done
}

gsi; table "Couchbase's indexes (Nitro, section 10), elapsed" '^gsi'
slik; table "SLIK, elapsed" '^slik'
ycsb; table "YCSB, operations a second, elapsed" '^ycsb'
forest; table "ForestDB (no figures in its paper's text: 100M documents on disks), elapsed" '^forest'

#!/usr/bin/env bash
# bench/run.sh starts: how long a server with many small nitro indexes takes to start after a kill -9.
# Servers with btrees stand beside (docs/benchmarks.md). INDEXES: how many (2000). ROUNDS: how often (3).
# The measure is the time until the first query is accepted. All indexes have changed, and have new images,
# before each kill. Three servers take turns: btrees, nitro, and nitro with recovery_init_sync_method =
# syncfs.
export INDEXES=${INDEXES:-2000} ROUNDS=${ROUNDS:-3}
. "$(dirname "$0")/../../tests/lib.sh"
. "$(dirname "$0")/sample.sh"
indexes=${INDEXES:-2000} rounds=${ROUNDS:-3}
conf=(-c "fsync = on" -c "checkpoint_timeout = 1h" -c "nitro.backup_rate = 0" -c "shared_buffers = 512MB")
now() { date +%s%3N; }
q() { "$NITRO_BIN/psql" -p "$(port)" -XAtqc "$1" 2> /dev/null; }

server() { # NODE METHOD SYNC: ten indexes a table
    node=$1; new_server "${conf[@]}" -c "recovery_init_sync_method = $3"
    sql "SELECT format('CREATE TABLE m%s (a1 int, a2 int, a3 int, a4 int, a5 int, a6 int, a7 int, a8 int, a9 int, a10 int)', i),
                format('INSERT INTO m%s SELECT i, i, i, i, i, i, i, i, i, i FROM generate_series(1, 100) i', i)
         FROM generate_series(1, $((indexes / 10))) i" | tr '|' '\n' | sed 's/$/;/' > "$NITRO_TMP/tables"
    sql "SELECT format('CREATE INDEX ON m%s USING $2 (a%s)', i, c) FROM generate_series(1, $((indexes / 10))) i, generate_series(1, 10) c" |
        sed 's/$/;/' >> "$NITRO_TMP/tables"
    "${PSQL[@]}" -p "$(port)" -q -f "$NITRO_TMP/tables" > /dev/null
}

round() { # NODE: prints the milliseconds
    local begun
    node=$1
    sql "SELECT format('UPDATE %s SET a1 = a1 + 1, a2 = a2 + 1 WHERE a3 = 5', relname) FROM pg_class WHERE relname ~ '^m[0-9]+\$'" |
        sed 's/$/;/' > "$NITRO_TMP/changes"
    "${PSQL[@]}" -p "$(port)" -q -f "$NITRO_TMP/changes" > /dev/null
    # Checkpoints make images as well.
    sql "CHECKPOINT; SELECT nitro_backup()" > /dev/null
    crash
    begun=$(now)
    "$NITRO_BIN/pg_ctl" -D "$(data)" -l "$NITRO_TMP/$node.log" -W start > /dev/null
    until q "SELECT 1" > /dev/null; do sleep 0.005; done
    echo $(($(now) - begun))
}

server btree btree fsync; server nitro nitro fsync; server syncfs nitro syncfs
echo "| indexes | btree, ms | nitro | nitro, syncfs |"
echo "| --- | --- | --- | --- |"
for _ in $(seq "$rounds"); do echo "| $indexes | $(round btree) | $(round nitro) | $(round syncfs) |"; done
for node in btree nitro syncfs; do stop immediate; done

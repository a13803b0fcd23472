#!/usr/bin/env bash
# bench/run.sh partitions: the price of the first planning on PARTITIONS partitions after a crash,
# beside planning when all indexes are ready.
# REPETITIONS: of each; the median counts (docs/benchmarks.md).
export PARTITIONS=${PARTITIONS:-1000}
. "$(dirname "$0")/../../tests/lib.sh"
. "$(dirname "$0")/../../tests/answers.sh"
. "$(dirname "$0")/sample.sh"
n=${PARTITIONS:-1000} repetitions=${REPETITIONS:-5}
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
# Milliseconds of planning in a session of its own, which opens all partitions and indexes first.
planning() { sql "${1:-SELECT}; EXPLAIN (SUMMARY) SELECT * FROM p WHERE v = 5" | sed -n 's/^Planning Time: \(.*\) ms/\1/p'; }

new_server -c "checkpoint_timeout = 1h" -c "max_locks_per_transaction = 256"
[ "$(sql 'SHOW debug_assertions')" = off ] || note "THIS SERVER HAS ASSERTIONS: its times mean nothing"
step "$n partitions (PARTITIONS)"
sql "CREATE TABLE p (k int, v int) PARTITION BY RANGE (k);
     SELECT format('CREATE TABLE p%s PARTITION OF p FOR VALUES FROM (%s) TO (%s)', i, i * 100, i * 100 + 100) FROM generate_series(0, $((n - 1))) i \gexec
     INSERT INTO p SELECT i, i FROM generate_series(0, $((n * 100 - 1))) i;
     CREATE INDEX p_nitro ON p USING nitro (v); CREATE INDEX p_btree ON p (v); ANALYZE p; CHECKPOINT" > /dev/null
wait_until "SELECT count(image_lsn) = $n AND min(image_lsn) >= (SELECT redo_lsn FROM pg_control_checkpoint()) FROM pg_stat_nitro_indexes"
ready="SELECT count(*) = $n FROM pg_stat_nitro_indexes WHERE state = 'ready'"
for i in $(seq "$repetitions"); do
    step "repetition $i of $repetitions"
    # Some of the changes since the images are only in the WAL.
    sql "UPDATE p SET v = v + 1 WHERE k % 100 = 7"
    crash; start; planning > "$NITRO_TMP/crash.$i"
    wait_until "$ready"
    planning > "$NITRO_TMP/ready.$i"
    crash; start; planning "SET nitro.enable_scan = off" > "$NITRO_TMP/control.$i"
    wait_until "$ready"
done
all() { cat "$NITRO_TMP/$1".*; }
for when in ready crash; do
    for ms in $(all $when); do record planning "planning on $n partitions, all ready; after a crash" ms "$(sed 's/crash/nitro/' <<< $when)" - elapsed "$ms" -; done
done
echo "| planning on $n partitions, ms | median | all |"
echo "| --- | --- | --- |"
for w in "ready:all indexes are ready" "crash:the first one after a crash" "control:the same with nitro.enable_scan = off"; do
    echo "| ${w#*:} | $(all "${w%%:*}" | median) | $(all "${w%%:*}" | sort -n | xargs) |"
done
awk "BEGIN { printf \"after a crash / ready: %.2f\n\", $(all crash | median) / $(all ready | median) }"

#!/usr/bin/env bash
# A query on many partitions after a crash: it waits for no index that a builder loads, and sends for one builder.
. "$(dirname "$0")"/lib.sh
. "$(dirname "$0")"/answers.sh
. "$(dirname "$0")"/image_files.sh
. "$(dirname "$0")"/by_hand.sh
new_server -c "max_worker_processes = 12" -c "nitro.max_builders = 1"
gates
n=24
sql "CREATE TABLE first (i int); INSERT INTO first SELECT generate_series(1, 100); CREATE INDEX first_nitro ON first USING nitro (gate(i, 50))"
imaged first_nitro
sql "CREATE TABLE p (k int, v int) PARTITION BY RANGE (k)"
sql "DO 'BEGIN FOR i IN 0..$((n - 1)) LOOP EXECUTE format(''CREATE TABLE p%s PARTITION OF p FOR VALUES FROM (%s) TO (%s)'', i, i * 100, i * 100 + 100); END LOOP; END'"
sql "INSERT INTO p SELECT i, i FROM generate_series(0, $((n * 100 - 1))) i; CREATE INDEX p_nitro ON p USING nitro (v); CREATE INDEX p_btree ON p (v)"
# The builder loads the oldest image first, and stops at a row that has changed since. The gate is shut by what a crash
# does not end.
wait_until "SELECT count(image_lsn) = $n + 1 FROM pg_stat_nitro_indexes"
sql "UPDATE first SET i = i"
sql "BEGIN; SELECT pg_advisory_xact_lock(1); PREPARE TRANSACTION 'gate'" > /dev/null
ready_ones() { sql "SELECT count(*) FROM pg_stat_nitro_indexes WHERE state = 'ready'"; }
crash; start; at_gate

note "a query on many partitions waits for none"
sql "EXPLAIN SELECT * FROM p WHERE v = 5" > /dev/null
assert_eq "loaded by it" "$(ready_ones)" 0
note "one on eight waits for all of them"
sql "EXPLAIN SELECT * FROM p WHERE v = 5 AND k < 800" > /dev/null
assert_eq "loaded by it" "$(ready_ones)" 8

note "it sends for one builder"
setting nitro.max_builders 8; setting log_min_messages debug1
crash; start; at_gate
from=$(log_end)
sql "EXPLAIN SELECT * FROM p WHERE v = 5" > /dev/null
wait_until "SELECT count(*) = $n FROM pg_stat_nitro_indexes WHERE state = 'ready'"
assert_eq "builders" "$(logged 'starting background worker process "nitro builder"' "$from")" 1
sql "ROLLBACK PREPARED 'gate'"
any_plan=1 same_answers p "SELECT * FROM p WHERE v BETWEEN 5 AND 500"
verified first; verified p0

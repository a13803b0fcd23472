#!/usr/bin/env bash
# nitro_advise on tables whose use is known: which indexes gain, in which order, and why the others do not.
. "$(dirname "$0")/lib.sh"
new_server -c "nitro.max_memory = 16MB" -c "nitro.backup = off" -c "jit = off" -c "shared_buffers = 64MB" -c "maintenance_work_mem = 64MB"

for t in often more searched quiet read_only hot ours; do
    sql "CREATE TABLE $t (k int, v int) WITH (fillfactor = 50, autovacuum_enabled = off); INSERT INTO $t SELECT i, i FROM generate_series(1, 2000) i; CREATE INDEX ${t}_k ON $t (k)"
done
sql "CREATE TABLE large (k text) WITH (autovacuum_enabled = off); INSERT INTO large SELECT rpad(md5(i::text), 400, md5((-i)::text)) FROM generate_series(1, 60000) i; CREATE INDEX large_k ON large (k)"
sql "CREATE TABLE parted (k int) PARTITION BY RANGE (k); CREATE TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (100); CREATE INDEX ON parted (k)"
sql "CREATE TABLE keyed (k int PRIMARY KEY); CREATE TABLE single (k int); CREATE UNIQUE INDEX single_k ON single (k)"
sql "SELECT nitro_convert('ours_k'); ANALYZE" > /dev/null
# Each connection has reported its counts when it is gone. They are reset then, and only the use below
# counts.
flushed() { wait_until "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'client backend'"; }
flushed; sql "SELECT pg_stat_reset()" > /dev/null; flushed
searches() { sql "SET enable_seqscan = off; SET enable_bitmapscan = off; DO 'BEGIN FOR i IN 1..$2 LOOP PERFORM v FROM $1 WHERE k = i; END LOOP; END'"; }
sql "INSERT INTO often SELECT i, i FROM generate_series(2001, 3000) i"
sql "UPDATE more SET k = k + 1; INSERT INTO ours SELECT i, i FROM generate_series(2001, 3000) i; INSERT INTO keyed SELECT generate_series(1, 1000); INSERT INTO single SELECT generate_series(1, 1000)"
sql "INSERT INTO parted SELECT generate_series(1, 99)"
sql "INSERT INTO searched SELECT i, i FROM generate_series(2001, 2300) i"; searches searched 4000
searches read_only 300
sql "UPDATE hot SET v = v + 1 WHERE k % 2 = 0; INSERT INTO hot SELECT i, i FROM generate_series(2001, 2010) i"
sql "INSERT INTO large SELECT md5(i::text) FROM generate_series(1, 10000) i"
sql "UPDATE quiet SET v = v + 1 WHERE k <= 10; INSERT INTO quiet SELECT i, i FROM generate_series(2001, 2020) i"
flushed

advice=$(sql "SELECT index, gains, split_part(reason, ':', 1) FROM nitro_advise()")
single=$([ "$(major)" -lt 18 ] || printf '\n%s' "single_k|t|It is written often")
assert_eq "advice" "$advice" "more_k|t|It is written often
often_k|t|It is written often$single
large_k|f|It would take more than what is free of nitro.max_memory
searched_k|f|It is searched much more often than written
quiet_k|f|It has few writes for its size
hot_k|f|It has few writes for its size
read_only_k|f|Nothing writes to it"
assert_eq "numbers" "$(sql "SELECT writes, scans, file_bytes = pg_relation_size('often_k'), nitro_bytes BETWEEN 1 AND 200000 FROM nitro_advise() WHERE index = 'often_k'::regclass")" "1000|0|t|t"
[[ $(sql "SELECT reason FROM nitro_advise() WHERE index = 'hot_k'::regclass") =~ ': 10 writes, 0 scans since '.*'; 2000 entries; '[0-9]+' % of its blocks were found in shared buffers; 0 % of updates are not HOT' ]] ||
    fail "$(sql "SELECT reason FROM nitro_advise() WHERE index = 'hot_k'::regclass")"

note "with memory for it, and without it being in memory"
setting nitro.max_memory 64MB
assert_eq "large" "$(sql "SELECT gains, writes FROM nitro_advise() WHERE index = 'large_k'::regclass")" "t|10000"
settings "shared_buffers = 1MB"; restart
flushed; sql "SELECT pg_stat_reset()" > /dev/null; flushed
sql "INSERT INTO large SELECT md5((-i)::text) FROM generate_series(1, 10000) i"; flushed
assert_eq "large, in a small cache" "$(sql "SELECT gains, split_part(reason, ':', 1) FROM nitro_advise() WHERE index = 'large_k'::regclass")" "f|It is not kept in memory"

#!/usr/bin/env bash
# bench/demo/replicas.sh: a primary without secondary indexes, and two index nodes. The nodes share the
# indexes of a partitioned table. Writers go on while one node is killed, the other node takes its indexes,
# and the first node comes back. Every answer of a node is compared with the table alone, in the same
# snapshot. PG_CONFIG chooses the PostgreSQL, ROWS the size. KEEP=1 leaves the servers running.
. "$(dirname "$0")/lib.sh"
rows=${ROWS:-400000} wrong=0
declare -A port=([primary]=5432 [a]=5433 [b]=5434)
on() { local server=$1; shift; PGPORT=${port[$server]} sql "$*"; }

step "a primary: $("$bin/postgres" --version)"
initialize primary
cat >> "$work/primary/postgresql.conf" <<E
shared_buffers = 256MB
max_wal_size = 4GB
wal_keep_size = 1GB
hot_standby_feedback = on
nitro.host = 'primary'
E
start primary
on primary "CREATE EXTENSION nitro;
    CREATE TABLE event (id int, customer text, at timestamptz, amount numeric(12,2)) PARTITION BY HASH (id)"
for i in 0 1 2 3; do
    on primary "CREATE TABLE event_$i PARTITION OF event FOR VALUES WITH (MODULUS 4, REMAINDER $i)"
done
on primary "INSERT INTO event
    SELECT i, 'customer-' || hashint4(i) % 5000, timestamptz '2026-01-01' + i * interval '1 s', i % 10000 / 100.0
    FROM generate_series(1, $rows) i;
    CREATE INDEX event_id ON event (id)"

step "two index nodes, a and b, by pg_basebackup"
for node in a b; do
    run "$bin/pg_basebackup" -D "$work/$node" -R -c fast
    cat >> "$work/$node/postgresql.conf" <<E
port = ${port[$node]}
nitro.host = '$node'
E
    start $node
done

step "each node gets the indexes of two partitions"
for i in 0 1 2 3; do
    host=$([ $i -lt 2 ] && echo a || echo b)
    statement="CREATE INDEX event_${i}_customer ON event_$i USING nitro (customer) WITH (maintenance = standby, hosts = '$host')"
    echo "  $statement"; on primary "$statement"
done

states() {
    local server
    for server in "$@"; do
        on "$server" "SELECT format('  %-8s %s', '$server', string_agg(relname || ' ' || state ||
                CASE WHEN bytes > 0 THEN ' ' || pg_size_pretty(bytes) ELSE '' END, ', ' ORDER BY relname))
            FROM (SELECT relname, coalesce(state, 'elsewhere') AS state, bytes FROM pg_stat_nitro_indexes) s"
    done
}
await() { # NODE PARTITION...: until it has the indexes of these partitions
    local node=$1 i; shift
    for i in "$@"; do
        # The first query after the first CREATE INDEX of a database starts the follower.
        on "$node" "SELECT FROM event_$i WHERE customer = ''"
        for _ in $(seq 600); do
            [ "$(on "$node" "SELECT state FROM pg_stat_nitro_indexes WHERE indexrelname = 'event_${i}_customer'")" != following ] || continue 2
            sleep 0.1
        done
        echo "  NODE $node HAS NO INDEX OF PARTITION $i"; exit 1
    done
}
await a 0 1; await b 2 3; states primary a b

# NODE PARTITION...: compares the rows that the primary has written so far, by the node's index and by its
# table alone.
compare() {
    local node=$1 lsn i query by_index by_table; shift
    lsn=$(on primary "SELECT pg_current_wal_insert_lsn()")
    on "$node" "CALL nitro_wait_for('$lsn', '60 s')"
    for i in "$@"; do
        query="SELECT count(*) || ' rows, ' || sum(amount) FROM event_$i WHERE customer = 'customer-1234'"
        { read -r by_index; read -r by_table; } < <(on "$node" "BEGIN ISOLATION LEVEL REPEATABLE READ;
            SET LOCAL enable_seqscan = off; $query;
            SET LOCAL nitro.enable_scan = off; SET LOCAL enable_seqscan = on; $query")
        if [ "$by_index" = "$by_table" ]; then echo "  node $node, partition $i: customer-1234 has $by_index"
        else echo "  DIFFERENT ANSWERS of $node, partition $i: $by_index, by the table $by_table"; wrong=1; fi
        on "$node" "SET enable_seqscan = off; EXPLAIN (COSTS OFF) $query" | grep -q "event_${i}_customer" ||
            { echo "  THE INDEX WAS NOT USED"; wrong=1; }
    done
}

step "writers on the primary: 4 clients until the end"
cat > "$work/write.sql" <<E
\\set id random(1, $rows)
\\set customer random(0, 4999)
UPDATE event SET customer = 'customer-' || :customer WHERE id = :id;
E
run pgbench -n -c 4 -T 3600 -f "$work/write.sql" > "$work/pgbench.log" 2>&1 &
writers=$!
sleep 3; compare a 0 1; compare b 2 3

step "SIGKILL to every process of node b; its partitions move to node a"
kill_all b
for i in 2 3; do on primary "ALTER INDEX event_${i}_customer SET (hosts = 'a, b')"; done
await a 0 1 2 3; states a; compare a 0 1 2 3

step "node b starts again and follows; it gets its partitions back"
start b; await b 2 3
for i in 2 3; do on primary "ALTER INDEX event_${i}_customer SET (hosts = 'b')"; done
compare a 0 1; compare b 2 3; states primary a b
kill "$writers" 2> /dev/null || true; wait "$writers" 2> /dev/null || true
[ $wrong = 0 ] || { echo; echo "something above was wrong"; exit 1; }
step "done"

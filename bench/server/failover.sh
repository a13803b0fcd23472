#!/usr/bin/env bash
# bench/run.sh failover: how long a server with nitro indexes is without them after a promotion and
# after a kill -9, beside a server with btrees.
# Each row of its table is one server below two writers and four readers. Seconds begin with
# pg_promote, or with the start of the server. A REINDEX of all six indexes below the same clients
# follows.
# ROWS: of the table. EVENTS: promotion, kill. IMAGES: fresh, third (a third of the rows has changed
# since), none. FOLLOW: on where standbys keep their indexes up to date (off). docs/benchmarks.md
# has the method.
export ROWS=${ROWS:-1000000} EVENTS=${EVENTS:-promotion kill} IMAGES=${IMAGES:-fresh third none} FOLLOW=${FOLLOW:-off}
. "$(dirname "$0")/../../tests/lib.sh"
. "$(dirname "$0")/sample.sh"
rows=${ROWS:-1000000} repetitions=1
conf=(-c "fsync = on" -c "checkpoint_timeout = 1h" -c "max_worker_processes = 16" -c "hot_standby_feedback = on"
    -c "maintenance_work_mem = 64MB" -c "max_parallel_workers_per_gather = 2" -c "max_parallel_maintenance_workers = 2"
    -c "nitro.max_loading_wait = 200ms" -c "nitro.follow = ${FOLLOW:-off}" -c "shared_buffers = 2GB")
now() { date +%s%3N; }
pgbench() { "$NITRO_BIN/pgbench" -p "$(port)" -n "$@"; }
q() { "$NITRO_BIN/psql" -p "$(port)" -XAtqc "$1" 2> /dev/null; }

table() { # METHOD: six indexes of that method, the array's of GIN where there are btrees
    local am=$1 tags="USING nitro (tags)"
    [ "$am" = nitro ] || tags="USING gin (tags)"
    sql "CREATE TABLE t (id bigint, n bigint, s text COLLATE \"C\", at timestamptz, u uuid, tags int[], pad text DEFAULT repeat('x', 40));
         INSERT INTO t SELECT i, i::bigint * 7919 % $rows, md5(i::text), '2026-01-01'::timestamptz + i * interval '1 s', md5(i::text || 'u')::uuid, ARRAY[i % 1000, i % 77, i % 13] FROM generate_series(1, $rows) i;
         CREATE UNIQUE INDEX t_id ON t USING $am (id); CREATE INDEX t_n ON t USING $am (n); CREATE INDEX t_s ON t USING $am (s);
         CREATE INDEX t_at ON t USING $am (at); CREATE INDEX t_u ON t USING $am (u); CREATE INDEX t_tags ON t $tags;
         VACUUM ANALYZE t; CHECKPOINT"
}

third() { sql "UPDATE t SET n = n + 1 WHERE id % 3 = 0; CHECKPOINT"; }

# Images are as fresh as the last checkpoint, and not made anew before the event.
images() {
    [ "$1" = nitro ] || return 0
    wait_until "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'nitro builder')"
    sql "SELECT nitro_backup()" > /dev/null
    setting nitro.backup off
}

clients() { # of one server, until it stops; errors of clients that are too early do not matter
    echo "\\set id random(1, $rows)
SELECT n FROM t WHERE id = :id;
SELECT id FROM t WHERE s = md5(:id::text);" > "$NITRO_TMP/read.sql"
    echo "\\set id random(1, $rows)
UPDATE t SET at = now() WHERE id = :id;
INSERT INTO t (id, n, s, at, u, tags) SELECT nextval('next'), :id, md5(random()::text), now(), gen_random_uuid(), ARRAY[1, 2];" > "$NITRO_TMP/write.sql"
    for _ in 1 2 3 4; do until [ -e "$NITRO_TMP/over" ]; do pgbench -c 1 -T 1000 -f "$NITRO_TMP/read.sql" > /dev/null 2>&1 || sleep 0.02; done & done
    for _ in 1 2; do until [ -e "$NITRO_TMP/over" ]; do pgbench -c 1 -T 1000 -f "$NITRO_TMP/write.sql" > /dev/null 2>&1 || sleep 0.02; done & done
}

since() { echo "$(($(now) - begun))"; }
first() { # FILE STATEMENT: when it succeeds first
    (until q "$2" > /dev/null; do sleep 0.01; done; since > "$NITRO_TMP/$1") &
}

round() { # METHOD EVENT IMAGES
    local am=$1 event=$2 images=$3 begun i
    step "$rows rows, $am, $event, images: $images"
    rm -f "$NITRO_TMP"/{over,write,answer,ready}
    node=$am; new_server "${conf[@]}"
    table "$am"; sql "CREATE SEQUENCE next START $((rows + 1))"
    images "$am"
    if [ "$event" = promotion ]; then
        node=$am; "$NITRO_BIN/pg_basebackup" -p "$(port)" -D "$NITRO_TMP/standby.data" -R -C -S standby -c fast
        [ "$images" != third ] || third
        node=standby; echo 6000 > "$(data)/nitro.port"; settings "port = 6000"
        [ "$images" != none ] || rm -rf "$(data)/pg_nitro"
        start
        node=$am; lsn=$(sql "SELECT pg_current_wal_flush_lsn()"); node=standby
        wait_until "SELECT pg_last_wal_replay_lsn() >= '$lsn'"  
        sql "SELECT count(*) FROM t" > /dev/null
        node=$am; stop immediate; node=standby
        begun=$(now); q "SELECT pg_promote(false)" > /dev/null
    else
        [ "$images" != third ] || third
        crash
        [ "$images" != none ] || rm -rf "$(data)/pg_nitro"
        begun=$(now); "$NITRO_BIN/pg_ctl" -D "$(data)" -l "$NITRO_TMP/$node.log" -W start > /dev/null
    fi
    clients
    first write "UPDATE t SET at = now() WHERE ctid = '(0,1)'; INSERT INTO t (id, n, s, at, u, tags) VALUES (-1, 1, 'a', now(), gen_random_uuid(), ARRAY[1])"
    first answer "SET default_transaction_read_only = on; SELECT 1 / (NOT pg_is_in_recovery())::int; SELECT n FROM t WHERE s = md5('77')"
    if [ "$am" = nitro ]; then
        until [ "$(q "SELECT count(*) FROM pg_stat_nitro_indexes WHERE state = 'ready'")" = 6 ]; do sleep 0.02; done
        since > "$NITRO_TMP/ready"
    else echo - > "$NITRO_TMP/ready"; fi
    until [ -s "$NITRO_TMP/write" ] && [ -s "$NITRO_TMP/answer" ]; do sleep 0.05; done
    begun=$(now)
    [ "$am" != nitro ] || for i in t_id t_n t_s t_at t_u t_tags; do until q "REINDEX INDEX $i"; do sleep 0.01; done; done
    local reindex; reindex=$(since)
    touch "$NITRO_TMP/over"; stop immediate; wait
    printf '| %s | %s | %s | %s | %s | %s | %s | %s |\n' "$rows" "$event" "$images" "$am" "$(cat "$NITRO_TMP/write")" "$(cat "$NITRO_TMP/answer")" "$(cat "$NITRO_TMP/ready")" "$([ "$am" = nitro ] && echo "$reindex" || echo -)" | tee -a "$NITRO_TMP/table" >&2
    rm -rf "$NITRO_TMP"/*.data
}

echo "| rows | event | images | indexes | first write, ms | first answer | all six ready | REINDEX of six |" > "$NITRO_TMP/table"
echo "| --- | --- | --- | --- | --- | --- | --- | --- |" >> "$NITRO_TMP/table"
for event in ${EVENTS:-promotion kill}; do
    round btree "$event" -
    for images in ${IMAGES:-fresh third none}; do round nitro "$event" "$images"; done
done
cat "$NITRO_TMP/table"

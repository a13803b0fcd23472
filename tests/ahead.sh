#!/usr/bin/env bash
# Scans that ask for rows ahead, compared with a constant sum. Hardly any page stays in a buffer, rows move,
# pages are pruned and vacuumed, and the table shrinks.
. "$(dirname "$0")/lib.sh"
new_server -c "shared_buffers = 1MB" -c "max_parallel_workers_per_gather = 0" -c "effective_io_concurrency = 4" -c "autovacuum = off" \
    -c "deadlock_timeout = 10ms"
seconds=8; [ -z "$LONG" ] || seconds=60
sql "CREATE TABLE t (k int, v int, pad text) WITH (fillfactor = 60);
     INSERT INTO t SELECT g, 1000, repeat('x', 200) FROM generate_series(1, 60000) g ORDER BY hashint4(g);
     CREATE INDEX t_k ON t USING nitro (k); VACUUM ANALYZE t"
[ "$(sql "SELECT relpages > 1100 FROM pg_class WHERE relname = 't'")" = t ] || fail "the table is too small to be asked for ahead"
# Reads all rows in both directions, and the rows that a join with a LIMIT sees twice.
cat > "$NITRO_TMP/read.sql" << 'S'
SET enable_seqscan = off; SET enable_bitmapscan = off;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT sum(v) = 60000000 AND count(*) FILTER (WHERE length(pad) < 200) = 0 AS ok FROM (SELECT * FROM t WHERE k > 0 ORDER BY k OFFSET 0) s \gset
\if :ok
\else
SELECT 'wrong sum' / 0;
\endif
SELECT (SELECT array_agg((k, v, pad)::text ORDER BY k) FROM (SELECT * FROM t WHERE k BETWEEN 1 AND 3000 ORDER BY k DESC OFFSET 0) s)
     = (SELECT array_agg((x.k, x.v, x.pad)::text ORDER BY x.k) FROM generate_series(1, 3000, 10) g, LATERAL (SELECT * FROM t WHERE k >= g ORDER BY k LIMIT 10) x) AS ok \gset
\if :ok
\else
SELECT 'not the same rows' / 0;
\endif
COMMIT;
S
cat > "$NITRO_TMP/write.sql" << 'S'
\set a random(1, 60000)
\set b random(1, 60000)
\set n random(1, 300)
BEGIN;
UPDATE t SET v = v - 1 WHERE k = least(:a, :b);
UPDATE t SET v = v + 1 WHERE k = greatest(:a, :b);
UPDATE t SET pad = repeat('y', 200 + :n) WHERE k = :a;
COMMIT;
S
# The end of the table comes and goes.
cat > "$NITRO_TMP/shrink.sql" << 'S'
INSERT INTO t SELECT -g, 0, repeat('z', 500) FROM generate_series(1, 3000) g;
DELETE FROM t WHERE k < 0;
VACUUM t;
S
bench() { # CLIENTS SCRIPT
    "$NITRO_BIN/pgbench" -p "$(port)" -n -c "$1" -T "$seconds" -f "$NITRO_TMP/$2.sql" > "$NITRO_TMP/$2.log" 2>&1 || { cat "$NITRO_TMP/$2.log"; return 1; }
    note "$2: $(grep 'transactions actually processed' "$NITRO_TMP/$2.log")"
    ! grep -q 'processed: 0$' "$NITRO_TMP/$2.log"
}
jobs=
for what in "2 read" "2 write" "1 shrink"; do bench $what & jobs+=" $!"; done
for job in $jobs; do wait "$job" || failed=1; done
[ -z "${failed:-}" ] || fail "a client failed"
sql "SELECT nitro_verify('t_k', true)" > /dev/null

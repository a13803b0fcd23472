#!/usr/bin/env bash
# Readers beside writers, VACUUM and REINDEX CONCURRENTLY: within one snapshot every kind of scan and every
# walk of a scroll cursor gives the heap's answer.
. "$(dirname "$0")/lib.sh"
seconds=${LONG:+300}; seconds=${seconds:-25}
note "seed: NITRO_SEED=$NITRO_SEED, $seconds seconds"
new_server -c "nitro.backup = off" -c "deadlock_timeout = 100ms"
sql "CREATE TABLE t (id serial PRIMARY KEY, a int, b int, w text COLLATE \"C\", pad text) WITH (fillfactor = 80, parallel_workers = 2);
     SELECT setseed($NITRO_SEED / 1000000.0);
     INSERT INTO t (a, b, w, pad) SELECT random() * 1000, random() * 9, md5(random()::text), 'p' FROM generate_series(1, 3000);
     CREATE INDEX t_a ON t USING nitro (a);
     CREATE INDEX t_ba ON t USING nitro (b, a DESC) INCLUDE (id);
     CREATE INDEX t_w ON t USING nitro (w) WHERE b < 7;
     ANALYZE t" > /dev/null
"${PSQL[@]}" -p "$(port)" -v ON_ERROR_STOP=1 -f "$(dirname "$0")/../sql/same.inc" > /dev/null

cat > "$NITRO_TMP/writer.sql" <<'E2'
\set id random(1, :top)
\set a random(0, 1000)
\set b random(0, 9)
\set what random(1, 10)
\if :what <= 4
INSERT INTO t (id, a, b, w, pad) VALUES (:id, :a, :b, md5(:a::text), 'i') ON CONFLICT (id) DO UPDATE SET a = t.a + 1, pad = 'c';
\elif :what = 5
UPDATE t SET pad = pad || 'u' WHERE id = :id AND length(pad) < 100;
\elif :what = 6
UPDATE t SET a = :a, b = :b, w = md5(:b::text) || w WHERE id = :id AND length(w) < 100;
\elif :what <= 8
DELETE FROM t WHERE id = :id;
\elif :what = 9
BEGIN;
INSERT INTO t (id, a, b, w) SELECT 1000000 + nextval('t_id_seq'), :a, :b, 'rolled back' FROM generate_series(1, 30);
SAVEPOINT s;
UPDATE t SET a = :a WHERE id = :id;
ROLLBACK TO s;
ROLLBACK;
\else
DELETE FROM t WHERE id IN (SELECT id FROM t WHERE a BETWEEN :a AND :a + 3 ORDER BY id FOR UPDATE SKIP LOCKED);
\endif
E2
"$NITRO_BIN/pgbench" -n -p "$(port)" -f "$NITRO_TMP/writer.sql" -D top=6000 --random-seed="$NITRO_SEED" -c 3 -T "$seconds" \
    > "$NITRO_TMP/pgbench.log" 2>&1 &
writers=$!

deadline=$((SECONDS + seconds))
maintain() {
    local n=0
    while [ $SECONDS -lt $deadline ]; do
        random 4
        case $REPLY in
        0) sql "VACUUM (INDEX_CLEANUP ON) t" ;;
        1) sql "VACUUM (PARALLEL 2, INDEX_CLEANUP ON, FREEZE) t" ;;
        2) sql "ANALYZE t" ;;
        3) sql "REINDEX INDEX CONCURRENTLY t_ba" ;;
        esac
        n=$((n + 1)); sleep 0.2
    done
    note "maintenance commands: $n"
}
read_on() { # LEVEL
    local n=0 q queries
    mapfile -t queries <<'Q'
SELECT same('SELECT a FROM t ORDER BY a')
SELECT same('SELECT a, id FROM t WHERE a BETWEEN 300 AND 420')
SELECT same('SELECT b, a FROM t WHERE b IN (1, 4, 8) AND a > 500 ORDER BY b, a DESC')
SELECT same('SELECT b, a, id FROM t WHERE a < 90')
SELECT same('SELECT w FROM t WHERE b < 7 ORDER BY w DESC')
SELECT same('SELECT w, id FROM t WHERE b < 7 AND w > ''c'' AND w < ''d''')
SELECT 1 / (shared('SELECT a, id, pad FROM t WHERE a BETWEEN 100 AND 900') = 'same')::int
SELECT 1 / (shared('SELECT a FROM t WHERE a > 100 ORDER BY a DESC', 'Index Only Scan') = 'same')::int
SELECT 1 / (shared('SELECT b, a FROM t WHERE b IN (1, 4, 8) AND a > 100 ORDER BY b, a DESC', 'Index Only Scan') = 'same')::int
SELECT walk('SELECT a FROM t WHERE a BETWEEN 100 AND 200 ORDER BY a', 12)
SELECT walk('SELECT b, a FROM t WHERE a BETWEEN 400 AND 500 ORDER BY b DESC, a', 12)
SELECT walk('SELECT w FROM t WHERE b < 7 AND w > ''a'' ORDER BY w', 8)
Q
    while [ $SECONDS -lt $deadline ]; do
        random ${#queries[@]}; q=${queries[REPLY]}
        random ${#queries[@]}
        sql "BEGIN ISOLATION LEVEL $1 READ ONLY; $q; ${queries[REPLY]}; COMMIT" > "$NITRO_TMP/answers"
        n=$((n + 2))
    done
    note "$1: $n comparisons"
}
maintain & jobs=$!
RANDOM=$((NITRO_SEED % 32768 + 1)); read_on "REPEATABLE READ" & jobs+=" $!"
RANDOM=$((NITRO_SEED % 32768 + 2)); read_on "SERIALIZABLE" & jobs+=" $!"
for job in $jobs; do wait "$job" || failed=1; done
wait "$writers" || { cat "$NITRO_TMP/pgbench.log"; fail "a writer failed"; }
[ -z "${failed:-}" ] || fail "a reader failed"
note "$(grep 'transactions actually processed' "$NITRO_TMP/pgbench.log")"
sql "SELECT nitro_verify(i, true) FROM unnest('{t_a,t_ba,t_w}'::regclass[]) i; VACUUM t;
     SELECT nitro_verify(i, true) FROM unnest('{t_a,t_ba,t_w}'::regclass[]) i;
     SELECT same('SELECT a FROM t ORDER BY a'); SELECT same('SELECT w FROM t WHERE b < 7 ORDER BY w')" > /dev/null

#!/usr/bin/env bash
# Unique indexes built by several processes: one process compares equal keys, wherever their rows are.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/workers.sh"

new_server -c "nitro.backup = off" -c "max_worker_processes = 16" -c "max_parallel_workers = 8" \
    -c "max_parallel_maintenance_workers = 2" -c "min_parallel_table_scan_size = 0" -c "jit = off" -c "nitro.max_memory = 128MB"
[ "$(major)" -ge 18 ] || { note "left out: before 18 core takes no unique index of another access method"; exit 0; }

# Few keys with many rows each. One row of each key lives. An older snapshot needs the others, so the index
# has them. Most cuts of a sample are between rows of one key.
sql "CREATE TABLE t (k int, s text COLLATE \"C\", n numeric, v int) WITH (parallel_workers = 2, autovacuum_enabled = off);
     INSERT INTO t SELECT i % 40, 'key ' || i % 40, i % 40, i FROM generate_series(1, 20000) i"
session old
# It holds no lock of the table.
ask old "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class" > /dev/null
sql "DELETE FROM t WHERE v > 40"
refused() { # WHAT STATEMENT DETAIL
    local got
    got=$("${PSQL[@]}" -p "$(port)" -v VERBOSITY=verbose -c "$2" 2>&1) && fail "$1: $2 went through"
    [[ $got == *23505*"could not create unique index"*"$3"* ]] || fail "$1: $got"
}
kinds=("k" "s" "s DESC, k" "k) INCLUDE (v")
if [ "$(sql "SELECT count(*) FROM pg_collation WHERE collname = 'en-x-icu'")" != 0 ]; then kinds+=("s COLLATE \"en-x-icu\""); fi
for kind in "${kinds[@]}"; do
    together "CREATE UNIQUE INDEX x ON t USING nitro ($kind)"
    sql "SELECT nitro_verify('x', true)" > /dev/null
    sql_fails "INSERT INTO t VALUES (7, 'key 7', 7, 0)" > /dev/null
    together "REINDEX INDEX x"
    sql "SELECT nitro_verify('x', true); DROP INDEX x" > /dev/null
    for k in $(seq 0 3 39); do
        sql "INSERT INTO t VALUES ($k, 'key $k', $k, 30000)"
        refused "$kind" "CREATE UNIQUE INDEX x ON t USING nitro ($kind)" "$k) is duplicated."
        sql "DELETE FROM t WHERE v = 30000"
    done
done
# Equal keys of these types have different bytes, and might be in two shards.
alone "CREATE UNIQUE INDEX x ON t USING nitro (n)"
tell old "COMMIT"; end old

# NULLs.
sql "DROP INDEX x; INSERT INTO t SELECT NULL, 'n' || i, i, i FROM generate_series(100, 5000) i; INSERT INTO t SELECT i, i, i, i FROM generate_series(100, 5000) i"
together "CREATE UNIQUE INDEX x ON t USING nitro (k)"
sql "DROP INDEX x"
refused "NULLs" "CREATE UNIQUE INDEX x ON t USING nitro (k) NULLS NOT DISTINCT" "null) is duplicated."
together "CREATE UNIQUE INDEX CONCURRENTLY x ON t USING nitro (k, s)"
together "REINDEX INDEX CONCURRENTLY x"
sql "SELECT nitro_verify('x', true); DROP INDEX x" > /dev/null

# Without memory one process still checks all rows. REINDEX leaves the new index unbuilt, but fails if there
# are duplicates.
sql "CREATE TABLE m WITH (parallel_workers = 2, autovacuum_enabled = off) AS SELECT md5(i::text) || md5((-i)::text) || repeat(md5((i * 3)::text), 6) COLLATE \"C\" AS s FROM generate_series(1, 100000) i"
together "CREATE UNIQUE INDEX m_s ON m USING nitro (s)"
setting nitro.max_memory 16MB
for _ in 1 2; do
    said=$(say "REINDEX INDEX m_s")
    [[ $said == *WARNING*"m_s"* ]] || fail "not left unbuilt: $said"
done
sql "UPDATE pg_index SET indisready = false, indislive = false WHERE indexrelid = 'm_s'::regclass"
sql "INSERT INTO m SELECT max(s) FROM m"
sql "UPDATE pg_index SET indisready = true, indislive = true, indisvalid = false WHERE indexrelid = 'm_s'::regclass"
refused "no memory" "REINDEX INDEX m_s" "is duplicated."

#!/usr/bin/env bash
# A table of several pages of the visibility map. Rows are on both sides of each border, with bits set and
# not set. A scan keeps one page pinned, or two, or all of them. LONG=1: more pages than any scan keeps. The
# table is a file with holes: pages that were never written are empty to the server.
. "$(dirname "$0")/lib.sh"

new_server -c "jit = off" -c "max_parallel_workers_per_gather = 0" -c "enable_seqscan = off" -c "enable_bitmapscan = off" -c "enable_hashjoin = off" -c "enable_mergejoin = off" -c "enable_material = off" -c "enable_memoize = off"
of_a_page=32672 of_a_file=131072 borders=2 round=0 rows=
[ -z "$LONG" ] || borders=34

blocks() { # TABLE N: so many it has then
    local file last=$(($2 / of_a_file)) i
    file=$(data)/$(sql "SELECT pg_relation_filepath('$1')")
    for ((i = 0; i <= last; i++)); do
        truncate -s $(((i < last ? of_a_file : $2 % of_a_file) * 8192)) "$file$([ $i = 0 ] || echo ".$i")"
    done
}
sql "CREATE TABLE t (k int, v int, part int, pad text DEFAULT repeat('x', 390)) WITH (fillfactor = 80); CREATE TABLE o AS SELECT g * 7919 % 2000 AS k FROM generate_series(1, 300) g"
for ((n = 1; n <= borders; n++)); do
    blocks t $((n * of_a_page - 10))
    # A new session knows only the last page as one with room: twenty pages.
    sql "INSERT INTO t SELECT g * 619 % 2000, g, $n FROM generate_series(1, 300) g"
    rows="${rows:+$rows UNION ALL }SELECT * FROM t WHERE ctid >= '($((n * of_a_page - 20)),0)' AND ctid < '($((n * of_a_page + 20)),0)'"
done
assert_eq "blocks" "$(sql "SELECT pg_relation_size('t') / 8192 BETWEEN $((borders * of_a_page + 5)) AND $((borders * of_a_page + 15))")" t
sql "CREATE INDEX t_k ON t USING nitro (k, v)"
sql "CREATE TABLE t_copy (k int, v int, part int)"
sql "VACUUM ANALYZE o"; sql "VACUUM t"
# As if there were no holes. None of the pages is all-visible.
sql "UPDATE pg_class SET relallvisible = relpages WHERE relname = 't'"
off="SET nitro.enable_fast_scan = off; SET nitro.enable_aggregate = off; SET nitro.enable_batched_joins = off"
queries=("SELECT count(*), sum(v), min(k) FROM t WHERE k >= 0" "SELECT md5(string_agg(x::text, ' ')) FROM (SELECT k, count(*), max(v) FROM t WHERE k >= 0 GROUP BY k ORDER BY k) x"
    "SELECT md5(string_agg(x::text, ' ')) FROM (SELECT k, v FROM t WHERE k > 5 ORDER BY k, v) x"
    "SELECT count(*), sum(t.v) FROM o JOIN t ON t.k = o.k" "SELECT count(*), sum(t.v), sum(t.part) FROM o JOIN t ON t.k = o.k")
plans=(NitroAggregate NitroAggregate "Index Only Scan" "Nested Loop" "Nested Loop")
looks() {
    local i got want
    for i in "${!queries[@]}"; do
        [[ $(sql "EXPLAIN ${queries[i]}") == *"${plans[i]}"* ]] || fail "another plan: ${queries[i]}"
        want=$(sql "SET enable_hashjoin = on; ${queries[i]// t / t_copy AS t }")
        assert_eq "its own way: ${queries[i]}" "$(sql "${queries[i]}")" "$want"
        assert_eq "the server's way: ${queries[i]}" "$(sql "$off; ${queries[i]}")" "$want"
    done
}
for buffers in 1MB 8MB 128MB; do
    note "shared_buffers = $buffers"
    settings "shared_buffers = $buffers"; restart
    sql "SELECT nitro_verify('t_k')" > /dev/null
    # Scans remove rows that are dead to all. This transaction may still see them.
    session old; ask old "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1" > /dev/null
    # Other pages of each part, on both sides of the border. Some rows are gone, and some have another
    # version.
    round=$((round + 1))
    sql "DELETE FROM t WHERE k >= 0 AND (v + part * 40 + $round * 17) % 170 = 3; UPDATE t SET v = v + 1000 WHERE k >= 0 AND (v + part * 70) % 200 = 9 + $round; BEGIN; DELETE FROM t WHERE k >= 0 AND (v + part * 100) % 190 = 7; ROLLBACK"
    # The table's own answers, without the holes: no version has moved to another page.
    sql "SET enable_indexscan = off; TRUNCATE t_copy; INSERT INTO t_copy SELECT k, v, part FROM ($rows) x"
    looks
    end old
done

#!/usr/bin/env bash
# Indexes with an entry per element, after every kind of end. They are loaded from an image and caught up
# with the table, or rebuilt. Some writers were in the middle of a row's entries.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
new_server
sql "CREATE TABLE t (id bigserial PRIMARY KEY, a int[], j jsonb, at int) WITH (autovacuum_enabled = off);
     CREATE FUNCTION fill(n int, salt int) RETURNS void LANGUAGE sql AS \$\$
         INSERT INTO t (a, j, at) SELECT CASE WHEN i % 17 = 0 THEN NULL WHEN i % 19 = 0 THEN '{}' ELSE ARRAY[i % 50, i * salt % 70, NULLIF(i % 9, 3)] END,
             jsonb_build_array('k' || i % 40, i % 5, jsonb_build_object('x', i * salt % 30)), i % 100 FROM generate_series(1, n) i \$\$;
     SELECT fill(5000, 7);
     CREATE INDEX t_a ON t USING nitro (a);
     CREATE INDEX t_at_a ON t USING nitro (at, a);
     CREATE INDEX t_j ON t USING nitro (j jsonb_array_ops)" > /dev/null
same_answers() {
    local q by
    for q in "a @> '{7,14}'" "a && '{1,2,3}'" "a &<@ int4range(60, 65)" "a = '{}'" "a IS NULL" "at < 5 AND a &> 66" "j ? 'k3'" "j @> '[{\"x\": 4}]'" "11 = ANY (a)"; do
        by=$(sql "SET enable_seqscan = off; SELECT count(*), sum(id) FROM t WHERE $q" | tail -1)
        assert_eq "$q" "$by" "$(sql "SET enable_bitmapscan = off; SELECT count(*), sum(id) FROM t WHERE $q" | tail -1)"
    done
}
change() {
    sql "SELECT fill(2000, $1); UPDATE t SET a = a || $1 WHERE id % 5 = 0; UPDATE t SET at = at + 1 WHERE id % 11 = 0; DELETE FROM t WHERE id % 13 = 0;
         VACUUM (INDEX_CLEANUP on) t; SELECT fill(1000, $1 + 2)" > /dev/null
}
verified t; same_answers
wait_until "SELECT count(image_lsn) = 3 FROM pg_stat_nitro_indexes"
change 3
crash; start
verified t; same_answers
assert_eq "indexes loaded from their images" "$(grep -c 'nitro index "t_[a-z_]*".* loaded from' "$NITRO_TMP/main.log")" 3
sql "SELECT nitro_backup()" > /dev/null
change 5
stop; start
verified t; same_answers

# A writer dies between two entries of its row, or as near to it as a signal comes.
for i in 1 2 3 4 5; do
    session writer
    pid=$(ask writer "SELECT pg_backend_pid()")
    tell writer "INSERT INTO t (a) SELECT ARRAY(SELECT (g * 31 + h) % 3000 FROM generate_series(1, 300) h) FROM generate_series(1, 20000) g"
    random 40; sleep "0.$((10 + REPLY))"
    kill_backend "$pid" || true
    end writer || true
    verified t; same_answers
done
session writer
pid=$(ask writer "SELECT pg_backend_pid()")
tell writer "INSERT INTO t (a) SELECT ARRAY(SELECT (g * 31 + h) % 3000 FROM generate_series(1, 300) h) FROM generate_series(1, 20000) g"
wait_until "SELECT state = 'active' AND query LIKE 'INSERT%' FROM pg_stat_activity WHERE pid = $pid"; sleep 0.3
sql "SELECT pg_cancel_backend($pid)" > /dev/null
answer writer > /dev/null 2>&1 || true
end writer
verified t; same_answers
sql "VACUUM (INDEX_CLEANUP on) t"
verified t; same_answers

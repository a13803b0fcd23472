#!/usr/bin/env bash
# Images: made at the right moments, loaded after every kind of end, refused when anything about them is wrong.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
new_server -c "max_prepared_transactions = 5"
sql "CREATE TABLE t (id bigserial, k int, s text) WITH (autovacuum_enabled = off); INSERT INTO t (k, s) SELECT i % 5000, 'w' || i % 300 FROM generate_series(1, 20000) i"
sql "CREATE INDEX t_k_nitro ON t USING nitro (k); CREATE INDEX t_k_btree ON t (k); CREATE INDEX t_s_nitro ON t USING nitro (s COLLATE \"C\")"
wait_until "SELECT count(image_lsn) = 2 FROM pg_stat_nitro_indexes"
sql "INSERT INTO t (k, s) SELECT i, 'new' || i FROM generate_series(1, 2000) i; UPDATE t SET k = k + 1 WHERE k % 7 = 0; DELETE FROM t WHERE k % 11 = 0; VACUUM (INDEX_CLEANUP on) t; INSERT INTO t (k, s) SELECT i, 'newer' || i FROM generate_series(1, 2000) i"
crash; start
[[ $(sql "EXPLAIN (costs off) SELECT * FROM t WHERE k = 77") == *t_k_nitro* ]] || fail "not planned"
verified t
sql "SELECT nitro_backup()"
sql "INSERT INTO t (k, s) SELECT i, 'newest' || i FROM generate_series(1, 2000) i"
stop; ls "$(data)/pg_replslot"; start
verified t
grep -h "loaded from" "$NITRO_TMP/main.log" | tail -2
cat "$(data)"/pg_nitro/*/*/*/manifest


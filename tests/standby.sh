#!/usr/bin/env bash
# Copies of a server and of a database: hot standby, promotion, base backup, CREATE DATABASE, tablespaces,
# dump. A copied index is not built in this server's memory yet.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"

copy() { # FROM TO [OPTION...]: a base backup of one server as another
    local from_port to=$2
    node=$1 from_port=$(port); node=$to; shift 2
    "$NITRO_BIN/pg_basebackup" -h "$NITRO_TMP" -p "$from_port" -D "$(data)" -X stream -c fast "$@" 2>&1 || fail "pg_basebackup"
    local p=$((5432 + $(find "$NITRO_TMP" -maxdepth 1 -name '*.data' | wc -l)))
    echo "$p" > "$(data)/nitro.port"
    settings "port = $p"
    start
}
caught_up() { # waits until the standby has replayed what the primary has written
    local lsn
    lsn=$(node=main && sql "SELECT pg_current_wal_flush_lsn()")
    (node=standby && wait_until "SELECT pg_last_wal_replay_lsn() >= '$lsn'")
}
new_server -c "hot_standby = on" -c "max_wal_senders = 5" -c "nitro.follow = off"
sql "CREATE TABLE t (i int, s text, d date)"
sql "INSERT INTO t SELECT i, md5(i::text), '2024-01-01'::date + i % 300 FROM generate_series(1, 10000) i"
for kind in nitro btree; do
    sql "CREATE INDEX t_i_$kind ON t USING $kind (i); CREATE INDEX t_s_$kind ON t USING $kind (s COLLATE \"C\" DESC); CREATE INDEX t_d_$kind ON t USING $kind (d, i) WHERE i % 3 = 0"
done
sql "CREATE UNLOGGED TABLE u AS SELECT i FROM t; CREATE INDEX u_nitro ON u USING nitro (i); CREATE INDEX u_btree ON u (i)"
queries=("SELECT i FROM t WHERE i BETWEEN 100 AND 5000 ORDER BY i" "SELECT s FROM t WHERE s COLLATE \"C\" > '7' ORDER BY s COLLATE \"C\" DESC"
    "SELECT d, i FROM t WHERE i % 3 = 0 AND d < '2024-03-01' ORDER BY d, i")
same_answers t "${queries[@]}"

note "hot standby"
copy main standby -R
settings "hot_standby_feedback = on"; restart
hidden() {
    local q
    for q in "${queries[@]}" "SELECT min(i) FROM t"; do
        [[ $(sql "SET enable_seqscan = off; EXPLAIN $q") != *_nitro* ]] || fail "planned on a standby: $q"
        assert_eq "standby: $q" "$(sql "SET enable_seqscan = off; $q" | md5sum)" "$(node=main && sql "$q" | md5sum)"
    done
}
hidden
sql "SELECT * FROM pg_stat_nitro_indexes; SELECT * FROM nitro_memory" > /dev/null
assert_eq "verify" "$(sql_fails "SELECT nitro_verify('t_i_nitro', true)" | cut -c 1-6)" "55000:"
session s                       # stays connected over the promotion, with a cached plan
ask s "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan; PREPARE q AS SELECT count(*) FROM t WHERE i BETWEEN 1 AND 10 OR i > 100000" > /dev/null
assert_eq "prepared" "$(ask s "EXECUTE q")" 10
node=main
sql "INSERT INTO t SELECT i, md5(i::text), '2024-01-01' FROM generate_series(10001, 11000) i; UPDATE t SET i = -i WHERE i % 11 = 0; DELETE FROM t WHERE i % 13 = 0; VACUUM t"
sql "REINDEX INDEX t_i_nitro; CREATE INDEX t_new_nitro ON t USING nitro (d); CREATE TABLE gone (i int); CREATE INDEX gone_nitro ON gone USING nitro (i)"
caught_up; node=standby; hidden
node=main; sql "DROP TABLE gone; ALTER TABLE t ADD n int DEFAULT 5; VACUUM FULL t"
caught_up; node=standby; hidden
assert_eq "prepared" "$(ask s "EXECUTE q")" 10
session r                       # a transaction that starts in recovery
ask r "BEGIN; SELECT 1" > /dev/null

note "promotion"
sql "SELECT pg_promote()" > /dev/null
wait_until "SELECT NOT pg_is_in_recovery()"
assert_eq "prepared, at once" "$(ask s "EXECUTE q")" 10
sql "EXPLAIN SELECT * FROM t WHERE i = 1" > /dev/null
built t_i_nitro
ask s "BEGIN; INSERT INTO t VALUES (100001, 'x', now()), (5, 'x', now()); COMMIT" > /dev/null
assert_eq "prepared, later" "$(ask s "EXECUTE q")" 12
end s
# Rows that are dead to one transaction may not be dead to all. The older transaction removes no entry, the
# next one does.
sql "EXPLAIN SELECT * FROM t WHERE d = '2030-01-01'" > /dev/null
built t_new_nitro
entries() { sql "SELECT entries FROM pg_stat_nitro_indexes WHERE indexrelname = 't_new_nitro'"; }
sql "INSERT INTO t SELECT i, 'dead', '2030-01-01' FROM generate_series(200001, 200050) i; DELETE FROM t WHERE i > 200000"
before=$(entries)
plans="SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off; SET enable_memoize = off; SET nitro.enable_aggregate = off"
reads() {
    local q
    for q in "SELECT count(d) FROM t WHERE d = '2030-01-01'" "SELECT count(s) FROM t WHERE d = '2030-01-01'" \
        "SELECT count(t.d) FROM generate_series('2029-12-01'::timestamp, '2030-02-01', '1 day') g JOIN t ON t.d = g::date OFFSET 0"; do
        [[ $(ask r "EXPLAIN $q") == *t_new_nitro* ]] || fail "another plan: $q"
        assert_eq "$q" "$(ask r "$q")" 0
    done
}
ask r "$plans" > /dev/null
reads
assert_eq "entries after a transaction from before" "$(entries)" "$before"
ask r "COMMIT; $plans" > /dev/null
reads
assert_eq "entries after the next one" "$(entries)" $((before - 50))
end r
verified t
same_answers t "${queries[@]}"
assert_eq "unlogged tables are empty" "$(sql "SELECT count(*) FROM u")" 0
sql "INSERT INTO u SELECT generate_series(1, 500)"
verified u
same_answers u "SELECT i FROM u WHERE i > 5 ORDER BY i"
stop immediate
rm -r "$(data)"

note "unlogged tables: clean restart, crash"
node=main
restart
verified u
assert_eq "kept" "$(sql "SELECT nitro_verify('u_nitro', true)")" 10000
crash; start
assert_eq "reset" "$(sql "SELECT count(*) FROM u")" 0
assert_eq "empty" "$(sql "SELECT nitro_verify('u_nitro', true)")" 0
sql "INSERT INTO u SELECT generate_series(1, 500); UPDATE u SET i = -i WHERE i % 5 = 0"
same_answers u "SELECT i FROM u WHERE i > -100 ORDER BY i"
restart
verified u
same_answers u "SELECT i FROM u WHERE i > -100 ORDER BY i"

note "a base backup as a server of its own"
copy main backup
verified t
sql "DELETE FROM t WHERE i < 0; INSERT INTO t VALUES (1, 'here', now())"
same_answers t "${queries[@]}"
stop
node=main
verified t
same_answers t "${queries[@]}"

note "CREATE DATABASE ... TEMPLATE, ALTER ... SET TABLESPACE"
sql "CREATE DATABASE source"
(
    export PGDATABASE=source
    sql "CREATE EXTENSION nitro; CREATE TABLE c AS SELECT i, md5(i::text) AS s FROM generate_series(1, 5000) i"
    sql "CREATE INDEX c_i_nitro ON c USING nitro (i); CREATE INDEX c_s_nitro ON c USING nitro (s); CREATE INDEX c_i_btree ON c (i); CREATE INDEX c_s_btree ON c (s)"
)
copies=("SELECT i FROM c WHERE i < 800 ORDER BY i" "SELECT s FROM c WHERE s > 'a' ORDER BY s DESC")
for strategy in wal_log file_copy; do
    wait_until "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'source'"
    sql_alone "CREATE DATABASE $strategy TEMPLATE source STRATEGY $strategy"
    (
        export PGDATABASE=$strategy
        sql "UPDATE c SET i = -i WHERE i % 2 = 0; INSERT INTO c VALUES (7, 'seven')"
        verified c; same_answers c "${copies[@]}"
    )
    (export PGDATABASE=source; verified c; same_answers c "${copies[@]}"; assert_eq "the source" "$(sql "SELECT sum(i) FROM c")" 12502500)
done
mkdir "$NITRO_TMP/space"; sql "CREATE TABLESPACE space LOCATION '$NITRO_TMP/space'"
wait_until "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'wal_log'"
sql_alone "ALTER DATABASE wal_log SET TABLESPACE space"
(
    export PGDATABASE=wal_log
    verified c; same_answers c "${copies[@]}"
    sql "INSERT INTO c VALUES (8, 'eight'); ALTER INDEX c_i_nitro SET TABLESPACE pg_default"
    verified c; same_answers c "${copies[@]}"
    sql "BEGIN; ALTER INDEX c_s_nitro SET TABLESPACE pg_default; INSERT INTO c VALUES (9, 'nine'); ROLLBACK; INSERT INTO c VALUES (10, 'ten')"
    verified c; same_answers c "${copies[@]}"
    sql "BEGIN; ALTER INDEX c_s_nitro SET TABLESPACE pg_default; INSERT INTO c VALUES (9, 'nine'); COMMIT; ALTER TABLE c SET TABLESPACE pg_default"
    verified c; same_answers c "${copies[@]}"
)
crash; start
(export PGDATABASE=wal_log; verified c; same_answers c "${copies[@]}")
# A builder's load in another database would add to the memory that the drop returns.
verified t; verified u
for database in source file_copy; do (export PGDATABASE=$database; verified c); done
before=$(sql "SELECT used FROM nitro_memory")
wait_until "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname IN ('wal_log', 'file_copy')"
sql_alone "DROP DATABASE wal_log"; sql_alone "DROP DATABASE file_copy"
[ "$(sql "SELECT used FROM nitro_memory")" -lt "$before" ] || fail "DROP DATABASE returned no memory"

note "pg_dump and restore"
(
    export PGDATABASE=source
    sql "CREATE FUNCTION backwards(int, int) RETURNS int IMMUTABLE STRICT LANGUAGE sql AS 'SELECT btint4cmp(\$2, \$1)'
        ; CREATE OPERATOR CLASS backwards_ops FOR TYPE int4 USING btree AS
          OPERATOR 1 >, OPERATOR 2 >=, OPERATOR 3 =, OPERATOR 4 <=, OPERATOR 5 <, FUNCTION 1 backwards(int, int)
        ; SELECT nitro_adopt_opclass('backwards_ops'); CREATE INDEX c_b_nitro ON c USING nitro (i backwards_ops, s)" > /dev/null
)
sql "CREATE DATABASE restored"
"$NITRO_BIN/pg_dump" -h "$NITRO_TMP" -p "$(port)" -Fc source > "$NITRO_TMP/dump" || fail "pg_dump"
"$NITRO_BIN/pg_restore" -h "$NITRO_TMP" -p "$(port)" -d restored -j 2 --exit-on-error "$NITRO_TMP/dump" || fail "pg_restore"
(export PGDATABASE=restored; assert_eq "indexes" "$(nitro_indexes c)" $'c_b_nitro\nc_i_nitro\nc_s_nitro'; verified c; same_answers c "${copies[@]}")

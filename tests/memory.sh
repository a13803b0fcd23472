#!/usr/bin/env bash
# The shared area: a full area gives SQLSTATE 53200 and nothing worse. Everything that ends returns its
# memory.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"

# With entries that wait, leaves would be smaller than the sizes here assume.
new_server -c "nitro.insert_memory = 0" -c "nitro.max_memory = 16MB" -c "max_prepared_transactions = 5" -c "maintenance_work_mem = 8MB"

used() { sql "SELECT used FROM nitro_memory"; }
full() { # STATEMENTS: the last one fails with "out of memory", and says who uses what and what to do
    local out
    out=$("${PSQL[@]}" -p "$(port)" -v ON_ERROR_STOP=1 -v VERBOSITY=verbose -c "$1" 2>&1) && fail "should be out of memory: $1"
    [[ $out == *"53200: "* && $out == *DETAIL:* && $out == *HINT:*nitro.max_memory* ]] || fail "out of memory: $out"
}
empty=$(used)
returned() { assert_eq "bytes in use after $1" "$(used)" "${2:-$empty}"; }

note "CREATE INDEX and INSERT into a full area"
sql "CREATE TABLE big AS SELECT i, repeat(md5(i::text), 8) AS s FROM generate_series(1, 80000) i"
full "CREATE INDEX big_nitro ON big USING nitro (s COLLATE \"C\")"
returned "a failed CREATE INDEX"
sql "CREATE TABLE t (i int, s text); INSERT INTO t SELECT * FROM big WHERE i <= 10000"
sql "CREATE INDEX t_s_nitro ON t USING nitro (s COLLATE \"C\"); CREATE INDEX t_s_btree ON t (s COLLATE \"C\"); CREATE INDEX t_i_btree ON t (i)"
full "INSERT INTO t SELECT * FROM big WHERE i > 10000"
assert_eq "rows" "$(sql "SELECT count(*) FROM t")" 10000
full "COPY t FROM PROGRAM 'seq 1 100000 | sed \"s/.*/&\\t&$(printf %0200d 0)/\"'"
assert_eq "rows" "$(sql "SELECT count(*) FROM t")" 10000
# Reads go on. So do statements that need no memory of the area.
same_answers t "SELECT s FROM t WHERE s COLLATE \"C\" > 'a' ORDER BY s COLLATE \"C\""
sql "CREATE TABLE plain (i int); INSERT INTO plain VALUES (1); DELETE FROM t WHERE i = 1; UPDATE plain SET i = 2"
verified t
sql "VACUUM t"
verified t
# Memory freed by VACUUM is usable again, by this index and by the other indexes.
sql "INSERT INTO t SELECT * FROM big WHERE i BETWEEN 10001 AND 13000"
verified t
same_answers t "SELECT s FROM t WHERE s COLLATE \"C\" > 'a' ORDER BY s COLLATE \"C\" DESC"
sql "DROP INDEX t_s_nitro"
returned "DROP INDEX"
sql "CREATE INDEX t_s_nitro ON t USING nitro (s COLLATE \"C\")"
verified t
note "in a subtransaction: the rest of the transaction goes on"
assert_eq "rows" "$(sql "BEGIN; INSERT INTO t VALUES (0, 'before');
    DO \$\$ BEGIN INSERT INTO t SELECT * FROM big; EXCEPTION WHEN out_of_memory THEN INSERT INTO plain VALUES (53200); END \$\$;
    COMMIT; SELECT count(*) FROM t; SELECT count(*) FROM plain WHERE i = 53200")" $'13000\n1'
sql "VACUUM t"; verified t
sql "DROP TABLE t"
returned "DROP TABLE"

note "everything that ends"
sql "CREATE TABLE s AS SELECT i, md5(i::text) AS s FROM generate_series(1, 5000) i"
make="CREATE INDEX s_nitro ON s USING nitro (s COLLATE \"C\", i)"
sql "BEGIN; $make; ROLLBACK"; returned "rollback"
assert_eq "inside" "$(sql "BEGIN; SAVEPOINT a; $make; ROLLBACK TO a; SELECT used FROM nitro_memory; COMMIT")" "$empty"
assert_eq "nested" "$(sql "BEGIN; SAVEPOINT a; SAVEPOINT b; $make; RELEASE b; SELECT used > $empty FROM nitro_memory; ROLLBACK TO a; SELECT used FROM nitro_memory; COMMIT")" $'t\n'"$empty"
sql "BEGIN; SAVEPOINT a; $make; RELEASE a; ROLLBACK"; returned "rollback after RELEASE"
sql "DO \$\$ BEGIN EXECUTE '$make'; RAISE EXCEPTION 'no'; EXCEPTION WHEN raise_exception THEN NULL; END \$\$"; returned "an exception block"
sql_fails "$make; SELECT 1 / 0" > /dev/null; returned "an ERROR"
sql "BEGIN; $make; DROP INDEX s_nitro; COMMIT"; returned "create and drop in one transaction"
sql "$make"; one=$(used)
sql "CREATE INDEX s_btree ON s (s COLLATE \"C\", i)"
again() { # WHAT: after a new build the index takes what it took, and is right
    returned "$1" "$one"
    same_answers s "SELECT s, i FROM s WHERE s COLLATE \"C\" >= '' ORDER BY s COLLATE \"C\", i"
    verified s
}
for _ in 1 2 3; do sql "REINDEX INDEX s_nitro"; done; again "REINDEX"
sql "REINDEX INDEX CONCURRENTLY s_nitro"; again "REINDEX CONCURRENTLY"
sql "VACUUM FULL s"; again "VACUUM FULL"
sql "CLUSTER s USING s_btree"; again "CLUSTER"
sql "BEGIN; REINDEX INDEX s_nitro; ROLLBACK"; again "REINDEX rolled back"
sql "BEGIN; SAVEPOINT a; TRUNCATE s; ROLLBACK TO a; COMMIT"; again "TRUNCATE rolled back in a subtransaction"
sql "BEGIN; TRUNCATE s; INSERT INTO s VALUES (1, 'x'); ROLLBACK"; again "TRUNCATE rolled back"
sql "BEGIN; DROP TABLE s; ROLLBACK"; again "DROP rolled back"
sql "BEGIN; ALTER TABLE s ALTER i TYPE bigint; ROLLBACK"; again "rewrite rolled back"
sql "ALTER TABLE s SET UNLOGGED"; again "SET UNLOGGED"
sql "ALTER TABLE s SET LOGGED"; again "SET LOGGED"
sql "CREATE MATERIALIZED VIEW m AS SELECT * FROM s; CREATE INDEX ON m USING nitro (i); REFRESH MATERIALIZED VIEW m; DROP MATERIALIZED VIEW m"; again "REFRESH MATERIALIZED VIEW"
# The same file under a new OID: no rewrite, so nothing is built again.
sql "ALTER TABLE s ADD v varchar(10) DEFAULT 'v'; CREATE INDEX s_v_nitro ON s USING nitro (v COLLATE \"C\"); CREATE INDEX s_v_btree ON s (v COLLATE \"C\")"
sql "ALTER TABLE s ALTER v TYPE varchar(20)"
same_answers s "SELECT v, i FROM s WHERE v COLLATE \"C\" >= 'a'"
verified s
sql "ALTER TABLE s DROP COLUMN v"; again "DROP COLUMN"
sql "TRUNCATE s"
[ "$(used)" -lt $((one / 2)) ] || fail "TRUNCATE returned nothing"
verified s
sql "BEGIN; CREATE TABLE fresh (i int); CREATE INDEX ON fresh USING nitro (i); INSERT INTO fresh SELECT generate_series(1, 1000); TRUNCATE fresh; INSERT INTO fresh VALUES (1); COMMIT"
verified fresh
sql "DROP TABLE fresh, s"
returned "DROP TABLE"

note "temporary tables, databases"
sql "CREATE TEMP TABLE x AS SELECT i FROM generate_series(1, 1000) i; CREATE INDEX ON x USING nitro (i); SELECT count(*) FROM x WHERE i = 5" > /dev/null
wait_until "SELECT used = $empty FROM nitro_memory"
session temp
ask temp "CREATE TEMP TABLE x AS SELECT i FROM generate_series(1, 1000) i; CREATE INDEX x_nitro ON x USING nitro (i)" > /dev/null
one=$(used)
ask temp "REINDEX INDEX x_nitro; BEGIN; REINDEX INDEX x_nitro; ROLLBACK; VACUUM FULL x; BEGIN; SAVEPOINT a; REINDEX INDEX x_nitro; ROLLBACK TO a; COMMIT" > /dev/null
assert_eq "answers" "$(ask temp "SET enable_seqscan = off; SELECT count(*) FROM x WHERE i < 500")" 499
returned "REINDEX of a temporary index" "$one"
ask temp "BEGIN; SAVEPOINT a; SAVEPOINT b; CREATE INDEX ON x USING nitro (i); RELEASE b; ROLLBACK TO a; COMMIT" > /dev/null
returned "rollback to a savepoint" "$one"
ask temp "BEGIN; SAVEPOINT a; DROP TABLE x; ROLLBACK TO a; CREATE TEMP TABLE y AS TABLE x; CREATE INDEX ON y USING nitro (i); ROLLBACK" > /dev/null
returned "rollback" "$one"
assert_eq "answers" "$(ask temp "SELECT count(*) FROM x WHERE i < 500")" 499
ask temp "DISCARD TEMP" > /dev/null
returned "DISCARD TEMP"
ask temp "CREATE TEMP TABLE x AS SELECT i FROM generate_series(1, 1000) i; CREATE INDEX ON x USING nitro (i)" > /dev/null
ask temp "BEGIN; CREATE TEMP TABLE y (i int) ON COMMIT DROP; CREATE INDEX ON y USING nitro (i); COMMIT; BEGIN; CREATE TEMP TABLE z (i int) ON COMMIT DELETE ROWS; CREATE INDEX ON z USING nitro (i); INSERT INTO z SELECT generate_series(1, 1000); COMMIT; INSERT INTO z VALUES (7)" > /dev/null
assert_eq "ON COMMIT DELETE ROWS" "$(ask temp "SET enable_seqscan = off; SELECT count(*) FROM z WHERE i = 7")" 0
ask temp "BEGIN; INSERT INTO z VALUES (7)" > /dev/null
assert_eq "ON COMMIT DELETE ROWS" "$(ask temp "SET enable_seqscan = off; SELECT count(*) FROM z WHERE i = 7")" 1
[ "$(used)" != "$empty" ] || fail "temporary indexes take no memory"
sql "SELECT pg_terminate_backend($(ask temp 'SELECT pg_backend_pid()'))" > /dev/null
end temp
wait_until "SELECT used = $empty FROM nitro_memory"
sql "CREATE DATABASE other"
PGDATABASE=other sql "CREATE EXTENSION nitro; CREATE TABLE d AS SELECT generate_series(1, 10000) i; CREATE INDEX d_nitro ON d USING nitro (i)"
[ "$(used)" != "$empty" ] || fail "the other database takes no memory"
wait_until "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'other'"
sql_alone "DROP DATABASE other"
returned "DROP DATABASE"

note "two-phase commit"
sql "CREATE TABLE p AS SELECT i, repeat(md5(i::text), 8) s FROM generate_series(1, 42000) i"
large="CREATE INDEX p_nitro ON p USING nitro (s COLLATE \"C\")"
sql "$large"
[ "$(used)" -gt $((8400 * 1024)) ] || fail "the index is too small for what follows: $(used) bytes"
sql "BEGIN; DROP INDEX p_nitro; PREPARE TRANSACTION 'drop'"
full "CREATE INDEX q_nitro ON big USING nitro (s COLLATE \"C\")"
sql "ROLLBACK PREPARED 'drop'"
verified p
sql "BEGIN; DROP INDEX p_nitro; PREPARE TRANSACTION 'drop'"
sql "COMMIT PREPARED 'drop'"
sql "$large"           # finds room only if the other's memory came back
verified p
sql "DROP INDEX p_nitro"
sql "BEGIN; $large; PREPARE TRANSACTION 'create'"
sql "ROLLBACK PREPARED 'create'"
sql "$large"
verified p
sql "DROP INDEX p_nitro"
sql "BEGIN; $large; PREPARE TRANSACTION 'create'"
full "CREATE INDEX q_nitro ON big USING nitro (s COLLATE \"C\")"
sql "COMMIT PREPARED 'create'"
assert_eq "kept" "$(state p_nitro)" ready
verified p
# An INSERT also finds the memory of an index that a prepared transaction dropped.
sql "CREATE TABLE i (s text); CREATE INDEX i_nitro ON i USING nitro (s COLLATE \"C\"); BEGIN; DROP INDEX p_nitro; PREPARE TRANSACTION 'drop'"
sql "COMMIT PREPARED 'drop'; INSERT INTO i SELECT s FROM p LIMIT 25000"
verified i
[ "$(used)" -gt $((8400 * 1024)) ] || fail "this would have fitted beside the dropped index: $(used) bytes"
sql "DROP TABLE i, p"
wait_until "SELECT used = $empty FROM nitro_memory"

note "churn: updates and VACUUM do not grow an index without end"
sql "CREATE TABLE c AS SELECT i, 0 AS n FROM generate_series(1, 10000) i; CREATE INDEX c_nitro ON c USING nitro (n, i)"
before=$(used)
for _ in $(seq 12); do sql "UPDATE c SET n = n + 1; VACUUM (INDEX_CLEANUP on) c"; done
after=$(used)
note "12 rounds of updating every row: $before bytes, then $after"
[ "$after" -lt $((before * 4)) ] || fail "$before bytes grew to $after"
verified c
# Leaves that take inserts have slots, and VACUUM packs them. Both states occur, and neither grows.
peaks=() packed=()
for _ in 1 2 3 4; do
    sql "DELETE FROM c; VACUUM (INDEX_CLEANUP on) c; INSERT INTO c SELECT i, 5 FROM generate_series(1, 10000) i"
    peaks+=("$(used)")
    sql "VACUUM (INDEX_CLEANUP on) c"
    packed+=("$(used)")
done
note "deleting and inserting all rows, four times: ${peaks[*]} bytes, each time packed to ${packed[*]}"
# 36 bytes for each of 10000 entries in leaves of slots that are four fifths full. Half of that if a round's
# leaves stayed packed.
for bytes in "${peaks[@]}"; do
    [ "$bytes" -lt 420000 ] || fail "it grew to $bytes bytes"
done
for bytes in "${packed[@]}"; do
    [ "$bytes" -lt $((after * 3 / 2)) ] || fail "$after bytes grew to $bytes"
done
verified c
sql "DROP TABLE c"
returned "churn"

note "a full index serves keys of another length once it is empty"
sql "CREATE TABLE w (s text); CREATE INDEX w_nitro ON w USING nitro (s COLLATE \"C\")"
for width in 1 8 60 20 2; do
    full "INSERT INTO w SELECT repeat(md5(i::text), $width) || g FROM generate_series(1, 80000) i, generate_series(1, 30) g"
    sql "VACUUM w"
    sql "INSERT INTO w SELECT repeat(md5(i::text), $width) FROM generate_series(1, 1000) i; DELETE FROM w; VACUUM w"
    [ "$(used)" -lt $((empty + 300000)) ] || fail "an empty index holds $(used) bytes after keys of width $width"
done
verified w
sql "DROP TABLE w"

note "TRUNCATE, REINDEX and rewrites in a full area"
unbuilt() { # STATEMENT: goes through, without the index; which comes back by itself
    local out
    out=$(sql "$1" 2>&1) || fail "$1: $out"
    [[ $out == *WARNING*w_nitro*"left unbuilt"* ]] || fail "no WARNING: $1: $out"
    assert_eq "state after $1" "$(state w_nitro)" unbuilt
    assert_eq "a query" "$(sql "SELECT count(*) FROM w WHERE s COLLATE \"C\" = 'x'")" 0
    built w_nitro # the query has sent for it
    same_answers w "SELECT s FROM w WHERE s COLLATE \"C\" >= 'a' ORDER BY s COLLATE \"C\""
    verified w
}
# Keys longer than packed leaves hold: an index built by inserts takes no more memory than one built at
# once.
sql "CREATE TABLE w AS SELECT i, repeat(md5(i::text), 17) AS s FROM generate_series(1, 12800) i; CREATE INDEX w_nitro ON w USING nitro (s COLLATE \"C\"); CREATE INDEX w_btree ON w (s COLLATE \"C\")"
unbuilt "REINDEX INDEX w_nitro"
unbuilt "VACUUM FULL w"
unbuilt "CLUSTER w USING w_btree"
unbuilt "ALTER TABLE w ALTER i TYPE bigint"
before=$(used)
out=$(sql "BEGIN; REINDEX INDEX w_nitro; ROLLBACK" 2>&1)
[[ $out == *WARNING* ]] || fail "no WARNING: $out"
returned "REINDEX rolled back" "$before"
verified w
sql "CREATE TABLE p (i int) PARTITION BY RANGE (i); CREATE INDEX p_nitro ON p USING nitro (i); CREATE TABLE filler (i int); CREATE INDEX filler_nitro ON filler USING nitro (i)"
full "INSERT INTO filler SELECT generate_series(1, 2000000)"
sql "CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM (0) TO (10); INSERT INTO p VALUES (7)" 2> /dev/null
sql "TRUNCATE filler" 2> /dev/null
assert_eq "a query" "$(sql "SELECT i FROM p WHERE i = 7")" 7
built p_1_i_idx
verified p_1
sql "DROP TABLE filler, w, p"
wait_until "SELECT used = $empty FROM nitro_memory"

note "the area is full during a rebuild"
settings "nitro.max_memory = 64MB"; restart
# Without an image: the restart would begin to load one.
sql "CREATE INDEX big_nitro ON big USING nitro (s COLLATE \"C\") WITH (backup = off); CREATE INDEX big_i_nitro ON big USING nitro (i); CREATE INDEX big_i_btree ON big (i)"
settings "nitro.max_memory = 16MB"; restart
full "SELECT nitro_verify('big_nitro')"
assert_eq "state" "$(state big_nitro)" unbuilt
full "INSERT INTO big VALUES (0, 'more')"
setting nitro.when_full give_up_index
sql "INSERT INTO big VALUES (0, 'more')"
assert_eq "reads" "$(sql "SET enable_seqscan = off; SELECT count(*) FROM big WHERE s COLLATE \"C\" > 'f'")" "$(sql "SELECT count(*) FROM big WHERE left(s, 1) COLLATE \"C\" >= 'f' AND i > 0 OR i = 0")"
ready big_i_nitro
same_answers big "SELECT i FROM big WHERE i < 1000 ORDER BY i" # the smaller index has room
out=$(sql "REINDEX INDEX big_nitro" 2>&1)
[[ $out == *WARNING*big_nitro*"left unbuilt"* ]] || fail "no WARNING: $out"
settings "nitro.max_memory = 64MB"; restart
verified big

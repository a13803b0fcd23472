#!/usr/bin/env bash
# Hundreds of indexes. After a restart all come back by the allowed number of builders, also if some indexes
# change meanwhile. Indexes without a place in the directory (nitro.max_indexes) leave nothing.
. "$(dirname "$0")"/lib.sh
. "$(dirname "$0")"/answers.sh
. "$(dirname "$0")"/image_files.sh
. "$(dirname "$0")"/by_hand.sh
n=300 most=3
new_server -c "nitro.max_memory = 256MB" -c "nitro.max_indexes = 400" -c "nitro.max_builders = $most" -c "max_worker_processes = 12" -c "log_min_messages = error"
empty=$(sql "SELECT used, indexes FROM nitro_memory")
settled() { wait_until "SELECT (used, indexes)::text = '($(tr '|' ',' <<< "$2"))' FROM nitro_memory" || fail "$1: $(sql "SELECT used, indexes FROM nitro_memory")"; }
tables() { # FROM TO: the indexes of every second one have no image
    sql "DO \$\$ DECLARE i int; BEGIN FOR i IN $1..$2 LOOP
        EXECUTE format('CREATE TABLE t%s (i int); INSERT INTO t%s SELECT generate_series(1, 100); CREATE INDEX t%s_nitro ON t%s USING nitro (f%s(i)) WITH (backup = %s)',
            i, i, i, i, CASE WHEN i % 3 = 0 THEN '_gate' ELSE '' END, i % 2 = 0);
        IF i % 50 = 0 THEN COMMIT; END IF; END LOOP; END \$\$"
}
functions() {
    sql "CREATE OR REPLACE FUNCTION f(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN i; END'
        ; CREATE OR REPLACE FUNCTION f_gate(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
          'BEGIN IF i = 50 THEN PERFORM pg_advisory_xact_lock_shared(1); END IF; RETURN i; END'"
}
# Sessions that ask for each of them, as the planning of a query does.
wanted() { # FROM TO
    sql "DO \$\$ DECLARE i int; line text; BEGIN FOR i IN $1..$2 LOOP
        IF to_regclass('t' || i) IS NOT NULL THEN EXECUTE format('EXPLAIN SELECT * FROM t%s WHERE f%s(i) = 1', i, CASE WHEN i % 3 = 0 THEN '_gate' ELSE '' END) INTO line; END IF;
        END LOOP; END \$\$"
}
builders="SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'nitro builder'"
at_gates() { wait_until "SELECT count(*) = $1 FROM pg_stat_activity a WHERE backend_type = 'nitro builder' AND EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND locktype = 'advisory' AND NOT granted)"; }
# The largest number seen so far.
watch() {
    local now
    while :; do
        now=$(glance "$builders"); echo "${now:-0}"; sleep 0.05
    done > "$NITRO_TMP/builders" 2> /dev/null & watcher=$!
}
watched() { kill "$watcher"; wait "$watcher" 2> /dev/null || true; sort -n "$NITRO_TMP/builders" | tail -n 1; }

all_come_back() {
    note "$n indexes after a restart, beside failures and drops"
    functions; tables 1 $n
    sql "CHECKPOINT; SELECT nitro_backup()" > /dev/null
    # Their builds fail: none of them has an image, nor stands at the gate.
    local failing=(7 77 175) i
    for i in "${failing[@]}"; do sql "CREATE FUNCTION f$i(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN i; END'; DROP INDEX t${i}_nitro; CREATE INDEX t${i}_nitro ON t$i USING nitro (f$i(i)) WITH (backup = off)"; done
    sql "CREATE DATABASE gone"
    (export PGDATABASE=gone; sql "CREATE EXTENSION nitro"; functions; tables 1 12; no_builders)
    no_builders
    for i in "${failing[@]}"; do sql "CREATE OR REPLACE FUNCTION f$i(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RAISE ''bad luck''; END'"; done
    crash; start; from=$(log_end)
    shut; PGDATABASE=gone session gone_keeper; ask gone_keeper "SELECT pg_advisory_lock(1)" > /dev/null
    watch
    # One builder stands at the gate of a database that will be dropped. That database asks for more
    # builders than there are free places.
    (export PGDATABASE=gone; wanted 3 3)
    at_gates 1
    wanted 1 $n
    for i in "${failing[@]}"; do sql "EXPLAIN SELECT * FROM t$i WHERE f$i(i) = 1" > /dev/null; done
    at_gates $most
    (export PGDATABASE=gone; wanted 1 12)
    wanted 1 $n
    assert_eq "builders at the gates" "$(sql "$builders")" $most
    # DROP waits only for a builder that has the table.
    local dropped
    dropped=$(sql "SELECT string_agg(relname, ', ') FROM (SELECT relname FROM pg_class c WHERE relname ~ '^t(2[0-9]|12[0-9])\$' AND NOT EXISTS (SELECT FROM pg_locks l WHERE l.relation = c.oid)) q")
    sql "SET lock_timeout = '60s'; DROP TABLE $dropped"
    sql_alone "DROP DATABASE gone WITH (FORCE)"; end gone_keeper 2> /dev/null || true
    open_gate
    local left=($(sql "SELECT substr(relname, 2)::int FROM pg_class WHERE relname ~ '^t[0-9]+\$' AND relkind = 'r' ORDER BY 1"))
    for i in "${failing[@]}"; do wait_until "SELECT state = 'failed' FROM pg_stat_nitro_indexes WHERE indexrelname = 't${i}_nitro'"; done
    # No session asks again.
    wait_until "SELECT count(*) = $((${#left[@]} - ${#failing[@]})) FROM pg_stat_nitro_indexes WHERE state = 'ready'"
    assert_eq "ready" "$(sql "SELECT state, count(*) FROM pg_stat_nitro_indexes GROUP BY 1 ORDER BY 1")" $'failed|3\nready|'$((${#left[@]} - 3))
    assert_eq "most builders at once" "$(watched)" $most
    assert_eq "of the dropped ones" "$(sql "SELECT indexes FROM nitro_memory")" ${#left[@]}
    [ "$(logged 'bad luck' "$from")" -ge 3 ] || fail "nobody says why"
    for i in 1 2 3 150 151 299 300; do verified "t$i"; done
    no_builders
    for i in "${left[@]}"; do echo "DROP TABLE t$i;"; done | sql "$(cat)"
    settled "all are dropped" "$empty"
}

no_room() { # STATEMENT
    local out; out=$(sql_fails "$1")
    [[ $out == "53400: too many nitro indexes in memory"* ]] || fail "$1: $out"
}
full_directory() {
    note "no room in the directory"
    functions; tables 1 $n
    sql "CREATE TABLE last (i int); INSERT INTO last SELECT generate_series(1, 100); CREATE INDEX last_btree ON last (i)
        ; DO \$\$ BEGIN FOR k IN 1..(SELECT max_indexes - indexes FROM nitro_memory) LOOP EXECUTE format('CREATE INDEX last_%s_nitro ON last USING nitro (i) WITH (backup = off)', k); END LOOP; END \$\$"
    local full i out create="CREATE INDEX one_more_nitro ON last USING nitro (i)"
    full=$(sql "SELECT used, indexes FROM nitro_memory")
    assert_eq "indexes" "${full#*|}" "$(sql "SHOW nitro.max_indexes")"
    for i in $(seq 10); do
        no_room "$create"
        no_room "CREATE TABLE other (i int); INSERT INTO other VALUES (1); CREATE INDEX ON other USING nitro (i)"
        sql "DO \$\$ BEGIN $create; EXCEPTION WHEN configuration_limit_exceeded THEN RETURN; END \$\$"
        no_room "CREATE INDEX CONCURRENTLY invalid_${i} ON last USING nitro (i)"
        sql "DROP INDEX invalid_${i}; DROP TABLE IF EXISTS other"
    done
    settled "refused ones" "$full"
    no_room "REINDEX INDEX CONCURRENTLY last_1_nitro"
    sql "DROP INDEX last_1_nitro_ccnew"; verified last; settled "REINDEX CONCURRENTLY" "$full"
    out=$(sql "REINDEX INDEX last_1_nitro" 2>&1)
    [[ $out == *WARNING*"too many nitro indexes in memory"*"left unbuilt"* ]] || fail "REINDEX: $out"
    verified last
    # Before 18 core takes no unique index of another access method.
    if [ "$(major)" -ge 18 ]; then no_room "CREATE UNIQUE INDEX ON last USING nitro (i)"; fi
    sql "TRUNCATE last; INSERT INTO last SELECT generate_series(1, 100)" 2> /dev/null
    verified last
    same_answers last "SELECT i FROM last WHERE i < 50 ORDER BY i"
    sql "DROP INDEX last_1_nitro; $create"; verified last; no_room "${create/one_more/two_more}"

    note "a restart with room for fewer of them"
    sql "CHECKPOINT; SELECT nitro_backup()" > /dev/null; no_builders
    settings "nitro.max_indexes = 100"; crash; start
    for i in $(seq $n); do echo "EXPLAIN SELECT * FROM t$i WHERE f(i) = 1; EXPLAIN SELECT * FROM t$i WHERE f_gate(i) = 1;"; done | "${PSQL[@]}" -p "$(port)" > /dev/null
    sql "SELECT count(*) FROM last WHERE i = 1" > /dev/null
    no_builders
    assert_eq "indexes" "$(sql "SELECT indexes FROM nitro_memory")" 100
    # Indexes without a place are not used, and do not hinder writers.
    for i in $(seq 1 7 $n); do
        sql "INSERT INTO t$i SELECT generate_series(101, 110); DELETE FROM t$i WHERE i < 3; VACUUM t$i"
        assert_eq "t$i" "$(sql "SET enable_seqscan = off; SELECT count(*) FROM t$i WHERE f(i) > 0 AND f_gate(i) > 0")" 108
    done
    [[ $("${PSQL[@]}" -p "$(port)" -c "DO \$\$ BEGIN FOR k IN 1..$n LOOP PERFORM nitro_verify(format('t%s_nitro', k)::regclass); END LOOP; END \$\$" 2>&1) == *"too many nitro indexes in memory"* ]] || fail "all have a place"
    settings "nitro.max_indexes = 400"; crash; start
    for i in $(seq 1 7 $n); do verified "t$i"; done; verified last
    for i in $(seq $n); do echo "DROP TABLE t$i;"; done | sql "$(cat)"
    sql "DROP TABLE last"; settled "all are dropped" "$empty"
}

run all_come_back

run full_directory

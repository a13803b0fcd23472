#!/usr/bin/env bash
# Unique indexes are made, made anew and dropped CONCURRENTLY beside writers on a few keys. They are
# cancelled, killed and cut off. Once an index is valid there is no duplicate and every row is in it.
# Invalid remains hinder no statement.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
note "seed $NITRO_SEED"
new_server -c "deadlock_timeout = 50ms" -c "log_min_messages = fatal" -c "max_prepared_transactions = 30"
[ "$(major)" -ge 18 ] || { note "left out: before 18 core takes no unique index of another access method"; exit 0; }
seconds=5; [ -z "$LONG" ] || seconds=120

sql "CREATE TABLE u (id bigserial, k int, j jsonb, n int DEFAULT 0) WITH (autovacuum_enabled = off, fillfactor = 70);
     INSERT INTO u (k) SELECT -i FROM generate_series(1, 600) i"
# Updates of n are HOT for the second one.
kinds=("(k) INCLUDE (n)" "((k + 0)) WHERE k > 0")
valid="EXISTS (SELECT FROM pg_index WHERE indrelid = 'u'::regclass AND indisunique AND indisvalid)"
# The catalogue and the rows in one snapshot.
sql "CREATE FUNCTION duplicates() RETURNS text LANGUAGE sql SET enable_indexscan = off SET enable_indexonlyscan = off SET enable_bitmapscan = off AS
     \$\$ SELECT coalesce(string_agg(k || ' ' || n, ', '), 'none') FROM (SELECT k, count(*) n FROM u WHERE k > 0 GROUP BY k HAVING count(*) > 1) d WHERE $valid \$\$;
     CREATE PROCEDURE look() LANGUAGE plpgsql AS
     \$\$ DECLARE found text; BEGIN LOOP found := duplicates(); IF found <> 'none' THEN RAISE 'duplicates: %', found; END IF; COMMIT; PERFORM pg_sleep(0.002); END LOOP; END \$\$"
statements() {
    awk -v seed="$((NITRO_SEED * 64 + RANDOM % 64))$1" -v gid="$1.$SRANDOM" 'BEGIN {
        srand(seed); print "SET lock_timeout = 300;"
        for (i = 0; i < 200000; i++) { a = key(); b = key(); print pick(int(rand() * 13.5)) }
    }
    function key() { return 1 + int(rand() * 40) }
    # As a client that assumes no other writer: without a unique index there are few duplicates.
    function insert(k) { return "INSERT INTO u (k) SELECT " k " WHERE NOT EXISTS (SELECT FROM u WHERE k = " k ")" }
    function pick(what) {
        if (what < 3) return insert(a) ";"
        if (what == 3) return insert(a) " ON CONFLICT DO NOTHING;"
        if (what == 4) return "UPDATE u SET n = n + 1 WHERE k = " a ";"
        if (what < 7) return "UPDATE u SET k = " a " WHERE k = " b " AND NOT EXISTS (SELECT FROM u WHERE k = " a ");"
        if (what < 9) return "DELETE FROM u WHERE k IN (" a ", " b ");"
        if (what == 9) return "BEGIN; " insert(a) "; SAVEPOINT s; DELETE FROM u WHERE k = " b "; ROLLBACK TO s; " insert(b) "; COMMIT;"
        if (what == 10) return "BEGIN; DELETE FROM u WHERE k = " a "; " insert(a) "; SELECT pg_sleep(random() * 0.01); " (rand() < 0.5 ? "COMMIT;" : "ROLLBACK;")
        if (what == 11) return "BEGIN; " insert(a) "; SELECT pg_sleep(random() * 0.01); " insert(b) "; COMMIT;"
        if (what == 12 && rand() < 0.1) return "BEGIN; DELETE FROM u WHERE k = " a "; " insert(a) "; PREPARE TRANSACTION \047" gid "." i "\047;"
        return "SELECT format(\047%s PREPARED %L\047, CASE WHEN random() < 0.6 THEN \047COMMIT\047 ELSE \047ROLLBACK\047 END, gid) FROM pg_prepared_xacts ORDER BY random() LIMIT 4 \\gexec"
    }'
}
others=()
write() {
    local i
    for i in 1 2 3 4 5 6; do
        statements $i > "$NITRO_TMP/statements.$i"
        "${PSQL[@]}" -p "$(port)" -f "$NITRO_TMP/statements.$i" > "$NITRO_TMP/said.$i" 2>&1 & others+=($!)
    done
    "${PSQL[@]}" -p "$(port)" -c "CALL look()" >> "$NITRO_TMP/seen" 2>&1 & others+=($!)
    (while true; do timeout 10 "${PSQL[@]}" -p "$(port)" <<< "SELECT format('%s PREPARED %L', CASE WHEN random() < 0.6 THEN 'COMMIT' ELSE 'ROLLBACK' END, gid) FROM pg_prepared_xacts \gexec"; sleep 0.05; done > "$NITRO_TMP/ended" 2>&1) & others+=($!)
}
gone() {
    kill "${others[@]}" 2> /dev/null || true
    wait "${others[@]}" 2> /dev/null || true
    others=()
}
seen() { grep -q "duplicates:" "$NITRO_TMP/seen"; }
: > "$NITRO_TMP/seen"
built=0 refused=0 cancelled=0
# One statement. Some are cancelled.
one() {
    local out pid
    out=$NITRO_TMP/one
    PGAPPNAME=ddl "${PSQL[@]}" -p "$(port)" -c "$1" > "$out" 2>&1 & pid=$!
    random 3
    if [ "$REPLY" = 0 ]; then
        random 150; sleep "0.$(printf %03d "$REPLY")"
        glance "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'ddl'" > /dev/null
    fi
    wait "$pid" || true
    case $(cat "$out") in
        *"could not create unique index"* | *"duplicate key value"*) refused=$((refused + 1)) ;;
        *"canceling statement"*) cancelled=$((cancelled + 1)) ;;
        *ERROR* | *FATAL* | *server\ closed* | *connection*) grep -qE 'deadlock|does not exist|already exists|terminating|closed|connection|could not serialize|lock timeout|REINDEX.*invalid' "$out" || fail "$1: $(cat "$out")" ;;
        *) [[ $1 != *"UNIQUE"* ]] || built=$((built + 1)) ;;
    esac
    : > "$out"
}
dedupe="SET lock_timeout = '1s'; DELETE FROM u WHERE ctid IN (SELECT a.ctid FROM u a JOIN u b ON b.k = a.k AND a.id > b.id WHERE a.k > 0 FOR UPDATE OF a SKIP LOCKED)"
storm() {
    local end=$((SECONDS + seconds)) left
    while [ $SECONDS -lt $end ] && ! seen; do
        random 10
        case $REPLY in
            0) one "DROP INDEX CONCURRENTLY IF EXISTS u_k" ;;
            1 | 2) one "REINDEX INDEX CONCURRENTLY u_k" ;;
            3) one "REINDEX TABLE CONCURRENTLY u" ;;
            4) one "VACUUM (INDEX_CLEANUP on) u" ;;
            5) one "REINDEX INDEX u_k" ;;
            6) for left in $(glance "SELECT indexrelid::regclass FROM pg_index WHERE indrelid = 'u'::regclass AND NOT indisvalid"); do one "DROP INDEX CONCURRENTLY $left"; done ;;
            *) glance "$dedupe" > /dev/null
                one "CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS u_k ON u USING nitro $columns" ;;
        esac
    done
}
# Ends the writers and the prepared transactions, and removes the remains.
still() {
    local gid left
    gone
    wait_until "SELECT count(pg_terminate_backend(pid)) = 0 FROM pg_stat_activity WHERE application_name IN ('psql', 'ddl') AND pid <> pg_backend_pid()"
    for gid in $(sql "SELECT gid FROM pg_prepared_xacts"); do sql "COMMIT PREPARED '$gid'"; done
    assert_eq "duplicates" "$(sql "SELECT duplicates()")" none
    ! grep "duplicates:" "$NITRO_TMP/seen" || fail "$1"
    ! cat "$NITRO_TMP"/said.* | grep -E "ERROR|FATAL|PANIC" | grep -vE 'duplicate key value|deadlock detected|lock timeout|current transaction is aborted|does not exist|SAVEPOINT|savepoint|is busy|server closed|terminating|connection|command a second time|cannot PREPARE|maximum number of prepared|because of crash|concurrent' || fail "a writer met another error"
    for left in $(sql "SELECT indexrelid::regclass FROM pg_index WHERE indrelid = 'u'::regclass AND indisvalid"); do sql "SELECT nitro_verify('$left', true)" > /dev/null; done
    # Indexes left invalid take rows, and are dropped.
    sql "BEGIN; INSERT INTO u (k) SELECT max(k) + 1 FROM u; ROLLBACK; VACUUM u"
    for left in $(sql "SELECT indexrelid::regclass FROM pg_index WHERE indrelid = 'u'::regclass"); do sql "DROP INDEX CONCURRENTLY $left"; done
    wait_until "SELECT indexes = 0 FROM nitro_memory"
    assert_eq "memory" "$(sql "SELECT used, indexes FROM nitro_memory")" "$empty"
    note "$1: $built done, $refused refused, $cancelled cancelled, $(cat "$NITRO_TMP"/said.* | grep -c "duplicate key") duplicates refused"
}
sql "CREATE INDEX warm ON u USING nitro (k); DROP INDEX warm"
wait_until "SELECT indexes = 0 FROM nitro_memory"
empty=$(sql "SELECT used, indexes FROM nitro_memory")
note "empty: $empty"
for round in 1 2; do
    columns=${kinds[round - 1]}
    write; storm
    ! seen || fail "$(cat "$NITRO_TMP/seen")"
    # Power fails in the middle of a statement, and the writers go on at once.
    random 2; what=("CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS u_k ON u USING nitro $columns" "REINDEX TABLE CONCURRENTLY u")
    "${PSQL[@]}" -p "$(port)" -c "${what[REPLY]}" > "$NITRO_TMP/one" 2>&1 & others+=($!)
    random 150; sleep "0.$(printf %03d "$REPLY")"
    crash; gone; start; write; storm
    ! seen || fail "$(cat "$NITRO_TMP/seen")"
    still "round $round"
done

#!/usr/bin/env bash
# Randomized: concurrent writers on a table whose columns have a nitro and a btree index each; VACUUM, REINDEX and
# queries beside them, servers that end in every way; all plans must agree, all the time.
# NITRO_SEED repeats the statements of every writer (not their interleaving); LONG=1 runs for ten minutes.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
note "seed $NITRO_SEED"
here=$(dirname "$0") duration=${LONG:+600}; duration=${duration:-45} writers=4
new_server -c "deadlock_timeout = 100ms" -c "maintenance_work_mem = 1MB" -c "log_min_messages = log"

# The server of most users sorts by a linguistic collation.
for locale in en_US.UTF-8 C.UTF-8 C; do
    ! "${PSQL[@]}" -p "$(port)" -c "CREATE DATABASE d TEMPLATE template0 LOCALE '$locale'" 2> /dev/null || break
done
note "default collation $locale"
export PGDATABASE=d
sql "CREATE EXTENSION nitro; CREATE TABLE d (id bigserial PRIMARY KEY, i int, t text, ts timestamptz, n numeric, f float8, pad text DEFAULT '') WITH (fillfactor = 80)"
sql "INSERT INTO d (i, t, ts, n, f) SELECT g % 1000, 'w' || g % 300, '2024-01-01'::timestamptz + g % 4000 * interval '1 min', g % 100, g / 4.0 FROM generate_series(1, 4000) g"
declare -A definition=([i]="(i)" [t]="(t)" [ts]="(ts DESC NULLS LAST, i)" [m]="(i DESC, t, ts NULLS FIRST)" [p]="(n) WHERE i > 500"
    [x]="(lower(t), (i % 10))" [c]="(f) INCLUDE (t, n)")
for k in "${!definition[@]}"; do
    sql "CREATE INDEX d_${k}_nitro ON d USING nitro ${definition[$k]}; CREATE INDEX d_${k}_btree ON d ${definition[$k]}"
done
sql "VACUUM ANALYZE d"

questions() { # sets q: random queries, one for every index and kind of plan
    local a b w
    random 2000; a=$((REPLY - 500)); random 400; b=$((a + REPLY))
    w=$(awk -v seed="$RANDOM" 'BEGIN { srand(seed); split("ost Zebra coop a A o strasse bulk2 w2 été", w, " "); print w[1 + int(rand() * 10)] }')
    q=("SELECT i FROM d WHERE i BETWEEN $a AND $b ORDER BY i" "SELECT i FROM d WHERE i BETWEEN $a AND $b ORDER BY i DESC"
        "SELECT i FROM d ORDER BY i" "SELECT i FROM d WHERE i > $a ORDER BY i LIMIT 50" "SELECT * FROM d WHERE i IS NULL" "SELECT * FROM d WHERE i = $a"
        "SELECT i, count(*) FROM d WHERE i IN ($a, $b, 7, 700, NULL, 999999) GROUP BY i ORDER BY i" "SELECT min(i), max(i), min(t), max(t), max(ts) FROM d WHERE i > $a"
        "SELECT t FROM d ORDER BY t DESC" "SELECT t FROM d WHERE t >= '$w' ORDER BY t LIMIT 500" "SELECT id, t FROM d WHERE t < '$w'" "SELECT * FROM d WHERE t IN ('$w', 'ost', 'Ost', 'öst')"
        "SELECT ts, i FROM d WHERE ts > '2024-01-02' ORDER BY ts DESC NULLS LAST, i" "SELECT ts, i FROM d WHERE ts IS NOT NULL AND i < $a ORDER BY ts NULLS FIRST, i DESC"
        "SELECT i, t, ts FROM d WHERE i < $b AND t > '$w' ORDER BY i DESC, t, ts NULLS FIRST" "SELECT i, t, ts, pad FROM d WHERE i IN ($a, $b, 5) AND t IS NOT NULL"
        "SELECT n FROM d WHERE i > 500 AND n > -50" "SELECT id, n FROM d WHERE i > 600 AND n IN (1, 1.0, 2, 3.50)"
        "SELECT lower(t) AS l, i % 10 AS m FROM d WHERE lower(t) >= lower('$w') ORDER BY lower(t), i % 10" "SELECT * FROM d WHERE lower(t) = lower('$w') AND i % 10 < 5"
        "SELECT f, t, n FROM d WHERE f BETWEEN -100 AND 100" "SELECT f, t, n FROM d WHERE f = 'NaN' OR f = 0" "SELECT a.id, b.id AS other FROM d a JOIN d b ON a.i = b.i AND a.f = b.f WHERE a.i BETWEEN $a AND $b")
}
some_answers() { # N of them, beside writers and maintenance, which may have taken the index away
    local q any_plan=1; questions
    for _ in $(seq "$1"); do random ${#q[@]}; same_answers d "${q[REPLY]}"; done
}
all_answers() { local q; questions; same_answers d "${q[@]}"; }

# Anything but what belongs to concurrency and to a server that goes away.
unexpected='(ERROR|FATAL|PANIC)'
expected='deadlock detected|could not serialize|current transaction is aborted|terminating connection|shutting down|starting up|canceling|in recovery mode|not yet accepting|SAVEPOINT can only|savepoint "s" does not|ROLLBACK TO SAVEPOINT can only|RELEASE SAVEPOINT can only'
check_writers() {
    ! grep -hE "$unexpected" "$NITRO_TMP"/writer.*.out "$NITRO_TMP"/maintenance.out | grep -vE "$expected" || fail "unexpected errors of writers"
}

maintenance() { # beside the writers
    local k all=(i t ts m p x c) act
    while [ -f "$NITRO_TMP/go" ]; do
        k=${all[RANDOM % 7]}
        random 10
        case $REPLY in
            0) act=(-c "REINDEX INDEX CONCURRENTLY d_${k}_nitro") ;;
            1) act=(-c "REINDEX INDEX d_${k}_nitro") ;;
            2) act=(-c "DROP INDEX CONCURRENTLY d_${k}_nitro" -c "CREATE INDEX CONCURRENTLY d_${k}_nitro ON d USING nitro ${definition[$k]}") ;;
            3) act=(-c "ANALYZE d") ;;
            4) act=(-c "VACUUM (INDEX_CLEANUP off) d") ;;
            *) act=(-c "VACUUM (INDEX_CLEANUP on) d") ;;
        esac
        "${PSQL[@]}" -p "$(port)" "${act[@]}" 2>&1 || sleep 0.1
    done > "$NITRO_TMP/maintenance.out"
}

for ((round = 1; round < 4 || SECONDS < duration; round++)); do
    top=$(sql "SELECT max(id) FROM d")
    touch "$NITRO_TMP/go"
    pids=()
    for w in $(seq $writers); do
        f=$NITRO_TMP/writer.$w
        awk -v seed=$((NITRO_SEED * 1000 + round * 10 + w)) -v n=$((${LONG:+4}00 + 300)) -v top="$top" -v copies="$f.copy" -f "$here/actions.awk" > "$f.sql"
        "${PSQL[@]}" -p "$(port)" -f "$f.sql" > "$f.out" 2>&1 & pids+=($!)
    done
    RANDOM=$(((NITRO_SEED + round * 7) % 32768))
    maintenance & maintenance=$!
    some_answers 4
    random 5
    case $REPLY in
        0) end=crash; crash ;;
        1) end="immediate stop"; stop immediate ;;
        2) end="killed backend"; p=$(sql "SELECT pid FROM pg_stat_activity WHERE datname = 'd' AND state = 'active' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1")
           kill_backend "$p" || end="$end, too late" ;;
        3) end="clean restart"; stop ;;
        4) end="no end" ;;
    esac
    rm "$NITRO_TMP/go"
    wait "${pids[@]}" "$maintenance" || true
    check_writers
    [ -f "$(data)/postmaster.pid" ] || start
    # A crash may have left a half of REINDEX or CREATE INDEX CONCURRENTLY.
    for left in $(sql "SELECT indexrelid::regclass FROM pg_index WHERE indrelid = 'd'::regclass AND (NOT indisvalid OR indexrelid::regclass::text LIKE '%\_cc%')"); do
        sql "DROP INDEX $left"
    done
    for k in "${!definition[@]}"; do sql "CREATE INDEX IF NOT EXISTS d_${k}_nitro ON d USING nitro ${definition[$k]}" 2> /dev/null; done
    verified d
    all_answers
    note "round $round: $(sql "SELECT count(*) FROM d") rows, $end"
    # Keeps the table at a size that a round can turn over.
    sql "DELETE FROM d WHERE id % 3 <> $round % 3 AND (SELECT count(*) FROM d) > 20000"
done
sql "VACUUM (INDEX_CLEANUP on) d"
verified d; all_answers

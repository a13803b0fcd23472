# tests/random.sh: the table d of the randomized tests, which actions.awk writes to. Sourced after answers.sh.
#
#   random_database NAME    with the collation of most users, a linguistic one, where the machine has it
#   random_table            d, every index of it once as nitro and once as btree; definition[...] has their columns
#   some_answers N          N random queries, beside writers and maintenance, which may have removed the index
#   all_answers             all of them, with a look at the plans; all_answers N: only N of them
#   check_errors FILE...    the test fails if psql wrote an unexpected error there
declare -A definition=([i]="(i)" [t]="(t)" [k]='(t COLLATE "C", id)' [ts]="(ts DESC NULLS LAST, i)" [m]="(i DESC, t, ts NULLS FIRST)"
    [p]="(n) WHERE i > 500" [x]="(lower(t), (i % 10))" [c]="(f) INCLUDE (t, n)")

random_database() {
    local locale
    for locale in en_US.UTF-8 C.UTF-8 C; do
        ! "${PSQL[@]}" -p "$(port)" -c "CREATE DATABASE $1 TEMPLATE template0 LOCALE '$locale'" 2> /dev/null || break
    done
    note "default collation of database $1: $locale"
    PGDATABASE=$1 sql "CREATE EXTENSION nitro"
}
random_table() {
    local k
    sql "CREATE TABLE d (id bigserial PRIMARY KEY, i int, t text, ts timestamptz, n numeric, f float8, pad text DEFAULT '') WITH (fillfactor = 80)"
    sql "INSERT INTO d (i, t, ts, n, f) SELECT g % 1000, 'w' || g % 300, '2024-01-01'::timestamptz + g % 4000 * interval '1 min', g % 100, g / 4.0 FROM generate_series(1, 4000) g"
    for k in "${!definition[@]}"; do
        sql "CREATE INDEX d_${k}_nitro ON d USING nitro ${definition[$k]}; CREATE INDEX d_${k}_btree ON d ${definition[$k]}"
    done
    sql "VACUUM ANALYZE d"
}

questions() { # sets q: random queries, one for every index and kind of plan
    local a b w
    random 2000; a=$((REPLY - 500)); random 400; b=$((a + REPLY))
    w=$(awk -v seed="$RANDOM" 'BEGIN { srand(seed); split("ost Zebra coop a A o strasse bulk2 w2 été", w, " "); print w[1 + int(rand() * 10)] }')
    q=("SELECT i FROM d WHERE i BETWEEN $a AND $b ORDER BY i" "SELECT i FROM d WHERE i BETWEEN $a AND $b ORDER BY i DESC"
        "SELECT i FROM d ORDER BY i" "SELECT i FROM d WHERE i > $a ORDER BY i LIMIT 50" "SELECT * FROM d WHERE i IS NULL" "SELECT * FROM d WHERE i = $a"
        "SELECT i, count(*) FROM d WHERE i IN ($a, $b, 7, 700, NULL, 999999) GROUP BY i ORDER BY i" "SELECT min(i), max(i), min(t), max(t), max(ts) FROM d WHERE i > $a"
        "SELECT t FROM d ORDER BY t DESC" "SELECT t FROM d WHERE t >= '$w' ORDER BY t LIMIT 500" "SELECT id, t FROM d WHERE t < '$w'" "SELECT * FROM d WHERE t IN ('$w', 'ost', 'Ost', 'öst')"
        "SELECT t, id FROM d WHERE t COLLATE \"C\" >= '$w' ORDER BY t COLLATE \"C\", id LIMIT 500" "SELECT * FROM d WHERE t COLLATE \"C\" < '$w' AND id % 7 = 1"
        "SELECT ts, i FROM d WHERE ts > '2024-01-02' ORDER BY ts DESC NULLS LAST, i" "SELECT ts, i FROM d WHERE ts IS NOT NULL AND i < $a ORDER BY ts NULLS FIRST, i DESC"
        "SELECT i, t, ts FROM d WHERE i < $b AND t > '$w' ORDER BY i DESC, t, ts NULLS FIRST" "SELECT i, t, ts, pad FROM d WHERE i IN ($a, $b, 5) AND t IS NOT NULL"
        "SELECT n FROM d WHERE i > 500 AND n > -50" "SELECT id, n FROM d WHERE i > 600 AND n IN (1, 1.0, 2, 3.50)"
        "SELECT lower(t) AS l, i % 10 AS m FROM d WHERE lower(t) >= lower('$w') ORDER BY lower(t), i % 10" "SELECT * FROM d WHERE lower(t) = lower('$w') AND i % 10 < 5"
        "SELECT f, t, n FROM d WHERE f BETWEEN -100 AND 100" "SELECT f, t, n FROM d WHERE f = 'NaN' OR f = 0" "SELECT a.id, b.id AS other FROM d a JOIN d b ON a.i = b.i AND a.f = b.f WHERE a.i BETWEEN $a AND $b")
}
some_answers() {
    local any_plan=1
    all_answers "$1"
}
all_answers() {
    local q; questions
    if [ -z "${1:-}" ]; then same_answers d "${q[@]}"; return; fi
    for _ in $(seq "$1"); do random ${#q[@]}; same_answers d "${q[REPLY]}"; done
}

# Errors of concurrency, and of a server that goes away.
expected='deadlock detected|could not serialize|current transaction is aborted|terminating connection|shutting down|starting up|canceling|in recovery mode|not yet accepting|SAVEPOINT can only|savepoint "s" does not|ROLLBACK TO SAVEPOINT can only|RELEASE SAVEPOINT can only'
check_errors() {
    if grep -hE '(ERROR|FATAL|PANIC)' "$@" | grep -vE "$expected" > "$NITRO_TMP/unexpected"; then
        grep -hF -A 4 -f "$NITRO_TMP/unexpected" "$@" # with DETAIL
        fail "unexpected errors"
    fi
}

#!/usr/bin/env bash
# Randomized: concurrent writers on a table whose columns have a nitro and a btree index each. VACUUM,
# REINDEX and queries run beside them, and servers end in every way. All plans must agree, all the time.
# NITRO_SEED repeats the statements of every writer (not their interleaving). LONG=1 runs for ten minutes.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/random.sh"
# A killed process may have been between the DROP and the CREATE of its action.
expected+='|"d_[a-z]*_nitro[a-z_]*" does not exist'
note "seed $NITRO_SEED"
here=$(dirname "$0") duration=${LONG:+600}; duration=${duration:-45} writers=4
# Much more memory than the indexes need at any time.
new_server -c "nitro.max_memory = 128MB" -c "deadlock_timeout = 100ms" -c "maintenance_work_mem = 1MB" -c "log_min_messages = log" -c "checkpoint_timeout = 30s"

random_database d
export PGDATABASE=d
random_table

maintenance() { # beside the writers
    local k all=("${!definition[@]}") act
    while [ -f "$NITRO_TMP/go" ]; do
        k=${all[RANDOM % ${#all[@]}]}
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
    check_errors "$NITRO_TMP"/writer.*.out "$NITRO_TMP/maintenance.out"
    [ -f "$(data)/postmaster.pid" ] || start
    # A crash may have left a half of REINDEX or CREATE INDEX CONCURRENTLY.
    for left in $(sql "SELECT indexrelid::regclass FROM pg_index WHERE indrelid = 'd'::regclass AND (NOT indisvalid OR indexrelid::regclass::text LIKE '%\_cc%')"); do
        sql "DROP INDEX $left"
    done
    for k in "${!definition[@]}"; do sql "CREATE INDEX IF NOT EXISTS d_${k}_nitro ON d USING nitro ${definition[$k]}" 2> /dev/null; done
    verified d
    all_answers
    note "round $round: $(sql "SELECT count(*) FROM d") rows, $end"
    # Keeps the table at a size that a round can replace.
    sql "DELETE FROM d WHERE id % 3 <> $round % 3 AND (SELECT count(*) FROM d) > 20000"
done
sql "VACUUM (INDEX_CLEANUP on) d"
verified d; all_answers

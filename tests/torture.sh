#!/usr/bin/env bash
# Torture: random writers and maintenance on tables in two databases. Servers and processes end in every
# way. Images, WAL and settings change while the server is down. After each end every index must be whole
# and every plan must give the same answers. Both ways of bringing an index up must have occurred.
# NITRO_SEED repeats the statements (not their interleaving). LONG=1 runs for 15 minutes.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/random.sh"
note "seed $NITRO_SEED"
here=$(dirname "$0") duration=${LONG:+900}; duration=${duration:-45}
# WAL goes as soon as it may. No session waits long for the locks of a prepared transaction.
new_server -c "nitro.pack = on" -c "deadlock_timeout = 100ms" -c "log_min_messages = log" -c "maintenance_work_mem = 1MB" -c "min_wal_size = 32MB" \
    -c "max_wal_size = 64MB" -c "wal_keep_size = 0" -c "max_prepared_transactions = 10" -c "include_if_exists = 'life.conf'"

# A table is named by its database and schema.
tables=(one:public one:other two:public)
at() { export PGDATABASE=${1%:*} PGOPTIONS="-c search_path=${1#*:},public"; }
impatient() { PGOPTIONS+=" -c lock_timeout=1s" "${PSQL[@]}" -p "$(port)" "$@" 2>&1; }
everywhere() { local place; for place in "${tables[@]}"; do at "$place"; "$@"; done; at one:public; }
for database in one two; do random_database $database; done
PGDATABASE=one sql "CREATE SCHEMA other"
everywhere random_table
every_image="SELECT format('SELECT ''right: '' || nitro_verify_images(%L)', indexrelid::regclass) FROM pg_index JOIN pg_class c ON c.oid = indexrelid
    WHERE relam = (SELECT oid FROM pg_am WHERE amname = 'nitro') AND indrelid = 'd'::regclass AND indisvalid ORDER BY 1 \\gexec"
expected+='|cannot verify "|gave up the image of index|"d_[a-z]*_nitro[a-z_]*" does not exist'

# --- what goes on ------------------------------------------------------------------------------------
writer() { # SEED: the statements of actions.awk on the table of the environment
    local f=$NITRO_TMP/writer.$1 top
    top=$(sql "SELECT coalesce(max(id), 1) FROM d")
    awk -v seed="$1" -v n=3000 -v top="$top" -v copies="$f.copy" -f "$here/actions.awk" > "$f.sql"
    impatient -f "$f.sql" > "$f.out" &
}
# One transaction that lives longer than an image takes. One of its statements alone does so, too. Some
# transactions are left prepared.
straddler() { # SEED
    local f=$NITRO_TMP/straddler.$1 a end inner
    random 1500; a=$REPLY
    random 3; end=("COMMIT" "ROLLBACK" "PREPARE TRANSACTION 'p$1'"); end=${end[REPLY]}
    random 2; inner=("ROLLBACK TO s" "RELEASE s"); inner=${inner[REPLY]}
    cat > "$f.sql" <<E
BEGIN;
INSERT INTO d (i, t, ts, n, f) SELECT $a + g, 'before' || g, '2024-01-03', g % 30, g FROM generate_series(1, 40) g;
SAVEPOINT s;
UPDATE d SET i = i + 1 WHERE id % 97 = $((a % 97));
$inner;
INSERT INTO d (i, t, ts, n, f) SELECT $a - g, 'within' || g, '2024-01-04', g % 40, -g FROM generate_series(1, 60) g WHERE pg_sleep(g % 3 * 0.02) IS NOT NULL;
UPDATE d SET t = 'moved' || $a WHERE id % 101 = $((a % 101));
$end;
E
    impatient -f "$f.sql" > "$f.out" &
}
act() { # sets statements: some maintenance of the table
    local k all=("${!definition[@]}")
    random ${#all[@]}; k=${all[REPLY]}
    random 18
    case $REPLY in
        0 | 1) statements=("REINDEX INDEX CONCURRENTLY d_${k}_nitro") ;;
        2) statements=("REINDEX INDEX d_${k}_nitro") ;;
        3) statements=("DROP INDEX CONCURRENTLY IF EXISTS d_${k}_nitro" "CREATE INDEX CONCURRENTLY IF NOT EXISTS d_${k}_nitro ON d USING nitro ${definition[$k]}") ;;
        4) statements=("DROP INDEX IF EXISTS d_${k}_nitro" "CREATE INDEX IF NOT EXISTS d_${k}_nitro ON d USING nitro ${definition[$k]}") ;;
        5) statements=("BEGIN; DROP INDEX IF EXISTS d_${k}_nitro; TRUNCATE d; INSERT INTO d (i) SELECT generate_series(1, 50); ROLLBACK") ;;
        6) statements=("VACUUM FULL d") ;;
        7) statements=("VACUUM (FREEZE, INDEX_CLEANUP on) d") ;;
        8) statements=("VACUUM (INDEX_CLEANUP off) d") ;;
        9) statements=("DELETE FROM d WHERE id > (SELECT max(id) - 400 FROM d)" "VACUUM (TRUNCATE on, INDEX_CLEANUP on) d") ;;
        10) statements=("ANALYZE d") ;;
        11 | 12) statements=("SELECT pg_switch_wal()" "CHECKPOINT") ;;
        *) statements=("VACUUM (INDEX_CLEANUP on) d") ;;
    esac
}
maintenance() { # SEED
    local place statements
    RANDOM=$1
    while [ -f "$NITRO_TMP/go" ]; do
        random ${#tables[@]}; place=${tables[REPLY]}
        act
        (at "$place"; impatient "${statements[@]/#/-c}") || sleep 0.1
    done > "$NITRO_TMP/maintenance.out"
}
# Images are begun all the time, in one database or by the keeper in both. They stop
# some time before the end, so that much happens after the last image.
images() { # SEED
    local statement
    RANDOM=$1
    while [ -f "$NITRO_TMP/imaging" ]; do
        random 2; statement="SELECT nitro_backup()"
        [ "$REPLY" = 0 ] || statement=CHECKPOINT
        random ${#tables[@]}
        # All images, not only the last one before the end.
        (at "${tables[REPLY]}"; impatient -c "$statement" && impatient <<< "$every_image") || true
        random 5; sleep "0.$REPLY"
    done >> "$NITRO_TMP/images.out"
}

# --- how it ends -------------------------------------------------------------------------------------
victim() { # CONDITION on pg_stat_activity: kills one such process, if there is any
    local pid
    for _ in $(seq 20); do
        pid=$(sql "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND $1 ORDER BY random() LIMIT 1")
        ! { [ -n "$pid" ] && kill_backend "$pid"; } || return 0
        sleep 0.05
    done
    end+=", too late"
}
# Without its postmaster a backend goes on until it has nothing to do.
orphan() {
    local p children
    p=$(postmaster)
    kill -STOP "$p"                 # it starts nobody whom this does not see
    until [[ $(ps -o state= -p "$p") == T* ]]; do sleep 0.01; done
    children=$(ps -o pid= --ppid "$p")
    kill -KILL "$p"
    for p in $p $children; do while kill -0 "$p" 2> /dev/null; do sleep 0.02; done; done
    rm "$(data)/postmaster.pid"
}
end_somehow() { # sets end
    random 9
    case $REPLY in
        0 | 1) end="kill -9 of all"; crash ;;
        2) end="immediate stop"; stop immediate ;;
        3 | 4) end="clean stop"; stop ;;
        5) end="killed postmaster"; orphan ;;
        6) end="killed backend"; victim "backend_type = 'client backend' AND state = 'active'" ;;
        7) end="killed builder"; sql "CHECKPOINT"; victim "backend_type = 'nitro builder'" ;;
        8) end="killed keeper"; victim "backend_type = 'nitro keeper'" ;;
    esac
}
# While the server is down: one file or folder of the images is changed.
damage() {
    local files file other at
    mapfile -t files < <(find "$(data)/pg_nitro" -type f -size +0 2> /dev/null | sort)
    [ ${#files[@]} -gt 0 ] || return 0
    random ${#files[@]}; file=${files[REPLY]}
    random ${#files[@]}; other=${files[REPLY]}
    random "$(stat -c %s "$file")"; at=$REPLY
    random 8
    case $REPLY in
        0 | 1) # a bit
            # shellcheck disable=SC2059
            printf "\\x$(printf %02x $(($(od -An -tu1 -j "$at" -N 1 "$file") ^ 1 << at % 8)))" |
                dd of="$file" bs=1 seek="$at" conv=notrunc status=none ;;
        2) truncate -s "$at" "$file" ;;
        3) head -c 100 "$other" >> "$file" ;;
        4) rm "$file" ;;
        5) rm -r "${file%/*}" ;;
        6) mv "$file" "$file.x"; cp "$other" "$file" 2> /dev/null || true; mv "$file.x" "$other" ;;
        7) # the same file of another generation, or one generation as the other
            for other in "${file%/*/*}"/*/; do
                [ "$other" != "${file%/*}/" ] || continue
                random 2
                if [ "$REPLY" = 0 ]; then mv "$file" "$other"; else rm -r "$other"; mv "${file%/*}" "${other%/}"; fi
                break
            done ;;
    esac
}
# While the server is down: other changes. Sets the settings of its next life.
meanwhile() {
    local n life=
    random 10; n=$((REPLY < 4 ? REPLY * 3 : 0))
    [ $n = 0 ] || end+=", damage"
    for ((; n > 0; n--)); do damage; done
    random 12
    case $REPLY in
        0 | 1) rm -rf "$(data)/pg_replslot/nitro"; end+=", no slot" ;;
        2) rm -rf "$(data)/pg_nitro"; end+=", no images" ;;
    esac
    random 14
    case $REPLY in
        0 | 1) life="nitro.when_loading = skip" ;;
        2 | 3) life="nitro.use_slot = off" ;;
        4 | 5) life="nitro.backup_workers = 4" ;;
        6) life="full_page_writes = off" ;;
        7) life="nitro.backup = off" ;;
        8) life="max_slot_wal_keep_size = 1MB" ;;
        # A server with a slot would refuse this setting.
        9) [ -d "$(data)/pg_replslot/nitro" ] || life=$'wal_level = minimal\nmax_wal_senders = 0' ;;
    esac
    printf '%s\n' "$life" > "$(data)/life.conf"
    end+="${life:+, ${life//$'\n'/, }}"
}

# --- requirements ------------------------------------------------------------------------------------
whole() {
    sql "SELECT format('SELECT nitro_verify(%L, true)', indexrelid::regclass) FROM pg_index i JOIN pg_class c ON c.oid = indexrelid
         WHERE relam = (SELECT oid FROM pg_am WHERE amname = 'nitro') AND indrelid = 'd'::regclass AND indisvalid ORDER BY 1 \\gexec" > /dev/null
}
# Prepared transactions block DDL and the use of new indexes: existing indexes are used before they end.
look() { some_answers 2; }
settle() {
    local p
    for p in $(sql "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() ORDER BY 1"); do
        random 2
        if [ "$REPLY" = 0 ]; then sql "COMMIT PREPARED '$p'"; else sql "ROLLBACK PREPARED '$p'"; fi
    done
    some_answers 1
}
tidy() {
    local left k
    # A crash may have left a half of REINDEX or CREATE INDEX CONCURRENTLY.
    for left in $(sql "SELECT indexrelid::regclass FROM pg_index WHERE indrelid = 'd'::regclass AND (NOT indisvalid OR indexrelid::regclass::text LIKE '%\_cc%')"); do
        sql "DROP INDEX $left"
    done
    sql "SET client_min_messages = warning; $(for k in "${!definition[@]}"; do echo "CREATE INDEX IF NOT EXISTS d_${k}_nitro ON d USING nitro ${definition[$k]};"; done)"
    whole
    all_answers 4
    # Keeps the table at a size that a round can replace.
    sql "DELETE FROM d WHERE id % 3 <> $round % 3 AND (SELECT count(*) FROM d) > 8000"
}

at one:public
for ((round = 1; round < 5 || SECONDS < duration; round++)); do
    touch "$NITRO_TMP"/{go,imaging}
    rm -f "$NITRO_TMP"/{writer,straddler}.*
    seed=$(((NITRO_SEED * 100 + round) * 10))
    for i in "${!tables[@]}"; do
        at "${tables[i]}"
        writer $((seed + i)); straddler $((seed + i))
        [ "$i" != 0 ] || writer $((seed + 9))
    done
    at one:public
    RANDOM=$(((NITRO_SEED + round * 7) % 32768))
    maintenance $(((NITRO_SEED + round * 11) % 32768)) &
    images $(((NITRO_SEED + round * 13) % 32768)) &
    some_answers 2
    random 2000; sleep "$((REPLY / 1000)).$(printf %03d $((REPLY % 1000)))"
    rm "$NITRO_TMP/imaging"
    # Memory that VACUUM frees is used again before the end.
    everywhere impatient -c "VACUUM (INDEX_CLEANUP on) d" >> "$NITRO_TMP/vacuum.out" || true
    random 1000; sleep "0.$(printf %03d "$REPLY")"
    case $round in
        1) end="kill -9 of all"; crash ;;
        2) end="clean stop, no images"; stop; rm -r "$(data)/pg_nitro" ;;
        *) end_somehow ;;
    esac
    rm "$NITRO_TMP/go"
    wait
    check_errors "$NITRO_TMP"/{writer,straddler}.*.out "$NITRO_TMP"/{maintenance,images,vacuum}.out
    if [ ! -f "$(data)/postmaster.pid" ]; then
        [ $round -lt 3 ] || meanwhile
        start
        random 4
        if [ "$REPLY" = 0 ]; then # while images are being loaded
            random 300; sleep "0.$(printf %03d "$REPLY")"
            crash; start; end+=", once more"
        fi
    fi
    everywhere look
    everywhere settle
    everywhere tidy
    note "round $round: $(sql "SELECT count(*) FROM d") rows; $end"
done
everywhere sql "VACUUM (INDEX_CLEANUP on) d"
everywhere whole
everywhere all_answers

loaded=$(logged 'loaded from its image') rebuilt=$(logged 'rebuilt from its table')
note "$loaded times an index was loaded from its image ($(logged 'comparing the pages') by page LSN), $rebuilt times rebuilt, $(logged 'image is not used') times refused"
[ "$loaded" -gt 0 ] || fail "no index came from an image"
[ "$rebuilt" -gt 0 ] || fail "no index was rebuilt"
[ "$(awk '/^right: / { n += $2 } END { print n + 0 }' "$NITRO_TMP/images.out")" -gt 0 ] || fail "no image was checked"

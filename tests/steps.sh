#!/usr/bin/env bash
# Every pair of steps of two actors. A is stopped behind one of its steps (nitro.debug_stop). B goes to one
# of its own steps or to its end, or waits for A. Then A goes on or is cancelled, and B after it; or the
# server crashes. Answers are compared then, after a crash, and after TIDs were used again. A sample stops
# some A once behind each step. LONG=1: all. STEPS="go load LoadRead insert" (FATE A POINT B [POINT]): this
# pair. See docs/testing.md.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"
. "$(dirname "$0")/by_hand.sh"
note "seed $NITRO_SEED"
new_server "${by_hand[@]}" -c "max_parallel_maintenance_workers = 0" -c "max_parallel_workers_per_gather = 0" -c "nitro.max_loading_wait = 100ms"
# builders.sh tests the end of a process, standby_images of the crate a standby. when_full.sh tests an index
# that is given up for lack of memory.
points=$(sql "SELECT unnest(enumvals) FROM pg_settings WHERE name = 'nitro.debug_stop'" | grep -v '^None$\|^Exit\|^Keeper\|^Key[LRC]\|^Aggregate\|^PartSeized\|^Retired\|^Share\|^TakeOver\|^Standby\|^Drain' | sort || true)
[ -n "$points" ] || { note "left out: not a build for tests"; exit 0; }
# The row fails only in sessions that ask for it.
sql "CREATE FUNCTION fine(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
     'BEGIN IF current_setting(''my.trouble'', true) = ''on'' THEN RAISE ''trouble''; END IF; RETURN i; END'"
baseline=$(sql "SELECT used, indexes FROM nitro_memory")

# --- actors ------------------------------------------------------------------------------------------
walk="WalkCopied WalkInserted WalkEnded WalkReady"
load="LoadClaimed LoadWal LoadRead"
delete="DeleteBegun DeleteLocked DeleteRemoved DeleteUnlocked DeleteFenced DeleteAwaited"
backup="BackupClaimed BackupLsn BackupXid BackupSnapshot BackupTerm"
declare -A steps=(
    [backup]="$backup BackupWritten BackupFlushed BackupCommitted" [refresh]="$backup RefreshFlushed RefreshCommitted"
    [vacuum]="$delete Packed" [drop]="DropCommitted DropFreed" [reindex]="CreateLoaded DropCommitted DropFreed"
    [insert]="InsertInHeap" [late]="InsertInHeap InsertLooked" [query]=""
    [load]="$load LoadPublishes CatchUpWal $walk" [sort]="LoadClaimed LoadWal SortClaimed SortRead SortLoaded SortPublishes CatchUpWal WalkReady" [give_up]="GaveUp" [rebuild]="BuildPublishes WalkCopied WalkInserted WalkEnded Packed WalkReady"
    [cold_vacuum]="$load LoadPublishes DeleteLoaded $delete")
warm=(backup refresh vacuum drop reindex insert late) cold=(load sort give_up rebuild cold_vacuum)
beside_warm=(backup vacuum drop reindex insert query) beside_cold=(load give_up cold_vacuum backup drop reindex insert query)

is_cold() { [[ " ${cold[*]} " == *" $1 "* ]]; }
work() { # ACTOR TABLE: its statements
    case $1 in
        backup | refresh) echo "SELECT nitro_backup('$2_nitro');" ;;
        vacuum | cold_vacuum) echo "VACUUM (INDEX_CLEANUP on, TRUNCATE off) $2; INSERT INTO $2 SELECT 1000 + i, 'again' FROM generate_series(1, 40) i;" ;;
        load | sort | rebuild) echo "SELECT nitro_verify('$2_nitro', false);" ;;
        give_up) echo "SET my.trouble = on; SELECT nitro_verify('$2_nitro', false); RESET my.trouble;" ;;
        drop) echo "DROP INDEX $2_nitro;" ;;
        reindex) echo "REINDEX INDEX $2_nitro;" ;;
        insert | late) echo "INSERT INTO $2 VALUES (501, 'new'); COMMIT;" ;;
        query) echo "SET enable_seqscan = off; SELECT count(*) FROM $2 WHERE fine(k) > 0;" ;;
    esac
}

# --- one pair ----------------------------------------------------------------------------------------
class=1852404850
control() { ask control "$1"; }
prepare() { # TABLE A: an image, then changes that are in none
    local fill=80 pad=60
    # A row a page: a large index with changes in many places is sorted.
    [ "$2" != sort ] || fill=10 pad=700
    sql "CREATE TABLE $1 (k int, pad text) WITH (autovacuum_enabled = off, fillfactor = $fill);
         INSERT INTO $1 SELECT i, repeat('x', $pad) FROM generate_series(1, 300) i;
         CREATE INDEX $1_nitro ON $1 USING nitro (fine(k)); CREATE INDEX $1_btree ON $1 (fine(k));
         SELECT nitro_backup('$1_nitro');
         DELETE FROM $1 WHERE k % 7 = 0; UPDATE $1 SET k = k + 2000 WHERE k % 11 = 0; UPDATE $1 SET pad = '' WHERE k % 13 = 0;
         INSERT INTO $1 SELECT 400 + i, '' FROM generate_series(1, 50) i" > /dev/null
}
# A session that waits behind that point as long as `control` holds the lock.
declare -A process
enter() { # NAME ACTOR POINT TABLE
    session "$1"
    process[$1]=$(ask "$1" "\set VERBOSITY sqlstate
SET nitro.debug_stop = '$3'; SELECT pg_backend_pid()")
    control "SELECT pg_advisory_lock($class, ${process[$1]})" > /dev/null
    case $2 in
        refresh) control "SELECT nitro_backup('$4_nitro')" > /dev/null ;;
        rebuild) ask "$1" "SET nitro.debug_stop = 'None'; $(work give_up "$4") SET nitro.debug_stop = '$3'" > /dev/null ;;
        late)
            ask "$1" "BEGIN; SELECT pg_current_xact_id()" > /dev/null
            control "SELECT nitro_backup('$4_nitro')" > /dev/null ;;
        insert) ask "$1" "BEGIN" > /dev/null ;;
    esac
    tell "$1" "$(work "$2" "$4")
SET application_name = 'ended'"
}
# The state of a session: it stands at its point, waits for the other session, or has ended.
where_is() { # NAME
    local s p=${process[$1]}
    for _ in $(seq 3000); do
        # One look at the locks: a process waits for one at a time.
        s=$(control "SELECT CASE WHEN application_name = 'ended' AND state = 'idle' THEN 'ended'
             ELSE (SELECT CASE WHEN locktype = 'advisory' AND classid = $class THEN 'stopped' ELSE 'waiting' END
                   FROM pg_locks WHERE pid = $p AND NOT granted) END FROM pg_stat_activity WHERE pid = $p")
        [ -z "$s" ] || { REPLY=$s; return; }
        sleep 0.02
    done
    fail "$1 neither stops nor ends nor waits for a lock: $(control "SELECT wait_event, query FROM pg_stat_activity WHERE pid = $p")"
}
release() { control "SELECT pg_advisory_unlock($class, ${process[$1]})" > /dev/null; }
finish() { # NAME
    local out
    out=$(answer "$1")
    out=$(grep -E '^(ERROR|FATAL|PANIC|WARNING)' <<< "$out" | grep -vE ": +($2)\$" || true)
    [ -z "$out" ] || fail "$what: $1 says: $out"
    end "$1"
}
# Outputs that A and B may have: trouble, gone, not ready, in use, gives way, nothing to commit.
say="P0001|42704|42P01|55000|55006|55P03|25P01"

park() { # TABLE A POINT B POINT: leaves both where they are
    what="$2 behind $3, $4 to ${5:-its end}"
    enter "a_$1" "$2" "$3" "$1"; where_is "a_$1"
    assert_eq "$what: A" "$REPLY" stopped
    passed[$3]=1
    enter "b_$1" "$4" "${5:-None}" "$1"; where_is "b_$1"
    seen[$REPLY]=$((${seen[$REPLY]:-0} + 1))
    note "$what: $REPLY"
}
go_on() { # TABLE FATE POINT
    local a=a_$1 b=b_$1 codes=$say
    if [ "$2" = cancel ]; then
        codes+="|57014"
        control "SELECT pg_cancel_backend(${process[$a]})" > /dev/null
        # Between commit and the end of a transaction nothing is cancelled.
        [[ $3 == Drop* ]] || wait_until "SELECT NOT EXISTS (SELECT FROM pg_locks WHERE pid = ${process[$a]} AND classid = $class AND NOT granted)"
    fi
    release "$a"
    # A may wait for B, which stands at its point.
    where_is "$a"
    release "$b"
    finish "$a" "$codes"; finish "$b" "$say"
}
right() { # TABLE
    # The index was dropped, or its transaction ended.
    sql "CREATE INDEX IF NOT EXISTS $1_nitro ON $1 USING nitro (fine(k))" 2> /dev/null
    verified "$1"
    same_answers "$1" "SELECT fine(k), ctid FROM $1 WHERE fine(k) < 3000 ORDER BY fine(k), ctid" "SELECT * FROM $1 WHERE fine(k) IN (7, 14, 77, 501, 520, 1001, 2011)"
}
batch() { # FATE, then pairs 'A POINT B POINT', none of which needs another state than the others
    local fate=$1 i=0 pair a p b q all=(); shift
    for pair; do i=$((i + 1)); prepare "t$i" "${pair%% *}"; all+=("t$i"); done
    crash; start; session control
    i=0
    for pair; do
        i=$((i + 1)); read -r a p b q <<< "$pair"
        is_cold "$a" || ready "t${i}_nitro"
        park "t$i" "$a" "$p" "$b" "$q"
        [ "$fate" = crash ] || { what+=", $fate"; go_on "t$i" "$fate" "$p"; right "t$i"; }
    done
    if [ "$fate" = crash ]; then for i in "${all[@]}"; do unset "process[a_$i]" "process[b_$i]"; done; fi
    crash; end control
    if [ "$fate" = crash ]; then for i in "${all[@]}"; do end "a_$i"; end "b_$i"; done; fi
    start
    i=0
    for pair; do
        i=$((i + 1)); what="$pair, $fate, then a crash"
        right "t$i"
        sql "VACUUM (INDEX_CLEANUP on, TRUNCATE off) t$i; INSERT INTO t$i SELECT 5000 + i, 'reused' FROM generate_series(1, 60) i"
        right "t$i"; sql "DROP TABLE t$i"
    done
    count=$((count + $#))
}

# --- all of them, or a sample ------------------------------------------------------------------------
declare -A passed=() seen=()
count=0 at_once=12
schedule() { # FATE A POINT B: to each of its steps, or to one of them
    local q steps_of_b
    mapfile -t steps_of_b < <(printf '%s\n' "" ${steps[$4]})
    if [ -z "$LONG" ]; then random ${#steps_of_b[@]}; steps_of_b=("${steps_of_b[REPLY]}"); fi
    for q in "${steps_of_b[@]}"; do echo "$* $q"; done
}
schedules() {
    local a p b actors others fates=(go cancel crash) fate
    for p in $points; do
        mapfile -t actors < <(for a in "${warm[@]}" "${cold[@]}"; do [[ " ${steps[$a]} " != *" $p "* ]] || echo "$a"; done)
        [ -n "$LONG" ] || { random ${#actors[@]}; actors=("${actors[REPLY]}"); }
        for a in "${actors[@]}"; do
            if is_cold "$a"; then others=("${beside_cold[@]}"); else others=("${beside_warm[@]}"); fi
            if [ -n "$LONG" ]; then
                for b in "${others[@]}"; do for fate in "${fates[@]}"; do schedule "$fate" "$a" "$p" "$b"; done; done
            else
                random ${#others[@]}; b=${others[REPLY]}; random 3
                schedule "${fates[REPLY]}" "$a" "$p" "$b"
            fi
        done
    done
}
# Each of these goes wrong without one mechanism.
declare -A needs=(["go insert InsertInHeap backup"]=straddlers ["go backup BackupClaimed insert InsertInHeap"]=x_first
    ["go insert InsertInHeap backup BackupTerm"]=late_lsn ["go backup BackupLsn insert InsertInHeap"]=second_lsn
    ["crash load LoadPublishes backup"]=half_images)
if [ -n "${STEPS:-}" ]; then echo "$STEPS"; else schedules; printf '%s\n' "${!needs[@]}"; fi > "$NITRO_TMP/schedules"
for fate in go cancel crash; do
    mapfile -t pairs < <(sed -n "s/^$fate //p" "$NITRO_TMP/schedules")
    for ((n = 0; n < ${#pairs[@]}; n += at_once)); do batch $fate "${pairs[@]:n:at_once}"; done
done
note "$count schedules; B stopped ${seen[stopped]:-0}, waited ${seen[waiting]:-0}, ended ${seen[ended]:-0} times"
assert_eq "memory" "$(sql "SELECT used, indexes FROM nitro_memory")" "$baseline"
[ -z "${STEPS:-}" ] || exit 0
assert_eq "points that were passed" "$(printf '%s\n' "${!passed[@]}" | sort)" "$points"

planted() { # MECHANISM 'FATE A POINT B POINT'
    if (trap 'kill "${session_pid[@]}" 2> /dev/null || true' EXIT; mechanism "$1"; batch "${2%% *}" "${2#* }") > "$NITRO_TMP/planted" 2>&1; then
        fail "not seen: $2 without $1"
    fi
    grep -qE 'another answer by|is damaged' "$NITRO_TMP/planted" || fail "$(cat "$NITRO_TMP/planted")"
    note "without $1: $2: $(grep -m 1 -E "another answer by|is damaged" "$NITRO_TMP/planted")"
    mechanism none; sql "DROP TABLE t1"
}
for pair in "${!needs[@]}"; do planted "${needs[$pair]}" "$pair"; done

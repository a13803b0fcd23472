# tests/by_hand.sh: servers whose images are made and loaded only by statements. Sourced after
# image_files.sh; needs pageinspect.
#
#   new_server "${by_hand[@]}"      one that has no place for workers but the keeper
#   gates                           makes functions that stop a process in the middle of an index' expression
#   shut | at_gate [LOCK] | open_gate   shuts the gate, waits until a process stands before it, opens it
#   verdict MECHANISM TABLE 'QUERY'...   right answers; wrong ones if the mechanism is off. Drops the table
#   loaded INDEX | rebuilt INDEX REASON   brings it up and checks whether it came from its image
#   stop_flushing | go_on_flushing  only statements flush WAL in between
#   without_wal | stop_as_is | switch_wal | keeper | stop_keeper | bring_up INDEX

by_hand=(-c "max_worker_processes = 1" -c "max_logical_replication_workers = 0" -c "deadlock_timeout = 200ms"
    -c "wal_keep_size = 0" -c "min_wal_size = 32MB" -c "bgwriter_lru_maxpages = 0")
gates() {
    # Both locks are shut by taking them exclusively; 2 stops a process before it comes to the index under test.
    sql "CREATE FUNCTION gate(i int, at int, lock int DEFAULT 1) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
     'BEGIN IF i = at THEN PERFORM pg_advisory_xact_lock_shared(lock); END IF; RETURN i; END'"
    sql "CREATE TABLE noise (i int); CREATE FUNCTION noise() RETURNS void LANGUAGE plpgsql AS
     'BEGIN INSERT INTO public.noise VALUES (1); EXCEPTION WHEN division_by_zero THEN NULL; END'"
    sql "CREATE FUNCTION noisy(i int, at int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
     'BEGIN IF i = at THEN PERFORM pg_advisory_xact_lock_shared(1); PERFORM public.noise(); END IF; RETURN i; END'"
    # Settings of its own keep a function from being inlined.
    sql "CREATE FUNCTION plain(i int) RETURNS int IMMUTABLE LANGUAGE sql SET work_mem = '4MB' AS 'SELECT public.gate(i, 1000)'"
}
shut() { session gate_keeper; ask gate_keeper "SELECT pg_advisory_lock(1)" > /dev/null; }
open_gate() { end gate_keeper; }
at_gate() { wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = ${1:-1}"; }
index_plans="SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off"

verdict() { # MECHANISM TABLE 'QUERY'...: right answers, or wrong ones if the mechanism is off
    local off=$1; shift
    if [ "$off" = none ]; then verified "$1"; same_answers "$@"; else wrong "$@"; fi
    [ "$off" = none ] || mechanism none
    sql "DROP TABLE $1"
}
keeper() { sql "SELECT pid FROM pg_stat_activity WHERE backend_type = 'nitro keeper'"; }
idle_keeper="SELECT wait_event IN ('NitroKeeperMain', 'Extension') FROM pg_stat_activity WHERE backend_type = 'nitro keeper'"
stop_keeper() { # while it has neither a lock nor the slot
    local p; p=$(keeper)
    while kill -STOP "$p"; [ "$(glance "$idle_keeper")" != t ]; do kill -CONT "$p"; sleep 0.05; done
}
# An index is brought up by its first scan or check. With a mechanism off it may be damaged. The keeper has
# looked at the slot before.
bring_up() { wait_until "$idle_keeper"; "${PSQL[@]}" -p "$(port)" <<< "SELECT nitro_verify('$1')" > /dev/null 2>&1 || true; }
loaded() { # INDEX: it comes from its image, here and now
    local from; from=$(log_end)
    bring_up "$1"
    assert_eq "$1" "$(came_from "$1" "$from")" image
}
rebuilt() { # INDEX REASON [FROM_LINE of the log]: its image is refused for this reason
    local from; from=$(log_end)
    ready "$1"
    assert_eq "$1" "$(came_from "$1" "$from")" table
    # The keeper may have been faster.
    [ "$(logged "\"$1\": (its image is not used|an image is removed): .*($2)" "${3:-$from}")" -ge 1 ] || fail "$1: no reason in the log like: $2"
}
# All WAL before the last checkpoint of a stopped server is removed, as an archiver or an admin would.
without_wal() {
    "$NITRO_BIN/pg_archivecleanup" "$(data)/pg_wal" "$("$NITRO_BIN/pg_controldata" "$(data)" | sed -n "s/.*REDO WAL file: *//p")"
}
# A clean stop makes last images of changed indexes. Some schedules are about the images before.
stop_as_is() { setting nitro.backup off; stop; sed -i '/nitro.backup /d' "$(data)/postgresql.auto.conf"; }
switch_wal() { sql "SELECT pg_switch_wal(); CHECKPOINT" > /dev/null; }
# Only statements flush WAL meanwhile. The other processes are stopped where they hold no lock.
stop_flushing() {
    mapfile -t others < <(sql "SELECT pid FROM pg_stat_activity WHERE backend_type IN ('walwriter', 'background writer')")
    while kill -STOP "${others[@]}"; [ "$(glance "SELECT count(*) FROM pg_stat_activity WHERE backend_type IN ('walwriter', 'background writer') AND wait_event_type = 'Activity'")" != 2 ]; do
        kill -CONT "${others[@]}"; sleep 0.05
    done
}
go_on_flushing() { kill -CONT "${others[@]}"; }

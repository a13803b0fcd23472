#!/usr/bin/env bash
# Random schedules of three sessions on a few keys, statement by statement. With nitro's unique indexes and
# with btrees, the same sessions wait, the same errors come, and the same rows are there.
. "$(dirname "$0")/lib.sh"
note "seed $NITRO_SEED"
new_server -c "max_prepared_transactions = 20" -c "deadlock_timeout = 10ms" -c "log_min_messages = fatal" -c "nitro.backup = off"
[ "$(major)" -ge 18 ] || { note "left out: before 18 core takes no unique index of another access method"; exit 0; }
schedules=12; [ -z "$LONG" ] || schedules=120
steps=60
# ON CONFLICT DO SELECT came with 19.
kinds=$([ "$(major)" -lt 19 ] && echo 26 || echo 28)

table() { # ACCESS_METHOD VARIANT
    local nulls="" where="" include=""
    case $2 in 1) nulls="NULLS NOT DISTINCT" ;; 2) where="WHERE n < 6" ;; 3) include="INCLUDE (n)" ;; esac
    sql "DROP TABLE IF EXISTS u; CREATE TABLE u (k int, v text, n int DEFAULT 0) WITH (autovacuum_enabled = off, fillfactor = 50);
         INSERT INTO u VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3);
         CREATE UNIQUE INDEX u_k ON u USING $1 (k) $include $nulls; CREATE UNIQUE INDEX u_v ON u USING $1 (lower(v), (n / 4)) $where" 2> /dev/null
}
# A schedule: lines of a session and a statement.
schedule() { # SEED
    awk -v seed="$1" -v steps=$steps -v kinds="$kinds" 'BEGIN { srand(seed)
        for (i = 0; i < steps; i++) { a = key(); b = key(); print substr("aaaabbbbc", 1 + int(rand() * 9), 1), pick(int(rand() * kinds)) } }
    function key() { return rand() < 0.06 ? "NULL" : 1 + int(rand() * 5) }
    function text() { return "\047" substr("abcABC", 1 + int(rand() * 6), 1) "\047" }
    function row(k) { return "(" k ", " text() ", " int(rand() * 8) ")" }
    function insert(k) { return "INSERT INTO u VALUES " row(k) }
    function pick(what) {
        if (what < 3) return "BEGIN"
        if (what == 3) return "BEGIN ISOLATION LEVEL REPEATABLE READ"
        if (what < 6) return rand() < 0.7 ? "COMMIT" : "ROLLBACK"
        if (what == 6) return "SAVEPOINT s"
        if (what == 7) return rand() < 0.7 ? "ROLLBACK TO s" : "RELEASE s"
        if (what < 11) return insert(a)
        if (what == 11) return insert(a) " ON CONFLICT DO NOTHING"
        if (what == 12) return insert(a) " ON CONFLICT (k) DO UPDATE SET n = u.n + 1"
        if (what == 13) return insert(a) " ON CONFLICT (k) DO UPDATE SET k = excluded.n WHERE u.n < 5"
        if (what == 14) return "INSERT INTO u VALUES " row(a) ", " row(b) " ON CONFLICT DO NOTHING"
        if (what < 17) return "UPDATE u SET k = " a " WHERE k = " b
        if (what == 17) return "UPDATE u SET n = n + 1 WHERE k = " a
        if (what == 18) return "UPDATE u SET v = " text() " WHERE k = " a
        if (what == 19) return "UPDATE u SET k = k + 1"
        if (what < 22) return "DELETE FROM u WHERE k = " a
        if (what == 22) return "MERGE INTO u USING (VALUES (" a ", " b ")) s(k, b) ON u.k = s.k WHEN MATCHED THEN UPDATE SET k = s.b WHEN NOT MATCHED THEN INSERT VALUES (s.k, " text() ")"
        if (what == 23) return "SELECT FROM u WHERE k = " a " FOR " (rand() < 0.5 ? "UPDATE" : "KEY SHARE")
        if (what == 24) return "DO $$ BEGIN " insert(a) "; EXCEPTION WHEN unique_violation THEN DELETE FROM u WHERE k = " b "; END $$"
        if (what > 25) return insert(a) " ON CONFLICT (k) DO SELECT" (what == 26 ? "" : rand() < 0.5 ? " FOR UPDATE" : " FOR KEY SHARE") " WHERE u.n < 6 RETURNING k, v, n"
        return rand() < 0.5 ? "VACUUM u" : "PREPARE TRANSACTION \047p" i "\047"
    }'
}
declare -A busy begun
# The output of a session so far, in one line. busy[...] is empty if that was all.
heard() { # SESSION
    local line said=
    # The beginning of an incomplete line is kept.
    while IFS= read -r -t 0.02 -u "${session_out[$1]}" line || { begun[$1]+=$line; false; }; do
        line=${begun[$1]:-}$line begun[$1]=
        if [ "$line" = :end: ]; then busy[$1]=; break; fi
        case $line in *ERROR* | DETAIL:*Key* | *"|"*) said+="${line#*ERROR:} " ;; esac
    done
    REPLY=$said
}
# Whether a session waits for another one that will not end the wait by itself. A deadlock ends by itself.
waits() { # PID
    ask control "SELECT cardinality(w) > 0 AND NOT EXISTS (SELECT FROM unnest(w) b WHERE $1 = ANY (pg_blocking_pids(b))
        OR EXISTS (SELECT FROM pg_stat_activity WHERE pid = b AND state = 'active' AND cardinality(pg_blocking_pids(b)) = 0)) FROM pg_blocking_pids($1) w"
}
settle() { # after a step: who is done, who waits for another one; waiting is how many do
    local s
    waiting=0
    for s in a b c; do
        while [ -n "${busy[$s]:-}" ]; do
            heard $s
            [ -z "$REPLY" ] || echo "  $s: $REPLY"
            [ -n "${busy[$s]}" ] || { echo "  $s done"; break; }
            # A second look: the other session may be between two commands of its psql.
            [ "$(waits "${pids[$s]}")" = t ] && sleep 0.05 && [ "$(waits "${pids[$s]}")" = t ] || continue
            echo "  $s waits"; waiting=$((waiting + 1)); break
        done
    done
}
declare -A pids
play() { # SEED: prints what happens
    local s statement gid
    for s in a b c; do session $s; pids[$s]=$(ask $s "SELECT pg_backend_pid()"); busy[$s]=; 
        # A transaction mostly goes on after an error: psql has set a savepoint.
        ask $s "\\set ON_ERROR_ROLLBACK $rollback"$'\n'"SET enable_seqscan = $seqscan" > /dev/null
    done
    while read -r s statement; do
        # A waiting session has no next statement.
        [ -z "${busy[$s]}" ] || continue
        echo "$s $statement"
        busy[$s]=1; tell $s "$statement"
        settle; settle
        # Either of two may go on first: later output is not compared.
        [ $waiting -lt 2 ] || break
    done < <(schedule "$1")
    [ $waiting -lt 2 ] || exec > "$NITRO_TMP/rest"
    for s in a b c a b c a b c; do
        [ -n "${busy[$s]}" ] || { busy[$s]=1; tell $s "COMMIT"; }
        settle
        for gid in $(ask control "SELECT gid FROM pg_prepared_xacts ORDER BY gid"); do ask control "COMMIT PREPARED '$gid'" > /dev/null; done
    done
    settle
    for s in a b c; do end $s; done
    sql "SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT * FROM u ORDER BY k, v, n"
}
for ((i = 0; i < schedules; i++)); do
    random 1000000; seed=$REPLY; choices=(on off); random 2; seqscan=${choices[REPLY]}; random 4; rollback=${choices[REPLY == 0]}
    for am in btree nitro; do
        table $am $((i % 4))
        session control
        play "$seed" > "$NITRO_TMP/$am.$i"
        end control
    done
    diff "$NITRO_TMP/btree.$i" "$NITRO_TMP/nitro.$i" > "$NITRO_TMP/diff" || fail "schedule $seed, variant $((i % 4)), enable_seqscan = $seqscan, ON_ERROR_ROLLBACK = $rollback: $(head -n 20 "$NITRO_TMP/diff")"
    sql "SELECT nitro_verify('u_k', true), nitro_verify('u_v', true)" > /dev/null
done
note "$(cat "$NITRO_TMP"/nitro.* | grep -c waits) waits, $(cat "$NITRO_TMP"/nitro.* | grep -c 'duplicate key') duplicates, $(cat "$NITRO_TMP"/nitro.* | grep -c deadlock) deadlocks"

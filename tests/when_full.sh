#!/usr/bin/env bash
# nitro.when_full: without memory for an index, writers to its table get an ERROR, or the index is given up.
# Never both.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"

new_server -c "nitro.max_memory = 16MB" -c "maintenance_work_mem = 8MB" -c "nitro.when_full = give_up_index"

used() { sql "SELECT used FROM nitro_memory"; }
index() { sql "SELECT state, given_up FROM pg_stat_nitro_indexes WHERE indexrelname = '$1'"; }
said() { "${PSQL[@]}" -p "$(port)" -v ON_ERROR_STOP=1 -c "$1" 2>&1 || fail "statement failed: $1"; }
rows() { echo "INSERT INTO t SELECT i, repeat(md5(i::text), 8) FROM generate_series($1, $2) i"; }
# Keys that are too long for packed leaves: their memory does not depend on how they came.
filler() { echo "CREATE TABLE filler AS SELECT repeat(md5(i::text), 17) AS s FROM generate_series(1, $1) i"; }
fill="CREATE INDEX filler_i ON filler USING nitro (s COLLATE \"C\")"
begin() { # a table with an index of strings and one of numbers, and one that takes some 14 MB
    sql "DROP TABLE IF EXISTS t, filler" 2> /dev/null
    wait_until "SELECT used < 200000 FROM nitro_memory"
    sql "CREATE TABLE t (i int, s text); CREATE INDEX t_s_nitro ON t USING nitro (s COLLATE \"C\"); CREATE INDEX t_i_nitro ON t USING nitro (i);
        CREATE INDEX t_s_btree ON t (s COLLATE \"C\"); CREATE INDEX t_i_btree ON t (i)"
    sql "$(rows 1 6000); VACUUM ANALYZE t; $(filler 18500); $fill"
    [ "$(used)" -gt 12200000 ] || fail "too little memory is in use for what follows: $(used)"
}
check() { # what is left answers as btree does
    local any_plan=1
    same_answers t "SELECT s FROM t WHERE s COLLATE \"C\" > 'e' ORDER BY s COLLATE \"C\""
    same_answers t "SELECT i FROM t WHERE i < 30000 ORDER BY i"
    sql "SELECT nitro_verify('t_i_nitro', true)" > /dev/null
}

note "an insert gives the index up that asked for memory"
begin
out=$(said "$(rows 6001 16000)")
[[ $out == *WARNING*t_s_nitro*"is given up: out of nitro memory"*DETAIL:* ]] || fail "no WARNING: $out"
[ "$(grep -c WARNING <<< "$out")" = 1 ] || fail "more than one: $out"
assert_eq "the one that asked, the other" "$(index t_s_nitro) $(index t_i_nitro)" "unbuilt|1 ready|0"
wait_until "SELECT used < 15000000 FROM nitro_memory" # an image of it may have been under way
assert_eq "rows" "$(sql "SELECT count(*) FROM t")" 16000
check
assert_eq "later writes pass in silence" "$(said "$(rows 16001 16100)")" ""
note "it is not tried again and again"
for _ in 1 2 3; do
    sql "SELECT count(*) FROM t WHERE s COLLATE \"C\" = 'x'" > /dev/null; sleep 0.3
done
assert_eq "after some queries" "$(index t_s_nitro)" "unbuilt|1"
assert_eq "tries in the log" "$(grep -cE 'could not (build|bring)' "$NITRO_TMP/main.log" || true)" 0
assert_eq "an explicit one" "$(sql_fails "SELECT nitro_verify('t_s_nitro')" | cut -c 1-5)" 53200
note "it comes back when memory has become free"
sql "DROP TABLE filler; SELECT count(*) FROM t WHERE s COLLATE \"C\" = 'x'" > /dev/null
wait_until "SELECT state = 'ready' FROM pg_stat_nitro_indexes WHERE indexrelname = 't_s_nitro'"
assert_eq "how often it was given up stays" "$(index t_s_nitro)" "ready|1"
check
sql "SELECT nitro_verify('t_s_nitro', true)" > /dev/null

note "scans that are under way"
begin
sql "DROP INDEX t_s_btree; DROP INDEX t_i_btree"
session plain; session only
ask plain "SET enable_seqscan = off; SET enable_bitmapscan = off; BEGIN; DECLARE c CURSOR FOR SELECT i FROM t WHERE s COLLATE \"C\" > ''" > /dev/null
ask only "SET enable_seqscan = off; SET enable_bitmapscan = off; BEGIN; DECLARE c CURSOR FOR SELECT s FROM t WHERE s COLLATE \"C\" > ''" > /dev/null
ask plain "FETCH 1 FROM c; MOVE 10 IN c" > /dev/null
ask only "FETCH 1 FROM c" > /dev/null
out=$(said "$(rows 6001 16000)")
[[ $out == *WARNING*t_s_nitro* ]] || fail "no WARNING: $out"
before=$(used)
[[ $(ask only "FETCH ALL FROM c") == *"was given up while it was read"* ]] || fail "an index-only scan goes on"
end only
assert_eq "a plain scan goes on" "$(ask plain "MOVE ALL IN c; FETCH BACKWARD 1 FROM c" | grep -c '^[0-9]')" 1
assert_eq "while it does its memory stays" "$([ "$(used)" -ge $((before - 300000)) ] && echo yes)" yes
ask plain "CLOSE c; COMMIT" > /dev/null
sql "SELECT count(*) FROM t WHERE s COLLATE \"C\" = 'x'" > /dev/null
wait_until "SELECT used < 15000000 FROM nitro_memory"
end plain
sql "DELETE FROM t WHERE i % 2 = 0; VACUUM t"
sql "CREATE INDEX t_s_btree ON t (s COLLATE \"C\"); CREATE INDEX t_i_btree ON t (i)"
check

if [ "$(sql "SELECT count(*) FROM pg_settings WHERE name = 'nitro.debug_stop'")" = 1 ]; then
    note "VACUUM waits for them from the moment on at which the index is given up"
    begin
    sql "DROP INDEX t_s_btree; DROP INDEX t_i_btree; DELETE FROM t WHERE i % 2 = 0"
    session only; session giver; session control; session vacuum
    pid=$(ask giver "SET nitro.debug_stop = 'Retired'; SELECT pg_backend_pid()")
    ask control "SELECT pg_advisory_lock(1852404850, $pid)" > /dev/null
    ask only "SET enable_seqscan = off; SET enable_bitmapscan = off; BEGIN; DECLARE c CURSOR FOR SELECT s FROM t WHERE s COLLATE \"C\" > ''; MOVE 1 IN c" > /dev/null
    tell giver "$(rows 6001 16000)"
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = $pid AND NOT granted"
    assert_eq "it is given up" "$(index t_s_nitro | cut -d '|' -f 1)" unbuilt
    tell vacuum "VACUUM t"
    wait_until "SELECT count(*) = 1 FROM pg_stat_activity WHERE query ~ '^VACUUM t' AND state = 'active' AND wait_event_type = 'Extension'"
    ask only "COMMIT" > /dev/null
    answer vacuum > /dev/null
    ask control "SELECT pg_advisory_unlock_all()" > /dev/null
    [[ $(answer giver) == *WARNING*t_s_nitro* ]] || fail "no WARNING"
    end only; end giver; end control; end vacuum
    check

    note "what VACUUM packs stays where it is, though it is given up meanwhile"
    begin
    session control; session vacuum
    pid=$(ask vacuum "SET nitro.debug_stop = 'Packed'; SELECT pg_backend_pid()")
    ask control "SELECT pg_advisory_lock(1852404850, $pid)" > /dev/null
    tell vacuum "VACUUM t"
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = $pid AND NOT granted"
    [[ $(said "$(rows 6001 16000)") == *WARNING*t_s_nitro* ]] || fail "no WARNING"
    sql "SELECT count(*) FROM t WHERE s COLLATE \"C\" = 'x'" > /dev/null
    [ "$(used)" -gt 15000000 ] || fail "its memory is gone: $(used)"
    ask control "SELECT pg_advisory_unlock_all()" > /dev/null
    assert_eq "VACUUM" "$(answer vacuum)" ""
    sql "SELECT count(*) FROM t WHERE s COLLATE \"C\" = 'x'" > /dev/null
    wait_until "SELECT used < 15000000 FROM nitro_memory"
    end control; end vacuum
    check

    note "who reads it ends while the statement that gave it up goes on: that frees it"
    begin
    session control; session reader; session giver
    ask control "SELECT pg_advisory_lock(7)" > /dev/null
    ask reader "BEGIN; SELECT count(*) FROM t WHERE s COLLATE \"C\" = 'x'" > /dev/null
    tell giver "DO \$\$ BEGIN $(rows 6001 16000); PERFORM pg_advisory_lock(7);
                -- Where somebody happens to look at the index at that moment, the next row does.
                FOR i IN 1 .. 50 LOOP
                    INSERT INTO t VALUES (0, 'x');
                    IF (SELECT used <= 15000000 FROM nitro_memory) THEN RETURN; END IF;
                    PERFORM pg_sleep(0.02);
                END LOOP;
                RAISE 'its memory stays'; END \$\$"
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    [ "$(used)" -gt 15000000 ] || fail "its memory is gone: $(used)"
    ask reader "COMMIT" > /dev/null
    ask control "SELECT pg_advisory_unlock_all()" > /dev/null
    out=$(answer giver)
    [[ $out == *WARNING*t_s_nitro* && $out != *ERROR* ]] || fail "$out"
    end control; end reader; end giver
    check
fi

note "an image of it is under way: who makes it frees what is left of it, without a query"
setting nitro.backup_rate 1MB
# The image is stopped while it waits for its threads, and these wait for their pace: it holds nothing that
# inserts need. A busy machine may have finished it before the test looks.
for _ in $(seq 10); do
    begin; saver=
    for _ in $(seq 200); do
        saver=$(sql "SELECT pid FROM pg_stat_progress_nitro JOIN pg_stat_activity USING (pid) WHERE index_relid = 't_s_nitro'::regclass AND wait_event_type = 'Extension'
                     UNION ALL SELECT 0 FROM pg_stat_nitro_indexes WHERE indexrelid = 't_s_nitro'::regclass AND image_lsn IS NOT NULL LIMIT 1")
        case $saver in "") sleep 0.02 ;; 0) saver=; break ;; *) break 2 ;; esac
    done
done
[ -n "$saver" ] || fail "no image is made"
kill -STOP "$saver"
from=$(log_end)
[[ $(said "$(rows 6001 16000)") == *WARNING*t_s_nitro* ]] || fail "no WARNING"
[ "$(used)" -gt 15000000 ] || fail "its memory is gone: $(used)"
setting nitro.backup_rate 0
kill -CONT "$saver"
wait_until "SELECT used < 15000000 FROM nitro_memory"
assert_eq "an image of what is not there is no failure" "$(logged "could not make an image" "$from")" 0

note "CREATE INDEX"
begin
out=$(said "CREATE INDEX t_large ON t USING nitro (s COLLATE \"C\", (repeat(s, 4)))")
[[ $out == *WARNING*t_large*"is given up"* ]] || fail "no WARNING: $out"
assert_eq "it is there" "$(index t_large)" "unbuilt|1"
sql "CREATE INDEX t_btree ON t (s COLLATE \"C\", (repeat(s, 4)))"
[[ $("${PSQL[@]}" -p "$(port)" -c "SELECT nitro_convert('t_btree')" 2>&1) == *WARNING*"is given up"*ERROR*"does not replace"*"is not ready"* ]] || fail "one that was given up takes the place of a btree"
assert_eq "the btree is still there" "$(sql "SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE relname = 't_btree'")" btree
sql "DROP INDEX t_btree"
check
sql "DROP INDEX t_large"

note "CREATE INDEX and REINDEX CONCURRENTLY: no room for a second index beside the first"
valid() { sql "SELECT coalesce(string_agg(relname || ' ' || indisvalid, ', ' ORDER BY relname COLLATE \"C\"), '') FROM pg_index JOIN pg_class ON oid = indexrelid WHERE relname ~ '^filler_i|^t_large'"; }
create="CREATE INDEX CONCURRENTLY t_large ON t USING nitro (s COLLATE \"C\", (repeat(s, 4)))"
setting nitro.when_full error
begin
before=$(used)
assert_eq "CREATE INDEX" "$(sql_fails "$create" | cut -c 1-5)" 53200
assert_eq "REINDEX" "$(sql_fails "REINDEX INDEX CONCURRENTLY filler_i" | cut -c 1-5)" 53200
assert_eq "what was being built" "$(valid)" "filler_i true, filler_i_ccnew false, t_large false"
assert_eq "holds nothing" "$(used)" "$before"
assert_eq "the first one" "$(index filler_i)" "ready|0"
sql "SELECT nitro_verify('filler_i', true); DROP INDEX t_large, filler_i_ccnew" > /dev/null
check
setting nitro.when_full give_up_index
[[ $(said "$create") == *WARNING*t_large*"is given up"* ]] || fail "no WARNING"
[[ $(said "REINDEX INDEX CONCURRENTLY filler_i") == *WARNING*filler_i_ccnew*"is given up"* ]] || fail "no WARNING"
assert_eq "are there" "$(valid) $(index t_large) $(index filler_i)" "filler_i true, t_large true unbuilt|1 unbuilt|1"
[ "$(used)" -lt 3000000 ] || fail "the first one still holds memory: $(used)"
sql "DROP INDEX t_large; SELECT count(*) FROM filler WHERE s COLLATE \"C\" = 'x'" > /dev/null
wait_until "SELECT state = 'ready' FROM pg_stat_nitro_indexes WHERE indexrelname = 'filler_i'"
sql "SELECT nitro_verify('filler_i', true)" > /dev/null
check

note "without given_up an index-only scan finds what VACUUM has removed"
begin
sql "DROP INDEX t_s_btree; DROP INDEX t_i_btree; DELETE FROM t WHERE i % 2 = 0"
mechanism given_up
session only; session vacuum
ask only "SET enable_seqscan = off; SET enable_bitmapscan = off; BEGIN; DECLARE c CURSOR FOR SELECT s FROM t WHERE s COLLATE \"C\" > ''; MOVE 1 IN c" > /dev/null
[[ $(said "$(rows 6001 16000)") == *WARNING*t_s_nitro* ]] || fail "no WARNING"
tell vacuum "VACUUM t"
# It waits for the token of the batch that was read, and not for that of a later batch.
wait_until "SELECT count(*) = 1 FROM pg_stat_activity WHERE query ~ '^VACUUM t' AND state = 'active' AND wait_event_type = 'Extension'"
found=$(($(ask only "FETCH 500 FROM c" | grep -c .) + 1))
answer vacuum > /dev/null
found=$((found + $(ask only "FETCH ALL FROM c" | grep -c .)))
[ $found -gt 3000 ] || fail "it is not needed: $found rows"
end only; end vacuum
mechanism none

note "the other choice"
begin
setting nitro.when_full error
assert_eq "a write" "$(sql_fails "$(rows 10001 30000)" | cut -c 1-5)" 53200
assert_eq "nothing is given up" "$(index t_s_nitro) $(index t_i_nitro)" "ready|0 ready|0"
assert_eq "it is counted" "$(sql "SELECT sum(refused) FROM pg_stat_nitro_indexes")" 1
assert_eq "rows" "$(sql "SELECT count(*) FROM t")" 6000
sql "DROP TABLE filler; VACUUM t; $(rows 10001 25000)"
check

note "too little memory at a start"
sql "DROP INDEX t_s_nitro; CREATE INDEX t_s_nitro ON t USING nitro (s COLLATE \"C\") WITH (backup = off); $(filler 20000)"
settings "nitro.max_memory = 32MB"; restart
sql "$fill"
sql "SELECT nitro_verify('t_i_nitro')" > /dev/null
settings "nitro.max_memory = 16MB"; restart
sql "SELECT nitro_verify('filler_i'), nitro_verify('t_i_nitro')" > /dev/null
assert_eq "an unbuilt one is written without it" "$(index t_s_nitro)" "unbuilt|0"
sql "$(rows 40001 40010); SELECT count(*) FROM t WHERE s COLLATE \"C\" = 'x'" > /dev/null
wait_until "SELECT given_up = 1 FROM pg_stat_nitro_indexes WHERE indexrelname = 't_s_nitro'"
out=$(sql_fails "$(rows 40011 40020)")
[[ $out == "53200: out of nitro memory for index \"t_s_nitro\""* ]] || fail "a write: $out"
setting nitro.when_full give_up_index
assert_eq "with the other choice" "$(said "$(rows 40011 40020)")" ""
for _ in 1 2 3; do
    sql "SELECT count(*) FROM t WHERE s COLLATE \"C\" = 'x'" > /dev/null; sleep 0.3
done
assert_eq "no more tries" "$(index t_s_nitro)" "unbuilt|1"
check
note "after a crash"
settings "nitro.max_memory = 64MB"; crash; start
check
verified t

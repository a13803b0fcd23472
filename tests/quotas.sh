#!/usr/bin/env bash
# The limits of memory for the indexes of a database, of an owner, or for one index. No index grows beyond
# its limit, and no other index loses its share.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"

# With entries that wait, leaves would be smaller than the limits here assume.
new_server -c "nitro.insert_memory = 0" -c "nitro.max_memory = 64MB" -c "max_prepared_transactions = 2" -c "nitro.backup_rate = 0"

owner() { sql "SELECT bytes FROM nitro_memory_by_owner WHERE rolname = '$1'" | grep . || echo 0; }
room() { sql "SELECT used FROM nitro_memory"; }
said() { "${PSQL[@]}" -p "$(port)" -v ON_ERROR_STOP=1 -c "$1" 2>&1 || fail "statement failed: $1"; }
rows() { echo "INSERT INTO $1 SELECT i, md5(i::text) FROM generate_series($2, $3) i"; }
table() { # of a role, with an index of each column
    sql "SET ROLE $1; CREATE TABLE $2 (i int, s text); CREATE INDEX $2_s_nitro ON $2 USING nitro (s COLLATE \"C\"); CREATE INDEX $2_i_nitro ON $2 USING nitro (i)"
}
whole() { sql "SELECT nitro_verify(indexrelid, true) FROM pg_stat_nitro_indexes WHERE relname = '$1' AND state = 'ready'" > /dev/null; }
nothing_left() { # all tables are gone: nobody is charged for anything
    sql "DROP TABLE IF EXISTS a, b, u" 2> /dev/null
    wait_until "SELECT used = 0 FROM nitro_memory"
    assert_eq "$1: charged" "$(sql "SELECT * FROM nitro_memory_by_owner; SELECT * FROM nitro_memory_by_database")" ""
}
sql "CREATE ROLE a; CREATE ROLE b; GRANT a, b TO CURRENT_USER; GRANT ALL ON SCHEMA public TO a, b; ALTER ROLE a SET nitro.max_memory_per_owner = '6MB'; ALTER ROLE b SET nitro.max_memory_per_owner = '6MB'"

note "an owner's share, whoever inserts"
table a a; table b b
out=$(sql_fails "$(rows a 1 300000)")
[[ $out == '53400: nitro memory limit of role "a" exceeded while adding to index "a_'* ]] || fail "a superuser inserts: $out"
[ "$(owner a)" -gt 5000000 ] && [ "$(owner a)" -le 6291456 ] || fail "a holds $(owner a)"
assert_eq "another's" "$(sql "$(rows b 1 10000); SELECT count(*) FROM b")" 10000
[ "$(owner b)" -lt 3000000 ] || fail "b holds $(owner b)"
whole a; whole b
sql "VACUUM a; $(rows a 1 1000)"; whole a
assert_eq "what it holds and may hold" "$(sql "SELECT rolname, indexes, max_bytes FROM nitro_memory_by_owner WHERE rolname IN ('a', 'b') ORDER BY 1")" $'a|2|6291456\nb|2|6291456'
out=$("${PSQL[@]}" -p "$(port)" -c "$(rows a 1 300000)" 2>&1 || true)
[[ $out == *'DETAIL:  '*'the nitro indexes of role "a" hold '*' of 6291456 bytes (index "a_s_nitro": '*' bytes, index "a_i_nitro": '*'HINT:  Raise "nitro.max_memory_per_owner"'* ]] || fail "$out"

note "a session that goes on hears of another limit"
session old; ask old "SELECT 1" > /dev/null
[[ $(ask old "$(rows a 1 200000)") == *exceeded* ]] || fail "the limit is gone"
sql "ALTER ROLE a SET nitro.max_memory_per_owner = '40MB'"
assert_eq "raised" "$(ask old "$(rows a 1 50000)")" ""
sql "ALTER ROLE a SET nitro.max_memory_per_owner = '1MB'"
[[ $(ask old "$(rows a 1 50000)") == *exceeded* ]] || fail "nothing grows beyond a lowered limit"
assert_eq "reads go on" "$(ask old "SET enable_seqscan = off; SELECT count(*) > 1000 FROM a WHERE s COLLATE \"C\" > '0'")" t
whole a
sql "BEGIN; ALTER ROLE a RESET ALL; ROLLBACK"
[[ $(ask old "$(rows a 1 50000)") == *exceeded* ]] || fail "a change that was rolled back counts"
sql "ALTER ROLE a RESET nitro.max_memory_per_owner"
assert_eq "taken away" "$(ask old "$(rows a 1 50000)")" ""
setting nitro.max_memory_per_owner 2MB
wait_until "SELECT max_bytes = 2097152 FROM nitro_memory_by_owner WHERE rolname = 'a' AND (SELECT nitro_verify('a_i_nitro') > 0)"
[[ $(ask old "$(rows a 1 50000)") == *exceeded* ]] || fail "the file's limit"
assert_eq "b has one of its own" "$(sql "$(rows b 1 1000)")" ""
setting nitro.max_memory_per_owner -1
end old

note "ALTER TABLE OWNER takes the charge along"
sql "ALTER ROLE a SET nitro.max_memory_per_owner = '2MB'"
before=$(owner a)
sql "ALTER TABLE a OWNER TO postgres; SELECT nitro_verify('a_i_nitro'), nitro_verify('a_s_nitro')" > /dev/null
assert_eq "a holds" "$(owner a)" 0
[ "$(owner postgres)" -ge "$before" ] || fail "it is nobody's: $(owner postgres), $before"
sql "BEGIN; ALTER TABLE a OWNER TO b; SELECT nitro_verify('a_i_nitro'); ROLLBACK; $(rows a 1 1)" > /dev/null
sql "SELECT nitro_verify('a_i_nitro'), nitro_verify('a_s_nitro')" > /dev/null
[ "$(owner postgres)" -ge "$before" ] || fail "a rolled back ALTER keeps it"
nothing_left "another owner"

note "storms of two tenants"
sql "ALTER ROLE a SET nitro.max_memory_per_owner = '8MB'; ALTER ROLE b SET nitro.max_memory_per_owner = '8MB'"
table a a; table b b
for w in 1 2 3; do
    (for r in 1 2 3 4 5 6; do "${PSQL[@]}" -p "$(port)" -c "$(rows a "(random() * 1e6)::int" "1500000")" > /dev/null 2>> "$NITRO_TMP/storm" || true; done) &
done
for _ in 1 2 3; do "${PSQL[@]}" -p "$(port)" -c "SELECT nitro_backup()" > /dev/null; done &
for n in $(seq 0 39); do sql "$(rows b $((n * 500)) $((n * 500 + 499)))"; done
wait
[ "$(grep -c 'memory limit of role "a" exceeded' "$NITRO_TMP/storm")" = 18 ] || fail "$(sort "$NITRO_TMP/storm" | uniq -c)"
assert_eq "the other has all" "$(sql "SELECT count(*) FROM b")" 20000
[ "$(owner a)" -le 8388608 ] || fail "a holds $(owner a)"
whole a; whole b
sql "VACUUM a, b"; whole a; whole b

note "a database's share"
sql "ALTER DATABASE postgres SET nitro.max_memory_per_database = '20MB'; ALTER ROLE a RESET ALL"
[[ $(sql_fails "$(rows a 1 1000000)") == '53400: nitro memory limit of database "postgres" exceeded'* ]] || fail "no limit"
assert_eq "it holds" "$(sql "SELECT bytes <= 20971520, max_bytes FROM nitro_memory_by_database")" "t|20971520"
sql "ALTER DATABASE postgres RESET ALL"

note "an index' share"
sql "VACUUM a; ALTER INDEX a_i_nitro SET (max_memory = '1MB')"
[[ $(sql_fails "$(rows a 1 300000)") == '53400: nitro memory limit of the index exceeded while adding to index "a_i_nitro"'* ]] || fail "no limit"
sql "ALTER INDEX a_i_nitro RESET (max_memory)"
sql "$(rows a 1 10000)"
[[ $(sql_fails "CREATE INDEX a_2 ON b USING nitro (repeat(s, 17)) WITH (max_memory = '1MB')") == 53400:* ]] || fail "CREATE INDEX"

note "REINDEX, CONCURRENTLY, where there is no room for both"
sql "VACUUM b"
while [ "$(owner b)" -lt 750000 ]; do sql "$(rows b 1 2000); VACUUM b"; done
sql "ALTER ROLE b SET nitro.max_memory_per_owner = '1MB'"
[[ $(sql_fails "REINDEX INDEX CONCURRENTLY b_s_nitro") == '53400: nitro memory limit of role "b"'* ]] || fail "REINDEX CONCURRENTLY"
sql "DROP INDEX b_s_nitro_ccnew"
assert_eq "the old one" "$(state b_s_nitro)" ready
[[ $(sql_fails "CREATE INDEX CONCURRENTLY b_2 ON b USING nitro (s, i)") == 53400:* ]] || fail "CREATE INDEX CONCURRENTLY"
sql "DROP INDEX b_2"
whole b
[[ $(said "REINDEX INDEX b_s_nitro") == *WARNING*b_s_nitro*"left unbuilt: nitro memory limit of role"* ]] || fail "REINDEX"
sql "$(rows b 1 10)"
sql "ALTER ROLE b SET nitro.max_memory_per_owner = '8MB'"
ready b_s_nitro; whole b
nothing_left "after storms"

note "numbers of indexes"
sql "ALTER ROLE a SET nitro.max_indexes_per_owner = 2; ALTER DATABASE postgres SET nitro.max_indexes_per_database = 4"
table a a; sql "$(rows a 1 100)"
out=$(sql_fails "CREATE INDEX ON a USING nitro (s)")
[[ $out == '53400: too many nitro indexes of role "a" in memory'* ]] || fail "$out"
table b b; sql "$(rows b 1 100)"
out=$(sql_fails "CREATE INDEX ON b USING nitro (s)")
[[ $out == '53400: too many nitro indexes of database "postgres" in memory'* ]] || fail "$out"
[[ $(said "REINDEX INDEX a_i_nitro") == *WARNING*a_i_nitro*"left unbuilt"* ]] || fail "REINDEX"
sql "$(rows a 1 1000); SELECT nitro_verify('a_i_nitro', true)" > /dev/null
sql "DROP INDEX a_s_nitro; CREATE INDEX a_s_nitro ON a USING nitro (s COLLATE \"C\")"
sql "ALTER ROLE a SET nitro.max_indexes_per_owner = 1"
restart
# Which of the two comes first is open: a builder is under way, too.
sql "SET enable_seqscan = off; SELECT count(*) FROM a WHERE s COLLATE \"C\" = 'x'; SELECT count(*) FROM a WHERE i = 1; $(rows a 1 10)" > /dev/null
[ "$(logged 'LOG:  too many nitro indexes of role "a" in memory')" -gt 0 ] || fail "an index is left out in silence"
wait_until "SELECT array_agg(state ORDER BY state) = '{ready,unbuilt}' FROM pg_stat_nitro_indexes WHERE relname = 'a'"
sql "ALTER ROLE a RESET ALL; ALTER DATABASE postgres RESET ALL; CREATE INDEX ON a USING nitro (s)"
ready a_i_nitro a_s_nitro; whole a
nothing_left "numbers"

note "half-inserted rows, savepoints, two-phase commit, temporary tables"
sql "ALTER ROLE a SET nitro.max_memory_per_owner = '4MB'"
table a a
sql_fails "BEGIN; $(rows a 1 1000); SAVEPOINT s; CREATE INDEX ON a USING nitro (i, s); $(rows a 1 500000)" > /dev/null
"${PSQL[@]}" -p "$(port)" -c "BEGIN; CREATE TABLE u (i int); ALTER TABLE u OWNER TO a; CREATE INDEX ON u USING nitro (i); INSERT INTO u VALUES (1); PREPARE TRANSACTION 'p'" > /dev/null
sql "ROLLBACK PREPARED 'p'"
sql "VACUUM a; SET ROLE a; CREATE TEMP TABLE x (i int); CREATE INDEX ON x USING nitro (i); INSERT INTO x SELECT generate_series(1, 1000)"
sql "TRUNCATE a"
wait_until "SELECT bytes < 100000 AND indexes = 2 FROM nitro_memory_by_owner WHERE rolname = 'a'"
sql "$(rows a 1 1000)"; whole a
kill_backend "$(sql "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")" || true
ready a_s_nitro a_i_nitro; whole a
nothing_left "small things"

note "when_full: an index for which its owner has no room is given up, and comes back"
setting nitro.when_full give_up_index
table a a
out=$(said "$(rows a 1 60000)")
[[ $out == *'WARNING:'*'nitro index "a_'*'is given up: nitro memory limit of role "a" exceeded'* ]] || fail "no WARNING: $out"
assert_eq "rows" "$(sql "SELECT count(*) FROM a")" 60000
assert_eq "given up" "$(sql "SELECT sum(given_up) > 0, bool_or(state = 'unbuilt') FROM pg_stat_nitro_indexes")" "t|t"
[ "$(owner a)" -le 4194304 ] || fail "a holds $(owner a)"
setting nitro.when_full error
[[ $(sql_fails "$(rows a 1 10)") == '53400: nitro memory limit of role "a" exceeded for index "a_'* ]] || fail "with the other choice"
sql "ALTER ROLE a SET nitro.max_memory_per_owner = '30MB'; SET enable_seqscan = off; SELECT count(*) FROM a WHERE s COLLATE \"C\" = 'x'; SELECT count(*) FROM a WHERE i = 5" > /dev/null
built a_s_nitro; built a_i_nitro; whole a

note "a restart with less than the indexes need"
sql "CHECKPOINT; SELECT nitro_backup()" > /dev/null
sql "ALTER ROLE a SET nitro.max_memory_per_owner = '1MB'"
restart
sql "SET enable_seqscan = off; SELECT count(*) FROM a WHERE s COLLATE \"C\" = 'x'; SELECT count(*) FROM a WHERE i = 5" > /dev/null
wait_until "SELECT count(*) FILTER (WHERE given_up > 0) > 0 FROM pg_stat_nitro_indexes"
[ "$(owner a)" -le 1048576 ] || fail "a holds $(owner a)"
[[ $(sql_fails "$(rows a 1 10)") == 53400:* ]] || fail "a write where the index has no room"
setting nitro.when_full give_up_index
sql "$(rows a 1 10)"
[ "$(grep -c 'a_s_nitro.*is not loaded' "$NITRO_TMP/main.log")" -le 2 ] || fail "tried again and again"
sql "ALTER ROLE a RESET ALL; SET enable_seqscan = off; SELECT count(*) FROM a WHERE s COLLATE \"C\" = 'x'; SELECT count(*) FROM a WHERE i = 5" > /dev/null
built a_s_nitro; built a_i_nitro; whole a
crash; start
ready a_s_nitro a_i_nitro; whole a
nothing_left "after all"

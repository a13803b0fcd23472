#!/usr/bin/env bash
# CREATE INDEX CONCURRENTLY and REINDEX CONCURRENTLY without free memory: the old index stays as it is, and
# the new one leaves nothing in memory.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"

new_server -c "nitro.max_memory = 16MB" -c "maintenance_work_mem = 8MB" -c "nitro.backup = off"
empty=$(sql "SELECT used FROM nitro_memory")
# (An invalid index has its entry in the directory until it is dropped.)
memory() { sql "SELECT used FROM nitro_memory"; }
index() { sql "SELECT indisvalid, indisready FROM pg_index WHERE indexrelid = '$1'::regclass"; }
rows() { echo "INSERT INTO t SELECT i, repeat(md5(i::text), 17) FROM generate_series($1, $2) i"; }
answers() {
    same_answers t "SELECT s FROM t WHERE s COLLATE \"C\" > 'e' ORDER BY s COLLATE \"C\"" "SELECT i FROM t WHERE i < 3000 ORDER BY i"
    sql "SELECT nitro_verify('t_s_nitro', true), nitro_verify('t_i_nitro', true)" > /dev/null
}
begin() { # an index that takes more than half of the area, so that there is no room for another one
    sql "DROP TABLE IF EXISTS t" 2> /dev/null; wait_until "SELECT used = $empty FROM nitro_memory"
    sql "CREATE TABLE t (i int, s text); $(rows 1 13500); CREATE INDEX t_s_nitro ON t USING nitro (s COLLATE \"C\"); CREATE INDEX t_i_nitro ON t USING nitro (i)
        ; CREATE INDEX t_s_btree ON t (s COLLATE \"C\"); CREATE INDEX t_i_btree ON t (i); ANALYZE t"
    [ "$(sql "SELECT used FROM nitro_memory")" -gt 8600000 ] || fail "too little memory is in use: $(memory)"
}
out_of_memory() { # STATEMENT
    local out
    out=$("${PSQL[@]}" -p "$(port)" -v VERBOSITY=verbose -c "$1" 2>&1) && fail "there is memory: $1"
    [[ $out == *"53200: out of nitro memory"*DETAIL:*HINT:*nitro.max_memory* ]] || fail "$1: $out"
}

for choice in error give_up_index; do
    setting nitro.when_full $choice
    note "nitro.when_full = $choice"
    begin; before=$(memory)
    case $choice in
        error)
            for _ in 1 2 3; do
                out_of_memory "REINDEX INDEX CONCURRENTLY t_s_nitro"
                assert_eq "the one that was there" "$(index t_s_nitro)" "t|t"
                assert_eq "the new one" "$(index t_s_nitro_ccnew)" "f|f"
                assert_eq "memory" "$(memory)" "$before"
                answers
                sql "$(rows 20001 20010); DELETE FROM t WHERE i > 20000; VACUUM t"; answers
                sql "DROP INDEX t_s_nitro_ccnew"; before=$(memory)
                assert_eq "entries" "$(sql "SELECT indexes FROM nitro_memory")" 2
            done
            out_of_memory "REINDEX TABLE CONCURRENTLY t"
            answers; for i in $(sql "SELECT oid::regclass FROM pg_class WHERE relname ~ '_ccnew'"); do sql "DROP INDEX $i"; done
            for unique in "" UNIQUE; do
                [ -z "$unique" ] || [ "$(major)" -ge 18 ] || continue
                before=$(memory)
                out_of_memory "CREATE $unique INDEX CONCURRENTLY t_new ON t USING nitro (s COLLATE \"C\")"
                assert_eq "it is not valid" "$(index t_new)" "f|f"
                assert_eq "memory" "$(memory)" "$before"
                sql "$(rows 20001 20010); DELETE FROM t WHERE i > 20000; VACUUM t"; answers
                sql "DROP INDEX t_new"
            done ;;
        *)
            out=$(sql "CREATE INDEX CONCURRENTLY t_new ON t USING nitro (s COLLATE \"C\", i)" 2>&1)
            [[ $out == *WARNING*t_new*"is given up"* ]] || fail "no WARNING: $out"
            assert_eq "it is valid, and unbuilt" "$(index t_new) $(state t_new)" "t|t unbuilt"
            answers
            sql "DROP INDEX t_new"; assert_eq "memory" "$(memory)" "$before"
            out=$(sql "REINDEX INDEX CONCURRENTLY t_s_nitro" 2>&1)
            [[ $out == *WARNING*t_s_nitro*"is given up"* ]] || fail "no WARNING: $out"
            # The old index is gone then, so there is room for the next process.
            assert_eq "it is valid" "$(index t_s_nitro)" "t|t"
            sql "SELECT count(*) FROM t WHERE s COLLATE \"C\" = 'x'" > /dev/null; built t_s_nitro
            # An index built by inserts is a little larger.
            [ "$(memory)" -le $((before * 11 / 10)) ] || fail "$(memory) bytes are in use, $before before" ;;
    esac
    answers
done
sql "DROP TABLE t"
wait_until "SELECT used = $empty AND indexes = 0 FROM nitro_memory"

note "without the end of a build that fails its memory is not free"
setting nitro.when_full error
begin; before=$(memory)
mechanism unfinished
out_of_memory "REINDEX INDEX CONCURRENTLY t_s_nitro"
[ "$(memory)" -gt $((before + 1000000)) ] || fail "$(memory) bytes are in use, $before before"
mechanism none

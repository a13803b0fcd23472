#!/usr/bin/env bash
# pg_upgrade of a cluster that has nitro indexes of every kind, from the server in $NITRO_OLD to this one,
# by copies, links and swapped folders. Run by ci/pg_upgrade.sh, which makes that server.
. "$(dirname "$0")"/../lib.sh
. "$(dirname "$0")"/../answers.sh
: "${NITRO_OLD:?run this through ci/pg_upgrade.sh}"
new=$NITRO_BIN new_major=$(major)
NITRO_BIN=$NITRO_OLD; old_major=$(major)
version=$(sed -n "s/^default_version = '\(.*\)'/\1/p" "$("$new/pg_config" --sharedir)/extension/nitro.control")
cluster=(-c "nitro.backup = on" -c "nitro.backup_rate = 0" -c "nitro.when_full = give_up_index")

# Each index has a twin, where btree has one.
declare -A definition=([k]="(k)" [c]="(c)" [l]="(l)" [many]="(d DESC, k) INCLUDE (id)" [mod]="((k % 7), id)" [part]="(c, id) WHERE k > 2000")
declare -A elements=([tags]="(tags)" [doc]="(doc jsonb_array_ops)")
questions=("SELECT id, k FROM t WHERE k BETWEEN 100 AND 900 ORDER BY k, id" "SELECT k FROM t WHERE k IN (5, 77, 4000, 8001) ORDER BY k" "SELECT c FROM t WHERE c COLLATE \"C\" > 'B5' ORDER BY c"
    "SELECT l FROM t WHERE l >= 'b' AND l < 'c9' ORDER BY l" "SELECT id, l FROM t WHERE l = 'Zebra 77'" "SELECT d, k, id FROM t WHERE d < '2020-02-01' ORDER BY d DESC, k, id" "SELECT id FROM t WHERE k % 7 = 3 ORDER BY id"
    "SELECT c, id FROM t WHERE k > 2000 AND c > 'A' ORDER BY c, id")
element_questions=("SELECT id FROM t WHERE tags @> '{5}'" "SELECT id FROM t WHERE tags && '{3,9}'" "SELECT id FROM t WHERE doc @> '[3]'")

rows() { # FROM TO: two words of each letter that only a linguistic order brings together
    echo "INSERT INTO t SELECT g, g * 3 % 8000, chr(65 + g % 26) || g, CASE g % 3 WHEN 0 THEN 'Zebra ' WHEN 1 THEN 'b' ELSE 'B' END || g, date '2020-01-01' + g % 60, ARRAY[g % 10, g % 7], jsonb_build_array(g % 5, 'x') FROM generate_series($1, $2) g"
}
make_all() {
    local k
    sql "CREATE ROLE other; GRANT ALL ON SCHEMA public TO other; GRANT SET ON PARAMETER nitro.backup_rate TO other; ALTER ROLE other SET nitro.max_memory_per_owner = '100MB'; ALTER DATABASE app SET nitro.max_indexes_per_database = 90"
    sql "CREATE TABLE t (id int, k int, c text COLLATE \"C\", l text, d date, tags int[], doc jsonb); ALTER TABLE t OWNER TO other; $(rows 1 4000)"
    for k in "${!definition[@]}"; do sql "CREATE INDEX t_${k}_nitro ON t USING nitro ${definition[$k]}; CREATE INDEX t_${k}_btree ON t ${definition[$k]}"; done
    for k in "${!elements[@]}"; do sql "CREATE INDEX t_${k}_nitro ON t USING nitro ${elements[$k]}"; done
    if [ "$old_major" -ge 18 ]; then sql "CREATE UNIQUE INDEX t_unique_nitro ON t USING nitro (id); CREATE UNIQUE INDEX t_unique_btree ON t (id)"; fi
    sql "DELETE FROM t WHERE id % 11 = 0; UPDATE t SET k = k + 1 WHERE id % 5 = 0; UPDATE t SET d = d WHERE id % 7 = 0"
    sql "CREATE TABLE p (k int, c text) PARTITION BY RANGE (k); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (1000); CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (1000) TO (9000);
         INSERT INTO p SELECT g, 'c' || g FROM generate_series(1, 3000) g; CREATE INDEX p1_k_nitro ON p1 USING nitro (k); CREATE INDEX p2_k_nitro ON p2 USING nitro (k); CREATE INDEX p_k_nitro ON p USING nitro (k)"
    sql "CREATE UNLOGGED TABLE u AS SELECT g AS k FROM generate_series(1, 2000) g; CREATE INDEX u_k_nitro ON u USING nitro (k); CREATE INDEX u_k_btree ON u (k)"
    # Without an image it is unbuilt after a restart.
    sql "CREATE TABLE left_out AS SELECT g AS k FROM generate_series(1, 2000) g; CREATE INDEX left_out_k_nitro ON left_out USING nitro (k) WITH (backup = off); CREATE INDEX left_out_k_btree ON left_out (k)"
    sql "CREATE TABLE large (c text COLLATE \"C\"); CREATE INDEX large_c_nitro ON large USING nitro (c) WITH (max_memory = '1MB'); CREATE INDEX large_c_btree ON large (c);
         INSERT INTO large SELECT repeat(md5(g::text), 8) FROM generate_series(1, 8000) g" 2> /dev/null
    sql "CREATE FUNCTION f(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 1000 / \$1; END';
         CREATE TABLE broken AS SELECT g AS k FROM generate_series(1, 100) g; CREATE INDEX broken_f_nitro ON broken USING nitro (f(k)) WITH (backup = off); CREATE INDEX broken_f_btree ON broken (f(k));
         CREATE OR REPLACE FUNCTION f(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 1000 / (\$1 - 50); END'"
    [[ $(sql_fails "CREATE INDEX CONCURRENTLY broken_invalid_nitro ON broken USING nitro ((1 / (k - 50)))") == 22012* ]] || fail "no failure"
    PGDATABASE=two sql "CREATE SCHEMA ext; CREATE EXTENSION nitro VERSION '0.1.0' SCHEMA ext; CREATE TABLE t AS SELECT g AS id, g AS k FROM generate_series(1, 3000) g; CREATE INDEX t_k_nitro ON t USING nitro (k); CREATE INDEX t_k_btree ON t (k)"
}
states() { # of those that are not as usual
    assert_eq "left out" "$(state left_out_k_nitro)" unbuilt
    wait_until "SELECT (SELECT count(*) FROM large WHERE c = 'x') = 0 AND given_up > 0 FROM pg_stat_nitro_indexes WHERE indexrelname = 'large_c_nitro'"
    wait_until "SELECT (SELECT count(*) FROM broken WHERE f(k) = 3 AND k = 60) = 0 AND state = 'failed' FROM pg_stat_nitro_indexes WHERE indexrelname = 'broken_f_nitro'"
}
two() { PGDATABASE=two sql "SELECT ext.nitro_verify('t_k_nitro', true)" > /dev/null; PGDATABASE=two same_answers t "SELECT k FROM t WHERE k BETWEEN 5 AND 2900 ORDER BY k"; }
right() { # every index is built, whole, and answers as the table and its twin do
    local i
    for i in t p1 p2 u left_out; do verified $i; done
    same_answers t "${questions[@]}" "${element_questions[@]}"
    same_answers p "SELECT k FROM p WHERE k BETWEEN 900 AND 1100 ORDER BY k"
    for i in u left_out; do same_answers $i "SELECT k FROM $i WHERE k BETWEEN 100 AND 1500 ORDER BY k"; done
    any_plan=1 same_answers large "SELECT c FROM large WHERE c > 'b' ORDER BY c"
    any_plan=1 same_answers broken "SELECT k FROM broken WHERE k > 7 ORDER BY k"
    [ "$old_major" -lt 18 ] || [[ $(sql_fails "INSERT INTO t (id) VALUES (1)") == 23505* ]] || fail "a duplicate"
    two
}
images() { for d in app two; do PGDATABASE=$d sql "SELECT $([ $d = app ] || echo ext.)nitro_backup()" > /dev/null; done; }
folders() { (cd "$(data)" && find pg_nitro -mindepth 2 -maxdepth 2 | sort); }
slots() { ls "$(data)/pg_replslot"; }

note "PostgreSQL $old_major"
node=old
PGDATABASE=postgres new_server "${cluster[@]}"
for d in app two; do PGDATABASE=postgres sql "CREATE DATABASE $d TEMPLATE template0 LOCALE 'en_US.UTF-8'"; done
export PGDATABASE=app
sql "CREATE EXTENSION nitro"
make_all
images
restart
states
right
# Indexes built for these questions are unbuilt again.
images; restart; states
assert_eq "invalid" "$(sql "SELECT count(*) FROM pg_index WHERE NOT indisvalid")" 1
wait_until "SELECT count(*) >= 10 AND bool_and(state = 'ready') FROM pg_stat_nitro_indexes WHERE indexrelname ~ '^(t|p1|p2)_.*_nitro'"
assert_eq "its slot" "$(slots)" nitro
stop
assert_eq "its slot, stopped" "$(slots)" ""
had=$(folders)
[ "$(wc -l <<< "$had")" -ge 11 ] || fail "images of $had"

said=$NITRO_TMP/pg_upgrade.out
upgrade() { # [OPTION]...: from a copy of the old cluster to $node
    (cd "$NITRO_TMP" && "$new/pg_upgrade" -U postgres -b "$NITRO_OLD" -B "$new" -d from.data -D "$(data)" -p 5501 -P 5502 -j 2 -N --retain "$@") > "$said" 2>&1
}
from_old() { rm -rf "$NITRO_TMP/from.data"; cp -a "$NITRO_TMP/old.data" "$NITRO_TMP/from.data"; }
NITRO_BIN=$new
# Servers before 18 make no checksums unless asked, and both clusters must agree.
[ "$old_major" -ge 18 ] || [ "$new_major" -lt 18 ] || initdb_options=(--no-data-checksums)
modes=(copy link)
[ "$new_major" -lt 18 ] || modes+=(swap)
for node in "${modes[@]}"; do
    note "to PostgreSQL $new_major, $node"
    from_old; new_data "${cluster[@]}"
    option=(); [ "$node" = copy ] || option=(--"$node")
    upgrade "${option[@]}" --check || { cat "$said"; fail "pg_upgrade --check"; }
    ! grep -i nitro "$said" || fail "pg_upgrade --check speaks of nitro"
    upgrade "${option[@]}" || { cat "$said"; fail "pg_upgrade"; }
    # Neither server had a keeper or a builder.
    ! grep -rE 'nitro (keeper|builder)|(ERROR|WARNING|FATAL):.*nitro' "$(data)/pg_upgrade_output.d" --include='*.log' || fail "what was at work"
    assert_eq "images, slots" "$(find "$(data)/pg_nitro" -mindepth 1 2> /dev/null)$(slots)" ""
    if [ "$node" = copy ]; then assert_eq "images of the old cluster" "$(node=from folders)" "$had"; fi

    start
    # The servers may have different C libraries with different orders. btree does not notice the
    # difference.
    for d in app two; do PGDATABASE=$d sql "ALTER DATABASE $d REFRESH COLLATION VERSION" > /dev/null 2>&1; done
    sql "REINDEX INDEX t_l_btree"
    assert_eq "invalid" "$(sql "SELECT count(*) FROM pg_index WHERE NOT indisvalid")" 0
    assert_eq "states" "$(sql "SELECT string_agg(DISTINCT state, ' ') FROM pg_stat_nitro_indexes")" unbuilt
    assert_eq "settings" "$(sql "SELECT string_agg(s, ' ' ORDER BY s) FROM pg_db_role_setting, unnest(setconfig) s")" "nitro.max_indexes_per_database=90 nitro.max_memory_per_owner=100MB"
    states; right
    assert_eq "of images" "$(logged 'from its image')" 0

    note "the extension"
    assert_eq "versions" "$(sql "SELECT extversion FROM pg_extension WHERE extname = 'nitro'") $(PGDATABASE=two sql "SELECT extversion FROM pg_extension WHERE extname = 'nitro'")" "$version 0.1.0"
    grep -q 'ALTER EXTENSION "nitro" UPDATE' "$NITRO_TMP/update_extensions.sql" || fail "nothing says that there is a newer one"
    "${PSQL[@]}" -p "$(port)" -v ON_ERROR_STOP=1 -f "$NITRO_TMP/update_extensions.sql" || fail "ALTER EXTENSION"
    sql "ALTER EXTENSION nitro UPDATE" 2> /dev/null
    assert_eq "version" "$(PGDATABASE=two sql "SELECT extversion FROM pg_extension WHERE extname = 'nitro'")" "$version"

    note "writes, and a crash"
    sql "$(rows 8001 9000); DELETE FROM t WHERE id % 13 = 0; UPDATE t SET k = k + 2, l = 'Zebra' WHERE id % 9 = 0; VACUUM t; UPDATE t SET d = d - 1 WHERE id % 17 = 0; INSERT INTO p SELECT g, 'new' FROM generate_series(900, 1100) g; DELETE FROM left_out WHERE k < 500;
         ALTER INDEX large_c_nitro RESET (max_memory); CREATE OR REPLACE FUNCTION f(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 1000 / \$1; END'"
    right; verified large; verified broken; images
    sql "INSERT INTO u SELECT g FROM generate_series(1, 10) g; $(rows 9001 9100)"
    crash; start
    wait_until "SELECT count(*) >= 10 AND bool_and(state = 'ready') FROM pg_stat_nitro_indexes WHERE indexrelname ~ '^(t|p1|p2)_.*_nitro'"
    [ "$(logged 'from its image')" -ge 10 ] || fail "its own images are not used"
    assert_eq "unlogged" "$(sql "SELECT count(*) FROM u")" 0
    sql "INSERT INTO u SELECT g FROM generate_series(1, 2000) g"
    right; verified large; verified broken
    stop

    if [ "$node" = copy ]; then
        note "images of the old cluster, put there by hand"
        rm -r "$(data)/pg_nitro"; cp -a "$NITRO_TMP/from.data/pg_nitro" "$(data)/"
        from=$(log_end); start; right
        [ "$(logged 'its image is not used: it belongs to another database system' "$from")" -ge 10 ] || fail "nothing says why"
        assert_eq "of images" "$(logged 'from its image' "$from")" 0
        stop
    fi
    rm -r "$(data)"
done

note "a new cluster without the preload"
node=bare; from_old; new_data "${cluster[@]}" -c "shared_preload_libraries = ''"
upgrade --check || { cat "$said"; fail "pg_upgrade --check sees it: say so in docs/operations.md"; }
! upgrade || fail "indexes were made without the preload"
grep -rq 'nitro must be loaded by "shared_preload_libraries"' "$(data)/pg_upgrade_output.d" --include='*.log' || fail "nothing says why"
note "the old cluster goes on"
node=from NITRO_BIN=$NITRO_OLD
start; right
[ "$(logged 'from its image')" -ge 10 ] || fail "its images are not used"
stop

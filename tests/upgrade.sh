#!/usr/bin/env bash
# A database whose extension is of 0.1.0 under this library. Everything works before ALTER EXTENSION UPDATE.
# After it the extension equals the one that CREATE EXTENSION makes, and its indexes are the old ones.
. "$(dirname "$0")"/lib.sh
. "$(dirname "$0")"/answers.sh
. "$(dirname "$0")"/upgrade/indexes.sh
share=$("$NITRO_BIN/pg_config" --sharedir)
cp "$(dirname "$0")/upgrade/nitro--0.1.0.sql" "$share/extension/"
# The images of its indexes are changed by hand.
new_server -c "nitro.backup = on" -c "max_wal_size = 1GB" -c "nitro.debug_collect = off"

# All objects of the extension, as far as the catalogues show them, without the names of its schema.
members() { # SCHEMA
    sql "SET search_path = $1, pg_catalog;
    WITH m AS (SELECT classid, objid FROM pg_depend d JOIN pg_extension e ON refclassid = 'pg_extension'::regclass AND refobjid = e.oid
               WHERE extname = 'nitro' AND deptype = 'e'),
    lines(line) AS (
        SELECT pg_describe_object(classid, objid, 0) || coalesce(': ' || obj_description(objid, classid::regclass::name), '') FROM m
        UNION ALL
        SELECT pg_get_functiondef(p.oid) || coalesce(p.proacl::text, '') FROM m JOIN pg_proc p ON p.oid = objid WHERE classid = 'pg_proc'::regclass
        UNION ALL
        SELECT c.relname || pg_get_viewdef(c.oid) || coalesce(c.relacl::text, '') FROM m JOIN pg_class c ON c.oid = objid WHERE classid = 'pg_class'::regclass
        UNION ALL
        SELECT o.oid::regoperator || ' ' || oprcode || ' ' || oprrest || ' ' || oprjoin FROM m JOIN pg_operator o ON o.oid = objid WHERE classid = 'pg_operator'::regclass
        UNION ALL
        SELECT concat_ws(' ', 'class', opcname, opcnamespace::regnamespace, f.opfname, opcintype::regtype, opcdefault, opckeytype::regtype)
        FROM m JOIN pg_opclass o ON o.oid = objid JOIN pg_opfamily f ON f.oid = opcfamily WHERE classid = 'pg_opclass'::regclass
        UNION ALL
        SELECT concat_ws(' ', f.opfname, amopstrategy, amoplefttype::regtype, amoprighttype::regtype, amopopr::regoperator)
        FROM m JOIN pg_opfamily f ON f.oid = objid JOIN pg_amop ON amopfamily = f.oid WHERE classid = 'pg_opfamily'::regclass
        UNION ALL
        SELECT concat_ws(' ', f.opfname, amprocnum, amproclefttype::regtype, amprocrighttype::regtype, amproc::regprocedure)
        FROM m JOIN pg_opfamily f ON f.oid = objid JOIN pg_amproc ON amprocfamily = f.oid WHERE classid = 'pg_opfamily'::regclass)
    SELECT replace(line, '$1.', '') FROM lines ORDER BY 1"
}
for place in public ext '"Of, Ours"'; do
    note "the extension in $place"
    for base in fresh old; do sql "SET client_min_messages = error; DROP DATABASE IF EXISTS $base"; sql "CREATE DATABASE $base"; done
    for base in fresh old; do [ "$place" = public ] || PGDATABASE=$base sql "CREATE SCHEMA $place"; done
    PGDATABASE=fresh sql "CREATE EXTENSION nitro SCHEMA $place"
    PGDATABASE=old sql "CREATE EXTENSION nitro VERSION '0.1.0' SCHEMA $place"
    [ "$(PGDATABASE=old members "$place")" != "$(PGDATABASE=fresh members "$place")" ] || fail "0.1.0 is like this version"
    PGDATABASE=old sql "ALTER EXTENSION nitro UPDATE"
    diff <(PGDATABASE=fresh members "$place") <(PGDATABASE=old members "$place") > "$NITRO_TMP/difference" ||
        { head -n 40 "$NITRO_TMP/difference"; fail "updated in $place, and created there, are not the same"; }
    assert_eq "version" "$(PGDATABASE=old sql "SELECT extversion FROM pg_extension WHERE extname = 'nitro'")" "$(PGDATABASE=fresh sql "SELECT extversion FROM pg_extension WHERE extname = 'nitro'")"
done

note "indexes of 0.1.0"
sql "DROP DATABASE old"; sql "CREATE DATABASE old"
export PGDATABASE=old
sql "CREATE SCHEMA ext; CREATE EXTENSION nitro VERSION '0.1.0' SCHEMA ext"
make_indexes
looks=("SELECT count(*), count(state) FROM ext.pg_stat_nitro_indexes" "SELECT count(*) < 9 FROM ext.pg_stat_progress_nitro" "SELECT count(*), bool_and(total > 0) FROM ext.nitro_memory")
look() { local q; for q in "${looks[@]}"; do sql "$q"; done; }
want=$(answers) seen=$(look)
assert_eq "views of 0.1.0" "$seen" $'8|8\nt\n1|t'
assert_eq "columns that it does not have" "$(sql "SELECT count(*) FROM information_schema.columns WHERE table_name = 'pg_stat_nitro_indexes' AND column_name = 'free_bytes'")" 0
assert_eq "columns behind those" "$(sql "SELECT bool_and(leaf_blocks BETWEEN 1 AND 1000 AND inner_blocks < 100 AND builder_pid IS NULL) FROM ext.pg_stat_nitro_indexes")" t
used; verified
# The keeper may be making one of them, and has made other images.
wait_until "SELECT ext.nitro_backup() >= 0 AND (SELECT count(*) = 0 FROM ext.pg_stat_progress_nitro)"
assert_eq "each has an image" "$(sql "SELECT count(*) FROM ext.pg_stat_nitro_indexes WHERE image_time > now() - interval '1 hour' AND image_bytes > 0")" 8
sql "UPDATE t SET i = i WHERE i % 3 = 0"
crash; start; answers > /dev/null; ready
assert_eq "after a crash, with the SQL of 0.1.0" "$(answers)" "$want"
verified

note "images of 0.1.0"
wait_until "SELECT ext.nitro_backup() >= 0 AND (SELECT count(*) = 0 FROM ext.pg_stat_progress_nitro)"
crash
# Images with the same lines except for the first would have been refused as well.
find "$(data)/pg_nitro" -name manifest -exec sed -i '1s/.*/nitro image 1/' {} +
from=$(log_end); start; answers > /dev/null; ready
assert_eq "from images" "$(logged 'loaded from its image' "$from")" 0
assert_eq "from tables" "$(logged 'nitro index "t_[a-z]*_nitro" rebuilt from its table' "$from")" 8
[ "$(logged 'is not used: unknown format version 1$' "$from")" -ge 8 ] || fail "nothing says why"
assert_eq "answers" "$(answers)" "$want"
verified

note "files that 0.1.0 wrote"
# From PostgreSQL 15, by tests/upgrade/first.sh: pages up to where they are empty, and an image of
# t_mod_nitro.
written=$(dirname "$0")/upgrade/0.1.0
sql "CREATE UNLOGGED TABLE u AS SELECT generate_series(1, 100) AS i; CREATE INDEX u_nitro ON u USING nitro (i)"
unlogged() { sql "SET enable_seqscan = off; SELECT count(*), sum(i) FROM u WHERE i > 0"; }
declare -A file=()
while read -r index path; do file[$index]=$(data)/$path; done < <(sql "SELECT relname, pg_relation_filepath(oid) FROM pg_class WHERE relname LIKE '%_nitro'" | tr '|' ' ')
file[u_nitro_init]=${file[u_nitro]}_init
images=$(data)/pg_nitro/$(sql "SELECT oid FROM pg_database WHERE datname = 'old'")
checksums=$(sql "SHOW data_checksums")
stop
[ "$checksums" = off ] || "$NITRO_BIN/pg_checksums" -D "$(data)" --disable > /dev/null
while read -r index page; do
    [ -f "${file[$index]}" ] || fail "no file of $index"
    printf '%b' "$(sed 's/../\\x&/g' <<< "$page")" > "${file[$index]}"; truncate -s 8192 "${file[$index]}"
done < "$written/pages"
rm -r "$images"; cp -r "$written" "$images"; rm "$images/pages"
from=$(log_end); start; answers > /dev/null; ready
assert_eq "from images" "$(logged 'loaded from its image' "$from")" 0
assert_eq "from tables" "$(logged 'nitro index "t_[a-z]*_nitro" rebuilt from its table' "$from")" 8
[ "$(logged "\"t_mod_nitro\": its image is not used: unknown format version 1$|$(basename "$written"/*/) is not used: unknown format version 1$" "$from")" -ge 1 ] || fail "nothing says why"
assert_eq "answers" "$(answers)" "$want"; verified
assert_eq "unlogged" "$(unlogged)" "100|5050"
# Their pages have room for fields that 0.1.0 did not know.
wait_until "SELECT ext.nitro_backup() >= 0 AND (SELECT count(*) = 0 FROM ext.pg_stat_progress_nitro)"
assert_eq "whose image it is" "$(grep -l 'name t_mod_nitro' "$images"/*/*/manifest | sed 's|/[0-9]*/manifest||' | sort -u)" "$images/$(basename "$written"/*/)"
crash; from=$(log_end); start; answers > /dev/null; ready
assert_eq "from their images" "$(logged 'nitro index "t_[a-z]*_nitro" loaded from its image' "$from")" 8
assert_eq "answers" "$(answers)" "$want"; verified
sql "INSERT INTO u VALUES (7)"
assert_eq "unlogged, after a crash" "$(unlogged)" "1|7"
sql "SELECT ext.nitro_verify('u_nitro', true); DROP TABLE u" > /dev/null

note "updated"
sql "CREATE VIEW mine AS SELECT relname FROM ext.pg_stat_nitro_indexes"
[[ $(sql_fails "ALTER EXTENSION nitro UPDATE") == 2BP01:* ]] || fail "a view of a user's is lost"
sql "DROP VIEW mine"
before=$(sql "SELECT array_agg(relfilenode ORDER BY oid) FROM pg_class WHERE relname LIKE 't_%_nitro'")
sql "ALTER EXTENSION nitro UPDATE"
assert_eq "answers" "$(answers)" "$want"
used; verified; ready
assert_eq "files" "$(sql "SELECT array_agg(relfilenode ORDER BY oid) FROM pg_class WHERE relname LIKE 't_%_nitro'")" "$before"
sql "INSERT INTO t SELECT g + 1000, g + 1000, 's', 'c', '{1}', '[1]', '2021-01-01' FROM generate_series(1, 100) g"; sql "CREATE INDEX ON t USING nitro (d, i, c text_pattern_ops)"
sql "DELETE FROM t WHERE a > 1000"
crash; start; answers > /dev/null; ready
assert_eq "after another crash" "$(answers)" "$want"
verified
sql "REINDEX TABLE t"
assert_eq "after REINDEX" "$(answers)" "$want"

note "dumped, and restored into another database"
"$NITRO_BIN/pg_dump" -p "$(port)" -Fp old > "$NITRO_TMP/dump.sql"
PGDATABASE=postgres sql "CREATE DATABASE restored"
PGDATABASE=restored "${PSQL[@]}" -p "$(port)" -v ON_ERROR_STOP=1 -f "$NITRO_TMP/dump.sql" > /dev/null || fail "the dump cannot be restored"
PGDATABASE=restored sql "ANALYZE t"
assert_eq "restored" "$(PGDATABASE=restored answers)" "$want"
PGDATABASE=restored verified

#!/usr/bin/env bash
# A database whose extension is of 0.1.0 under this library: everything works before ALTER EXTENSION UPDATE, after it
# the extension is the one that CREATE EXTENSION makes, and its indexes are those that were there.
. "$(dirname "$0")"/lib.sh
. "$(dirname "$0")"/answers.sh
share=$("$NITRO_BIN/pg_config" --sharedir)
cp "$(dirname "$0")/upgrade/nitro--0.1.0.sql" "$share/extension/"
new_server -c "nitro.backup = on" -c "max_wal_size = 1GB"

# Everything that the extension consists of, as far as the catalogues tell; not the names of its schema.
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
questions=("SELECT count(*), min(a), max(a) FROM t WHERE i < 900::int8 AND i > 17::int2" "SELECT a FROM t WHERE s = 's77'" "SELECT count(*) FROM t WHERE c LIKE 'c1%'"
    "SELECT count(*) FROM t WHERE tags @> '{5}'" "SELECT count(*) FROM t WHERE tags OPERATOR(ext.&<) 3" "SELECT count(*) FROM t WHERE doc @> '[3]'"
    "SELECT a FROM t WHERE d >= '2020-02-01'::timestamptz ORDER BY d DESC, s LIMIT 3" "SELECT count(*) FROM t WHERE i % 7 = 3" "SELECT count(*) FROM t WHERE s < 's2' AND i > 500")
answers() {
    local q
    for q in "${questions[@]}"; do sql "SET enable_seqscan = off; $q"; done
}
used() { # each of these questions has a nitro index for its answer
    local q
    for q in "${questions[@]}"; do
        [[ $(sql "SET enable_seqscan = off; EXPLAIN (COSTS OFF) $q") =~ t_(i|s|c|tags|doc|d|mod|part)_nitro ]] || fail "no index for: $q"
    done
}
verified() { sql "SELECT sum(ext.nitro_verify(oid, true)) > 0 FROM pg_class WHERE relname LIKE 't_%_nitro'" > /dev/null; }
ready() { wait_until "SELECT bool_and(state = 'ready') FROM ext.pg_stat_nitro_indexes"; }

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
sql "CREATE TABLE t (a int, i int, s text, c text COLLATE \"C\", tags int[], doc jsonb, d date)
     WITH (autovacuum_enabled = off);
     INSERT INTO t SELECT g, g, 's' || g, 'c' || g, ARRAY[g % 10, g % 7], jsonb_build_array(g % 5, 'x'), date '2020-01-01' + g % 60 FROM generate_series(1, 1000) g"
sql "SET search_path = ext, public;
     CREATE INDEX t_i_nitro ON t USING nitro (i) INCLUDE (a); CREATE INDEX t_s_nitro ON t USING nitro (s varchar_ops); CREATE INDEX t_c_nitro ON t USING nitro (c text_pattern_ops);
     CREATE INDEX t_tags_nitro ON t USING nitro (tags); CREATE INDEX t_doc_nitro ON t USING nitro (doc jsonb_array_ops); CREATE INDEX t_d_nitro ON t USING nitro (d DESC, s);
     CREATE INDEX t_mod_nitro ON t USING nitro ((i % 7)); CREATE INDEX t_part_nitro ON t USING nitro (s) WHERE i > 500; ANALYZE t"
looks=("SELECT count(*), count(state) FROM ext.pg_stat_nitro_indexes" "SELECT count(*) < 9 FROM ext.pg_stat_progress_nitro" "SELECT count(*), bool_and(total > 0) FROM ext.nitro_memory")
look() { local q; for q in "${looks[@]}"; do sql "$q"; done; }
want=$(answers) seen=$(look)
assert_eq "views of 0.1.0" "$seen" $'8|8\nt\n1|t'
assert_eq "columns that it does not have" "$(sql "SELECT count(*) FROM information_schema.columns WHERE table_name = 'pg_stat_nitro_indexes' AND column_name = 'free_bytes'")" 0
assert_eq "columns behind those" "$(sql "SELECT bool_and(leaf_blocks BETWEEN 1 AND 1000 AND inner_blocks < 100 AND builder_pid IS NULL) FROM ext.pg_stat_nitro_indexes")" t
used; verified
# The keeper may be making one of them, and has made others.
wait_until "SELECT ext.nitro_backup() >= 0 AND (SELECT count(*) = 0 FROM ext.pg_stat_progress_nitro)"
assert_eq "each has an image" "$(sql "SELECT count(*) FROM ext.pg_stat_nitro_indexes WHERE image_time > now() - interval '1 hour' AND image_bytes > 0")" 8
sql "UPDATE t SET i = i WHERE i % 3 = 0"
crash; start; answers > /dev/null; ready
assert_eq "after a crash, with the SQL of 0.1.0" "$(answers)" "$want"
verified

note "images of 0.1.0"
wait_until "SELECT ext.nitro_backup() >= 0 AND (SELECT count(*) = 0 FROM ext.pg_stat_progress_nitro)"
crash
# Had it written the same lines but for the first, they would have been left out as well.
find "$(data)/pg_nitro" -name manifest -exec sed -i '1s/.*/nitro image 1/' {} +
from=$(log_end); start; answers > /dev/null; ready
assert_eq "from images" "$(logged 'loaded from its image' "$from")" 0
assert_eq "from tables" "$(logged 'nitro index "t_[a-z]*_nitro" rebuilt from its table' "$from")" 8
[ "$(logged 'is not used: unknown format version 1$' "$from")" -ge 8 ] || fail "nothing says why"
assert_eq "answers" "$(answers)" "$want"
verified

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

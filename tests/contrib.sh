#!/usr/bin/env bash
# Types of other extensions. Without a class of their own they are refused; with the adopted class the
# answers are btree's. A dump has the classes. DROP EXTENSION drops them with their indexes.
. "$(dirname "$0")"/lib.sh
. "$(dirname "$0")"/answers.sh
new_server -c "nitro.backup = off" -c "jit = off"
sql "CREATE DATABASE here"
export PGDATABASE=here
sql "CREATE EXTENSION nitro"

# Where a type has equal values with different bytes, they are among these.
adopted() { # EXTENSION TYPE CLASS LESS GREATER MAKE: operators of its order, and an expression of i
    local extension=$1 type=$2 class=$3 less=$4 greater=$5 make=$6 t=t_$2 out some more rows=()
    if [ "$(sql "SELECT count(*) FROM pg_available_extensions WHERE name = '$extension'")" = 0 ]; then
        note "without $extension"
        return
    fi
    sql "SET client_min_messages = error; CREATE EXTENSION IF NOT EXISTS $extension"
    sql "CREATE TABLE $t (id int, k $type, pad text) WITH (autovacuum_enabled = off);
         INSERT INTO $t SELECT i, CASE WHEN i % 50 > 0 THEN ($make)::$type END, 'x' FROM generate_series(1, 1000) i;
         CREATE INDEX ${t}_btree ON $t (k, id)"
    out=$("${PSQL[@]}" -p "$(port)" -v VERBOSITY=verbose -c "CREATE INDEX ON $t USING nitro (k, id)" 2>&1) && fail "$type without its class"
    # Types like text have a message of their own. For the others the server reports.
    [[ $out == *42704* && $out == *HINT:*"operator class"* ]] || fail "$type without its class: $out"
    [ "$type" != citext ] || [[ $out == *nitro_adopt_opclass* ]] || fail "citext without its class: $out"
    sql "SELECT nitro_adopt_opclass('$class')" > /dev/null
    sql "CREATE INDEX ${t}_nitro ON $t USING nitro (k, id); CREATE INDEX ${t}_down_nitro ON $t USING nitro (k DESC NULLS LAST, id)"
    sql "INSERT INTO $t SELECT i, ($make)::$type FROM generate_series(1001, 1300) i; DELETE FROM $t WHERE id % 13 = 0"
    sql "VACUUM ANALYZE $t"
    verified "$t"
    some=$(sql "SELECT k FROM $t WHERE id = 77") more=$(sql "SELECT k FROM $t WHERE id = 602")
    # No operator of hstore has the name of an operator of integers.
    [ "$less" != "<" ] || rows=("SELECT id FROM $t WHERE (k, id) > ('$some', 500) ORDER BY k, id LIMIT 10" "SELECT id FROM $t WHERE (k, id) <= ('$more', 200)")
    same_answers "$t" "SELECT id, k, pad FROM $t WHERE k = '$some'" "SELECT id, k FROM $t WHERE k $less '$some'" "SELECT id FROM $t WHERE k $greater '$some'" \
        "SELECT id, k FROM $t ORDER BY k, id" "SELECT id, k, pad FROM $t ORDER BY k DESC NULLS LAST, id" "SELECT id, k FROM $t WHERE k IN ('$some', '$more')" \
        "SELECT id FROM $t WHERE k = '$more' AND id > 600 ORDER BY id" "SELECT id FROM $t WHERE k IS NULL ORDER BY id" "${rows[@]}"
    [[ $(sql "SET enable_seqscan = off; SET enable_bitmapscan = off; DROP INDEX ${t}_btree; EXPLAIN (COSTS off) SELECT id, k FROM $t WHERE k = '$some'") =~ "Index Only Scan using ${t}_" ]] ||
        fail "$type: no index-only scan"
}
adopted citext citext citext_ops "<" ">" "(ARRAY['word', 'Word', 'WORD'])[1 + i % 3] || i % 100"
adopted hstore hstore btree_hstore_ops "#<#" "#>#" "'a=>' || i % 100 || ', b=>NULL'"
adopted ltree ltree ltree_ops "<" ">" "'top.a' || i % 7 || '.b' || i % 90"
adopted cube cube cube_ops "<" ">" "'(' || i % 9 || ',' || i % 11 || ')'"
adopted seg seg seg_ops "<" ">" "(ARRAY['', '~'])[1 + i % 2] || i % 100 || '.0'"
adopted isn ean13 ean13_ops "<" ">" "'220' || lpad((i % 100)::text, 9, '0') || '?'"
adopted isn isbn13 isbn13_ops "<" ">" "'978' || lpad((i % 100)::text, 9, '0') || '?'"
mapfile -t all < <(sql "SELECT relname FROM pg_class WHERE relname LIKE 't\_%' AND relkind = 'r' ORDER BY 1")
[[ " ${all[*]} " == *" t_citext "* ]] || { note "no citext, nothing more"; exit 0; }

note "dumped and restored"
defined="SELECT string_agg(c.relname || pg_get_indexdef(c.oid), E'\n' ORDER BY c.relname) FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE amname = 'nitro'"
classes="SELECT string_agg(format('%s %s %s', opcname, opcintype::regtype, opcdefault), E'\n' ORDER BY opcname)
         FROM pg_opclass o JOIN pg_am a ON a.oid = opcmethod JOIN pg_depend d ON d.classid = 'pg_opclass'::regclass AND d.objid = o.oid AND refclassid = 'pg_am'::regclass
         WHERE amname = 'nitro' AND o.oid >= 16384 AND NOT EXISTS (SELECT FROM pg_depend e WHERE e.classid = d.classid AND e.objid = o.oid AND e.deptype = 'e')"
"$NITRO_BIN/pg_dump" -p "$(port)" here > "$NITRO_TMP/dump.sql" || fail "pg_dump"
PGDATABASE=postgres sql "CREATE DATABASE there"
"${PSQL[@]}" -p "$(port)" -v ON_ERROR_STOP=1 -d there -f "$NITRO_TMP/dump.sql" > "$NITRO_TMP/restore.out" 2>&1 || fail "restore: $(cat "$NITRO_TMP/restore.out")"
assert_eq "classes" "$(PGDATABASE=there sql "$classes")" "$(sql "$classes")"
assert_eq "indexes" "$(PGDATABASE=there sql "$defined")" "$(sql "$defined")"
export PGDATABASE=there
for t in "${all[@]}"; do
    verified "$t"
    assert_eq "rows of $t" "$(sql "SET enable_seqscan = off; SELECT md5(string_agg(id::text, ' ' ORDER BY k, id)) FROM $t")" \
        "$(PGDATABASE=here sql "SET nitro.enable_scan = off; SELECT md5(string_agg(id::text, ' ' ORDER BY k, id)) FROM $t")"
done

note "gone with the extension, and adopted again"
sql "SET client_min_messages = error; DROP EXTENSION citext CASCADE"
assert_eq "classes" "$(sql "$classes" | grep -c citext || true)" 0
assert_eq "indexes" "$(nitro_indexes t_citext)" ""
sql "CREATE EXTENSION citext; ALTER TABLE t_citext ADD k citext; UPDATE t_citext SET k = 'Word' || id % 9; SELECT nitro_adopt_opclass('citext_ops')" > /dev/null
sql "CREATE INDEX t_citext_nitro ON t_citext USING nitro (k); CREATE INDEX t_citext_btree ON t_citext (k)"
same_answers t_citext "SELECT id FROM t_citext WHERE k = 'wORD3'"
verified t_citext
sql "SET client_min_messages = error; DROP EXTENSION nitro CASCADE; CREATE EXTENSION nitro"
assert_eq "classes" "$(sql "$classes")" ""

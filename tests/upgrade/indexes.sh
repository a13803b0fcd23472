# tests/upgrade/indexes.sh: indexes of each kind that 0.1.0 had, and queries for them. Sourced after
# answers.sh; the extension is in the schema ext.

make_indexes() {
    sql "CREATE TABLE t (a int, i int, s text, c text COLLATE \"C\", tags int[], doc jsonb, d date)
         WITH (autovacuum_enabled = off);
         INSERT INTO t SELECT g, g, 's' || g, 'c' || g, ARRAY[g % 10, g % 7], jsonb_build_array(g % 5, 'x'), date '2020-01-01' + g % 60 FROM generate_series(1, 1000) g"
    sql "SET search_path = ext, public;
         CREATE INDEX t_i_nitro ON t USING nitro (i) INCLUDE (a); CREATE INDEX t_s_nitro ON t USING nitro (s varchar_ops); CREATE INDEX t_c_nitro ON t USING nitro (c text_pattern_ops);
         CREATE INDEX t_tags_nitro ON t USING nitro (tags); CREATE INDEX t_doc_nitro ON t USING nitro (doc jsonb_array_ops); CREATE INDEX t_d_nitro ON t USING nitro (d DESC, s);
         CREATE INDEX t_mod_nitro ON t USING nitro ((i % 7)); CREATE INDEX t_part_nitro ON t USING nitro (s) WHERE i > 500; ANALYZE t"
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
ready() { wait_until "SELECT count(*) = 8 AND bool_and(state = 'ready') FROM ext.pg_stat_nitro_indexes WHERE indexrelname LIKE 't\_%\_nitro'"; }

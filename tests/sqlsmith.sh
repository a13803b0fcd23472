#!/usr/bin/env bash
# The query generator sqlsmith on tables with nitro indexes of every kind; only with LONG=1. It executes its
# queries in transactions that roll back, for five minutes ($SMITH_SECONDS). Nothing may crash, fail an
# assertion or raise an internal error out of nitro. Then its queries run again, with and without nitro. If
# both answers without nitro are the same, the answer with nitro must be the same, too.
. "$(dirname "$0")/lib.sh"
[ -n "$LONG" ] || { note "left out, runs with LONG=1"; exit 0; }
command -v sqlsmith > /dev/null || { note "left out: sqlsmith is not installed (LONG=1 ci/deps.sh)"; exit 0; }
seconds=${SMITH_SECONDS:-300}

# The place in the source where an error comes from tells whether it is nitro's.
new_server -c "log_error_verbosity = verbose" -c "log_min_error_statement = log" -c "nitro.max_memory = '256MB'" \
    -c "checkpoint_timeout = 30s" -c "log_line_prefix = '%m [%p] %e %b '"
sql "CREATE ROLE smith LOGIN; GRANT CREATE ON SCHEMA public TO smith; ALTER DATABASE postgres OWNER TO smith"
# Its tables are those of the test alone: no views of nitro.
sql "DO \$\$ DECLARE v regclass; BEGIN
     FOR v IN SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'v' LOOP
         EXECUTE format('ALTER VIEW %s SET SCHEMA information_schema', v);
     END LOOP; END \$\$"
# Indexes are used wherever they can be.
sql "ALTER ROLE smith SET enable_seqscan = off; ALTER ROLE smith SET statement_timeout = '1s';
     ALTER ROLE smith SET enable_sort = off; ALTER ROLE smith SET lock_timeout = '500ms';
     ALTER ROLE smith SET temp_file_limit = '200MB'"
PGUSER=smith sql "
CREATE TABLE plain (i int, b bigint, t text, d date, n numeric, f float8, ts timestamptz, u uuid, y bytea, c \"char\");
INSERT INTO plain SELECT i % 97, i * 1000000007::bigint, 'value ' || i % 50, date '2020-01-01' + i % 365, i / 7.0, i / 3.0,
    timestamptz '2020-01-01' + i * interval '1 hour', md5(i::text)::uuid, decode(md5(i::text), 'hex'), chr(65 + i % 26)::\"char\"
    FROM generate_series(1, 600) i;
INSERT INTO plain SELECT FROM generate_series(1, 20);
CREATE INDEX ON plain USING nitro (i, b DESC NULLS LAST) INCLUDE (t); CREATE INDEX ON plain USING nitro (t, d);
CREATE INDEX ON plain USING nitro (n); CREATE INDEX ON plain USING nitro (f DESC); CREATE INDEX ON plain USING nitro (ts, c);
CREATE INDEX ON plain USING nitro (u); CREATE INDEX ON plain USING nitro (y); CREATE INDEX ON plain USING nitro (b);
CREATE TABLE part (k int, v varchar(20), x int2, t time, o oid) PARTITION BY RANGE (k);
CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (100);
CREATE TABLE part_2 PARTITION OF part FOR VALUES FROM (100) TO (200) PARTITION BY LIST (x);
CREATE TABLE part_2_odd PARTITION OF part_2 FOR VALUES IN (1, 3, 5, 7, 9);
CREATE TABLE part_2_rest PARTITION OF part_2 DEFAULT;
CREATE TABLE part_rest PARTITION OF part DEFAULT;
INSERT INTO part SELECT i % 300, i::text, i % 10, time '00:00' + i * interval '1 minute', i FROM generate_series(1, 700) i;
CREATE INDEX ON part USING nitro (k, x); CREATE INDEX ON part USING nitro (v); CREATE INDEX ON part USING nitro (t, o);
CREATE TABLE partial (a int, b text, live bool, at timestamp, s interval);
INSERT INTO partial SELECT i, 'b' || i % 13, i % 3 = 0, timestamp '2021-01-01' + i * interval '1 minute', i * interval '1 s'
    FROM generate_series(1, 500) i;
CREATE INDEX ON partial USING nitro (a) WHERE live; CREATE INDEX ON partial USING nitro (b, at) WHERE a > 100;
CREATE INDEX ON partial USING nitro (lower(b), (a % 10)); CREATE INDEX ON partial USING nitro (live, s);
CREATE TABLE elements (id int, numbers int[], words text[], doc jsonb, owner int);
INSERT INTO elements SELECT i, ARRAY[i % 7, i % 11, i % 13], ARRAY['w' || i % 5, 'w' || i % 9],
    jsonb_build_object('k' || i % 4, i % 6, 'list', jsonb_build_array(i % 3, 'x')), i % 17 FROM generate_series(1, 400) i;
INSERT INTO elements VALUES (0, '{}', '{NULL}', '[]', NULL), (NULL, NULL, NULL, NULL, 1);
CREATE INDEX ON elements USING nitro (owner, numbers); CREATE INDEX ON elements USING nitro (words);
CREATE INDEX ON elements USING nitro (doc jsonb_array_ops); CREATE INDEX ON elements USING nitro (id);
CREATE VIEW joined AS SELECT plain.t, partial.a, part.v FROM plain JOIN partial ON partial.a = plain.i LEFT JOIN part ON part.k = partial.a"
sql "ANALYZE"

# --- executed ------------------------------------------------------------------------------------------
target="host=$NITRO_TMP port=$(port) dbname=postgres user=smith"
smith() { # SEED
    exec sqlsmith --target="$target" --exclude-catalog --dump-all-queries --seed="$1" \
        > "$NITRO_TMP/smith.$1.sql" 2> "$NITRO_TMP/smith.$1.err"
}
# Two sqlsmiths, since locks and rows of other sessions matter. First they read the catalogues for a while.
smith "$NITRO_SEED" & smiths=$!
smith $((NITRO_SEED + 1)) & smiths+=" $!"
for _ in $(seq 300); do
    [ "$(cat "$NITRO_TMP"/smith.*.err | grep -c 'Generating indexes...done')" -lt 2 ] || break
    sleep 1
done
sleep "$seconds"
# shellcheck disable=SC2086
kill $smiths 2> /dev/null || true
wait
log=$NITRO_TMP/main.log
n=$(cat "$NITRO_TMP"/smith.*.sql | grep -c ';$' || true)
[ "$n" -gt $((seconds * 2)) ] || { cat "$NITRO_TMP"/smith.*.err; fail "only $n statements were generated"; }
internal() {
    # An error is nitro's if its LOCATION line names a Rust file.
    awk '/ (ERROR|FATAL|PANIC|LOG|WARNING):  XX/ { hit = $0 } /^[^\t]*LOCATION: .*\.rs:/ { if (hit != "") print hit; } / LOCATION: / { hit = "" }' "$log"
}
assert_eq "internal errors out of nitro" "$(internal | head)" ""
assert_eq "crashes" "$(grep -cE 'TRAP:|PANIC:|terminated by signal' "$log" || true)" 0
note "$n statements, $(grep -c ' ERROR:  ' "$log" || true) of them errors, XX000 elsewhere: $(grep -c ' ERROR:  XX000' "$log" || true)"

# --- compared ------------------------------------------------------------------------------------------
# Left out are queries whose answer depends on the order of rows: LIMIT (removed), window functions,
# aggregates of lists and of floats. Random values show themselves in the repetition.
sql "CREATE FUNCTION answer(query text, nitro bool) RETURNS text LANGUAGE plpgsql AS \$\$
DECLARE result text;
BEGIN
    PERFORM set_config('nitro.enable_scan', nitro::text, true);
    EXECUTE format('SELECT count(*) || '' '' || coalesce(sum(hashtextextended(r::text, 0)::numeric), 0) FROM (%s) r', query) INTO result;
    RETURN result;
EXCEPTION WHEN OTHERS THEN RETURN NULL;
END \$\$;
CREATE FUNCTION compare(query text) RETURNS text LANGUAGE plpgsql AS \$\$
DECLARE heap text := answer(query, false); again text;
BEGIN
    IF heap IS NULL THEN RETURN 'error'; END IF;
    IF answer(query, true) = heap THEN RETURN 'same'; END IF;
    again := answer(query, false);
    RETURN CASE WHEN again = heap AND answer(query, true) IS DISTINCT FROM heap AND answer(query, true) IS NOT NULL
           THEN 'DIFFERENT ' || query ELSE 'unstable' END;
END \$\$"
# One statement a line, and only statements that read. Samples and limits are removed. Expressions that pick
# one row pick it in order.
cat "$NITRO_TMP"/smith.*.sql | tr '\n' ' ' | tr -s ' ' | sed 's/; */;\n/g' | grep -iE '^ *select ' |
    sed -E 's/ tablesample (system|bernoulli) \([0-9.]+\)//g; s/( limit 1 offset [0-9]+) *\)/ order by 1\1)/g
            s/ limit [0-9]+( *[);])/\1/g; s/;$//' |
    grep -viE 'for (update|share|no key|key)|over \(|agg|sum\(|avg\(|stddev|var_|variance|regr_|corr\(|covar|pg_stat|nitro_' |
    sort -u | shuf --random-source=<(yes "$NITRO_SEED") | sed 's/.*/SELECT compare($smith$&$smith$);/' > "$NITRO_TMP/compare.sql"
compare() { # SECONDS
    timeout "$1" psql -X -A -t -q -p "$(port)" -U smith -f "$NITRO_TMP/compare.sql" > "$NITRO_TMP/compared" 2> "$NITRO_TMP/compare.err" || true
}
compare $((seconds / 2))
note "compared: $(cut -d' ' -f1 "$NITRO_TMP/compared" | sort | uniq -c | awk '{ printf "%s %s, ", $2, $1 }')"
assert_eq "other answers with nitro" "$(grep ^DIFFERENT "$NITRO_TMP/compared" | head -3)" ""
[ "$(grep -c '^same' "$NITRO_TMP/compared")" -gt $((seconds / 10)) ] || fail "hardly anything was compared"
scans=$(sql "SELECT sum(idx_scan) FROM pg_stat_user_indexes")
[ "$scans" -gt "$seconds" ] || fail "indexes were hardly used: $scans scans"
note "$scans scans of nitro indexes"
assert_eq "internal errors out of nitro" "$(internal | head)" ""
for i in $(sql "SELECT indexrelid::regclass FROM pg_index i JOIN pg_class c ON c.oid = indexrelid JOIN pg_am a ON a.oid = relam
                WHERE amname = 'nitro' AND relkind = 'i'"); do
    sql "SELECT nitro_verify('$i', true)" > /dev/null
done

# --- a planted defect ----------------------------------------------------------------------------------
# Rows that their indexes do not have: a comparison that misses this defect compares nothing.
sql "UPDATE pg_index SET indisready = false WHERE indrelid = 'plain'::regclass"
sql "INSERT INTO plain SELECT * FROM plain WHERE i < 30"
sql "UPDATE pg_index SET indisready = true WHERE indrelid = 'plain'::regclass"
compare $((seconds / 2))
note "with rows missing from the indexes: $(cut -d' ' -f1 "$NITRO_TMP/compared" | sort | uniq -c | awk '{ printf "%s %s, ", $2, $1 }')"
grep -q ^DIFFERENT "$NITRO_TMP/compared" || fail "the planted defect was not seen"

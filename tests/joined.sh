#!/usr/bin/env bash
# Random joins, subqueries and changes that look up by nitro indexes, beside writers and VACUUM. Each runs
# by every way through the index, by a btree twin and by the tables alone, in one snapshot. A hundred
# queries; with LONG=1 ten thousand, or as many as fifteen minutes allow. A seed repeats the queries, not
# the writers' changes.
. "$(dirname "$0")/lib.sh"

note "seed $NITRO_SEED"
new_server -c "nitro.backup = off" -c "deadlock_timeout = 100ms" -c "jit = off"
n=100
[ -z "$LONG" ] || n=10000
workers=debug_parallel_query
[ "$(major)" -gt 15 ] || workers=force_parallel_mode

# NULLs, keys of many rows, keys that are nowhere. Column p is i in parts.
sql "CREATE TABLE o (id int, k int, a int, b int, s text COLLATE \"C\", n numeric, ks int[]);
     INSERT INTO o SELECT g, nullif(g * 7919 % 700, 70), g * 31 % 50 - 3, nullif(g % 9, 4), CASE WHEN g % 17 > 0 THEN 's' || g % 120 END, g % 30 / 10.0, ARRAY[g % 9, NULL, g % 500, g % 9] FROM generate_series(1, 300) g;
     CREATE TABLE i (id serial, k int, a int, b int, s text COLLATE \"C\", n numeric, v int) WITH (fillfactor = 60);
     CREATE FUNCTION fill(n int) RETURNS void LANGUAGE sql AS 'INSERT INTO i (k, a, b, s, n, v) SELECT CASE (random() * 20)::int WHEN 1 THEN NULL WHEN 2 THEN 77 ELSE (random() * 600)::int END, nullif((random() * 50)::int, 7), nullif((random() * 8)::int, 3),
         nullif(''s'' || (random() * 150)::int, ''s4''), (random() * 40)::int / 10.00, (random() * 1000)::int FROM generate_series(1, n)'; SELECT fill(1500);
     CREATE TABLE p (LIKE i) PARTITION BY RANGE (v); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (MINVALUE) TO (300); CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (300) TO (MAXVALUE); INSERT INTO p SELECT * FROM i" > /dev/null
while read -r name table what; do
    sql "CREATE INDEX ${name}_nitro ON $table USING nitro $what; CREATE INDEX ${name}_btree ON $table $what"
done <<'I'
i_k i (k)
i_ab i (a, b DESC) INCLUDE (v)
i_s i (s DESC, id)
i_n i (n, id)
i_sum i ((a + b))
i_part i (b, k) WHERE v > 500
p1_k p1 (k, a)
p2_k p2 (k, a)
I
sql "VACUUM ANALYZE o, i, p"

sql "CREATE FUNCTION one_of(VARIADIC x text[]) RETURNS text LANGUAGE sql VOLATILE AS 'SELECT x[1 + floor(random() * cardinality(x))::int]';
     CREATE FUNCTION query() RETURNS text LANGUAGE plpgsql AS \$\$
     DECLARE t text := 'i'; c text; more text; col text; q text; m int := random() * 200; least int := random() * 250; few text := one_of('1', '2', '7', '40');
     BEGIN
       CASE floor(random() * 13)::int
         WHEN 0 THEN c := 'i.k = o.k'; WHEN 1 THEN c := 'i.a = o.a AND i.b = o.b'; WHEN 2 THEN c := 'i.a = o.a AND i.b ' || one_of('>', '<=') || ' o.b'; WHEN 3 THEN c := 'i.s = o.s';
         WHEN 4 THEN c := 'i.k = ANY (o.ks)'; WHEN 5 THEN c := 'i.k IN (o.a, o.b, ' || m || ')'; WHEN 6 THEN c := '(i.a + i.b) = o.a'; WHEN 7 THEN c := 'i.b = o.b AND i.v > 500';
         WHEN 8 THEN c := 'i.n = o.n'; WHEN 9 THEN c := 'i.k BETWEEN o.k AND o.k + ' || m % 4; WHEN 10 THEN c := 'i.a IN (1, 3, ' || m % 50 || ') AND i.b = o.b';
         WHEN 11 THEN c := 'i.a = o.a'; ELSE c := 'i.k = o.k'; t := 'p';
       END CASE;
       t := t || ' AS i';
       more := one_of('true', 'true', 'i.v % 3 = o.id % 3', 'i.v > ' || 4 * m, 'i.b IS NOT NULL', '(i.v + o.id) % 5 > 1', 'i.k IS NULL', 'i.k > ' || m);
       -- The first alone is in the index.
       col := one_of(substring(c FROM 'i\.\w'), 'i.v', 'i.id');
       CASE floor(random() * 17)::int
         WHEN 0 THEN q := format('SELECT o.id, %s FROM o JOIN %s ON %s AND %s', col, t, c, more);
         WHEN 1 THEN q := format('SELECT o.id, %s FROM o LEFT JOIN %s ON %s AND %s', col, t, c, more);
         WHEN 2 THEN q := format('SELECT o.id, %s FROM o LEFT JOIN %s ON %s WHERE (i.v IS NULL OR %s)', col, t, c, more);
         WHEN 3 THEN q := format('SELECT o.id FROM o WHERE EXISTS (SELECT FROM %s WHERE %s AND %s)', t, c, more);
         WHEN 4 THEN q := format('SELECT o.id FROM o WHERE NOT EXISTS (SELECT FROM %s WHERE %s AND %s)', t, c, more);
         WHEN 5 THEN q := format('SELECT o.id FROM o WHERE o.k %s (SELECT i.k FROM %s WHERE i.v %% 7 < 6)', one_of('IN', 'NOT IN'), t);
         WHEN 6 THEN q := format('SELECT o.id FROM o WHERE o.id %% 8 %s (SELECT i.b FROM %s WHERE %s AND %s)', one_of('IN', 'NOT IN'), t, c, more);
         WHEN 7 THEN q := format('SELECT o.id, x.v FROM o %s JOIN LATERAL (SELECT i.v FROM %s WHERE %s AND %s ORDER BY i.%s %s NULLS LAST, i.id LIMIT %s) x ON true', one_of('', 'LEFT'), t, c, more, one_of('k', 'b', 'v'), one_of('', 'DESC'), few);
         WHEN 8 THEN q := format('SELECT o.id, (SELECT %s FROM %s WHERE %s AND %s) FROM o', one_of('count(*)', 'sum(i.v)', 'max(i.v)', 'min(i.k)', 'count(i.k)'), t, c, more);
         WHEN 9 THEN q := format('SELECT y.id, (SELECT count(%s) FROM o JOIN %s ON %s WHERE o.id BETWEEN y.id AND y.id + %s) FROM o AS y WHERE y.id %% 9 = 1', col, t, c, m % 50);
         WHEN 10 THEN q := format('SELECT o.id, i.id AS x, y.v FROM o JOIN %s ON %s AND %s JOIN i AS y ON y.k = i.v', t, c, more);
         WHEN 11 THEN q := format('SELECT o.b, count(*), sum(i.v) FROM o %s JOIN %s ON %s AND %s WHERE o.id > 0 GROUP BY o.b', one_of('', 'LEFT'), t, c, more);
         WHEN 12 THEN q := format('UPDATE o SET b = o.b + 1 FROM %s WHERE %s AND %s AND o.id > %s RETURNING o.id', t, c, more, least);
         WHEN 13 THEN q := format('UPDATE %s SET v = i.v + 1 FROM o WHERE %s AND %s AND o.id > %s RETURNING i.id', t, c, more, least);
         WHEN 14 THEN q := format('DELETE FROM %s USING o WHERE %s AND %s AND o.id > %s RETURNING i.id, i.v', t, c, more, least);
         WHEN 15 THEN q := format('DELETE FROM o USING %s WHERE %s AND %s AND o.id > %s RETURNING o.id', t, c, more, least);
         ELSE q := format('SELECT x.id, %s FROM (SELECT * FROM o WHERE o.id > %s ORDER BY o.k, o.id LIMIT %s) x, LATERAL (SELECT x.*) o, %s WHERE %s AND %s', col, least, m, t, c, more);
       END CASE;
       IF q ~ '^SELECT o' AND random() < 0.3 THEN q := format('SELECT * FROM (%s) q ORDER BY q %s LIMIT %s', q, one_of('', 'DESC'), few);
       ELSIF q ~ '^SELECT' AND random() < 0.25 THEN q := q || ' LIMIT ' || few; END IF;
       RETURN q;
     END \$\$;
     -- Rolled back, for the next one to see what this one saw. NULL: a writer was there before.
     CREATE FUNCTION answer(q text, way text) RETURNS text[] LANGUAGE plpgsql AS \$\$
     DECLARE a text[]; BEGIN
       PERFORM set_config('enable_indexscan', (way <> 'table')::text, true), set_config('enable_indexonlyscan', (way <> 'table')::text, true), set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', (way = 'table')::text, true),
         set_config('nitro.enable_scan', (way NOT IN ('table', 'btree'))::text, true), set_config('nitro.enable_fast_scan', (way <> 'rows')::text, true), set_config('nitro.enable_aggregate', (way <> 'groups')::text, true), set_config('nitro.enable_batched_joins', (way <> 'one by one')::text, true),
         set_config('$workers', CASE way WHEN 'workers' THEN 'regress' ELSE 'off' END, true);
       EXECUTE CASE WHEN q ~ '^SELECT' THEN format('SELECT array_agg(q::text) FROM (%s) q', q) ELSE format('WITH q AS (%s) SELECT array_agg(q::text) FROM q', q) END INTO a;
       RAISE EXCEPTION 'back';
     EXCEPTION WHEN raise_exception THEN RETURN coalesce(a, '{}'); WHEN serialization_failure OR deadlock_detected THEN RETURN NULL; END \$\$;
     CREATE FUNCTION plan(q text) RETURNS jsonb LANGUAGE plpgsql AS \$\$ DECLARE p jsonb; BEGIN EXECUTE 'EXPLAIN (COSTS OFF, FORMAT JSON) ' || q INTO p; RETURN p; END \$\$;
     CREATE FUNCTION sorted(text[]) RETURNS text[] LANGUAGE sql AS 'SELECT array_agg(x ORDER BY x COLLATE \"C\") FROM unnest(\$1) x';
     CREATE PROCEDURE ask(seed int, n int, INOUT loops int DEFAULT 0, INOUT missed int DEFAULT 0) LANGUAGE plpgsql AS \$\$
     DECLARE q text; way text; ways text[]; want text[]; first text[]; got text[]; p jsonb; BEGIN
       FOR turn IN 1..n LOOP
         -- The queries hang on nothing but the seed.
         PERFORM setseed((seed::int8 * 10007 + turn) % 1000003 / 1000003.0);
         q := query(); want := answer(q, 'table');
         PERFORM set_config('enable_memoize', (random() < 0.2)::text, true), set_config('enable_material', (random() < 0.2)::text, true), set_config('enable_mergejoin', (random() < 0.2)::text, true), set_config('enable_seqscan', (random() < 0.1)::text, true);
         ways := ARRAY['all', 'rows', 'groups', 'one by one']; IF random() < 0.15 THEN ways := ways || ARRAY['workers']; END IF;
         got := answer(q, 'btree');
         IF q !~ 'LIMIT \d+$' OR q ~ 'ORDER BY q' THEN IF sorted(got) <> sorted(want) THEN RAISE EXCEPTION 'btree has another answer: %', q; END IF; END IF;
         UPDATE pg_index SET indisvalid = false FROM pg_class c WHERE c.oid = indexrelid AND relname LIKE '%\_btree';
         p := plan(q);
         FOREACH way IN ARRAY ways LOOP
           got := answer(q, way);
           IF got IS NULL OR want IS NULL THEN missed := missed + 1; EXIT; END IF;
           IF way = 'all' THEN first := got; END IF;
           -- Which rows a LIMIT leaves hangs on the plan, and the order; VACUUM may have changed it.
           IF (CASE WHEN q ~ 'LIMIT \d+$' AND q !~ 'ORDER BY q' THEN cardinality(got) <> cardinality(want) ELSE sorted(got) IS DISTINCT FROM sorted(want) END)
              OR way IN ('rows', 'one by one') AND got <> first AND plan(q) = p THEN
             RAISE EXCEPTION 'another answer, %: %', way, q USING DETAIL = format('query %s of seed %s: %s, by the tables %s, at first %s', turn, seed, got, want, first),
               HINT = concat_ws(', ', 'enable_memoize ' || current_setting('enable_memoize'), 'enable_material ' || current_setting('enable_material'), 'enable_mergejoin ' || current_setting('enable_mergejoin'), 'enable_seqscan ' || current_setting('enable_seqscan'));
           END IF;
         END LOOP;
         loops := loops + jsonb_path_exists(p, '\$.** ? (@.\"Node Type\" == \"Nested Loop\").Plans[1] ? (@.\"Index Name\" like_regex \"_nitro\" && @.\"Index Cond\" like_regex \"o\\\\.|x\\\\.\")')::int;
         ROLLBACK;
       END LOOP;
     END \$\$;
     -- Each writer has rows of its own, so that none waits for another one.
     CREATE TABLE going (); CREATE TABLE written (w int);
     CREATE PROCEDURE write(w int) LANGUAGE plpgsql AS \$\$
     DECLARE r float8; BEGIN
       WHILE EXISTS (SELECT FROM going) OR NOT EXISTS (SELECT FROM written WHERE written.w = write.w) LOOP
         BEGIN
           r := random();
           IF r < 0.3 THEN PERFORM fill(5); ELSIF r < 0.5 THEN DELETE FROM i WHERE id % 2 = w AND id % 300 = (random() * 299)::int;
           ELSIF r < 0.7 THEN UPDATE i SET k = (random() * 600)::int, b = b + 1 WHERE id % 2 = w AND id % 200 = (random() * 199)::int;
           ELSIF r < 0.8 THEN UPDATE i SET v = v + 1 WHERE id % 2 = w AND id % 200 = (random() * 199)::int;
           ELSIF r < 0.9 THEN INSERT INTO p SELECT * FROM i WHERE id % 2 = w ORDER BY random() LIMIT 3;
           ELSE UPDATE p SET k = k + 1 WHERE id % 2 = w AND id % 100 = (random() * 99)::int; END IF;
           IF random() < 0.1 THEN RAISE EXCEPTION 'back'; END IF;
           INSERT INTO written SELECT w;
         EXCEPTION WHEN raise_exception OR deadlock_detected THEN NULL; END;
         IF random() < 0.1 THEN ROLLBACK; ELSE COMMIT; END IF;
         PERFORM pg_sleep(0.01);
       END LOOP;
     END \$\$"

beside() { # what the queries are asked beside, until going is empty
    sql "TRUNCATE written; INSERT INTO going DEFAULT VALUES"
    tell even "CALL write(0)"; tell odd "CALL write(1)"
}
session even; session odd; session vacuum; session reader
reader=$(ask reader "SELECT pg_backend_pid()")
ask reader "SET default_transaction_isolation = 'repeatable read'; SET enable_hashjoin = off; SET enable_bitmapscan = off; SET max_parallel_workers_per_gather = 2" > /dev/null
asked=0 loops=0 missed=0
while [ $asked -lt $n ] && [ $SECONDS -lt 900 ]; do
    beside
    tell reader "CALL ask($((NITRO_SEED + asked * 40000)), 25)"
    while [ "$(sql "SELECT state = 'active' FROM pg_stat_activity WHERE pid = $reader")" = t ]; do
        ask vacuum "VACUUM (INDEX_CLEANUP on) i, p1, p2" > /dev/null
    done
    got=$(answer reader)
    [[ $got =~ ^[0-9]+\|[0-9]+$ ]] || fail "$got"
    asked=$((asked + 25)) loops=$((loops + ${got%|*})) missed=$((missed + ${got#*|}))
    sql "DELETE FROM going; DELETE FROM i WHERE id < (SELECT max(id) - 3000 FROM i)"
    for who in even odd; do got=$(answer "$who"); [[ $got != *ERROR* ]] || fail "$who: $got"; done
    sql "VACUUM ANALYZE i, p"
done
note "$loops of $asked queries have a loop over an index, $missed were in a writer's way, $(sql "SELECT max(id) FROM i") rows"
[ "$loops" -ge $((asked / 3)) ] || fail "only $loops of $asked queries had a nested loop"
[ "$missed" -le $((asked / 3)) ] || fail "$missed of $asked queries gave no answer"
for name in i_k i_ab i_s i_n i_sum i_part p1_k p2_k; do sql "SELECT nitro_verify('${name}_nitro', true)" > /dev/null; done

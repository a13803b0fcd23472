-- Element columns: ranges of elements, other columns beside them, and the life of their indexes.
SET client_min_messages = warning;
CREATE SCHEMA elements;
SET search_path = elements, public;
SET timezone = 'UTC';
\set ECHO none
\i sql/oracle.inc
\set ECHO all
-- What an index is asked, or none.
CREATE FUNCTION conditions(query text) RETURNS text LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE line text; found_ text[] := '{}';
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
        found_ := found_ || substring(line FROM 'Index Cond: (.*)');
    END LOOP;
    RETURN coalesce(nullif(array_to_string(found_, ' ; '), ''), 'none');
END $$;
SELECT setseed(0.2);

-- Some element is less than, between, in a range, has a prefix: the operators as conditions of the index and
-- as ordinary expressions.
CREATE FUNCTION check_ranges(type text, expr text, range text = NULL, collation_ text = '') RETURNS text LANGUAGE plpgsql AS $$
DECLARE x text; y text; op text; queries int := 0; rows int := 0; cond text;
BEGIN
    DROP TABLE IF EXISTS t;
    EXECUTE format('CREATE TABLE t (id int, a %s[] %s)', type, collation_);
    EXECUTE format($f$INSERT INTO t SELECT g, CASE WHEN g %% 20 = 0 THEN NULL WHEN g %% 21 = 0 THEN '{}' WHEN g %% 22 = 0 THEN '{NULL}'
        WHEN g %% 23 = 0 THEN ARRAY[[%1$s, NULL], [%1$s, %1$s]]
        ELSE (SELECT array_agg(%1$s) FROM generate_series(1, 1 + (random() * 3)::int + g * 0)) END FROM generate_series(1, 1000) g$f$, expr);
    CREATE INDEX t_a ON t USING nitro (a);
    ANALYZE t;
    FOR i IN 1..5 LOOP
        EXECUTE format('SELECT least(x, y)::text, greatest(x, y)::text FROM (SELECT %1$s x, %1$s y) v', expr) INTO x, y;
        FOREACH op IN ARRAY '{&<,&<=,&>=,&>}'::text[] LOOP
            rows := rows + agree(format('SELECT id FROM t WHERE a %s %L::%s', op, x, type), false);
        END LOOP;
        FOREACH cond IN ARRAY ARRAY[format('a &<> ARRAY[%L, %L]::%s[]', x, y, type),
                format('a &<> ARRAY[%L, NULL]::%s[]', x, type), format('a &<> ARRAY[NULL, %L]::%s[]', x, type),
                format('a &<> ARRAY[%L, %L]::%s[]', y, x, type), format('nitro_any_between(a, %L, %L)', x, y),
                format('nitro_any_less(a, %L)', x), format('nitro_any_greater(a, %L)', y),
                format('%L = ANY (a)', x), format('%L < ANY (a)', x), format('%L::%s >= ANY (a)', x, type),
                format('a &> %L::%s AND a &< %L::%s', y, type, x, type), format('(%L = ANY (a) OR %L > ANY (a))', y, x),
                format('a &>= ANY (ARRAY[%L, %L]::%s[])', x, y, type)]
        LOOP
            rows := rows + agree('SELECT id FROM t WHERE ' || cond, false);
        END LOOP;
        CONTINUE WHEN range IS NULL;
        FOREACH cond IN ARRAY '{[],[),(],()}'::text[] LOOP
            rows := rows + agree(format('SELECT id FROM t WHERE a &<@ %s(%L, %L, %L)', range, x, y, cond), false);
        END LOOP;
        FOREACH cond IN ARRAY ARRAY[format('%s(NULL, %L)', range, x), format('%s(%L, NULL)', range, x), format('%s(NULL, NULL)', range),
                format('''empty''::%s', range)] LOOP
            rows := rows + agree(format('SELECT id FROM t WHERE nitro_any_in(a, %s)', cond), false);
        END LOOP;
    END LOOP;
    IF rows < 300 THEN RAISE EXCEPTION 'only % rows', rows; END IF;
    PERFORM nitro_verify('t_a', true);
    RETURN type || '[]';
END $$;
SELECT check_ranges('int', '(random() * 40)::int - 20', 'int4range');
SELECT check_ranges('int8', '(random() * 40)::int8', 'int8range');
SELECT check_ranges('numeric', '((random() * 400)::int / 8.0)::numeric', 'numrange');
SELECT check_ranges('date', $$'2024-01-01'::date + (random() * 40)::int$$, 'daterange');
SELECT check_ranges('timestamp', $$'2024-01-01'::timestamp + (random() * 40)::int * interval '1 hour'$$, 'tsrange');
SELECT check_ranges('timestamptz', $$'2024-01-01'::timestamptz + (random() * 40)::int * interval '1 hour'$$, 'tstzrange');
SELECT check_ranges('uuid', 'md5((random() * 40)::int::text)::uuid');
SELECT check_ranges('float8', $$(ARRAY[-1.5, -0.0, 0, 1, 2.5, 'NaN', 'Infinity'])[1 + (random() * 6)::int]::float8$$);
CREATE TYPE mood AS ENUM ('sad', 'so so', 'happy', 'very happy');
SELECT check_ranges('mood', $$(ARRAY['sad', 'so so', 'happy', 'very happy'])[1 + (random() * 3)::int]::mood$$);
CREATE TYPE floatrange AS RANGE (subtype = float8);
SELECT check_ranges('float8', '(random() * 40)::int / 4.0::float8', 'floatrange');
SELECT check_ranges('text', $$left(md5((random() * 40)::int::text), 2)$$);
DO $$
BEGIN
    CREATE COLLATION linguistic (provider = libc, locale = 'en_US.UTF-8');
EXCEPTION WHEN OTHERS THEN
    CREATE COLLATION linguistic (provider = libc, locale = 'C');
END $$;
SELECT check_ranges('text', $$(ARRAY['a', 'A', 'b', 'B', 'ab', 'a b', 'a-b', 'Ab'])[1 + (random() * 7)::int]$$, collation_ => 'COLLATE linguistic');
-- A range type with an order of its own.
CREATE TYPE textrange AS RANGE (subtype = text, collation = linguistic);
SELECT check_ranges('text', $$(ARRAY['a', 'A', 'b', 'B', 'ab', 'a b', 'a-b', 'Ab'])[1 + (random() * 7)::int]$$, collation_ => 'COLLATE "C"');
SELECT bool_and(agree(format('SELECT id FROM t WHERE a &<@ textrange(%L, %L)', x, y), false) >= 0)
FROM unnest(ARRAY['a', 'A', 'ab', 'b']) x, unnest(ARRAY['a', 'B', 'b', 'c']) y WHERE x <= y COLLATE linguistic;

-- Numbers of another type are converted, as everywhere; those of the array are not, and use no index.
SELECT ARRAY[1.5, 2] &> 1, ARRAY[1.5, 2] &<> ARRAY[3, 4], ARRAY[1, 2] &> 1.5, nitro_any_between(ARRAY[1.5], 1, 2), ARRAY[1, NULL] &< 0, NULL::int[] &< 0;

-- Prefixes do not depend on the collation.
DROP TABLE t;
CREATE TABLE t (id int, a text[], l text[] COLLATE linguistic, v varchar[]);
INSERT INTO t SELECT g, x, x, x FROM (SELECT g, ARRAY(SELECT p || chr(c) || p FROM unnest('{a,A,é,€,aa,ab,"",z}'::text[]) p,
    unnest(ARRAY[97, 98, 233, 8364, 65535, 1114111, 1, 2]) c WHERE (g * ascii(p || 'x') + c) % 5 = 0) x FROM generate_series(1, 300) g) v;
INSERT INTO t VALUES (1001, '{}', '{NULL}', NULL);
CREATE INDEX t_a ON t USING nitro (a);
CREATE INDEX t_l ON t USING nitro (l);
CREATE INDEX t_v ON t USING nitro (v);
SELECT octet_length(p), agree(format('SELECT id FROM t WHERE a &^@ %L', p), false) = agree(format('SELECT id FROM t WHERE nitro_any_prefix(l, %L)', p), false),
       agree(format('SELECT id FROM t WHERE v &^@ %L', p), false) > 0
FROM unnest(ARRAY['', 'a', 'A', 'ab', 'é', '€', E'a\x01', E'\x01', chr(65535), chr(1114111), 'zz', 'aa']) p;

-- Scalar columns beside the elements, in every order, ascending and descending, with and without conditions.
DROP TABLE t;
CREATE TABLE t (id int, tags text[], k int, at timestamptz, s text COLLATE linguistic);
INSERT INTO t SELECT g, CASE WHEN g % 30 = 0 THEN NULL WHEN g % 31 = 0 THEN '{}' ELSE ARRAY(SELECT 't' || (random() * 12)::int FROM generate_series(1, 1 + g % 5)) END,
    nullif((random() * 8)::int, 3), '2024-01-01'::timestamptz + g * interval '1 hour', (ARRAY['a', 'A', 'b', 'B', NULL])[1 + g % 5] FROM generate_series(1, 2000) g;
ANALYZE t;
CREATE FUNCTION check_columns(columns text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE cond text; e text; n int := 0;
BEGIN
    EXECUTE format('CREATE INDEX t_i ON t USING nitro (%s)', columns);
    FOREACH e IN ARRAY ARRAY['true', 'tags @> ''{t1}''', 'tags @> ''{t1,t2}''', 'tags && ''{t3,t5,t9}''', 'tags <@ ''{t1,t2,t3}''', 'tags &^@ ''t1''',
            'tags = ''{t4}''', 'tags IS NULL', '''t7'' = ANY (tags)', 'tags &<> ''{t1,t2}'' AND tags @> ''{t3}''', 'tags &<> ''{t5,t1}'''] LOOP
        FOREACH cond IN ARRAY ARRAY['k = 4', 'k > 5', 'k IS NULL', 'k IN (1, 5)', 'at > ''2024-03-01''', 'k = 2 AND at < ''2024-02-01''',
                'k BETWEEN 1 AND 6 AND at >= ''2024-01-20'' AND at < ''2024-02-20''', 's = ''A''', 's > ''a'' AND k < 4', 'true'] LOOP
            CONTINUE WHEN e = 'true' AND cond = 'true' OR position('s ' IN cond) = 1 AND columns !~ '\ms\M' AND e = 'true'
                OR position('at' IN columns) = 0 AND e = 'true' AND cond ~ '^at';
            n := n + agree(format('SELECT id FROM t WHERE %s AND %s', e, cond), false);
        END LOOP;
    END LOOP;
    PERFORM nitro_verify('t_i', true);
    DROP INDEX t_i;
    RETURN columns;
END $$;
SELECT check_columns(c) FROM unnest('{"tags, at, k","at, tags, k","k, tags, at","k DESC NULLS LAST, at DESC, tags","tags, k NULLS FIRST, at DESC","s, tags, k, at","tags, s, k, at","s DESC, k, at, tags"}'::text[]) c;

-- An index with an element column gives no order, no index-only scan and no plain scan.
CREATE INDEX t_i ON t USING nitro (k, tags);
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT k FROM t WHERE k > 5 ORDER BY k;
SELECT method('SELECT min(k) FROM t');
EXPLAIN (COSTS OFF) SELECT count(*) FROM t WHERE k > 5;
SELECT count(*) = (SELECT count(*) FROM t WHERE k + 0 > 5) FROM t WHERE k > 5;
RESET enable_seqscan;
SELECT pg_index_column_has_property('t_i', 1, p), pg_index_column_has_property('t_i', 2, p) FROM unnest('{asc,orderable,returnable,search_array,search_nulls}'::text[]) p;
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname IN ('array_ops', 'jsonb_array_ops') AND opcmethod = (SELECT oid FROM pg_am WHERE amname = 'nitro');
DROP INDEX t_i;

-- A partial index whose predicate says `= ANY` keeps its queries.
CREATE INDEX t_i ON t USING nitro (tags);
CREATE INDEX t_p ON t (id) WHERE 't1' = ANY (tags);
SELECT conditions('SELECT id FROM t WHERE ''t1'' = ANY (tags) AND id < 50'), conditions('SELECT id FROM t WHERE ''t2'' = ANY (tags)');
DROP INDEX t_i, t_p;

-- Estimates: the planner expects the number of rows within a factor of two.
CREATE INDEX t_i ON t USING nitro (tags, k);
CREATE FUNCTION estimate(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text; expected float; n float;
BEGIN
    EXECUTE 'EXPLAIN ' || query INTO line;
    expected := substring(line FROM 'rows=(\d+)');
    EXECUTE 'SELECT count(*) FROM (' || query || ') q' INTO n;
    RETURN CASE WHEN expected BETWEEN n / 2 AND n * 2 THEN 'good' ELSE format('%s instead of %s', expected, n) END;
END $$;
SELECT c, estimate('SELECT * FROM t WHERE ' || c) FROM unnest(ARRAY['tags @> ''{t3}''', 'tags && ''{t3,t4}''', 'tags &^@ ''t1''', 'tags &> ''t8''', 'tags &<= ''t0''', 'tags &<> ''{t2,t3}''']) c;
DROP INDEX t_i;

-- Row by row: parameters, joins, cursors; several conditions in one query; partial and expression indexes.
CREATE INDEX t_i ON t USING nitro (tags);
CREATE TABLE wanted (tag text);
INSERT INTO wanted VALUES ('t1'), ('t11'), ('none'), (NULL);
SET enable_seqscan = off;
SET enable_material = off;
SELECT tag, count(id) FROM wanted LEFT JOIN t ON t.tags @> ARRAY[tag] GROUP BY tag ORDER BY tag;
SELECT tag, count(id) FROM wanted JOIN t ON tag = ANY (t.tags) GROUP BY tag ORDER BY tag;
SELECT conditions('SELECT * FROM wanted JOIN t ON tag = ANY (t.tags)');
RESET enable_seqscan;
RESET enable_material;
PREPARE p(text) AS SELECT count(*) FROM t WHERE $1 = ANY (tags);
SET plan_cache_mode = force_generic_plan;
EXECUTE p('t1');
EXECUTE p(NULL);
RESET plan_cache_mode;
-- NOT, and where NULL counts, is left alone.
SET enable_seqscan = off;
SELECT conditions('SELECT id FROM t WHERE NOT ''t1'' = ANY (tags)');
SELECT conditions('SELECT id FROM t WHERE (''t1'' = ANY (tags)) IS NULL');
SELECT conditions('SELECT id FROM t WHERE ''t1'' = ALL (tags)');
SELECT conditions('SELECT id FROM t WHERE ''t1'' = ANY (tags) AND ''t2'' <= ANY (tags)');
SELECT conditions('SELECT t.id FROM t LEFT JOIN t u ON t.id = u.id AND ''t3'' > ANY (u.tags) WHERE ''t1'' = ANY (t.tags)');
RESET enable_seqscan;
SELECT agree('SELECT id FROM t WHERE tags @> ''{t1}'' AND (tags && ''{t2,t3}'' OR tags &> ''t8'')', false) > 0;
DROP INDEX t_i;
CREATE INDEX t_i ON t USING nitro (array_remove(tags, 't2')) WHERE k > 2;
SELECT agree('SELECT id FROM t WHERE ''t5'' = ANY (array_remove(tags, ''t2'')) AND k > 2', false) > 0;
DROP INDEX t_i;

-- Many rows per element: intersections that look up, that read on, and that do not fit into work_mem.
CREATE TABLE many (id int, a int[]);
INSERT INTO many SELECT g, ARRAY[0, 1 + g % 2, 10 + g % 3, 100 + g % 1000, 5000 + g / 10] FROM generate_series(1, 40000) g;
CREATE INDEX many_a ON many USING nitro (a);
CREATE INDEX many_ia ON many USING nitro ((id % 2), a);
ANALYZE many;
CREATE FUNCTION counts(setting text) RETURNS SETOF bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    PERFORM set_config('work_mem', setting, true);
    RETURN QUERY SELECT count(*) FROM many WHERE a @> '{0,1}';
    RETURN QUERY SELECT count(*) FROM many WHERE a @> '{0,1,10}';
    RETURN QUERY SELECT count(*) FROM many WHERE a @> '{0,2,12,150}';
    RETURN QUERY SELECT count(*) FROM many WHERE a @> '{5100,0,1}';
    RETURN QUERY SELECT count(*) FROM many WHERE a @> '{5100,99}';
    RETURN QUERY SELECT count(*) FROM many WHERE a @> '{0,1}' AND id % 2 = 0;
    RETURN QUERY SELECT count(*) FROM many WHERE a @> '{0,10,400}' AND id % 2 = 1;
    RETURN QUERY SELECT count(*) FROM many WHERE a @> '{0}' AND a &<@ int4range(100, 103) AND a &> 5050;
END $$;
SELECT array_agg(c) FROM counts('64kB') c UNION ALL SELECT array_agg(c) FROM counts('64MB') c;

-- The life of an index: the number of entries says that none is missing and none is left.
CREATE TABLE life (id int, a int[], pad text) WITH (fillfactor = 50, autovacuum_enabled = off);
CREATE INDEX life_a ON life USING nitro (a);
INSERT INTO life VALUES (1, '{1,2,3}'), (2, '{1,1,1}'), (3, '{}'), (4, NULL), (5, '{NULL}'), (6, '{NULL,NULL,7}'), (7, '{{1,2},{2,3}}'), (8, '[5:7]={9,8,9}');
SELECT nitro_verify('life_a', true);
UPDATE life SET pad = 'hot';
SELECT nitro_verify('life_a', true);
UPDATE life SET a = a || 50 WHERE id = 1;
SELECT nitro_verify('life_a', true);
VACUUM life;
SELECT nitro_verify('life_a', true);
BEGIN; INSERT INTO life SELECT g, ARRAY[g, g + 1] FROM generate_series(100, 200) g; ROLLBACK;
VACUUM life;
SELECT nitro_verify('life_a', true);
BEGIN; SAVEPOINT s; INSERT INTO life VALUES (9, '{1,2}'); ROLLBACK TO s; INSERT INTO life VALUES (10, '{2,3}'); COMMIT;
DELETE FROM life WHERE id = 7;
VACUUM life;
SELECT nitro_verify('life_a', true);
REINDEX INDEX life_a;
SELECT nitro_verify('life_a', true);
ALTER TABLE life ALTER COLUMN pad TYPE varchar(10);
VACUUM FULL life;
CREATE INDEX life_id ON life (id);
CLUSTER life USING life_id;
SELECT nitro_verify('life_a', true), (SELECT count(*) FROM life);
REINDEX INDEX CONCURRENTLY life_a;
SELECT nitro_verify('life_a', true);
CREATE INDEX CONCURRENTLY life_a2 ON life USING nitro (a, id);
SELECT nitro_verify('life_a2', true);
DROP INDEX life_a2;
COPY life FROM stdin;
20	{1,4,4}	x
21	\N	y
\.
SELECT nitro_verify('life_a', true), agree('SELECT id FROM life WHERE a @> ''{1}''', false), agree('SELECT id FROM life WHERE a IS NULL', false);
TRUNCATE life;
SELECT nitro_verify('life_a', true);
-- Elements by the hundred thousand, wide and TOASTed, and from an expanded array.
INSERT INTO life SELECT 1, array_agg(g % 60000) FROM generate_series(1, 200000) g;
SELECT nitro_verify('life_a', true);
DO $$ DECLARE v int[]; BEGIN FOR i IN 1..10 LOOP v[i] := i; END LOOP; INSERT INTO life VALUES (2, v); END $$;
SELECT nitro_verify('life_a', true);
CREATE TEMP TABLE own (a text[]) ON COMMIT DELETE ROWS;
CREATE INDEX own_a ON own USING nitro (a);
BEGIN; INSERT INTO own VALUES ('{a,b}'); SELECT nitro_verify('own_a', true); COMMIT;
SELECT nitro_verify('own_a', true);
-- Not left to the end of this session, which would go on beside the next test.
DROP TABLE own;

-- Exclusion constraints: no two rows share an element.
CREATE TABLE seats (booking int, taken int[], EXCLUDE USING nitro (taken WITH &&));
INSERT INTO seats VALUES (1, '{1,2,3}'), (2, '{4}'), (3, '{}'), (4, NULL), (5, '{}');
INSERT INTO seats VALUES (6, '{9,3}');
UPDATE seats SET taken = '{4,5}' WHERE booking = 2;
UPDATE seats SET taken = '{5,1}' WHERE booking = 2;
DELETE FROM seats WHERE booking = 1;
INSERT INTO seats VALUES (7, '{1,2}');
INSERT INTO seats VALUES (8, '{7,8,2}') ON CONFLICT DO NOTHING;
SELECT * FROM seats ORDER BY booking;

-- Partitions, inheritance.
CREATE TABLE parts (id int, a int[]) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (100);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (100) TO (200);
CREATE INDEX parts_a ON parts USING nitro (a);
INSERT INTO parts SELECT g, ARRAY[g % 10, g % 7] FROM generate_series(0, 199) g;
SELECT agree('SELECT id FROM parts WHERE a @> ''{3,4}''', false), agree('SELECT id FROM parts_1 WHERE 3 = ANY (a)', false);
-- Through the parent from 16 on.
SELECT conditions('SELECT id FROM parts WHERE 3 = ANY (a)') = CASE WHEN current_setting('server_version_num')::int < 160000 THEN 'none'
    ELSE '(a @> ''{3}''::integer[]) ; (a @> ''{3}''::integer[])' END;

-- What cannot be indexed.
CREATE TABLE bad (p point[], x xml[], a int[], b text[], j jsonb, k int);
CREATE INDEX ON bad USING nitro (p);
CREATE INDEX ON bad USING nitro (x);
CREATE INDEX ON bad USING nitro (a, b);
CREATE INDEX ON bad USING nitro (a, j jsonb_array_ops);
CREATE INDEX ON bad USING nitro (a) INCLUDE (k);
CREATE INDEX ON bad USING nitro (k array_ops);
CREATE INDEX ON bad USING nitro (a jsonb_array_ops);
-- Too long: nothing of the row stays.
CREATE INDEX bad_b ON bad USING nitro (b);
INSERT INTO bad (b) VALUES (ARRAY['a', repeat('long', 300000), 'z']);
INSERT INTO bad (b) VALUES (ARRAY['a', repeat('long', 3000), 'z']);
SELECT nitro_verify('bad_b', true);
SELECT count(*) FROM bad WHERE b &<> '{1}';
SELECT ARRAY[1, 2] &<> '{1,2,3}', ARRAY[point '(1,1)'] &> point '(0,0)';
CREATE INDEX bad_k ON bad USING nitro ((repeat('x', k)), b);
INSERT INTO bad (k, b) SELECT 10000, array_agg(g::text) FROM generate_series(1, 30000) g;
VACUUM bad;
SELECT nitro_verify('bad_b', true), nitro_verify('bad_k', true);

-- A range of strings is of the type of the elements: one over text is none for varchar[] and arrays of domains.
CREATE DOMAIN name_ AS text;
CREATE TYPE varcharrange AS RANGE (subtype = varchar, collation = "C");
CREATE TYPE name_range AS RANGE (subtype = name_, collation = "C");
SELECT check_ranges('name_', $$(ARRAY['a', 'A', 'b', 'B', 'ab', 'a b', 'a-b', 'Ab'])[1 + (random() * 7)::int]$$, 'name_range', 'COLLATE "C"');
SELECT conditions('SELECT id FROM t WHERE a &<@ name_range(''a'', ''b'')');
SELECT check_ranges('varchar', $$(ARRAY['a', 'A', 'b', 'B', 'ab', 'a b', 'a-b', 'Ab'])[1 + (random() * 7)::int]$$, 'varcharrange', 'COLLATE "C"');
SELECT conditions('SELECT id FROM t WHERE a &<@ varcharrange(''a'', ''b'')');
-- 19 has another HINT.
\set VERBOSITY terse
SELECT id FROM t WHERE a &<@ textrange('a', 'b');
\set VERBOSITY default

DROP SCHEMA elements CASCADE;

-- jsonb columns with an entry per element. GIN and the sequential scan are the oracles.
SET client_min_messages = warning;
CREATE SCHEMA json;
SET search_path = json, public;
\set ECHO none
\i sql/oracle.inc
\set ECHO all
SELECT setseed(0.3);

-- A random scalar from a small set, and a random document.
CREATE FUNCTION scalar() RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT (ARRAY['"a"', '"b"', '"ab"', '""', '"1"', '1', '1.0', '1.50', '-3', '0', '1e3', 'true', 'false', 'null', '"é"', '"' || repeat('long', 50) || '"'])[1 + (random() * 15)::int]::jsonb
$$;
CREATE FUNCTION document(depth int) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE r float := random();
BEGIN
    IF depth = 0 OR r < 0.25 THEN RETURN scalar(); END IF;
    IF r < 0.75 THEN
        RETURN (SELECT coalesce(jsonb_agg(document(depth - 1 + g * 0)), '[]') FROM generate_series(1, (random() * 3)::int) g);
    END IF;
    RETURN (SELECT coalesce(jsonb_object_agg((ARRAY['a', 'b', 'k', 'items'])[1 + (random() * 3)::int], document(depth - 1 + g * 0)), '{}') FROM generate_series(1, (random() * 3)::int) g);
END $$;
CREATE TABLE t (id int, j jsonb);
INSERT INTO t SELECT g, CASE WHEN g % 40 = 0 THEN NULL ELSE document(1 + g % 4) END FROM generate_series(1, 1500) g;
CREATE INDEX t_j ON t USING nitro (j jsonb_array_ops);
INSERT INTO t SELECT g, document(1 + g % 3) FROM generate_series(1501, 3000) g;
CREATE TABLE g AS TABLE t;
CREATE INDEX g_j ON g USING gin (j);
ANALYZE t, g;
SELECT nitro_verify('t_j', true) > 3000;

-- Documents and parts of documents as arguments.
CREATE FUNCTION check_jsonb(n int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE part jsonb; rows int := 0;
BEGIN
    FOR i IN 1..n LOOP
        part := CASE i % 3 WHEN 0 THEN document(3) WHEN 1 THEN (SELECT jsonb_agg(scalar()) FROM generate_series(1, i % 4))
                ELSE (SELECT j FROM t WHERE id = i * 7) END;
        CONTINUE WHEN part IS NULL;
        rows := rows + agree(format('SELECT id FROM t WHERE j @> %L', part));
    END LOOP;
    IF rows < n THEN RAISE EXCEPTION 'only % rows', rows; END IF;
    RETURN 'all agree';
END $$;
SELECT check_jsonb(150);
SELECT part, agree(format('SELECT id FROM t WHERE j @> %L', part)) >= 0 FROM unnest(ARRAY['[]', '{}', '""', '[[]]', '[{}]', '{"a":{}}', '"a"', '["a"]', '[["a"]]', 'null', '[null]',
    '1', '1.00', '[1, 1.0]', '[1, "1"]', '["a", "b"]', '[{"a": 1}]', '{"items": ["a"]}', '{"items": [{"k": "a"}]}', '{"a": 1, "b": 1}', '[{"a": 1, "b": 1}]', '[{"a": 1}, {"b": 1}]']) part;
SELECT k, agree(format('SELECT id FROM t WHERE j ? %L', k)) > 0 FROM unnest(ARRAY['a', 'b', '1', 'items', 'é', '', repeat('long', 50)]) k;
SELECT agree('SELECT id FROM t WHERE j ? ''none'''), agree('SELECT id FROM t WHERE j ?| ''{a,items}''') > 0, agree('SELECT id FROM t WHERE j ?& ''{a,b}''') > 0,
    agree('SELECT id FROM t WHERE j ?| ''{}''', false), agree('SELECT id FROM t WHERE j ?& ''{}''') > 0, agree('SELECT id FROM t WHERE j ?& ''{a,NULL,items}''') > 0,
    agree('SELECT id FROM t WHERE j ?| ''{NULL,k}''') > 0, agree('SELECT id FROM t WHERE j ? ''a'' AND j @> ''[1]''') > 0,
    agree('SELECT id FROM t WHERE j ? ANY (''{a,k}''::text[])', false) > 0, agree('SELECT id FROM t WHERE j @> ANY (ARRAY[''["a","b"]'', ''{"a":1}'', ''[]'']::jsonb[])', false) > 0,
    agree('SELECT id FROM t WHERE j IS NULL', false) > 0, agree('SELECT id FROM t WHERE j IS NOT NULL AND j @> ''["a"]''', false) > 0;

-- The queries that core asks of its jsonb_ops index.
TRUNCATE t, g;
INSERT INTO t SELECT i, jsonb_build_object('wait', CASE WHEN i % 5 > 0 THEN (ARRAY['CC', 'AB', NULL])[1 + i % 3] END, 'public', i % 4 = 0, 'age', 20 + i % 10, 'array', CASE WHEN i % 3 = 0 THEN '["foo","bar"]'::jsonb ELSE '["bar","baz"]' END,
    'node', 'CB' || i % 7, 'line', i) - (ARRAY['wait', 'public', 'age', 'array', 'none'])[1 + i % 5] FROM generate_series(1, 900) i;
INSERT INTO t VALUES (1000, '{"a":[["b",{"x":1}],["b",{"x":2}]],"c":3}'), (1001, '[[14,2,3]]'), (1002, '[1,[14,2,3]]'), (1003, '{"bar":"bar","public":1}');
INSERT INTO g TABLE t;
ANALYZE t, g;
SELECT part, agree(format('SELECT id FROM t WHERE j @> %L', part)) FROM unnest(ARRAY['{"wait":null}', '{"wait":"CC"}', '{"wait":"CC", "public":true}', '{"age":25}', '{"age":25.0}', '{"array":["foo"]}', '{"array":["bar"]}',
    '{"array":["bar", "foo"]}', '{"array":["foo", "foo"]}', '{}', '{"a":[["b",{"x":1}]]}', '{"a":[["b",{"x":3}]]}', '{"c":3}', '[14]', '[[14]]', '[1,[14]]']) part;
SELECT agree('SELECT id FROM t WHERE j ? ''public'''), agree('SELECT id FROM t WHERE j ? ''bar'''), agree('SELECT id FROM t WHERE j ?| ARRAY[''public'',''disabled'']'), agree('SELECT id FROM t WHERE j ?& ARRAY[''public'',''age'']');

-- One path of a document: the elements of an array in it, with a scalar column beside them, and typed.
CREATE TABLE docs (id int, at date, doc jsonb);
INSERT INTO docs SELECT g, '2024-01-01'::date + g % 300, jsonb_build_object('items', (SELECT jsonb_agg(jsonb_build_object('sku', 's' || (g * 7 + i * 13) % 50, 'price', (g + i * 11) % 90 / 4.0))
    FROM generate_series(1, g % 5) i), 'tags', jsonb_build_array('t' || g % 10, g % 3, NULL)) FROM generate_series(1, 2000) g;
INSERT INTO docs VALUES (3001, NULL, NULL), (3002, NULL, '{}'), (3003, '2024-05-05', '{"items": "none", "tags": {"t1": 2}}'), (3004, '2024-05-05', '[]'), (3005, NULL, '{"tags": []}');
CREATE INDEX docs_skus ON docs USING nitro (jsonb_path_query_array(doc, '$.items[*].sku') jsonb_array_ops, at);
CREATE INDEX docs_items ON docs USING nitro ((doc -> 'items') jsonb_array_ops);
CREATE INDEX docs_tags ON docs USING nitro (at, (doc -> 'tags') jsonb_array_ops);
CREATE INDEX docs_prices ON docs USING nitro (nitro_jsonb_numbers(jsonb_path_query_array(doc, '$.items[*].price')));
CREATE INDEX docs_strings ON docs USING nitro (nitro_jsonb_strings(doc -> 'tags'));
ANALYZE docs;
SELECT agree('SELECT id FROM docs WHERE jsonb_path_query_array(doc, ''$.items[*].sku'') ? ''s20''', false),
    agree('SELECT id FROM docs WHERE jsonb_path_query_array(doc, ''$.items[*].sku'') ?& ''{s27,s40}'' AND at > ''2024-02-01''', false),
    agree('SELECT id FROM docs WHERE jsonb_path_query_array(doc, ''$.items[*].sku'') @> ''["s27", "s40"]''', false),
    agree('SELECT id FROM docs WHERE doc -> ''items'' @> ''[{"sku": "s20"}]''', false),
    agree('SELECT id FROM docs WHERE doc -> ''items'' @> ''[{"sku": "s20", "price": 5.50}]''', false),
    agree('SELECT id FROM docs WHERE doc -> ''tags'' ? ''t1'' AND at BETWEEN ''2024-03-01'' AND ''2024-03-31''', false),
    agree('SELECT id FROM docs WHERE nitro_any_between(nitro_jsonb_numbers(jsonb_path_query_array(doc, ''$.items[*].price'')), 2, 3)', false),
    agree('SELECT id FROM docs WHERE nitro_jsonb_numbers(jsonb_path_query_array(doc, ''$.items[*].price'')) &<@ numrange(22, NULL)', false),
    agree('SELECT id FROM docs WHERE nitro_jsonb_strings(doc -> ''tags'') &^@ ''t1''', false);
SELECT bool_and(nitro_verify(indexrelid, true) > 2000) FROM pg_index WHERE indrelid = 'docs'::regclass;
DROP SCHEMA json CASCADE;

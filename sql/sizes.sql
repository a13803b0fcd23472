-- Values that an index-only scan hands up have the sizes that they have in a btree: short ones a header of one byte.
\set ECHO none
\i sql/same.inc
\set ECHO all
CREATE SCHEMA sizes;
SET client_min_messages = warning;
SET search_path = sizes, public;
CREATE TYPE pair AS (x int, y text);

-- Sizes of the column v in an order, by an index-only scan of this access method.
CREATE FUNCTION sizes_by(method text, kind text, columns text, in_order text, "values" text, storage text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text;
    plan json;
    query CONSTANT text := format('SELECT string_agg(pg_column_size(v)::text, '','') FROM (SELECT v FROM t ORDER BY %s) t', in_order);
BEGIN
    EXECUTE format('CREATE TEMP TABLE t (id int, v %s)', kind);
    IF storage IS NOT NULL THEN
        EXECUTE format('ALTER TABLE t ALTER COLUMN v SET STORAGE %s', storage);
    END IF;
    EXECUTE format('INSERT INTO t SELECT row_number() OVER (), x FROM (%s) q(x)', "values");
    EXECUTE format('CREATE INDEX t_i ON t USING %s %s', method, columns);
    EXECUTE 'ANALYZE t';
    PERFORM only_by('index only');
    EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
    -- A sort would form its own tuples.
    IF plan::text !~ 'Index Only Scan' OR plan::text ~ '"Sort"' THEN
        RAISE EXCEPTION 'another plan: %', plan;
    END IF;
    EXECUTE query INTO result;
    DROP TABLE t;
    RETURN result;
END $$;

-- One of nitro has the sizes of btree's: by either way through its rows, in both orders, and where v is only included.
CREATE FUNCTION same_sizes(kind text, "values" text, nitro text DEFAULT '', btree text DEFAULT '', storage text DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    fast text;
    by_nitro text;
    by_btree text;
    shape text;
    in_order text;
    wrong text := '';
BEGIN
    FOREACH fast IN ARRAY '{on,off}'::text[] LOOP
        PERFORM set_config('nitro.enable_fast_scan', fast, true);
        FOR shape, in_order IN VALUES ('(v %s, id)', 'v, id'), ('(v %s DESC, id)', 'v DESC, id'), ('(id) INCLUDE (v)', 'id') LOOP
            by_nitro := sizes_by('nitro', kind, format(shape, nitro), in_order, "values", storage);
            by_btree := sizes_by('btree', kind, format(shape, btree), in_order, "values", storage);
            IF by_nitro IS DISTINCT FROM by_btree THEN
                wrong := wrong || format(' %s, %s: %s, not %s;', shape, fast, by_nitro, by_btree);
            END IF;
        END LOOP;
    END LOOP;
    RETURN CASE wrong WHEN '' THEN 'same: ' || by_nitro ELSE 'WRONG' || wrong END;
END $$;

\set strings 'SELECT repeat(''s'', n) || n FROM unnest(ARRAY[0, 1, 5, 122, 123, 124, 125, 300, 490]) n UNION ALL SELECT chr(1) || ''x'' || chr(1) UNION ALL SELECT NULL'
SELECT same_sizes('text', :'strings');
SELECT same_sizes('text COLLATE ucs_basic', :'strings');
SELECT same_sizes('varchar(500)', :'strings');
SELECT same_sizes('text', :'strings', storage => 'PLAIN');
SELECT same_sizes('bpchar', :'strings');
SELECT same_sizes('char(20)', 'SELECT repeat(''c'', n) FROM generate_series(0, 20, 5) n');
SELECT same_sizes('char(150)', 'SELECT repeat(''c'', n) FROM generate_series(0, 150, 50) n');
SELECT same_sizes('bytea', 'SELECT decode(repeat(''00ff01'', n), ''hex'') FROM generate_series(0, 160, 20) n');
SELECT same_sizes('name', 'SELECT repeat(''n'', n)::name FROM generate_series(0, 60, 20) n');
SELECT same_sizes('numeric', 'SELECT unnest(''{0,1,1.0,1.50,-1,NaN,Infinity,123456789012345678901234567890,1e-50,0.000}''::numeric[]) UNION ALL SELECT (''1'' || repeat(''9'', 500))::numeric');
SELECT same_sizes('inet', 'SELECT unnest(''{10.0.0.1,10.0.0.0/8,::1,fe80::/10}''::inet[])');
SELECT same_sizes('varbit', 'SELECT repeat(''10'', n)::varbit FROM generate_series(0, 900, 300) n');
SELECT same_sizes('int[]', 'SELECT array_fill(n, ARRAY[n]) FROM unnest(ARRAY[0, 1, 20, 26, 27, 100]) n', 'array_order_ops', 'array_ops');
SELECT same_sizes('text[]', 'SELECT array_fill(''e''::text, ARRAY[n]) FROM unnest(ARRAY[0, 1, 10, 40]) n', 'array_order_ops', 'array_ops');
SELECT same_sizes('jsonb', 'SELECT jsonb_build_object(''k'', repeat(''j'', n)) FROM unnest(ARRAY[0, 10, 105, 110, 300]) n');
SELECT same_sizes('int4range', 'SELECT int4range(n, n + 5) FROM generate_series(1, 3) n UNION ALL SELECT ''empty'' UNION ALL SELECT ''(,)''');
SELECT same_sizes('tsvector', 'SELECT to_tsvector(''simple'', repeat(''w'', n) || '' a'') FROM unnest(ARRAY[1, 50, 100, 200]) n');
SELECT same_sizes('pair', 'SELECT ROW(n, repeat(''p'', n))::pair FROM unnest(ARRAY[1, 50, 90, 120]) n');
SELECT same_sizes('uuid', 'SELECT md5(n::text)::uuid FROM generate_series(1, 3) n');
SELECT same_sizes('interval', 'SELECT n * interval ''1 day'' FROM generate_series(1, 3) n');
SELECT same_sizes('timetz', 'SELECT ''12:00+00''::timetz + n * interval ''1 hour'' FROM generate_series(1, 3) n');
SELECT same_sizes('bool', 'SELECT true UNION ALL SELECT false');
SELECT same_sizes('int8', 'SELECT generate_series(1, 3)');

-- Aggregates that are computed in the index; those of btree's scan.
CREATE FUNCTION aggregated(method text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE 'CREATE TABLE n (v numeric, w text COLLATE "C")';
    EXECUTE 'INSERT INTO n SELECT i, ''w'' || i FROM generate_series(1, 50) i, generate_series(1, 20)';
    EXECUTE format('CREATE INDEX n_v ON n USING %s (v); CREATE INDEX n_w ON n USING %1$s (w)', method);
    EXECUTE 'ANALYZE n';
    PERFORM only_by('index only');
    RETURN QUERY EXECUTE 'SELECT max(pg_column_size(v)) || '' '' || max(pg_column_size(m)) FROM (SELECT v, max(v) AS m FROM n GROUP BY v) g';
    RETURN QUERY EXECUTE 'SELECT pg_column_size(max(v)) || '' '' || pg_column_size(min(v)) || '' '' || pg_column_size(max(w)) FROM n';
    RETURN QUERY EXECUTE 'SELECT max(pg_column_size(w)) || '' '' || max(pg_column_size(m)) FROM (SELECT w, min(w) AS m FROM n GROUP BY w) g';
    EXECUTE 'DROP TABLE n';
END $$;
SELECT aggregated('nitro');
SELECT aggregated('btree');

-- One that btree compresses is handed up as it is.
SELECT sizes_by('nitro', 'text', '(v, id)', 'v, id', 'SELECT repeat(''x'', 1000)', NULL);
DROP SCHEMA sizes CASCADE;

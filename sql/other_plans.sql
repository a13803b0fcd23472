-- What an extension must not do: change the plans of tables that have no nitro index, lose other indexes of
-- those that have, show values to roles that may not see them.
\set ECHO none
\i sql/same.inc
\set ECHO all
SET client_min_messages = warning;
CREATE SCHEMA other_plans;
SET search_path = other_plans, public;
SET max_parallel_workers_per_gather = 0;
SET jit = off;
CREATE FUNCTION plan(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text; result text := '';
BEGIN
    FOR line IN EXECUTE 'EXPLAIN ' || query LOOP result := result || line || E'\n'; END LOOP;
    RETURN result;
END $$;
-- The plan of a query, costs and rows included, is the same with and without nitro.
CREATE FUNCTION undisturbed(query text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE want text; got text;
BEGIN
    SET LOCAL nitro.enable_scan = off;
    want := plan(query);
    SET LOCAL nitro.enable_scan = on;
    got := plan(query);
    IF got <> want THEN RAISE EXCEPTION 'another plan: %', query USING DETAIL = got || E'instead of\n' || want; END IF;
    RETURN true;
END $$;
CREATE TABLE items (id int PRIMARY KEY, name text, at timestamptz);
INSERT INTO items SELECT i, 'n' || i, '2024-01-01'::timestamptz + i * interval '1 min' FROM generate_series(1, 20000) i;
CREATE TABLE orders (id int PRIMARY KEY, item_ids int[], names text[], tids tid[]);
INSERT INTO orders SELECT i, ARRAY[i, i * 2, i * 3], ARRAY['n' || i], ARRAY['(1,1)'::tid] FROM generate_series(1, 4000) i;
CREATE TABLE bare (id int, name text);
INSERT INTO bare SELECT i, 'n' || i FROM generate_series(1, 3) i;
CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE parts1 PARTITION OF parts FOR VALUES FROM (1) TO (5000);
CREATE TABLE parts2 PARTITION OF parts FOR VALUES FROM (5000) TO (10000);
INSERT INTO parts SELECT generate_series(1, 9999);
VACUUM ANALYZE items;
VACUUM ANALYZE orders;
VACUUM ANALYZE bare;
VACUUM ANALYZE parts;
CREATE INDEX orders_items ON orders USING nitro (item_ids);
CREATE INDEX orders_names ON orders USING nitro (names);
-- A condition across two tables is the other table's, too.
SELECT undisturbed(q) FROM unnest(ARRAY[
    'SELECT i.* FROM orders o JOIN items i ON i.id = ANY (o.item_ids) WHERE o.id = 8',
    'SELECT o.id, i.* FROM orders o LEFT JOIN items i ON i.id = ANY (o.item_ids) WHERE o.id BETWEEN 8 AND 10',
    'SELECT i.* FROM items i WHERE EXISTS (SELECT FROM orders o WHERE i.id = ANY (o.item_ids) AND o.id = 8)',
    'SELECT i.* FROM orders o, LATERAL (SELECT * FROM items WHERE id = ANY (o.item_ids)) i WHERE o.id = 8',
    'SELECT i.id + 1 FROM orders o JOIN items i ON i.id + 1 = ANY (o.item_ids) WHERE o.id = 8',
    'SELECT i.* FROM orders o JOIN parts i ON i.id = ANY (o.item_ids) WHERE o.id = 8',
    'SELECT i.* FROM orders o JOIN items i ON i.ctid = ANY (o.tids) WHERE o.id = 8',
    'SELECT * FROM items WHERE id = 5', 'SELECT * FROM items WHERE id < 50 ORDER BY id', 'SELECT count(*) FROM items a JOIN items b USING (id)',
    'SELECT * FROM items WHERE id = ANY (ARRAY[1, 2, 3])', 'SELECT max(id) FROM items', 'SELECT * FROM parts WHERE id IN (1, 7000)']) q;
-- Where nothing else could use it, the index is used.
SELECT scanned('SELECT o.id FROM bare b JOIN orders o ON b.id = ANY (o.item_ids)', 'bitmap'),
       scanned('SELECT o.id FROM (VALUES (1), (2)) b (id) JOIN orders o ON b.id = ANY (o.item_ids)', 'bitmap'),
       scanned('SELECT id, (SELECT count(*) FROM orders o WHERE b.id = ANY (o.item_ids)) FROM items b WHERE id < 5', 'bitmap');
CREATE INDEX bare_name ON bare (name);
SELECT scanned('SELECT o.id FROM bare b JOIN orders o ON b.id = ANY (o.item_ids)', 'bitmap'),
       scanned('SELECT o.id FROM bare b JOIN orders o ON b.name = ANY (o.names)', 'bitmap');
-- Equal elements that have another name.
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TABLE named (id int, v varchar[], p positive[], w varchar(5)[], c char(3)[]);
INSERT INTO named SELECT i, ARRAY['v' || i, 'w' || i % 7], ARRAY[i, 1 + i % 9], ARRAY['x' || i % 11], ARRAY['c' || i % 40] FROM generate_series(1, 3000) i;
CREATE INDEX named_v ON named USING nitro (v);
CREATE INDEX named_p ON named USING nitro (p);
CREATE INDEX named_w ON named USING nitro (w);
VACUUM ANALYZE named;
SELECT same(q) FROM unnest(ARRAY[
    'SELECT id FROM named WHERE ''v17'' = ANY (v)', 'SELECT id FROM named WHERE ''v17''::text = ANY (v)', 'SELECT id FROM named WHERE ''v17''::varchar = ANY (v)',
    'SELECT id FROM named WHERE 17 = ANY (p)', 'SELECT id FROM named WHERE -1 = ANY (p)', 'SELECT id FROM named WHERE 2995 < ANY (p)',
    'SELECT id FROM named WHERE ''x3'' = ANY (w)', 'SELECT id FROM named WHERE ''x3, too long'' = ANY (w)', 'SELECT id FROM named WHERE ''w3'' = ANY (v) AND 5 = ANY (p)']) q;
PREPARE by_name(text) AS SELECT count(*) FROM named WHERE $1 = ANY (v);
SET plan_cache_mode = force_generic_plan;
EXECUTE by_name('w1');
RESET plan_cache_mode;
-- Indexes on the condition itself, and partial ones that it proves.
CREATE INDEX named_is ON named (('w3' = ANY (v)));
SELECT undisturbed('SELECT id FROM named WHERE ''w3'' = ANY (v)');
DROP INDEX named_is;
CREATE INDEX named_is ON named (id) WHERE 'w3' = ANY (v) OR id < 0;
SELECT undisturbed('SELECT id FROM named WHERE ''w3'' = ANY (v) AND id < 50');
SELECT scanned('SELECT id FROM named WHERE ''w4'' = ANY (v) AND id < 50', 'bitmap');
DROP INDEX named_is, named_v, named_w;
-- A partial index that does not apply is no reason.
CREATE INDEX named_v ON named USING nitro (v) WHERE id < 100;
SELECT undisturbed('SELECT id FROM named WHERE ''w3'' = ANY (v)');
SELECT scanned('SELECT id FROM named WHERE ''w3'' = ANY (v) AND id < 60', 'bitmap');

-- Frames of windows and sorts: in_range, sort support and equalimage are functions of btree's families, and stay theirs.
CREATE TABLE frames (i int, n numeric, f float8, at timestamp, s text COLLATE "C");
INSERT INTO frames SELECT i % 50, (i % 40) / 4.0, (i % 30) / 8.0, '2024-01-01'::timestamp + (i % 60) * interval '12 hours', 's' || i % 20 FROM generate_series(1, 500) i;
INSERT INTO frames VALUES (NULL, NULL, NULL, NULL, NULL), (7, 'NaN', 'Infinity', 'infinity', '');
CREATE INDEX frames_i ON frames USING nitro (i);
CREATE INDEX frames_n ON frames USING nitro (n DESC);
CREATE INDEX frames_f ON frames USING nitro (f);
CREATE INDEX frames_at ON frames USING nitro (at);
CREATE INDEX frames_s ON frames USING nitro (s);
VACUUM ANALYZE frames;
SELECT same(q) FROM unnest(ARRAY[
    'SELECT i, count(*) OVER (ORDER BY i RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM frames ORDER BY i',
    'SELECT i, sum(i) OVER (ORDER BY i DESC RANGE BETWEEN 3::int8 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW) FROM frames ORDER BY i DESC',
    'SELECT n, count(*) OVER (ORDER BY n DESC RANGE BETWEEN 0.5 PRECEDING AND 0.25 FOLLOWING) FROM frames ORDER BY n DESC',
    'SELECT f, count(*) OVER (ORDER BY f RANGE BETWEEN 0.25 PRECEDING AND CURRENT ROW) FROM frames ORDER BY f',
    'SELECT at, count(*) OVER (ORDER BY at RANGE BETWEEN ''1 day'' PRECEDING AND ''12 hours'' FOLLOWING) FROM frames ORDER BY at',
    'SELECT s, count(*) OVER (ORDER BY s RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) FROM frames ORDER BY s']) q;
-- Where nothing is read by its order, the server sorts as without nitro.
SELECT undisturbed(q) FROM unnest(ARRAY['SELECT * FROM frames ORDER BY s, n, at', 'SELECT *, count(*) OVER (ORDER BY i + 1 RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM frames',
    'SELECT DISTINCT s, i FROM frames ORDER BY i DESC, s']) q;

-- Security barrier views: what comes in from outside is leakproof, and stays so.
CREATE VIEW guarded WITH (security_barrier) AS SELECT id, p FROM named WHERE id % 2 = 0;
CREATE VIEW open_ AS SELECT id, p FROM named WHERE id % 2 = 0;
SELECT undisturbed('SELECT id FROM guarded WHERE 17 = ANY (p)');
SELECT scanned('SELECT id FROM guarded WHERE 17 = ANY (p)', 'bitmap'), scanned('SELECT id FROM open_ WHERE 17 = ANY (p)', 'bitmap');

-- So are conditions beside a policy.
CREATE TABLE policed AS SELECT id, p FROM named;
CREATE INDEX policed_p ON policed USING nitro (p);
ALTER TABLE policed ENABLE ROW LEVEL SECURITY;
ALTER TABLE policed FORCE ROW LEVEL SECURITY;
CREATE POLICY evens ON policed USING (id % 2 = 0);
VACUUM ANALYZE policed;
CREATE ROLE nitro_policed;
GRANT USAGE ON SCHEMA other_plans TO nitro_policed;
GRANT SELECT ON policed TO nitro_policed;
SELECT scanned('SELECT id FROM policed WHERE 17 = ANY (p)', 'bitmap');
SET ROLE nitro_policed;
SELECT undisturbed('SELECT id FROM policed WHERE 17 = ANY (p)'), scanned('SELECT id FROM policed WHERE 17 = ANY (p)', 'bitmap');
RESET ROLE;

-- Estimates tell nothing of values that the role may not see, and call no function with them.
CREATE ROLE nitro_stranger;
GRANT USAGE, CREATE ON SCHEMA other_plans TO nitro_stranger;
CREATE TABLE secret (owner name, a numeric[], v tsvector);
INSERT INTO secret SELECT 'x', ARRAY[123456.78, i % 50], ('word' || i % 3)::tsvector FROM generate_series(1, 3000) i;
ANALYZE secret;
ALTER TABLE secret ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON secret USING (owner = current_user);
GRANT SELECT ON secret TO nitro_stranger;
CREATE FUNCTION leak(numeric[], int) RETURNS boolean LANGUAGE plpgsql COST 0.0001 IMMUTABLE AS $$ BEGIN RAISE WARNING 'leaked %', $1; RETURN true; END $$;
CREATE OPERATOR <<<! (LEFTARG = numeric[], RIGHTARG = int, FUNCTION = leak, RESTRICT = nitro_any_sel);
CREATE FUNCTION leak(tsvector, int) RETURNS boolean LANGUAGE plpgsql COST 0.0001 IMMUTABLE AS $$ BEGIN RAISE WARNING 'leaked %', $1; RETURN true; END $$;
CREATE OPERATOR <<<! (LEFTARG = tsvector, RIGHTARG = int, FUNCTION = leak, RESTRICT = nitro_any_sel);
SET ROLE nitro_stranger;
SELECT plan('SELECT * FROM secret WHERE a &<> ARRAY[123456.78, 123456.78]') = replace(plan('SELECT * FROM secret WHERE a &<> ARRAY[123456.79, 123456.79]'), '79', '78') AS told_nothing;
SELECT count(plan('SELECT * FROM secret WHERE a <<<! 1')), count(plan('SELECT * FROM secret WHERE v <<<! 1'));
RESET ROLE;
-- A role that may read the table gets the estimate; a type that is no array has none.
SELECT plan('SELECT * FROM secret WHERE a &<> ARRAY[123456.78, 123456.78]') = replace(plan('SELECT * FROM secret WHERE a &<> ARRAY[123456.79, 123456.79]'), '79', '78') AS told_nothing;
SELECT count(plan('SELECT * FROM secret WHERE v <<<! 1'));
SELECT oprname, oprrest, oprjoin FROM pg_operator WHERE oprrest = 'nitro_any_sel'::regproc AND oprjoin = 0 AND oprname <> '<<<!';

-- A type that joins btree's operator family. Queries on tables without nitro indexes are planned as
-- if no table had one, and nitro's indexes keep what they can do.
BEGIN;
CREATE TYPE alias8;
CREATE FUNCTION alias8in(cstring) RETURNS alias8 LANGUAGE internal STRICT IMMUTABLE AS 'int8in';
CREATE FUNCTION alias8out(alias8) RETURNS cstring LANGUAGE internal STRICT IMMUTABLE AS 'int8out';
CREATE TYPE alias8 (INPUT = alias8in, OUTPUT = alias8out, LIKE = int8);
CREATE FUNCTION alias8eq(alias8, alias8) RETURNS bool LANGUAGE internal STRICT IMMUTABLE AS 'int8eq';
CREATE FUNCTION alias8eq(int8, alias8) RETURNS bool LANGUAGE internal STRICT IMMUTABLE AS 'int8eq';
CREATE FUNCTION alias8eq(alias8, int8) RETURNS bool LANGUAGE internal STRICT IMMUTABLE AS 'int8eq';
CREATE OPERATOR = (PROCEDURE = alias8eq, LEFTARG = alias8, RIGHTARG = alias8, COMMUTATOR = =, RESTRICT = eqsel, JOIN = eqjoinsel, MERGES);
CREATE OPERATOR = (PROCEDURE = alias8eq, LEFTARG = int8, RIGHTARG = alias8, COMMUTATOR = =, RESTRICT = eqsel, JOIN = eqjoinsel, MERGES);
CREATE OPERATOR = (PROCEDURE = alias8eq, LEFTARG = alias8, RIGHTARG = int8, COMMUTATOR = =, RESTRICT = eqsel, JOIN = eqjoinsel, MERGES);
CREATE TABLE lists (a int8, b int8, c int8);
INSERT INTO lists SELECT i % 10, i, i FROM generate_series(1, 5000) i;
CREATE INDEX lists_ab ON lists USING nitro (a, b);
ANALYZE lists;
-- The session knows the family as it was before.
SELECT scanned('SELECT * FROM lists WHERE a = 5 AND b = 5', 'index');
ALTER OPERATOR FAMILY integer_ops USING btree ADD OPERATOR 3 = (alias8, alias8), OPERATOR 3 = (int8, alias8), OPERATOR 3 = (alias8, int8);
CREATE TABLE aliases (id int8 PRIMARY KEY, a alias8);
INSERT INTO aliases SELECT i, i::text::alias8 FROM generate_series(1, 3) i;
EXPLAIN (COSTS OFF) SELECT * FROM aliases WHERE id = a AND id = 42::int8;
CREATE FUNCTION conditions(query text) RETURNS text LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
    BEGIN RETURN (regexp_match(plan(query), 'Index Cond: ([^\n]*)'))[1]; END $$;
SELECT conditions('SELECT * FROM lists WHERE (a, b) > (5, 100) ORDER BY a, b LIMIT 5') ~ 'ROW' AS compares_rows;
SELECT conditions('SELECT * FROM lists WHERE a = 5 AND b > 4900 ORDER BY a, b');
SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_seqscan = off;
SELECT scanned('SELECT y.c FROM (VALUES (1::int8), (2)) x (a) JOIN lists y ON x.a = y.a AND y.b = 11', 'index');
SELECT scanned('SELECT y.c FROM aliases x JOIN lists y ON x.id = y.a AND y.b = x.id', 'index');
SELECT scanned('SELECT y.c FROM aliases x JOIN lists y ON x.id = y.a AND (y.b, y.c) > (4, 5)', 'index');
-- An operator that nitro's family does not have is none of its conditions.
SELECT count(*) FROM aliases x JOIN lists y ON x.a = y.a;
ROLLBACK;
DROP SCHEMA other_plans CASCADE;
DROP ROLE nitro_stranger, nitro_policed;

-- Long values: btree compresses them, nitro takes them as they are, up to just below 1 MB. Every
-- way in refuses longer ones alike, and nothing else changes. Answers against the heap.
\set ECHO none
\i sql/same.inc
\set ECHO all
SET client_min_messages = warning;
SET extra_float_digits = 1;
CREATE SCHEMA long;
SET search_path = long, public;
-- Does not compress.
CREATE FUNCTION noise(n int, seed int) RETURNS text LANGUAGE sql AS $$
    SELECT left(string_agg(md5(i || ' ' || seed), ''), n) FROM generate_series(0, n / 32) i $$;
CREATE FUNCTION sizes() RETURNS SETOF int LANGUAGE sql AS
    'SELECT unnest(ARRAY[0, 1, 2700, 2712, 8190, 8191, 8192, 16318, 16319, 16384, 20000, 65532, 65536, 100000, 240000])';

-- How a statement ends: ok, or SQLSTATE, and whether it has DETAIL and HINT.
CREATE FUNCTION ends(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE state text; detail text; hint text; what text;
BEGIN
    EXECUTE statement;
    RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT, what = CONSTRAINT_NAME;
    RETURN concat_ws(' ', state, CASE WHEN detail <> '' THEN 'detail' END, CASE WHEN hint <> '' THEN 'hint' END, nullif(what, ''));
END $$;

-- What btree takes.
CREATE TABLE b (t text COLLATE "C");
CREATE INDEX ON b USING btree (t);
CREATE TABLE n (t text COLLATE "C", c text);
CREATE INDEX n_t ON n USING nitro (t);
CREATE INDEX n_c ON n USING nitro (c);
SELECT s, ends(format('INSERT INTO b VALUES (repeat(''x'', %s))', s)) AS btree, ends(format('INSERT INTO n VALUES (repeat(''x'', %1$s), repeat(''x'', %1$s))', s)) AS nitro
FROM unnest(ARRAY[2000, 2712, 8192, 100000, 230000]) s
UNION ALL SELECT s, 'of lz4', ends(format('INSERT INTO n VALUES (repeat(''x'', %1$s), repeat(''x'', %1$s))', s)) FROM unnest(ARRAY[690000, 1048419]) s;
SELECT nitro_verify('n_t', true), nitro_verify('n_c', true);

-- But for bytes of bytea and bit that are 0 or 1, which take two bytes each.
CREATE TABLE z (y bytea, v bit varying);
CREATE INDEX z_y ON z USING nitro (y);
CREATE INDEX z_v ON z USING nitro (v);
SELECT s, ends(format('INSERT INTO z (y) VALUES (decode(repeat(''00'', %s), ''hex''))', s)) AS zeros, ends(format('INSERT INTO z (y) VALUES (decode(repeat(''02'', 2 * %s), ''hex''))', s - 10000)) AS others,
    ends(format('INSERT INTO z (v) VALUES (repeat(''0'', 8 * %s)::bit varying)', s)) AS bits
FROM unnest(ARRAY[524000, 525000]) s;
SELECT nitro_verify('z_y', true), nitro_verify('z_v', true);
DROP TABLE z;

-- The limit, exactly: two bytes of the key are not the value's.
TRUNCATE n;
INSERT INTO n VALUES (repeat('x', 1048422), 'a');
INSERT INTO n VALUES (repeat('x', 1048423), 'b');
INSERT INTO n VALUES ('c', repeat('x', 1048423));
\set VERBOSITY sqlstate
INSERT INTO n VALUES (noise(1048423, 1), 'd');
UPDATE n SET t = t || 'x';
COPY n (t) FROM PROGRAM 'head -c 1048423 /dev/zero | tr "\\000" x';
\set VERBOSITY default
CREATE TABLE m AS SELECT repeat('x', 1048423) AS t, 1 AS i;
CREATE INDEX m_t ON m USING nitro (t COLLATE "C");
CREATE INDEX m_t ON m USING nitro (i, t);
CREATE INDEX m_t ON m USING nitro (i) INCLUDE (t);
CREATE INDEX m_t ON m USING nitro (md5(t));
SELECT count(*), max(length(t)) FROM n;
SELECT nitro_verify('n_t', true), nitro_verify('n_c', true), nitro_verify('m_t', true);
-- All columns of a key together.
CREATE INDEX n_both ON n USING nitro (t, c, (t || c));
DROP TABLE m;
-- Elements, and values with a comparison function.
CREATE TABLE e (a text[] COLLATE "C", j jsonb, d jsonb, w text[]);
CREATE INDEX e_a ON e USING nitro (a array_ops);
CREATE INDEX e_j ON e USING nitro (j jsonb_array_ops);
CREATE INDEX e_d ON e USING nitro (d);
CREATE INDEX e_w ON e USING nitro (w array_order_ops);
INSERT INTO e (a) VALUES (ARRAY['a', repeat('x', 1000000), 'z']);
INSERT INTO e (a) VALUES (ARRAY['a', repeat('x', 1048423), 'z']);
INSERT INTO e (j) VALUES (jsonb_build_array('a', repeat('x', 1000000)));
INSERT INTO e (d) VALUES (jsonb_build_array('a', repeat('x', 1000000)));
INSERT INTO e (w) VALUES (ARRAY['a', repeat('x', 1000000)]);
SELECT ends(format('INSERT INTO e (%s) VALUES (%s)', c, v)) FROM (VALUES ('d', 'to_jsonb(repeat(''x'', 1048424))'), ('w', 'ARRAY[repeat(''x'', 1048424)]')) s (c, v);
SET enable_seqscan = off;
SELECT length(a[2]), length(j ->> 1), length(d ->> 1), length(w[2]) FROM e WHERE a @> ARRAY[repeat('x', 1000000)];
SELECT length(d ->> 1) FROM e WHERE d = jsonb_build_array('a', repeat('x', 1000000));
SELECT length(w[2]) FROM e WHERE w > ARRAY['a', repeat('x', 999999)];
RESET enable_seqscan;
SELECT nitro_verify('e_a', true), nitro_verify('e_j', true), nitro_verify('e_d', true), nitro_verify('e_w', true);
DROP TABLE e, n, b;

-- Answers: values that share all but their ends, or nothing; NULLs; inserted, and built.
CREATE TABLE v (id int, t text COLLATE "C", l text, y bytea);
CREATE INDEX v_t ON v USING nitro (t, id);
CREATE INDEX v_d ON v USING nitro (t DESC NULLS LAST, id DESC);
CREATE INDEX v_l ON v USING nitro (l, id);
CREATE INDEX v_y ON v USING nitro (y, id);
INSERT INTO v SELECT i, x, x, convert_to(x, 'UTF8') FROM (
    SELECT row_number() OVER ()::int AS i, x FROM sizes() s,
        LATERAL (VALUES (repeat('x', s)), (repeat('x', s) || 'a'), (repeat('x', s) || 'z'), (left(noise(s, s), 30000)), (repeat('ab', s / 2)), (NULL)) k (x)) q;
INSERT INTO v VALUES (1000, noise(600000, 1), noise(1000000, 2), decode(repeat('00', 500000), 'hex')),
    (1001, noise(599999, 1), noise(999999, 2), decode(repeat('00', 499999) || '01', 'hex'));
CREATE FUNCTION answers() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE w text; c text;
BEGIN
    RETURN NEXT same('SELECT id, md5(t) FROM v ORDER BY t, id');
    RETURN NEXT same('SELECT id, md5(t) FROM v ORDER BY t DESC, id DESC');
    RETURN NEXT same('SELECT id, md5(t) FROM v ORDER BY t DESC NULLS LAST, id DESC');
    RETURN NEXT same('SELECT id, md5(l) FROM v ORDER BY l, id');
    RETURN NEXT same('SELECT id, md5(l) FROM v ORDER BY l DESC, id DESC');
    RETURN NEXT same('SELECT id, md5(y) FROM v ORDER BY y, id');
    RETURN NEXT same('SELECT id, md5(y) FROM v WHERE y > ''xxxx'' ORDER BY y DESC, id DESC');
    FOREACH c IN ARRAY '{t,l}'::text[] LOOP
        FOREACH w IN ARRAY '{16318,65536,240000}'::text[] LOOP
            RETURN NEXT same(format('SELECT id, md5(%s) FROM v WHERE %1$s = repeat(''x'', %s)', c, w));
            RETURN NEXT same(format('SELECT id, md5(%s) FROM v WHERE %1$s > repeat(''x'', %s) ORDER BY %1$s, id', c, w));
            RETURN NEXT same(format('SELECT id, md5(%s) FROM v WHERE %1$s BETWEEN repeat(''x'', 2711) AND repeat(''x'', %s) ORDER BY %1$s DESC, id DESC', c, w));
            RETURN NEXT same(format('SELECT id, md5(%s) FROM v WHERE %1$s IN (''x'', repeat(''x'', %s), repeat(''x'', 100000), repeat(''x'', 100001)) ORDER BY %1$s, id', c, w));
        END LOOP;
    END LOOP;
    RETURN NEXT same('SELECT id, md5(t) FROM v WHERE t = noise(599999, 1)');
    RETURN NEXT same('SELECT id, md5(t) FROM v WHERE t > ''x'' AND id % 7 = 3 AND id IN (3, 10, 17, 24, 31, 38) ORDER BY t, id');
    RETURN NEXT same('SELECT a.id, b.id, length(b.t) FROM v a JOIN v b ON a.t = b.t WHERE length(a.t) < 100000');
    RETURN NEXT walk('SELECT id, md5(t) AS t FROM v WHERE t > ''x'' ORDER BY t, id', 12);
    RETURN NEXT shared('SELECT id, md5(t) FROM v WHERE t >= ''''', 'Index Scan');
    RETURN NEXT shared('SELECT id, md5(t) FROM v WHERE t >= '''' ORDER BY t DESC, id DESC', 'Index Only Scan');
END $$;
VACUUM ANALYZE v;
SELECT * FROM answers();
REINDEX TABLE v;
SELECT count(*), md5(string_agg(a, ',')) = (SELECT md5(string_agg(b, ',')) FROM answers() b) FROM answers() a;
SELECT relname, nitro_verify(c.oid, true) FROM pg_class c WHERE relname ~ '^v_' ORDER BY 1;
-- Changes under way, and the rows that they leave.
UPDATE v SET t = t || 'u', l = 'u' || l, y = y || '\x00'::bytea WHERE id % 3 = 0 AND id < 1000;
DELETE FROM v WHERE id % 3 = 1;
SELECT same('SELECT id, md5(t) FROM v ORDER BY t, id'), same('SELECT id, md5(l) FROM v ORDER BY l DESC, id DESC');
VACUUM v;
SELECT same('SELECT id, md5(t) FROM v ORDER BY t, id'), same('SELECT id, md5(l) FROM v ORDER BY l DESC, id DESC'), same('SELECT id, md5(y) FROM v ORDER BY y, id');
SELECT relname, nitro_verify(c.oid, true) FROM pg_class c WHERE relname ~ '^v_' ORDER BY 1;
-- A build with little memory, in many runs.
SET maintenance_work_mem = '1MB';
REINDEX TABLE v;
RESET maintenance_work_mem;
SELECT same('SELECT id, md5(t) FROM v ORDER BY t, id'), same('SELECT id, md5(l) FROM v ORDER BY l DESC, id DESC');
SELECT relname, nitro_verify(c.oid, true) FROM pg_class c WHERE relname ~ '^v_' ORDER BY 1;
-- The memory comes back.
DELETE FROM v WHERE length(t) > 2000 OR length(l) > 2000 OR length(y) > 2000;
VACUUM v;
VACUUM v;
SELECT indexrelname, bytes < 1000000 AS small FROM pg_stat_nitro_indexes WHERE indexrelname ~ '^v_' ORDER BY 1;
-- Unique, where there are unique indexes.
CREATE TABLE u (t text COLLATE "C", l text);
DO $$ BEGIN
    IF current_setting('server_version_num')::int >= 180000 THEN
        CREATE UNIQUE INDEX u_t ON u USING nitro (t); CREATE UNIQUE INDEX u_l ON u USING nitro (l);
    ELSE
        CREATE UNIQUE INDEX u_t ON u (md5(t)); CREATE UNIQUE INDEX u_l ON u (md5(l));
    END IF;
END $$;
SELECT s, ends(format('INSERT INTO u VALUES (repeat(''x'', %1$s), repeat(''x'', %1$s))', s)), ends(format('INSERT INTO u VALUES (repeat(''x'', %1$s), repeat(''y'', %1$s))', s)) ~ '^23505 detail.* u_t$' AS t,
    ends(format('INSERT INTO u VALUES (repeat(''y'', %1$s), repeat(''x'', %1$s))', s)) ~ '^23505 detail.* u_l$' AS l FROM unnest(ARRAY[2700, 100000, 240000, 1000000]) s;
INSERT INTO u SELECT t || 'a', l || 'a' FROM u ON CONFLICT DO NOTHING;
INSERT INTO u SELECT t, l FROM u ON CONFLICT DO NOTHING;
SELECT count(*) FROM u;
DROP SCHEMA long CASCADE;

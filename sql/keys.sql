-- Keys of every type. The order of a nitro index is the order of SQL. Its conditions select the
-- rows that a sequential scan selects. An index-only scan gives the heap's values back bit for bit.
SET client_min_messages = warning;
CREATE SCHEMA keys;
SET search_path = keys, public;
SET timezone = 'Europe/Paris';
\t on
\pset format unaligned
SELECT setseed(0.5);

CREATE FUNCTION use_index(yes bool) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('enable_seqscan', (NOT yes)::text, false),
          set_config('enable_sort', (NOT yes)::text, false),
          set_config('enable_indexscan', yes::text, false),
          set_config('enable_bitmapscan', 'off', false);
END $$;

-- Kind of the scan at the bottom of a plan.
CREATE FUNCTION scan_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text; kind text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
    kind := coalesce(substring(line FROM '(\w+( Only)? Scan)( Backward)? (using|on)'), kind);
  END LOOP;
  RETURN kind;
END $$;

-- Values of each type that are likely to go wrong.
CREATE TABLE edges (type text PRIMARY KEY, vals text[]);
INSERT INTO edges VALUES
  ('int2', '{-32768,-32767,-257,-256,-65,-64,-1,0,1,63,64,255,256,32767}'),
  ('int4', '{-2147483648,-32769,-65,-64,0,63,64,65535,65536,16777215,16777216,2147483647}'),
  ('int8', '{-9223372036854775808,-9223372036854775807,-72057594037927936,-2147483649,-1,0,1,4294967296,72057594037927935,72057594037927936,9223372036854775807}'),
  ('oid', '{0,1,2147483647,2147483648,4294967295}'),
  ('oid8', '{0,1,4294967295,4294967296,9223372036854775807,9223372036854775808,18446744073709551615}'),
  ('float4', '{-Infinity,-3.4028235e38,-1e-45,-0,0,1e-45,0.1,1,16777216,3.4028235e38,Infinity,NaN}'),
  ('float8', '{-Infinity,-1.7976931348623157e308,-3.5e38,-1e-50,-5e-324,-0,0,5e-324,1e-50,0.1,1,16777217,3.5e38,1.7976931348623157e308,Infinity,NaN}'),
  ('numeric', '{-Infinity,-1e500,-10000,-9999.9999,-1.5,-1.50,-1,-0.0001,-1e-300,0,0.0,0.00000,1e-300,0.0001,0.00010,1,1.0,1.00,1.5,9999,9999.9999,10000,10000.0,10001,100000000,123456789.123456789,1e131071,Infinity,NaN}'),
  ('numeric(12,2)', '{-9999999999.99,-1.5,0,0.1,1,1.10,1.25,100,9999999999.99}'),
  ('bool', '{f,t}'),
  ('"char"', '{a,b,"",A,\\200,\\377}'),
  ('date', '{-infinity,"4714-11-24 BC",1999-12-31,2000-01-01,2000-01-02,2024-02-29,"294277-01-01","5874897-12-31",infinity}'),
  ('time', '{00:00,00:00:00.000001,12:34:56.789,23:59:59.999999,24:00}'),
  ('timetz', '{00:00+00,01:00+01,23:00-01,00:00+15:59,24:00-15:59,12:00+02,11:00+01,10:00+00}'),
  ('timestamp', '{-infinity,"4714-11-24 00:00:00 BC","1999-12-31 23:59:59.999999","2000-01-01","2000-01-01 00:00:00.000001","2024-02-29 12:00","2024-03-31 02:30","294276-12-31 23:59:59.999999",infinity}'),
  ('timestamptz', '{-infinity,"4714-11-25 00:00:00+00 BC","2000-01-01+00","1999-12-31 23:00+00","2024-02-29 12:00+00","2024-03-31 01:00+00","2024-10-27 00:30+00","2024-10-27 01:30+00",infinity}'),
  ('interval', '{0,"1 day","24:00","-24:00","1 mon","30 days","720:00","1 mon -30 days","1 year","-1 mon","-178000000 years","178000000 years","2147483647 days 2562047788:00","1 us","-1 us"}'),
  ('uuid', '{00000000-0000-0000-0000-000000000000,00000000-0000-0000-0000-000000000001,ffffffff-ffff-ffff-ffff-ffffffffffff}'),
  ('bytea', '{"","\\x00","\\x0000","\\x01","\\x0001","\\x0100","\\x0101","\\x02","\\xfe","\\xff","\\xff00","\\xffff"}'),
  ('name', '{"",a,A,b,Z,"a b",a-b,ab,aB,"012345678901234567890123456789012345678901234567890123456789012"}'),
  ('text', E'{"",a,A,b,Z,"a ","a  ",ab,"a b",a-b,"a\x01","a\x01b","a\x02",é,e,f,É,ß,ss,"012345678901234567890123456789012345678901234567890123456789012","0123456789012345678901234567890123456789012345678901234567890123"}');
INSERT INTO edges SELECT t, vals FROM edges, unnest('{bpchar,varchar}'::text[]) t WHERE type = 'text';

CREATE FUNCTION random_text(alphabet text, n int) RETURNS text LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(string_agg(substr(alphabet, 1 + floor(random() * length(alphabet))::int, 1), ''), '')
  FROM generate_series(1, floor(random() * n)::int)
$$;

CREATE FUNCTION edge_list(t text) RETURNS text[] LANGUAGE sql STABLE AS $$ SELECT vals FROM edges WHERE type = t $$;

-- Compares a nitro index on a column with the sequential scan, in the given orders. `gen` makes a random
-- value; `others` are the types of constants besides the column's own.
CREATE FUNCTION check_keys(coltype text, gen text, others text[] DEFAULT '{}', opclass text DEFAULT '',
  orders text[] DEFAULT '{ASC,DESC NULLS LAST}', own text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  base text := coalesce(own, split_part(split_part(coltype, ' COLLATE', 1), '(', 1));
  clause text := coalesce(substring(coltype FROM 'COLLATE .*'), '');
  direction text; query text; arg text; op text; c text; bad text; n bigint;
  queries text[]; want text[]; got text[];
BEGIN
  DROP TABLE IF EXISTS k;
  EXECUTE format('CREATE TABLE k (id int, a %s, pad text)', coltype);
  EXECUTE format('INSERT INTO k SELECT g, %s, ''x'' FROM generate_series(1, 300) g', gen);
  EXECUTE format('INSERT INTO k SELECT 1000 + o, v::%s, ''x'' FROM unnest($1) WITH ORDINALITY e (v, o)',
                 replace(coltype, clause, '')) USING edge_list(base);
  INSERT INTO k SELECT id + 10000, a FROM k WHERE id > 1000 OR id % 7 = 0;
  INSERT INTO k SELECT 20000 + g FROM generate_series(1, 5) g;
  ANALYZE k;

  -- Conditions, with constants of all types.
  FOREACH arg IN ARRAY base || others LOOP
    FOR c IN SELECT v FROM unnest(edge_list(arg)) v LOOP
      FOREACH op IN ARRAY '{<,<=,=,>=,>}'::text[] LOOP
        queries := queries || format('a %s %L::%s %s', op, c, arg, clause);
      END LOOP;
    END LOOP;
    CONTINUE WHEN arg LIKE '%[]';
    queries := queries || format('a = ANY (%L::%s[] %s)', edge_list(arg), arg, clause)
                       || format('a <= ANY (%L::%s[] %s)', (edge_list(arg))[2:4], arg, clause);
  END LOOP;
  FOR c, op IN EXECUTE format('SELECT a::text, lead(a::text) OVER (ORDER BY a) FROM k WHERE id %% 25 = 0 AND a IS NOT NULL') LOOP
    arg := format('%s %s', base, clause);
    queries := queries || format('a = %L::%s', c, arg)
                       || format('a >= %L::%s AND a < %L::%s', c, arg, op, arg)
                       || format('a > %L::%s AND a <= %L::%s', op, arg, c, arg);
  END LOOP;
  queries := queries || '{a IS NULL,a IS NOT NULL}'::text[];
  PERFORM use_index(false);
  FOREACH query IN ARRAY queries LOOP
    EXECUTE 'SELECT array_agg(id ORDER BY id)::text FROM k WHERE ' || query INTO c;
    want := want || coalesce(c, '{}');
  END LOOP;

  FOREACH direction IN ARRAY orders LOOP
    EXECUTE format('CREATE INDEX k_a ON k USING nitro (a %s %s) INCLUDE (id)', opclass, direction);
    PERFORM use_index(true);
    got := NULL;
    FOREACH query IN ARRAY queries LOOP
      EXECUTE 'SELECT array_agg(id ORDER BY id)::text FROM k WHERE ' || query INTO c;
      got := got || coalesce(c, '{}');
    END LOOP;
    FOR query, c, op IN SELECT q, w, g FROM unnest(queries, want, got) x (q, w, g) WHERE w IS DISTINCT FROM g LIMIT 1 LOOP
      RETURN format('%s %s: WHERE %s: %s instead of %s', coltype, direction, query, op, c);
    END LOOP;
    SELECT string_agg(DISTINCT k, ', ') INTO bad
      FROM unnest(queries) WITH ORDINALITY o (q, nth), scan_of('SELECT id FROM k WHERE ' || q) k WHERE nth % 8 = 0 AND k <> 'Index Only Scan';
    IF bad IS NOT NULL THEN RETURN format('%s %s: %s', coltype, direction, bad); END IF;

    -- Both directions of the index, by index-only and by heap-fetching scans.
    FOREACH query IN ARRAY ARRAY[direction,
        CASE WHEN direction ~ 'DESC' THEN 'ASC' ELSE 'DESC' END ||
        CASE WHEN direction ~ 'FIRST' THEN ' NULLS LAST' WHEN direction ~ 'LAST' THEN ' NULLS FIRST' ELSE '' END] LOOP
      FOREACH c IN ARRAY '{id\, a,id\, a\, pad}'::text[] LOOP
        query := format('SELECT %s FROM k ORDER BY a %s', c, regexp_replace(query, '.*BY a ', ''));
        IF opclass LIKE '%pattern%' THEN
          query := replace(replace(query, 'a ASC', 'a USING ~<~'), 'a DESC', 'a USING ~>~');
        END IF;
        PERFORM use_index(true);
        bad := scan_of(query);
        IF bad <> (CASE WHEN c ~ 'pad' THEN 'Index Scan' ELSE 'Index Only Scan' END) THEN
          RETURN format('%s: %s: %s', coltype, query, bad);
        END IF;
        EXECUTE format('CREATE TEMP TABLE by_index AS SELECT row_number() OVER () n, q.* FROM (%s) q', query);
        PERFORM use_index(false);
        EXECUTE format('CREATE TEMP TABLE by_sort AS SELECT row_number() OVER () n, q.* FROM (%s) q', query);
        SELECT count(*) INTO n FROM by_index i FULL JOIN by_sort s USING (n) WHERE i.a IS DISTINCT FROM s.a;
        IF n > 0 THEN RETURN format('%s: %s: %s rows out of order', coltype, query, n); END IF;
        SELECT count(*) INTO n FROM by_index i FULL JOIN k USING (id)
          WHERE k.id IS NULL OR i.n IS NULL OR NOT record_image_eq(ROW(i.a), ROW(k.a));
        IF n > 0 THEN RETURN format('%s: %s: %s values differ', coltype, query, n); END IF;
        DROP TABLE by_index, by_sort;
      END LOOP;
    END LOOP;
    DROP INDEX k_a;
  END LOOP;
  RETURN coltype || ' ok';
END $$;

SELECT check_keys('int2', '(random() * 65535 - 32768)::int::int2', '{int4,int8}');
SELECT check_keys('int4', '((random() - 0.5) * 2 ^ (random() * 32))::int4', '{int2,int8}', orders => '{ASC,DESC,ASC NULLS FIRST,DESC NULLS LAST}');
SELECT check_keys('int8', '((random() - 0.5) * 2 ^ (random() * 62))::int8', '{int2,int4}');
SELECT check_keys('oid', '(random() * 2 ^ (random() * 32))::int8::oid');
-- From 19 on.
SELECT CASE WHEN to_regtype('oid8') IS NULL THEN 'oid8 ok' ELSE check_keys('oid8', '(random() * 2 ^ (random() * 63))::int8::oid8') END;
SELECT check_keys('float4', '((random() - 0.5) * 10 ^ (random() * 60 - 30))::float4', '{float8}');
SELECT check_keys('float8', '(random() - 0.5) * 10 ^ (random() * 600 - 300)', '{float4}');
SELECT check_keys('numeric', 'round(((random() - 0.5) * 10 ^ (random() * 20 - 5))::numeric, (random() * 12)::int)', orders => '{ASC,DESC,ASC NULLS FIRST,DESC NULLS LAST}');
SELECT check_keys('numeric(12,2)', 'round(((random() - 0.5) * 10 ^ (random() * 6))::numeric, 1)', own => 'numeric(12,2)', orders => '{ASC,DESC}');
SELECT check_keys('bool', 'random() < 0.5');
SELECT check_keys('"char"', 'chr(32 + (random() * 90)::int)::"char"');
SELECT check_keys('date', '''2000-01-01''::date + ((random() - 0.5) * 10000)::int', '{timestamp,timestamptz}');
SELECT check_keys('time', '''00:00''::time + random() * interval ''1 day''');
SELECT check_keys('timetz', '(to_char(random() * interval ''23 hours'', ''HH24:MI:SS'') || (ARRAY[''+00'', ''+05:30'', ''-03'', ''+14''])[1 + g % 4])::timetz');
SELECT check_keys('timestamp', '''2024-03-31''::timestamp + (random() - 0.5) * interval ''300 days''', '{date,timestamptz}');
SELECT check_keys('timestamptz', '''2024-03-31''::timestamptz + (random() - 0.5) * interval ''300 days''', '{date,timestamp}');
SELECT check_keys('interval', 'make_interval(months => (random() * 3 - 1)::int, days => (random() * 60 - 30)::int, hours => (random() * 100 - 50)::int)');
SELECT check_keys('uuid', 'md5(random()::text)::uuid');
SELECT check_keys('bytea', 'decode(substr(md5(random()::text), 1, 2 * (g % 8)), ''hex'')');
SELECT check_keys('name', 'random_text(''abAB -é'', 6)::name', '{text}');
SELECT check_keys('text', 'random_text(''abAB -éß'', 8)', '{name}', orders => '{ASC,DESC,ASC NULLS FIRST,DESC NULLS LAST}');
SELECT check_keys('varchar(80)', 'random_text(''abAB -éß'', 8)', '{name}');
SELECT check_keys('char(64)', 'random_text(''abAB -éß'', 8)', own => 'bpchar');
SELECT check_keys('bpchar', 'random_text(''abAB -éß'', 8)');

-- A linguistic collation (where the machine has one) takes the comparison function's order.
DO $$
BEGIN
  CREATE COLLATION words (provider = libc, locale = 'en_US.UTF-8');
EXCEPTION WHEN OTHERS THEN
  CREATE COLLATION words (provider = libc, locale = 'C');
END $$;
SELECT check_keys('text COLLATE words', 'random_text(''abAB -éß'', 8)', '{name}', orders => '{ASC,DESC,ASC NULLS FIRST,DESC NULLS LAST}');
SELECT check_keys('varchar COLLATE words', 'random_text(''abAB -éß'', 8)', '{name}', orders => '{ASC,DESC}');
SELECT check_keys('name COLLATE words', 'random_text(''abAB -é'', 6)::name', '{text}');
SELECT check_keys('char(64) COLLATE words', 'random_text(''abAB -éß'', 8)', own => 'bpchar');
SELECT check_keys('text COLLATE "POSIX"', 'random_text(''abAB -éß'', 8)', '{name}', orders => '{ASC,DESC}');
SELECT check_keys('text COLLATE words', 'random_text(''abAB -éß'', 8)', opclass => 'varchar_ops', orders => '{DESC}');

-- Any other operator class: the comparison function decides, whatever the layout of the type.
CREATE TYPE mood AS ENUM ('sad', 'ok');
ALTER TYPE mood ADD VALUE 'better' BEFORE 'sad';
ALTER TYPE mood ADD VALUE 'odd' AFTER 'sad';
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN small AS int CHECK (VALUE < 1000);
INSERT INTO edges VALUES
  ('inet', '{0.0.0.0/0,0.0.0.0,10.0.0.0/8,10.0.0.1/8,255.255.255.255,::/0,::1,ffff::}'),
  ('macaddr', '{00:00:00:00:00:00,7f:00:00:00:00:00,80:00:00:00:00:00,ff:ff:ff:ff:ff:ff}'),
  ('money', '{-92233720368547758.08,-1,0,1,92233720368547758.07}'),
  ('cidr', '{0.0.0.0/0,10.0.0.0/8,10.0.0.0/16,10.0.0.1/32,::/0,::1/128,ffff::/16}'),
  ('macaddr8', '{00:00:00:00:00:00:00:00,7f:00:00:00:00:00:00:00,80:00:00:00:00:00:00:00,ff:ff:ff:ff:ff:ff:ff:ff}'),
  ('bit varying', '{"",0,00,1,10,01,11111111,111111110,1111111100000000}'),
  ('bit', '{000000000,000000001,100000000,111111111}'),
  ('pg_lsn', '{0/0,0/1,0/FFFFFFFF,1/0,FFFFFFFF/FFFFFFFF}'),
  ('xid8', '{0,1,4294967296,9223372036854775808,18446744073709551615}'),
  ('tid', '{"(0,0)","(0,1)","(0,65535)","(1,0)","(2147483648,1)","(4294967295,65535)"}'),
  ('oidvector', '{"","0","1","1 2","2","4294967295"}'),
  ('mood', '{sad,odd,ok,better}'),
  ('int4range', '{empty,"[1,5)","(,3)","[2,)","(,)","[1,6)"}'),
  ('nummultirange', '{"{}","{[1,2)}","{[1,2),[3,4)}","{(,1)}","{(,)}"}'),
  ('jsonb', '{"null","true","false","0","1.0","1.00","\"a\"","[]","[1]","[1, 2]","{}"}'),
  ('tsvector', '{"","a","a b","''b'':2 ''c'':1A"}'),
  ('tsquery', '{"","a","a & b","!a | b"}'),
  ('pair', '{"(1,a)","(1,)","(,a)","(,)","(2,b)"}'),
  ('small', '{-5,0,999}'),
  ('int4[]', '{"{}","{NULL}","{1}","{1,2}","{{1},{2}}","[0:1]={1,2}"}'),
  ('numeric[]', '{"{}","{NULL}","{1}","{1.0}","{1.00,2}","{1,2.0}","{{1},{2}}"}');
SELECT check_keys('inet', '''10.0.0.0''::inet + (random() * 1e6)::int');
SELECT check_keys('macaddr', 'substr(md5(random()::text), 1, 12)::macaddr');
SELECT check_keys('money', '((random() - 0.5) * 1e6)::numeric::money');
SELECT check_keys('numeric[]', 'ARRAY[round((random() * 3)::numeric, (random() * 3)::int), NULL]', opclass => 'array_order_ops');
SELECT check_keys('int4[]', 'ARRAY[(random() * 3)::int, (random() * 3)::int]', opclass => 'array_order_ops');
SELECT check_keys('cidr', 'network(set_masklen(''10.0.0.0''::inet + (random() * 1e8)::int, 8 + g % 24))', opclass => 'cidr_ops');
SELECT check_keys('cidr', 'network(set_masklen(''10.0.0.0''::inet + (random() * 1e8)::int, 8 + g % 24))');
SELECT check_keys('macaddr8', 'substr(md5(random()::text), 1, 16)::macaddr8');
SELECT check_keys('bit varying', 'substr((random() * 1e9)::int::bit(32)::text, 1, g % 33)::bit varying');
SELECT check_keys('bit(9)', '(random() * 511)::int::bit(9)', own => 'bit');
SELECT check_keys('pg_lsn', '''0/0''::pg_lsn + floor(random() * 1e12)::numeric');
SELECT check_keys('xid8', 'floor(random() * 1e12)::int8::text::xid8');
SELECT check_keys('tid', 'format(''(%s,%s)'', g % 50, g)::tid');
SELECT check_keys('oidvector', 'format(''%s %s'', g % 7, (random() * 9)::int)::oidvector');
SELECT check_keys('mood', '(ARRAY[''ok'', ''sad'', ''odd'', ''better''])[1 + g % 4]::mood');
SELECT check_keys('int4range', 'int4range(g % 9, 9 + (random() * 9)::int)');
SELECT check_keys('nummultirange', 'nummultirange(numrange(g % 9, 9 + (random() * 9)::numeric(9, 2)))');
SELECT check_keys('jsonb', '(ARRAY[to_jsonb(random()), to_jsonb(g), jsonb_build_array(g % 5), jsonb_build_object(''a'', g), to_jsonb(md5(g::text))])[1 + g % 5]');
SELECT check_keys('tsvector', 'to_tsvector(''simple'', random_text(''ab '', 9))');
SELECT check_keys('tsquery', 'plainto_tsquery(''simple'', random_text(''ab '', 9))');
SELECT check_keys('pair', 'ROW(nullif(g % 9, 5), random_text(''ab'', 4))::pair');
SELECT check_keys('small', '(random() * 900)::int');

-- Equal to each other, but not the same: each is found by the others.
CREATE TABLE e (a numeric[]);
INSERT INTO e VALUES ('{1.0}'), ('{1}'), ('{1.00}'), (NULL), ('{2}');
CREATE INDEX e_a ON e USING nitro (a array_order_ops DESC);
SELECT use_index(true);
SELECT scan_of('SELECT a FROM e WHERE a = ''{1}''');
SELECT array_agg(a::text ORDER BY a::text) FROM e WHERE a = '{1}';
SELECT array_agg(a::text ORDER BY a::text) FROM e WHERE a = '{1.0}';
SELECT array_agg(a::text ORDER BY a::text) FROM e WHERE a >= '{1.00}';
SELECT use_index(false);

-- Rows by their bytes: values that are equal and not the same are told apart.
CREATE TYPE image AS (n numeric, t text);
CREATE TABLE ri (id int, r image);
INSERT INTO ri SELECT g, CASE WHEN g % 10 > 0 THEN ROW(CASE WHEN g % 11 > 0 THEN round(g % 4, g % 3) END, 'x' || g % 3)::image END FROM generate_series(1, 300) g;
CREATE INDEX ri_r ON ri USING nitro (r record_image_ops, id);
SELECT use_index(true);
SELECT scan_of($$SELECT id FROM ri WHERE r *= ROW(1.0, 'x1')::image$$), scan_of($$SELECT id FROM ri ORDER BY r USING *<, id$$);
CREATE TEMP TABLE found_ri AS
  SELECT 1 q, id, 0 AS nth FROM ri WHERE r *= ROW(1.0, 'x1')::image UNION ALL SELECT 2, id, 0 FROM ri WHERE r *>= ROW(1.0, 'x1')::image
  UNION ALL SELECT 3, id, 0 FROM ri WHERE r *<= ROW(NULL, 'x0')::image UNION ALL (SELECT 4, id, row_number() OVER () FROM (SELECT id FROM ri ORDER BY r USING *<, id) x);
SELECT use_index(false);
SELECT q, count(*) > 0 AS some, count(*) FILTER (WHERE NOT both_) AS wrong FROM (
  SELECT q, id, nth, count(DISTINCT src) = 2 AS both_ FROM (
    SELECT 'index' AS src, q, id, nth FROM found_ri UNION ALL SELECT 'heap', 1, id, 0 FROM ri WHERE r *= ROW(1.0, 'x1')::image
    UNION ALL SELECT 'heap', 2, id, 0 FROM ri WHERE r *>= ROW(1.0, 'x1')::image UNION ALL SELECT 'heap', 3, id, 0 FROM ri WHERE r *<= ROW(NULL, 'x0')::image
    UNION ALL (SELECT 'heap', 4, id, row_number() OVER () FROM (SELECT id FROM ri ORDER BY r USING *<, id) x)) b GROUP BY q, id, nth) c GROUP BY q ORDER BY q;
SELECT count(*) FROM found_ri WHERE q = 1 AND id NOT IN (SELECT id FROM ri WHERE (r).n::text = '1.0' AND (r).t = 'x1');

-- Pattern operator classes compare bytes under every collation.
CREATE TABLE p (id serial, a text COLLATE words, b char(20) COLLATE words);
INSERT INTO p (a, b) SELECT x, x FROM generate_series(1, 500) g, LATERAL random_text('abAB -é' || left(g::text, 0), 6) x;
CREATE INDEX p_a ON p USING nitro (a text_pattern_ops, id);
CREATE INDEX p_b ON p USING nitro (b bpchar_pattern_ops DESC, id);
SELECT use_index(true);
SELECT scan_of($$SELECT count(*) FROM p WHERE a ~>=~ 'aB' AND a ~<~ 'aC'$$), scan_of($$SELECT count(*) FROM p WHERE b ~>~ 'b'$$);
CREATE TEMP TABLE found AS
  SELECT 1 q, id FROM p WHERE a ~>=~ 'aB' AND a ~<~ 'b' UNION ALL SELECT 2, id FROM p WHERE b ~>~ 'b'
  UNION ALL SELECT 3, id FROM p WHERE a = 'ab' UNION ALL SELECT 4, id FROM p WHERE b ~<=~ 'ab';
SELECT use_index(false);
SELECT q, count(*) > 0 AS some, count(*) FILTER (WHERE NOT hit) AS wrong FROM (
  SELECT 1 q, id, true hit FROM p WHERE a ~>=~ 'aB' AND a ~<~ 'b' UNION ALL SELECT 2, id, true FROM p WHERE b ~>~ 'b'
  UNION ALL SELECT 3, id, true FROM p WHERE a = 'ab' UNION ALL SELECT 4, id, true FROM p WHERE b ~<=~ 'ab'
  EXCEPT ALL SELECT q, id, true FROM found UNION ALL SELECT q, id, true FROM found) x GROUP BY q ORDER BY q;

-- Several columns: each with its own order, byte encodings beside comparison functions.
CREATE TABLE m (id int, i int, t text COLLATE words, n numeric, b char(8) COLLATE words, f float8, ts timestamptz, v interval, w interval);
INSERT INTO m SELECT g, nullif((random() * 6)::int, 6) - 3, nullif(random_text('abA ', 4), 'a'), nullif(round((random() * 3)::numeric, (random() * 2)::int), 1),
  random_text('ab', 3), (ARRAY['-0', '0', 'NaN', '1.5', '-inf'])[1 + g % 5]::float8,
  '2024-01-01'::timestamptz + (g % 9) * interval '1 day', (ARRAY['1 mon', '30 days', '720:00', '1 day'])[1 + g % 4]::interval,
  make_interval(hours => g)
  FROM generate_series(1, 2000) g;
ANALYZE m;
CREATE FUNCTION check_mix(cols text, conditions text[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE backward text; c text; query text; n bigint; names text := regexp_replace(cols, ' (ASC|DESC|NULLS|FIRST|LAST)', '', 'g');
BEGIN
  backward := replace(replace(replace(replace(cols, 'DESC', '!'), 'ASC', 'DESC'), '!', 'ASC'), 'FIRST', '!');
  backward := replace(replace(backward, 'LAST', 'FIRST'), '!', 'LAST');
  EXECUTE format('CREATE INDEX m_i ON m USING nitro (%s) INCLUDE (id, ts, w)', cols);
  FOREACH c IN ARRAY '{true}' || conditions LOOP
    FOREACH query IN ARRAY ARRAY[cols, backward] LOOP
      query := format('SELECT id, ts, w, %s FROM m WHERE %s ORDER BY %s', names, c, query);
      PERFORM use_index(true);
      IF scan_of(query) <> 'Index Only Scan' THEN RETURN format('%s: %s', query, scan_of(query)); END IF;
      EXECUTE 'CREATE TEMP TABLE by_index AS SELECT row_number() OVER () r, q.* FROM (' || query || ') q';
      PERFORM use_index(false);
      EXECUTE 'CREATE TEMP TABLE by_sort AS SELECT row_number() OVER () r, q.* FROM (' || query || ') q';
      EXECUTE format('SELECT count(*) FROM (SELECT r, %1$s FROM by_index) i FULL JOIN (SELECT r, %1$s FROM by_sort) s USING (r) WHERE ROW(i.*) IS DISTINCT FROM ROW(s.*)', names) INTO n;
      IF n > 0 THEN RETURN format('%s: %s rows out of order', query, n); END IF;
      EXECUTE format('SELECT count(*) FROM (SELECT id, ts, w, %1$s FROM by_index) x FULL JOIN (SELECT id, ts, w, %1$s FROM by_sort) y USING (id) WHERE x.id IS NULL OR y.id IS NULL OR NOT record_image_eq(ROW(x.*), ROW(y.*))', names) INTO n;
      IF n > 0 THEN RETURN format('%s: %s values differ', query, n); END IF;
      DROP TABLE by_index, by_sort;
    END LOOP;
  END LOOP;
  DROP INDEX m_i;
  RETURN cols || ' ok';
END $$;
SELECT check_mix('i ASC NULLS LAST, t ASC NULLS LAST', '{i = 1,i = 1 AND t >= ''ab'',i IS NULL AND t > ''A'',"i IN (-1, 1, 2) AND t = ''ab''",i > 0 AND t < ''b'',t = ''ab'',t IS NULL}');
SELECT check_mix('t DESC NULLS LAST, i ASC NULLS FIRST', '{t = ''ab'',t = ''ab'' AND i >= 1,t > ''ab'' AND i = 0,"t = ANY (''{a,ab,A}'') AND i < 2",i = 0}');
SELECT check_mix('n DESC NULLS FIRST, f ASC NULLS LAST', '{n = 1.5,n = 1.50 AND f > 0,n > 1 AND f = 0,f = ''NaN'',n IS NULL AND f = ''-0''}');
SELECT check_mix('n ASC NULLS FIRST, f DESC NULLS FIRST', '{n <= 1.5,n = 2 AND f >= 0}');
SELECT check_mix('b DESC NULLS FIRST, t ASC NULLS FIRST, n ASC NULLS LAST', '{b = ''ab'',b = ''ab'' AND t IS NULL,b > ''a'' AND n = 2}');
SELECT check_mix('b ASC NULLS LAST, i DESC NULLS FIRST', '{b = ''ab'' AND i > 0,i IS NULL}');
SELECT check_mix('v ASC NULLS LAST, n DESC NULLS LAST', '{v = ''30 days'',v = ''1 mon'' AND n > 1,v < ''1 mon''}');

-- Long values, compressed and out of line.
CREATE TABLE l (id int, a text, b bytea, c text COLLATE words);
INSERT INTO l SELECT g, repeat(md5(g::text), g * 3), decode(repeat('00', 30 * g), 'hex'), repeat('x', g * 50) || g FROM generate_series(1, 60) g;
CREATE INDEX l_a ON l USING nitro (a DESC);
CREATE INDEX l_b ON l USING nitro (b);
CREATE INDEX l_c ON l USING nitro (c);
SELECT use_index(true);
SELECT scan_of('SELECT a FROM l WHERE a = repeat(md5(''7''), 21)'), scan_of('SELECT b FROM l ORDER BY b');
SELECT (SELECT id FROM l WHERE a = repeat(md5('60'), 180)) AS a,
       (SELECT count(*) FROM l WHERE b > decode(repeat('00', 900), 'hex')) AS b,
       (SELECT id FROM l WHERE c = repeat('x', 3000) || 60) AS c,
       (SELECT md5(string_agg(b::text, ',')) FROM (SELECT b FROM l ORDER BY b) x)
         = (SELECT md5(string_agg(b::text, ',' ORDER BY id)) FROM l) AS same;
SELECT use_index(false);

-- Rows larger than an index tuple: for the executor and for the planner, which looks up ends of columns.
CREATE TABLE w (id int, a text, c char(100000));
INSERT INTO w SELECT g, (SELECT string_agg(md5(g::text || h), '') FROM generate_series(1, 320) h), g FROM generate_series(1, 200) g;
CREATE INDEX w_a ON w USING nitro (id, a);
CREATE INDEX w_c ON w USING nitro (c);
ANALYZE w;
SELECT scan_of('SELECT id, a FROM w WHERE id > 199'), scan_of('SELECT c FROM w WHERE c > ''9''');
SELECT use_index(true);
SELECT scan_of('SELECT id, a FROM w WHERE id > 199'), scan_of('SELECT c FROM w WHERE c > ''98''');
SELECT id, length(a) FROM w WHERE id > 198;
SELECT octet_length(c), trim(c) FROM w WHERE c > '98';
SELECT use_index(false);

-- A change of type that rewrites no table keeps the index: canonical bytes must not depend on it.
CREATE TABLE r (n numeric(10,2), b char(6));
INSERT INTO r VALUES (1.5, 'x'), (2, 'yy'), (2.25, 'zzzzzz');
CREATE INDEX r_n ON r USING nitro (n);
CREATE INDEX r_b ON r USING nitro (b);
ALTER TABLE r ALTER n TYPE numeric, ALTER b TYPE bpchar;
SELECT use_index(true);
SELECT n FROM r ORDER BY n;
SELECT octet_length(b) FROM r ORDER BY b;
SELECT use_index(false);

-- An index that is not supported is refused with a message.
BEGIN;
CREATE COLLATION loose FROM words;
UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'loose';
CREATE INDEX ON m USING nitro (i, (ARRAY[t]) COLLATE loose);
ROLLBACK;
CREATE TABLE geo (p point);
CREATE INDEX ON geo USING nitro (p);
DROP SCHEMA keys CASCADE;

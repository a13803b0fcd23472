-- Unique indexes, from 18 on: the rows that they let in and their messages, beside btree's.
SET client_min_messages = warning;
CREATE SCHEMA n;
CREATE SCHEMA b;
SELECT current_setting('server_version_num')::int < 180000 AS old \gset
\if :old
SET search_path = n, public;
CREATE TABLE t (k int);
CREATE UNIQUE INDEX t_k ON t USING nitro (k);
CREATE UNIQUE INDEX CONCURRENTLY t_k ON t USING nitro (k);
DROP SCHEMA n, b CASCADE;
\quit
\endif
-- Runs a statement in both schemas, with nitro and with btree for @: the outcome, which must be the same.
CREATE FUNCTION public.twins(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  s text; outcome text; outcomes text[] := '{}'; n bigint;
  code text; message text; detail text; tab text; con text; sch text;
BEGIN
  FOREACH s IN ARRAY ARRAY['n', 'b'] LOOP
    PERFORM set_config('search_path', s || ', public', true);
    BEGIN
      EXECUTE replace(statement, '@', CASE s WHEN 'n' THEN 'nitro' ELSE 'btree' END);
      GET DIAGNOSTICS n = ROW_COUNT;
      outcome := format('%s rows', n);
    EXCEPTION WHEN others THEN
      GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
        tab = TABLE_NAME, con = CONSTRAINT_NAME, sch = SCHEMA_NAME;
      outcome := format('%s %s | %s | %s %s %s', code, message, detail, CASE sch WHEN s THEN 'schema' ELSE sch END, tab, con);
    END;
    outcomes := outcomes || outcome;
  END LOOP;
  RETURN CASE WHEN outcomes[1] = outcomes[2] THEN '' ELSE 'DIFFERENT: ' END || outcomes[1] || CASE WHEN outcomes[1] = outcomes[2] THEN '' ELSE ' <> ' || outcomes[2] END;
END $$;
-- Whether the rows of a table are the same in both.
CREATE FUNCTION public.alike(tab text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE r text;
BEGIN
  EXECUTE format('SELECT CASE WHEN EXISTS ((SELECT * FROM n.%1$I EXCEPT ALL SELECT * FROM b.%1$I) UNION ALL (SELECT * FROM b.%1$I EXCEPT ALL SELECT * FROM n.%1$I))
    THEN ''DIFFERENT '' ELSE ''same '' END || (SELECT count(*) FROM n.%1$I)', tab) INTO r;
  RETURN r;
END $$;

-- One column.
SELECT twins('CREATE TABLE t (k int, v text) WITH (autovacuum_enabled = off)');
SELECT twins('CREATE UNIQUE INDEX t_k ON t USING @ (k)');
SELECT twins('INSERT INTO t SELECT i, ''a'' FROM generate_series(1, 1000) i');
SELECT twins('INSERT INTO t VALUES (500, ''b'')');
SELECT twins('INSERT INTO t VALUES (2000, ''b''), (2000, ''c'')');
SELECT twins('INSERT INTO t VALUES (NULL, ''b''), (NULL, ''c'')');
SELECT twins('UPDATE t SET k = 7 WHERE k = 8');
SELECT twins('UPDATE t SET k = 8 WHERE k = 8');
SELECT twins('UPDATE t SET v = ''hot'' WHERE k < 100');
SELECT twins('UPDATE t SET v = ''hot again'' WHERE k < 100');
SELECT twins('INSERT INTO t VALUES (50, ''b'')');
-- In one statement each row is looked at when it comes.
SELECT twins('UPDATE t SET k = k + 1 WHERE k IN (1, 2)');
SELECT twins('UPDATE t SET k = 3000 - k WHERE k BETWEEN 1 AND 20');
SELECT twins('DELETE FROM t WHERE k BETWEEN 100 AND 200');
SELECT twins('INSERT INTO t SELECT i, ''again'' FROM generate_series(100, 200) i');
SELECT twins('INSERT INTO t VALUES (150, ''b'')');
SELECT alike('t');
-- Transactions and subtransactions.
SET search_path = n, public;
BEGIN;
DELETE FROM t WHERE k = 300;
INSERT INTO t VALUES (300, 'mine');
SAVEPOINT a;
DELETE FROM t WHERE k = 300;
INSERT INTO t VALUES (300, 'inner');
INSERT INTO t VALUES (5000, 'inner');
ROLLBACK TO a;
INSERT INTO t VALUES (5000, 'outer');
SAVEPOINT a;
INSERT INTO t VALUES (300, 'too many');
ROLLBACK TO a;
INSERT INTO t VALUES (5001, 'last');
SELECT count(*) FROM pg_locks WHERE locktype = 'page';
COMMIT;
SELECT k, v FROM t WHERE k IN (300, 5000, 5001) ORDER BY k;
BEGIN;
INSERT INTO t VALUES (6000, 'gone');
ROLLBACK;
INSERT INTO t VALUES (6000, 'here');
-- One key again and again: dead entries do not stay in the way.
DO $$ BEGIN FOR i IN 1..300 LOOP DELETE FROM t WHERE k = 6000; INSERT INTO t VALUES (6000, i::text); END LOOP; END $$;
SELECT * FROM t WHERE k = 6000;
VACUUM t;
INSERT INTO t VALUES (6000, 'no');
SELECT nitro_verify('t_k', true) IS NOT NULL;

-- Kinds of indexes.
SELECT twins('CREATE TABLE m (a int, b text, c numeric, d timestamptz, e text COLLATE "C", p bool)');
SELECT twins('CREATE UNIQUE INDEX m_ab ON m USING @ (a DESC, b) INCLUDE (c)');
SELECT twins('CREATE UNIQUE INDEX m_c ON m USING @ (c) NULLS NOT DISTINCT');
SELECT twins('CREATE UNIQUE INDEX m_e ON m USING @ (lower(e)) WHERE p');
SELECT twins('INSERT INTO m VALUES (1, ''x'', 1.0, NULL, ''Key'', true)');
SELECT twins('INSERT INTO m VALUES (1, ''x'', 2, NULL, ''other'', true)');
SELECT twins('INSERT INTO m VALUES (1, ''X'', 1.000, NULL, ''other'', true)');
SELECT twins('INSERT INTO m VALUES (1, ''X'', 3, NULL, ''KEY'', true)');
SELECT twins('INSERT INTO m VALUES (1, ''X'', 3, NULL, ''KEY'', false)');
SELECT twins('INSERT INTO m VALUES (1, NULL, NULL, NULL, ''a'', true)');
SELECT twins('INSERT INTO m VALUES (1, NULL, NULL, NULL, ''b'', true)');
SELECT twins('INSERT INTO m VALUES (1, NULL, 4, NULL, ''b'', true)');
SELECT twins('UPDATE m SET p = true WHERE e = ''KEY''');
SELECT twins('UPDATE m SET e = ''quay'', p = true WHERE e = ''KEY''');
SELECT alike('m');
-- Values that are equal and not the same; orders without bytes.
CREATE TYPE public.pair AS (x int, y text);
SELECT twins('CREATE TABLE e (i int, f float8, iv interval, c char(5), j jsonb, ar int[], r pair, o oidvector)');
SELECT twins(format('CREATE UNIQUE INDEX e_%1$s ON e USING @ (%1$s)', c)) FROM unnest(ARRAY['f', 'iv', 'c', 'j', 'r', 'o']) c;
CREATE UNIQUE INDEX e_ar ON n.e USING nitro (ar array_order_ops);
CREATE UNIQUE INDEX e_ar ON b.e (ar);
SELECT twins(format('INSERT INTO e (i, %s) VALUES (%s, %s), (%s, %s)', c, 10 * n, a, 10 * n + 1, b))
FROM (VALUES (1, 'f', '0', 'float8 ''-0'''), (2, 'f', '''NaN''', 'float8 ''NaN'''), (3, 'iv', '''1 month''', '''30 days'''), (4, 'c', '''ab''', '''ab '''),
             (5, 'j', '''{"a": 1.0}''', '''{"a":1.00}'''), (6, 'ar', '''{1,2}''', '''[2:3]={1,2}'''), (7, 'ar', '''{1,2}''', '''{1,2}'''),
             (8, 'r', '(1, ''x'')', '(1, ''x'')'), (9, 'r', '(1, ''x'')', '(1, ''y'')'),
             (12, 'o', '''1 2''', '''1 2'''), (13, 'f', '1', '2')) v(n, c, a, b);
SELECT twins('UPDATE e SET r = (1, ''y''), f = 1 WHERE i = 130');
SELECT alike('e');
-- A constraint is a btree, deferrable or not. Beside it a unique index asks at once, as btree's does.
SELECT twins('CREATE TABLE later (k int, UNIQUE (k) DEFERRABLE INITIALLY DEFERRED)');
SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE relname = 'later_k_key' AND relnamespace = 'n'::regnamespace;
SELECT twins('INSERT INTO later SELECT generate_series(1, 100)');
SELECT twins('UPDATE later SET k = k + 1');
SELECT twins('CREATE UNIQUE INDEX later_k ON later USING @ (k)');
SELECT twins('UPDATE later SET k = k + 1');
SELECT twins('UPDATE later SET k = k + 1000');
SELECT twins('INSERT INTO later VALUES (1050)');
SELECT twins('DROP INDEX later_k');
SELECT twins('UPDATE later SET k = k + 1');
SELECT alike('later');
CREATE UNIQUE INDEX later_k ON n.later USING nitro (k);
ALTER TABLE n.later ADD CONSTRAINT later_again UNIQUE USING INDEX later_k DEFERRABLE;
DROP TABLE n.later, b.later;
-- Elements cannot be unique.
CREATE UNIQUE INDEX ON n.e USING nitro (ar);
CREATE UNIQUE INDEX ON n.e USING nitro (j jsonb_array_ops);

-- Builds: of the rows that live.
SELECT twins('CREATE TABLE d (k int, v text COLLATE "C") WITH (autovacuum_enabled = off)');
SELECT twins('INSERT INTO d SELECT i, i FROM generate_series(1, 2000) i');
SELECT twins('DELETE FROM d WHERE k % 2 = 0');
SELECT twins('INSERT INTO d SELECT i, i FROM generate_series(2, 2000, 2) i');
SELECT twins('UPDATE d SET v = v || ''!'' WHERE k % 10 = 0');
SELECT twins('CREATE UNIQUE INDEX d_k ON d USING @ (k)');
SELECT twins('CREATE UNIQUE INDEX d_bad ON d USING @ ((CASE k WHEN 7 THEN 8 ELSE k END))');
SELECT twins('CREATE UNIQUE INDEX d_part ON d USING @ (v, (k % 2 = 0), (NULL::int)) WHERE k < 10');
SELECT twins('INSERT INTO d VALUES (NULL, ''n''), (NULL, ''n'')');
SELECT twins('CREATE UNIQUE INDEX d_null ON d USING @ (k)');
SELECT twins('CREATE UNIQUE INDEX d_bad ON d USING @ (k) NULLS NOT DISTINCT');
SELECT twins('CREATE UNIQUE INDEX d_bad ON d USING @ ((md5(v)::uuid))');
-- Rows that this transaction has deleted do not count, those that it has inserted do.
BEGIN;
DELETE FROM n.d WHERE k IS NULL;
INSERT INTO n.d VALUES (NULL, 'n');
CREATE UNIQUE INDEX d_one ON n.d USING nitro (k) NULLS NOT DISTINCT;
INSERT INTO n.d VALUES (NULL, 'o');
ROLLBACK;
-- A change of all rows.
SELECT twins('ALTER TABLE d ALTER COLUMN k TYPE int8 USING CASE k WHEN 7 THEN 8 ELSE k END');
SELECT twins('ALTER TABLE d ALTER COLUMN k TYPE int8 USING k * 2');
SELECT twins('REINDEX INDEX d_k');
SELECT twins('INSERT INTO d VALUES (8, ''x'')');
SELECT twins('CLUSTER d USING d_k');
SELECT twins('INSERT INTO d VALUES (8, ''x'')');
SELECT twins('TRUNCATE d');
SELECT twins('INSERT INTO d VALUES (8, ''x'')');
SELECT twins('INSERT INTO d VALUES (8, ''y'')');
-- CONCURRENTLY.
SET search_path = n, public;
INSERT INTO d SELECT i, i % 50 FROM generate_series(100, 200) i;
CREATE UNIQUE INDEX CONCURRENTLY d_v ON d USING nitro (v);
SELECT indisvalid, indisready FROM pg_index WHERE indexrelid = 'd_v'::regclass;
DELETE FROM d WHERE k >= 150;
REINDEX INDEX CONCURRENTLY d_v;
SELECT indisvalid, indisready FROM pg_index WHERE indexrelid = 'd_v'::regclass;
INSERT INTO d VALUES (1000, '7');
REINDEX TABLE CONCURRENTLY d;
INSERT INTO d VALUES (1000, '7');

-- ON CONFLICT.
SELECT twins('INSERT INTO t VALUES (500, ''c'') ON CONFLICT DO NOTHING');
SELECT twins('INSERT INTO t VALUES (500, ''c'') ON CONFLICT (k) DO NOTHING');
SELECT twins('INSERT INTO t VALUES (500, ''c''), (7000, ''c'') ON CONFLICT (k) DO UPDATE SET v = excluded.v || t.v');
SELECT twins('INSERT INTO t VALUES (500, ''d''), (500, ''e'') ON CONFLICT (k) DO UPDATE SET v = excluded.v');
SELECT twins('INSERT INTO t VALUES (7001, ''d''), (7001, ''e'') ON CONFLICT (k) DO NOTHING');
SELECT twins('INSERT INTO t VALUES (NULL, ''d''), (NULL, ''e'') ON CONFLICT (k) DO NOTHING');
SELECT twins('INSERT INTO t SELECT i, ''up'' FROM generate_series(900, 1100) i ON CONFLICT (k) DO UPDATE SET v = ''up'' WHERE t.k % 2 = 0');
SELECT twins('INSERT INTO t VALUES (500, ''c'') ON CONFLICT ON CONSTRAINT t_k DO NOTHING');
SELECT twins('INSERT INTO m VALUES (9, ''x'', 1, NULL, ''key'', true) ON CONFLICT (lower(e)) WHERE p DO NOTHING');
SELECT twins('INSERT INTO m VALUES (9, ''x'', 1, NULL, ''keys'', true) ON CONFLICT (lower(e)) WHERE p DO NOTHING');
SELECT twins('INSERT INTO m VALUES (9, ''x'', NULL, NULL, ''keys'', true) ON CONFLICT (c) DO UPDATE SET b = ''null''');
SELECT twins('MERGE INTO t USING (VALUES (500), (8000)) s(k) ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = ''merged'' WHEN NOT MATCHED THEN INSERT VALUES (s.k, ''new'')');
-- (The test wrote rows with these keys to one of the two tables alone.)
DELETE FROM n.t WHERE k BETWEEN 5000 AND 6999 OR k = 300;
DELETE FROM b.t WHERE k BETWEEN 5000 AND 6999 OR k = 300;
SELECT alike('t'), alike('m');

-- Foreign keys.
SELECT twins('CREATE TABLE r (id int, k int REFERENCES t (k) ON DELETE CASCADE ON UPDATE CASCADE)');
SELECT twins('INSERT INTO r SELECT i, i FROM generate_series(400, 500) i');
SELECT twins('INSERT INTO r VALUES (1, 100000)');
SELECT twins('UPDATE t SET k = 90000 WHERE k = 450');
SELECT twins('DELETE FROM t WHERE k BETWEEN 400 AND 410');
SELECT twins('UPDATE r SET k = 100000 WHERE id = 450');
SELECT twins('DROP INDEX t_k');
SELECT alike('r');
SELECT twins('CREATE TABLE r2 (x int, y text, FOREIGN KEY (x, y) REFERENCES m (a, b))');
SELECT twins('INSERT INTO r2 VALUES (1, ''x'')');
SELECT twins('INSERT INTO r2 VALUES (1, ''z'')');
SELECT twins('DELETE FROM m');
SELECT twins('CREATE TABLE r3 (x int8 REFERENCES t (k))');
SELECT twins('INSERT INTO r3 VALUES (500), (5)');
SELECT twins('CREATE TABLE r4 (x text REFERENCES m (e))');

-- Partitioned tables.
SELECT twins('CREATE TABLE p (k int, v text) PARTITION BY RANGE (k)');
SELECT twins('CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100)');
SELECT twins('CREATE UNIQUE INDEX p_kv ON p USING @ (v, k)');
SELECT twins('CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (100) TO (200)');
SELECT twins('CREATE TABLE p3 (k int, v text)');
SELECT twins('INSERT INTO p3 VALUES (200, ''a''), (200, ''a'')');
SELECT twins('ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (200) TO (300)');
SELECT twins('DELETE FROM p3 WHERE ctid = ''(0,1)''');
SELECT twins('ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (200) TO (300)');
SELECT twins('INSERT INTO p SELECT i, ''a'' FROM generate_series(0, 199) i');
SELECT twins('INSERT INTO p VALUES (150, ''a'')');
SELECT twins('INSERT INTO p VALUES (150, ''b''), (150, ''a'') ON CONFLICT (k, v) DO NOTHING');
SELECT twins('UPDATE p SET k = 150 WHERE k = 50');
SELECT twins('UPDATE p SET k = 150, v = ''c'' WHERE k = 50');
SELECT twins('INSERT INTO p VALUES (200, ''a'')');
SELECT alike('p');

-- Constraints are btree's.
SET search_path = n, public;
CREATE TABLE c (k int, PRIMARY KEY (k) USING INDEX TABLESPACE pg_default);
SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE relname = 'c_pkey';
CREATE UNIQUE INDEX c_k ON c USING nitro (k);
ALTER TABLE c ADD CONSTRAINT c_unique UNIQUE USING INDEX c_k;
INSERT INTO c VALUES (1);
INSERT INTO c VALUES (1);
INSERT INTO c VALUES (1) ON CONFLICT (k) DO NOTHING;
-- Replica identity.
ALTER TABLE c REPLICA IDENTITY USING INDEX c_k;
SELECT relreplident FROM pg_class WHERE relname = 'c';
-- REFRESH MATERIALIZED VIEW CONCURRENTLY needs one.
CREATE MATERIALIZED VIEW mv AS SELECT k FROM c;
CREATE UNIQUE INDEX mv_k ON mv USING nitro (k);
INSERT INTO c VALUES (2);
REFRESH MATERIALIZED VIEW CONCURRENTLY mv;
SELECT * FROM mv ORDER BY k;
-- Without rights to the column there are no values in the message.
CREATE ROLE regress_nitro_unique;
GRANT USAGE ON SCHEMA n TO regress_nitro_unique;
GRANT INSERT ON c, t TO regress_nitro_unique;
SET ROLE regress_nitro_unique;
INSERT INTO t VALUES (500, 'x');
RESET ROLE;
DROP OWNED BY regress_nitro_unique; DROP ROLE regress_nitro_unique;
-- The planner knows.
SET enable_seqscan = off; SET enable_bitmapscan = off;
CREATE TABLE pl (k int, v int);
INSERT INTO pl SELECT i, i FROM generate_series(1, 1000) i;
CREATE UNIQUE INDEX pl_k ON pl USING nitro (k);
ANALYZE pl;
EXPLAIN (COSTS OFF) SELECT x.v FROM pl x LEFT JOIN pl y ON x.v = y.k;
CREATE FUNCTION public.estimate(query text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
  EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
  RETURN plan -> 0 -> 'Plan' ->> 'Plan Rows';
END $$;
SELECT estimate('SELECT * FROM pl WHERE k = 5');
-- From btree and back.
CREATE TABLE cv (k int, v text COLLATE "C");
INSERT INTO cv SELECT i, i FROM generate_series(1, 100) i;
CREATE UNIQUE INDEX cv_k ON cv (k DESC) INCLUDE (v) NULLS NOT DISTINCT WITH (fillfactor = 80) WHERE k <> 7;
SELECT replace(statement, 'cv_k'::regclass::oid::text, 'N'), obstacle FROM nitro_conversion('cv_k');
SELECT nitro_convert('cv_k');
SELECT pg_get_indexdef('cv_k'::regclass);
INSERT INTO cv VALUES (8, '');
SELECT nitro_convert('cv_k');
SELECT pg_get_indexdef('cv_k'::regclass);
-- Temporary and unlogged tables.
CREATE TEMP TABLE tmp (k int) ON COMMIT DELETE ROWS;
CREATE UNIQUE INDEX tmp_k ON tmp USING nitro (k);
BEGIN; INSERT INTO tmp VALUES (1); SAVEPOINT a; INSERT INTO tmp VALUES (1); ROLLBACK TO a; COMMIT;
BEGIN; INSERT INTO tmp VALUES (1); COMMIT;
CREATE UNLOGGED TABLE ul (k int);
CREATE UNIQUE INDEX ul_k ON ul USING nitro (k);
INSERT INTO ul VALUES (1);
INSERT INTO ul VALUES (1);
COPY ul FROM stdin;
2
3
2
\.
SELECT count(*) FROM ul;
-- An invalid index may have duplicates: VACUUM FULL does not complain of them, REINDEX does.
CREATE TABLE inv (k int);
INSERT INTO inv VALUES (1), (1), (2);
CREATE UNIQUE INDEX CONCURRENTLY inv_k ON inv USING nitro (k);
VACUUM FULL inv;
REINDEX INDEX inv_k;
DELETE FROM inv WHERE ctid = (SELECT min(ctid) FROM inv WHERE k = 1);
VACUUM FULL inv;
REINDEX INDEX inv_k;
INSERT INTO inv VALUES (2);
-- A serializable transaction learns of the conflict.
BEGIN ISOLATION LEVEL SERIALIZABLE; INSERT INTO ul VALUES (1); ROLLBACK;
-- A comparison function may not insert into a unique index: it could be about the very key that is being looked at.
CREATE TABLE w (k int);
CREATE UNIQUE INDEX w_k ON w USING nitro (k);
CREATE FUNCTION into_w(i int) RETURNS void LANGUAGE plpgsql AS $$ BEGIN INSERT INTO w VALUES (i); END $$;
CREATE FUNCTION compare_w(a int, b int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF current_setting('w.inserts', true) = 'yes' THEN PERFORM into_w(a); END IF;
  RETURN btint4cmp(a, b);
END $$;
CREATE OPERATOR CLASS w_ops FOR TYPE int USING nitro AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 compare_w(int, int);
CREATE TABLE x (k int);
CREATE INDEX x_k ON x USING nitro (k w_ops);
INSERT INTO x VALUES (1), (2), (3);
SET w.inserts = 'yes';
\set VERBOSITY sqlstate
INSERT INTO x VALUES (4);
\set VERBOSITY default
RESET w.inserts;
INSERT INTO x VALUES (4);
INSERT INTO w VALUES (4);
SELECT (SELECT array_agg(k ORDER BY k) FROM w) AS w, (SELECT array_agg(k ORDER BY k) FROM x) AS x;
SELECT indexrelid::regclass, nitro_verify(indexrelid, true) IS NOT NULL AS whole
FROM pg_index JOIN pg_class c ON c.oid = indexrelid JOIN pg_am a ON a.oid = c.relam
WHERE amname = 'nitro' AND c.relkind = 'i' AND indisunique AND c.relpersistence <> 't' ORDER BY 1::text;
SET client_min_messages = error;
DROP SCHEMA n, b CASCADE;
DROP FUNCTION twins, alike, estimate; DROP TYPE pair;

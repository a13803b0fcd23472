-- Several columns: every combination of ASC/DESC and NULLS FIRST/LAST, conditions that do not form a
-- prefix, NULL tests, arrays on any column, cursors that turn where a filter skips entries.
\set ECHO none
\i sql/same.inc
\set ECHO all
CREATE SCHEMA multicolumn;
SET client_min_messages = warning;
SET search_path = multicolumn, public;
CREATE TABLE t (a int, b int, c text, d int);
INSERT INTO t SELECT CASE WHEN i % 17 = 0 THEN NULL ELSE i % 10 END, CASE WHEN i % 13 = 0 THEN NULL ELSE i * 7919 % 50 END,
                     CASE WHEN i % 11 = 0 THEN NULL ELSE chr(97 + i % 5) || repeat('x', i % 3) END, i
FROM generate_series(1, 1500) i;
VACUUM ANALYZE t;

-- The same questions to every order of two columns. PostgreSQL plans ORDER BY as the index has it, and
-- its reverse.
CREATE FUNCTION questions(o1 text, o2 text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    r1 text := replace(replace(replace(replace(o1, 'ASC', '+'), 'DESC', 'ASC'), '+', 'DESC'), 'FIRST', '+');
    r2 text := replace(replace(replace(replace(o2, 'ASC', '+'), 'DESC', 'ASC'), '+', 'DESC'), 'FIRST', '+');
    q text;
    ways text[];
    way text;
BEGIN
    r1 := replace(replace(r1, 'LAST', 'FIRST'), '+', 'LAST');
    r2 := replace(replace(r2, 'LAST', 'FIRST'), '+', 'LAST');
    EXECUTE format('CREATE INDEX t_ab ON t USING nitro (a %s, b %s)', o1, o2);
    ways := ARRAY[format('ORDER BY a %s, b %s', o1, o2), format('ORDER BY a %s, b %s', r1, r2)];
    FOREACH way IN ARRAY ways LOOP
        RETURN NEXT way;
        FOREACH q IN ARRAY ARRAY['', 'WHERE a = 3', 'WHERE a IS NULL', 'WHERE a IS NOT NULL', 'WHERE b IS NULL', 'WHERE b IS NOT NULL',
            'WHERE a = 3 AND b = 21', 'WHERE a = 3 AND b > 21', 'WHERE a = 3 AND b <= 21', 'WHERE a = 3 AND b IS NULL',
            'WHERE a > 3', 'WHERE a <= 3 AND b = 21', 'WHERE a > 7 AND b IS NULL', 'WHERE a IS NULL AND b < 10',
            'WHERE a IS NULL AND b IS NULL', 'WHERE b = 21', 'WHERE b BETWEEN 5 AND 7', 'WHERE a >= 2 AND a < 5 AND b > 48',
            'WHERE a IN (7, 2, 2) AND b IN (3, 1, 40)', 'WHERE a > 5 AND b IN (3, 1, 40)', 'WHERE b IN (3, NULL, 40)',
            'WHERE a IS NOT NULL AND b IS NOT NULL', 'WHERE a < 100 AND b < 100', 'WHERE a = 3 AND b > 100', 'WHERE a > 100'] LOOP
            RETURN NEXT q || ': ' || same(format('SELECT a, b FROM t %s %s', q, way));
        END LOOP;
    END LOOP;
    FOREACH way IN ARRAY ways LOOP
        FOREACH q IN ARRAY ARRAY['WHERE a <= 3 AND b = 21', 'WHERE b BETWEEN 5 AND 7', 'WHERE b IS NULL', 'WHERE a > 7 AND b IS NOT NULL',
            'WHERE a = 3 AND b > 21', 'WHERE a IS NULL', 'WHERE a >= 2 AND a < 5 AND b > 48', 'WHERE b > 100'] LOOP
            RETURN NEXT q || ' to and fro: ' || walk(format('SELECT a, b FROM t %s %s', q, way), 10);
        END LOOP;
    END LOOP;
    DROP INDEX t_ab;
END $$;
SELECT questions('ASC NULLS LAST', 'ASC NULLS LAST');
SELECT questions('ASC NULLS FIRST', 'ASC NULLS LAST');
SELECT questions('DESC NULLS LAST', 'ASC NULLS FIRST');
SELECT questions('ASC NULLS LAST', 'DESC NULLS FIRST');
SELECT questions('DESC NULLS FIRST', 'DESC NULLS LAST');
SELECT questions('ASC NULLS FIRST', 'DESC NULLS LAST');

-- Three columns, one of them text of several lengths.
CREATE INDEX t_acb ON t USING nitro (a, c DESC, b NULLS FIRST);
CREATE FUNCTION three(q text) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT same(format('SELECT a, c, b FROM t %s ORDER BY a, c DESC, b NULLS FIRST', q))
    UNION ALL SELECT same(format('SELECT a, c, b FROM t %s ORDER BY a DESC, c, b DESC NULLS LAST', q))
    UNION ALL SELECT walk(format('SELECT a, c, b FROM t %s ORDER BY a, c DESC, b NULLS FIRST', q), 8)
    UNION ALL SELECT walk(format('SELECT a, c, b FROM t %s ORDER BY a DESC, c, b DESC NULLS LAST', q), 8);
$$;
SELECT three('WHERE a = 4 AND c = ''ex'' AND b > 10');
SELECT three('WHERE c = ''dxx''');
SELECT three('WHERE a > 7 AND c > ''c''');
SELECT three('WHERE c IS NULL AND b = 7');
SELECT three('WHERE a BETWEEN 2 AND 4 AND b IS NULL');
SELECT three('WHERE b = 7');
SELECT three('WHERE a < 5 AND c >= ''b'' AND c < ''c'' AND b BETWEEN 30 AND 33');
SELECT three('WHERE a = 4 AND c IN (''e'', ''exx'', ''zz'')');
SELECT three('WHERE a IN (4, 9) AND c IN (''exx'', ''e'') AND b < 25');
SELECT three('WHERE c < ''b''');
SELECT same('SELECT a, c, b FROM t WHERE a IN (SELECT 4 UNION ALL SELECT 5) AND c = ''ex''');
SELECT same('SELECT * FROM t WHERE a = 4 AND c = ''ex'' ORDER BY b, d');

-- Products of arrays: more combinations than entries.
SELECT same('SELECT a, c, b FROM t WHERE a = ANY (ARRAY(SELECT generate_series(-50, 50))) AND c = ANY (''{a,b,bx,cxx,q,r,s}'')
             AND b = ANY (ARRAY(SELECT generate_series(0, 100, 3)))');
-- Many columns.
CREATE TABLE w (a int, b int, c int, d int, e int, f int, g int, h int, i int, j int, k int, l int, m int, n int, o int, p int,
                q int, r int, s int, t int, u int, v int, w int, x int, y int, z int, aa int, bb int, cc int, dd int, ee int, ff int);
INSERT INTO w SELECT 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,i FROM generate_series(1, 500) i;
CREATE INDEX w_all ON w USING nitro (a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t,u,v,w,x,y,z,aa,bb,cc,dd,ee,ff);
VACUUM ANALYZE w;
SELECT same('SELECT ff FROM w WHERE a = 1 AND b = 1 AND ee = 1 AND ff BETWEEN 100 AND 300');
SELECT same('SELECT ff FROM w WHERE ff = 77');
DROP SCHEMA multicolumn CASCADE;

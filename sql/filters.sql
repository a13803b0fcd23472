-- Conditions on columns behind a range: entries of a batch are asked together. Answers by the index beside those by the table.
CREATE TABLE f (a int, s text COLLATE "C", b int, l text COLLATE "C", d bigint, n numeric, p boolean, r int4range);
CREATE FUNCTION h(i int, seed int) RETURNS int LANGUAGE sql AS $$ SELECT (hashint8extended(i, seed) & 2147483647)::int $$;
-- Half of the entries come from a build, half from inserts.
CREATE FUNCTION fill(first int) RETURNS void LANGUAGE sql AS $$
    INSERT INTO f SELECT h(i, 1) & 255, CASE WHEN i % 97 = 0 THEN NULL ELSE substr(md5(i::text), 1, i % 5) END,
        CASE WHEN i % 7 = 0 THEN NULL ELSE (h(i, 2) & 1023) - 300 END,
        CASE WHEN i % 11 = 0 THEN NULL ELSE repeat('x', i % 13) || (h(i, 3) & 31) END,
        CASE WHEN i % 5 = 0 THEN NULL ELSE ((h(i, 4) & 63)::bigint - 30) << (i % 56) END,
        CASE WHEN i % 9 = 0 THEN NULL ELSE (h(i, 5) & 63) / 4.0 END, CASE WHEN i % 3 > 0 THEN i % 3 = 1 END,
        CASE WHEN i % 13 > 0 THEN int4range(h(i, 6) & 15, 16 + i % 3) END
    FROM generate_series(first, 6000, 2) i $$;
SELECT fill(1);
CREATE INDEX ON f USING nitro (a, b);
CREATE INDEX ON f USING nitro (a DESC, b DESC NULLS LAST, d);
CREATE INDEX ON f USING nitro (s, b NULLS FIRST) INCLUDE (p);
CREATE INDEX ON f USING nitro (a, l DESC, b);
CREATE INDEX ON f USING nitro (a, d DESC NULLS LAST);
CREATE INDEX ON f USING nitro (a, n, p);
CREATE INDEX ON f USING nitro (s, r, d);
SELECT fill(2);
VACUUM ANALYZE f;

-- What a query gives, in order, and whether an index was asked.
CREATE FUNCTION answer(query text, by_index boolean, OUT rows text, OUT used boolean) LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
    PERFORM set_config(name, (by_index = (name LIKE '%index%'))::text, true) FROM unnest(ARRAY['enable_seqscan', 'enable_indexscan', 'enable_indexonlyscan']) name;
    PERFORM set_config('enable_bitmapscan', 'off', true);
    used := false;
    FOR line IN EXECUTE 'EXPLAIN ' || query LOOP used := used OR line LIKE '%Index%Scan%'; END LOOP;
    EXECUTE 'SELECT count(*) || '' '' || coalesce(md5(string_agg(x::text, '' '')), '''') FROM (' || query || ' OFFSET 0) x' INTO rows;
END $$;

CREATE FUNCTION differences(ranges text[], filters text[], columns text, OUT queries int, OUT without_index int, OUT different text) LANGUAGE plpgsql AS $$
DECLARE range text; filter text; direction text; query text; x record; y record;
BEGIN
    queries := 0; without_index := 0;
    FOREACH range IN ARRAY ranges LOOP FOREACH filter IN ARRAY filters LOOP FOREACH direction IN ARRAY ARRAY['ASC', 'DESC'] LOOP
        query := format('SELECT %s FROM f WHERE %s AND %s ORDER BY %s', columns, range, filter, replace(columns, ',', ' ' || direction || ',') || ' ' || direction);
        x := answer(query, true); y := answer(query, false);
        queries := queries + 1;
        IF NOT x.used THEN without_index := without_index + 1; END IF;
        IF x.rows <> y.rows THEN different := concat_ws('; ', different, query); END IF;
    END LOOP; END LOOP; END LOOP;
END $$;

-- Edges where integers get longer, of either sign; lists; NULL; several at once.
SELECT * FROM differences(ARRAY['a >= 0', 'a > 17 AND a < 200', 'a IS NOT NULL'], ARRAY['b < 700', 'b <= -1', 'b < -64', 'b <= -65', 'b > 63', 'b >= 64', 'b > 255', 'b >= 256',
    'b < 256', 'b <= 255', 'b = 5', 'b IS NULL', 'b IS NOT NULL', 'b IN (1, -200, 63, 64, 255, 256, 700)', 'b > 0 AND b < 10', 'b > 3000000000', 'b <> 5'], 'a, b');
SELECT * FROM differences(ARRAY['a >= 0', 'a < 100'], ARRAY['b < 100 AND d > 0', 'b > -64 AND d IS NULL', 'd = -1', 'd > 72057594037927935', 'd >= -9223372036854775807', 'd <= -72057594037927936',
    'b IN (1, 2, 3, 4, 5) AND d < 1000', 'd IN (0, 1, 1024, -1024)', 'b IS NULL AND d IS NULL'], 'a, b, d');
SELECT * FROM differences(ARRAY['s >= ''''', 's > ''1'' AND s < ''c''', 's IS NOT NULL'], ARRAY['b < 20', 'b IS NULL', 'b IN (1, 300, 600)', 'b >= 256', 'b > -65'], 's, b');
SELECT * FROM differences(ARRAY['a >= 0', 'a > 50'], ARRAY['l < ''x''', 'l >= ''xxx''', 'l > ''xxxxxx1''', 'l >= ''xxxxxxx1''', 'l < ''xxxxxxxxx2''', 'l = ''x5''', 'l IN (''1'', ''xxxxxxxxxxx7'')', 'l IS NULL',
    'l > ''x'' AND b < 0'], 'a, l, b');
SELECT * FROM differences(ARRAY['a >= 0'], ARRAY['d < 0', 'd > 1 << 20', 'd IS NULL', 'd BETWEEN -5 AND 5', 'd IN (0, 4, 9223372036854775807)'], 'a, d');
SELECT * FROM differences(ARRAY['a >= 0', 'a > 100'], ARRAY['n < 3.25', 'n > 3.25 AND p', 'n >= 0 AND NOT p', 'n IS NULL', 'p IS NULL', 'n IN (1, 2.5, 15.75)', 'p'], 'a, n, p');
-- Ranges are compared by their function, and the columns behind them by their bytes.
SELECT * FROM differences(ARRAY['s >= ''1'''], ARRAY['r < ''[5,17)''', 'r > ''[3,18)'' AND d > 0', 'r = ''[7,17)''', 'r IS NULL', 'd > 5', 'd IS NULL'], 's, r, d');
SELECT * FROM differences(ARRAY['(a, b) > (17, 5)', '(a, b) <= (100, 300)'], ARRAY['d > 0', 'd IS NULL'], 'a, b, d');

-- Cursors that turn round between entries that pass.
BEGIN;
SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off;
DECLARE c SCROLL CURSOR FOR SELECT a, b FROM f WHERE a >= 0 AND b > 715 ORDER BY a, b;
FETCH 3 FROM c; FETCH BACKWARD 2 FROM c; FETCH 4 FROM c;
MOVE FORWARD ALL FROM c; FETCH BACKWARD 3 FROM c; FETCH FORWARD 5 FROM c;
MOVE BACKWARD ALL FROM c; FETCH 2 FROM c;
COMMIT;
SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off;
SELECT a, b FROM f WHERE a >= 0 AND b > 715 ORDER BY a, b LIMIT 5;
SELECT a, b FROM f WHERE a >= 0 AND b > 715 ORDER BY a DESC, b DESC LIMIT 3;

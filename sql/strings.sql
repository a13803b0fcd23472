-- Strings under collations whose order is that of a library: text, char and name, long ones, those that the order
-- ignores, NULLs, both directions, built and inserted, against the heap. Collations that the server does not have
-- are left out.
\set ECHO none
\i sql/same.inc
\set ECHO all
SET client_min_messages = warning;
CREATE SCHEMA strings;
SET search_path = strings, public;
CREATE FUNCTION word(n int) RETURNS text LANGUAGE sql AS $$
    SELECT CASE WHEN n % 41 = 0 THEN NULL WHEN n % 43 = 0 THEN '' WHEN n % 47 = 0 THEN repeat('ä', n % 700) || n % 3
                WHEN n % 29 = 0 THEN repeat(E'\x01', 20) || chr(97 + n % 26) WHEN n % 19 = 0 THEN chr(128512 + n % 7)
                -- Unassigned: the C library calls them equal, and the bytes decide.
                WHEN n % 17 = 0 THEN chr((ARRAY[889, 898, 907, 1420, 1480])[1 + n % 5])
                WHEN n % 23 = 0 THEN 'a common beginning of them ' || n % 100
                ELSE (SELECT string_agg((ARRAY['a', 'A', 'á', 'Å', 'aa', 'b', 'c', 'ch', 'ß', 'ss', 'z', 'Z', 'ø', '-', ' ', '  ', '.', '''', '1', '9', '10',
                          E'\u0301', 'λ', 'Ж', '中', '😀', 'e', 'é', 'E'])[1 + abs(hashint8(n * 31 + i)) % 29], '' ORDER BY i) FROM generate_series(0, n % 9) i) END $$;

CREATE FUNCTION check_strings(locale text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    columns text := 't text COLLATE %1$I, b char(12) COLLATE %1$I, n name COLLATE %1$I';
    c text; w text; q text;
BEGIN
    EXECUTE format('CREATE TABLE s (id int, ' || columns || ')', locale);
    INSERT INTO s SELECT g, word(g), left(word(g + 1), 12), word(g + 2) FROM generate_series(1, 1500) g;
    CREATE INDEX ON s USING nitro (t, id);
    CREATE INDEX ON s USING nitro (t DESC NULLS LAST, id DESC);
    CREATE INDEX ON s USING nitro (b NULLS FIRST, id);
    CREATE INDEX ON s USING nitro (n DESC, t, id);
    CREATE INDEX ON s USING nitro (id, n);
    FOR part IN 1..2 LOOP
        ANALYZE s;
        FOREACH q IN ARRAY ARRAY['t, id', 't DESC, id DESC', 't DESC NULLS LAST, id DESC', 't NULLS FIRST, id', 'b NULLS FIRST, id', 'b DESC NULLS LAST, id DESC', 'n DESC, t, id'] LOOP
            PERFORM same('SELECT * FROM s ORDER BY ' || q);
        END LOOP;
        FOREACH c IN ARRAY ARRAY['t', 'b', 'n'] LOOP
            FOR i IN 1..40 LOOP
                w := coalesce(word(i * 37 + part), 'a');
                PERFORM same(format('SELECT id, %1$I FROM s WHERE %1$I ' || (ARRAY['= %2$L%4$s', '< %2$L%4$s', '>= %2$L%4$s', '> %2$L%4$s AND %1$I <= %3$L%4$s', 'IN (%2$L%4$s, %3$L%4$s)'])[1 + i % 5],
                                    c, left(w, 12 + i * 20), left(coalesce(word(i * 17), 'z'), 12),
                                    -- A name would bring a collation of its own.
                                    CASE c WHEN 'n' THEN '::text' END));
            END LOOP;
        END LOOP;
        -- Inserted strings are found by the same numbers as built ones.
        INSERT INTO s SELECT g, word(g), left(word(g + 1), 12), word(g + 2) FROM generate_series(1501, 2500) g;
        UPDATE s SET t = word(id + 7) WHERE id % 5 = 0;
        DELETE FROM s WHERE id % 7 = 0;
    END LOOP;
    PERFORM nitro_verify(indexrelid) FROM pg_index WHERE indrelid = 's'::regclass;
    DROP TABLE s;
END $$;

DO $$
DECLARE name text; checked int := 0;
BEGIN
    PERFORM check_strings('default');
    FOREACH name IN ARRAY ARRAY['libc:en_US.UTF-8', 'icu:en', 'icu:da', 'icu:de-u-co-phonebk', 'icu:und-u-kn-true', 'icu:und-u-ka-shifted'] LOOP
        BEGIN
            EXECUTE format('CREATE COLLATION words (provider = %s, locale = %L)', split_part(name, ':', 1), split_part(name, ':', 2));
        -- The provider or the locale does not exist.
        EXCEPTION WHEN feature_not_supported OR undefined_object OR invalid_parameter_value THEN
            CONTINUE;
        END;
        PERFORM check_strings('words');
        DROP COLLATION words;
        checked := checked + 1;
    END LOOP;
    IF checked = 0 THEN RAISE EXCEPTION 'no collation at all'; END IF;
END $$;

DROP SCHEMA strings CASCADE;

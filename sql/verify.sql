-- nitro_verify: sound indexes, refusals, and damage that it must see.
CREATE TABLE w (a int, b text, c numeric, d timestamp);
INSERT INTO w SELECT i % 500, 'b' || i, (i % 97) / 10.0, timestamp '2020-01-01' + i * interval '1 minute'
FROM generate_series(1, 3000) i;
INSERT INTO w SELECT NULL, NULL, NULL, NULL FROM generate_series(1, 10);
CREATE INDEX w_a ON w USING nitro (a);
CREATE INDEX w_ab ON w USING nitro (a DESC, b NULLS FIRST) INCLUDE (d);
CREATE INDEX w_c ON w USING nitro (c DESC NULLS LAST);
CREATE INDEX w_lower ON w USING nitro (lower(b), (a + 1)) WHERE a > 100;
CREATE INDEX w_empty ON w USING nitro (a) WHERE a < 0;
SELECT i, nitro_verify(i::regclass), nitro_verify(i::regclass, true)
FROM unnest(ARRAY['w_a', 'w_ab', 'w_c', 'w_lower', 'w_empty']) i;

-- After changes that leave dead rows, HOT chains and own uncommitted rows behind.
BEGIN;
DELETE FROM w WHERE a % 7 = 0;
UPDATE w SET a = a + 1 WHERE a % 11 = 0;
UPDATE w SET d = d + interval '1 day' WHERE a % 13 = 0;
SAVEPOINT s;
INSERT INTO w SELECT 1000 + i, 'undone', 0, NULL FROM generate_series(1, 50) i;
ROLLBACK TO s;
INSERT INTO w VALUES (2000, 'own', 1.50, NULL), (2000, 'own', 1.5, NULL);
SELECT i, nitro_verify(i::regclass, true) > 0 AS ok FROM unnest(ARRAY['w_a', 'w_ab', 'w_c', 'w_lower']) i;
COMMIT;
SELECT i, nitro_verify(i::regclass, true) > 0 AS ok FROM unnest(ARRAY['w_a', 'w_ab', 'w_c', 'w_lower']) i;
VACUUM w;
SELECT nitro_verify('w_a', true) = count(*) AS a, nitro_verify('w_ab', true) = count(*) AS ab,
       nitro_verify('w_lower', true) = count(*) FILTER (WHERE a > 100) AS lower
FROM w;

-- Refusals.
CREATE INDEX w_btree ON w (a);
\set VERBOSITY sqlstate
SELECT nitro_verify('w_btree');
SELECT nitro_verify('w');
SELECT nitro_verify('pg_class_oid_index');
SELECT nitro_verify(1);
\set VERBOSITY default
SELECT nitro_verify('w_btree');
SELECT nitro_verify('w');
SELECT nitro_verify(NULL);
CREATE ROLE regress_nitro_other;
SET ROLE regress_nitro_other;
SELECT nitro_verify('w_a');
RESET ROLE;
ALTER TABLE w OWNER TO regress_nitro_other;
GRANT CREATE ON SCHEMA public TO regress_nitro_other;
SET ROLE regress_nitro_other;
SELECT nitro_verify('w_a') > 0 AS owner;
RESET ROLE;

-- Index code runs as the owner of the table.
CREATE FUNCTION w_whoami(int) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
$$ BEGIN RAISE NOTICE 'running as %', coalesce(nullif(current_user, session_user), 'session_user'); RETURN current_user; END $$;
CREATE TABLE w_small AS SELECT 1 AS a;
CREATE INDEX w_small_who ON w_small USING nitro (w_whoami(a));
ALTER TABLE w_small OWNER TO regress_nitro_other;
TRUNCATE w_small;
SET ROLE regress_nitro_other;
INSERT INTO w_small VALUES (1);
RESET ROLE;
SELECT nitro_verify('w_small_who', true);
SELECT current_user = session_user AS restored;

-- Damage: an expression that is not what it says it is has changed since.
CREATE FUNCTION w_shift(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1; END';
CREATE TABLE w_lie AS SELECT i AS a FROM generate_series(1, 3) i;
CREATE INDEX w_lie_shift ON w_lie USING nitro (w_shift(a));
SELECT nitro_verify('w_lie_shift', true);
CREATE OR REPLACE FUNCTION w_shift(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 + 10; END';
SELECT nitro_verify('w_lie_shift');
SELECT nitro_verify('w_lie_shift', true);
\set VERBOSITY sqlstate
SELECT nitro_verify('w_lie_shift', true);
\set VERBOSITY default
REINDEX INDEX w_lie_shift;
SELECT nitro_verify('w_lie_shift', true);

-- Damage: an operator class whose comparison has changed its mind since.
CREATE FUNCTION w_cmp(int, int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN btint4cmp($1, $2); END';
CREATE OPERATOR CLASS w_ops FOR TYPE int USING nitro AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 w_cmp(int, int);
CREATE INDEX w_lie_order ON w_lie USING nitro (a w_ops);
SELECT nitro_verify('w_lie_order', true);
CREATE OR REPLACE FUNCTION w_cmp(int, int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN btint4cmp($2, $1); END';
\set VERBOSITY sqlstate
SELECT nitro_verify('w_lie_order');
\set VERBOSITY default

-- An invalid index is refused.
CREATE TABLE w_invalid (a int);
INSERT INTO w_invalid VALUES (0);
CREATE INDEX CONCURRENTLY w_invalid_i ON w_invalid USING nitro ((1 / a));
SELECT nitro_verify('w_invalid_i');

-- A partitioned index has nothing to verify, its parts have; the planner asks about both.
CREATE TABLE w_parted (a int) PARTITION BY RANGE (a);
CREATE TABLE w_part1 PARTITION OF w_parted FOR VALUES FROM (0) TO (100);
CREATE TABLE w_part2 PARTITION OF w_parted FOR VALUES FROM (100) TO (200);
CREATE INDEX w_parted_a ON w_parted USING nitro (a);
INSERT INTO w_parted SELECT generate_series(0, 199);
SELECT nitro_verify('w_parted_a');
SELECT nitro_verify('w_part1_a_idx', true), nitro_verify('w_part2_a_idx', true);
SET enable_seqscan = off;
SELECT min(a), max(a) FROM w_parted;
RESET enable_seqscan;

DROP TABLE w, w_small, w_lie, w_invalid, w_parted;
DROP OPERATOR FAMILY w_ops USING nitro CASCADE;
DROP FUNCTION w_whoami(int), w_shift(int), w_cmp(int, int);
REVOKE CREATE ON SCHEMA public FROM regress_nitro_other;
DROP ROLE regress_nitro_other;

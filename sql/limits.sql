-- The settings of memory that users may change, and the messages that they get.
SELECT name, setting, unit, context, vartype, min_val, max_val, enumvals FROM pg_settings
    WHERE name ~ '^nitro.max_.*_per_' OR name = 'nitro.when_full' ORDER BY name;
SET nitro.max_memory_per_owner = '1GB';
SET nitro.max_indexes_per_database = 1;
SET nitro.when_full = 'never';
CREATE ROLE regress_nitro_tenant;
GRANT CREATE ON SCHEMA public TO regress_nitro_tenant;
SET ROLE regress_nitro_tenant;
ALTER ROLE regress_nitro_tenant SET nitro.max_memory_per_owner = '1GB';
SET nitro.when_full = give_up_index;
RESET ROLE;
ALTER ROLE regress_nitro_tenant SET nitro.max_memory_per_owner = '3 parsecs';
ALTER ROLE regress_nitro_tenant SET nitro.max_memory_per_owner = '2MB';
ALTER ROLE regress_nitro_tenant SET nitro.max_indexes_per_owner = 2;

-- The storage parameter.
CREATE TABLE limits_t (i int, s text);
INSERT INTO limits_t SELECT i, md5(i::text) FROM generate_series(1, 10000) i;
CREATE INDEX limits_bad ON limits_t USING nitro (i) WITH (max_memory = 'much');
CREATE INDEX limits_bad ON limits_t USING nitro (i) WITH (max_memory = 0);
CREATE INDEX limits_bad ON limits_t USING nitro (i) WITH (max_memory = '10kB');
CREATE INDEX limits_bad ON limits_t USING nitro (i) WITH (max_memory = '300GB');
CREATE INDEX limits_bad ON limits_t USING nitro (i) WITH (max_memory = '');
CREATE INDEX limits_i ON limits_t USING nitro (i) WITH (fillfactor = 80, max_memory = '1MB');
\d+ limits_i
SELECT pg_get_indexdef('limits_i'::regclass);
\set VERBOSITY sqlstate
INSERT INTO limits_t SELECT i, '' FROM generate_series(1, 300000) i;
\set VERBOSITY terse
INSERT INTO limits_t SELECT i, '' FROM generate_series(1, 300000) i;
ALTER INDEX limits_i SET (max_memory = 64);
SELECT reloptions FROM pg_class WHERE relname = 'limits_i';
INSERT INTO limits_t SELECT i, '' FROM generate_series(1, 100000) i;
-- A limit below the size of the index: reads and VACUUM go on.
ALTER INDEX limits_i SET (max_memory = '1MB');
SET enable_seqscan = off;
SELECT count(*) FROM limits_t WHERE i BETWEEN 10 AND 19;
VACUUM limits_t;
SELECT nitro_verify('limits_i', true) = (SELECT count(*) FROM limits_t) AS whole;
ALTER INDEX limits_i RESET (max_memory);
INSERT INTO limits_t SELECT i, '' FROM generate_series(1, 100000) i;
DROP TABLE limits_t;

-- An owner's limits. Entries that wait would name the index that is drained first.
SET nitro.insert_memory = 0;
SET ROLE regress_nitro_tenant;
CREATE TABLE limits_t (i int, s text);
CREATE INDEX limits_i ON limits_t USING nitro (i);
INSERT INTO limits_t SELECT i, md5(i::text) FROM generate_series(1, 300000) i;
TRUNCATE limits_t;
INSERT INTO limits_t SELECT i, md5(i::text) FROM generate_series(1, 1000) i;
CREATE INDEX limits_s ON limits_t USING nitro (s);
CREATE INDEX limits_more ON limits_t USING nitro (s, i);
SELECT rolname, indexes, bytes BETWEEN 1 AND max_bytes AS fits, max_indexes, pg_size_pretty(max_bytes) FROM nitro_memory_by_owner;
RESET ROLE;
SELECT datname = current_database() AS here, max_indexes, max_bytes FROM nitro_memory_by_database WHERE datname = current_database();
INSERT INTO limits_t SELECT i, md5(i::text) FROM generate_series(1, 300000) i;
SET nitro.when_full = give_up_index;
INSERT INTO limits_t SELECT i, md5(i::text) FROM generate_series(1, 100000) i;
SELECT count(*) > 0 AS given_up FROM pg_stat_nitro_indexes WHERE relname = 'limits_t' AND given_up > 0;
SELECT count(*) FROM limits_t WHERE i = 1000;
RESET nitro.when_full;
DROP TABLE limits_t;
REVOKE CREATE ON SCHEMA public FROM regress_nitro_tenant;
DROP ROLE regress_nitro_tenant;
SELECT count(*) FROM nitro_memory_by_owner WHERE rolname IS NULL;

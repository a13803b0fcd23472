-- A table whose rows are in shards: a stand-in for the catalogue of Citus says so.
CREATE TABLE dist (a int, b text);
CREATE INDEX dist_a ON dist (a);
CREATE INDEX dist_nitro ON dist USING nitro (a);
CREATE TABLE dist_not (a int);
CREATE INDEX dist_not_a ON dist_not (a);
-- Only pg_catalog counts, in which no stranger makes tables.
CREATE TABLE public.pg_dist_partition AS SELECT 'dist'::regclass AS logicalrelid;
SELECT nitro_is_distributed('dist'), nitro_is_distributed('dist_not'), nitro_is_distributed(0), nitro_is_distributed(NULL);
DROP TABLE public.pg_dist_partition;
SET allow_system_table_mods = on;
SET client_min_messages = warning;
-- Nor does one that does not look like it.
CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid text);
INSERT INTO pg_catalog.pg_dist_partition VALUES ('dist');
SELECT nitro_is_distributed('dist');
DROP TABLE pg_catalog.pg_dist_partition;
CREATE VIEW pg_catalog.pg_dist_partition AS SELECT 'dist'::regclass AS logicalrelid;
SELECT nitro_is_distributed('dist');
DROP VIEW pg_catalog.pg_dist_partition;
CREATE TABLE pg_catalog.pg_dist_partition (partmethod "char", logicalrelid regclass);
INSERT INTO pg_catalog.pg_dist_partition VALUES ('h', 'dist');
SELECT nitro_is_distributed('dist'), nitro_is_distributed('dist_not');
SELECT nitro_estimate_size('dist', '{a}');
SELECT nitro_estimate_size('dist_a');
SELECT nitro_estimate_size('dist_nitro');
SELECT nitro_estimate_size('dist_not_a') > 0 AS estimated;
SELECT method, bytes, obstacle FROM nitro_conversion('dist_a');
SELECT index, method, gains, writes, scans, file_bytes, nitro_bytes, reason FROM nitro_advise() WHERE index = 'dist_a'::regclass;
SELECT gains, writes, nitro_bytes > 0 AS nitro_bytes FROM nitro_advise() WHERE index = 'dist_not_a'::regclass;
-- Citus refuses a tablespace.
SELECT index, (nitro_conversion(index)).statement LIKE '%TABLESPACE%' AS tablespace FROM unnest('{dist_a,dist_not_a}'::regclass[]) index;
SELECT nitro_convert('dist_a');
DROP TABLE pg_catalog.pg_dist_partition;
RESET allow_system_table_mods;
SELECT nitro_is_distributed('dist');
DROP TABLE dist, dist_not;

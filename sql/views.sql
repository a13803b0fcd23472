-- pg_stat_nitro_indexes and nitro_memory.
CREATE TABLE v (a int, b text);
INSERT INTO v SELECT i, 'text ' || i FROM generate_series(1, 1000) i;
-- The session of the test before may still be dropping its temporary tables, whose indexes would be counted.
DO $$
BEGIN
    FOR i IN 1 .. 600 LOOP
        EXIT WHEN NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid());
        PERFORM pg_sleep(0.1), pg_stat_clear_snapshot();
    END LOOP;
END
$$;
SELECT used AS before, indexes AS indexes_before FROM nitro_memory \gset
CREATE INDEX v_a ON v USING nitro (a);
CREATE INDEX v_b ON v USING nitro (b) WHERE a <= 10;

SELECT schemaname, relname, indexrelname, relid = 'v'::regclass AS relid, indexrelid = indexrelname::regclass AS indexrelid,
       state, entries, dead_entries, bytes > 0 AS bytes, free_bytes > 0 AS free_bytes, leaf_blocks > 0 AS leaf_blocks, inner_blocks > 0 AS inner_blocks,
       top_blocks >= 0 AS top_blocks, term > 0 AS term, snapshots, oldest_snapshot, oldest_snapshot_holder,
       garbage_blocks >= 0 AS garbage_blocks, dirty_blocks >= 0 AS dirty_blocks, scans, builder_pid, heap_blocks_walked, build_ms >= 0 AS build_ms
FROM pg_stat_nitro_indexes WHERE relname = 'v' ORDER BY indexrelname \gx

-- Scans are counted, entries follow writes.
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT a FROM v WHERE a = 500;
SELECT count(*) FROM v WHERE a < 10;
RESET enable_seqscan;
RESET enable_bitmapscan;
INSERT INTO v SELECT i, 'more' FROM generate_series(1001, 1010) i;
SELECT indexrelname, entries, scans FROM pg_stat_nitro_indexes WHERE relname = 'v' ORDER BY 1;

-- The area.
SELECT CASE current_setting('nitro.max_memory') WHEN '-1' THEN total BETWEEN 16 << 20 AND reserved ELSE total = pg_size_bytes(current_setting('nitro.max_memory')) END AS total,
       used > :before AS used, used + free + overhead = total AS sums_up, largest_free BETWEEN 1 AND free AS largest_free,
       indexes - :indexes_before AS indexes, max_indexes = current_setting('nitro.max_indexes')::bigint AS max_indexes,
       barrier_session >= barrier_oldest_session AS sessions, processes_inside >= 0 AS processes_inside
FROM nitro_memory;

-- The memory of the area is that of the indexes, and the free part of it is not in use.
SELECT used = (SELECT sum(bytes) FROM nitro_memory_by_database) AS by_database,
       (SELECT sum(bytes) FROM nitro_memory_by_database WHERE datname = current_database()) = (SELECT sum(bytes) FROM pg_stat_nitro_indexes) AS by_index,
       (SELECT bool_and(free_bytes > 0 AND free_bytes < bytes) FROM pg_stat_nitro_indexes WHERE relname = 'v') AS free
FROM nitro_memory;
SELECT bytes - free_bytes AS in_use FROM pg_stat_nitro_indexes WHERE indexrelname = 'v_a' \gset
INSERT INTO v SELECT i, 'more' FROM generate_series(1, 20000) i;
SELECT bytes - free_bytes > 2 * :in_use AS more_in_use FROM pg_stat_nitro_indexes WHERE indexrelname = 'v_a';
DELETE FROM v WHERE a > 10 AND b = 'more';
VACUUM v;
SELECT bytes - free_bytes < 2 * :in_use AS less_in_use, free_bytes > 0 AND free_bytes < bytes AS free FROM pg_stat_nitro_indexes WHERE indexrelname = 'v_a';

SELECT nitro_relation_size('v') = (SELECT sum(bytes) FROM pg_stat_nitro_indexes WHERE relname = 'v') AS of_the_table,
       nitro_relation_size('v_a') = (SELECT bytes FROM pg_stat_nitro_indexes WHERE indexrelname = 'v_a') AS of_the_index,
       nitro_relation_size('v_a') > pg_relation_size('v_a') AS more_than_its_file, nitro_relation_size('pg_class') AS of_another, nitro_relation_size(NULL) AS of_none;
SELECT a.state, a.entries = s.entries AS entries, a.bytes = s.bytes AS bytes, a.free_bytes = s.free_bytes AS free_bytes, a.scans = s.scans AS scans, datname = current_database() AS here
FROM nitro_indexes_all a JOIN pg_stat_nitro_indexes s USING (indexrelid, indexrelname) WHERE indexrelname = 'v_a';

-- The counts, and their reset. (Images: tests/images_made.sh.)
SELECT indexrelname, builds, loads, given_up, refused, images, images_failed, stats_reset FROM pg_stat_nitro_indexes WHERE relname = 'v' ORDER BY 1;
SELECT a.builds = s.builds AS builds, a.images = s.images AS images, a.refused = s.refused AS refused FROM nitro_indexes_all a JOIN pg_stat_nitro_indexes s USING (indexrelid, indexrelname) WHERE indexrelname = 'v_a';
SELECT nitro_stat_reset();
SELECT builds, images, scans, stats_reset BETWEEN now() - interval '1 minute' AND now() AS just_now FROM pg_stat_nitro_indexes WHERE indexrelname = 'v_a';
REINDEX INDEX v_a;
SELECT builds, images, scans, stats_reset FROM pg_stat_nitro_indexes WHERE indexrelname = 'v_a';
SELECT event, waited_ms >= 0 AS waited, stats_reset IS NOT NULL AS reset FROM nitro_waits ORDER BY event COLLATE "C";

-- Every role may look.
CREATE ROLE regress_nitro_viewer;
SET ROLE regress_nitro_viewer;
SELECT count(*) FROM pg_stat_nitro_indexes WHERE relname = 'v';
SELECT count(*) FROM nitro_memory;
SELECT datname = current_database() AS here FROM nitro_memory_by_database;
SELECT count(*) > 0 AS some FROM nitro_indexes_all WHERE datname = current_database();
SELECT nitro_relation_size('v') > 0 AS size;
SELECT count(*) FROM nitro_waits;
SELECT nitro_stat_reset();
RESET ROLE;
DROP ROLE regress_nitro_viewer;

-- All memory comes back.
DROP TABLE v;
SELECT count(*) FROM pg_stat_nitro_indexes WHERE relname = 'v';
SELECT used - :before AS not_returned, indexes - :indexes_before AS indexes FROM nitro_memory;

-- Part of the install script, whose statements have no OR REPLACE, and of the update scripts.

-- Monitoring: every role may read these views, as with pg_stat_all_indexes. (Views cannot be
-- created in pg_catalog, so the extension lives in the schema that CREATE EXTENSION names.)

CREATE OR REPLACE FUNCTION @extschema@.nitro_index_stats(
    OUT indexrelid oid,
    OUT state text,
    OUT entries bigint,
    OUT dead_entries bigint,
    OUT bytes bigint,
    OUT free_bytes bigint,
    OUT leaf_blocks bigint,
    OUT inner_blocks bigint,
    OUT top_blocks bigint,
    OUT term bigint,
    OUT snapshots bigint,
    OUT oldest_snapshot bigint,
    OUT oldest_snapshot_holder integer,
    OUT garbage_blocks bigint,
    OUT dirty_blocks bigint,
    OUT scans bigint,
    OUT builds bigint,
    OUT loads bigint,
    OUT given_up bigint,
    OUT refused bigint,
    OUT images bigint,
    OUT images_failed bigint,
    OUT stats_reset timestamptz,
    OUT builder_pid integer,
    OUT heap_blocks_walked bigint,
    OUT build_ms bigint,
    OUT image_lsn bigint,
    OUT image_time timestamptz,
    OUT image_entries bigint,
    OUT image_bytes bigint,
    OUT progress_pid integer,
    OUT progress_command text,
    OUT progress_total bigint,
    OUT progress_done bigint,
    OUT progress_bytes bigint,
    OUT max_bytes bigint,
    OUT alarm_percent integer,
    OUT reflects_lsn pg_lsn,
    OUT reverse_bytes bigint)
    RETURNS SETOF record
    LANGUAGE c STRICT VOLATILE PARALLEL RESTRICTED ROWS 100
    AS 'MODULE_PATHNAME', 'nitro_index_stats_wrapper';
COMMENT ON FUNCTION @extschema@.nitro_index_stats() IS 'state of the nitro indexes of the current database';

-- A function, because Citus leaves the shards out of whatever reads pg_class by SQL.
CREATE OR REPLACE FUNCTION @extschema@.nitro_index_names(
    OUT indexrelid oid,
    OUT relid oid,
    OUT schemaname name,
    OUT relname name,
    OUT indexrelname name,
    OUT elsewhere boolean)
    RETURNS SETOF record
    LANGUAGE c STRICT VOLATILE PARALLEL RESTRICTED ROWS 100
    AS 'MODULE_PATHNAME', 'nitro_index_names_wrapper';
COMMENT ON FUNCTION @extschema@.nitro_index_names() IS 'the nitro indexes of the current database and their tables';

CREATE OR REPLACE VIEW @extschema@.pg_stat_nitro_indexes AS
    SELECT n.relid,
           coalesce(s.indexrelid, n.indexrelid) AS indexrelid,
           n.schemaname,
           n.relname,
           n.indexrelname,
           CASE WHEN n.elsewhere AND coalesce(s.state, 'unbuilt'::text) IN ('unbuilt'::text, 'standby'::text) THEN 'elsewhere'::text
                ELSE coalesce(s.state, CASE WHEN pg_is_in_recovery() THEN 'standby'::text ELSE 'unbuilt'::text END) END AS state,
           s.entries,
           s.dead_entries,
           s.bytes,
           s.free_bytes,
           s.leaf_blocks,
           s.inner_blocks,
           s.top_blocks,
           s.term,
           s.snapshots,
           s.oldest_snapshot,
           s.oldest_snapshot_holder,
           s.garbage_blocks,
           s.dirty_blocks,
           coalesce(s.scans, 0) AS scans,
           coalesce(s.builds, 0) AS builds,
           coalesce(s.loads, 0) AS loads,
           coalesce(s.given_up, 0) AS given_up,
           coalesce(s.refused, 0) AS refused,
           coalesce(s.images, 0) AS images,
           coalesce(s.images_failed, 0) AS images_failed,
           s.stats_reset,
           s.builder_pid,
           s.heap_blocks_walked,
           s.build_ms,
           '0/0'::pg_lsn + s.image_lsn::numeric AS image_lsn,
           s.image_time,
           s.image_entries,
           s.image_bytes,
           s.max_bytes,
           s.alarm_percent,
           s.reflects_lsn,
           s.reverse_bytes
    FROM @extschema@.nitro_index_stats() s FULL JOIN @extschema@.nitro_index_names() n ON n.indexrelid = s.indexrelid;
COMMENT ON VIEW @extschema@.pg_stat_nitro_indexes IS 'nitro indexes of the current database';
GRANT SELECT ON @extschema@.pg_stat_nitro_indexes TO PUBLIC;

CREATE OR REPLACE VIEW @extschema@.pg_stat_progress_nitro AS
    SELECT s.progress_pid AS pid,
           current_database() AS datname,
           i.indrelid AS relid,
           s.indexrelid AS index_relid,
           s.progress_command AS command,
           s.progress_total AS entries_total,
           s.progress_done AS entries_done,
           s.progress_bytes AS bytes_written
    FROM @extschema@.nitro_index_stats() s
         LEFT JOIN pg_index i ON i.indexrelid = s.indexrelid
    WHERE s.progress_pid IS NOT NULL;
COMMENT ON VIEW @extschema@.pg_stat_progress_nitro IS 'images of nitro indexes that are being written or read now';
GRANT SELECT ON @extschema@.pg_stat_progress_nitro TO PUBLIC;

CREATE OR REPLACE FUNCTION @extschema@.nitro_follower_stats(
    OUT datid oid,
    OUT pid integer,
    OUT decoded_lsn pg_lsn,
    OUT reflects_lsn pg_lsn,
    OUT lag_bytes bigint,
    OUT lag_ms bigint,
    OUT records bigint,
    OUT rows bigint,
    OUT blocks bigint,
    OUT removed bigint,
    OUT waits bigint,
    OUT waited_ms bigint,
    OUT refused_locks bigint,
    OUT stats_reset timestamptz)
    RETURNS SETOF record
    LANGUAGE c STRICT VOLATILE PARALLEL RESTRICTED ROWS 10
    AS 'MODULE_PATHNAME', 'nitro_follower_stats_wrapper';
COMMENT ON FUNCTION @extschema@.nitro_follower_stats() IS 'progress of the followers of this standby';

CREATE OR REPLACE VIEW @extschema@.pg_stat_nitro_followers AS
    SELECT s.datid, d.datname, s.pid, s.decoded_lsn, s.reflects_lsn, s.lag_bytes, s.lag_ms, s.records, s.rows,
           s.blocks, s.removed, s.waits, s.waited_ms, s.refused_locks, s.stats_reset
    FROM @extschema@.nitro_follower_stats() s LEFT JOIN pg_database d ON d.oid = s.datid;
COMMENT ON VIEW @extschema@.pg_stat_nitro_followers IS 'progress of the followers of this standby';
GRANT SELECT ON @extschema@.pg_stat_nitro_followers TO PUBLIC;

CREATE OR REPLACE FUNCTION @extschema@.nitro_memory_stats(
    OUT total bigint,
    OUT used bigint,
    OUT free bigint,
    OUT largest_free bigint,
    OUT overhead bigint,
    OUT indexes bigint,
    OUT max_indexes bigint,
    OUT barrier_session bigint,
    OUT barrier_oldest_session bigint,
    OUT processes_inside bigint,
    OUT committed bigint,
    OUT reserved bigint,
    OUT alarm_percent integer)
    RETURNS SETOF record
    LANGUAGE c STRICT VOLATILE PARALLEL RESTRICTED ROWS 1
    AS 'MODULE_PATHNAME', 'nitro_memory_stats_wrapper';
COMMENT ON FUNCTION @extschema@.nitro_memory_stats() IS 'use of the shared memory of all nitro indexes';

CREATE OR REPLACE VIEW @extschema@.nitro_memory AS SELECT * FROM @extschema@.nitro_memory_stats();
COMMENT ON VIEW @extschema@.nitro_memory IS 'use of the shared memory of all nitro indexes';
GRANT SELECT ON @extschema@.nitro_memory TO PUBLIC;

CREATE OR REPLACE FUNCTION @extschema@.nitro_database_stats(
    OUT datid oid,
    OUT indexes bigint,
    OUT bytes bigint,
    OUT max_indexes bigint,
    OUT max_bytes bigint,
    OUT alarm_percent integer)
    RETURNS SETOF record
    LANGUAGE c STRICT VOLATILE PARALLEL RESTRICTED ROWS 10
    AS 'MODULE_PATHNAME', 'nitro_database_stats_wrapper';
COMMENT ON FUNCTION @extschema@.nitro_database_stats() IS 'shared memory that the nitro indexes of each database hold';

CREATE OR REPLACE VIEW @extschema@.nitro_memory_by_database AS
    SELECT s.datid, d.datname, s.indexes, s.bytes, s.max_indexes, s.max_bytes, s.alarm_percent
    FROM @extschema@.nitro_database_stats() s LEFT JOIN pg_database d ON d.oid = s.datid;
COMMENT ON VIEW @extschema@.nitro_memory_by_database IS 'shared memory that the nitro indexes of each database hold, and may hold';
GRANT SELECT ON @extschema@.nitro_memory_by_database TO PUBLIC;

CREATE OR REPLACE FUNCTION @extschema@.nitro_owner_stats(
    OUT roleid oid,
    OUT indexes bigint,
    OUT bytes bigint,
    OUT max_indexes bigint,
    OUT max_bytes bigint,
    OUT alarm_percent integer)
    RETURNS SETOF record
    LANGUAGE c STRICT VOLATILE PARALLEL RESTRICTED ROWS 10
    AS 'MODULE_PATHNAME', 'nitro_owner_stats_wrapper';
COMMENT ON FUNCTION @extschema@.nitro_owner_stats() IS 'shared memory that the nitro indexes of each owner hold';

CREATE OR REPLACE VIEW @extschema@.nitro_memory_by_owner AS
    SELECT s.roleid, r.rolname, s.indexes, s.bytes, s.max_indexes, s.max_bytes, s.alarm_percent
    FROM @extschema@.nitro_owner_stats() s LEFT JOIN pg_roles r ON r.oid = s.roleid;
COMMENT ON VIEW @extschema@.nitro_memory_by_owner IS 'shared memory that the nitro indexes of each owner hold, and may hold';
GRANT SELECT ON @extschema@.nitro_memory_by_owner TO PUBLIC;

CREATE OR REPLACE FUNCTION @extschema@.nitro_all_index_stats(
    OUT datid oid,
    OUT indexrelid oid,
    OUT state text,
    OUT entries bigint,
    OUT bytes bigint,
    OUT free_bytes bigint,
    OUT scans bigint,
    OUT builds bigint,
    OUT loads bigint,
    OUT given_up bigint,
    OUT refused bigint,
    OUT images bigint,
    OUT images_failed bigint,
    OUT stats_reset timestamptz,
    OUT max_bytes bigint,
    OUT alarm_percent integer)
    RETURNS SETOF record
    LANGUAGE c STRICT VOLATILE PARALLEL RESTRICTED ROWS 100
    AS 'MODULE_PATHNAME', 'nitro_all_index_stats_wrapper';
COMMENT ON FUNCTION @extschema@.nitro_all_index_stats() IS 'state of the nitro indexes of all databases';

CREATE OR REPLACE VIEW @extschema@.nitro_indexes_all AS
    SELECT s.datid, d.datname, s.indexrelid, n.indexrelname,
           CASE WHEN n.elsewhere AND s.state IN ('unbuilt'::text, 'standby'::text) THEN 'elsewhere'::text ELSE s.state END AS state, s.entries, s.bytes, s.free_bytes, s.scans,
           s.builds, s.loads, s.given_up, s.refused, s.images, s.images_failed, s.stats_reset, s.max_bytes,
           s.alarm_percent
    FROM @extschema@.nitro_all_index_stats() s
         LEFT JOIN pg_database d ON d.oid = s.datid
         LEFT JOIN @extschema@.nitro_index_names() n ON n.indexrelid = s.indexrelid AND d.datname = current_database();
COMMENT ON VIEW @extschema@.nitro_indexes_all IS 'nitro indexes of all databases that the server has met since it started';
GRANT SELECT ON @extschema@.nitro_indexes_all TO PUBLIC;

CREATE OR REPLACE FUNCTION @extschema@.nitro_wait_stats(
    OUT event text,
    OUT waited_ms bigint,
    OUT stats_reset timestamptz)
    RETURNS SETOF record
    LANGUAGE c STRICT VOLATILE PARALLEL RESTRICTED ROWS 7
    AS 'MODULE_PATHNAME', 'nitro_wait_stats_wrapper';
COMMENT ON FUNCTION @extschema@.nitro_wait_stats() IS 'time that processes have waited for nitro, by wait event';

-- Keeper and followers have nothing to do then.
CREATE OR REPLACE VIEW @extschema@.nitro_waits AS SELECT * FROM @extschema@.nitro_wait_stats() WHERE event <> 'NitroKeeperMain'::text AND event <> 'NitroFollowerMain'::text;
COMMENT ON VIEW @extschema@.nitro_waits IS 'time that processes have waited for nitro, by wait event';
GRANT SELECT ON @extschema@.nitro_waits TO PUBLIC;

CREATE OR REPLACE FUNCTION @extschema@.nitro_slot_stats(
    OUT state text,
    OUT restart_lsn bigint,
    OUT wal_bytes bigint,
    OUT copy_dropped timestamptz)
    RETURNS SETOF record
    LANGUAGE c STRICT VOLATILE PARALLEL RESTRICTED ROWS 1
    AS 'MODULE_PATHNAME', 'nitro_slot_stats_wrapper';
COMMENT ON FUNCTION @extschema@.nitro_slot_stats() IS 'replication slot nitro: its state, and the WAL that it keeps';

CREATE OR REPLACE VIEW @extschema@.nitro_slot AS
    SELECT s.state, '0/0'::pg_lsn + s.restart_lsn::numeric AS restart_lsn, s.wal_bytes, s.copy_dropped
    FROM @extschema@.nitro_slot_stats() s;
COMMENT ON VIEW @extschema@.nitro_slot IS 'replication slot nitro: its state, and the WAL that it keeps';
GRANT SELECT ON @extschema@.nitro_slot TO PUBLIC;

-- As pg_stat_reset(): for a superuser, and for a role that has been granted the right.
CREATE OR REPLACE FUNCTION @extschema@.nitro_stat_reset() RETURNS void
    LANGUAGE c STRICT VOLATILE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', 'nitro_stat_reset_wrapper';
COMMENT ON FUNCTION @extschema@.nitro_stat_reset() IS 'sets the counts of the nitro indexes of the current database, and the waits of the server, to zero';
REVOKE ALL ON FUNCTION @extschema@.nitro_stat_reset() FROM PUBLIC;

-- What the WAL says about rows. As pg_walinspect's functions: for a superuser, and members of pg_read_server_files.
CREATE OR REPLACE FUNCTION @extschema@.nitro_feed(
    start_lsn pg_lsn,
    end_lsn pg_lsn DEFAULT NULL,
    OUT lsn pg_lsn,
    OUT tablespace oid,
    OUT relfilenode oid,
    OUT block bigint,
    OUT action text,
    OUT line_pointer integer)
    RETURNS SETOF record
    LANGUAGE c VOLATILE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', 'nitro_feed_wrapper';
COMMENT ON FUNCTION @extschema@.nitro_feed(pg_lsn, pg_lsn) IS 'rows and blocks of the current database that the WAL names, as a follower reads them';
REVOKE ALL ON FUNCTION @extschema@.nitro_feed(pg_lsn, pg_lsn) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION @extschema@.nitro_feed(pg_lsn, pg_lsn) TO pg_read_server_files;

CREATE OR REPLACE FUNCTION @extschema@.nitro_relation_size(relation regclass) RETURNS bigint LANGUAGE sql STRICT VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
    SELECT coalesce(sum(s.bytes + coalesce(s.reverse_bytes, 0)), 0::numeric)::bigint
    FROM @extschema@.nitro_index_stats() s LEFT JOIN pg_index i ON i.indexrelid = s.indexrelid
    WHERE relation::oid IN (s.indexrelid, i.indrelid);
END;
COMMENT ON FUNCTION @extschema@.nitro_relation_size(regclass) IS 'shared memory of a nitro index, or of all nitro indexes of a table';

-- Planning: for roles that may read the columns, as pg_stats.

CREATE OR REPLACE FUNCTION @extschema@.nitro_estimate_size(index_or_table regclass, columns text[] DEFAULT NULL) RETURNS bigint
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', 'nitro_estimate_size_wrapper';
COMMENT ON FUNCTION @extschema@.nitro_estimate_size(regclass, text[]) IS 'estimated size of a nitro index in bytes';

-- Checking: the function itself asks for ownership of the table.

CREATE OR REPLACE FUNCTION @extschema@.nitro_verify(index regclass, heapallindexed boolean DEFAULT false) RETURNS bigint
    LANGUAGE c STRICT VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'nitro_verify_wrapper';
COMMENT ON FUNCTION @extschema@.nitro_verify(regclass, boolean) IS 'checks a nitro index, and returns the number of its entries';

-- Images: the function makes those of tables that the caller owns, or refuses.

CREATE OR REPLACE FUNCTION @extschema@.nitro_backup(index regclass DEFAULT NULL) RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'nitro_backup_wrapper';
COMMENT ON FUNCTION @extschema@.nitro_backup(regclass) IS 'makes an image of a nitro index, or of all nitro indexes, and returns the number of images';

-- Health checks, for members of pg_monitor.

CREATE OR REPLACE FUNCTION @extschema@.nitro_ready() RETURNS boolean
    LANGUAGE c STRICT VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'nitro_ready_wrapper';
COMMENT ON FUNCTION @extschema@.nitro_ready() IS 'whether plans can use all nitro indexes of the current database now';
REVOKE ALL ON FUNCTION @extschema@.nitro_ready() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION @extschema@.nitro_ready() TO pg_monitor;

CREATE OR REPLACE FUNCTION @extschema@.nitro_ready_for_promotion(compare boolean DEFAULT false) RETURNS boolean
    LANGUAGE c STRICT VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'nitro_ready_for_promotion_wrapper';
COMMENT ON FUNCTION @extschema@.nitro_ready_for_promotion(boolean) IS 'whether this standby could load all nitro indexes of the current database after a promotion';
REVOKE ALL ON FUNCTION @extschema@.nitro_ready_for_promotion(boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION @extschema@.nitro_ready_for_promotion(boolean) TO pg_monitor;

-- Read your writes on a standby. A procedure gives its snapshot up, as WAIT FOR LSN of PostgreSQL 19 does.

CREATE OR REPLACE PROCEDURE @extschema@.nitro_wait_for(lsn pg_lsn, timeout interval DEFAULT NULL)
    LANGUAGE c
    AS 'MODULE_PATHNAME', 'nitro_wait_for_wrapper';
COMMENT ON PROCEDURE @extschema@.nitro_wait_for(pg_lsn, interval) IS 'waits until this server has replayed the WAL up to a position';

CREATE OR REPLACE FUNCTION @extschema@.nitro_verify_images(index regclass) RETURNS bigint
    LANGUAGE c STRICT VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'nitro_verify_images_wrapper';
COMMENT ON FUNCTION @extschema@.nitro_verify_images(regclass) IS 'compares all images of a nitro index with the index, and returns the number of images';

\echo Use "CREATE EXTENSION nitro" to load this file. \quit

-- Names are found in pg_catalog alone. Strangers may create objects in the extension's schema. The
-- server takes an operator or function that matches better from any schema of the path. This script
-- writes the extension's schema before each object that it makes or uses there.
SET LOCAL search_path = pg_catalog, pg_temp;

CREATE FUNCTION @extschema@.nitro_handler(internal) RETURNS index_am_handler
    LANGUAGE c STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'nitro_handler_wrapper';

CREATE ACCESS METHOD nitro TYPE INDEX HANDLER @extschema@.nitro_handler;
COMMENT ON ACCESS METHOD nitro IS 'in-memory MVCC skiplist index access method';

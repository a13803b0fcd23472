\echo Use "CREATE EXTENSION nitro" to load this file. \quit

-- Names are found in pg_catalog alone: a stranger may create objects in the schema of the extension, and an operator or
-- function whose arguments match better is taken from whatever schema of the path it is in. What this script makes and
-- uses in the schema of the extension is named with it.
SET LOCAL search_path = pg_catalog, pg_temp;

CREATE FUNCTION @extschema@.nitro_handler(internal) RETURNS index_am_handler
    LANGUAGE c STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'nitro_handler_wrapper';

CREATE ACCESS METHOD nitro TYPE INDEX HANDLER @extschema@.nitro_handler;
COMMENT ON ACCESS METHOD nitro IS 'in-memory MVCC skiplist index access method';

\echo Use "CREATE EXTENSION nitro" to load this file. \quit

CREATE FUNCTION nitro_handler(internal) RETURNS index_am_handler
    LANGUAGE c STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'nitro_handler_wrapper';

CREATE ACCESS METHOD nitro TYPE INDEX HANDLER nitro_handler;
COMMENT ON ACCESS METHOD nitro IS 'in-memory MVCC skiplist index access method';

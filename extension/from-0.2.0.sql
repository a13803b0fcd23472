-- From 0.2.0. What CREATE OR REPLACE cannot replace: functions with other arguments or columns now.
DROP FUNCTION @extschema@.nitro_mirror_opclass(oid), @extschema@.nitro_adopt_opclass(text), @extschema@.nitro_twin(regclass, boolean);
DROP FUNCTION @extschema@.nitro_relation_size(regclass), @extschema@.nitro_index_stats(), @extschema@.nitro_all_index_stats(),
    @extschema@.nitro_memory_stats(), @extschema@.nitro_database_stats(), @extschema@.nitro_owner_stats();

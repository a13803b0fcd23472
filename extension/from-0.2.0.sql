-- From 0.2.0. What CREATE OR REPLACE cannot replace: functions with other arguments or columns now.
DROP FUNCTION @extschema@.nitro_mirror_opclass(oid), @extschema@.nitro_adopt_opclass(text), @extschema@.nitro_twin(regclass, boolean);


#!/usr/bin/env bash
# The rights of an index' code where nitro calls it by itself: always those of the table's owner. An
# operator class of a superuser has a comparison function that another role may replace.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"
new_server -c "nitro.backup_rate = 0"
sql "CREATE EXTENSION pageinspect"
sql "CREATE ROLE alice LOGIN; CREATE SCHEMA a AUTHORIZATION alice"
sql "SET ROLE alice; CREATE FUNCTION a.cmp(a int, b int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN sign(a::bigint - b); END'"
sql "CREATE OPERATOR CLASS a.spied FOR TYPE int USING nitro AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 a.cmp(int, int)"
# Enough rows for an image of two parts. The image looks for the place where the second part begins.
sql "SET ROLE alice; CREATE TABLE a.t (k int); INSERT INTO a.t SELECT generate_series(1, 40000); CREATE INDEX t_nitro ON a.t USING nitro (k a.spied)"
imaged a.t_nitro
# Reports once in a session.
sql "SET ROLE alice; CREATE OR REPLACE FUNCTION a.cmp(a int, b int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS \$\$
     BEGIN
       IF current_user <> 'alice' AND coalesce(current_setting('spy.said', true), '') = '' THEN
         RAISE LOG 'spy: as %', current_user;
         PERFORM set_config('spy.said', 'yes', false);
       END IF;
       RETURN sign(a::bigint - b);
     END \$\$"
# Every place needs a change since the last image.
one_more() { PGUSER=alice sql "INSERT INTO a.t SELECT count(*) + 40001 FROM a.t"; }

by_a_superuser() { one_more; backup a.t_nitro; }
at_a_checkpoint() { one_more; checkpointed a.t_nitro; }
catching_up() { one_more; crash; start; built a.t_nitro; }
rebuilding() { crash; rm -rf "$(data)/pg_nitro"; start; sql "SELECT nitro_verify('a.t_nitro', false)" > /dev/null; }
checking() { sql "SELECT nitro_verify('a.t_nitro', true)" > /dev/null; }

for place in by_a_superuser at_a_checkpoint catching_up rebuilding checking; do
    note "$place"
    from=$(log_end)
    $place
    assert_eq "$place: not as the owner" "$(logged 'spy: ' "$from")" 0
    mechanism owner
    from=$(log_end)
    $place
    # Images are made without comparisons.
    case $place in
        by_a_superuser | at_a_checkpoint) assert_eq "$place: compares nothing" "$(logged 'spy: ' "$from")" 0 ;;
        *) [ "$(logged 'spy: as postgres' "$from")" -gt 0 ] || fail "$place: the comparison function was not called" ;;
    esac
    mechanism none
done

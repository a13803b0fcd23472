#!/usr/bin/env bash
# Functions of an index that are marked immutable and are not. A random family of them does the following:
# - query their own table, check and image their own index, make and drop other indexes
# - write, lock, raise, catch, sleep, leave cursors open, call themselves
# They run wherever nitro calls code of an index: CREATE INDEX, INSERT, catching up, rebuilding, checking, images,
# VACUUM. Other sessions run beside them, with cancels in between. Statements may fail. The server may not fail, no
# answer may be wrong afterwards, no rights may leak and no memory may get lost.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"
note "seed $NITRO_SEED"
new_server -c "nitro.backup_rate = 0" -c "deadlock_timeout = 100ms" -c "max_stack_depth = 1MB"
sql "CREATE EXTENSION pageinspect"
sql "CREATE ROLE alice LOGIN; CREATE ROLE secret; CREATE SCHEMA a AUTHORIZATION alice; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO alice"
sql "CREATE SCHEMA s AUTHORIZATION secret; SET ROLE secret; CREATE TABLE s.t AS SELECT 'secret ' || i AS v, i FROM generate_series(1, 500) i; CREATE INDEX secret_nitro ON s.t USING nitro (v)"
alice() { PGUSER=alice sql "SET search_path = a, public; $*"; }
# A statement that may fail, but must not lose the server.
tries() {
    local s=0
    PGUSER=${as:-alice} PGOPTIONS="-c search_path=a,public -c statement_timeout=${timeout:-10s}" "${PSQL[@]}" -p "$(port)" -v ON_ERROR_STOP=1 -c "$1" \
        >> "$NITRO_TMP/out" 2>> "$NITRO_TMP/errors" || s=$?
    [ $s -le 1 ] || [ $s = 3 ] || fail "the server is gone after: $1"
}
# A value that no index has.
lost() { sql "SELECT (SELECT used FROM nitro_memory) - (SELECT sum(bytes) FROM pg_stat_nitro_indexes)"; }

# The actions of a hostile function. @t is its table, @i its index.
actions=(
    "PERFORM count(*) FROM @t WHERE k > 10"
    "PERFORM count(*) FROM @t WHERE f_@t(k) BETWEEN 3 AND 30"
    "PERFORM f_@t(k) FROM @t ORDER BY f_@t(k) DESC LIMIT 5"
    "PERFORM nitro_verify('@i'::regclass, true)"
    "PERFORM nitro_verify('@i'::regclass, false)"
    "PERFORM nitro_backup('@i'::regclass)"
    "PERFORM nitro_backup()"
    "PERFORM count(*) FROM pg_stat_nitro_indexes"
    "PERFORM pg_sleep(0.005)"
    "RAISE EXCEPTION 'bad luck'"
    "RAISE division_by_zero"
    "PERFORM 1 / (k - k)"
    "FOR r IN SELECT k AS x FROM @t WHERE f_@t(k) > 5 LOOP EXIT; END LOOP"
    "c := NULL; OPEN c FOR SELECT k FROM @t WHERE f_@t(k) > 5 ORDER BY f_@t(k); FETCH c INTO r"
    "DROP TABLE IF EXISTS x_@t; CREATE TABLE x_@t AS SELECT g FROM generate_series(1, 300) g; CREATE INDEX ON x_@t USING nitro (g); PERFORM count(*) FROM x_@t WHERE g < 9"
    "DROP TABLE IF EXISTS x_@t"
    "CREATE TEMP TABLE y AS SELECT g FROM generate_series(1, 300) g; CREATE INDEX ON y USING nitro (g); DROP TABLE y"
    "INSERT INTO side SELECT g FROM generate_series(1, 50) g"
    "DELETE FROM side WHERE k % 2 = 0"
    "INSERT INTO @t SELECT 1000"
    "DELETE FROM @t WHERE k = 1"
    "DROP INDEX @i"
    "REINDEX INDEX @i"
    "TRUNCATE @t"
    "ALTER TABLE @t ADD COLUMN z int"
    "CREATE INDEX ON @t USING nitro (k)"
    "LOCK TABLE @t IN SHARE MODE"
    "LOCK TABLE side IN ACCESS EXCLUSIVE MODE"
    "PERFORM set_config('enable_seqscan', 'off', false)"
    "PERFORM set_config('maintenance_work_mem', '64kB', false)"
    "PERFORM deep(1)"
    "RETURN f_@t(k)"
    "PERFORM v FROM s.t WHERE v > 's'"
)
sql "SET ROLE alice; CREATE FUNCTION a.deep(i int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN a.deep(i + 1); END'"

# Sets `body`: some actions, on some rows, each caught or not, and at most two inside one another.
hostile_body() {
    local n action
    body="IF current_user <> 'alice' THEN RAISE LOG 'leaked: as %', current_user; END IF;
          IF k % 97 = 3 AND coalesce(nullif(current_setting('a.depth', true), ''), '0')::int < 2 THEN
          PERFORM set_config('a.depth', (coalesce(nullif(current_setting('a.depth', true), ''), '0')::int + 1)::text, true);"
    random 3; n=$((REPLY + 1))
    while ((n-- > 0)); do
        random ${#actions[@]}; action="${actions[REPLY]};"
        random 4
        [ "$REPLY" = 0 ] || action="BEGIN $action EXCEPTION WHEN OTHERS THEN NULL; END;"
        body+=" $action"
    done
    body+=" PERFORM set_config('a.depth', '0', true); END IF; RETURN k;"
    body=${body//@t/$1}; body=${body//@i/${1}_nitro}
}
# An expression, a predicate, and a comparison function of an operator class.
columns() {
    case $1 in
        e) echo "(f_e(k))" ;;
        p) echo "(k) WHERE f_p(k) > 0" ;;
        o) echo "(k o_ops)" ;;
    esac
}
install() { # TABLE BODY
    PGUSER=alice sql "CREATE OR REPLACE FUNCTION a.f_$1(k int) RETURNS int IMMUTABLE LANGUAGE plpgsql SET search_path = a, public AS \$\$ DECLARE r record; c refcursor; BEGIN $2 END \$\$"
}
tables="e p o"

attack() {
    local t before=$1
    for t in $tables; do
        hostile_body $t; install $t "$body"
        note "$t: $(tr -s ' \n' ' ' <<< "${body#*true);}" | sed 's/ PERFORM set_config(.a.depth.*//')"
        tries "INSERT INTO $t SELECT generate_series(1, 400)"
        timeout=300ms tries "CREATE INDEX ${t}_nitro ON $t USING nitro $(columns $t)"
        tries "CREATE INDEX ${t}_nitro ON $t USING nitro $(columns $t)"
        tries "INSERT INTO $t SELECT generate_series(401, 500)"
        # Never a missing index: the hostile function is tried on a good index, too.
        [ "$(sql "SELECT to_regclass('a.${t}_nitro') IS NULL")" = f ] ||
            { install $t "RETURN k;"; alice "CREATE INDEX ${t}_nitro ON $t USING nitro $(columns $t)"; install $t "$body"; }
        tries "SELECT nitro_backup('${t}_nitro')"
        as=postgres tries "SELECT nitro_backup()"
        tries "INSERT INTO $t SELECT generate_series(501, 560)"
    done
    as=postgres tries "CHECKPOINT"
    crash; start
    for t in $tables; do
        timeout=100ms tries "SELECT count(*) FROM $t WHERE f_$t(k) > 7" &
        # Its scan would compare with the rights of its user, as a scan of a btree does.
        as=postgres tries "EXPLAIN SELECT count(*) FROM a.$t WHERE k > 7" &
        tries "VACUUM $t" &
    done
    wait $(jobs -p)
    for t in $tables; do
        timeout=200ms tries "SELECT nitro_verify('${t}_nitro', true)"
        as=postgres tries "SELECT nitro_verify('a.${t}_nitro', true)"
        as=postgres tries "DELETE FROM a.$t WHERE k % 7 = 2"; as=postgres tries "VACUUM (INDEX_CLEANUP on) a.$t"
        tries "REINDEX INDEX ${t}_nitro"
    done
    assert_eq "code of an index that ran as another role" "$(logged 'leaked: ')" 0
    # With functions that are really immutable everything is right again.
    for t in $tables; do
        install $t "RETURN k;"
        alice "DELETE FROM $t WHERE k IS NULL; INSERT INTO $t SELECT generate_series(600, 700)"
        [ "$(sql "SELECT to_regclass('a.${t}_nitro') IS NULL")" = f ] || alice "CREATE INDEX ${t}_nitro ON $t USING nitro $(columns $t)"
        alice "REINDEX INDEX ${t}_nitro"
        verified "a.$t"
        any_plan=1 same_answers "a.$t" "SELECT k FROM a.$t WHERE a.f_$t(k) BETWEEN 5 AND 650" "SELECT k FROM a.$t WHERE k > 30 AND a.f_$t(k) > 0"
    done
    verified s.t; ! nitro_indexes a.side > /dev/null || verified a.side
    alice "DROP TABLE IF EXISTS x_e, x_p, x_o; DROP TABLE $(tr ' ' , <<< "$tables"); TRUNCATE side"
    no_builders
    assert_eq "memory" "$(lost)" "$before"
}

alice "CREATE TABLE side (k int); CREATE INDEX side_nitro ON side USING nitro (k)"
sql "SELECT nitro_verify('a.side_nitro', false), nitro_verify('s.secret_nitro', false)" > /dev/null
for o in e p o; do install $o "RETURN k;"; done
sql "CREATE FUNCTION a.o_cmp(x int, y int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT btint4cmp(a.f_o(x), y)'; ALTER FUNCTION a.o_cmp OWNER TO alice"
sql "CREATE OPERATOR CLASS a.o_ops FOR TYPE int USING nitro AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 a.o_cmp(int, int)"
note "a comparison function in SQL that comes back to itself"
alice "CREATE TABLE o (k int); INSERT INTO o SELECT generate_series(1, 400); CREATE INDEX o_nitro ON o USING nitro (k o_ops)"
install o "IF k = 403 AND coalesce(current_setting('a.depth', true), '') = '' THEN PERFORM set_config('a.depth', '1', true); PERFORM nitro_verify('o_nitro'::regclass, true); END IF; RETURN k;"
alice "INSERT INTO o SELECT generate_series(401, 410)"
verified a.o
alice "DROP TABLE o"

rounds=3; [ -z "$LONG" ] || rounds=40
for _ in $(seq $rounds); do
    alice "CREATE TABLE e (k int); CREATE TABLE p (k int); CREATE TABLE o (k int)"
    sql "SELECT nitro_verify('a.side_nitro', false), nitro_verify('s.secret_nitro', false)" > /dev/null
    attack "$(lost)"
done

#!/usr/bin/env bash
# The helpers themselves: sessions, crash, kill of a backend, expected errors.
. "$(dirname "$0")/lib.sh"
new_server -c "work_mem = 5MB"
assert_eq "setting" "$(sql 'SHOW work_mem')" 5MB
sql "CREATE TABLE t AS SELECT i FROM generate_series(1, 1000) i"

session a
ask a "BEGIN ISOLATION LEVEL REPEATABLE READ" > /dev/null
assert_eq "snapshot" "$(ask a 'SELECT count(*) FROM t')" 1000
sql "DELETE FROM t WHERE i <= 10"
assert_eq "snapshot later" "$(ask a 'SELECT count(*) FROM t')" 1000
ask a "COMMIT" > /dev/null
assert_eq "after commit" "$(ask a 'SELECT count(*) FROM t')" 990

session b
ask a "BEGIN; LOCK TABLE t" > /dev/null
tell b "SELECT min(i) FROM t"
wait_until "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted"
ask a "COMMIT" > /dev/null
assert_eq "after the lock" "$(answer b)" 11
end a

assert_eq "error" "$(sql_fails 'SELECT 1/0')" "22012: division by zero"
kill_backend "$(ask b 'SELECT pg_backend_pid()')"
end b
assert_eq "after a killed backend" "$(sql 'SELECT count(*) FROM t')" 990
crash; start
assert_eq "after a crash" "$(sql 'SELECT count(*) FROM t')" 990
restart immediate
assert_eq "after an immediate stop" "$(sql 'SELECT count(*) FROM t')" 990

node=second
new_server
assert_eq "another server" "$(sql "SELECT to_regclass('t') IS NULL")" t
node=main
assert_eq "the first one" "$(sql 'SELECT count(*) FROM t')" 990

#!/usr/bin/env bash
# ci/check.sh PG_CONFIG [TEST...]: builds nitro (dev profile) for one server and runs every test that needs
# a server. These are sql/*.sql by pg_regress, specs/*.spec by the isolation tester, the programs in tests/,
# and the crate tests/server. Works for root and for any user. LONG=1 and NITRO_SEED reach the tests.
#   TEST            only these: sql/key_text, specs/cursor, tests/crash.sh, server/first::errors_and_notices_are_seen;
#                   sql, specs or server/first: all of a folder or module
#   NITRO_DONE      names of tests that have run already: they are left out
#   NITRO_HALF      0 or 1: only every other one of the programs and of the crate's tests
#   NITRO_STAGED    the folder that ci/stage.sh has made before
#   KEEP=1          keeps the folder with data directories and logs
#   JOBS=1          runs one test at a time
set -euo pipefail
cd "$(dirname "$0")/.."
pgc=${1:?usage: ci/check.sh PG_CONFIG [TEST...]}; shift
only=("$@")
for name in "${only[@]}"; do
    [ "$name" = sql ] || [ "$name" = specs ] || [ -f "$name" ] || [ -f "$name.sql" ] || [ -f "$name.spec" ] || [[ $name == server/* ]] || { echo "there is no test $name" >&2; exit 2; }
done
export NITRO_PG_CONFIG=$pgc    # for tests that build a module of the server
version=$($pgc --version); say() { printf '%s\n' "== $version: $*"; }

t=$(mktemp -d /tmp/nitro-check.XXXXXX); chmod 755 "$t"
# A killed test of the crate has left its servers running: the time limit or the end of this script killed
# it. A postmaster works in its data folder, so a stale PID file names no wrong process.
stop_servers() { # FOLDER
    local file pid
    while read -r file; do
        read -r pid < "$file" || continue
        [ "$(readlink "/proc/$pid/cwd")" = "${file%/*}" ] || continue
        kill -QUIT "$pid" && timeout 60 tail -s 0.1 -f --pid="$pid" /dev/null || true
    done < <(find "$1" -name postmaster.pid 2> /dev/null || true)
}
end() {
    local p
    for p in $(jobs -p); do pkill -TERM -P "$p" || true; done
    wait
    stop_servers "$t/run"
    if [ -n "${KEEP:-}" ]; then echo "kept: $t"; else rm -rf "$t"; fi
}
trap end EXIT
if [ -d "${NITRO_STAGED:-}" ]; then mv "$NITRO_STAGED" "$t/server"; else ci/stage.sh "$pgc" "$t/server" dev > /dev/null; fi
bin=$t/server$($pgc --bindir)
# For server/beside, where the server is Debian's.
if [ ${#only[@]} = 0 ] || [[ " ${only[*]}" == *" server/beside"* ]]; then
    ci/extensions.sh "$pgc" "$t/server" > "$t/out" || [ $? = 3 ]
    while read -r line; do say "beside: $line"; done < "$t/out"
fi
for d in sql expected specs tests deploy; do [ ! -d $d ] || cp -r $d "$t/"; done

# Most users' servers have a linguistic collation. Make one where the machine has none.
if ! grep -qi '^en_US\.utf-\?8$' <<< "$(locale -a)"; then
    mkdir "$t/locale"; localedef -i en_US -f UTF-8 "$t/locale/en_US.UTF-8"; export LOCPATH=$t/locale
fi
cat > "$t/nitro.conf" <<E
shared_preload_libraries = 'nitro'
fsync = off
autovacuum = off
# Tests look at sizes. Tests of packing switch it on.
nitro.pack = off
max_prepared_transactions = 10
# Builders of a busy machine are slow, and tests look at plans.
nitro.max_loading_wait = 3min
E
# Until 17 a plan with a disabled scan has a very high cost. The server then compiles each query, which
# takes a fifth of all time.
# Needed by sql/fast_scan, sql/joins and sql/rows, where nitro replaces nodes of plans.
[ -n "${LONG:-}" ] || echo "jit = off" >> "$t/nitro.conf"
# For ci/mutants.sh: this mechanism is off in each test that switches no other one off.
[ -z "${NITRO_MUTANT:-}" ] || echo "nitro.debug_break = $NITRO_MUTANT" >> "$t/nitro.conf"
# No images and checkpoints where tests look at plans and horizons. The programs in tests/ have them.
{ cat "$t/nitro.conf"; printf '%s\n' "nitro.backup = off" "checkpoint_timeout = 1h"; } > "$t/quiet.conf"

# PostgreSQL refuses to run as root.
as=()
if [ "$(id -u)" = 0 ]; then
    user=postgres; id -u postgres > /dev/null 2>&1 || user=nobody
    chown -R $user "$t"
    as=(setpriv --reuid=$user --regid="$(id -g $user)" --clear-groups)
fi
# RUST_BACKTRACE must not put stack traces into the DETAIL of errors. PG* would redirect psql.
run() {
    (cd "$t" && exec "${as[@]}" env -u PGHOST -u PGPORT -u PGUSER -u PGDATABASE -u PGOPTIONS HOME="$t" RUST_BACKTRACE=1 PGCTLTIMEOUT=300 \
        PATH="$bin:$PATH" NITRO_BIN="$bin" NITRO_CONF="$t/nitro.conf" NITRO_TEMPLATE="$t/template" "$@")
}

# A test is chosen by its own name, or by that of its folder or module.
named() { local name=$1; shift; [[ " $* " == *" $name "* || " $* " == *" ${name%%::*} "* || " $* " == *" ${name%%/*} "* ]]; }
wanted() { { [ ${#only[@]} = 0 ] || named "$1" "${only[@]}"; } && ! named "$1" ${NITRO_DONE:-}; }
pick() { # FOLDER SUFFIX: the names of its tests that are wanted
    local f
    for f in "$t/$1"/*"$2"; do # the copies, which are run
        f=${f#"$t/"}
        if wanted "${f%"$2"}" || wanted "$f"; then basename "$f" "$2"; fi
    done
}

passed=0 failed=()
verdict() { # NAME STATUS SECONDS
    if [ "$2" = 0 ]; then passed=$((passed + 1)); say "ok      $1 (${3}s)"
    else failed+=("$1"); say "FAILED  $1 (${3}s)"; fi
}

regress() { # KIND PROGRAM NAMES...: pg_regress and the isolation tester take the same options
    local kind=$1 program=$2 s=0; shift 2
    run mkdir -p "$kind"
    run timeout 1800 "$x/$program" --inputdir=. --outputdir="$kind" --bindir="$bin" --temp-instance="$kind/instance" \
        --temp-config=quiet.conf --no-locale --encoding=UTF8 --load-extension=nitro "$@" || s=$?
    [ $s = 0 ] || {
        cat "$t/$kind/regression.diffs" 2> /dev/null || true
        tail -n 60 "$t/$kind/log/postmaster.log" 2> /dev/null || true
    }
    return $s
}
program() { # NAME: one of tests/
    local d=$t/run/${1#tests/} s=0 log
    run mkdir -p "$d"
    run env NITRO_TMP="$d" timeout --kill-after=20 "${NITRO_TEST_TIMEOUT:-1200}" "$1" || s=$?
    [ $s = 0 ] || for log in "$d"/*.log; do [ ! -f "$log" ] || { echo "-- $log"; tail -n 60 "$log"; }; done
    # These run beside the rest. Together at the end they would take half a minute.
    [ $s != 0 ] || [ -n "${KEEP:-}" ] || find "$d" -type f ! -name '*.log' -delete || true
    return $s
}
declare -A running=() since=()
begin() { # NAME COMMAND...: beside others, but no more than `jobs` at a time
    while [ ${#running[@]} -ge "$jobs" ]; do finished; done
    since[$1]=$SECONDS
    "${@:2}" > "$t/out.${1//\//_}" 2>&1 &
    running[$!]=$1
}
finished() { # waits for one of them and shows what it printed
    local pid name out s=0
    wait -n -p pid || s=$?
    name=${running[$pid]} out=$t/out.${running[$pid]//\//_}
    unset "running[$pid]"
    say "$name"
    # Lines that a test prints although it passed, such as its seed.
    if [ $s != 0 ]; then cat "$out"; elif [[ $name == tests/* ]]; then grep '^#' "$out" || true; fi
    verdict "$name" $s $((SECONDS - since[$name]))
}
# Tests wait more than they compute. With one job more than processors, the processors were idle a sixth of
# the time.
jobs=${JOBS:-$(($(nproc) + 2))}
x=$($pgc --pkglibdir)/pgxs/src/test
# The longest first. Most files have a table t, so files that run side by side need different servers: one
# for each processor, or one for a few files. The largest files are dealt out first.
mapfile -t names < <(pick sql .sql)
servers=$((${#names[@]} < 8 ? 1 : $(nproc)))
for ((i = 0; i < servers; i++)); do
    mapfile -t dealt < <(ls -S sql/*.sql | sed 's|.*/\(.*\)\.sql|\1|' | grep -xF -f <(printf '%s\n' "${names[@]}") |
        awk -v n="$servers" -v i="$i" '{ at = (NR - 1) % (2 * n); if (at == i || at == 2 * n - 1 - i) print }')
    kind=regress$((i + 1)); [ "$i" != 0 ] || kind=regress
    [ ${#names[@]} = 0 ] || begin $kind regress $kind regress/pg_regress "${dealt[@]}"
done
# Most servers of the programs begin as a copy of this one: initdb takes a second of processor time.
[ ${#only[@]} != 0 ] && [[ " ${only[*]} " != *" tests/"* && " ${only[*]} " != *" server/"* ]] ||
    run env NITRO_TMP="$t" bash -c '. tests/lib.sh; initdb_to "$NITRO_TEMPLATE"' > "$t/out" 2>&1 || { cat "$t/out"; exit 1; }
# Each test of the crate runs as a program here, with a verdict, a folder and a place in the queue.
server_test() { # NAME NUMBER: a short folder, for the name of a socket has little room
    local d=$t/run/server$2 s=0
    run mkdir -p "$d"
    run env NITRO_TMP="$d" timeout --kill-after=20 "${NITRO_TEST_TIMEOUT:-1200}" "$t/server_tests" --exact "$1" --nocapture || s=$?
    stop_servers "$d"
    return $s
}
programs=0
if [ ${#only[@]} = 0 ] || [[ " ${only[*]}" == *" server/"* ]]; then
    tests=$(cargo test -q -p nitro-server-tests --test all --no-run --message-format=json | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
    cp "$tests" "$t/server_tests"
    mapfile -t names < <("$t/server_tests" --list --format terse | sed -n 's/: test$//p')
    for name in "${only[@]}"; do
        [[ $name != server/* ]] || printf 'server/%s\n' "${names[@]}" | grep -qE "^$name(::|\$)" || { echo "there is no test $name" >&2; exit 2; }
    done
    for name in "${names[@]}"; do
        wanted "server/$name" || continue
        programs=$((programs + 1))
        [ -z "${NITRO_HALF:-}" ] || [ $((programs % 2)) = "$NITRO_HALF" ] || continue
        begin "server/$name" server_test "$name" $programs
    done
fi
# By the size of their files. Tests in a folder of tests/ run only when they are named.
for name in $(cd tests && ls -S) $(printf '%s\n' "${only[@]}" | sed -n 's|^tests/\(.*/.*\)|\1|p'); do
    name=tests/$name
    wanted "$name" && [ -x "$name" ] && [ -f "$name" ] || continue
    programs=$((programs + 1))
    [ -z "${NITRO_HALF:-}" ] || [ $((programs % 2)) = "$NITRO_HALF" ] || continue
    begin "$name" program "$name"
done
mapfile -t names < <(pick specs .spec)
[ ${#names[@]} = 0 ] || begin isolation regress isolation isolation/pg_isolation_regress "${names[@]}"
while [ ${#running[@]} -gt 0 ]; do finished; done

# Whatever the answers were, no log may have an assertion, a panic or a crash.
bad='TRAP:|PANIC:|panicked at|was terminated by signal (4|6|7|8|11)\b'
s=0; find "$t" -name '*.log' -exec grep -HnE "$bad" {} + > "$t/out" || true
[ ! -s "$t/out" ] || { s=1; head -n 50 "$t/out"; }
verdict "server logs" $s 0

say "$passed passed, ${#failed[@]} failed${failed[*]:+: ${failed[*]}}"
[ -z "${NITRO_RESULTS:-}" ] || echo "$passed ${#failed[@]}" >> "$NITRO_RESULTS"
[ ${#failed[@]} = 0 ]

#!/usr/bin/env bash
# ci/check.sh PG_CONFIG [TEST...]: build nitro (dev profile) for one server and run every test that needs
# a server: sql/*.sql by pg_regress, specs/*.spec by the isolation tester, the programs in tests/, and the tests of the
# crate tests/server. With names (sql/key_text, specs/cursor, tests/crash.sh, server/first::errors_and_notices_are_seen)
# only those, and with sql, specs or server/first all of a folder or module; NITRO_DONE is names of what has been run, which
# is left out; NITRO_HALF=0 or 1 leaves out every other one of the programs and of the crate's tests. Works for root and for any user; KEEP=1 keeps the folder with data directories and logs, JOBS=1 runs
# one test at a time; NITRO_STAGED is what ci/stage.sh has made before. LONG=1 and NITRO_SEED reach the tests.
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
# A test of the crate that was killed, by its time limit or with this script, has left its servers running. A postmaster
# works in its data folder: a file that is left does not name another process.
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

# The server of most users has a linguistic collation: make one where the machine has none.
if ! grep -qi '^en_US\.utf-\?8$' <<< "$(locale -a)"; then
    mkdir "$t/locale"; localedef -i en_US -f UTF-8 "$t/locale/en_US.UTF-8"; export LOCPATH=$t/locale
fi
cat > "$t/nitro.conf" <<E
shared_preload_libraries = 'nitro'
fsync = off
autovacuum = off
# Tests look at sizes. Those of packing have it on.
nitro.pack = off
max_prepared_transactions = 10
# Builders of a busy machine are slow, and tests look at plans.
nitro.max_loading_wait = 3min
E
# Until 17 a plan whose scan is disabled costs so much that each query is compiled: a fifth of all time.
# sql/fast_scan, sql/joins and sql/rows, where nodes of plans are exchanged, want it.
[ -n "${LONG:-}" ] || echo "jit = off" >> "$t/nitro.conf"
# For ci/mutants.sh: a mechanism that is off unless a test switches another one off.
[ -z "${NITRO_MUTANT:-}" ] || echo "nitro.debug_break = $NITRO_MUTANT" >> "$t/nitro.conf"
# Images and checkpoints keep to themselves where plans and horizons are looked at; the programs in tests/ have them.
{ cat "$t/nitro.conf"; printf '%s\n' "nitro.backup = off" "checkpoint_timeout = 1h"; } > "$t/quiet.conf"

# PostgreSQL refuses to run as root.
as=()
if [ "$(id -u)" = 0 ]; then
    user=postgres; id -u postgres > /dev/null 2>&1 || user=nobody
    chown -R $user "$t"
    as=(setpriv --reuid=$user --regid="$(id -g $user)" --clear-groups)
fi
# RUST_BACKTRACE must not put stack traces into the DETAIL of errors; PG* would redirect psql.
run() {
    (cd "$t" && exec "${as[@]}" env -u PGHOST -u PGPORT -u PGUSER -u PGDATABASE -u PGOPTIONS HOME="$t" RUST_BACKTRACE=1 PGCTLTIMEOUT=300 \
        PATH="$bin:$PATH" NITRO_BIN="$bin" NITRO_CONF="$t/nitro.conf" NITRO_TEMPLATE="$t/template" "$@")
}

# By its own name, or by that of its folder or module.
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
    # While others run: together they would take half a minute at the end.
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
    # What a test wants to be read though it passed, its seed for one.
    if [ $s != 0 ]; then cat "$out"; elif [[ $name == tests/* ]]; then grep '^#' "$out" || true; fi
    verdict "$name" $s $((SECONDS - since[$name]))
}
# Tests wait more than they compute: with one more than processors these were idle a sixth of the time.
jobs=${JOBS:-$(($(nproc) + 2))}
x=$($pgc --pkglibdir)/pgxs/src/test
# The longest first. Most files have a table t, so what runs side by side has servers of its own: one for each processor,
# or one for a few files. The largest files are dealt out first.
mapfile -t names < <(pick sql .sql)
servers=$((${#names[@]} < 8 ? 1 : $(nproc)))
for ((i = 0; i < servers; i++)); do
    mapfile -t dealt < <(ls -S sql/*.sql | sed 's|.*/\(.*\)\.sql|\1|' | grep -xF -f <(printf '%s\n' "${names[@]}") |
        awk -v n="$servers" -v i="$i" '{ at = (NR - 1) % (2 * n); if (at == i || at == 2 * n - 1 - i) print }')
    kind=regress$((i + 1)); [ "$i" != 0 ] || kind=regress
    [ ${#names[@]} = 0 ] || begin $kind regress $kind regress/pg_regress "${dealt[@]}"
done
# Most servers of the programs begin as a copy of this one: initdb takes a second of a processor.
[ ${#only[@]} != 0 ] && [[ " ${only[*]} " != *" tests/"* && " ${only[*]} " != *" server/"* ]] ||
    run env NITRO_TMP="$t" bash -c '. tests/lib.sh; initdb_to "$NITRO_TEMPLATE"' > "$t/out" 2>&1 || { cat "$t/out"; exit 1; }
# Each test of the crate is a program of its own here, so that it has a verdict, a folder and a place beside others.
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
# By the size of their files. What lies in a folder of tests/ runs only when it is named.
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

# Whatever the answers were: no assertion, panic or crash may stand in any log.
bad='TRAP:|PANIC:|panicked at|was terminated by signal (4|6|7|8|11)\b'
s=0; find "$t" -name '*.log' -exec grep -HnE "$bad" {} + > "$t/out" || true
[ ! -s "$t/out" ] || { s=1; head -n 50 "$t/out"; }
verdict "server logs" $s 0

say "$passed passed, ${#failed[@]} failed${failed[*]:+: ${failed[*]}}"
[ -z "${NITRO_RESULTS:-}" ] || echo "$passed ${#failed[@]}" >> "$NITRO_RESULTS"
[ ${#failed[@]} = 0 ]

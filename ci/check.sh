#!/usr/bin/env bash
# ci/check.sh PG_CONFIG [TEST...]: build nitro (dev profile) for one server and run every test that needs
# a server: sql/*.sql by pg_regress, specs/*.spec by the isolation tester, the programs in tests/.
# With names (sql/key_text, specs/cursor, tests/crash.sh) only those. Works for root and for any user;
# KEEP=1 keeps the folder with data directories and logs. LONG=1 and NITRO_SEED reach the tests.
set -euo pipefail
cd "$(dirname "$0")/.."
pgc=${1:?usage: ci/check.sh PG_CONFIG [TEST...]}; shift
only=("$@")
version=$($pgc --version); say() { printf '%s\n' "== $version: $*"; }

t=$(mktemp -d /tmp/nitro-check.XXXXXX); chmod 755 "$t"
trap '[ -n "${KEEP:-}" ] && echo "kept: $t" || rm -rf "$t"' EXIT
bin=$(ci/stage.sh "$pgc" "$t/server" dev)
for d in sql expected specs tests; do [ ! -d $d ] || cp -r $d "$t/"; done

# The server of most users has a linguistic collation: make one where the machine has none.
if ! locale -a | grep -qi '^en_US\.utf-\?8$'; then
    mkdir "$t/locale"; localedef -i en_US -f UTF-8 "$t/locale/en_US.UTF-8"; export LOCPATH=$t/locale
fi
cat > "$t/nitro.conf" <<E
shared_preload_libraries = 'nitro'
fsync = off
autovacuum = off
max_prepared_transactions = 10
E
# Images keep to themselves where plans and horizons are looked at; the programs in tests/ have them.
{ cat "$t/nitro.conf"; echo "nitro.backup = off"; } > "$t/quiet.conf"

# PostgreSQL refuses to run as root.
as=()
if [ "$(id -u)" = 0 ]; then
    user=postgres; id -u postgres > /dev/null 2>&1 || user=nobody
    chown -R $user "$t"
    as=(setpriv --reuid=$user --regid="$(id -g $user)" --clear-groups)
fi
# RUST_BACKTRACE would put a stack trace into the DETAIL of errors; PG* would redirect psql.
run() {
    (cd "$t" && "${as[@]}" env -u PGHOST -u PGPORT -u PGUSER -u PGDATABASE -u PGOPTIONS HOME="$t" RUST_BACKTRACE=0 \
        PATH="$bin:$PATH" NITRO_BIN="$bin" NITRO_CONF="$t/nitro.conf" "$@")
}

# Names of the files that match, without folder and suffix, or of those asked for.
pick() {
    local dir=$1 suffix=$2 f
    for f in "$dir"/*"$suffix"; do
        [ -e "$f" ] || continue
        if [ ${#only[@]} = 0 ] || [[ " ${only[*]} " =~ " ${f%"$suffix"} "|" $f " ]]; then basename "$f" "$suffix"; fi
    done
}

passed=0 failed=()
verdict() { # NAME STATUS SECONDS
    if [ "$2" = 0 ]; then passed=$((passed + 1)); say "ok      $1 (${3}s)"
    else failed+=("$1"); say "FAILED  $1 (${3}s)"; fi
}

regress() { # KIND PROGRAM NAMES...: pg_regress and the isolation tester take the same options
    local kind=$1 program=$2 s=0 start=$SECONDS; shift 2
    [ $# -gt 0 ] || return 0
    say "$kind: $*"
    run mkdir -p "$kind"
    run timeout 900 "$program" --inputdir=. --outputdir="$kind" --bindir="$bin" --temp-instance="$kind/instance" \
        --temp-config=quiet.conf --no-locale --encoding=UTF8 --load-extension=nitro "$@" > "$t/$kind.out" 2>&1 || s=$?
    if [ $s != 0 ]; then
        cat "$t/$kind.out" "$t/$kind/regression.diffs" 2> /dev/null || true
        tail -n 60 "$t/$kind/log/postmaster.log" 2> /dev/null || true
    fi
    verdict "$kind" $s $((SECONDS - start))
}
x=$($pgc --pkglibdir)/pgxs/src/test
mapfile -t names < <(pick sql .sql); regress regress "$x/regress/pg_regress" "${names[@]}"
mapfile -t names < <(pick specs .spec); regress isolation "$x/isolation/pg_isolation_regress" "${names[@]}"

mapfile -t names < <(pick tests "")
for name in "${names[@]}"; do
    [ -x "tests/$name" ] && [ -f "tests/$name" ] || continue
    say "tests/$name"
    s=0 start=$SECONDS; d=$t/run/$name
    run mkdir -p "$d"
    run env NITRO_TMP="$d" timeout --kill-after=20 "${NITRO_TEST_TIMEOUT:-1200}" "tests/$name" > "$t/out" 2>&1 || s=$?
    [ $s = 0 ] && grep '^#' "$t/out" || true         # what a test wants to be read, its seed for one
    if [ $s != 0 ]; then
        cat "$t/out"
        for log in "$d"/*.log; do [ ! -f "$log" ] || { echo "-- $log"; tail -n 60 "$log"; }; done
    fi
    verdict "tests/$name" $s $((SECONDS - start))
done

# Whatever the answers were: no assertion, panic or crash may stand in any log.
bad='TRAP:|PANIC:|panicked at|was terminated by signal (4|6|7|8|11)\b'
s=0; find "$t" -name '*.log' -exec grep -HnE "$bad" {} + > "$t/out" || true
[ ! -s "$t/out" ] || { s=1; head -n 50 "$t/out"; }
verdict "server logs" $s 0

say "$passed passed, ${#failed[@]} failed${failed[*]:+: ${failed[*]}}"
[ -z "${NITRO_RESULTS:-}" ] || echo "$passed ${#failed[@]}" >> "$NITRO_RESULTS"
[ ${#failed[@]} = 0 ]

#!/usr/bin/env bash
# ci/mutants.sh [SECTION [NAME...]]: switches off one mechanism after another, and runs the tests until one
# fails. A mutant that survives all tests is a missing test. Sections: engine, server.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
killed=0 survivors=()
export RUST_BACKTRACE=0 PROPTEST_CASES=${PROPTEST_CASES:-60}

verdict() { # NAME TEST: what killed it, or nothing
    if [ -n "$2" ]; then
        killed=$((killed + 1)); printf 'killed    %-70s %s\n' "$1" "$2"
    else
        survivors+=("$1"); printf 'SURVIVES  %s\n' "$1"
    fi
}

# The engine: NITRO_MUTANT names a mechanism, in a build with the feature `mutants`. In a pair the second
# mechanism does the work that the first one leaves undone.
engine_pairs=(
    "a leaf that dies is not where inserts append,an append looks whether its leaf is dead"
)

engine_binaries() { # ARGS...: builds tests and prints their executables
    cargo test -q -p nitro-engine --features mutants --no-run --message-format=json "$@" |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p'
}

# A mutant may run forever, or abort. All schedules run, also under a comparator, so a miss does not depend
# on a seed.
engine_run() { (ulimit -c 0; LONG=1 NITRO_MUTANT=$1 timeout "${MUTANT_SECONDS:-240}" "${@:2}" > "$log" 2>&1); }

engine_kill() { # NAME FIRST: the test that fails, or how
    local binary filter s failed
    for filter in $2 ""; do
        for binary in "${binaries[@]}"; do
            s=$filter
            # The other tests of the library have no scheduler in this build.
            [[ $binary != */shuttle/* || -n $filter ]] || s=random
            [[ $binary != */shuttle/* || $s = *random* ]] || continue
            engine_run "$1" "$binary" -q $s && s=0 || s=$?
            [ $s != 0 ] || continue
            failed=$(sed -n 's/^    \([a-z_0-9:]*\)$/\1/p' "$log" | sort -u | head -1)
            [ $s != 124 ] || failed="does not end"
            echo "${failed:-ends with $s, $(basename "$binary" | sed 's/-[0-9a-f]*$//')}"
            return
        done
    done
}

engine() { # NAMES...
    local name first
    mapfile -t binaries < <(
        RUSTFLAGS="--cfg loom" engine_binaries --profile checker --lib --target-dir "$target/loom"
        RUSTFLAGS="--cfg shuttle" engine_binaries --profile checker --lib --target-dir "$target/shuttle"
        engine_binaries --lib --tests)
    declare -A tests
    while IFS='|' read -r name first; do tests[$name]=$first; done < <(
        sed -n 's/^    ("\(.*\)", "\(.*\)"),$/\1|\2/p' engine/src/sync/mutants.rs)
    [ -z "$(engine_kill "" "")" ] || { echo "tests fail without a mutant"; cat "$log"; exit 1; }
    if [ $# = 0 ]; then
        for name in "${engine_pairs[@]}"; do unset "tests[${name%%,*}]"; done  # is not missed alone
        mapfile -t names < <(printf '%s\n' "${!tests[@]}" "${engine_pairs[@]}" | sort)
        set -- "${names[@]}"
    fi
    for name; do
        verdict "$name" "$(engine_kill "$name" "${tests[$name]:-schedule::}")"
    done
}

# The server: the settings of nitro.debug_break. Tests that name a mechanism have schedules that switch it
# off and must go wrong. Here their other schedules, which must go right, run without it. A test of the
# crate tests/server that names a mechanism switches it off by itself, in each run of all tests.
server() { # NAMES...
    local pgc name test schedule killer
    pgc=$(ci/pg.sh "${PG:-18}")
    [ $# -gt 0 ] || { mapfile -t names < <(sed -n '/enum Mechanism/,/^}/s/.*name = c"\(.*\)".*/\1/p' src/pg/guc/mechanism.rs | grep -vx none); set -- "${names[@]}"; }
    [ $# -gt 0 ] || { echo "no mechanism found"; exit 1; }
    for name; do
        killer=
        for test in $(grep -lE "(for off in|mechanism|run) .*\b$name\b|\]=$name\b" tests/*.sh); do
            [ -x "$test" ] || continue
            for schedule in none ""; do
                NITRO_MUTANT=$name SCHEDULE=$schedule NITRO_TEST_TIMEOUT=${MUTANT_SECONDS:-400} ci/check.sh "$pgc" "$test" > "$log" 2>&1 ||
                    { killer="$test: $(sed -n 's/^FAILED at \([^:]*:[0-9]*\).*/\1/p' "$log" | head -1)"; break 2; }
            done
        done
        verdict "$name" "${killer:-$(grep -lE "[\"']$name[\"']" $(grep -l debug_break tests/server/tests/all/*.rs) | head -1)}"
    done
}

log=$(mktemp); trap 'rm -f "$log"' EXIT
for section in ${1:-engine server}; do "$section" "${@:2}"; done
echo "$killed killed, ${#survivors[@]} survived"
[ ${#survivors[@]} = 0 ]

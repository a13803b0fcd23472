#!/usr/bin/env bash
# ci/sanitize.sh thread|address|loom|shuttle|storms: a checker of the engine. Each has a target folder of
# its own.
#   thread, address    the engine's tests under ThreadSanitizer or AddressSanitizer (these need a nightly toolchain)
#   loom               its models under loom
#   shuttle            drawn schedules of the whole engine under shuttle
#   storms             its storms with small nodes and pauses
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
host=$(rustc -vV | sed -n 's/^host: //p')
export RUST_BACKTRACE=0
# A checker makes everything some ten times slower: fewer random cases, unless asked otherwise.
[ -n "${LONG:-}" ] || export PROPTEST_CASES=${PROPTEST_CASES:-12}
# The engine's memory is the area. Leaks of the test process's own memory are not looked for.
export ASAN_OPTIONS=detect_leaks=0

case ${1:?usage: ci/sanitize.sh thread|address|loom|shuttle|storms} in
    loom)
        RUSTFLAGS="--cfg loom" cargo test -q -p nitro-engine --profile checker --lib --target-dir "$target/loom" model ;;
    shuttle)
        [ -z "${LONG:-}" ] || export SHUTTLE_ITERATIONS=${SHUTTLE_ITERATIONS:-200000}
        RUSTFLAGS="--cfg shuttle" cargo test -q -p nitro-engine --profile checker --lib --target-dir "$target/shuttle" random ;;
    storms)
        # All at once: they sleep more than they run.
        cargo test -q -p nitro-engine --features chaos --target-dir "$target/storms" --test all -- \
            --test-threads 8 storm:: ;;
    thread|address)
        run() { # ARGS...
            RUSTFLAGS="-Zsanitizer=$sanitizer -Cunsafe-allow-abi-mismatch=sanitizer" cargo +nightly test -q -p nitro-engine \
                --target "$host" --target-dir "$target/$sanitizer" "$@"
        }
        sanitizer=$1
        # Left out: the schedules, which run one thread at a time, and words, which handles faults itself.
        skip=(--skip schedule:: --skip words::)
        [ "$1" = thread ] || { run --lib --tests -- "${skip[@]}"; exit; }
        # ThreadSanitizer sees threads, not processes. So only tests with several threads run.
        skip+=(--skip two_processes --skip ends_in_a_comparator)
        # Long tests of one thread run beside others.
        skip+=(--skip each_limit_is_kept --skip leaves_without_separators)
        mapfile -t modules < <(grep -rlE 'thread::(scope|spawn)' engine/src engine/tests |
            sed -E 's|engine/[a-z]*/||; s|(_tests)?\.rs$|::|; s|/|::|g')
        # libtest and std are not instrumented: their own synchronisation is invisible.
        suppressions=$(mktemp); trap 'rm -f "$suppressions"' EXIT
        printf 'race:%s\n' core::profiling::compiler_copy 'test::' std::sync::mpmc std::thread::scoped > "$suppressions"
        export TSAN_OPTIONS="suppressions=$suppressions"
        run --lib --test=all -- "${skip[@]}" "${modules[@]}" ;;
    *) echo "ci/sanitize.sh: unknown checker $1" >&2; exit 2 ;;
esac

#!/usr/bin/env bash
# ci/sanitize.sh thread|address|loom|shuttle|storms: the engine's tests under ThreadSanitizer or AddressSanitizer
# (these need a nightly toolchain), its models under loom, drawn schedules of the whole engine under
# shuttle, or its storms with small nodes and pauses. Each has a target folder of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
host=$(rustc -vV | sed -n 's/^host: //p')
export RUST_BACKTRACE=0
# A checker makes everything some ten times slower: fewer random cases, unless asked otherwise.
[ -n "${LONG:-}" ] || export PROPTEST_CASES=${PROPTEST_CASES:-12}
# The engine's memory is the area; what a test forgets of the process's own is not looked for.
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
        # Left out: the schedules, in which one thread runs at a time, and words, which handle faults themselves.
        skip=(--skip schedule:: --skip words::)
        [ "$1" = thread ] || { run --lib --tests -- "${skip[@]}"; exit; }
        # It sees threads, not processes; and nothing at all where there is one thread: only what has several.
        skip+=(--skip two_processes --skip ends_in_a_comparator)
        # Long ones of one thread beside others.
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

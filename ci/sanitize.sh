#!/usr/bin/env bash
# ci/sanitize.sh thread|address|loom: the engine's tests under ThreadSanitizer or AddressSanitizer (these
# need a nightly toolchain), or its models under loom. Each has a target folder of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
host=$(rustc -vV | sed -n 's/^host: //p')
export RUST_BACKTRACE=0
# A checker makes everything some ten times slower: fewer random cases, unless asked otherwise.
[ -n "${LONG:-}" ] || export PROPTEST_CASES=${PROPTEST_CASES:-12}
# The engine's memory is the area; what a test forgets of the process's own is not looked for.
export ASAN_OPTIONS=detect_leaks=0

case ${1:?usage: ci/sanitize.sh thread|address|loom} in
    loom)
        RUSTFLAGS="--cfg loom" cargo test -q -p nitro-engine --release --lib --target-dir "$target/loom" model ;;
    thread|address)
        features=()
        if [ "$1" = thread ]; then
            # Bytes that a validated version makes good are read atomically there: the sanitizer cannot know.
            features=(--features atomic-bytes)
            # libtest and std are not instrumented: their own synchronisation is invisible.
            suppressions=$(mktemp); trap 'rm -f "$suppressions"' EXIT
            printf 'race:%s\n' core::profiling::compiler_copy 'test::' std::sync::mpmc std::thread::scoped > "$suppressions"
            export TSAN_OPTIONS="suppressions=$suppressions"
        fi
        RUSTFLAGS="-Zsanitizer=$1 -Cunsafe-allow-abi-mismatch=sanitizer" cargo +nightly test -q -p nitro-engine \
            "${features[@]}" --target "$host" --target-dir "$target/$1" --lib --tests ;;
    *) echo "ci/sanitize.sh: unknown checker $1" >&2; exit 2 ;;
esac

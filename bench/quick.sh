#!/usr/bin/env bash
# bench/quick.sh: first figures: the engine against its peers, then nitro against btree in a throwaway
# server. docs/benchmarks.md says what is measured and how to read it. PART=engine or PART=server: only
# that.
set -euo pipefail
cd "$(dirname "$0")/.."
export ENGINE_ROWS=${ENGINE_ROWS:-3000000} ROWS=${ROWS:-10000000} INSERT_ROWS=${INSERT_ROWS:-2000000}

echo "building (release)"
[ "${PART:-}" = server ] || cargo build -q --release --manifest-path bench/engine/Cargo.toml --target-dir target/bench
[ "${PART:-}" = engine ] || bench/server/stage.sh
begin=$SECONDS
lscpu | sed -n 's/^Model name: */processor: /p; s/^CPU(s): */processors: /p'
echo "load of the machine before the start: $(cut -d' ' -f1 /proc/loadavg)"
[ "${PART:-}" = server ] || target/bench/release/nitro-bench
[ "${PART:-}" = engine ] || bench/server/run.sh
echo "measured in $((SECONDS - begin)) s"

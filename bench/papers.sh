#!/usr/bin/env bash
# bench/papers.sh: the workloads of the papers that nitro comes from. The papers' figures stand beside ours.
# They are the Nitro paper's experiments on the engine and on Couchbase's indexes, SLIK's figures, YCSB A
# and E, and ForestDB's readers and writer. Variables: ENGINE_ROWS, ROWS, SECONDS_EACH, REPETITIONS
# (docs/benchmarks.md).
set -euo pipefail
cd "$(dirname "$0")/.."
export ENGINE_ROWS=${ENGINE_ROWS:-10000000} ROWS=${ROWS:-1000000} SECONDS_EACH=${SECONDS_EACH:-3} REPETITIONS=${REPETITIONS:-3}
echo "building (release)"
target=${CARGO_TARGET_DIR:-$PWD/target}/bench
cargo build -q --release --manifest-path bench/engine/Cargo.toml --target-dir "$target"
bench/server/stage.sh
lscpu | sed -n 's/^Model name: */processor: /p; s/^CPU(s): */processors: /p'
echo "load of the machine before the start: $(cut -d' ' -f1 /proc/loadavg)"
"$target/release/nitro-bench" papers
bench/server/run.sh papers.sh

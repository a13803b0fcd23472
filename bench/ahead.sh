#!/usr/bin/env bash
# bench/ahead.sh: index scans that fetch rows of a table of ROWS rows, in another order than its own, all of it in memory: by
# btree, by nitro, and by nitro where nothing is asked for ahead (docs/benchmarks.md).
set -euo pipefail
cd "$(dirname "$0")/.."
export ROWS=${ROWS:-4000000} repetitions=${REPETITIONS:-5}
echo "building (release)"
bench/server/stage.sh
lscpu | sed -n 's/^Model name: */processor: /p; s/^CPU(s): */processors: /p'
echo "load of the machine before the start: $(cut -d' ' -f1 /proc/loadavg)"
bench/server/run.sh ahead.sh

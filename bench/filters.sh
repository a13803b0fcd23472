#!/usr/bin/env bash
# bench/filters.sh: conditions on a column behind a range, by btree and by nitro (docs/benchmarks.md). ROWS rows.
set -euo pipefail
cd "$(dirname "$0")/.."
export ROWS=${ROWS:-1000000} repetitions=${REPETITIONS:-5}
echo "building (release)"
bench/server/stage.sh
lscpu | sed -n 's/^Model name: */processor: /p; s/^CPU(s): */processors: /p'
echo "load of the machine before the start: $(cut -d' ' -f1 /proc/loadavg)"
bench/server/run.sh filters.sh

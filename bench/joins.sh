#!/usr/bin/env bash
# bench/joins.sh: nested loops that look PROBES outer rows up in a table of ROWS rows, all of it in memory: by btree and by nitro
# (docs/benchmarks.md).
set -euo pipefail
cd "$(dirname "$0")/.."
export ROWS=${ROWS:-10000000} PROBES=${PROBES:-1000000} repetitions=${REPETITIONS:-5}
echo "building (release)"
bench/server/stage.sh
lscpu | sed -n 's/^Model name: */processor: /p; s/^CPU(s): */processors: /p'
echo "load of the machine before the start: $(cut -d' ' -f1 /proc/loadavg)"
bench/server/run.sh joins.sh

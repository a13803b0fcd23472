#!/usr/bin/env bash
# bench/vacuum.sh: VACUUM after a tenth of ROWS rows was deleted in one range, by btree and by nitro (docs/benchmarks.md).
set -euo pipefail
cd "$(dirname "$0")/.."
export ROWS=${ROWS:-10000000} repetitions=${REPETITIONS:-3}
echo "building (release)"
bench/server/stage.sh
lscpu | sed -n 's/^Model name: */processor: /p; s/^CPU(s): */processors: /p'
echo "load of the machine before the start: $(cut -d' ' -f1 /proc/loadavg)"
bench/server/run.sh vacuum.sh

#!/usr/bin/env bash
# bench/partitions.sh: what the first planning on PARTITIONS partitions costs after a crash, beside what it costs when
# all indexes are ready (docs/benchmarks.md). REPETITIONS: of each; the median counts.
set -euo pipefail
cd "$(dirname "$0")/.."
export PARTITIONS=${PARTITIONS:-1000}
echo "building (release)"
bench/server/stage.sh
lscpu | sed -n 's/^Model name: */processor: /p; s/^CPU(s): */processors: /p'
echo "load of the machine before the start: $(cut -d' ' -f1 /proc/loadavg)"
bench/server/run.sh partitions.sh

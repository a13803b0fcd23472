#!/usr/bin/env bash
# bench/images.sh: what images of nitro indexes cost and what they save, as tables in Markdown. docs/benchmarks.md
# says what is measured. ROWS, REPETITIONS, PGBENCH_SECONDS: sizes.
set -euo pipefail
cd "$(dirname "$0")/.."
export ROWS=${ROWS:-10000000}
echo "building (release)"
bench/server/stage.sh
begin=$SECONDS
lscpu | sed -n 's/^Model name: */processor: /p; s/^CPU(s): */processors: /p'
echo "load of the machine before the start: $(cut -d' ' -f1 /proc/loadavg)"
bench/server/run.sh images.sh
echo "measured in $((SECONDS - begin)) s"

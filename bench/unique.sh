#!/usr/bin/env bash
# bench/unique.sh: what uniqueness adds to an insert, nitro beside btree, in a server of its own (PG_CONFIG: 18 or later).
# ROWS rows into an index that has as many; docs/benchmarks.md says how to read it.
set -euo pipefail
cd "$(dirname "$0")/.."
export ROWS=${ROWS:-1000000}
echo "building (release)"
bench/server/stage.sh
lscpu | sed -n 's/^Model name: */processor: /p; s/^CPU(s): */processors: /p'
echo "load of the machine before the start: $(cut -d' ' -f1 /proc/loadavg)"
bench/server/run.sh unique.sh

#!/usr/bin/env bash
# bench/inserts.sh: statements of many rows: the indexes' part of their time, one by one, with entries
# that wait, and btree's; the memory that a load leaves (docs/benchmarks.md). ROWS, ROUNDS.
# PARTS: some of statements, and copy under ten indexes with its WAL.
set -euo pipefail
cd "$(dirname "$0")/.."
export ROWS=${ROWS:-2000000} ROUNDS=${ROUNDS:-3} PARTS=${PARTS:-statements copy}
echo "building (release)"
bench/server/stage.sh
lscpu | sed -n 's/^Model name: */processor: /p; s/^CPU(s): */processors: /p'
echo "load of the machine before the start: $(cut -d' ' -f1 /proc/loadavg)"
bench/server/run.sh inserts.sh

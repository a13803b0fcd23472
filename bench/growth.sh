#!/usr/bin/env bash
# bench/growth.sh: how costs grow by what GROWS says: with the rows of a table (up to ROWS), with the number of its indexes
# (INSERT_ROWS are inserted), with the length of keys or with the number of clients (docs/benchmarks.md).
set -euo pipefail
cd "$(dirname "$0")/.."
export GROWS=${GROWS:-rows} ROWS=${ROWS:-10000000} INSERT_ROWS=${INSERT_ROWS:-100000}
echo "building (release)"
bench/server/stage.sh
bench/server/run.sh growth.sh

#!/usr/bin/env bash
# bench/growth.sh: how costs grow with what GROWS says (docs/benchmarks.md):
# - rows: with the rows of a table, up to ROWS
# - indexes: with the number of its indexes; INSERT_ROWS are inserted
# - keys, clients: with the length of keys, with the number of clients
# - steady: memory of indexes while rows come steadily and no VACUUM runs
set -euo pipefail
cd "$(dirname "$0")/.."
export GROWS=${GROWS:-rows} ROWS=${ROWS:-10000000} INSERT_ROWS=${INSERT_ROWS:-100000}
echo "building (release)"
bench/server/stage.sh
bench/server/run.sh growth.sh

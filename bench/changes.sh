#!/usr/bin/env bash
# bench/changes.sh: which part of an image is written after which changes, as a table in Markdown, and
# what the files of the index take. docs/benchmarks.md says what is measured. ROWS: 2000000.
set -euo pipefail
cd "$(dirname "$0")/.."
export ROWS=${ROWS:-2000000}
echo "building (release)"
bench/server/stage.sh
lscpu | sed -n 's/^Model name: */processor: /p; s/^CPU(s): */processors: /p'
bench/server/run.sh changes.sh

#!/usr/bin/env bash
# bench/server/stage.sh: builds nitro for the server of $PG_CONFIG, and installs it into a mirror of that
# server. The default is a release build of PostgreSQL 18 if ci/pg.sh can make one. The mirror is in
# target/bench/server, or in $BENCH_DIR. The user that runs the server can read the folder.
set -euo pipefail
cd "$(dirname "$0")/../.."
dir=${BENCH_DIR:-$PWD/target/bench/server}
mkdir -p "$dir"
: "${PG_CONFIG:=$(ci/pg.sh 18-release || ci/pg.sh system)}"
ci/stage.sh "$PG_CONFIG" "$dir" release > "$dir/bindir"

#!/usr/bin/env bash
# bench/server/stage.sh: build nitro for the server of $PG_CONFIG, by default a release build of PostgreSQL 18 if that can
# be had, and install it into a mirror of that server in target/bench/server, or where $BENCH_DIR says; the folder is
# readable for the user who runs the server.
set -euo pipefail
cd "$(dirname "$0")/../.."
dir=${BENCH_DIR:-$PWD/target/bench/server}
mkdir -p "$dir"
: "${PG_CONFIG:=$(ci/pg.sh 18-release || ci/pg.sh system)}"
ci/stage.sh "$PG_CONFIG" "$dir" release > "$dir/bindir"

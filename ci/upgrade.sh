#!/usr/bin/env bash
# ci/upgrade.sh [PG_CONFIG]: data directories of 0.1.0 under this library, and back (tests/upgrade/first.sh). That version
# is built from this repository's history, for PostgreSQL 15 to 18, so `make test` does without.
set -euo pipefail
cd "$(dirname "$0")/.."
first=fd56a27
pgc=${1:-$(ci/pg.sh 18)}
major=$($pgc --version | sed -E 's/^[^0-9]*([0-9]+).*/\1/')
t=$(mktemp -d /tmp/nitro-first.XXXXXX); chmod 755 "$t"
trap 'git worktree remove --force "$t/source"; rm -rf "$t"' EXIT
git worktree add -q --detach "$t/source" $first
target=$PWD/target/first
(cd "$t/source" && PGRX_PG_CONFIG_PATH=$pgc cargo build -q --target-dir "$target" \
    --ignore-rust-version --no-default-features --features "pg$major")
# The server of this version, with the files of the first one in the places of its own.
bin=$(ci/stage.sh "$pgc" "$t/server" dev)
install -m 755 "$target/debug/libnitro.so" "$t/server$($pgc --pkglibdir)/nitro.so"
extension=$t/server$($pgc --sharedir)/extension
install -m 644 "$t/source/extension/nitro.control" "$extension/"
cat "$t"/source/extension/{nitro,opclasses,arrays}.sql > "$extension/nitro--0.1.0.sql"
NITRO_FIRST=$bin ci/check.sh "$pgc" tests/upgrade/first.sh

#!/usr/bin/env bash
# ci/upgrade.sh [PG_CONFIG [VERSION...]]: data directories of released versions (default: all) under this
# library, and back (tests/upgrade/first.sh). The versions are built from this repository's history, so
# `make test-all` does without. 0.1.0 is for PostgreSQL 15 to 18.
set -euo pipefail
cd "$(dirname "$0")/.."
declare -A commits=([0.1.0]=fd56a27 [0.2.0]=f7c6fcf)
pgc=${1:-$(ci/pg.sh 18)}
[ $# = 0 ] || shift
versions=("$@"); [ $# != 0 ] || versions=(0.1.0 0.2.0)
major=$($pgc --version | sed -E 's/^[^0-9]*([0-9]+).*/\1/')
t=$(mktemp -d /tmp/nitro-first.XXXXXX); chmod 755 "$t"
trap 'for v in "${versions[@]}"; do [ ! -d "$t/$v" ] || git worktree remove --force "$t/$v"; done; rm -rf "$t"' EXIT
for v in "${versions[@]}"; do
    git worktree add -q --detach "$t/$v" "${commits[$v]}"
    target=$PWD/target/released-$v
    (cd "$t/$v" && PGRX_PG_CONFIG_PATH=$pgc cargo build -q --target-dir "$target" \
        --ignore-rust-version --no-default-features --features "pg$major")
    # The server of this version, with the released version's files in the places of its own.
    bin=$(ci/stage.sh "$pgc" "$t/server-$v" dev)
    install -m 755 "$target/debug/libnitro.so" "$t/server-$v$($pgc --pkglibdir)/nitro.so"
    extension=$t/server-$v$($pgc --sharedir)/extension
    install -m 644 "$t/$v/extension/nitro.control" "tests/upgrade/nitro--$v.sql" "$extension/"
    NITRO_FIRST=$bin NITRO_FIRST_VERSION=$v ci/check.sh "$pgc" tests/upgrade/first.sh
done

#!/usr/bin/env bash
# ci/core.sh: PostgreSQL's own regression and isolation tests with nitro substituted for btree, compared
# with the same tests without it (tests/core/run.sh). It runs on PostgreSQL 18 with assertions; PG="18
# debian" chooses servers. UPDATE=1 writes the list of explained differences anew.
set -euo pipefail
cd "$(dirname "$0")/.."
list=tests/core/explained.txt
copy=$(mktemp); trap 'rm -f "$copy"' EXIT       # the tests run as a user who may not write here
failed=()
for v in ${PG:-18}; do
    pgc=$(ci/pg.sh "$v")
    source=$(ci/source.sh "$($pgc --version | sed -E 's/^[^0-9]*([0-9.]+).*/\1/')")
    cp "$list" "$copy"; chmod 666 "$copy"
    NITRO_SOURCE=$source NITRO_EXPLAINED=$copy NITRO_TEST_TIMEOUT=3600 \
        ci/check.sh "$pgc" tests/core/run.sh || failed+=("$v")
    [ -z "${UPDATE:-}" ] || cp --no-preserve=mode "$copy" "$list"
done
[ ${#failed[@]} = 0 ] || { echo "failed: PostgreSQL ${failed[*]}"; exit 1; }

#!/usr/bin/env bash
# ci/pg_upgrade.sh [OLD NEW]: pg_upgrade of a cluster with nitro indexes from one major version to another
# (17 and 18). It uses each way in which pg_upgrade moves files (tests/upgrade/major.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
old=$(ci/pg.sh "${1:-17}") new=$(ci/pg.sh "${2:-18}")
t=$(mktemp -d /tmp/nitro-major.XXXXXX); chmod 755 "$t"
trap 'rm -rf "$t"' EXIT
bin=$(ci/stage.sh "$old" "$t/server" dev)
# The extension in its first version, to be updated after the upgrade.
install -m 644 tests/upgrade/nitro--0.1.0.sql "$t/server$($old --sharedir)/extension/"
NITRO_OLD=$bin ci/check.sh "$new" tests/upgrade/major.sh

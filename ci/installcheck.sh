#!/usr/bin/env bash
# ci/installcheck.sh PG_CONFIG: regression tests against a running server that has nitro installed and
# preloaded. It makes the database "contrib_regression" and drops all that it made. It connects as a
# superuser, by PGHOST, PGPORT and PGUSER.
set -euo pipefail
cd "$(dirname "$0")/.."
pgc=${1:?usage: ci/installcheck.sh PG_CONFIG}
x=$($pgc --pkglibdir)/pgxs/src/test/regress/pg_regress out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
[ -x "$x" ] || { echo "pg_regress is missing: install the server's development package"; exit 1; }
[ "$(psql -XAtd postgres -c "SELECT count(*) FROM pg_settings WHERE name = 'nitro.max_memory'")" = 1 ] ||
    { echo "the server does not preload nitro: see docs/install.md"; exit 1; }
"$x" --inputdir=. --outputdir="$out" --bindir="$($pgc --bindir)" --dbname=contrib_regression --encoding=UTF8 --no-locale \
    --load-extension=nitro basic keys multicolumn partial arrays jsonb verify fields || { cat "$out/regression.diffs"; exit 1; }

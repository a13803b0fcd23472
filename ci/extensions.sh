#!/usr/bin/env bash
# ci/extensions.sh PG_CONFIG DIR: adds other extensions to the mirror that ci/stage.sh made under DIR:
# pg_partman, pg_repack, HypoPG and PgBouncer. They come from this Debian's packages for its own server.
# Nothing is installed. The unpacked files are kept in the folder of ci/cache.sh. Status 3: this server is
# not Debian's, or the packages cannot be fetched now.
set -euo pipefail
pgc=${1:?usage: ci/extensions.sh PG_CONFIG DIR} dir=$2
major=$("$pgc" --version | sed -E 's/^PostgreSQL ([0-9]+).*/\1/')
[ "$("$pgc" --bindir)" = "/usr/lib/postgresql/$major/bin" ] || { echo "ci/extensions.sh: PostgreSQL $major is not Debian's here" >&2; exit 3; }

. "$(dirname "$0")/cache.sh"
unpacked=$cache/beside-$major
exec 9> "$cache/beside.lock"; flock 9       # one at a time; the others take its result
if [ ! -d "$unpacked" ]; then
    work=$(mktemp -d "$cache/beside.XXXXXX"); trap 'rm -rf "$work"' EXIT
    packages=("postgresql-$major-partman" "postgresql-$major-repack" "postgresql-$major-hypopg" pgbouncer libc-ares2 libevent-2.1-7)
    (cd "$work" && apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 download "${packages[@]}") ||
        { echo "ci/extensions.sh: the packages cannot be had now" >&2; exit 3; }
    for p in "$work"/*.deb; do dpkg-deb -x "$p" "$work/root"; done
    # The tested versions, for the log.
    for p in "$work"/*.deb; do dpkg-deb -W --showformat='${Package} ${Version}\n' "$p"; done > "$work/root/versions"
    chmod -R a+rX "$work/root"
    mv "$work/root" "$unpacked"              # appears whole or not at all
fi
cp -r "$unpacked/usr/lib/postgresql/$major/." "$dir/usr/lib/postgresql/$major/"
cp -r "$unpacked/usr/share/postgresql/$major/." "$dir/usr/share/postgresql/$major/"
mkdir -p "$dir/pgbouncer"
cp "$unpacked/usr/sbin/pgbouncer" "$dir/pgbouncer/"
find "$unpacked/usr/lib" -name 'lib*.so.*' -exec cp -P -t "$dir/pgbouncer" {} +
cat "$unpacked/versions"

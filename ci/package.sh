#!/usr/bin/env bash
# ci/package.sh PG_CONFIG: makes the Debian packages for one server, installs them beside a copy of it, uses
# the extension there, and removes them. First it checks that all files have one version. It reads the steps
# of the Dockerfile and does the same. PROFILE=dev
set -euo pipefail
cd "$(dirname "$0")/.."
pgc=${1:?usage: ci/package.sh PG_CONFIG}
version=$(sed -n "s/^default_version = '\(.*\)'/\1/p" extension/nitro.control)
for file in Cargo.toml:version META.json:'"version":'; do # the first one is the workspace's
    grep -m 1 -E "^ *${file#*:}" "${file%%:*}" | grep -qF "\"$version\"" || { echo "FAILED: ${file%%:*} is not of version $version"; exit 1; }
done
command -v dpkg-deb > /dev/null && command -v objcopy > /dev/null || { echo "left out: no dpkg-deb and objcopy"; exit 0; }
[ "$(id -u)" = 0 ] || command -v fakeroot > /dev/null || { echo "left out: neither root nor fakeroot"; exit 0; }
t=$(mktemp -d /tmp/nitro-package.XXXXXX); chmod 755 "$t"
as=()
# PostgreSQL refuses to run as root.
if [ "$(id -u)" = 0 ]; then
    user=postgres; id -u postgres > /dev/null 2>&1 || user=nobody
    as=(setpriv --reuid=$user --regid="$(id -g $user)" --clear-groups)
fi
bin=$($pgc --bindir) lib=$($pgc --pkglibdir) share=$($pgc --sharedir) root=$t/root
server() { (cd "$t/run" && "${as[@]}" env PATH="$root$bin:$PATH" "$@"); }
end() { server pg_ctl -D data -m immediate stop > /dev/null 2>&1 || true; rm -rf "$t"; }
trap end EXIT
mkdir -p "$root$bin" "$root$lib" "$root$share" "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates" "$t/run"
[ ${#as[@]} = 0 ] || chown "$user" "$t/run"
cp -L "$bin"/* "$root$bin/"; cp -rsf "$lib/." "$root$lib/"; cp -rsf "$share/." "$root$share/"
near=$(dirname "$(dirname "$(dirname "$bin")")")/pgserver.libs     # as in ci/stage.sh
[ ! -d "$near" ] || ln -s "$near" "$root$near"
# On this server nitro may have been installed by hand: the copies begin without it.
rm -f "$root$lib/nitro.so" "$root$share"/extension/nitro*
: > "$root/var/lib/dpkg/status"; : > "$root/var/lib/dpkg/available"
before=$(cd "$root" && find . \( -type f -o -type l \) -not -path './var/lib/dpkg/*' | sort)

mapfile -t packages < <(PROFILE=${PROFILE:-dev} ci/deb.sh "$pgc" "$t/deb")
[ ${#packages[@]} = 2 ] || { echo "FAILED: ${#packages[@]} packages"; exit 1; }
dpkg-deb -I "${packages[0]}" | grep -E '^ (Package|Version|Depends):'
manage() { # DPKG OPTIONS: as root, or as somebody who seems to be
    local who=()
    [ "$(id -u)" = 0 ] || who=(fakeroot)
    "${who[@]}" dpkg --root="$root" --log=/dev/null --force-depends --force-not-root "$@" > "$t/dpkg.log" 2>&1 || { cat "$t/dpkg.log"; exit 1; }
}
# The steps of deploy/Dockerfile, below a folder of ours. The Dockerfile's own folders are Debian's.
docker=$(sed -e ':a' -e '/\\$/N; s/\\\n/ /; ta' deploy/Dockerfile)
step() { # BEGINNING [INSTEAD]: a step of the Dockerfile as a command
    local found
    found=$(sed -n "s|^$1|${2:-}|p" <<< "$docker" | sed -E "s#/(root|volume|deb|tmp)\b#$t/docker/\1#g")
    [ -n "$found" ] || { echo "FAILED: the Dockerfile has no $1" >&2; return 1; }
    echo "$found"
}
major=$($pgc --version | sed -E 's/^[^0-9]*([0-9]+).*/\1/')
if [ "$bin" = "/usr/lib/postgresql/$major/bin" ]; then
    mkdir -p "$t/docker/root" "$t/docker/tmp"
    cp -r "$t/deb" "$t/docker/deb"
    command=$(step 'RUN ci/deb.sh [^&]*&&')
    PG_MAJOR=$major bash -euc "$command"
    command=$(step 'COPY --from=build /deb/' 'cp /deb/')
    bash -euc "$command"
    command=$(step 'RUN dpkg' 'manage')
    eval "$command"
    cmp "$t/docker/volume/lib/nitro.so" "$root$lib/nitro.so"
    cmp LICENSE "$t/docker/volume/licenses/nitro/LICENSE"
    grep -q '"name": "pgrx"' "$t/docker/volume/licenses/nitro.cdx.json" || { echo "FAILED: the bill of materials has no pgrx"; exit 1; }
    for file in "$root$share"/extension/nitro*; do cmp "$file" "$t/docker/volume/share/extension/${file##*/}"; done
    manage -i "${packages[1]}"
else
    manage -i "${packages[@]}"
fi
[ -f "$root$lib/nitro.so" ] && [ -f "$root$share/extension/nitro.control" ] || { echo "FAILED: not installed"; exit 1; }
! readelf -S "$root$lib/nitro.so" | grep -q ' \.debug_info' || { echo "FAILED: not stripped"; exit 1; }
lines() { # LIBRARY ROOT: do the symbols below ROOT say in which line its _PG_init begins?
    local id address line
    id=$(readelf -n "$1" | sed -n 's/.*Build ID: //p')
    address=$(nm -D --defined-only "$1" | sed -n 's/^\([0-9a-f]*\) T _PG_init$/\1/p')
    line=$(addr2line -e "$2/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug" "$address") || true
    [[ $line =~ \.rs:[0-9] ]] || { echo "FAILED: no line for _PG_init, but: $line"; exit 1; }
}
lines "$root$lib/nitro.so" "$root"

# A release has another profile, which takes minutes. Here the library is one line of Rust.
mkdir -p "$t/line/src" "$t/line/bin" "$t/line/root"
{ printf '%s\n' '[package]' 'name = "nitro"' 'edition = "2024"' '[lib]' 'crate-type = ["cdylib"]' '[features]' 'default = []'
  for v in 15 16 17 18 19; do echo "pg$v = []"; done
  sed -n '/^\[profile\.release\]/,/^$/p' Cargo.toml; } > "$t/line/Cargo.toml"
echo '#[unsafe(no_mangle)] pub extern "C" fn _PG_init() {}' > "$t/line/src/lib.rs"
printf '%s\n' '#!/bin/sh' "[ \"\$1\" = metadata ] || cd '$t/line'" "exec '$(command -v cargo)' \"\$@\"" > "$t/line/bin/cargo"
chmod +x "$t/line/bin/cargo"
mapfile -t released < <(CARGO_PROFILE_RELEASE_LTO=off CARGO_TARGET_DIR=$t/line/target PATH=$t/line/bin:$PATH PROFILE=release ci/deb.sh "$pgc" "$t/line/deb")
[ ${#released[@]} = 2 ] || { echo "FAILED: ${#released[@]} packages in the release profile"; exit 1; }
for p in "${released[@]}"; do dpkg-deb -x "$p" "$t/line/root"; done
lines "$t/line/root$lib/nitro.so" "$t/line/root"

server initdb -D data -N -A trust > "$t/initdb.log"
printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$t/run'" "fsync = off" > "$t/conf"
server bash -c "cat '$t/conf' >> data/postgresql.conf"
options=$(step 'CMD \["postgres",')
server pg_ctl -D data -l log -o "$(tr -d '",]' <<< "$options")" -w start > /dev/null
command=$(step 'COPY \(deploy/[^ ]*\) /docker-entrypoint-initdb.d/.*' 'cp \1')
$command "$t/run/first.sql"
got=$(server psql -XAtq -h "$t/run" -d postgres -v ON_ERROR_STOP=1 -f first.sql \
    -c "CREATE TABLE t AS SELECT g AS i, g::text AS s FROM generate_series(1, 1000) g" -c "CREATE INDEX ON t USING nitro (i)" -c "CREATE INDEX ON t USING nitro (s)" \
    -c "SET enable_seqscan = off" -c "SELECT s FROM t WHERE i = 7 UNION ALL SELECT i::text FROM t WHERE s = '8' ORDER BY 1")
[ "$got" = $'7\n8' ] || { echo "FAILED: answers $got"; exit 1; }
server pg_ctl -D data -m fast stop > /dev/null
name=$(dpkg-deb -f "${packages[0]}" Package)
manage -r "$name-dbgsym" "$name"
after=$(cd "$root" && find . \( -type f -o -type l \) -not -path './var/lib/dpkg/*' | sort)
[ "$before" = "$after" ] || { diff <(echo "$before") <(echo "$after") || true; echo "FAILED: something is left"; exit 1; }
echo "installed, used and removed: ${packages[0]##*/}"

#!/usr/bin/env bash
# ci/pg.sh VERSION: print the pg_config of a PostgreSQL, building or fetching it when absent.
#   18, 17    Debian's source package, built with assertions
#   16        a whole installation shipped as a Python wheel (no Debian suite has 16)
#   debian    the newest server package of this Debian
#   system    pg_config on PATH if it has the server's headers, else as debian
# Results are kept in $NITRO_PG_CACHE. Its default is /var/cache/nitro/pg for root, because the
# tests then run as another user who cannot enter root's home, and ~/.cache/nitro/pg otherwise.
# A PostgreSQL of one's own serves as well: put a link to its prefix there, named by its version.
set -euo pipefail
v=${1:?usage: ci/pg.sh 18|17|16|debian|system}

debian_pg_config() {
    local p
    p=$(ls -d /usr/lib/postgresql/*/bin/pg_config 2>/dev/null | sort -V | tail -1)
    [ -n "$p" ] || { echo "ci/pg.sh: no server package of PostgreSQL here; run ci/deps.sh" >&2; exit 1; }
    echo "$p"
}
case $v in
    system)
        if [ -f "$(pg_config --includedir-server 2>/dev/null)/postgres.h" ]
        then command -v pg_config; else debian_pg_config; fi
        exit ;;
    debian) debian_pg_config; exit ;;
    16) ;;
    17) suite=trixie ;;
    18) suite=forky ;;
    *) echo "ci/pg.sh: unknown version $v" >&2; exit 2 ;;
esac

if [ "$(id -u)" = 0 ]; then cache=/var/cache/nitro/pg; else cache=${XDG_CACHE_HOME:-$HOME/.cache}/nitro/pg; fi
cache=${NITRO_PG_CACHE:-$cache}
mkdir -p "$cache"; cache=$(cd "$cache" && pwd)
p=$cache/$v
[ "$v" != 16 ] || p=$cache/16/pgserver/pginstall
[ ! -x "$p/bin/pg_config" ] || { echo "$p/bin/pg_config"; exit; }

exec 9> "$cache/lock"; flock 9              # one builder at a time; the others take its result
[ ! -x "$p/bin/pg_config" ] || { echo "$p/bin/pg_config"; exit; }
work=$cache/work; rm -rf "$work"; mkdir -p "$work"
if [ "$v" = 16 ]; then
    cd "$work"
    python3 -m pip download -q --no-deps -d . pgserver==0.1.4 >&2
    python3 -m zipfile -e pgserver-*.whl 16
    chmod -R a+rX 16
    chmod a+x 16/pgserver/pginstall/{bin/*,lib/postgresql/pgxs/src/test/*/*}
    mv 16 "$cache/16"
else
    echo "ci/pg.sh: building PostgreSQL $v with assertions in $cache (about four minutes)" >&2
    command -v apt-get > /dev/null ||
        { echo "ci/pg.sh: this needs apt-get; or put a PostgreSQL $v of your own at $p" >&2; exit 1; }
    # An apt of our own: another suite's sources, without touching the system's lists or needing rights.
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial"; touch "$work/status"
    site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Label: Debian' | head -1)
    # Before the first update the labels are not known.
    [ -n "$site" ] || site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | head -1)
    [ -n "$site" ] || { echo "ci/pg.sh: apt has no Debian mirror configured" >&2; exit 1; }
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    echo "deb-src $([ ! -f $keyring ] || echo "[signed-by=$keyring]") $site $suite main" \
        > "$work/sources.list"
    cat > "$work/apt.conf" <<E
Dir::State "$work"; Dir::State::Lists "$work/lists"; Dir::State::status "$work/status"; Dir::Cache "$work/cache";
Dir::Etc::sourcelist "$work/sources.list"; Dir::Etc::sourceparts "-";
Acquire::Check-Valid-Until "false"; Acquire::Languages "none"; Acquire::Retries "3"; APT::Sandbox::User "root";
E
    export APT_CONFIG=$work/apt.conf
    apt-get -qq update >&2
    (cd "$work" && apt-get -qq source --download-only "postgresql-$v" >&2)
    mkdir "$work/src" "$work/build"
    tar xjf "$work"/postgresql-"$v"_*.orig.tar.bz2 -C "$work/src" --strip-components=1
    cd "$work/build"
    "$work/src/configure" -q --prefix="$p" --without-icu --without-readline --without-zlib --enable-cassert \
        --enable-debug --enable-injection-points \
        CFLAGS="-O1 -g1 -fno-omit-frame-pointer" >&2
    # Silent but for errors: thousands of lines otherwise. MAKEFLAGS of a calling make must not leak in.
    unset MAKEFLAGS MAKELEVEL
    make -s -j"$(nproc)" > make.log 2>&1 && make -s -j"$(nproc)" -C contrib >> make.log 2>&1 ||
        { tail -50 make.log >&2; exit 1; }
    for d in . contrib src/test/modules/injection_points; do
        make -s -C $d install DESTDIR="$work/stage" >> make.log 2>&1 || { tail -50 make.log >&2; exit 1; }
    done
    mv "$work/stage$p" "$p"                 # appears whole or not at all
fi
cd /; rm -rf "$work"
echo "$p/bin/pg_config"

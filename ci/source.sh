#!/usr/bin/env bash
# ci/source.sh VERSION: prints the path of the archive with the source of a PostgreSQL. It fetches an absent
# archive.
#   19, 18, 17  the newest of Debian's source package of that major version
#   18.6        that minor version. If Debian no longer has it, the one that Debian has, with a message
# A major version that has no suite below is looked for in this Debian itself. Archives are kept in the
# folder of ci/cache.sh. You may put one of your own there as source-18.6.tar.bz2. It serves its major
# version if Debian lists a source that its mirror lacks. Without an archive, an older minor version is
# asked for that was once in the mirror.
set -euo pipefail
version=${1:?usage: ci/source.sh 18|18.6}
. "$(dirname "$0")/cache.sh"
major=${version%%.*}
case $major in
    19) suite=experimental ;;
    18) suite=forky ;;
    17) suite=trixie ;;
    16) suite= ;;
    *) suite=$(. /etc/os-release; echo "${VERSION_CODENAME:?}") ;;
esac
found=$cache/source-$version.tar.bz2
[ "$version" = "$major" ] || [ ! -f "$found" ] || { echo "$found"; exit; }
if [ -z "$suite" ] || ! command -v apt-get > /dev/null; then
    echo "ci/source.sh: no Debian suite with PostgreSQL $version at hand; put its source at $found" >&2; exit 1
fi

work=$(mktemp -d "$cache/source.XXXXXX"); trap 'rm -rf "$work"' EXIT
. "$(dirname "$0")/apt.sh"
own_apt "$work" "deb-src $suite"
(cd "$work" && apt-get -qq source --download-only "postgresql-$major" >&2) || {
    # Finding none is no failure.
    ours=$({ ls "$cache/source-$major".*.tar.bz2 2> /dev/null || true; } | sort -V | tail -1)
    if [ -z "$ours" ]; then
        # No list has its digest any more. This digest is from Debian's signed .dsc.
        case $major in
            17) before=17.11 digest=dd27f2b3c59e73ed14aa3324901242bf69a032a6347805f274e6260322d42979 ;;
            *) exit 1 ;;
        esac
        /usr/lib/apt/apt-helper download-file "${site%/}/pool/main/p/postgresql-$major/postgresql-${major}_$before.orig.tar.bz2" \
            "$work/before" "SHA256:$digest" >&2
        chmod 644 "$work/before"; ours=$cache/source-$before.tar.bz2
        mv "$work/before" "$ours"
    fi
    echo "ci/source.sh: Debian's source of PostgreSQL $major cannot be had, taking $ours" >&2
    echo "$ours"; exit
}
archive=$(ls "$work"/postgresql-"$major"_*.orig.tar.bz2)
got=${archive##*_} got=${got%.orig.tar.bz2}
[ "$version" = "$major" ] || [ "$version" = "$got" ] ||
    echo "ci/source.sh: Debian has no source of PostgreSQL $version any more, taking $got" >&2
chmod 644 "$archive"
mv "$archive" "$cache/source-$got.tar.bz2"      # appears whole or not at all
echo "$cache/source-$got.tar.bz2"

#!/usr/bin/env bash
# ci/deps.sh: installs the packages that building and testing needs on a Debian with a Rust toolchain. With
# everything present it does nothing and needs no rights.
set -euo pipefail

command -v cargo > /dev/null ||
    { echo "ci/deps.sh: no cargo: install Rust 1.95 or later, see https://rustup.rs" >&2; exit 1; }

server() { ls -d /usr/lib/postgresql/*/bin/postgres 2> /dev/null | sort -V | tail -1 | cut -d/ -f5; }
headers() { [ -n "$(server)" ] && [ -f "/usr/include/postgresql/$(server)/server/postgres.h" ]; }
libclang() { ls /usr/lib/llvm-*/lib/libclang*.so* /usr/lib/*/libclang-*.so* > /dev/null 2>&1; }

want=()
need() { command -v "$1" > /dev/null || want+=("$2"); }
need cc build-essential                 # links the extension; builds PostgreSQL with assertions
need make build-essential
need bison bison
need flex flex
need perl perl
need bzip2 bzip2
need setpriv util-linux
need localedef libc-bin
need ps procps
need valgrind valgrind                  # bench/check.sh
need gdb gdb                            # tests/steady.sh
need psql postgresql-client
python3 -c 'import ensurepip' 2> /dev/null || want+=(python3-venv)     # ci/pgspot.sh
[ -z "${MEASURE:-}" ] || { need pkg-config pkg-config; [ -f /usr/include/unicode/ucol.h ] || want+=(libicu-dev); }  # ci/pg.sh 18-release
[ -z "${LONG:-}" ] || need sqlsmith sqlsmith    # tests/sqlsmith.sh
[ -f /usr/share/i18n/locales/en_US ] || want+=(locales)     # for tests under a linguistic collation
libclang || want+=(libclang-dev)                            # bindgen reads PostgreSQL's headers with it
[ -n "$(server)" ] || want+=(postgresql)
[ ${#want[@]} -gt 0 ] || ! headers || exit 0

command -v apt-get > /dev/null ||
    { echo "ci/deps.sh: not a Debian; install by hand: ${want[*]} and PostgreSQL's server headers" >&2; exit 1; }
as=()
if [ "$(id -u)" != 0 ]; then
    command -v sudo > /dev/null ||
        { echo "ci/deps.sh: run it once as root, it has to install: ${want[*]} and the headers of PostgreSQL" >&2; exit 1; }
    as=(sudo)
fi
apt() { "${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 \
    -o Acquire::Retries=5 -o DPkg::Lock::Timeout=300 "$@" > /dev/null; }
echo "ci/deps.sh: installing ${want[*]:-} headers of PostgreSQL" >&2
apt update
[ ${#want[@]} = 0 ] || apt install -y --no-install-recommends "${want[@]}"
if ! headers; then
    # Headers of exactly the installed version: otherwise apt would upgrade a server that may be running.
    v=$(server) p=postgresql-server-dev-$(server)
    installed=$(dpkg-query -W -f '${Version}' "postgresql-$v")
    apt install -y --no-install-recommends "$p=$installed" || {
        echo "ci/deps.sh: the archive has no $p=$installed any more: upgrade postgresql-$v, then run this again" >&2; exit 1; }
fi
case $(server) in
    15|16|17|18|19) ;;
    *) echo "ci/deps.sh: PostgreSQL $(server) is installed; nitro needs 15 to 19" >&2; exit 1 ;;
esac

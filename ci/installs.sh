#!/usr/bin/env bash
# ci/installs.sh PG_CONFIG: tests the Makefile's install, uninstall and installcheck on copies of a server
# and of its build. Where it makes a difference, the user has neither rights nor cargo. PROFILE=dev
set -euo pipefail
cd "$(dirname "$0")/.."
pgc=${1:?usage: ci/installs.sh PG_CONFIG}
export PROFILE=${PROFILE:-dev}
fail() { echo "FAILED: $*"; exit 1; }
t=$(mktemp -d /tmp/nitro-installs.XXXXXX); chmod 755 "$t"
as=()
# Root may write everywhere, and PostgreSQL refuses to run as root.
if [ "$(id -u)" = 0 ]; then
    user=postgres; id -u postgres > /dev/null 2>&1 || user=nobody
    as=(setpriv --reuid=$user --regid="$(id -g $user)" --clear-groups)
fi
server() { (cd "$t/run" && "${as[@]}" env PATH="$bin:$PATH" "$@"); }
end() { server pg_ctl -D data -m immediate stop > /dev/null 2>&1 || true; chmod -R u+w "$t"; rm -rf "$t"; }
trap end EXIT
version=$(sed -n "s/^default_version = '\(.*\)'/\1/p" extension/nitro.control)
scripts=("nitro--$version.sql" nitro--{0.1.0,0.2.0}--"$version.sql")

# The build goes to a folder that the user can read. Its programs are only those that the Makefile names.
bin=$(ci/stage.sh "$pgc" "$t/server" "$PROFILE")
target=$(realpath "${CARGO_TARGET_DIR:-target}"); unset CARGO_TARGET_DIR
source=$t/source folder=$([ "$PROFILE" = dev ] && echo debug || echo "$PROFILE")
mkdir -p "$source/target/$folder" "$t/path" "$t/sudo" "$t/cargo" "$t/run"
cp -r Makefile extension ci "$source"
cp "${scripts[@]/#/$target/}" "$target/nitro.$PROFILE.built" "$source/target"
cp "$target/$folder/libnitro.so" "$source/target/$folder"
for program in bash cat env install make mv rm sed; do ln -s "$(command -v $program)" "$t/path"; done
printf '%s\n' '#!/bin/sh' "echo \"\$*\" >> '$t/run/sudo.log'" > "$t/sudo/sudo"
printf '%s\n' '#!/bin/sh' "echo \"\$*\" >> '$t/run/cargo.log'" > "$t/cargo/cargo"
chmod 755 "$t/sudo/sudo" "$t/cargo/cargo"
[ ${#as[@]} = 0 ] || chown "$user" "$t/run"
copy=$bin/pg_config lib=$("$bin/pg_config" --pkglibdir) share=$("$bin/pg_config" --sharedir)
case $lib in "$t"/*) ;; *) fail "the copy of the server is at $lib" ;; esac
with() { # PATH TARGET...: make, with these programs
    local path=$1; shift
    env PATH="$path" make -s --no-print-directory -C "$source" PG_CONFIG="$copy" "$@" > "$t/out" 2>&1
}
ordinary() { "${as[@]}" bash -c "$(declare -f with); source='$source' copy='$copy' t='$t/run'; with \"\$@\"" - "$@"; }
refused() { # OUT MESSAGE: what it said, and that it has changed nothing
    grep -qF "$2" "$1" || { cat "$1"; fail "not said: $2"; }
    [ "$(files)" = "$before" ] || fail "files have changed"
    [ ! -e "$t/run/cargo.log" ] || fail "built before it was refused"
}
files() { (cd "$t/server" && find . -type f -name '*nitro*' -printf '%p %m %s\n' | sort); }

# Uninstalled, and installed again by a user without cargo.
before=$(files)
[ "$(wc -l <<< "$before")" = $((2 + ${#scripts[@]})) ] || { echo "$before"; fail "not all files, or others"; }
with "$t/path" uninstall || { cat "$t/out"; fail "uninstall"; }
[ -z "$(files)" ] || { files; fail "left by uninstall"; }
with "$t/path" install || { cat "$t/out"; fail "install without cargo"; }
[ "$(files)" = "$before" ] || { files; fail "not installed as by ci/stage.sh"; }
cmp -s "$target/$folder/libnitro.so" "$lib/nitro.so" || fail "not the library that was built"

# A library for another server, for another version, and no library.
built=$source/target/nitro.$PROFILE.built
read -r _ major _ < "$built"
for other in "$version 14 $PROFILE" "0.0.9 $major $PROFILE"; do
    echo "$other" > "$built"
    ! with "$t/path" install || fail "installed: $other"
    refused "$t/out" "is not for this server: run \"make build\" first"
done
rm "$built"
! with "$t/path" install || fail "installed what was not built"
refused "$t/out" "there is no cargo here: run \"make build\" first"
cp "$target/nitro.$PROFILE.built" "$built"

# No rights: the Makefile refuses before it calls cargo, or calls sudo for the copying alone.
chmod -R a-w "$t/server"
before=$(files)
for goal in install uninstall; do
    ! ordinary "$t/path:$t/cargo" $goal || fail "$goal without rights"
    refused "$t/run/out" "cannot write to $lib, and there is no sudo: run \"make build\" as you are"
done
ordinary "$t/path:$t/sudo" install || { cat "$t/run/out"; fail "install with sudo"; }
[ "$(files)" = "$before" ] || fail "files have changed"
[ "$(cut -d' ' -f1 "$t/run/sudo.log" | tr '\n' ' ')" = "install mv install install " ] || { cat "$t/run/sudo.log"; fail "not those commands by sudo"; }

# The tests on a running server, which preloads nitro or does not.
server initdb -D data -U tester -N -A trust > "$t/initdb.log"
server bash -c "printf '%s\n' \"listen_addresses = ''\" \"unix_socket_directories = '$t/run'\" 'fsync = off' >> data/postgresql.conf"
server pg_ctl -D data -l log -w start > /dev/null
check() { PGHOST=$t/run PGUSER=tester PATH=$bin:$PATH make -s --no-print-directory installcheck PG_CONFIG="$copy" > "$t/out" 2>&1; }
! check || fail "installcheck without nitro"
grep -qF "the server does not preload nitro" "$t/out" || { cat "$t/out"; fail "not said that nitro is not preloaded"; }
server pg_ctl -D data -w -o "-c shared_preload_libraries=nitro" -l log restart > /dev/null
check || { cat "$t/out"; fail "installcheck"; }
grep -qE '^# All [0-9]+ tests passed|^ All [0-9]+ tests passed' "$t/out" || { cat "$t/out"; fail "installcheck ran nothing"; }
echo "installed, tested and removed by make: $($pgc --version)"

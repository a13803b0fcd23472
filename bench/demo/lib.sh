# bench/demo/lib.sh: throwaway servers in target/demo, for the programs beside this one.
# PG_CONFIG chooses the PostgreSQL, KEEP=1 leaves the servers running. PROFILE chooses how the library is built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
begin=$SECONDS
bold='' plain=''
[ ! -t 1 ] || { bold=$(tput bold 2> /dev/null || true) plain=$(tput sgr0 2> /dev/null || true); }
exec 3>&1                                     # `step` prints here, also if other output goes to a file
step() { printf '%s[%3ds] %s%s\n' "$bold" $((SECONDS - begin)) "$*" "$plain" >&3; }

profile=${PROFILE:-checker}                   # optimized, but not across crates, which would take minutes
step "building nitro ($profile): a minute or two, if nothing is built yet"
pgc=${PG_CONFIG:-$(ci/pg.sh system)}
mkdir -p target/demo; work=$PWD/target/demo
as=()
if [ "$(id -u)" = 0 ]; then                   # PostgreSQL refuses to run as root
    user=postgres; id -u postgres > /dev/null 2>&1 || user=nobody
    as=(setpriv --reuid=$user --regid="$(id -g $user)" --clear-groups)
    "${as[@]}" test -x "$work" || { work=$(mktemp -d /tmp/nitro-demo.XXXXXX); chmod 755 "$work"; }
fi
rm -rf "${work:?}"/*
build=$(mktemp); bin=$(ci/stage.sh "$pgc" "$work/server" "$profile" 2> "$build") || { cat "$build"; exit 1; }
rm "$build"
sock=$(mktemp -d /tmp/nitro-sock.XXXXXX)      # short: the path of a socket may have 107 bytes
[ ${#as[@]} = 0 ] || chown -R "$user" "$work" "$sock"
run() { "${as[@]}" env HOME="$work" RUST_BACKTRACE=0 PATH="$bin:$PATH" "$@"; }
export PGHOST=$sock PGPORT=5432 PGUSER=postgres PGDATABASE=postgres PGOPTIONS= PGCLIENTENCODING=UTF8
psql=(psql -X -q -v ON_ERROR_STOP=1)
sql() { "${psql[@]}" -A -t <<< "$*"; }

# A server has a NAME: its data are in $work/NAME, its log in $work/NAME.log.
start() { # NAME
    run "$bin/pg_ctl" -D "$work/$1" -l "$work/$1.log" -t 120 -w start > /dev/null || { tail "$work/$1.log"; exit 1; }
}
initialize() { # NAME: a server of default settings with nitro, which is not started
    run "$bin/initdb" -D "$work/$1" -U postgres -A trust -E UTF8 --locale=C.UTF-8 > /dev/null
    cat >> "$work/$1/postgresql.conf" <<E
shared_preload_libraries = 'nitro'
listen_addresses = ''
unix_socket_directories = '$sock'
E
}
kill_all() { # NAME: SIGKILL to every process of the server
    local p children
    p=$(head -n 1 "$work/$1/postmaster.pid"); children=$(ps -o pid= --ppid "$p")
    # shellcheck disable=SC2086  # several
    kill -STOP "$p"; kill -KILL "$p" $children 2> /dev/null || true      # stopped first: it starts no new ones
    while kill -0 "$p" 2> /dev/null; do sleep 0.05; done
    rm -f "$work/$1/postmaster.pid"
}
finish() {
    local status=$? file name
    for file in "$work"/*/postmaster.pid; do
        [ -f "$file" ] || continue
        name=$(basename "${file%/*}")
        if [ -n "${KEEP:-}" ] && [ $status = 0 ]; then
            echo "$name runs still: $bin/psql -h $sock -p $(sed -n 4p "$file") -U postgres"
            echo "stop it with: ${as[*]} $bin/pg_ctl -D $work/$name stop"
            continue
        fi
        run "$bin/pg_ctl" -D "$work/$name" -m immediate stop > /dev/null 2>&1 || true
        [ $status = 0 ] || { echo "the demo failed; last lines of the log of $name:"; tail -n 20 "$work/$name.log" 2> /dev/null || true; }
    done
    [ -n "${KEEP:-}" ] && [ $status = 0 ] || rm -rf "$sock" "${work:?}"/*
}
trap finish EXIT

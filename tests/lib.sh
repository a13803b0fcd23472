# tests/lib.sh: helpers of the server tests. A test is an executable in tests/ that ci/check.sh runs with
#   NITRO_BIN   bindir of a PostgreSQL that has nitro installed
#   NITRO_CONF  settings every server gets
#   NITRO_TMP   an empty folder of its own
#   NITRO_TEMPLATE  if there is one: what initdb makes
# and that begins with
#   . "$(dirname "$0")/lib.sh"
# It fails by its exit status; lines that begin with # are shown even when it passes. Servers have their
# sockets in NITRO_TMP and no TCP port. The functions work on the server $node (default: main).
#
#   new_server [-c SETTING]...      initdb and start           settings 'name = value'...   append, not applied
#   new_data [-c SETTING]...        only initdb, with the options in initdb_options
#   every_server+=(SETTING)         what all servers made from here on get
#   start | stop [fast] | restart   fast by default; stop immediate is a crash of the whole server
#   crash                           SIGKILL to the postmaster and all its children, as a power cut
#   kill_backend PID                SIGKILL to one backend; returns when the server has recovered, 1 if it was gone
#   sql 'STATEMENTS'                run, each in its own transaction, print bare rows; an error ends the test
#   sql_fails 'STATEMENT'           run, must fail; prints SQLSTATE and message
#   session NAME | tell NAME 'STATEMENT' | answer NAME | ask NAME 'STATEMENT' | end NAME
#                                   long-lived connections: ask = tell, then wait for the answer
#   setting NAME VALUE              by ALTER SYSTEM, without a restart
#   mechanism NAME                  switches a mechanism off (nitro.debug_break); none: all are on again, except
#                                   $NITRO_MUTANT
#   run FUNCTION [ARGUMENT]...      a schedule; SCHEDULE=word runs only those that have it in their line
#   sql_alone 'STATEMENT'           one that must be alone in a database
#   wait_until 'SELECT bool'        poll, at most three minutes
#   next_pids PID                   a FROM item with the PIDs p that come after that one
#   glance 'SELECT'                 its answer, or none after ten seconds: a stopped process may hold a lock it needs
#   assert_eq WHAT GOT WANT | fail WHY | note TEXT
#   major                           the server's version
#   random N                        sets REPLY to 0..N-1, the same in every run with $NITRO_SEED
set -euo pipefail
: "${NITRO_BIN:?run this through ci/check.sh}" "${NITRO_CONF:?}" "${NITRO_TMP:?}"
export PGHOST=$NITRO_TMP PGDATABASE=postgres PGUSER=postgres PGOPTIONS= PGCONNECT_TIMEOUT=30 LC_ALL=C
LONG=${LONG:-} node=main
NITRO_SEED=${NITRO_SEED:-$((SRANDOM % 1000000))}
RANDOM=$((NITRO_SEED % 32768))

note() { echo "# $*"; }
fail() {
    echo "FAILED at ${BASH_SOURCE[1]##*/}:${BASH_LINENO[0]}: $*" >&2
    exit 1
}
major() { "$NITRO_BIN/postgres" --version | sed -E 's/^[^0-9]*([0-9]+).*/\1/'; }
# A number near 0.618 N that has no divisor in common with N. Its multiples modulo N are all numbers below
# N. The first multiples are spread evenly.
stride() { # N
    local a b rest
    for ((REPLY = $1 * 618 / 1000 + 1; ; REPLY++)); do
        a=$1 b=$REPLY
        while [ "$b" != 0 ]; do rest=$((a % b)) a=$b b=$rest; done
        [ "$a" != 1 ] || return 0
    done
}
# The time, by $SECONDS, at which the test ends by LONG=MINUTES. LONG=1 is twenty minutes.
long_end() { REPLY=$((SECONDS + 60 * (${LONG:-1} > 1 ? ${LONG:-1} : 20))); }
random() { REPLY=$(((RANDOM << 15 | RANDOM) % $1)); }

# --- servers -----------------------------------------------------------------------------------------
data() { echo "$NITRO_TMP/$node.data"; }
# A port is here only the suffix of a socket's name. Each server of the test has one.
port() { local p; read -r p < "$(data)/nitro.port"; echo "$p"; }
settings() { printf '%s\n' "$@" >> "$(data)/postgresql.conf"; }

initdb_options=()
initdb_to() { "$NITRO_BIN/initdb" -D "$1" -U postgres -A trust -N -E UTF8 --no-locale "${initdb_options[@]}" > "$NITRO_TMP/initdb" || fail "initdb"; }
every_server=()
new_data() {
    local n conf=("${every_server[@]}")
    while [ "${1:-}" = -c ]; do conf+=("$2"); shift 2; done
    n=$(find "$NITRO_TMP" -maxdepth 1 -name '*.data' | wc -l)
    # The first server of a test comes from the template. Further ones need identifiers of their own.
    if [ "$n" = 0 ] && [ ${#initdb_options[@]} = 0 ] && [ -d "${NITRO_TEMPLATE:-}" ]; then cp -r "$NITRO_TEMPLATE" "$(data)"; else initdb_to "$(data)"; fi
    echo $((5432 + n)) > "$(data)/nitro.port"
    cat "$NITRO_CONF" >> "$(data)/postgresql.conf"
    settings "listen_addresses = ''" "unix_socket_directories = '$NITRO_TMP'" "port = $((5432 + n))" \
        "autovacuum = off" "log_line_prefix = '%m [%p] %b '" "max_connections = 50" "checkpoint_timeout = 1h" "${conf[@]}"
}
new_server() {
    new_data "$@"
    start
    sql "CREATE EXTENSION IF NOT EXISTS nitro"
}
start() {
    "$NITRO_BIN/pg_ctl" -D "$(data)" -l "$NITRO_TMP/$node.log" -t 300 -w start > "$NITRO_TMP/pg_ctl.out" ||
        { cat "$NITRO_TMP/pg_ctl.out"; fail "server $node does not start"; }
}
stop() {
    "$NITRO_BIN/pg_ctl" -D "$(data)" -t 300 -w -m "${1:-fast}" stop > "$NITRO_TMP/pg_ctl.out" ||
        { cat "$NITRO_TMP/pg_ctl.out"; fail "server $node does not stop"; }
}
restart() { stop "${1:-fast}"; start; }
postmaster() { head -n 1 "$(data)/postmaster.pid"; }
crash() {
    local p children
    p=$(postmaster)
    # Stopped first, so that it neither reaps nor starts children while all are killed.
    kill -STOP "$p"
    until [[ $(ps -o state= -p "$p") == T* ]]; do sleep 0.01; done
    children=$(ps -o pid= --ppid "$p")
    # The children first, so that none sees the end of its postmaster and ends in an orderly way.
    # shellcheck disable=SC2086
    kill -KILL $children "$p" 2> /dev/null || true
    for p in $p $children; do while kill -0 "$p" 2> /dev/null; do sleep 0.02; done; done
    rm -f "$(data)/postmaster.pid"
}
# The server restarts all its processes when one dies: wait until it answers again.
kill_backend() {
    local log=$NITRO_TMP/$node.log i from before
    from=$(wc -l < "$log") before=$(grep -c 'ready to accept connections' "$log")
    kill -KILL "$1" 2> /dev/null || return 1
    for i in $(seq 1800); do
        [ "$(grep -c 'ready to accept connections' "$log")" -le "$before" ] || return 0
        # It was about to exit by itself: it is gone, and the server reports no kill.
        if [ "$i" -gt 50 ] && ! kill -0 "$1" 2> /dev/null &&
            [ "$(tail -n +$((from + 1)) "$log" | grep -c "(PID $1) was terminated")" = 0 ]; then return 1; fi
        sleep 0.1
    done
    fail "no recovery within three minutes after backend $1 was killed"
}

# --- statements --------------------------------------------------------------------------------------
PSQL=(psql -X -A -t -q)
sql() { "${PSQL[@]}" -p "$(port)" -v ON_ERROR_STOP=1 <<< "$*" || fail "statement failed: $*"; }
sql_fails() {
    local out
    if out=$("${PSQL[@]}" -p "$(port)" -v ON_ERROR_STOP=1 -v VERBOSITY=verbose -c "$*" 2>&1); then
        fail "should have failed: $*"
    fi
    # A NOTICE or a WARNING before it is not the error.
    sed -nE 's/^(ERROR|FATAL|PANIC): *([0-9A-Z]{5}: .*)/\2/p' <<< "$out"
}
# The server waits five seconds for other sessions to leave the database. A builder leaves when asked, but
# not during an fsync, which takes longer on a bad disk.
sql_alone() {
    local out
    for _ in $(seq 6); do
        out=$("${PSQL[@]}" -p "$(port)" -v ON_ERROR_STOP=1 -c "$1" 2>&1) && return
        [[ $out == *"being accessed by other users"* ]] || break
    done
    fail "statement failed: $1: $out"
}
wait_until() {
    for _ in $(seq 1800); do
        [ "$("${PSQL[@]}" -p "$(port)" -c "$*" 2> /dev/null)" != t ] || return 0
        sleep 0.1
    done
    fail "still not true after three minutes: $*"
}
# They begin again at 300 where the kernel has no larger ones.
next_pids() {
    local end
    end=$(cat /proc/sys/kernel/pid_max 2> /dev/null || echo 100000)
    echo "(SELECT CASE WHEN p < $end THEN p ELSE p - $end + 300 END AS p FROM generate_series($1 + 1, $1 + 1500) p) p"
}
glance() { timeout 10 "${PSQL[@]}" -p "$(port)" -c "$1" 2> /dev/null || true; }
setting() {
    sql "ALTER SYSTEM SET $1 = '$2'; SELECT pg_reload_conf()" > /dev/null
    wait_until "SELECT current_setting('$1') = '$2'"
}
mechanism() { case $1 in none) setting nitro.debug_break "${NITRO_MUTANT:-none}" ;; *) setting nitro.debug_break "$1" ;; esac; }
run() { [[ "$*" != *${SCHEDULE:-}* ]] || "$@"; }
assert_eq() { [ "$2" = "$3" ] || fail "$1: got"$'\n'"$2"$'\n'"instead of"$'\n'"$3"; }

# --- long-lived sessions -----------------------------------------------------------------------------
declare -A session_in session_out session_pid
session() {
    local f=$NITRO_TMP/session.$1 in out
    mkfifo "$f.in" "$f.out"
    # The fifos are opened read-write here: no open can block, and no end of file comes in between.
    exec {in}<> "$f.in" {out}<> "$f.out"
    rm "$f.in" "$f.out"
    "${PSQL[@]}" -p "$(port)" <&"$in" >&"$out" 2>&1 {in}>&- {out}>&- &
    session_pid[$1]=$! session_in[$1]=$in session_out[$1]=$out
    ask "$1" "SELECT" > /dev/null
}
tell() { printf '%s\n;\n\\echo :end:\n' "$2" >&"${session_in[$1]}"; }
answer() {
    local line
    while IFS= read -r -t 180 -u "${session_out[$1]}" line || fail "session $1 does not answer"; do
        [ "$line" != :end: ] || return 0
        printf '%s\n' "$line"
    done
}
ask() { tell "$1" "$2"; answer "$1"; }
end() {
    local in=${session_in[$1]} out=${session_out[$1]}
    printf '\\q\n' >&"$in"; wait "${session_pid[$1]}" 2> /dev/null || true
    exec {in}>&- {out}>&-
    unset "session_in[$1]" "session_out[$1]" "session_pid[$1]"
}

# Whatever happens, no process outlives the test.
cleanup() {
    local status=$? d p
    trap - EXIT INT TERM
    for p in "${session_pid[@]}" $(jobs -p); do kill "$p" 2> /dev/null || true; done
    for d in "$NITRO_TMP"/*.data; do
        [ ! -f "$d/postmaster.pid" ] || "$NITRO_BIN/pg_ctl" -D "$d" -m immediate -w stop > /dev/null 2>&1 || true
    done
    [ $status = 0 ] || note "seed: NITRO_SEED=$NITRO_SEED"
    exit $status
}
trap cleanup EXIT
trap 'exit 130' INT TERM

#!/usr/bin/env bash
# From 18 on an extension may be outside of the server's folders, as in an image volume of CloudNativePG.
# The server finds it by extension_control_path and dynamic_library_path, and preloads it from there, also
# after a crash. See docs/kubernetes.md.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"
[ "$(major)" -ge 18 ] || { note "left out: before 18 an extension is in the server's folders"; exit 0; }

volume=$NITRO_TMP/volume
mkdir -p "$volume/lib" "$volume/share/extension"
cp "$("$NITRO_BIN/pg_config" --pkglibdir)/nitro.so" "$volume/lib/"
cp "$("$NITRO_BIN/pg_config" --sharedir)"/extension/nitro* "$volume/share/extension/"
new_server -c "extension_control_path = '$volume/share:\$system'" -c "dynamic_library_path = '$volume/lib:\$libdir'"
sql "CREATE TABLE t AS SELECT i, 'row ' || i AS s FROM generate_series(1, 5000) i; CREATE INDEX t_i_nitro ON t USING nitro (i); CREATE INDEX t_i_btree ON t (i)"
from() { # which library the server and a session that has called it have
    local own; own=$(ask session "SELECT pg_backend_pid() FROM nitro_memory")
    awk '/nitro\.so/ { print $6 }' "/proc/$(postmaster)/maps" "/proc/$own/maps" | sort -u
}
session session
assert_eq "the library" "$(from)" "$volume/lib/nitro.so"
same_answers t "SELECT i FROM t WHERE i BETWEEN 100 AND 900 ORDER BY i"
backup t_i_nitro
end session; crash; start; session session
same_answers t "SELECT i FROM t WHERE i BETWEEN 100 AND 900 ORDER BY i"
verified t
assert_eq "the library" "$(from)" "$volume/lib/nitro.so"
end session

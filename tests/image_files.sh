# tests/image_files.sh: images of indexes as a test sees them. Sourced after answers.sh; needs pageinspect.
#
#   in_folders                  each image has a folder of its own; the functions below that name one need it
#   imaged INDEX...             waits until each has its first image
#   image_since INDEX LSN       waits until it has an image from there or later
#   checkpointed INDEX...       CHECKPOINT, then waits until each has an image from after it
#   backup INDEX...             makes an image of each, here and now
#   tried INDEX                 what an attempt to make one says
#   no_builders                 waits until none is at work
#   image_lsn INDEX             the LSN of the newest image that the server knows
#   folder INDEX                where its images are;  newest INDEX: the folder of the newest one
#   generations INDEX           the numbers of its images, newest first
#   entry FOLDER NAME           a value of a manifest
#   edit_manifest FOLDER SED    changes a manifest and gives it a right checksum
#   images_right INDEX...       each has images, and every one is right
#   came_from INDEX FROM_LINE   "image" or "table": how it was brought up, by the log from there on
#   from_image INDEX FROM_LINE  it came from its image, or the log says that too many blocks had changed since
#   wrong TABLE 'QUERY'...      the answers must be wrong, or the index damaged
#   slow_table TABLE [ROWS]     a table of i and s whose image takes its time
#   words                       makes the collation words

in_folders() { every_server+=("nitro.debug_collect = off"); }
# A process that has made an image is done with the index: the next image can be made.
image_since() { wait_until "SELECT image_lsn >= '$2'::pg_lsn - '0/0' AND progress_pid IS NULL FROM nitro_index_stats() WHERE indexrelid = '$1'::regclass"; }
imaged() { local i; for i; do image_since "$i" 0/0; done; }
checkpointed() {
    local i lsn
    # A record of its own: the image before may be from this very LSN.
    lsn=$(sql "DO 'BEGIN PERFORM pg_current_xact_id(); END'; SELECT pg_current_wal_insert_lsn(); CHECKPOINT")
    for i; do image_since "$i" "$lsn"; done
}
# Another process may be making one at this moment.
backup() { local i; for i; do wait_until "SELECT nitro_backup('$i') = 1"; done; }
tried() {
    local out
    while out=$("${PSQL[@]}" -p "$(port)" -c "SELECT nitro_backup('$1')" 2>&1 || true); [[ $out == *"another process is making one"* ]]; do sleep 0.1; done
    echo "$out"
}
no_builders() { wait_until "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'nitro builder'"; }
images_right() {
    local i n
    for i; do n=$(sql "SELECT nitro_verify_images('$i')"); [ "$n" -gt 0 ] || fail "no image of $i"; done
}
image_lsn() { sql "SELECT image_lsn FROM pg_stat_nitro_indexes WHERE indexrelid = '$1'::regclass"; }
folder() {
    local id
    id=$(sql "SELECT d.oid || ' ' || encode(substring(get_raw_page('$1', 'main', 0) FROM 33 FOR 16), 'hex')
              FROM pg_database d WHERE datname = current_database()")
    # 128 bits in the machine's order of bytes.
    echo "$(data)/pg_nitro/${id% *}/$(fold -w2 <<< "${id#* }" | tac | tr -d '\n')"
}
generations() { local f; f=$(folder "$1"); find "$f" -name manifest -printf '%h\n' 2> /dev/null | sed 's|.*/||' | sort -rn | xargs; }
newest() { local all; all=$(generations "$1"); echo "$(folder "$1")/${all%% *}"; }
entry() { sed -n "s/^$2 //p" "$1/manifest"; }
edit_manifest() {
    local f=$1/manifest
    sed -e '$d' "$f" | sed "$2" > "$f.text"
    # The checksum of gzip is the one that manifests have.
    { cat "$f.text"; printf 'crc32 %s\n' "$(gzip -c < "$f.text" | tail -c 8 | od -A n -t x4 -N 4 | tr -d ' ')"; } > "$f"
    rm "$f.text"
}
came_from() {
    local image table
    image=$(logged "nitro index \"$1\" loaded from its image" "$2") table=$(logged "nitro index \"$1\" rebuilt from its table" "$2")
    case $image$table in
        10) echo image ;;
        01) echo table ;;
        *) echo "$image times its image, $table times its table" ;;
    esac
}
from_image() {
    local source blocks
    source=$(came_from "$1" "$2")
    [ "$source" = table ] || { assert_eq "$1 came from" "$source" image; return; }
    blocks=$(tail -n "+$(($2 + 1))" "$NITRO_TMP/$node.log" | sed -n "s/.*nitro index \"$1\": its image is not loaded: \([0-9]* of [0-9]*\) blocks have changed since it was made.*/\1/p" | tail -n 1)
    # A small table is never read in place of its image. Neither is a table that is mostly unchanged.
    [ -n "$blocks" ] && [ "${blocks#* of }" -ge 256 ] && [ "${blocks% of *}" -gt $((${blocks#* of } / 4)) ] || fail "$1 is from its table: ${blocks:-nobody knows why}"
}
wrong() {
    local why
    if why=$( (trap - EXIT; verified "$1"; same_answers "$@") 2>&1); then fail "right answers of $1, although a mechanism is off"; fi
    [[ $why =~ "another answer by"|"is damaged" ]] || fail "another failure than expected: $why"
}
# The long columns do not compress, so an image at 1 MB a second takes its time.
slow_table() {
    sql "CREATE TABLE $1 (i int, s text); INSERT INTO $1 SELECT i, md5(i::text) || md5((i + 1)::text) || md5((-i)::text) FROM generate_series(1, ${2:-60000}) i"
}
# A linguistic order where the machine has one: only a comparison function knows it.
words() {
    sql "DO 'BEGIN CREATE COLLATION IF NOT EXISTS words (provider = libc, locale = ''en_US.UTF-8'');
         EXCEPTION WHEN OTHERS THEN CREATE COLLATION IF NOT EXISTS words FROM \"C\"; END'"
}

# Titles, samples, sizes: the table of the server's measures.
function sorted_insert(key, value,    i) {
    for (i = ++n[key]; i > 1 && list[key, i - 1] > value; i--) list[key, i] = list[key, i - 1]
    list[key, i] = value
}
function best(key) { return list[key, 1] }
function median(key) { return list[key, int(n[key] / 2) + 1] }
function cell(m, am, basis,    b, d) {
    b = best(m SUBSEP am SUBSEP basis) - base[m, basis]
    d = median(m SUBSEP am SUBSEP basis) - base[m, basis]
    return sprintf("%9.3f /%9.3f", b * scale[m], d * scale[m])
}
function ratio(m, basis) {
    return (best(m SUBSEP "btree" SUBSEP basis) - base[m, basis]) / (best(m SUBSEP "nitro" SUBSEP basis) - base[m, basis])
}
FILENAME != file { file = FILENAME; part++ }
part == 1 { order[++measures] = $1; title[$1] = $2; scale[$1] = $3; floor[$1] = $4; basis[$1] = $5; three[$1] = $6 ~ /none/; next }
part == 2 {
    split($0, f, " ")
    sorted_insert(f[1] SUBSEP f[2] SUBSEP "cpu", f[3]); sorted_insert(f[1] SUBSEP f[2] SUBSEP "elapsed", f[4])
    sorted_insert(f[1] SUBSEP f[2] SUBSEP "wal", f[5]); next
}
{ size[++sizes] = sprintf("%-50s%20.1f%21.1f%10.2f", "size, " $1 ", bytes/entry", $2, $3, $3 / $2) }
END {
    print "best / median of the samples; ratio: btree / nitro of the best, above 1: nitro is better"
    printf "%-50s%20s%21s%10s%10s\n", "processor time of the backend", "nitro", "btree", "ratio", "elapsed"
    for (i = 1; i <= measures; i++) {
        m = order[i]
        base[m, "cpu"] = three[m] ? best(m SUBSEP "none" SUBSEP "cpu") : 0
        base[m, "elapsed"] = three[m] ? best(m SUBSEP "none" SUBSEP "elapsed") : 0
        r = ratio(m, basis[m])
        printf "%-50s%20s%21s%10.2f%10.2f%s\n", title[m] (three[m] ? " *" : "") (basis[m] == "elapsed" ? " **" : ""),
            cell(m, "nitro", basis[m]), cell(m, "btree", basis[m]), r, ratio(m, "elapsed"),
            floor[m] == "-" ? "" : "  (>= " floor[m] ")"
        if (floor[m] != "-" && r < floor[m]) short = short sprintf("\n  %s: %.2f, wanted %s", title[m], r, floor[m])
    }
    for (i = 1; i <= sizes; i++) print size[i]
    written = split("insert one update", writes, " ")
    for (i = 1; i <= written; i++) {
        m = writes[i]; count = m == "update" ? updates : rows
        wn = (best(m SUBSEP "nitro" SUBSEP "wal") - best(m SUBSEP "none" SUBSEP "wal")) / count
        wb = (best(m SUBSEP "btree" SUBSEP "wal") - best(m SUBSEP "none" SUBSEP "wal")) / count
        # The server writes a record now and then that is nobody's.
        if (wn < 0.005 && wn > -0.005) wn = 0
        printf "%-50s%20.2f%21.2f\n", "WAL of the indexes, bytes/row, " (m == "one" ? "one insert" : m), wn, wb
        if (wn >= 0.01) short = short sprintf("\n  WAL of nitro at %s: %.2f bytes/row, wanted 0", m, wn)
    }
    print "*  index part: less the same statement without indexes"
    print "** elapsed time, because of the workers"
    print short == "" ? "All goals reached." : "Short of the goal:" short
}

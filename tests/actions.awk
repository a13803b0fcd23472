# tests/actions.awk: the statements of one writer of differential.sh, the same for the same -v seed.
# -v n=NUMBER of actions, -v top=LARGEST id that may exist, -v copies=FILE: rows for COPY go to FILE.1, FILE.2, ...
function pick(m) { return int(rand() * m) }
function integer() { return rand() < 0.05 ? "NULL" : pick(2000) - 500 }
function word(  w) {
    w = words[1 + pick(count)]
    if (rand() < 0.3) w = w pick(40)
    if (rand() < 0.2) w = w " " words[1 + pick(count)]
    if (rand() < 0.01) w = "long" sprintf("%0" (300 + pick(1200)) "d", pick(1000))
    return w
}
function text() { return rand() < 0.05 ? "NULL" : "'" word() "'" }
function stamp() { return rand() < 0.05 ? "NULL" : "'2024-01-01'::timestamptz + interval '" pick(5000) " min'" }
function number() { return rand() < 0.05 ? "NULL" : (pick(200) - 100) substr(".0000", 1, pick(6)) }
function real() { return rand() < 0.05 ? "NULL" : rand() < 0.05 ? "'-0'" : rand() < 0.02 ? "'NaN'" : (pick(4000) - 2000) / 8 }
function row() { return "(" integer() ", " text() ", " stamp() ", " number() ", " real() ")" }
function rows(m,  s) { for (s = row(); m > 1; m--) s = s ", " row(); return s }
function where(width,  a) { a = 1 + pick(top); return "WHERE id BETWEEN " a " AND " (a + pick(width)) }
function change(  r) {
    r = rand()
    if (r < 0.22) return "INSERT INTO d (i, t, ts, n, f) VALUES " rows(1 + pick(8)) ";"
    if (r < 0.27) return "INSERT INTO d (i, t, ts, n, f) SELECT g % 700, 'bulk' || g % 50, '2024-02-01'::timestamptz + g * interval '1 s', g % 9, g FROM generate_series(1, " (1 + pick(300)) ") g;"
    if (r < 0.42) return "UPDATE d SET i = " integer() ", ts = " stamp() " " where(10) ";"
    if (r < 0.50) return "UPDATE d SET t = " text() ", n = " number() ", f = " real() " " where(20) ";"
    if (r < 0.56) return "UPDATE d SET i = i + 1 " where(100) ";"
    if (r < 0.72) return "UPDATE d SET pad = pad || '.' " where(20) ";"
    if (r < 0.76) return "SELECT count(*) FROM (SELECT 1 FROM d " where(50) " FOR UPDATE) s;"
    if (r < 0.90) return "DELETE FROM d " where(12) ";"
    return copy(1 + pick(30))
}
# The rows are in a file of their own: psql would run rows that follow a refused COPY as statements.
function copy(m,  s, file) {
    file = copies "." ++copied
    for (; m > 0; m--) s = s (rand() < 0.05 ? "\\N" : pick(3000)) "\t" word() "\t" (rand() < 0.05 ? "\\N" : "2024-01-0" (1 + pick(9))) "\n"
    printf "%s", s > file; close(file)
    return "\\copy d (i, t, ts) FROM '" file "'"
}
BEGIN {
    srand(seed)
    count = split("ost Ost OST öst été Été ete zebra Zebra co-op coop naïve naive straße strasse a A aa AA b B _x -x 9 10 ångström o'' Łódź 日本 ñandú nandu", words, " ")
    for (k = 0; k < n; k++) {
        r = rand()
        if (r < 0.6) print change()
        else {
            print "BEGIN" (rand() < 0.2 ? " ISOLATION LEVEL REPEATABLE READ" : "") ";"
            for (m = pick(4); m >= 0; m--) {
                print change()
                if (rand() < 0.3) { print "SAVEPOINT s;"; print change(); print (rand() < 0.6 ? "ROLLBACK TO s;" : "RELEASE s;") }
            }
            print (rand() < 0.3 ? "ROLLBACK;" : "COMMIT;")
        }
        if (rand() < 0.02) print "SELECT pg_sleep(0.02);"
    }
}

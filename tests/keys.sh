#!/usr/bin/env bash
# Randomized: every type whose keys are bytes, in every place of an index (ASC and DESC, NULLS FIRST and
# LAST, INCLUDE, several columns), built and inserted and packed. Sequential, index, index-only and bitmap
# scans and btree must agree, to the last digit shown. NITRO_SEED repeats a run. LONG=1 asks ten times as
# many queries.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
note "seed $NITRO_SEED"
indexes=${LONG:+300}; indexes=${indexes:-30}
new_server

# Of each type: values at the edges, between bars, and an expression for others.
declare -A type edges other
of() { type[$1]=$2 edges[$1]=$3 other[$1]=$4; } # COLUMN TYPE EDGES EXPRESSION
int="floor(exp(random() * 40) * sign(random() - 0.5))"
of bool bool "t|f" "random() < 0.5"
of char '"char"' "a|A|~| |\\377|\\200|\\001" "chr(32 + (random() * 94)::int)::text"
of int2 int2 "0|-1|63|64|-64|-65|32767|-32768|255|256" "($int::numeric % 32767)::int2"
of int4 int4 "0|-1|63|64|-64|-65|2147483647|-2147483648|65535|65536|-65536|-65537" "($int::numeric % 2147483647)::int4"
of int8 int8 "0|-1|63|64|-64|-65|9223372036854775807|-9223372036854775808|4294967296|-4294967297" "$int::int8"
of oid oid "0|1|63|64|4294967295|2147483648" "(random() * 4294967295)::int8::text::oid"
of money money "0|-0.01|0.63|0.64|92233720368547758.07|-92233720368547758.08" "(random() * 1000 - 500)::numeric(10, 2)::money"
of float4 float4 "0|-0|1|-1|NaN|Infinity|-Infinity|1e-45|-1e-45|3.4028235e38|-3.4028235e38" "exp(random() * 80 - 40) * sign(random() - 0.5)"
of float8 float8 "0|-0|1|-1|NaN|Infinity|-Infinity|5e-324|-5e-324|1.7976931348623157e308|-1.7976931348623157e308" "exp(random() * 800 - 400) * sign(random() - 0.5)"
of numeric numeric "0|0.0|0.000|1|1.0|-1|-1.00|NaN|Infinity|-Infinity|9999|10000|10000.0|0.0001|0.00010|0.00001|-0.00001|1e100|-1e-100|1e-100|1e-200|-1e-200|1e-1100|1e200|1e1100|-1e200|-1e1100|99999999|100000000" \
    "(random() - 0.5)::numeric * 10::numeric ^ ((random() * 40)::int - 20)"
of date date "epoch|-infinity|infinity|4713-01-01 BC|5874897-12-31|0001-12-31 BC|2000-01-01|1999-12-31" "'2000-01-01'::date + ((random() - 0.5) * 100000)::int"
of time time "00:00|24:00|23:59:59.999999|00:00:00.000001|12:00" "'00:00'::time + random() * interval '24 hours'"
of timetz timetz "00:00+00|24:00+00|12:00+00|13:00+01|11:00-01|12:00+15:59|12:00-15:59|00:00+15|23:59:59.999999-15" "(('00:00'::time + random() * interval '24 hours')::text || to_char(floor(random() * 30) - 15, 'S00'))::timetz"
of timestamp timestamp "epoch|-infinity|infinity|4713-01-01 BC|2000-01-01|1999-12-31 23:59:59.999999|294276-12-31" "'2000-01-01'::timestamp + (random() - 0.5) * interval '100 years'"
of timestamptz timestamptz "epoch|-infinity|infinity|4713-01-02 BC|2000-01-01 00:00+00|1999-12-31 23:59:59.999999+00" "'2000-01-01'::timestamptz + (random() - 0.5) * interval '100 years'"
of interval interval "0|1 mon|30 days|720:00:00|-1 mon|1 mon -30 days|178000000 years|-178000000 years|1 day|24:00|-1 day 24:00|0.000001 s" "(random() - 0.5) * interval '1000 days'"
of uuid uuid "00000000-0000-0000-0000-000000000000|ffffffff-ffff-ffff-ffff-ffffffffffff|80000000-0000-0000-0000-000000000000|7fffffff-ffff-ffff-ffff-ffffffffffff" "md5(random()::text)::uuid"
of macaddr macaddr "00:00:00:00:00:00|ff:ff:ff:ff:ff:ff|80:00:00:00:00:00|7f:ff:ff:ff:ff:ff" "substr(md5(random()::text), 1, 12)::macaddr"
of macaddr8 macaddr8 "00:00:00:00:00:00:00:00|ff:ff:ff:ff:ff:ff:ff:ff|80:00:00:00:00:00:00:00" "substr(md5(random()::text), 1, 16)::macaddr8"
of pg_lsn pg_lsn "0/0|0/3F|0/40|FFFFFFFF/FFFFFFFF|80000000/0|7FFFFFFF/FFFFFFFF" "('0/0'::pg_lsn + abs($int)::numeric)"
of xid8 xid8 "0|63|64|18446744073709551615|9223372036854775808|9223372036854775807" "abs($int)::int8::text::xid8"
of tid tid "(0,0)|(0,1)|(0,63)|(0,64)|(0,65535)|(1,0)|(2147483648,1)|(4294967295,65535)" "format('(%s,%s)', (abs($int)::numeric % 4294967295)::int8, (random() * 300)::int)::tid"
of inet inet "0.0.0.0/0|10.0.0.0/8|10.0.0.0/9|10.1.0.0/8|10.0.0.0|10.0.0.0/31|255.255.255.255|255.255.255.255/1|::/0|::|::1|ffff::/16|ffff::1/16|10.255.255.255/8|9.255.255.255/8" \
    "(floor(random() * 12)::text || '.' || floor(random() * 4)::text || '.0.' || floor(random() * 256)::text || '/' || floor(random() * 33)::text)::inet"
of cidr cidr "0.0.0.0/0|10.0.0.0/8|10.0.0.0/9|10.0.0.0/32|10.128.0.0/9|::/0|::/128|ffff::/16" "network(('10.' || floor(random() * 4)::text || '.0.0/' || floor(random() * 33)::text)::inet)"
of bit 'bit(9)' "000000000|111111111|100000000|000000001|011111111" "(random() * 511)::int::bit(9)"
of varbit varbit "|0|00|1|10|11|11111111|111111110|000000000|0000000001|1111111111111111" "substr(random()::numeric::int::bit(1)::text || (random() * 65535)::int::bit(16)::text, 1, (random() * 17)::int)::varbit"
of bytea bytea '|\\x00|\\x0000|\\x01|\\xff|\\xff00|\\xffff|\\x00ff|\\x0001|\\xfe|\\xfeff' "decode(substr(md5(random()::text), 1, 2 * (random() * 16)::int), 'hex')"
of text 'text COLLATE "C"' "|a|A|aa|a b|ä|é| |~|a~|Zebra|zebra" "substr(md5(random()::text), 1, (random() * 32)::int)"
of words text "|a|A|aa|a b|ä|é| |~|co-op|coop|Zebra|zebra" "substr(md5(random()::text), 1, (random() * 3)::int)"
of varchar 'varchar(40) COLLATE "C"' "|a|a |aa|A" "repeat(chr(97 + (random() * 3)::int), (random() * 40)::int)"
of bpchar 'char(8) COLLATE "C"' "|a|a  b|aa|A|aaaaaaaa|a	" "substr(md5(random()::text), 1, (random() * 8)::int)"
of name name "|a|A|aa|pg_class|$(printf 'n%.0s' {1..63})" "substr(md5(random()::text), 1, (random() * 32)::int)"

names=(); for c in "${!type[@]}"; do names+=("$c"); done
mapfile -t names < <(printf '%s\n' "${names[@]}" | sort)
columns="" values=""
for c in "${names[@]}"; do
    t=${type[$c]% COLLATE*} columns+=", c_$c ${type[$c]}"
    values+=", CASE WHEN random() < 0.05 THEN NULL WHEN random() < 0.4 THEN (SELECT e[1 + floor(random() * cardinality(e))::int]::$t
             FROM (SELECT string_to_array('${edges[$c]}', '|') AS e OFFSET 0 * g) x) ELSE (${other[$c]})::$t END"
done
sql "CREATE TABLE k (id int$columns)"
rows() { # FROM TO
    sql "SET lc_monetary = 'C'; SELECT setseed((($NITRO_SEED + $1) % 1000) / 1000.0); INSERT INTO k SELECT g$values FROM generate_series($1, $2) g" > /dev/null
}
one_of() { local n; random $#; n=$((REPLY + 1)); REPLY=${!n}; }
# A condition on a column, with a value that the column has or almost has.
condition() { # COLUMN
    local value t=${type[$1]% COLLATE*} op top second=c_$1
    top=$(sql "SELECT max(id) FROM k"); random 600
    value=$(sql "SELECT coalesce(quote_literal(c_$1::text) || '::$t', '(SELECT c_$1 FROM k order by id LIMIT 1)') FROM k WHERE id = $((top - REPLY))")
    case $1 in # other types of the family
        int2 | int4 | int8) one_of "$value" "$value" "$value::int8" "$value::numeric::int8" ;;
        date) one_of "$value" "$value" "('2000-01-01'::timestamp + interval '1 s' * $RANDOM)" "('2000-01-01 01:00'::timestamptz)" ;;
        float4) one_of "$value" "$value::float8" ;;
        *) REPLY=$value ;;
    esac
    value=$REPLY
    # In a list with a timestamp a date becomes a timestamp. Not all dates can.
    [[ $1 != date || $value != *::timestamp* ]] || second="CASE WHEN c_date BETWEEN '4000-01-01 BC' AND '290000-01-01' THEN c_date END"
    one_of "< " "<=" "= " ">=" "> " IN BETWEEN "IS NULL" "IS NOT NULL"; op=$REPLY
    case $op in
        IN) random 600; REPLY="c_$1 IN ($value, (SELECT $second FROM k WHERE id = $((top - REPLY))))" ;;
        BETWEEN) random 600; REPLY="c_$1 BETWEEN least($value, (SELECT $second FROM k WHERE id = $((top - REPLY)))) AND greatest($value, (SELECT $second FROM k WHERE id = $((top - REPLY))))" ;;
        IS*) REPLY="c_$1 $op" ;;
        *) REPLY="c_$1 $op $value" ;;
    esac
}
# Queries on an index. Ranks show the order, except among equal values, where it is open. "order by" is
# small for same_answers.
questions() { # sets q; of $keys, with $forward and $backward, and $shown
    local i where select
    q=()
    for i in 1 2 3 4 5; do
        condition "${keys[0]}"; where=$REPLY
        if [ ${#keys[@]} -gt 1 ]; then one_of "${keys[@]:1}"; condition "$REPLY"; one_of "$where" "$where AND $REPLY" "$REPLY"; where=$REPLY; fi
        one_of "$shown" "rank() OVER (order by $forward), $shown" "rank() OVER (order by $backward), $shown" "*"; select=$REPLY
        q+=("SELECT $select FROM k WHERE $where")
    done
}

top=600; rows 1 $top; sql "VACUUM ANALYZE k"
for ((n = 0; n < indexes; n++)); do
    random 3; width=$((REPLY + 1)) keys=() forward="" backward="" definition=""
    # Each type leads an index before a type leads a second one.
    left=(${left[@]+"${left[@]}"}); [ ${#left[@]} -gt 0 ] || mapfile -t left < <(printf '%s\n' "${names[@]}" | shuf --random-source=<(yes "$NITRO_SEED $n"))
    keys=("${left[0]}"); left=("${left[@]:1}")
    while [ ${#keys[@]} -lt $width ]; do one_of "${names[@]}"; [[ " ${keys[*]} " == *" $REPLY "* ]] || keys+=("$REPLY"); done
    shown=""
    for c in "${keys[@]}"; do
        one_of "ASC NULLS LAST|DESC NULLS FIRST" "DESC NULLS FIRST|ASC NULLS LAST" "ASC NULLS FIRST|DESC NULLS LAST" "DESC NULLS LAST|ASC NULLS FIRST"
        forward+=", c_$c ${REPLY%|*}" backward+=", c_$c ${REPLY#*|}" shown+=", c_$c"
    done
    definition="(${forward#, })" forward=${forward#, } backward=${backward#, }
    one_of "${names[@]}"; include=$REPLY; random 5
    if [ "$REPLY" -lt 2 ] && [[ " ${keys[*]} " != *" $include "* ]]; then definition+=" INCLUDE (c_$include)" shown+=", c_$include"; fi
    shown=${shown#, }
    sql "CREATE INDEX k_nitro ON k USING nitro $definition; CREATE INDEX k_btree ON k $definition"
    # Entries that were built, and inserted entries, packed by VACUUM or not.
    rows $((top + 1)) $((top + 100)); sql "DELETE FROM k WHERE id <= $top - 500; VACUUM (INDEX_CLEANUP on) k"; top=$((top + 100))
    random 2; [ "$REPLY" = 0 ] || { rows $((top + 1)) $((top + 50)); top=$((top + 50)); }
    questions
    same_answers k "${q[@]}" || fail "with an index on $definition"
    verified k
    sql "DROP INDEX k_nitro, k_btree"
done
note "$indexes indexes, $((indexes * 5)) queries"

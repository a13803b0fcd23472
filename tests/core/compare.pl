#!/usr/bin/env perl
# compare.pl outputs|plans MAJOR PAIR LEFT RIGHT EXPLAINED: compare two runs of PostgreSQL's own tests.
#   outputs   LEFT and RIGHT are folders with what psql printed, a file for each test
#   plans     they are server logs in which auto_explain wrote what was planned, with costs
# Every difference has to stand in EXPLAINED under its hash, and everything in EXPLAINED has to occur. What is
# hashed is the difference itself without line numbers and column widths, so that none of PostgreSQL's own
# text is kept. With UPDATE=1 the lines of this pair are written anew; '?' stands for a reason that is missing.
#
# A table that psql printed is one unit, any other line is one. Of what kind a difference is is found out here,
# a reason can only be given to the kind it is made for. UPDATE gives the reason of the same name to the kinds plan,
# order and name, but nowhere between runs without a nitro index:
#   plan      two plans                  order   the same rows in another order, the statement has no ORDER BY
#   name      the access method's name   text    anything else
use strict;
use warnings;
use Digest::SHA qw(sha1_hex);

my ($what, $major, $pair, $left, $right, $list) = @ARGV;
my $kinds = { plan => 1, order => 1, name => 1, text => 1 };

sub lines_of { my ($file) = @_; open my $in, '<:raw', $file or die "$file: $!\n"; my @l = <$in>; chomp @l; return @l }

# --- what is compared: NAME => [units] ------------------------------------------------------------------
sub normal {
    my ($s) = @_;
    # No rows are compared there that could hide behind this.
    $s =~ s/\b1[6-9]\d{3}\b/OID/g if $pair eq 'installed';
    $s =~ s/\bpg_toast_\d+/pg_toast_OID/g;
    $s =~ s/\s+/ /g;
    $s =~ s/^ | $//g;
    return $s;
}

sub units {    # of one output file
    my @lines = @_;
    my @units;
    while (@lines) {
        my $line = shift @lines;
        if ($line =~ /^-+(\+-+)*$/ && @units && length $line == length $units[-1]) {
            # psql's rows begin with a space, the isolation tester's tables always end in a count.
            my $row = $units[-1] =~ /^ / ? qr/^ / : qr/^[^(]/;
            my ($n) = grep { $_ >= @lines || $lines[$_] =~ /^\(\d+ rows?\)$/ || $lines[$_] !~ $row } 0 .. @lines;
            my @rows = splice @lines, 0, $n;
            push @rows, shift @lines if @lines && $lines[0] =~ /^\(/;
            # Header, rows and count, each on a line of the unit.
            $units[-1] = join "\n", "\ttable", map { normal($_) } $units[-1], @rows;
        }
        else { push @units, $line }
    }
    return map { /^\ttable/ ? $_ : normal($_) } @units;
}

sub plans {    # of a server log: one unit for each statement, test by test
    my ($file) = @_;
    my (%of, $test, $plan);
    for (lines_of($file), my $end = '') {
        if (s/^\t//) {
            # The plan begins with its first node, after the text of the statement and its parameters.
            $plan .= "$_\n" if defined $test && (length $plan || / \(cost=/);
            next;
        }
        # Catalogues are larger with an extension in them. What a constant was computed from may be the time.
        if (defined $test && $plan !~ / on (pg_(catalog|toast)\.)?pg_|information_schema/) {
            push @{ $of{$test} }, normal($plan =~ s/'[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d [^']*'/TIME/gr);
        }
        ($test) = m{ client backend\[\d+\] pg_regress/(\S+) LOG:  duration: .* plan:$};
        $plan = '';
    }
    return %of;
}

my (%a, %b);
if ($what eq 'plans') { %a = plans($left); %b = plans($right) }
else {
    for my $side ([ $left, \%a ], [ $right, \%b ]) {
        $side->[1]{$_} = [ units(lines_of("$side->[0]/$_.out")) ]
            for map { m{([^/]+)\.out$} } glob "$side->[0]/*.out";
    }
}
my $compared = 0;
$compared += @$_ for values %a;
die "nothing to compare in $left\n" if !$compared;

# --- differences ---------------------------------------------------------------------------------------
sub kind {
    my ($old, $new, $before) = @_;
    my @tables = map { [ split /\n/, $_, -1 ] } @$old, @$new;
    return 'plan' if $what eq 'plans';
    return 'plan' if !grep { !(($_->[0] // '') eq "\ttable" && $_->[1] =~ /QUERY PLAN|explain/i) } @tables;
    return 'name' if join("\n", @$old) eq join("\n", @$new) =~ s/\bnitro\b/btree/gr;
    return 'text' if @$old != 1 || @$new != 1 || grep { $_->[0] ne "\ttable" } @tables;
    return 'text' if join("\n", sort @{ $tables[0] }) ne join("\n", sort @{ $tables[1] });
    return $before =~ /order by/i ? 'text' : 'order';
}

sub differences {    # of one test: list of [kind, hash, old, new, statement]
    my ($old, $new) = @_;
    my @found;
    my @files = map { "$ENV{NITRO_TMP}/compare.$_" } qw(a b);
    for my $i (0, 1) {
        open my $out, '>:raw', $files[$i] or die "$files[$i]: $!\n";
        print $out tr/\n/\x01/r, "\n" for @{ ($old, $new)[$i] };
    }
    for (qx(diff -U0 $files[0] $files[1])) {
        /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/ or next;
        my ($x, $m, $y, $n) = ($1, $2 // 1, $3, $4 // 1);
        $x-- if $m;
        $y-- if $n;
        # As many units on both sides: each pair is a difference of its own.
        my ($pairs, $m1, $n1) = $m == $n ? ($m, 1, 1) : (1, $m, $n);
        for my $p (0 .. $pairs - 1) {
            my @o = @$old[ $x + $p .. $x + $p + $m1 - 1 ];
            my @n = @$new[ $y + $p .. $y + $p + $n1 - 1 ];
            # The statement before it: back to the last table or empty line.
            my $s = my $e = $x + $p;
            $s-- while $s > 0 && $old->[ $s - 1 ] !~ /^$|^\ttable/;
            my $before = $what eq 'plans' ? '' : join "\n", @$old[ $s .. $e - 1 ];
            my $kind = kind(\@o, \@n, $before);
            my $hash = substr sha1_hex(join "\n", $kind, (map { "-$_" } @o), (map { "+$_" } @n)), 0, 8;
            push @found, [ $kind, $hash, \@o, \@n, $before ];
        }
    }
    return @found;
}

my %found;    # test => differences
for my $test (sort keys %{ { %a, %b } }) {
    my @d = differences($a{$test} // [], $b{$test} // []);
    $found{$test} = \@d if @d;
}

# --- against the list ----------------------------------------------------------------------------------
my (%reason, %kept, @others);    # reason => kind; test => hash => [reason, how often]
for my $line (lines_of($list)) {
    if ($line =~ /^reason (\S+) (\S+) \S/) {
        die "$list: no kind $2\n" if !$kinds->{$2};
        $reason{$1} = $2;
        push @others, $line;
    }
    elsif ($line =~ /^(\d+) (\S+) (\S+) (\S+) (.*)/ && $1 == $major && $2 eq $pair) {
        for my $hash (split ' ', $5) {
            $kept{$3}{$hash}[0] = $4;
            $kept{$3}{$hash}[1]++;
        }
    }
    else { push @others, $line }
}

my ($bad, %count, @written) = (0);
sub show { my ($mark, $units) = @_; print "  $mark $_\n" for map { split /\n/, s/^\ttable\n//r } @$units }
for my $test (sort keys %found) {
    my %by;
    for (@{ $found{$test} }) {
        my ($kind, $hash, $old, $new, $before) = @$_;
        my ($known, $times) = @{ $kept{$test}{$hash} // [] };
        my $why = $known // ($reason{$kind} && $pair =~ /^(nitro|off|isolation)$/ ? $kind : '?');
        push @{ $by{$why} }, $hash;
        $count{$why}++;
        my $explained = $times && ($reason{$known} // '') eq $kind;
        $kept{$test}{$hash}[1]-- if $times;
        next if $explained || ($ENV{UPDATE} && $why ne '?');
        $bad++;
        print "$pair, $test: not explained, kind $kind: $major $pair $test $why $hash\n";
        print "    $_\n" for split /\n/, $before;
        show('-', $old);
        show('+', $new);
    }
    push @written, map { "$major $pair $test $_ @{[ sort @{ $by{$_} } ]}" } sort keys %by;
}
if (!$ENV{UPDATE}) {
    for my $test (sort keys %kept) {
        for my $hash (sort keys %{ $kept{$test} }) {
            my ($why, $times) = @{ $kept{$test}{$hash} };
            next if !$times;
            $bad++;
            print "$pair, $test: explained, but does not occur: $hash ($why)\n";
        }
    }
}
else {
    my ($heads, $rest) = ([ grep { !/^\d/ } @others ], [ grep { /^\d/ } @others ]);
    open my $out, '>:raw', $list or die "$list: $!\n";
    print $out "$_\n" for @$heads, sort { $a cmp $b } @$rest, @written;
}
my $total = 0;
$total += $_ for values %count;
print "# PostgreSQL $major, $pair: $compared units compared, $total differ",
    ($total ? ' (' . join(', ', map { "$_ $count{$_}" } sort keys %count) . ')' : ''), "; $bad without a reason\n";
exit($bad ? 1 : 0);

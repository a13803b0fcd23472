#!/usr/bin/env perl
# without_keys.pl < SPEC: an isolation test whose PRIMARY KEY and UNIQUE constraints are unique indexes of the same names.
use strict;
use warnings;
local $/;
my $spec = <STDIN>;
$spec =~ s/ALTER TABLE (\w+) ADD PRIMARY KEY (\([^)]*\));/CREATE UNIQUE INDEX $1_pkey ON $1 $2;/g;
$spec =~ s{CREATE TABLE (\w+)\s*(\((?:[^()]|\([^()]*\))*\))([^;]*;)}{
    my ($table, $columns, $rest) = ($1, $2, $3);
    my $indexes = '';
    my $unique = sub { $indexes .= " CREATE UNIQUE INDEX ${table}_$_[0] ON $table ($_[1]);" };
    $columns =~ s/,\s*(?:CONSTRAINT \w+ )?PRIMARY KEY\s*\(([^)]*)\)/$unique->('pkey', $1); ''/gie;
    $columns =~ s/(\w+)(\s+\w+)(?:\s+NOT NULL)?\s+PRIMARY KEY/$unique->('pkey', $1); "$1$2 NOT NULL"/gie;
    $columns =~ s/(\w+)(\s+\w+)\s+UNIQUE/$unique->("$1_key", $1); "$1$2"/gie;
    "CREATE TABLE $table $columns$rest$indexes"
}gise;
print $spec;

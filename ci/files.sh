#!/usr/bin/env bash
# ci/files.sh [FOLDER]: checks the files that only other machines read: META.json, the Dockerfile,
# compose.yaml and GitHub's workflows. Prints the faults.
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"
wrong=0
say() { echo "FAILED: $*"; wrong=1; }

# The fields that https://pgxn.org/meta/spec.txt requires, and the files that META.json names.
perl -MJSON::PP -e '
    local $/; my $m = decode_json(<>);
    my @no = grep { !defined $m->{$_} } qw(name version abstract maintainer license provides meta-spec);
    push @no, "meta-spec.version" unless $m->{"meta-spec"}{version};
    for my $of ($m, values %{$m->{provides}}) { push @no, "a version of three numbers" unless ($of->{version} // "") =~ /^\d+\.\d+\.\d+$/ }
    while (my ($name, $p) = each %{$m->{provides}}) {
        for my $key (qw(file docfile)) { push @no, "provides.$name.$key" unless $key eq "docfile" && !$p->{$key} || -f ($p->{$key} // "") }
    }
    print "META.json lacks: @no\n" if @no; exit !!@no' META.json || say "META.json"

# A file of tests that no program includes never runs.
for file in engine/tests/*.rs; do
    name=$(basename "$file" .rs)
    grep -qx "mod $name;" engine/tests/all.rs || grep -qx "name = \"$name\"" engine/Cargo.toml || say "$file: in no program of tests"
done

for file in tests/server/tests/all/*.rs; do
    name=$(basename "$file" .rs)
    [ "$name" = main ] || grep -qx "mod $name;" tests/server/tests/all/main.rs || say "$file: in no program of tests"
done

# Names of files and of goals of make, anywhere in the file.
dockerfile=deploy/Dockerfile
mapfile -t yaml < <(ls .github/workflows/*.yml deploy/*.yaml)
for file in $dockerfile "${yaml[@]}"; do
    while read -r path; do
        [ -e "$path" ] || say "$file: there is no $path"
    done < <(sed 's/ #.*//; s/^#.*//' "$file" | grep -oE '(^|[" =])(ci|bench|tests|docs|packaging|extension)/[A-Za-z0-9_./-]+' | sed 's/^[" =]//')
    while read -r goal; do
        grep -q "^$goal:" Makefile || say "$file: make has no goal $goal"
    done < <(sed 's/^ *#.*//' "$file" | grep -oE '\bmake( -s)? [a-z-]+' | sed 's/.* //')
done

if python3 -c 'import yaml' 2> /dev/null; then
    # Jobs have a machine and steps. The text of a step is a program for bash.
    python3 - "${yaml[@]}" <<'P' || say "YAML"
import re, subprocess, sys, yaml
bad = 0
def say(*what):
    global bad
    bad = 1
    print(*what)
for path in sys.argv[1:]:
    try:
        doc = yaml.safe_load(open(path))
    except yaml.YAMLError as e:
        say(path, e)
        continue
    if "services" in doc:
        continue
    # YAML 1.1 takes the key `on` for a boolean.
    if not (doc.get("on") or doc.get(True)) or not doc.get("jobs"):
        say(path, "has no event or no job")
    for name, job in (doc.get("jobs") or {}).items():
        if "runs-on" not in job or not job.get("steps"):
            say(path, name, "has no machine or no steps")
        for step in job.get("steps") or []:
            if ("run" in step) == ("uses" in step):
                say(path, name, "a step runs something or uses something:", step)
            script = re.sub(r"\$\{\{.*?\}\}", "x", step.get("run", ""))
            if subprocess.run(["bash", "-n"], input=script, text=True).returncode:
                say(path, name, "is not bash:", script)
sys.exit(bad)
P
else
    echo "ci/files.sh: YAML is left out: no python3 with yaml"
fi

# The instructions must be known. Stages and files must exist before they are copied from.
stages=" "
while read -r verb rest; do
    case $verb in
        FROM) [[ $rest != *" AS "* ]] || stages+="${rest##* AS } " ;;
        COPY|ADD)
            if [[ $rest =~ ^--from=([^ ]+) ]]; then
                [[ $stages == *" ${BASH_REMATCH[1]} "* ]] || say "$dockerfile: no stage ${BASH_REMATCH[1]} before: $verb $rest"
            else
                read -ra words <<< "$rest"; unset 'words[-1]'
                for path in "${words[@]}"; do [[ $path = --* ]] || compgen -G "$path" > /dev/null || say "$dockerfile: there is no $path to copy"; done
            fi ;;
        ARG|CMD|ENTRYPOINT|ENV|EXPOSE|HEALTHCHECK|LABEL|RUN|SHELL|STOPSIGNAL|USER|VOLUME|WORKDIR) ;;
        *) say "$dockerfile: what is $verb?" ;;
    esac
    [ "$verb" != RUN ] || bash -n <<< "$rest" || say "$dockerfile: not a command: $rest"
done < <(sed -E '/^ *(#|$)/d' $dockerfile | sed -e ':a' -e '/\\$/N; s/\\\n/ /; ta')
if command -v hadolint > /dev/null; then hadolint $dockerfile || say "hadolint"; fi

# The recorded counts of instructions belong to one compiler. The job that compares them must have it.
counted=$(sed -n 's/^# counted with rustc \([0-9]*\.[0-9]*\)\..*/\1/p' bench/instructions.tsv)
sed -n '/^  instructions:/,/bench-check/p' .github/workflows/test.yml | grep -q "container: rust:$counted-" ||
    say "bench/instructions.tsv was counted with rustc $counted, the job of test.yml that compares has another"
[ $wrong = 0 ]

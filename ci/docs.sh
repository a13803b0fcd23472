#!/usr/bin/env bash
# ci/docs.sh: builds the manual as a book with a search in target/docs/book, by mdBook. It installs mdBook
# into target/mdbook if the machine has none. docs/README.md gives the pages and their order. Fails on a
# link that leads nowhere, in the sources or in the book.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/prose.sh
export PATH=$PWD/target/mdbook/bin:$PATH
command -v mdbook > /dev/null || nice cargo install mdbook --locked --no-default-features \
    --features search --root target/mdbook --target-dir target/mdbook/build
rm -rf target/docs
mkdir -p target/docs/src
# mdBook sees one folder, and the READMEs of the parts are outside of docs/. Untracked pages are included.
git ls-files -co --exclude-standard -- '*.md' docs bench/results deploy LICENSE |
    grep -v '^tests/' | tar -cf - -T - | tar -xf - -C target/docs/src
python3 - <<'P'
import os, re
os.chdir("target/docs/src")
linked = re.compile(r"\]\(([^)#\s]+)")
summary, listed = ["# Summary", ""], []
for line in open("docs/README.md"):
    page = re.match(r"- \[(.*?)\]\((.*?)\)", line)
    if page:
        listed.append(os.path.normpath("docs/" + page[2]))
        summary.append(f"- [{page[1]}]({listed[-1]})")
    elif line.startswith("**"):
        summary += ["", "# " + line.strip("*\n"), ""]
# Each linked page must be in the book, the results for instance.
summary += ["", "---", ""]
for page in listed:
    for target in linked.findall(open(page).read()):
        path = os.path.normpath(os.path.join(os.path.dirname(page), target))
        if path.endswith(".md") and ":" not in target and path not in listed:
            listed.append(path)
            summary.append(f"- [{os.path.basename(path)[:-3]}]({path})")
open("SUMMARY.md", "w").write("\n".join(summary) + "\n")
P
mdbook build
python3 - <<'P'
import functools, os, re, sys, urllib.parse
os.chdir("target/docs/book")
read = functools.cache(lambda path: open(path, encoding="utf-8").read())
dead = set()
for folder, _, files in os.walk("."):
    for page in (os.path.join(folder, name) for name in files if name.endswith(".html")):
        for link in re.findall(r'<a (?:[^>]* )?href="([^"]+)"', read(page)):
            path, _, anchor = urllib.parse.unquote(link).partition("#")
            if re.match(r"[a-z]+:", path):
                continue
            to = os.path.normpath(os.path.join(folder, path)) if path else page
            if os.path.isdir(to):
                to += "/index.html"
            if not os.path.exists(to) and os.path.exists("../src/" + to):
                continue
            if not os.path.exists(to) or anchor and f'id="{anchor}"' not in read(to):
                dead.add(f"{page}: {link}")
print("\n".join(sorted(dead)) or "no dead link")
sys.exit(bool(dead))
P
echo "the book is in target/docs/book/index.html"

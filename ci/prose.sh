#!/usr/bin/env bash
# ci/prose.sh [FILE...]: how the pages read. Without a file: README.md, docs/, the READMEs of engine
# and image, CONTRIBUTING, CHANGELOG, SECURITY. Prints FILE:LINE and each fault, and fails if there is one.
# A line has 100 columns and a sentence 30 words. Some words are not used. Links lead to a file and a
# heading that exist, and a path in `backticks` exists. Tables, URLs and code may be longer.
# The same words and the same limit of words hold for doc comments of Rust sources and for comments of
# scripts (COMMENTED). Comments of sources have 100 columns, comments of scripts 120.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v python3 > /dev/null || { echo "ci/prose.sh is left out: no python3"; exit 0; }
exec python3 - "$@" <<'P'
import functools, os, re, subprocess, sys

WIDTH, SCRIPT_WIDTH, WORDS = 100, 120, 30
LONGEST = {"README.md": 130, "docs/architecture.md": 150}    # lines of a page that is read at once
# Actors and things without a name, and expressions that a reader parses twice. `what` alone is allowed:
# "the message says what failed" is plain. After a preposition or a conjunction it is not.
BANNED = [re.compile(p, re.I) for p in (
    r"\b(who|whom|whoever|somebody|someone|nobody|anybody|everybody|no one)\b",
    r"\b(he|him|his)\b(?! *\()",
    r"\bof which\b",
    r"\bso (many|much)\b",
    r"\bsuch\b(?! as\b)",
    r"\bas ever\b|\bby then\b|\bis said\b",
    r"\b(what|as|than) is there\b",
    r"\b(of|for|in|from|by|to|with|than|behind|before|after|beside|as|and|or|but|on|all|only) what\b",
    r"(?:^|[.;:,] )what (is|was|are|were|has|have|had|it|they)\b(?![^.]*\?)",
)]

# Sources whose doc comments are checked, and scripts whose comments are.
COMMENTED = re.compile(r"(engine/(src|tests)|image/src|src|tests/server)/[\w/]+\.rs|"
                       r"(ci|bench|tests|deploy)/[\w/]+\.sh|\.ci/run")

# A path in the repository, in backticks. Others are of a data directory or of another program.
PATH = re.compile(r"(?:\.\./)?(?:src|engine|image|docs|ci|tests|bench|sql|specs|expected|deploy|"
                  r"extension|\.github)/[\w./-]*\w/?")
ENDS = re.compile(r"(?<=[.!?])[)\"'*]*\s+(?=[\"'(*`\[A-Z0-9])")
listed = ["git", "ls-files", "-co", "--exclude-standard"]
tracked = set(subprocess.check_output(listed, text=True).split("\n"))
wrong = 0


def say(file, number, fault):
    global wrong
    wrong = 1
    print(f"{file}:{number}: {fault}")


def exists(path):
    path = os.path.normpath(path)      # tests are named without their suffix
    return (any(path + suffix in tracked for suffix in ("", ".sql", ".spec", ".rs"))
            or any(name.startswith(path + "/") for name in tracked))


def lines(file):
    """The numbered lines outside of fenced code."""
    fence = False
    for number, line in enumerate(open(file, encoding="utf-8"), 1):
        if line.lstrip().startswith("```"):
            fence = not fence
            yield number, ""
        elif not fence:
            yield number, line.rstrip("\n")


@functools.cache
def anchors(file):
    """The headings of a page, as links name them."""
    plain = lambda text: re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
    heads = (line.lstrip("#").strip() for _, line in lines(file) if line.startswith("#"))
    return {plain(re.sub(r"\]\([^)]*\)", "", head)) for head in heads}


def links(file):
    here = os.path.dirname(file)
    for number, line in lines(file):
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            to = os.path.normpath(os.path.join(here, path)) if path else file
            if not exists(to):
                say(file, number, f"there is no {target}")
            elif anchor and to.endswith(".md") and anchor not in anchors(to):
                say(file, number, f"there is no heading {target}")
        for code in re.findall(r"`([^`]+)`", line):
            roots = (".", here, "engine", "image")
            if PATH.fullmatch(code) and not any(exists(os.path.join(root, code)) for root in roots):
                say(file, number, f"there is no {code}")


def texts(file):
    """The paragraphs, list items and cells, each with the number of its first line."""
    begin, words = 0, []
    for number, line in lines(file):
        bare = line.strip()
        item = re.match(r"([*+-]|\d+\.)\s", bare)
        if words and (not bare or item or bare[0] in "|#"):
            yield begin, " ".join(words)
            words = []
        if bare.startswith("|"):
            yield from ((number, cell) for cell in re.split(r"(?<!\\)\|", bare))
        elif bare and bare[0] != "#" and not bare.startswith("!["):
            begin, words = (begin if words else number), words + [bare[item.end():] if item else bare]
    if words:
        yield begin, " ".join(words)


def words(file, number, text):
    """The sentences of a text: their length, and words that are not used."""
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "`X`", text))
    for sentence in ENDS.split(text):
        count = len([word for word in sentence.split() if re.search(r"\w", word)])
        if count > WORDS:
            say(file, number, f"{count} words: {sentence[:60]}...")
        for banned in BANNED:
            for found in banned.finditer(sentence):
                around = sentence[max(0, found.start() - 25):found.end() + 25]
                say(file, number, f'"{found.group().strip()}": ...{around}...')


def style(file):
    number = sum(1 for _ in open(file, encoding="utf-8"))
    if number > LONGEST.get(file, number):
        say(file, number, f"{number} lines, at most {LONGEST[file]}")
    for number, line in lines(file):
        short = re.sub(r"\]\([^)]*\)|<https?:[^>]*>|https?:\S+", "]", line)
        if len(short) > WIDTH and not line.lstrip().startswith("|") and " " in short.strip():
            say(file, number, f"{len(short)} columns")
    for number, text in texts(file):
        words(file, number, text)


def comments(file):
    """The paragraphs and list items of the comments, outside of fenced text. In a script an indented
    line is an item."""
    rust = file.endswith(".rs")
    width, mark = (WIDTH, "//") if rust else (SCRIPT_WIDTH, "#")
    checked = r"\s*//[/!](?: (.*))?$" if rust else r"\s*#(?!!)(?: (.*))?$"
    begin, text, fence = 0, [], False
    for number, line in enumerate(open(file, encoding="utf-8"), 1):
        found = re.match(checked, line)
        inner = (found.group(1) or "") if found else ""
        bare = inner.strip()
        comment = line.rstrip("\n")
        if len(comment) > width and comment.lstrip().startswith(mark) and not fence \
                and "://" not in comment and not bare.startswith("|"):
            say(file, number, f"{len(comment)} columns")
        if bare.startswith("```"):
            fence, bare = not fence, ""
        item = re.match(r"([*+-]|\d+\.)\s", bare) or (not rust and re.match(r"(?= {1,5}\S)", inner))
        if text and (fence or not bare or item or bare.startswith(("|", "#", "---"))):
            yield begin, " ".join(text)
            text = []
        if bare and not fence and not bare.startswith(("|", "#", "---")):
            begin, text = (begin if text else number), text + [bare[item.end():] if item else bare]
    if text:
        yield begin, " ".join(text)


pages = sys.argv[1:] or sorted(file for file in tracked if re.fullmatch(
    r"(README|CONTRIBUTING|CHANGELOG|SECURITY)\.md|docs/[^/]+\.md|(engine|image)/README\.md", file))
for page in pages:
    links(page)
    style(page)
commented = [] if sys.argv[1:] else sorted(
    file for file in tracked if COMMENTED.fullmatch(file) and os.path.exists(file))
for file in commented:
    for number, text in comments(file):
        words(file, number, text)
sources = "".join(open(file).read() for file in tracked if file.startswith("src/pg/guc"))
for name in sorted(set(re.findall(r'c"(nitro\.\w+)"', sources))):
    if "debug_" not in name and f"`{name}`" not in open("docs/reference.md").read():
        say("docs/reference.md", 1, f"it lacks the setting {name}")
print(f"prose: {len(pages)} pages, comments of {len(commented)} sources and scripts")
sys.exit(wrong)
P

#!/usr/bin/env python3
"""Checks Markdown files: lines of at most 100 columns, and links that lead somewhere.

Columns: prose, code blocks and tables. Left out are lines that are one link or one path, and pages that a program
prints (GENERATED), as their tables are as wide as the program's text.
Links: a relative link must name a file or folder of the tree, and its #anchor a heading of that page. A page of docs/
must be linked from another page, so that nobody has to guess that it is there.

Usage: check_docs.py [FILE...]. Without files: all that git knows. Prints file:line and exits 1 when there are any.
"""

import functools
import os
import re
import subprocess
import sys

COLUMNS = 100
GENERATED = {"docs/design/passes.md"}


def long_lines(text: str):
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > COLUMNS and len(line.split()) > 2:
            yield number, len(line)


def without_code(text: str) -> str:
    """Fenced blocks and code spans blanked, lines kept."""
    lines, fenced = [], False
    for line in text.splitlines():
        fence = re.match(r"\s*(```|~~~)", line)
        fenced ^= bool(fence)
        lines.append("" if fenced or fence else line)
    return re.sub(r"`[^`]*`", lambda code: "\n" * code.group().count("\n"), "\n".join(lines))


def links(text: str):
    """(line, target) of [text](target); the text may go on over a line's end."""
    text = without_code(text)
    for match in re.finditer(r"\]\(([^()\s]+)\)", text):
        yield text.count("\n", 0, match.start()) + 1, match.group(1)


def slug(heading: str) -> str:
    """As GitHub makes a heading's anchor."""
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")


@functools.cache
def anchors(path: str):
    with open(path, encoding="utf-8") as source:
        lines, fenced, found = source.read().splitlines(), False, {}
    for line in lines:
        fenced ^= bool(re.match(r"\s*(```|~~~)", line))
        heading = None if fenced else re.match(r"#+ (.*)", line)
        if heading:
            name = slug(heading.group(1))
            found[name] = found.get(name, -1) + 1
    return {f"{name}-{n}" if n else name for name, last in found.items() for n in range(last + 1)}


def broken_links(file: str, text: str, reached: set):
    for number, target in links(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(file), path)) if path else file
        reached.add(path if path != file else None)
        if not os.path.exists(path):
            yield number, f"no such file: {target}"
        elif anchor and path.endswith(".md") and anchor not in anchors(path):
            yield number, f"no such heading: {target}"


def self_test():
    assert list(long_lines("word " * 30)) == [(1, 150)]
    assert list(long_lines("| " + "word " * 30 + "|"))
    assert list(long_lines("```\n" + "word " * 30 + "\n```")) == [(2, 150)]
    assert not list(long_lines("x" * 150))
    assert list(links("a\n[b\nc](d.md#e) `[f](g)`\n```\n[h](i)\n```")) == [(3, "d.md#e")]
    assert slug("How do I get `x`, and why?") == "how-do-i-get-x-and-why"


def main():
    self_test()
    tracked = subprocess.check_output(["git", "ls-files", "*.md"], text=True).split()
    files = sys.argv[1:] or tracked
    found, reached = 0, set()
    for file in files:
        with open(file, encoding="utf-8") as source:
            text = source.read()
        faults = [] if file in GENERATED else [
            (number, f"{columns} columns; at most {COLUMNS}") for number, columns in long_lines(text)]
        faults += broken_links(file, text, reached)
        for number, fault in sorted(faults):
            print(f"{file}:{number}: {fault}")
        found += len(faults)
    for file in files if files == tracked else []:
        if file.startswith("docs/") and file not in reached and os.path.dirname(file) not in reached:
            print(f"{file}:1: no page links to it")
            found += 1
    if not found:
        print(f"docs: {len(files)} files, at most {COLUMNS} columns, every link leads somewhere")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Checks that prose in Markdown files has at most 100 columns.

Tables, code blocks (fenced or indented) and lines that are one link or one path are left out: they cannot be wrapped.

Usage: check_docs.py [FILE...]. Without files: all that git knows. Prints file:line and exits 1 when there are any.
"""

import re
import subprocess
import sys

COLUMNS = 100


def long_lines(text: str):
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*(```|~~~)", line):
            fenced = not fenced
        is_code = fenced or line.startswith("    ")
        is_table = line.lstrip().startswith("|")
        is_one_word = len(line.split()) <= 2
        if len(line) > COLUMNS and not (is_code or is_table or is_one_word):
            yield number, len(line)


def self_test():
    assert list(long_lines("word " * 30)) == [(1, 150)]
    assert not list(long_lines("| " + "word " * 30 + "|"))
    assert not list(long_lines("```\n" + "word " * 30 + "\n```"))


def main():
    self_test()
    files = sys.argv[1:] or subprocess.check_output(["git", "ls-files", "*.md"], text=True).split()
    found = 0
    for file in files:
        with open(file, encoding="utf-8") as source:
            for number, columns in long_lines(source.read()):
                print(f"{file}:{number}: {columns} columns; at most {COLUMNS}")
                found += 1
    if not found:
        print(f"docs: {len(files)} files, prose of at most {COLUMNS} columns")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()

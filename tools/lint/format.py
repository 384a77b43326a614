#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Checks that clang-format-14 would change nothing, and what it leaves open: an if, for or while whose
body is one short statement stands on one line. usage: format.py [root]; 77 means skipped."""

import re
import shutil
import subprocess
import sys

import tree

SKIPPED = 77
COLUMNS = 100
BRACED = re.compile(r"^( *)((?:if|for|while) \(.*\)) \{\n\1  ([^\s/{}][^\n{}]*;)\n\1\}\n(?! *else)", re.M)
NESTED = re.compile(r"(if|for|while|switch|do|else|case|default)\b")
HIDDEN_ELSE = re.compile(r"(EXPECT|ASSERT|GTEST)_")  # such macros have one, which GCC warns of


def braced_bodies(path, text):
    """Heads with one short statement in braces; one within another keeps them."""
    problems = []
    for match in BRACED.finditer(text):
        indent, head, body = match.groups()
        is_short = len(f"{indent}{head} {body}") <= COLUMNS and "//" not in head + body
        is_whole = all(part.count("(") == part.count(")") for part in (head, body))
        if is_short and is_whole and not NESTED.match(body) and not HIDDEN_ELSE.match(body):
            line = text.count("\n", 0, match.start()) + 1
            problems.append(f"{path}:{line}: '{head} {body}' fits on one line without braces")
    return problems


def main(root):
    formatter = shutil.which("clang-format-14")
    if formatter is None:
        print("skipped: clang-format-14 is missing: install the package clang-format-14")
        return SKIPPED
    paths = [path for path in tree.files(root) if path.endswith(tree.CODE)]
    result = subprocess.run([formatter, "--dry-run", "-Werror", "--ferror-limit=1", *paths],
                            cwd=root, check=False)
    if result.returncode:
        print(f"to repair: {formatter} -i <file>")
    problems = [problem for path in paths for problem in braced_bodies(path, tree.read(root, path))]
    return 1 if tree.report(problems) or result.returncode else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "."))

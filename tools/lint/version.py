#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Compares the version in CMakeLists.txt with the changelog's first heading and with names of packages in
the documentation. usage: version.py [root]"""

import re
import sys

import tree

VERSION = re.compile(r"^project\(chainmail VERSION (\d+\.\d+\.\d+) ", re.MULTILINE)
HEADING = re.compile(r"^## (.*)$", re.MULTILINE)
TITLE = re.compile(r"(\d+\.\d+\.\d+) \((not released|\d{4}-\d{2}-\d{2})\)")
PACKAGE = re.compile(r"\bchainmail(?:-launcher)?[-_](\d+\.\d+\.\d+)(?!\d)")
# What these name was so then.
RECORDS = ("docs/results/", "docs/decisions/", "CHANGELOG.md")


def check(root):
    found = VERSION.search(tree.read(root, "CMakeLists.txt"))
    if found is None:
        return ["CMakeLists.txt: has no project(chainmail VERSION X.Y.Z ...)"]
    version, problems = found.group(1), []
    titles = HEADING.findall(tree.read(root, "CHANGELOG.md"))
    problems += [f"CHANGELOG.md: '## {title}' is not '## X.Y.Z (not released)' or '## X.Y.Z (YYYY-MM-DD)'"
                 for title in titles if not TITLE.fullmatch(title)]
    if not titles or not titles[0].startswith(f"{version} "):
        problems.append(f"CHANGELOG.md: does not begin with {version}, the version of CMakeLists.txt")
    for path in tree.files(root):
        if path.endswith(".md") and not path.startswith(RECORDS):
            problems += [f"{path}: names {match.group(0)}; the version is {version}"
                         for match in PACKAGE.finditer(tree.read(root, path)) if match.group(1) != version]
    return problems


if __name__ == "__main__":
    sys.exit(tree.report(check(sys.argv[1] if len(sys.argv) > 1 else ".")))

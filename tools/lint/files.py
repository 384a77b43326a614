#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Checks licence lines, file sizes, line ends and generated text. usage: files.py [root]"""

import re
import sys

import tree

SPDX = (
    "SPDX-License-Identifier: BSD-3-Clause",
    "SPDX-FileCopyrightText: 2026 the Chainmail authors",
)
LICENSED = re.compile(r".*(\.(h|cc|cu|py|sh|cmake|cmake\.in)|CMakeLists\.txt|/\.?ci/run)")
MAX_LINES = {".h": 300, ".cc": 500, ".cu": 500}
# A file past its limit says why in its first lines: "Longer than 500 lines: ...".
REASON = re.compile(r"Longer than \d+ lines?: \S")
TEXT = re.compile(r".*(\.(h|cc|cu|py|sh|cmake|md|json|txt|in|clang-.*)|/run)")


def check(root):
    problems = []
    for path in tree.files(root):
        if not TEXT.fullmatch(path) and not LICENSED.fullmatch(path):
            continue
        text = tree.read(root, path)
        lines = text.removesuffix("\n").split("\n")
        if LICENSED.fullmatch(path):
            for wanted in SPDX:
                if not any(line.endswith(wanted) for line in lines[:4]):
                    problems.append(f"{path}:1: the first lines lack '{wanted}'")
        limit = MAX_LINES.get(path[path.rfind("."):], len(lines))
        if len(lines) > limit and not REASON.search("\n".join(lines[:20])):
            problems.append(f"{path}:{limit}: {len(lines)} lines, at most {limit}: split the file "
                            f"or say 'Longer than {limit} lines: <why>' in its head")
        for number, line in enumerate(lines, 1):
            if line.endswith((" ", "\t", "\r")):
                problems.append(f"{path}:{number}: space or carriage return at the end of the line")
        if text and not text.endswith("\n"):
            problems.append(f"{path}:{len(lines)}: no newline at the end of the file")
    return problems


if __name__ == "__main__":
    sys.exit(tree.report(check(sys.argv[1] if len(sys.argv) > 1 else ".")))

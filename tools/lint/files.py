#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Checks licence lines, file sizes, line ends and generated text, and that the sources which a CMakeLists.txt
names by folder are there: some are built with clang or CUDA alone. usage: files.py [root]"""

import os
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

FOLDER = re.compile(r"set\((\w+) \$\{PROJECT_SOURCE_DIR\}(/[\w/.-]+)?\)")
SOURCE = re.compile(r"\$\{(\w+)\}(/[\w/.-]+\.(?:c|cc|cu|h|py|sh|txt))\b(?!\.)")


def missing_sources(root, path, text):
    folders = {"PROJECT_SOURCE_DIR": ".", "CMAKE_CURRENT_SOURCE_DIR": os.path.dirname(path) or "."}
    for name, folder in FOLDER.findall(text):
        folders[name] = "." + folder
    for number, line in enumerate(text.split("\n"), 1):
        for name, rest in SOURCE.findall(line):
            if name in folders and not os.path.exists(os.path.join(root, folders[name] + rest)):
                yield f"{path}:{number}: there is no {os.path.normpath(folders[name] + rest)}"


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
        if os.path.basename(path) == "CMakeLists.txt":
            problems += missing_sources(root, path, text)
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

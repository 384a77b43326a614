# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""The files that the lint checks read: all of ours below a root, without build results."""

import os
import re

SKIPPED_FOLDERS = re.compile(r"(\..*|build.*|result|__pycache__)")
CODE = (".h", ".cc", ".cu")


def files(root):
    """Paths below `root`, relative, with '/', sorted; .ci is ours, other dot folders are not."""
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f == ".ci" or not SKIPPED_FOLDERS.fullmatch(f)]
        for name in names:
            found.append(os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/"))
    return sorted(found)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", newline="") as file:
        return file.read()


def report(problems):
    """Prints the problems; the exit status."""
    for problem in problems:
        print(problem)
    if problems:
        print(f"{len(problems)} problem(s)")
    return 1 if problems else 0

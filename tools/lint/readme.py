#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Checks that a test runs every command of README.md and that its links lead somewhere.
usage: readme.py [root]

Commands are the lines of its `sh` blocks. Each has a row here: its beginning, the file that runs
it, and what that file says when it does.
"""

import os
import re
import sys

import tree

INSTALL_TEST = "tests/install/install_test.sh"

COMMANDS = [
    ("tools/demo.sh", "tests/install/demo_test.sh", "tools/demo.sh"),
    ("tools/test.sh", ".ci/run", "tools/test.sh"),
    ("cmake --install build", "tests/install/prefix_test.sh", '--install "$build" --strip --prefix'),
    ("cmake -G Ninja -S train", INSTALL_TEST, '-G Ninja -S "$scratch/source"'),
    ("cmake --build build-train", INSTALL_TEST, '--build "$scratch/build"'),
    ('"$HOME/chainmail/bin/launcher" -H localhost:2 -n 2', INSTALL_TEST,
     'bin/launcher" -H localhost:2 -n 2'),
]

BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)\)")


def commands(text):
    """The commands of all sh blocks, comments and continued lines put together."""
    for block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            line = line.split(" #")[0].strip()
            if line and not line.startswith("#"):
                yield line


def check(root, rows):
    text = tree.read(root, "README.md")
    problems = []
    found = list(commands(text))
    for command in found:
        row = next((row for row in rows if command.startswith(row[0])), None)
        if row is None:
            problems.append(f"README.md: no test is known to run '{command}' (tools/lint/readme.py)")
        elif not os.path.exists(os.path.join(root, row[1])) or row[2] not in tree.read(root, row[1]):
            problems.append(f"{row[1]}: does not contain '{row[2]}', so nothing runs '{command}'")
    if not found:
        problems.append("README.md: has no commands")
    problems += [f"README.md: links to {target}, which is not there" for target in LINK.findall(text)
                 if not os.path.exists(os.path.join(root, target))]
    return problems


if __name__ == "__main__":
    sys.exit(tree.report(check(sys.argv[1] if len(sys.argv) > 1 else ".", COMMANDS)))

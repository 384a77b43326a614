#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Compares docs/env.md with the environment variables in the code. usage: environment.py [root]

Ours (CHAINMAIL_*) must be documented wherever a source, script or CMake file names them as a
variable of the environment, tests aside; so must everything in the library's own list. What the
page documents must exist in the code.
"""

import re
import sys

import tree

# How a variable of the environment is written, by kind of file.
SPELLINGS = {
    (".h", ".cc", ".cu"): re.compile(r'"(CHAINMAIL_[A-Z0-9_]+)[="]'),
    (".py",): re.compile(r"""["'](CHAINMAIL_[A-Z0-9_]+)["']"""),
    (".sh", "/run"): re.compile(r"\$\{?(CHAINMAIL_[A-Z0-9_]+)"),
    (".cmake", ".in", "CMakeLists.txt"): re.compile(r"ENV\{(CHAINMAIL_[A-Z0-9_]+)\}"),
}
FOLDERS = ("base/", "ops/", "plugin/", "launcher/", "examples/", "tools/", "cmake/", ".ci/")
# The library's own list of what it reads.
LIST_FILE = "plugin/job/environment/env.cc"
LISTED = re.compile(r'\{"([A-Za-z0-9_]+)", "')
DOCUMENTED = re.compile(r"^\| `([A-Z][A-Za-z0-9_]+)`", re.MULTILINE)


def names_in_code(root):
    """Variable -> first file that names it."""
    found = {}
    for path in tree.files(root):
        if not path.startswith(FOLDERS) or path.startswith("tools/lint/"):
            continue
        for endings, spelling in SPELLINGS.items():
            if path.endswith(endings):
                for name in spelling.findall(tree.read(root, path)):
                    found.setdefault(name, path)
        if path == LIST_FILE:
            for name in LISTED.findall(tree.read(root, path)):
                found.setdefault(name, path)
    return found


def all_code(root):
    endings = tuple(ending for group in SPELLINGS for ending in group)
    return "\n".join(tree.read(root, path) for path in tree.files(root)
                     if path.startswith(FOLDERS) and path.endswith(endings)
                     and not path.startswith("tools/lint/"))


def check(root):
    documented = set(DOCUMENTED.findall(tree.read(root, "docs/env.md")))
    problems = [f"{path}: {name} is not in docs/env.md"
                for name, path in sorted(names_in_code(root).items()) if name not in documented]
    code = all_code(root)
    problems += [f"docs/env.md: nothing in the code knows {name}" for name in sorted(documented)
                 if not re.search(rf"\b{name}\b", code)]
    if not documented:
        problems.append("docs/env.md: no rows '| `NAME` | ...' found")
    return problems


if __name__ == "__main__":
    sys.exit(tree.report(check(sys.argv[1] if len(sys.argv) > 1 else ".")))

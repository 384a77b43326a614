#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Checks that doxygen finds every public symbol documented. usage: doxygen.py [root]; 77 means
skipped.
"""

import shutil
import subprocess
import sys
import tempfile

import tree

SKIPPED = 77


def main(root):
    doxygen = shutil.which("doxygen")
    if doxygen is None:
        print("skipped: doxygen is missing: install the package doxygen")
        return SKIPPED
    with tempfile.TemporaryDirectory() as scratch:
        settings = tree.read(root, "docs/maintainers/Doxyfile") + (
            f"OUTPUT_DIRECTORY = {scratch}\nGENERATE_HTML = NO\nGENERATE_XML = YES\n")
        result = subprocess.run([doxygen, "-"], cwd=root, input=settings, text=True,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    problems = sorted(set(line for line in result.stderr.splitlines() if line.strip()))
    if result.returncode and not problems:
        problems = [f"doxygen ended with code {result.returncode}"]
    return tree.report(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "."))

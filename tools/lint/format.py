#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Checks that clang-format-14 would change nothing. usage: format.py [root]; 77 means skipped."""

import shutil
import subprocess
import sys

import tree

SKIPPED = 77


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
    return 1 if result.returncode else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "."))

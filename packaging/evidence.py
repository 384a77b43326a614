# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Compares what the bill of materials says is compiled into programs and libraries with their symbols.

    python packaging/evidence.py [--at-most] BUILD

BUILD is a build folder, whose files have not been stripped. --at-most: of what the bill names, some may come
from shared libraries, as in builds that are not for packages.
"""

import pathlib
import re
import subprocess
import sys

import sbom


def products(build):
    """Files of machine code that packages are made of."""
    programs = {name for entry in sbom.BUNDLED for name in entry.inside}
    found = [path for path in sorted((build / "bin").glob("*")) if path.name in programs]
    return found + [path for path in sorted((build / "lib").glob("libchainmail*.so*")) if not path.is_symlink()]


def compiled_into(path):
    """The names of those of BUNDLED of which `path` has symbols of its own."""
    said = subprocess.run(["nm", "-C", "--defined-only", path], check=True, capture_output=True, text=True).stdout
    symbols = [line.split(" ", 2)[-1] for line in said.splitlines()]
    if not symbols:
        raise SystemExit(f"evidence: error: {path} was stripped, and says nothing about what is in it")
    return {entry.name for entry in sbom.BUNDLED if any(re.search(entry.sign, symbol) for symbol in symbols)}


def contradictions(path, at_most):
    named = {entry.name for entry in sbom.bundled_in([path.name])}
    found = compiled_into(path)
    lines = [f"{path} contains {name}, which packaging/sbom.py does not say" for name in sorted(found - named)]
    if not at_most:
        lines += [f"packaging/sbom.py says that {path} contains {name}, of which it has no symbol"
                  for name in sorted(named - found)]
    return lines


def main():
    arguments = sys.argv[1:]
    at_most = "--at-most" in arguments
    build, = [word for word in arguments if word != "--at-most"]
    found = products(pathlib.Path(build))
    if not found:
        sys.exit(f"evidence: error: {build} has no programs in bin and lib")
    wrong = [line for path in found for line in contradictions(path, at_most)]
    if wrong:
        sys.exit("\n".join(f"evidence: error: {line}" for line in wrong))
    print(f"evidence: {len(found)} files contain what packaging/sbom.py says")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main()

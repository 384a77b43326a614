#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Types docs/tutorial.md in a scratch folder, with the package installed beside it, on the data set
that is there: MNIST, or else Debian's Fashion-MNIST.

    tutorial_test.py CMAKE BUILD_DIR LIBTORCH

With CHAINMAIL_LONG_TESTS in the environment all of it, else without the first and the third program.
What the programs print is judged here: the accuracy that they reach, and that all ranks are equal.
"""

import gzip
import os
import pathlib
import re
import sys
import tempfile

import page
import scratch

ROOT = pathlib.Path(__file__).resolve().parents[2]
IS_LONG = "CHAINMAIL_LONG_TESTS" in os.environ
FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")


def unpack_data(folder):
    """The accuracy that one epoch surely reaches."""
    mnist = pathlib.Path(os.environ.get("CHAINMAIL_DATA", "/nowhere")) / "mnist"
    origin, accuracy = (mnist, 0.9) if mnist.is_dir() else (FASHION, 0.6)
    folder.mkdir()
    for path in origin.glob("*-ubyte*"):
        read = gzip.open if path.suffix == ".gz" else open
        with read(path, "rb") as file:
            (folder / path.name.removesuffix(".gz")).write_bytes(file.read())
    return accuracy


class Judge:
    """Of what the commands print."""

    def __init__(self, accuracy):
        self.accuracy, self.runs, self.digests = accuracy, 0, 0

    def __call__(self, command, output):
        if not command.endswith("build/mnist 1"):
            return
        ranks = 2 if "-n 2" in command else 1
        self.runs += 1
        tests = re.findall(r"^test: loss [0-9.]+, accuracy ([0-9.]+)\r?$", output, re.MULTILINE)
        if len(tests) != 1 or float(tests[0]) < self.accuracy:
            raise page.PageError(f"not one test with accuracy {self.accuracy}: {tests}")
        digests = re.findall(r"^digest [0-9a-f]{16} on (\d) ranks\r?$", output, re.MULTILINE)
        if digests and digests != [str(ranks)]:
            raise page.PageError(f"not one digest of {ranks} ranks: {digests}")
        self.digests += len(digests)


def wants(block, command):
    """The first and the third version of the program are compiled and run in the long form alone."""
    return IS_LONG or block in (1, 3) or command.startswith("cmake -")


def main():
    cmake, build, libtorch = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="chainmail-tutorial.") as name:
        home = pathlib.Path(name)
        scratch.install(cmake, build, home)
        folder = home / "mnist"
        folder.mkdir()
        judge = Judge(unpack_data(folder / "data"))
        environment = scratch.environment(home, libtorch)
        page.follow(ROOT / "docs" / "tutorial.md", folder, environment, judge, wants)
        expected = (6, 3) if IS_LONG else (3, 1)
        if (judge.runs, judge.digests) != expected:
            raise page.PageError(f"{judge.runs} runs and {judge.digests} digests, not {expected}")
        if not (folder / "mnist.pt").is_file():
            raise page.PageError("no mnist.pt was saved")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Types docs/tutorial.md in a scratch folder, with the package installed beside it, on the data set
that is there: MNIST, or else Debian's Fashion-MNIST.

    tutorial_test.py CMAKE BUILD_DIR LIBTORCH

What the programs print is judged here: the accuracy that they reach, and that all ranks are equal.
"""

import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import page

ROOT = pathlib.Path(__file__).resolve().parents[2]
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


def main():
    cmake, build, libtorch = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="chainmail-tutorial.") as name:
        scratch = pathlib.Path(name)
        subprocess.run([cmake, "--install", build, "--prefix", scratch / "chainmail"], check=True,
                       stdout=subprocess.DEVNULL)
        folder = scratch / "mnist"
        folder.mkdir()
        judge = Judge(unpack_data(folder / "data"))
        # One thread per process, since other tests may run beside this one.
        environment = dict(os.environ, HOME=str(scratch), CHAINMAIL_LIBTORCH=libtorch, OMP_NUM_THREADS="1")
        # Optimising LibTorch's headers four times would only take longer.
        compiler = scratch / "compiler"
        compiler.write_text(f'#!/bin/sh\nexec {shutil.which("ccache") or ""} "$@" -O0\n')
        compiler.chmod(0o755)
        environment["CMAKE_CXX_COMPILER_LAUNCHER"] = str(compiler)
        if shutil.which("ccache"):
            environment["CCACHE_DIR"] = subprocess.check_output(
                ["ccache", "--get-config", "cache_dir"], text=True).strip()
            # The same file in another scratch folder is the same to ccache.
            environment.update(CCACHE_NOHASHDIR="1", CCACHE_BASEDIR=name)
        page.follow(ROOT / "docs" / "tutorial.md", folder, environment, judge)
        if (judge.runs, judge.digests) != (6, 3):
            raise page.PageError(f"{judge.runs} runs and {judge.digests} digests, not 6 and 3")
        if not (folder / "mnist.pt").is_file():
            raise page.PageError("no mnist.pt was saved")


if __name__ == "__main__":
    main()

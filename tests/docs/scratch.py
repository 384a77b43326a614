# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""What a reader has before a page begins: the package in $HOME/chainmail, and a compiler."""

import os
import shutil
import subprocess


def install(cmake, build, scratch):
    subprocess.run([cmake, "--install", build, "--prefix", scratch / "chainmail"], check=True,
                   stdout=subprocess.DEVNULL)


def environment(scratch, libtorch):
    """With `scratch` as the reader's home. Other tests may run beside this one: one thread each."""
    values = dict(os.environ, HOME=str(scratch), CHAINMAIL_LIBTORCH=libtorch, OMP_NUM_THREADS="1")
    # Optimising LibTorch's headers would only take longer.
    compiler = scratch / "compiler"
    compiler.write_text(f'#!/bin/sh\nexec {shutil.which("ccache") or ""} "$@" -O0\n')
    compiler.chmod(0o755)
    values["CMAKE_CXX_COMPILER_LAUNCHER"] = str(compiler)
    if shutil.which("ccache"):
        values["CCACHE_DIR"] = subprocess.check_output(
            ["ccache", "--get-config", "cache_dir"], text=True).strip()
        # The same file in another scratch folder is the same to ccache.
        values.update(CCACHE_NOHASHDIR="1", CCACHE_BASEDIR=str(scratch))
    return values

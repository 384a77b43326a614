# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Opens libchainmail.so, which lies beside this file, when the torch here fits it."""

import atexit
import os

import torch
import torch.distributed

from chainmail import _build

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libchainmail.so")


def minor(version):
    """"2.11" of "2.11.0+cpu"."""
    return ".".join(version.split("+")[0].split(".")[:2])


def check_torch(found, place):
    """c10d inserts virtual functions between minor versions, so the library fits one of them."""
    wanted = minor(_build.TORCH_VERSION)
    if minor(found) != wanted:
        raise ImportError(
            f"this chainmail {_build.VERSION} was built with torch {_build.TORCH_VERSION} and works "
            f"with torch {wanted}.* only, but torch {found} is installed in {place}; install "
            f"'torch=={wanted}.*', or build chainmail against torch {found} "
            f"(tools/test.sh --torch X.Y.Z, CHAINMAIL_LIBTORCH)")


def load():
    """Raises ImportError that says what to do."""
    check_torch(torch.__version__, os.path.dirname(torch.__file__))
    if not torch.distributed.is_available():
        raise ImportError(f"torch {torch.__version__} was built without torch.distributed, which "
                          "chainmail needs")
    try:
        torch.ops.load_library(PATH)
    except OSError as error:
        raise ImportError(f"cannot open {PATH}: {error}; in a build tree, build the target "
                          "'chainmail' first") from error


def end_callbacks_at_exit():
    """A thread of the library that frees a tensor, runs a callback or asks a store written in Python
    needs the interpreter's lock, which kills it once the interpreter has begun to end. Handlers of
    atexit come before that.
    """
    seconds = 10
    atexit.register(torch.ops.chainmail.end_callbacks, seconds * 1000)


load()

# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Opens the libchainmail.so that fits the torch here; a wheel has one for each minor version."""

import atexit
import os

import torch
import torch.distributed

from chainmail import _build

HERE = os.path.dirname(os.path.abspath(__file__))


def minor(version):
    """"2.11" of "2.11.0+cpu"."""
    return ".".join(version.split("+")[0].split(".")[:2])


def library_for(found, place):
    """The path of the library for torch `found`, which is installed in `place`.

    c10d inserts virtual functions between minor versions, so a library fits one of them.
    """
    aboard = list(_build.LIBRARIES)
    if minor(found) not in aboard:
        raise ImportError(
            f"this chainmail {_build.VERSION} was built with torch {' and '.join(aboard)} and works with "
            f"no other minor version, but torch {found} is installed in {place}; install "
            f"'torch=={aboard[-1]}.*', or build chainmail against torch {found} "
            f"(tools/setup.sh --torch X.Y.Z, then tools/install.sh; CHAINMAIL_LIBTORCH)")
    return os.path.join(HERE, _build.LIBRARIES[minor(found)])


def load():
    """Raises ImportError that says what to do."""
    path = library_for(torch.__version__, os.path.dirname(torch.__file__))
    if not torch.distributed.is_available():
        raise ImportError(f"torch {torch.__version__} was built without torch.distributed, which "
                          "chainmail needs")
    try:
        torch.ops.load_library(path)
    except OSError as error:
        raise ImportError(f"cannot open {path}: {_why(path, error)}") from error


def _why(path, error):
    """What the loader said, which torch keeps as the cause of an error without it, and what to do."""
    if not os.path.isdir(HERE):
        return "a library inside of a zip file cannot be opened; install chainmail into a folder"
    if not os.path.exists(path):
        return ("there is no such file: install chainmail again, or, in a build tree, build the target "
                "'chainmail'")
    said = str(error.__cause__ or error).removeprefix(f"{path}: ")
    hint = ""
    if "undefined symbol" in said:
        hint = (f"; it was built with a release of torch {minor(torch.__version__)}, and torch "
                f"{torch.__version__} in {os.path.dirname(torch.__file__)} is not like it")
    return said + hint


def end_callbacks_at_exit():
    """A thread of the library that frees a tensor, runs a callback or asks a store written in Python
    needs the interpreter's lock, which kills it once the interpreter has begun to end. Handlers of
    atexit come before that.
    """
    seconds = 10
    atexit.register(torch.ops.chainmail.end_callbacks, seconds * 1000)


load()

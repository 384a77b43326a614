# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Prints the PyPI requirements that an installed torch wheel needs beside itself, one per line.

usage: torch_wheels.py cpp|python|cuda

Read from the wheel's own metadata, so that another torch version brings its own pins. `cpp` is what
libtorch_cpu and libc10_cuda load; `python` is what `import torch` loads (triton, cuSOLVER, NVRTC
and the CUDA bindings are opened only on use and left out); `cuda` is the compiler and the headers.
"""

import importlib.metadata
import re
import sys

TOOLKIT_EXTRAS = {
    "cpp": "cudart cupti",
    "python": "cublas cudart cufft cufile cupti curand cusparse nvjitlink",
    "cuda": "cccl crt cudart nvcc nvvm",
}
# Beside the toolkit; matched against the start of a requirement's name. Torch before 2.11 lists the
# toolkit's wheels one by one.
OTHER_WHEELS = {
    "cpp": ("nvidia-cuda-runtime", "nvidia-cuda-cupti"),
    "python": ("filelock", "typing-extensions", "setuptools", "sympy", "networkx", "jinja2", "fsspec",
               "nvidia-"),
    "cuda": ("nvidia-nccl",),
}
# Never named by torch, but without it every `import torch` prints a warning.
EXTRA_WHEELS = {"cpp": (), "python": ("numpy",), "cuda": ()}


def requirements(depth, lines):
    """The requirement lines of `depth` among the Requires-Dist lines of torch."""
    found = []
    for line in lines:
        requirement, _, marker = line.partition(";")
        requirement = requirement.strip()
        if "extra ==" in marker:
            continue
        toolkit = re.fullmatch(r"cuda-toolkit(?:\[[^\]]*\])?(.*)", requirement)
        if toolkit:
            extras = ",".join(TOOLKIT_EXTRAS[depth].split())
            found.append(f"cuda-toolkit[{extras}]{toolkit.group(1)}")
        elif requirement.startswith(OTHER_WHEELS[depth]):
            found.append(requirement)
    found.extend(EXTRA_WHEELS[depth])
    return found


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in TOOLKIT_EXTRAS:
        sys.exit("usage: torch_wheels.py cpp|python|cuda")
    lines = importlib.metadata.requires("torch") or []
    for requirement in requirements(sys.argv[1], lines):
        print(requirement)


if __name__ == "__main__":
    main()

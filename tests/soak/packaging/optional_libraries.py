# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""The MPI and CUDA libraries of an installed wheel: present, found where they are looked for, and not opened
before somebody asks.
"""

import ctypes
import glob
import os
import sys

import chainmail
import torch

folders = glob.glob(os.path.join(os.path.dirname(chainmail.__file__), "torch*"))
mine = "torch" + ".".join(torch.__version__.split(".")[:2])
folder = next(name for name in folders if os.path.basename(name) == mine)
maps = open("/proc/self/maps", encoding="utf-8").read()
assert folder in maps, "libchainmail of this torch is not mapped"
assert not any(name in maps for name in folders if name != folder), "that of another torch is mapped"
for name in ("libchainmail_mpi.so", "libchainmail_cuda.so"):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        print(f"{name}: not built")
        continue
    assert path not in maps, f"{name} was opened unasked"
    try:
        ctypes.CDLL(path)
        print(f"{name}: opens")
    except OSError as error:
        # Without Open MPI on this machine, or with a torch for CPUs.
        if "libmpi" not in str(error) and "libcudart" not in str(error):
            sys.exit(f"FAILED: {name}: {error}")
        print(f"{name}: {error}")

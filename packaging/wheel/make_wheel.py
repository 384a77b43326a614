# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""The build backend (PEP 517) of `pip install build/python`; needs the standard library only.

The wheel requires the minor version of torch that the library was built with. It uses this system's
glog, OpenSSL and Highway, so its tag is the plain linux_<processor>: for machines like this one. The
wheel for all machines is made by tools/package.sh.
"""

import glob
import os
import shutil
import subprocess
import tempfile

import wheel_file
import wheel_settings as settings

HERE = os.path.dirname(os.path.abspath(__file__))
VERSION = f"{settings.VERSION}+torch{settings.TORCH_MINOR}"
TAG = f"py3-none-linux_{settings.PROCESSOR}"
INFO = f"chainmail-{VERSION}.dist-info"
# Where torch's libraries and CUDA's runtime are as seen from the installed package.
RUNPATH = "$ORIGIN:$ORIGIN/../torch/lib:$ORIGIN/../nvidia/cu13/lib"

METADATA = f"""\
Metadata-Version: 2.1
Name: chainmail
Version: {VERSION}
Summary: Process group backend for torch.distributed: shared memory and TCP, hierarchical all-reduce
License: BSD-3-Clause
Requires-Python: >=3.10
Requires-Dist: torch=={settings.TORCH_MINOR}.*
"""

# Opened when somebody asks for MPI or for a GPU; not built where Open MPI's headers or nvcc are missing.
OPTIONAL = ["libchainmail_mpi.so", "libchainmail_cuda.so"]


def library(name):
    """A library without debug information and without the paths of the build."""
    path = os.path.join(HERE, "chainmail", name)
    if not os.path.exists(path):
        raise SystemExit(f"{os.path.realpath(path)} is not there: build the target 'chainmail' first")
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, name)
        shutil.copyfile(path, copy)
        subprocess.run([settings.STRIP, "--strip-unneeded", copy], check=True)
        script = os.path.join(folder, "runpath.cmake")
        with open(script, "w", encoding="utf-8") as file:
            file.write(f'file(RPATH_SET FILE "{copy}" NEW_RPATH [[{RUNPATH}]])\n')
        subprocess.run([settings.CMAKE, "-P", script], check=True)
        with open(copy, "rb") as file:
            return file.read()


def contents():
    """Path in the wheel -> bytes."""
    found = {"chainmail/libchainmail.so": library("libchainmail.so")}
    for name in OPTIONAL:
        if os.path.exists(os.path.join(HERE, "chainmail", name)):
            found[f"chainmail/{name}"] = library(name)
    for name in sorted(glob.glob("chainmail/**/*.py", root_dir=HERE, recursive=True)):
        with open(os.path.join(HERE, name), "rb") as file:
            found[name] = file.read()
    with open(settings.LICENSE, "rb") as file:
        found[f"{INFO}/LICENSE"] = file.read()
    found[f"{INFO}/METADATA"] = METADATA.encode()
    found[f"{INFO}/WHEEL"] = wheel_file.wheel_metadata(TAG)
    found[f"{INFO}/entry_points.txt"] = wheel_file.BACKEND_ENTRY_POINT.encode()
    return found


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517: writes the wheel and returns its name."""
    del config_settings, metadata_directory
    name = f"chainmail-{VERSION}-{TAG}.whl"
    wheel_file.write_wheel(os.path.join(wheel_directory, name), contents(), INFO)
    return name

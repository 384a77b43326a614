# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""The build backend (PEP 517) of `pip install build/python`; needs the standard library only.

The wheel requires the minor version of torch that the library was built with. It uses this system's
glog, OpenSSL and Highway, so its tag is the plain linux_<processor>: for machines like this one.
"""

import base64
import glob
import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile

import wheel_settings as settings

HERE = os.path.dirname(os.path.abspath(__file__))
VERSION = f"{settings.VERSION}+torch{settings.TORCH_MINOR}"
TAG = f"py3-none-linux_{settings.PROCESSOR}"
INFO = f"chainmail-{VERSION}.dist-info"
# Where torch's libraries are as seen from the installed package.
RUNPATH = "$ORIGIN/../torch/lib"

METADATA = f"""\
Metadata-Version: 2.1
Name: chainmail
Version: {VERSION}
Summary: Process group backend for torch.distributed: shared memory and TCP, hierarchical all-reduce
License: BSD-3-Clause
Requires-Python: >=3.10
Requires-Dist: torch=={settings.TORCH_MINOR}.*
"""
WHEEL = f"""\
Wheel-Version: 1.0
Generator: chainmail
Root-Is-Purelib: false
Tag: {TAG}
"""
# How torch finds backends by itself from 2.14 on; before that the user imports chainmail.
ENTRY_POINTS = """\
[torch.distributed.backends]
chainmail = chainmail:register
"""


# Opened when somebody asks for MPI; not built where Open MPI's headers are missing.
OPTIONAL = ["libchainmail_mpi.so"]


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
    for name, text in (("METADATA", METADATA), ("WHEEL", WHEEL),
                       ("entry_points.txt", ENTRY_POINTS)):
        found[f"{INFO}/{name}"] = text.encode()
    return found


def record(files):
    lines = []
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(data)}\n")
    lines.append(f"{INFO}/RECORD,,\n")
    return "".join(lines).encode()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517: writes the wheel and returns its name."""
    del config_settings, metadata_directory
    files = contents()
    files[f"{INFO}/RECORD"] = record(files)
    name = f"chainmail-{VERSION}-{TAG}.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            wheel.writestr(path, data)
    return name

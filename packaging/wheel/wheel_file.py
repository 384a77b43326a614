# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Writes wheels: the same contents give the same bytes."""

import base64
import hashlib
import os
import time
import zipfile

# How torch finds backends by itself from 2.14 on; before that the user imports chainmail.
BACKEND_ENTRY_POINT = """\
[torch.distributed.backends]
chainmail = chainmail:register
"""
# The first moment that zip knows.
FIRST_TIME = 315532800


def wheel_metadata(tag):
    return ("Wheel-Version: 1.0\n"
            "Generator: chainmail\n"
            "Root-Is-Purelib: false\n"
            f"Tag: {tag}\n").encode()


def record(files, info):
    lines = []
    for path in sorted(files):
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[path]).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(files[path])}\n")
    lines.append(f"{info}/RECORD,,\n")
    return "".join(lines).encode()


def write_wheel(path, files, info, programs=()):
    """`files`: path in the wheel -> bytes; adds RECORD to the folder `info`. `programs` are those of them that
    may be executed. Times are SOURCE_DATE_EPOCH's, else the first that a zip file can hold.
    """
    moment = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", FIRST_TIME)), FIRST_TIME))
    files = files | {f"{info}/RECORD": record(files, info)}
    # Installers want the metadata at the end.
    order = sorted(files, key=lambda name: (name.startswith(f"{info}/"), name))
    part = f"{path}.part"  # nobody shall find half a wheel
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name in order:
            entry = zipfile.ZipInfo(name, moment[:6])
            entry.create_system = 3  # Unix, whose permissions these are
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if name in programs else 0o100644) << 16
            wheel.writestr(entry, files[name])
    os.replace(part, path)

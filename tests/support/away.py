#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""A file system that takes the mount and never answers, as NFS that is mounted hard and whose server is away. Ends when
it is unmounted. Needs root and FUSE.

usage: away.py FOLDER
"""

import ctypes
import os
import select
import struct
import sys

device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
if ctypes.CDLL(None, use_errno=True).mount(b"away", sys.argv[1].encode(), b"fuse", 0, options) != 0:
    sys.exit("mount: " + os.strerror(ctypes.get_errno()))
unique = struct.unpack_from("=IIQ", os.read(device, 1 << 17))[2]
# FUSE_INIT alone is answered: version 7.31, 8 requests at a time, of up to 4096 bytes.
os.write(device, struct.pack("=IiQ", 80, 0, unique) + struct.pack("=IIIIHHII", 7, 31, 0, 0, 8, 8, 4096, 1) + bytes(36))
print("mounted", flush=True)
poll = select.poll()
poll.register(device, 0)  # errors
poll.poll()

# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""leave_probe.cc for Python, and for torch's own backends: leave.py WHEN CODE [BACKEND].

Besides its ways to leave there are "destroyed", after destroy_process_group, and "group", before
the first collective of a second group; no way to leave runs destroy_process_group but that one.
"start" wants an empty folder in $LEAVE_FOLDER, where the ranks wait for each other.
"""

import datetime
import os
import sys
import time

import torch
import torch.distributed as dist


def leave(when, code):
    print(f"left at {time.time():.3f}", flush=True)
    if when == "abrupt":
        os._exit(code)
    sys.exit(code)


def work(when, leaves, code, backend, last):
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=200))
    if when in ("group", "done"):
        dist.barrier()
        others = dist.new_group(range(last if when == "done" else last + 1))
        if leaves:
            leave(when, code)
        if when == "done":
            time.sleep(0.7)
        dist.all_reduce(torch.ones(3), group=others)
        return
    if leaves:
        if when == "destroyed":
            dist.destroy_process_group()
        leave(when, code)
    if when == "message":
        dist.recv(torch.zeros(3), last)
    else:
        dist.all_reduce(torch.ones(3))


def main():
    when, code = sys.argv[1], int(sys.argv[2])
    backend = sys.argv[3] if len(sys.argv) > 3 else "chainmail"
    if backend == "chainmail":
        import chainmail  # noqa: F401, registers the backend
    rank, size = (int(os.environ.get(ours) or os.environ[mpis])
                  for ours, mpis in (("RANK", "OMPI_COMM_WORLD_RANK"),
                                     ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE")))
    leaves = rank + 1 == size
    if when == "start":  # a second after the first one is told, the others are ended: all have torch by now
        folder = os.environ["LEAVE_FOLDER"]
        with open(os.path.join(folder, str(rank)), "w", encoding="utf-8"):
            pass
        limit = time.monotonic() + 60
        while len(os.listdir(folder)) < size:
            assert time.monotonic() < limit, f"only ranks {os.listdir(folder)} of {size} have loaded torch"
            time.sleep(0.01)
        if leaves: leave(when, code)
    try:
        work(when, leaves, code, backend, size - 1)
    except RuntimeError as error:
        print(f"told at {time.time():.3f} rank {rank} by {type(error).__name__}: "
              f"{str(error).splitlines()[0]}", flush=True)
        # mpiexec and torchrun end the others with the first one.
        if os.environ.keys() & {"OMPI_COMM_WORLD_RANK", "TORCHELASTIC_RUN_ID"}: time.sleep(2)
        os._exit(7)


main()

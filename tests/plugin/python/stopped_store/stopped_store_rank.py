# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""A rank of stopped_store_test.py. usage: stopped_store_rank.py FOLDER WHEN LIMIT RANKS

Meets the others; then the store's host stops, or is cut off, and every rank that is left waits for
what cannot end. WHEN: "later" after operations have run, "first" before the first one, "receive"
in a receive. Prints how long it took until the error came, and until the group was destroyed.
"""

import datetime
import os
import pathlib
import signal
import sys
import time

import torch
import torch.distributed as dist

import chainmail  # noqa: F401

folder, when, limit, ranks = pathlib.Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4])


def wait_until(is_true):
    end = time.monotonic() + 60
    while not is_true():
        if time.monotonic() > end:
            sys.exit("the test did not go on")
        time.sleep(0.01)


# They have the limit to meet, and one may need longer than another to load torch.
(folder / f"pid.{os.getpid()}").touch()
wait_until(lambda: len(list(folder.glob("pid.*"))) == ranks)
dist.init_process_group("chainmail", timeout=datetime.timedelta(seconds=limit))
rank, size = dist.get_rank(), dist.get_world_size()
if when != "first":
    dist.all_reduce(torch.ones(4))
    dist.barrier()
    if when == "receive":  # the connections stand, so that nothing but the message is missing
        dist.all_to_all_single(torch.empty(size), torch.ones(size))


def state_of(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


(folder / f"ready.{rank}").touch()
wait_until((folder / "go").exists)
if (folder / "go").read_text() == "stop":
    if rank == 0:
        (folder / "name").write_text(str(os.getpid()))
        (folder / "name").rename(folder / "stopped")
        os.kill(os.getpid(), signal.SIGSTOP)
    wait_until((folder / "stopped").exists)
    wait_until(lambda: state_of((folder / "stopped").read_text()) == "T")

start = time.monotonic()
try:
    if when == "receive":
        dist.recv(torch.empty(1), src=(rank + 1) % size)
    else:
        dist.all_reduce(torch.ones(4))
    error = "none"
except RuntimeError as raised:
    error = str(raised).splitlines()[0]
seconds = time.monotonic() - start
dist.destroy_process_group()
# Whole, for who waits for it.
result = folder / f"new.{rank}"
result.write_text(f"{seconds:.2f} {time.monotonic() - start - seconds:.2f} {error}\n")
result.rename(folder / f"result.{rank}")

# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Rank 0 serves torch's store and is the first to leave. Ranks that leave a little later find the
store there, so that torch prints no stack trace in a job without a fault; rank 0 stays a second for
them and not more.

usage: leave_test.py, which starts 3 ranks of itself; PYTHONPATH has chainmail and tests/support
"""

import os
import select
import subprocess
import sys
import time

from patience import patient
from ports import free_port

RANKS = 3


def soon():
    dist.all_reduce(torch.ones(4))
    leave_after(0.1)


def with_a_subgroup():
    """That not all are in, and that rank 0 leaves before the group of all."""
    group = dist.new_group([0, 1])
    if dist_rank < 2:
        dist.all_reduce(torch.ones(4), group=group)
        dist.destroy_process_group(group)
    leave_after(0.1)


def after_a_group_without_rank_0():
    """That its ranks keep a handle of, as the pieces of a DeviceMesh do."""
    groups = [dist.new_group([1, 2]), dist.new_group([0, 1])]
    for group in groups:
        if dist_rank in dist.get_process_group_ranks(group):
            dist.all_reduce(torch.ones(4), group=group)
    handles.extend(groups)
    leave_after(0.1)


def much_later():
    dist.all_reduce(torch.ones(4))
    begin = time.monotonic()
    if dist_rank != 0:
        select.select([sys.stdin], [], [], 60)  # until rank 0, which holds the other end, has ended
    dist.destroy_process_group()
    spent = time.monotonic() - begin
    assert dist_rank != 0 or spent < patient(2), f"rank 0 left after {spent:.2f} s"


def leave_after(seconds):
    if dist_rank != 0:
        time.sleep(seconds)
    dist.destroy_process_group()


QUIET = {way.__name__: way for way in (soon, with_a_subgroup, after_a_group_without_rank_0)}
WAYS = QUIET | {"much_later": much_later}


def run(way):
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
              "WORLD_SIZE": str(RANKS), "OMP_NUM_THREADS": "1"}
    read_end, write_end = os.pipe()
    ranks = [subprocess.Popen([sys.executable, "-B", __file__, way], text=True,
                              stdin=read_end if rank else write_end,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=os.environ | common | {"RANK": str(rank)})
             for rank in range(RANKS)]
    os.close(read_end)
    os.close(write_end)
    try:
        for rank, process in enumerate(ranks):
            output, _ = process.communicate(timeout=100)
            assert process.returncode == 0, f"{way}: rank {rank}: {process.returncode}\n{output}"
            if way in QUIET and "TCPStore" in output:
                return f"{way}: rank {rank} printed\n{output}"
    finally:
        for process in ranks:
            process.kill()
    print(way, "passed", flush=True)
    return None


if len(sys.argv) == 1:
    for each in WAYS:
        # Who is held up for the second that rank 0 stays finds no store.
        said = [run(each)]
        while said[-1] and len(said) < 3: said.append(run(each))
        assert not said[-1], "\n".join(said)
else:
    import torch
    import torch.distributed as dist

    import chainmail  # noqa: F401, which makes the backend known

    handles = []  # which live as long as the process
    dist_rank = int(os.environ["RANK"])
    dist.init_process_group("chainmail")
    WAYS[sys.argv[1]]()
    if dist_rank == 0:
        os._exit(0)  # and the store with it, at once

# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""What an all-reduce of one float costs from Python, on Chainmail and on Gloo in turn.

    PYTHONPATH=build/python launcher -H localhost:2 -n 2 python tools/bench/one_float.py [ROUNDS]

Prints the median over rounds of each round's median, the ratio of minima, and the worst round's.
"""

import statistics
import sys
import time

import torch
import torch.distributed as dist

import chainmail  # noqa: F401

OPERATIONS = 200


def time_round(group):
    """Microseconds per operation on the slowest rank, ascending."""
    tensor = torch.zeros(1)
    for _ in range(20):
        dist.all_reduce(tensor, group=group)
    times = torch.zeros(OPERATIONS, dtype=torch.float64)
    for i in range(OPERATIONS):
        start = time.perf_counter()
        dist.all_reduce(tensor, group=group)
        times[i] = (time.perf_counter() - start) * 1e6
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return sorted(times.tolist())


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    torch.set_num_threads(1)
    dist.init_process_group("chainmail")
    gloo = dist.new_group(backend="gloo")
    ours, base = [], []
    for _ in range(rounds):
        ours.append(time_round(dist.group.WORLD))
        base.append(time_round(gloo))
    if dist.get_rank() == 0:
        median_of = statistics.median
        mine = median_of(median_of(times) for times in ours)
        theirs = median_of(median_of(times) for times in base)
        minima = min(times[0] for times in base) / min(times[0] for times in ours)
        worst = min(median_of(b) / median_of(o) for o, b in zip(ours, base, strict=True))
        print(f"one float, {dist.get_world_size()} ranks: chainmail {mine:.2f} us, gloo "
              f"{theirs:.2f} us, ratio {theirs / mine:.2f} ({minima:.2f}) [{worst:.2f}]")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Checks every collective on tensors of more than 2^31 elements, value by value.

    PYTHONPATH=build/python launcher -H localhost:2 -n 2 python tests/soak/engine/large_tensors.py

Two ranks need about 10 GiB of memory. CHAINMAIL_LOCAL=tcp takes them over sockets.
"""

import time

import torch
import torch.distributed as dist

import chainmail  # noqa: F401

LARGE = 2**31 + 5
HALF = 2**30 + 3  # two of them are more than 2^31
PERIOD = 251  # no power of two, so that shifted data does not look right
STRIP = PERIOD * 2**16


def fill(tensor, start, add):
    """Element i becomes (start + i) % PERIOD + add, modulo 256."""
    strip = pattern(start, add, torch.uint8)
    for at in range(0, tensor.numel(), STRIP):
        part = tensor[at : at + STRIP]
        part.copy_(strip[: part.numel()])


def pattern(start, add, dtype):
    values = (torch.arange(start, start + STRIP, dtype=torch.int64) % PERIOD + add) % 256
    return values.to(dtype)


def wrong(tensor, strip):
    """How many elements are not those of the repeated strip."""
    count = 0
    for at in range(0, tensor.numel(), STRIP):
        part = tensor[at : at + STRIP]
        if not torch.equal(part, strip[: part.numel()]):
            count += int((part != strip[: part.numel()]).sum())
    return count


def filled(count, start, add, dtype=torch.uint8):
    tensor = torch.empty(count, dtype=dtype)
    fill(tensor, start, add)
    return tensor


def check_broadcast(rank):
    tensor = filled(LARGE, 0, rank)
    dist.broadcast(tensor, 1)
    return wrong(tensor, pattern(0, 1, torch.uint8))


def doubled(dtype):
    """What two ranks' patterns, one higher than the other, sum up to."""
    return (pattern(0, 0, torch.int64) + pattern(0, 1, torch.int64)).to(dtype)


def check_all_reduce(rank):
    tensor = filled(LARGE, 0, rank)
    dist.all_reduce(tensor)
    return wrong(tensor, doubled(torch.uint8))


def check_all_reduce_of_bfloat16(rank):
    tensor = torch.empty(LARGE, dtype=torch.bfloat16)
    fill(tensor, 0, rank)
    dist.all_reduce(tensor)
    return wrong(tensor, doubled(torch.bfloat16))


def check_reduce(rank):
    tensor = filled(LARGE, 0, rank)
    dist.reduce(tensor, 0)
    return wrong(tensor, doubled(torch.uint8)) if rank == 0 else 0


def check_all_gather(rank):
    output = torch.empty(2 * HALF, dtype=torch.uint8)
    dist.all_gather_into_tensor(output, filled(HALF, 0, rank))
    return sum(wrong(output[r * HALF : (r + 1) * HALF], pattern(0, r, torch.uint8)) for r in (0, 1))


def check_reduce_scatter(rank):
    output = torch.empty(HALF, dtype=torch.uint8)
    dist.reduce_scatter_tensor(output, filled(2 * HALF, 0, rank))
    sums = pattern(rank * HALF, 0, torch.int64) + pattern(rank * HALF, 1, torch.int64)
    return wrong(output, sums.to(torch.uint8))


def check_all_to_all_of_unequal_parts(rank):
    sent = [7, LARGE] if rank == 0 else [HALF, 9]
    taken = [7, HALF] if rank == 0 else [LARGE, 9]
    output = torch.empty(sum(taken), dtype=torch.uint8)
    dist.all_to_all_single(output, filled(sum(sent), 0, rank), taken, sent)
    first, second = output.split(taken)
    starts = (0, 0) if rank == 0 else (7, HALF)
    return wrong(first, pattern(starts[0], 0, torch.uint8)) + wrong(
        second, pattern(starts[1], 1, torch.uint8)
    )


def check_gather(rank):
    parts = [torch.empty(LARGE, dtype=torch.uint8) for _ in (0, 1)] if rank == 0 else None
    dist.gather(filled(LARGE, 0, rank), parts)
    return sum(wrong(p, pattern(0, r, torch.uint8)) for r, p in enumerate(parts or []))


def check_scatter(rank):
    parts = [filled(LARGE, 0, r) for r in (0, 1)] if rank == 0 else None
    output = torch.empty(LARGE, dtype=torch.uint8)
    dist.scatter(output, parts)
    return wrong(output, pattern(0, rank, torch.uint8))


def check_send(rank):
    if rank == 0:
        dist.send(filled(LARGE, 0, 3), 1)
        return 0
    output = torch.empty(LARGE, dtype=torch.uint8)
    dist.recv(output, 0)
    return wrong(output, pattern(0, 3, torch.uint8))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("chainmail")
    rank = dist.get_rank()
    if dist.get_world_size() != 2:
        raise SystemExit("large_tensors.py: start it with 2 ranks")
    checks = {name: run for name, run in globals().items() if name.startswith("check_")}
    bad = 0
    for name, run in checks.items():
        start = time.monotonic()
        count = torch.tensor(run(rank))
        dist.all_reduce(count)
        bad += int(count)
        if rank == 0:
            print(f"{name[6:]}: {int(count)} wrong, {time.monotonic() - start:.1f} s", flush=True)
    dist.destroy_process_group()
    if bad:
        raise SystemExit(f"{bad} elements are wrong")


if __name__ == "__main__":
    main()

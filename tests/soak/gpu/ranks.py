#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""What ranks that share one GPU do for gpu.sh; torchrun starts them.

usage: ranks.py [--device cpu|cuda] collectives|ddp|graph|killed|absent

--device cpu runs what can be run without a GPU, to check this script itself.
"""

import argparse
import datetime
import hashlib
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import chainmail

RANK = int(os.environ["RANK"])
SIZE = int(os.environ["WORLD_SIZE"])
TIMEOUT = datetime.timedelta(seconds=120)
COUNTS = [1, 257, 100003, 1 << 20]
ON_GPUS_ONLY = ["pure_nccl", "non_cuda_aware"]
# Of the largest term: float32 sums of a few ranks; two roundings; one rounding per rank.
BOUND = {"native": 1e-6, "float16": 1.1e-3, "bfloat16": 8.8e-3}
KILLED = 1
KEPT = []  # graphs that outlive their group, whose end must not wait for them


def contribution(rank, count):
    generator = torch.Generator().manual_seed(1000 * rank + count % 997)
    return torch.rand(count, generator=generator) * 2 - 1


def digest(tensor):
    return hashlib.sha256(tensor.cpu().numpy().tobytes()).hexdigest()


def check_all_reduce(group, algorithm, wire, device):
    """Checks the values of the mean and that all ranks have the same bits."""
    for count in COUNTS:
        tensor = contribution(RANK, count).to(device)
        dist.all_reduce(tensor, dist.ReduceOp.AVG, group=group)
        every = [contribution(rank, count).double() for rank in range(SIZE)]
        error = (tensor.cpu().double() - sum(every) / SIZE).abs().max().item()
        bound = BOUND[wire] * (SIZE if algorithm in ("flat", "pure_nccl", "auto") else 1)
        assert error <= bound, f"{algorithm} {wire} {count}: off by {error}, allowed {bound}"
        digests = [None] * SIZE
        dist.all_gather_object(digests, digest(tensor))
        assert len(set(digests)) == 1, f"{algorithm} {wire} {count}: ranks differ"


def collectives(device):
    names = ["flat", "hierarchical", "two_dimensional", "auto"]
    if device.type == "cuda":
        names += ON_GPUS_ONLY
    for algorithm in names:
        for wire in BOUND:
            group = dist.new_group(timeout=TIMEOUT, backend="chainmail",
                                   pg_options=chainmail.Options(algorithm=algorithm, wire=wire))
            check_all_reduce(group, algorithm, wire, device)
            dist.destroy_process_group(group)
    return f"{len(names)} algorithms x {len(BOUND)} wires x {len(COUNTS)} sizes right and bit-equal"


def graph(device):
    """An all-reduce captured into a CUDA graph and replayed."""
    assert device.type == "cuda", "CUDA graphs need a GPU"
    tensor = torch.empty(100003, device=device)
    source = contribution(RANK, tensor.numel()).to(device)
    tensor.copy_(source)
    dist.all_reduce(tensor)  # makes what a capture cannot: communicators and scratch memory
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        tensor.copy_(source)
        dist.all_reduce(tensor)
    expected = sum(contribution(rank, tensor.numel()) for rank in range(SIZE))
    for _ in range(3):
        tensor.zero_()
        captured.replay()
        torch.cuda.synchronize()
        assert (tensor.cpu() - expected).abs().max().item() < 1e-5, "a replay is wrong"
    KEPT.append(captured)
    return "captured once, replayed three times, right"


def ddp(device):
    """torch's DistributedDataParallel over chainmail, and calls whose tensors are let go meanwhile."""
    for wire in BOUND:
        group = dist.new_group(timeout=TIMEOUT, backend="chainmail", pg_options=chainmail.Options(wire=wire))
        torch.manual_seed(7)
        model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
        inputs = torch.randn(SIZE * 32, 64)
        alone = [p.grad for p in gradients(model, inputs)]
        wrapped = torch.nn.parallel.DistributedDataParallel(model.to(device), process_group=group)
        for _ in range(3):
            wrapped.zero_grad()
            wrapped(inputs[RANK * 32:(RANK + 1) * 32].to(device)).pow(2).mean().backward()
        for parameter, expected in zip(wrapped.parameters(), alone):
            error = (parameter.grad.cpu() - expected).abs().max() / expected.abs().max()
            assert error <= max(BOUND[wire] * SIZE, 1e-4), f"{wire}: a gradient is off by {error}"
        digests = [None] * SIZE
        dist.all_gather_object(digests, [digest(parameter.grad) for parameter in wrapped.parameters()])
        assert all(other == digests[0] for other in digests), f"{wire}: ranks differ"
        dist.destroy_process_group(group)
    # Memory that is given back while its all-reduce runs would be written to by it.
    kept = []
    for step in range(200):
        tensor = torch.full((1 << 18,), float(step), device=device)
        work = dist.all_reduce(tensor, async_op=True)
        del tensor
        kept.append(torch.full((1 << 18,), -1.0, device=device))
        work.wait()
        del work
        kept = kept[-3:]
        assert torch.stack(kept).sum().item() == -len(kept) * 2**18, f"another's memory in step {step}"
    return "gradients of DistributedDataParallel right and bit-equal; 200 tensors let go meanwhile"


def gradients(model, inputs):
    """The parameters after one pass over all ranks' samples, whose mean is the mean of ranks' means."""
    model(inputs).pow(2).mean().backward()
    kept = [torch.nn.Parameter(p.detach().clone()) for p in model.parameters()]
    for copy, parameter in zip(kept, model.parameters()):
        copy.grad = parameter.grad.clone()
    model.zero_grad()
    return kept


def free_memory(device):
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0


def killed(device):
    """Rank 1 dies between two all-reduces; the others must be told soon and go on."""
    torch.zeros(1, device=device)  # the context is no memory of ours
    free_before = free_memory(device)
    group = dist.new_group(timeout=TIMEOUT, backend="chainmail")
    tensor = torch.ones(1 << 20, device=device)
    for _ in range(3):
        dist.all_reduce(tensor, group=group)
    if device.type == "cuda":
        torch.cuda.synchronize()
    dist.barrier()
    if RANK == KILLED:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    failure = None
    try:
        while time.monotonic() - begin < 60:
            work = dist.all_reduce(tensor, group=group, async_op=True)
            work.wait(datetime.timedelta(seconds=30))
    except RuntimeError as error:
        failure = str(error).splitlines()[0]
    seconds = time.monotonic() - begin
    assert failure is not None, "nobody noticed in 60 s"
    assert seconds < 5, f"noticed after {seconds:.1f} s: {failure}"
    assert (torch.ones(8, device=device) * 2).sum().item() == 16, "the process is not usable"
    dist.destroy_process_group(group)
    del tensor
    if device.type == "cuda":
        torch.cuda.empty_cache()
        lost = (free_before - free_memory(device)) / 2**20
        # The dead rank's own memory comes back, too, so only what is missing counts.
        assert lost <= 16, f"{lost:.0f} MiB of device memory did not come back"
    return f"noticed after {seconds:.2f} s: {failure[:100]}"


def absent(device):
    """Rank 1 comes 20 s late to a group that waits for 5: rank 0 is told."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=5), backend="chainmail")
    tensor = torch.ones(1 << 16, device=device)
    dist.all_reduce(tensor, group=group)
    if device.type == "cuda":
        torch.cuda.synchronize()
    dist.barrier()
    begin = time.monotonic()
    if RANK == 1:
        time.sleep(20)
    failure = None
    try:
        dist.all_reduce(tensor, group=group, async_op=True).wait()
        if device.type == "cuda":
            torch.cuda.synchronize()
        dist.all_reduce(tensor, group=group)
    except RuntimeError as error:
        failure = str(error).splitlines()[0]
    seconds = time.monotonic() - begin
    if RANK == 0:
        assert failure is not None, f"nothing was said in {seconds:.1f} s"
        assert 4 < seconds < 12, f"after {seconds:.1f} s: {failure}"
        assert (torch.ones(8, device=device) * 2).sum().item() == 16, "the process is not usable"
    return f"told after {seconds:.1f} s: {failure}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("step", choices=["collectives", "ddp", "graph", "killed", "absent"])
    options = parser.parse_args()
    device = torch.device("cuda", 0) if options.device == "cuda" else torch.device("cpu")
    torch.set_num_threads(1)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("chainmail", timeout=TIMEOUT)
    text = globals()[options.step](device)
    if RANK == 0:
        print(f"ok: {text}", flush=True)
    if options.step in ("killed", "absent"):
        os._exit(0)  # the default group lost a rank; its end is not what is checked
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())

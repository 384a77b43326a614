#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""The training step of chainmail-step-bench with torch's DistributedDataParallel, from Python.

usage: launcher -H localhost:2 -n 2 --torchrun-env python3 ddp_step.py [--backend gloo] [--model mlp]

Rank 0 prints the median and the minimum of a step in microseconds, each step that of the slowest
rank. against_python.sh takes turns with chainmail-step-bench.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


def make_model(name):
    hidden = {"mlp": [1024] * 2, "layers": [128] * 61, "large": [1016] * 25}
    units = [784, *hidden[name], 10]
    torch.manual_seed(0)
    layers = []
    for inputs, outputs in zip(units, units[1:]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="gloo", choices=["gloo", "chainmail"])
    parser.add_argument("--model", default="mlp", choices=["mlp", "layers", "large"])
    parser.add_argument("--optimizer", default="adam", choices=["adam", "sgd"])
    parser.add_argument("--sharded", action="store_true",
                        help="with ZeroRedundancyOptimizer; prints the bytes of the largest state, too")
    parser.add_argument("--batchsize", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()

    if arguments.backend == "chainmail":
        import chainmail  # noqa: F401  registers the backend
    torch.set_num_threads(arguments.threads)
    dist.init_process_group(arguments.backend)
    model = DistributedDataParallel(make_model(arguments.model), gradient_as_bucket_view=True)
    if arguments.optimizer == "adam":
        kind, how = torch.optim.Adam, {"lr": 1e-3}
    else:
        kind, how = torch.optim.SGD, {"lr": 0.01, "momentum": 0.9}
    if arguments.sharded:
        optimizer = ZeroRedundancyOptimizer(model.parameters(), kind, **how)
    else:
        optimizer = kind(model.parameters(), **how)
    torch.manual_seed(dist.get_rank() + 1)
    x = torch.rand(arguments.batchsize, 784)
    t = torch.randint(10, (arguments.batchsize,))

    times = []
    for _ in range(arguments.warmup + arguments.steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), t).backward()
        optimizer.step()
        times.append((time.perf_counter() - begin) * 1e6)
    slowest = torch.tensor(times[arguments.warmup:], dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    own = optimizer.optim if arguments.sharded else optimizer
    state = torch.tensor(sum(
        value.nbytes for one in own.state.values() for value in one.values()
        if torch.is_tensor(value) and value.dim() > 0))
    dist.all_reduce(state, op=dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        print(f"{slowest.median().item():.1f} {slowest.min().item():.1f}", flush=True)
        if arguments.sharded:
            print(f"largest state of a rank {state.item()} bytes", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""FSDP2 over Chainmail: every rank keeps its part of the parameters, gradients and optimizer state.

    launcher -H localhost:2 -n 2 python fsdp2.py
    torchrun --nproc-per-node 2 fsdp2.py
"""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import chainmail  # noqa: F401: registers the backend


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=positive, default=100)
    parser.add_argument("--batchsize", type=positive, default=32, help="per rank")
    parser.add_argument("--layers", type=positive, default=4, help="of width 64")
    args = parser.parse_args()

    dist.init_process_group("chainmail")
    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))

    torch.manual_seed(0)  # the same parameters on all ranks, which then keep their part
    layers = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh())
              for _ in range(args.layers)]
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), *layers, torch.nn.Linear(64, 1))
    whole = sum(p.numel() for p in model.parameters())
    for layer in layers:
        fully_shard(layer, mesh=mesh)  # gathered when it is computed
    fully_shard(model, mesh=mesh)
    mine = sum(p.to_local().numel() for p in model.parameters())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

    torch.manual_seed(1 + rank)  # other samples on each rank
    for step in range(args.steps):
        x = torch.rand(args.batchsize, 8)
        loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True).sin())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if rank == 0 and step % (args.steps // 4 or 1) == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)

    total = torch.tensor([mine])
    dist.all_reduce(total)
    if rank == 0:
        print(f"step {args.steps}: loss {loss.item():.4f}")
        print(f"rank 0 keeps {mine} of {whole} parameters, {size} ranks {total.item()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

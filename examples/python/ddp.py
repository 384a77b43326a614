# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""DistributedDataParallel over Chainmail: torch's own example with one import and one word.

    launcher -H localhost:2 -n 2 python ddp.py
    torchrun --nproc-per-node 2 ddp.py
"""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

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
    parser.add_argument("--bf16", action="store_true", help="gradients are bfloat16 between nodes")
    args = parser.parse_args()

    options = chainmail.Options(wire="bfloat16") if args.bf16 else None
    dist.init_process_group("chainmail", pg_options=options)
    rank, size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(rank)  # other samples on each rank; DDP sends rank 0's parameters
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(args.steps):
        x = torch.rand(args.batchsize, 8)
        loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True).sin())
        optimizer.zero_grad()
        loss.backward()  # averages the gradients over the ranks
        optimizer.step()
        if rank == 0 and step % (args.steps // 4 or 1) == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)

    mine = torch.cat([p.detach().flatten() for p in model.parameters()])
    everybodys = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(everybodys, mine)
    if not all(torch.equal(mine, other) for other in everybodys):
        raise SystemExit(f"rank {rank}: the ranks' parameters differ")
    if rank == 0:
        print(f"step {args.steps}: loss {loss.item():.4f}")
        print(f"same parameters on {size} ranks", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

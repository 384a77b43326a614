# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""DistributedDataParallel that trains on while ranks come and go.

    launcher -H hosts -n 2 --elastic 1:4 python elastic_ddp.py
    launcher -H localhost:2 -n 2 python elastic_ddp.py
    torchrun --nproc-per-node 2 elastic_ddp.py
"""

import argparse

import torch
import torch.distributed as dist

import chainmail.elastic


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=positive, default=100)
    parser.add_argument("--batchsize", type=positive, default=64, help="of all ranks together")
    args = parser.parse_args()

    torch.manual_seed(0)  # the same data on all ranks
    x = torch.rand(2000, 8)
    y = x.sum(1, keepdim=True).sin()
    net = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=50, gamma=0.5)
    sampler = chainmail.elastic.Sampler(x, args.batchsize)

    # All that a rank which joins must be given.
    job = chainmail.elastic.Job(net=net, optimizer=optimizer, schedule=schedule, sampler=sampler)
    job.on_world(lambda world: print(f"world {world.generation}: rank {world.rank} of {world.size} "
                                     f"from step {world.next_step} on", flush=True))
    model = job.ddp(net)
    for step in job.steps(until=args.steps):
        with step:  # called again with the same samples if a rank dies in it
            rows = sampler.indices()  # this rank's part of the batch
            loss = torch.nn.functional.mse_loss(model(x[rows]), y[rows])
            (loss * sampler.weight).backward()  # averages the gradients over the ranks
            optimizer.step()  # from here on the step counts
            schedule.step()
        if dist.get_rank() == 0 and step.number % (args.steps // 4 or 1) == 0:
            print(f"step {step.number}: loss {loss.item():.4f}", flush=True)

    mine = torch.cat([p.detach().flatten() for p in net.parameters()])
    everybodys = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everybodys, mine)
    if not all(torch.equal(mine, other) for other in everybodys):
        raise SystemExit(f"rank {dist.get_rank()}: the ranks' parameters differ")
    if dist.get_rank() == 0:
        print(f"same parameters on {dist.get_world_size()} ranks", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

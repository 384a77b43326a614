# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Trains a small model as a rank of an elastic job, and writes down what must be right at its end.

usage: elastic_rank.py FOLDER STEPS PAUSE_MS [MODE]
  FOLDER: each member appends what it computes to a file there
  STEPS: the last one, unless a file "last" in FOLDER names an earlier one, which is to come
  PAUSE_MS: in each step, between backward and the optimizer's step
  MODE: forget (the optimizer is no part of the state), other_shape (members from 2 on have a wider layer),
  save (a checkpoint in FOLDER after every fifth step, which is read where the first one is to come; where
  "die_reading" is there, one member dies of it),
  small_steps (of three and four samples), early (member 1 ends after step 4),
  no_step (the second step leaves the optimizer out), scaled (the same, with a scaler of losses),
  groups (a group of the program's own in each world, and collectives on both sides of the commit)
"""

import contextlib
import gc
import hashlib
import logging
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

import chainmail.elastic

SAMPLES, BATCH = 230, 24


def make_net(width):
    torch.manual_seed(int(os.environ.get("RANK", "0")))  # others on every rank
    return torch.nn.Sequential(
        torch.nn.Linear(6, width), torch.nn.BatchNorm1d(width), torch.nn.ReLU(),
        *[layer for _ in range(3) for layer in (torch.nn.Linear(width, width), torch.nn.Tanh())],
        torch.nn.Linear(width, 1))


def usage():
    """Whatever a world could leave behind in this process."""
    gc.collect()
    with open("/proc/self/status", encoding="utf-8") as file:
        fields = dict(line.split(":", 1) for line in file)
    with open("/proc/self/maps", encoding="utf-8") as file:
        shared = sum("chainmail" in line for line in file)
    hooks, hook = 0, sys.excepthook
    while hook is not sys.__excepthook__ and hooks < 1000:
        cells = [cell.cell_contents for cell in hook.__closure__ or ()]
        hook = next((cell for cell in cells if callable(cell)), sys.__excepthook__)
        hooks += 1
    return {"threads": int(fields["Threads"]), "files": len(os.listdir("/proc/self/fd")),
            "mappings": shared, "python_threads": threading.active_count(),
            "groups": len(dist.distributed_c10d._world.pg_map), "hooks": hooks}


def check_groups(group, world):
    """Sums over the world and over its even ranks."""
    total = torch.ones(3)
    dist.all_reduce(total)
    assert total.tolist() == 3 * [world.size], f"{total} in {world}"
    if world.rank % 2 == 0:
        dist.all_reduce(total, group=group)
        assert total[0].item() == world.size * ((world.size + 1) // 2), f"{total} in {world}"


def digest(tensors):
    together = hashlib.sha256()
    for tensor in tensors:
        together.update(tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
    return together.hexdigest()[:16]


def main():
    folder, steps, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) / 1000
    mode = sys.argv[4] if len(sys.argv) > 4 else ""
    torch.set_num_threads(1)
    member = int(os.environ.get("RANK", "0"))
    logging.basicConfig(format=f"member {member}: %(message)s")
    net = make_net(20 if mode == "other_shape" and member > 1 else 16)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.9)
    sampler = chainmail.elastic.Sampler(SAMPLES, 4 if mode == "small_steps" else BATCH, seed=4)
    state = {"net": net, "sampler": sampler}
    if mode != "forget":
        state.update(optimizer=optimizer, schedule=schedule)
    if mode == "scaled":
        state.update(scaler=torch.amp.GradScaler("cpu"))
    job = chainmail.elastic.Job(**state)
    ddp = job.ddp(net, bucket_cap_mb=0.001)  # several buckets
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, 6, generator=generator)
    y = x.sum(1, keepdim=True).sin()
    ledger = os.open(os.path.join(folder, f"member{member}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(*words):
        os.write(ledger, (" ".join(map(str, words)) + "\n").encode())

    checkpoint, die_reading = os.path.join(folder, "checkpoint"), os.path.join(folder, "die_reading")

    def save():
        torch.save({name: part.state_dict() for name, part in {**state, "job": job}.items()}, checkpoint + ".new")
        os.rename(checkpoint + ".new", checkpoint)

    def read(world):
        saved = torch.load(checkpoint)
        for name, part in {"job": job, **state}.items():
            part.load_state_dict(saved[name])
        write("read", world.generation, job.world.next_step)
        if world.size > 1:
            with contextlib.suppress(FileNotFoundError):
                os.remove(die_reading)
                os.kill(os.getpid(), signal.SIGKILL)
            dist.barrier()

    mine = None

    def tell(world):
        nonlocal mine
        if mode == "groups":
            mine = dist.new_group(list(range(0, world.size, 2)))
        if mode == "save" and world.next_step == 1 and os.path.exists(checkpoint):
            read(world)
        print(f"world {world.generation} rank {world.rank} of {world.size} pid {os.getpid()}", flush=True)

    last = os.path.join(folder, "last")

    def is_done():
        if mode == "early" and member == 1 and job.world.next_step > 4:
            return True
        if not os.path.exists(last):
            return job.world.next_step > steps
        with open(last, encoding="utf-8") as file:
            return job.world.next_step > int(file.read())

    job.on_world(tell)
    for step in job.steps(until=is_done):
        world = job.world
        with step:
            optimizer.zero_grad()
            rows = sampler.indices()
            write("try", world.generation, step.number, sampler.epoch, ",".join(map(str, rows)))
            loss = torch.nn.functional.mse_loss(ddp(x[rows]), y[rows])
            (loss * sampler.weight).backward()
            time.sleep(pause)
            if mode == "groups":
                check_groups(mine, world)
            if mode in ("no_step", "scaled") and step.number == 2:
                continue
            optimizer.step()
            schedule.step()
            # Before a collective that fails where another rank is lost after the commit.
            write("commit", world.generation, step.number)
            if mode == "groups":
                check_groups(mine, world)
        if step.is_committed and world.rank == 0:
            if mode == "save" and step.number % 5 == 0:
                save()
            print(f"step {step.number}", flush=True)
        if mode == "break" and member == 1 and step.number == 4:
            break
        if step.is_committed and step.number % 5 == 0:
            # Even ranks have one group more.
            write("usage", world.generation, f"{world.size}/{world.rank % 2}",
                  *[f"{name}={count}" for name, count in usage().items()])
    own = digest([*net.parameters(), *net.buffers()])
    others = [None] * dist.get_world_size()
    dist.all_gather_object(others, own)
    if set(others) != {own}:
        raise SystemExit(f"ranks have other parameters: {others}")
    if dist.get_rank() == 0:
        print(f"same {own} on {len(others)} ranks after {job.world.next_step - 1} steps", flush=True)


if __name__ == "__main__":
    main()

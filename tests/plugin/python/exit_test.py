# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Programs that end without destroy_process_group, while the engine still has something of theirs:
each must end with code 0. usage: exit_test.py WAY, see WAYS; tests/soak/engine/exits.sh runs it often.
"""

import datetime
import sys
import time

import torch
import torch.distributed as dist

import chainmail
from forwarding_store import Forwarding

kept = []  # goes with the module, when the interpreter takes it apart


def plain(groups):
    for group in groups:
        dist.all_reduce(torch.ones(4), group=group)


def failed(groups):
    """Groups whose ranks disagreed."""
    for group in groups[:2]:
        try:
            dist.all_reduce(torch.ones(4 if dist.get_rank() == 0 else 5), group=group)
            sys.exit("the ranks disagree, and nobody said so")
        except RuntimeError:
            pass


def callbacks(groups):
    """Futures with callbacks that hold tensors, of operations nobody waits for."""
    for _ in range(20):
        for group in groups:
            tensor = torch.ones(1000)
            future = dist.all_reduce(tensor, group=group, async_op=True).get_future()
            kept.append(future.then(lambda done, held=tensor: held + done.value()[0]))


def held(groups):
    """Works, outputs and inputs that only Python holds, and that the engine may let go last."""
    for _ in range(20):
        for group in groups:
            outputs = [torch.empty(1000) for _ in range(dist.get_world_size())]
            work = dist.all_gather(outputs, torch.ones(2000)[::2], group=group, async_op=True)
            kept.append((work, outputs))
            dist.all_reduce(torch.ones(50), group=group, async_op=True)  # nobody keeps this one


def unmatched(groups):
    """A receive that nothing comes for, with a callback."""
    for group in groups:
        buffer = torch.empty(4)
        source = (dist.get_rank() + 1) % dist.get_world_size()
        kept.append(dist.irecv(buffer, src=source, group=group))
        kept[-1].get_future().add_done_callback(lambda done, held=buffer: held.sum())


def training(groups):
    """DDP with gradients on their way when the script ends."""
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Linear(64, 64), process_group=groups[0])
    model.register_comm_hook(groups[0], chainmail.mean_hook)
    for _ in range(3):
        model(torch.ones(8, 64)).sum().backward()
    kept.append(model)


class Slow(Forwarding):
    """Once it is_slow: long in torch, without the interpreter's lock, which a call needs to return."""

    is_slow = False

    def check(self, keys):
        if self.is_slow:
            try:
                self.store.wait(["never"], datetime.timedelta(milliseconds=300))
            except RuntimeError:
                pass
        return super().check(keys)


def stored(_groups):
    """A group over a store written in Python, which is being asked when the script ends."""
    rank, size = dist.get_rank(), dist.get_world_size()
    jobs = dist.distributed_c10d._get_default_store()
    dist.destroy_process_group()
    store = Slow(dist.PrefixStore("stored", jobs))
    dist.init_process_group("chainmail", store=store, rank=rank, world_size=size)
    dist.all_reduce(torch.ones(4))
    store.is_slow = True
    time.sleep(0.3)
    kept.append(store)


WAYS = {way.__name__: way
        for way in (plain, failed, callbacks, held, unmatched, training, stored)}

dist.init_process_group("chainmail")
WAYS[sys.argv[1]]([dist.new_group() for _ in range(3)])
print("at the end", flush=True)

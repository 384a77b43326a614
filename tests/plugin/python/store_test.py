# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""A group over a store that is written in Python: torch asks its methods from threads that are not
Python's, and of a clone nobody would keep the Python half.

usage: under the launcher; PYTHONPATH has chainmail
"""

import torch
import torch.distributed as dist

import chainmail  # noqa: F401, which makes the backend known
from forwarding_store import Forwarding

dist.init_process_group("chainmail")
rank, size = dist.get_rank(), dist.get_world_size()
jobs = dist.distributed_c10d._get_default_store()
dist.destroy_process_group()
for attempt in range(3):
    store = Forwarding(dist.PrefixStore(f"attempt {attempt}", jobs))
    dist.init_process_group("chainmail", store=store, rank=rank, world_size=size)
    pair = dist.new_group([0, 1])
    for group in (None, pair):
        ones = torch.ones(5)
        dist.all_reduce(ones, group=group)
        assert (ones == dist.get_world_size(group)).all(), ones
    dist.destroy_process_group()
    assert store.calls > 0
print("passed", flush=True)

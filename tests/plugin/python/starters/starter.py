# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""What a user's script does, under whatever starts it. usage: starter.py RANKS [tidy|untidy]

Prints "sum <n> on <P> ranks" on rank 0. Untidy: ends without destroy_process_group.
"""

import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

import chainmail  # noqa: F401

dist.init_process_group("chainmail")
assert dist.get_world_size() == int(sys.argv[1]), dist.get_world_size()
assert dist.get_backend() == "chainmail", dist.get_backend()
# Workers are forked out of this process with all its threads and sockets.
data = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, num_workers=1)
total = torch.zeros(1)
for (batch,) in data:
    part = (batch * (dist.get_rank() + 1)).sum().reshape(1)
    dist.all_reduce(part)
    total += part
if dist.get_rank() == 0:
    print(f"sum {int(total)} on {dist.get_world_size()} ranks", flush=True)
if sys.argv[2:] != ["untidy"]:
    dist.destroy_process_group()
    # Again, over a store that still has the first group's keys.
    dist.init_process_group("chainmail")
    again = torch.ones(1)
    dist.all_reduce(again)
    assert again.item() == dist.get_world_size(), again
    dist.destroy_process_group()

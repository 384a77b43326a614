# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""DDP over the installed package; prints "same parameters on <P> ranks" on rank 0."""

import chainmail  # noqa: F401
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("chainmail")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(5, 8)).square().mean().backward()
    optimizer.step()
digest = sum(parameter.double().sum() for parameter in model.parameters()).reshape(1).detach()
others = [torch.empty_like(digest) for _ in range(dist.get_world_size())]
dist.all_gather(others, digest)
assert all(torch.equal(other, digest) for other in others), others
if dist.get_rank() == 0:
    print(f"same parameters on {dist.get_world_size()} ranks", flush=True)
dist.destroy_process_group()

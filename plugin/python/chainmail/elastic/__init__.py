# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Training that goes on while ranks join, leave and die (launcher --elastic).

    job = chainmail.elastic.Job(net=net, optimizer=optimizer, sampler=sampler)
    ddp = job.ddp(net)
    for step in job.steps(until=1000):
        with step:
            loss(ddp(take(sampler.indices()))).backward()
            optimizer.step()

Alone, under torchrun and under the launcher without --elastic the same program is a job of fixed size.
docs/pytorch/elastic.md describes it.
"""

from chainmail.elastic._job import Job, Step, World
from chainmail.elastic._sampler import Sampler
from chainmail.elastic._state import StateError

__all__ = ["Job", "Sampler", "StateError", "Step", "World"]

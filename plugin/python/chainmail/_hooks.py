# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Communication hooks for DistributedDataParallel."""

import torch.distributed as dist

from chainmail._backend import own_group


def mean_hook(group, bucket):
    """Averages gradients by ReduceOp.AVG, where DDP itself divides and then sums.

        model.register_comm_hook(None, chainmail.mean_hook)

    The same numbers but for rounding. A group with wire="float16" or "bfloat16" rounds means
    between nodes and leaves sums alone, so that DDP sends half the bytes with this hook only.
    `group` is the first argument of register_comm_hook: a process group, or None for the default.
    """
    work = dist.all_reduce(bucket.buffer(), op=dist.ReduceOp.AVG,
                           group=own_group(group, "mean_hook"), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])

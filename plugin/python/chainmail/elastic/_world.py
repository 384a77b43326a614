# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""The default group of torch.distributed, which is made anew in each world of an elastic job."""

import datetime
import sys
import weakref

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from chainmail import _backend

# Of the job's store; nothing waits for it here.
_STORE_TIMEOUT_MS = 300000


class DefaultGroup:
    """Replaces the default group, and moves what DistributedDataParallel has made over it.

    `member` is None in a job of fixed size, whose group is made once, unless the program has.
    """

    def __init__(self, member, pg_options, timeout):
        self._member, self._options, self._timeout = member, pg_options, timeout
        self._wrapped = []
        if member is None:
            if not dist.is_initialized():
                dist.init_process_group(_backend.NAME, pg_options=pg_options, timeout=timeout)
            return
        if dist.is_initialized():
            raise RuntimeError("this job is elastic: make chainmail.elastic.Job instead of calling "
                               "init_process_group, since the group is another one in each world")
        job = dist.ProcessGroup.unbox(torch.ops.chainmail.join_job(_STORE_TIMEOUT_MS))
        self._store = job.get_group_store()
        # Each init_process_group() puts one more around it.
        self._excepthook = sys.excepthook
        _backend.use_member(member)
        self._make(f"alone{member.number_of(0)}")

    def _make(self, prefix):
        timeout = self._timeout or datetime.timedelta(minutes=30)
        dist.init_process_group(
            _backend.NAME, store=dist.PrefixStore(prefix, self._store), rank=self._member.rank(),
            world_size=self._member.size(), pg_options=self._options, timeout=timeout)

    def enter_world(self):
        """The group of the member's world, after its enter()."""
        if dist.is_initialized():
            dist.destroy_process_group()
        sys.excepthook = self._excepthook
        self._make(f"world{self._member.generation()}")
        self._wrapped = [reference for reference in self._wrapped if reference() is not None]
        for reference in self._wrapped:
            _move(reference())

    def wrap(self, module, options):
        for name in ("process_group", "device_mesh"):
            if options.get(name) is not None:
                raise ValueError(f"job.ddp({name}=...): the group is the default one, which is another one "
                                 "in each world")
        wrapped = DistributedDataParallel(module, **options)
        # Buffers are those of rank 0, as they are here by default; the job sends them with the commit.
        wrapped.broadcast_buffers = False
        self._wrapped.append(weakref.ref(wrapped))
        return wrapped


def _move(wrapped):
    """Over to the default group.

    DistributedDataParallel._update_process_group() would keep the buckets of the world before, in the
    order that their gradients came in, while a rank that is new has others. What unpickling does makes
    the reducer anew, with the same buckets on all ranks.
    """
    hooks = wrapped._comm_hooks
    wrapped.process_group = dist.group.WORLD
    wrapped.__setstate__(wrapped.__getstate__())
    wrapped._has_rebuilt_buckets = False
    for hook, state in hooks:
        dist._register_comm_hook(wrapped.reducer, state, hook)

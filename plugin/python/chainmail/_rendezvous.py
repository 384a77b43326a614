# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Lets init_process_group() find the ranks of jobs that torch's env:// does not know.

torch reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Chainmail's launcher gives its ranks a
store over an inherited socket instead of an address, and mpirun and srun have names of their own,
so env:// asks the library where torch's own way would end in an error.
"""

import datetime
import importlib
import itertools
import os
import urllib.parse

import torch
import torch.distributed as dist

# torch.distributed.rendezvous is the function; the module of that name has the handlers.
_module = importlib.import_module("torch.distributed.rendezvous")
_TORCH_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# A store lives as long as its job, and a group made again must not read the earlier one's keys.
# Ranks call init_process_group equally often.
_times = itertools.count()


def _is_ours(query):
    if os.environ.get("CHAINMAIL_JOB_FD"):
        return True
    if "rank" in query or "world_size" in query:
        return False
    return not all(os.environ.get(name) for name in _TORCH_VARIABLES)


def _check_place(query, rank, size):
    for name, place in (("rank", rank), ("world_size", size)):
        if name in query and int(query[name]) != place:
            raise ValueError(f"init_process_group got {name}={query[name]}, but the launcher of "
                             f"this job says {name}={place}; leave it out")


def _join_job(url, timeout=dist.default_pg_timeout, **_):
    query = dict(urllib.parse.parse_qsl(urllib.parse.urlparse(url).query))
    milliseconds = timeout // datetime.timedelta(milliseconds=1)
    if os.environ.get("CHAINMAIL_JOB_FD"):
        torch.ops.chainmail.require_fixed_size()  # does not return in an elastic job
    job = dist.ProcessGroup.unbox(torch.ops.chainmail.join_job(milliseconds))
    _check_place(query, job.rank(), job.size())
    store = dist.PrefixStore(f"init/{next(_times)}", job.get_group_store())
    yield store, job.rank(), job.size()
    raise RuntimeError("the ranks of this job cannot meet a second time with the same iterator")


def install():
    """Puts _join_job before torch's handler of env://, and offers it as chainmail://.

    Once per process: a package that is imported again (importlib.reload, or a test that has emptied
    sys.modules) leaves what is there, whose count of meetings goes on.
    """
    if "chainmail" in _module._rendezvous_handlers:
        return
    torchs_own = _module._rendezvous_handlers["env"]

    def from_environment(url, **options):
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlparse(url).query))
        return (_join_job if _is_ours(query) else torchs_own)(url, **options)

    _module._rendezvous_handlers["env"] = from_environment
    _module.register_rendezvous_handler("chainmail", _join_job)

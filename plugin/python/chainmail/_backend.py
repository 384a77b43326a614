# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Makes Chainmail's backend for torch.distributed, through the library's operators."""

import dataclasses
import datetime
import functools
import os

import torch
import torch.distributed as dist

NAME = "chainmail"


@dataclasses.dataclass(frozen=True)
class Options:
    """pg_options of init_process_group and new_group; equal on all ranks of the group.

    None leaves the choice to the environment, then to the options of the default group, then to
    the library.
    """

    algorithm: str | None = None
    """auto, flat, hierarchical, two_dimensional, single_node or naive; CHAINMAIL_ALGORITHM."""
    wire: str | None = None
    """What means (AVG) of float32 travel as between nodes: native, float16, bfloat16, or int8 and
    int4, which lose more than IntegerWire; CHAINMAIL_WIRE. Sums are not rounded: DDP needs mean_hook
    to gain from it."""
    cross: str | None = None
    """What joins the nodes: tcp, or mpi under mpiexec. CHAINMAIL_CROSS wins over it."""

    def __post_init__(self):
        for key, value in dataclasses.asdict(self).items():
            if value is not None and not isinstance(value, str):
                raise TypeError(f"chainmail.Options: {key} must be a str or None, got {value!r}")
            if value is not None and ("," in value or "=" in value):  # _text() puts them between
                raise ValueError(f"chainmail.Options: {key} must be one name, got {value!r}")


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why a group is dead. docs/errors.md explains the kinds."""

    kind: str
    """MismatchError, TimeoutError, PeerError, SystemError or MpiError."""
    message: str
    ranks: list[int]
    """The ranks that were missing (TimeoutError) or that died (PeerError); may be empty on a rank
    that was told by another one, whose message names them."""


# In an elastic job: makes the groups of its worlds.
_member = None
# Of the default group: groups that DDP, FSDP2 or DeviceMesh make for themselves pass no options.
_default_options = Options()


def use_member(member):
    """Groups are those of the world that `member`, torch.classes.chainmail.ElasticMember, is in."""
    global _member
    _member = member


def _choose(given, variable, inherited):
    return given or os.environ.get(variable) or inherited


def _complete(given, inherited):
    if given is None:
        given = Options()
    if not isinstance(given, Options):
        raise TypeError(f"pg_options of the backend {NAME!r} must be chainmail.Options, got "
                        f"{type(given).__name__}")
    return Options(_choose(given.algorithm, "CHAINMAIL_ALGORITHM", inherited.algorithm),
                   _choose(given.wire, "CHAINMAIL_WIRE", inherited.wire),
                   given.cross or inherited.cross)


def _text(options, timeout):
    """The form that the library reads."""
    parts = {"algorithm": options.algorithm, "wire": options.wire,
             "cross": options.cross, "timeout_ms": timeout // datetime.timedelta(milliseconds=1)}
    return ",".join(f"{key}={value}" for key, value in parts.items() if value is not None)


def _create(place, pg_options):
    """What torch calls for every group; `place` is c10d's DistributedBackendOptions."""
    global _default_options
    is_default = not place.global_ranks_in_group
    options = _complete(pg_options, Options() if is_default else _default_options)
    # A group of ours carries the backend out of C++; torch puts the backend into its own.
    carrier = dist.ProcessGroup(place.store, place.group_rank, place.group_size)
    attach = _member.attach_group if _member is not None else torch.ops.chainmail.attach_group
    attach(carrier.boxed(), place.group_id, _text(options, place.timeout),
           place.global_ranks_in_group or list(range(place.group_size)))
    if is_default:
        _default_options = options
    return carrier._get_backend(torch.device("cpu"))


def register():
    """Tells torch of the backend. Also what torch calls that finds backends by entry point."""
    known = dist.Backend._plugins.get(NAME.upper())
    if known:
        # The package was imported again: pg_options are of this module's class now.
        dist.Backend._plugins[NAME.upper()] = known._replace(creator_fn=_create)
    else:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
        dist.distributed_c10d._set_pg_timeout = _set_pg_timeout(
            dist.distributed_c10d._set_pg_timeout)


def own_group(group, caller):
    """`group`, or the default group for None. ValueError for what new_group gives to outsiders."""
    if group is None:
        return dist.distributed_c10d._get_default_group()
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError(f"chainmail.{caller}: rank {dist.get_rank()} is not a member of this group; "
                         "call it on the group's ranks only")
    return group


def failure(group=None):
    """The error that killed `group` (default: all ranks) on this rank; None while it is alive.

    torch turns every C++ exception into RuntimeError; this tells them apart. Not collective.
    """
    kind, message, ranks = torch.ops.chainmail.failure(own_group(group, "failure").boxed())
    return Failure(kind, message, ranks) if kind else None


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """torch.distributed.monitored_barrier, which refuses every backend but Gloo, for ours."""
    own_group(group, "monitored_barrier").monitored_barrier(timeout, wait_all_ranks)


def set_timeout(timeout, group=None):
    """Sets the time limit of later calls on `group` (default: all ranks); a datetime.timedelta.

    Calls that have begun keep theirs. Not collective, but ranks do best with equal limits.
    """
    own_group(group, "set_timeout").set_timeout(timeout)


def _set_pg_timeout(torchs_own):
    """distributed_c10d._set_pg_timeout, which passes over every backend but Gloo and NCCL, for ours
    too."""

    @functools.wraps(torchs_own)
    def set_pg_timeout(timeout, group=None):
        group = dist.distributed_c10d._get_default_group() if group is None else group
        if isinstance(group, dist.ProcessGroup) and NAME in dist.get_backend_config(group):
            set_timeout(timeout, group)
        else:
            torchs_own(timeout, group)

    return set_pg_timeout

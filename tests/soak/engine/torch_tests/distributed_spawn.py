# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Runs the DistributedTest that torch's wheel carries: BACKEND, WORLD_SIZE, TEMP_DIR and INIT_METHOD
are what it reads. usage: distributed_spawn.py [-v] [TestDistributed.test_name ...]"""

import sys

import torch  # noqa: F401
from torch.testing._internal.common_utils import run_tests
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend


class TestDistributed(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()


if __name__ == "__main__":
    sys.argv[0] = __file__
    run_tests()

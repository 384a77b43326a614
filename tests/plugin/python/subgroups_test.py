# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Errors of a group of ranks 1 and 2 name these, whatever has started the ranks; 3 ranks."""

import datetime
import unittest

import torch
import torch.distributed as dist

import chainmail

SECOND = datetime.timedelta(seconds=1)
OUTSIDER = r"\b[Rr]anks? 0\b"

torch.set_num_threads(1)


def setUpModule():
    dist.init_process_group("chainmail", timeout=60 * SECOND)


def tearDownModule():
    dist.destroy_process_group()


class SubgroupsTest(unittest.TestCase):
    def setUp(self):
        self.rank = dist.get_rank()
        self.group = dist.new_group([1, 2], timeout=2 * SECOND)
        if self.rank != 0:
            dist.barrier(group=self.group)

    def tearDown(self):
        dist.barrier()

    def expect(self, call, *texts):
        with self.assertRaises(RuntimeError) as caught:
            call()
        for text in texts:
            self.assertRegex(str(caught.exception), text)
        self.assertNotRegex(str(caught.exception), OUTSIDER)

    def test_time_limit(self):
        if self.rank == 1:
            self.expect(lambda: dist.all_reduce(torch.ones(2), group=self.group),
                        r"on rank 1\b", r"\brank 2\b.*has not been seen")
            self.assertEqual(chainmail.failure(self.group).ranks, [2])

    def test_time_limit_of_a_receive(self):
        if self.rank == 2:
            self.expect(lambda: dist.recv(torch.ones(2), src=1, group=self.group),
                        r"on rank 2\b", r"\brank 1\b.*has not been seen")
            self.assertEqual(chainmail.failure(self.group).ranks, [1])

    def test_mismatch(self):
        if self.rank != 0:
            self.expect(lambda: dist.all_reduce(torch.ones(2 + self.rank), group=self.group),
                        r"\brank 1\b.*\[3\]", r"\brank 2\b.*\[4\]")

    def test_mismatch_of_roots(self):
        if self.rank != 0:
            self.expect(lambda: dist.broadcast(torch.ones(3), src=self.rank, group=self.group),
                        r"\brank 1\b.*with root 1", r"\brank 2\b.*with root 2")

    def test_mismatch_of_transfers(self):
        if self.rank == 1:
            self.expect(lambda: [dist.send(torch.ones(3), 2, group=self.group),
                                 dist.all_reduce(torch.ones(1), group=self.group)],
                        r"\brank 1\b", r"\brank 2\b")
        elif self.rank == 2:
            self.expect(lambda: dist.recv(torch.ones(4), 1, group=self.group),
                        r"\brank 1\b.* \[3\] to rank 2|\brank 1\b.* 12 bytes",
                        r"\brank 2\b.* \[4\] from rank 1|\brank 2\b.* (?:16 bytes|receives 16\b)")

    def test_monitored_barrier(self):
        if self.rank == 1:
            self.expect(lambda: chainmail.monitored_barrier(self.group, timeout=SECOND),
                        r"^\[Rank 1\]", r"\bRanks? 2\b")

    def test_outsiders_are_told_so(self):
        if self.rank == 0:
            for call in (chainmail.failure, chainmail.monitored_barrier,
                         lambda group: chainmail.set_timeout(SECOND, group)):
                with self.assertRaisesRegex(ValueError, "rank 0 is not a member of this group"):
                    call(self.group)

    # By its name the last: torch counts the groups that a rank has asked for, and names them so.
    def test_who_does_not_join(self):
        if self.rank == 1:
            self.expect(lambda: dist.new_group([1, 2], timeout=SECOND,
                                               use_local_synchronization=True),
                        r"\brank 2\b.*did not join; rank 1\b")
        dist.barrier()
        if self.rank == 2:
            self.expect(lambda: dist.new_group([1, 2], timeout=60 * SECOND,
                                               use_local_synchronization=True),
                        r"\brank 1\b.*gave up after 1000 ms of waiting, before rank 2\b")

    def test_abort(self):
        if self.rank == 2:
            self.group._get_backend(torch.device("cpu")).abort()
        if self.rank == 1:
            self.expect(lambda: dist.all_reduce(torch.ones(2), group=self.group),
                        r"aborted by rank 2\b")
            self.assertEqual(chainmail.failure(self.group).kind, "PeerError")


if __name__ == "__main__":
    unittest.main()

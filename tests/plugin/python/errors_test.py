# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""What goes wrong arrives in Python as an exception that says what, and who; 3 ranks."""

import datetime
import time
import unittest

import torch
import torch.distributed as dist

import chainmail
from both import RANK, SIZE, process_group
from patience import patient

SECOND = datetime.timedelta(seconds=1)


class ErrorsTest(unittest.TestCase):
    def test_mismatch_names_both_sides(self):
        with process_group():
            group = dist.new_group()
            self.assertIsNone(chainmail.failure(group))
            with self.assertRaisesRegex(RuntimeError, r"\[3\].*\[4\]|\[4\].*\[3\]") as caught:
                dist.all_reduce(torch.ones(4 if RANK == 1 else 3), group=group)
            failure = chainmail.failure(group)
            self.assertEqual(failure.kind, "MismatchError")
            self.assertIn(failure.message, str(caught.exception))
            # Only that group is dead.
            value = torch.ones(2)
            dist.all_reduce(value)
            self.assertEqual(value.tolist(), [SIZE, SIZE])

    def test_timeout_names_the_missing_rank(self):
        with process_group():
            group = dist.new_group()
            chainmail.set_timeout(SECOND, group)
            if RANK != 2:
                start = time.monotonic()
                with self.assertRaisesRegex(RuntimeError, r"rank 2\b"):
                    dist.all_reduce(torch.ones(3), group=group)
                self.assertLess(time.monotonic() - start, patient(10))
                failure = chainmail.failure(group)
                self.assertEqual(failure.kind, "TimeoutError")
                # A rank that learns of it from another one has only the message.
                self.assertIn(failure.ranks, ([2], []))
                self.assertRegex(failure.message, r"rank 2\b")
                self.assertIn(" Timed out ", failure.message)  # what torch's callers look for
            value = torch.ones(2)
            dist.all_reduce(value)
            self.assertEqual(value.tolist(), [SIZE, SIZE])

    def test_monitored_barrier(self):
        with process_group():
            chainmail.monitored_barrier(timeout=10 * SECOND)
            group = dist.new_group()
            if RANK == 0:
                with self.assertRaisesRegex(RuntimeError, r"(?i)ranks? 1\b"):
                    chainmail.monitored_barrier(group, timeout=SECOND)
            dist.barrier()

    def test_time_limits_can_be_set(self):
        with process_group():
            for set_limit in (chainmail.set_timeout, dist.distributed_c10d._set_pg_timeout):
                group = dist.new_group()
                set_limit(SECOND, group)
                if RANK != 2:
                    with self.assertRaisesRegex(RuntimeError, r"1000 ms"):
                        dist.all_reduce(torch.ones(3), group=group)
                dist.barrier()
            chainmail.set_timeout(30 * SECOND)
            value = torch.ones(2)
            dist.all_reduce(value)
            self.assertEqual(value.tolist(), [SIZE, SIZE])
            with self.assertRaisesRegex(RuntimeError, "must be positive"):
                chainmail.set_timeout(-SECOND)
            with self.assertRaises(TypeError):
                chainmail.set_timeout(3)

    def test_groups_need_a_positive_time_limit(self):
        refused = {0 * SECOND: 0, SECOND / 10000: 0, -SECOND: -1000}
        with process_group():
            for limit, milliseconds in refused.items():
                text = f"must be positive, got {milliseconds} ms.*at least 1 ms"
                with self.assertRaisesRegex(RuntimeError, text):
                    dist.new_group(timeout=limit)
        for limit in refused:
            with self.assertRaisesRegex(RuntimeError, "must be positive"):
                dist.init_process_group("chainmail", timeout=limit)

    def test_options_are_checked(self):
        with process_group(pg_options=chainmail.Options(algorithm="flat", wire="bfloat16")):
            value = torch.ones(3)
            dist.all_reduce(value)
            self.assertEqual(value.tolist(), [SIZE] * 3)
            with self.assertRaisesRegex(TypeError, "chainmail.Options, got dict"):
                dist.new_group(pg_options={"algorithm": "flat"})
            for text in ("timeout_ms=5s", "timeout_ms=1e3", "timeout_ms= 5", "timeout_ms=",
                         "timeout_ms=99999999999999999999"):
                with self.assertRaisesRegex(RuntimeError, "cannot read the backend option"):
                    torch.ops.chainmail.attach(dist.group.WORLD.group_name, text)
        with self.assertRaisesRegex(RuntimeError, "sideways.*hierarchical"):
            with process_group(pg_options=chainmail.Options(algorithm="sideways")):
                pass

    def test_options_are_one_name_each(self):
        for key in ("algorithm", "wire", "cross"):
            for value in ("flat,wire=float16", "flat,", "wire=float16"):
                with self.assertRaisesRegex(ValueError, f"{key} must be one name"):
                    chainmail.Options(**{key: value})
            for value in (3, 0, b"flat", ["flat"]):
                with self.assertRaisesRegex(TypeError, f"{key} must be a str"):
                    chainmail.Options(**{key: value})

    def test_place_must_agree_with_the_launcher(self):
        with self.assertRaisesRegex(ValueError, f"world_size={SIZE + 1}"):
            dist.init_process_group("chainmail", rank=RANK, world_size=SIZE + 1)

    def test_group_of_another_backend_has_no_failure_of_ours(self):
        with process_group("gloo"):
            with self.assertRaisesRegex(RuntimeError, "is gloo"):
                chainmail.failure()


if __name__ == "__main__":
    assert SIZE == 3
    unittest.main()

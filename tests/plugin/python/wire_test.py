# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""What a group's 16-bit wire rounds between nodes, and what it leaves alone; on two nodes."""

import unittest

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import chainmail
from both import RANK, SIZE, process_group

UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
JUST_ABOVE_ONE = 1 + 1e-5  # no number of 16 bits
VALUES = [70000.0, 65520.0, 3e-8, 1e-7, 1e-39, 2.0**-149, 3e37, 1.0]


def reduced(tensor, op=dist.ReduceOp.SUM):
    dist.all_reduce(tensor, op=op)
    return tensor


class WireTest(unittest.TestCase):
    def in_groups(self, body):
        for wire, unit in UNIT.items():
            for algorithm in ("auto", "flat", "hierarchical", "two_dimensional"):
                options = chainmail.Options(algorithm=algorithm, wire=wire)
                with self.subTest(wire=wire, algorithm=algorithm), process_group(pg_options=options):
                    body(unit)

    def test_means_are_rounded_and_never_ruined(self):
        def body(unit):
            mean = reduced(torch.full((300,), JUST_ABOVE_ONE), dist.ReduceOp.AVG)
            self.assertTrue(torch.equal(mean, torch.ones(300)), "the wire is not in use")
            for value in VALUES:
                want = torch.tensor(value).item()
                got = reduced(torch.full((3,), value), dist.ReduceOp.AVG)
                # float32's own steps, for sums and products below 2^-126, besides two roundings.
                allowed = 2.01 * unit * want + (SIZE + 1) * 2.0**-149
                for element in got.tolist():
                    self.assertLessEqual(abs(element - want), allowed, f"mean of {value}")

        self.in_groups(body)

    def test_sums_and_doubles_are_exact(self):
        def body(_):
            for value in (70000.0, 2049.0, JUST_ABOVE_ONE, 3e-8):
                single = torch.full((5,), value)
                self.assertTrue(torch.equal(reduced(single.clone()), single * SIZE), value)
                for op, factor in ((dist.ReduceOp.SUM, SIZE), (dist.ReduceOp.AVG, 1)):
                    double = torch.full((5,), value, dtype=torch.float64)
                    self.assertTrue(torch.equal(reduced(double.clone(), op), double * factor))
            self.assertEqual(reduced(torch.tensor([1234567.0])).item(), 1234567.0 * SIZE)

        self.in_groups(body)

    def test_infinities_arrive(self):
        def body(_):
            tensor = torch.full((4,), 1e-7)
            if RANK == 1:
                tensor[2] = float("inf")
            got = reduced(tensor, dist.ReduceOp.AVG)
            self.assertEqual(got[2].item(), float("inf"))
            self.assertAlmostEqual(got[1].item(), 1e-7, delta=1e-9)

        self.in_groups(body)

    def test_a_call_may_ask_for_sums(self):
        with process_group():
            name = dist.group.WORLD.group_name
            single = torch.full((300,), JUST_ABOVE_ONE)
            got = torch.ops.chainmail.fp16_all_reduce(single, "sum", name)
            self.assertTrue(torch.equal(got, torch.full((300,), float(SIZE))))
            large = torch.ops.chainmail.fp16_all_reduce(torch.full((3,), 70000.0), "sum", name)
            self.assertAlmostEqual(large[0].item() / (70000.0 * SIZE), 1.0, delta=1e-3)
            double = torch.full((3,), JUST_ABOVE_ONE, dtype=torch.float64)
            got = torch.ops.chainmail.fp16_all_reduce(double, "sum", name)
            self.assertTrue(torch.equal(got, double * SIZE))

    def test_ddp_is_rounded_with_the_hook_only(self):
        def gradients(hook):
            torch.manual_seed(1)
            model = DistributedDataParallel(torch.nn.Linear(20, 30))
            if hook:
                model.register_comm_hook(None, hook)
            inputs = torch.randn(8, 20, generator=torch.Generator().manual_seed(RANK))
            model(inputs).square().mean().backward()
            return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

        with process_group(pg_options=chainmail.Options(wire="native")):
            exact = gradients(None)
        with process_group(pg_options=chainmail.Options(wire="float16")):
            torch.testing.assert_close(gradients(None), exact, rtol=1e-5, atol=1e-7)
            rounded = gradients(chainmail.mean_hook)
            torch.testing.assert_close(rounded, exact, rtol=0, atol=2e-3 * exact.abs().max().item())
            off = (rounded - exact).abs().max() / exact.abs().max()
            self.assertGreater(off.item(), 1e-5, "nothing was rounded")


class UnsignedTest(unittest.TestCase):
    def test_every_reduction_of_unsigned_integers(self):
        for dtype, bits in ((torch.uint16, 16), (torch.uint32, 32), (torch.uint64, 64)):
            top = 2**bits - 1
            mine = [RANK + 1, 2, top - RANK, 2 ** (bits - 1) + RANK]  # above what signed types have
            everybody = [[rank + 1, 2, top - rank, 2 ** (bits - 1) + rank] for rank in range(SIZE)]
            columns = list(zip(*everybody))

            def fold(function):
                results = []
                for column in columns:
                    result = column[0]
                    for value in column[1:]:
                        result = function(result, value) % 2**bits
                    results.append(result)
                return results

            sums = fold(lambda a, b: a + b)
            wanted = {
                dist.ReduceOp.SUM: sums,
                dist.ReduceOp.AVG: [value // SIZE for value in sums],  # the sum wraps first
                dist.ReduceOp.PRODUCT: fold(lambda a, b: a * b),
                dist.ReduceOp.MIN: fold(min),
                dist.ReduceOp.MAX: fold(max),
                dist.ReduceOp.BAND: fold(lambda a, b: a & b),
                dist.ReduceOp.BOR: fold(lambda a, b: a | b),
                dist.ReduceOp.BXOR: fold(lambda a, b: a ^ b),
            }
            for algorithm in ("flat", "hierarchical", "two_dimensional"):
                with process_group(pg_options=chainmail.Options(algorithm=algorithm)):
                    for op, want in wanted.items():
                        got = reduced(torch.tensor(mine, dtype=dtype), op).tolist()
                        self.assertEqual(got, want, f"{dtype} {op} {algorithm}")
                    # A list counts as so many contributions of this rank's.
                    two = [torch.tensor(mine, dtype=dtype), torch.tensor(mine, dtype=dtype)]
                    dist.group.WORLD.allreduce(two).wait()
                    for tensor in two:
                        self.assertEqual(tensor.tolist(), [2 * s % 2**bits for s in sums])


if __name__ == "__main__":
    assert SIZE > 1
    unittest.main()

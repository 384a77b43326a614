# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""torch.ops.chainmail.*: values, gradients, torch.library.opcheck, torch.compile; 1 and 2 ranks."""

import unittest

import torch
import torch.distributed as dist

import chainmail  # noqa: F401  opens the library
from both import RANK, SIZE, process_group

OPS = torch.ops.chainmail
ALL_REDUCES = ("all_reduce", "hierarchical_all_reduce", "two_dimensional_all_reduce",
               "fp16_all_reduce")
EVERYBODY = sum(range(1, SIZE + 1))


def ours(name):
    return getattr(OPS, name)


def mine(*shape, dtype=torch.float32):
    return torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape).to(dtype) * (RANK + 1)


def opcheck(name, *arguments, **options):
    results = torch.library.opcheck(ours(name).default, arguments, options)
    assert len(results) >= 4 and set(results.values()) == {"SUCCESS"}, results


class GraphCounter:
    """A torch.compile backend that runs AOT autograd and keeps the graphs that came out."""

    def __init__(self):
        self.calls = []

    def __call__(self, module, inputs):
        from torch._dynamo.backends.common import aot_autograd

        def keep(graph, _):
            self.calls += [str(node.target) for node in graph.graph.nodes
                           if node.op == "call_function"]
            return graph.forward

        return aot_autograd(fw_compiler=keep)(module, inputs)

    def count(self, text):
        return sum(text in call for call in self.calls)


class AllReduceTest(unittest.TestCase):
    def setUp(self):
        self._context = process_group()
        self.group = self._context.__enter__().group_name

    def tearDown(self):
        self._context.__exit__(None, None, None)

    def test_values(self):
        for name in ALL_REDUCES:
            for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int32):
                value, kept = mine(3, 5, dtype=dtype), mine(3, 5, dtype=dtype)
                expected = mine(3, 5, dtype=dtype) // (RANK + 1) * EVERYBODY
                result = ours(name)(value, "sum", self.group)
                torch.testing.assert_close(result, expected)
                torch.testing.assert_close(value, kept, rtol=0, atol=0)
                self.assertIsNone(ours(name + "_")(value, "sum", self.group))
                torch.testing.assert_close(value, expected)

    def test_strided_and_empty(self):
        value = mine(4, 6).t()
        result = OPS.all_reduce(value, "max", self.group)
        torch.testing.assert_close(result, value / (RANK + 1) * SIZE)
        self.assertTrue(result.is_contiguous())
        OPS.all_reduce_(value, "max", self.group)
        torch.testing.assert_close(result, value)
        self.assertEqual(OPS.all_reduce(torch.empty(0, 3), "sum", self.group).shape, (0, 3))

    def test_in_place_counts_as_a_write(self):
        value = mine(3)
        version = value._version
        OPS.all_reduce_(value, "sum", self.group)
        self.assertGreater(value._version, version)

    def test_opcheck(self):
        for name in ALL_REDUCES:
            opcheck(name, mine(3, 5), "sum", self.group)
            opcheck(name, mine(3, 5).requires_grad_(), "avg", self.group)
            opcheck(name, mine(4, 2, dtype=torch.int64).t(), "max", self.group)
            opcheck(name + "_", mine(3, 5), "sum", self.group)

    def test_gradient_is_all_reduced_in_the_same_way(self):
        for name in ALL_REDUCES:
            for op, divisor in (("sum", 1), ("avg", SIZE)):
                x = mine(2, 3).requires_grad_()
                y = ours(name)(x, op, self.group)
                (y * (RANK + 1)).sum().backward()
                torch.testing.assert_close(x.grad, torch.full((2, 3), EVERYBODY / divisor))

    def test_second_gradient(self):
        x = mine(3).requires_grad_()
        y = OPS.all_reduce(x.square(), "sum", self.group)
        gradient, = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        gradient.sum().backward()
        # d/dx_r of sum_s over ranks: L_s = (sum x^2)^2, gradient 4 x S * ranks.
        total = (mine(3) / (RANK + 1)).square() * sum(r * r for r in range(1, SIZE + 1))
        torch.testing.assert_close(gradient.detach(), 4 * mine(3) * total * SIZE)
        self.assertTrue(torch.isfinite(x.grad).all())

    def test_refusals(self):
        value = mine(3)
        with self.assertRaisesRegex(ValueError, "sideways.*sum"):
            OPS.all_reduce(value, "sideways", self.group)
        with self.assertRaisesRegex(ValueError, '"nobody".*group_name'):
            OPS.all_reduce_(value, "sum", "nobody")
        with self.assertRaisesRegex(RuntimeError, "fp16_all_reduce.*not support.*float32"):
            OPS.fp16_all_reduce(value.to(torch.float8_e4m3fn), "sum", self.group)
        with self.assertRaisesRegex(RuntimeError, "expanded"):
            OPS.all_reduce_(torch.ones(1).expand(3), "sum", self.group)
        with self.assertRaisesRegex(RuntimeError, "all_reduce_ has no gradient.*all_reduce,"):
            OPS.all_reduce_(mine(3).requires_grad_(), "sum", self.group)
        largest = OPS.all_reduce(mine(3).requires_grad_(), "max", self.group)
        with self.assertRaisesRegex(NotImplementedError, "under max.*detach"):
            largest.sum().backward()
        with torch.no_grad():
            OPS.all_reduce_(mine(3).requires_grad_(), "sum", self.group)

    def test_compiled_is_one_opaque_operator(self):
        group = self.group
        for name in ALL_REDUCES:
            counter = GraphCounter()

            @torch.compile(backend=counter, fullgraph=True)
            def step(x):
                y = ours(name)(x * 2, "sum", group) + 1
                ours(name + "_")(y, "avg", group)
                return y * 3

            torch.testing.assert_close(step(mine(4)), (mine(4) / (RANK + 1) * EVERYBODY * 2 + 1) * 3)
            self.assertEqual(counter.count(f"chainmail.{name}.default"), 1, counter.calls)
            self.assertLessEqual(counter.count("chainmail"), 2, counter.calls)

    def test_compiled_gradient(self):
        group = self.group
        counter = GraphCounter()

        @torch.compile(backend=counter, fullgraph=True)
        def loss(x):
            return (OPS.all_reduce(x, "sum", group) * 2).sum()

        x = mine(5).requires_grad_()
        loss(x).backward()
        torch.testing.assert_close(x.grad, torch.full((5,), 2.0 * SIZE))
        self.assertEqual(counter.count("chainmail.all_reduce.default"), 2, counter.calls)

    def test_torchscript(self):
        unit = torch.jit.CompilationUnit("""
            def mean_of_squares(x, group: str):
                y = torch.ops.chainmail.hierarchical_all_reduce(x * x, "avg", group)
                torch.ops.chainmail.all_reduce_(y, "sum", group)
                return y
            """)
        squares = sum(r * r for r in range(1, SIZE + 1))
        torch.testing.assert_close(unit.mean_of_squares(mine(3), self.group),
                                   (mine(3) / (RANK + 1)).square() * squares)


class PackTest(unittest.TestCase):
    """The same on any rank."""

    FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)

    @staticmethod
    def tensors(*dtypes):
        torch.manual_seed(3)
        shapes = ((2, 3), (5,), (), (0, 4), (7, 2))
        return [torch.randn(shape, dtype=torch.float64).to(dtype)
                for shape, dtype in zip(shapes, dtypes * len(shapes))]

    def test_every_pair_of_types(self):
        for source in self.FLOATS:
            for target in self.FLOATS:
                tensors = self.tensors(source)
                tensors[0] = tensors[0].t()
                inner = torch.float64 if torch.float64 in (source, target) else torch.float32
                flat = OPS.pack(tensors, dtype=target, scale=1 / 3)
                expected = torch.cat([(t.to(inner) * (1 / 3)).to(target).flatten()
                                      for t in tensors])
                torch.testing.assert_close(flat, expected, rtol=0, atol=0)
                back = [torch.full_like(t, -7) for t in tensors]
                OPS.unpack(flat, back, scale=3.0)
                for tensor, part in zip(back, expected.split([t.numel() for t in tensors])):
                    torch.testing.assert_close(
                        tensor, (part.to(inner) * 3).to(source).view(tensor.shape), rtol=0, atol=0)

    def test_mixed_lists_and_integers(self):
        mixed = self.tensors(*self.FLOATS)
        self.assertEqual(OPS.pack(mixed, dtype=torch.float32).dtype, torch.float32)
        integers = [torch.arange(3), torch.arange(4).view(2, 2)]
        flat = OPS.pack(integers)
        self.assertEqual(flat.tolist(), [0, 1, 2, 0, 1, 2, 3])
        OPS.unpack(flat.neg(), integers)
        self.assertEqual(integers[1].tolist(), [[0, -1], [-2, -3]])

    def test_opcheck(self):
        opcheck("pack", self.tensors(torch.float32))
        opcheck("pack", self.tensors(*self.FLOATS), dtype=torch.float16, scale=0.5)
        opcheck("pack", [t.requires_grad_() for t in self.tensors(torch.float32)], scale=0.25)
        opcheck("unpack", torch.ones(26), self.tensors(torch.float32), scale=2.0)

    def test_gradient(self):
        tensors = [t.requires_grad_() for t in self.tensors(torch.float64)]
        self.assertTrue(torch.autograd.gradcheck(
            lambda *parts: OPS.pack(parts, dtype=None, scale=0.3), tensors))

    def test_compiled(self):
        counter = GraphCounter()

        @torch.compile(backend=counter, fullgraph=True)
        def round_trip(tensors):
            flat = OPS.pack(tensors, dtype=torch.bfloat16, scale=0.5)
            results = [torch.empty_like(t) for t in tensors]
            OPS.unpack(flat, results, scale=2.0)
            return results

        tensors = self.tensors(torch.float32)
        for tensor, result in zip(tensors, round_trip(tensors)):
            torch.testing.assert_close(result, tensor.bfloat16().float())
        self.assertEqual(counter.count("chainmail.pack.default"), 1, counter.calls)

    def test_refusals(self):
        a, b = torch.ones(2), torch.ones(3, dtype=torch.float16)
        for error, message, call in (
                (ValueError, "at least one", lambda: OPS.pack([])),
                (TypeError, "Float and Half.*dtype", lambda: OPS.pack([a, b])),
                (TypeError, "Long for Float", lambda: OPS.pack([torch.arange(2)],
                                                               dtype=torch.float32)),
                (TypeError, "scale 0.5", lambda: OPS.pack([torch.arange(2)], scale=0.5)),
                (RuntimeError, "not dense", lambda: OPS.pack([a.to_sparse()])),
                (ValueError, "4 elements, the tensors 5", lambda: OPS.unpack(torch.ones(4), [a, b])),
                (ValueError, "expanded", lambda: OPS.unpack(torch.ones(2),
                                                            [torch.ones(1).expand(2)])),
                (RuntimeError, "unpack has no gradient",
                 lambda: OPS.unpack(torch.ones(2).requires_grad_(), [a]))):
            with self.assertRaisesRegex(error, message):
                call()


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""All-reduces and DDP on the integer wires, which keep what they round away; on two nodes."""

import copy
import os
import unittest

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import chainmail
from both import RANK, SIZE, process_group

MOST = {"int8": 127, "int4": 7}


def values_of(rank, count=5000):
    return torch.sin(torch.arange(count) * 0.37 + rank)


def mean_of(count=5000):
    return torch.stack([values_of(rank, count).double() for rank in range(SIZE)]).mean(0)


class OperatorTest(unittest.TestCase):
    def error_of_sum(self, wire, keeps):
        """How far the sum of 50 means is off."""
        reduce = getattr(torch.ops.chainmail, f"{wire}_all_reduce_")
        with process_group() as group:
            residual = torch.zeros(2, 5000)
            total = torch.zeros(5000, dtype=torch.float64)
            for exchange in range(50):
                tensor = values_of(RANK)
                if not keeps:
                    residual.zero_()
                reduce(tensor, residual, exchange, "avg", group.group_name)
                total += tensor.double()
            everybody = [torch.empty_like(total) for _ in range(SIZE)]
            dist.all_gather(everybody, total)
            for other in everybody:
                self.assertTrue(torch.equal(other, total), "ranks differ")
        return (total - 50 * mean_of()).abs().max().item()

    def test_nothing_is_lost_over_time(self):
        for wire, most in MOST.items():
            kept = self.error_of_sum(wire, keeps=True)
            self.assertLessEqual(kept, 2.0 / most)  # two roundings of numbers up to 1
            self.assertGreater(kept, 1e-6, "nothing was rounded")
            self.assertGreater(self.error_of_sum(wire, keeps=False), 5 * kept)

    def test_sums(self):
        with process_group() as group:
            tensor = values_of(RANK).view(50, 100).t()  # not contiguous
            torch.ops.chainmail.int8_all_reduce_(tensor, torch.zeros(2, 5000), 0, "sum", group.group_name)
            wanted = (mean_of() * SIZE).view(50, 100).t()
            self.assertLessEqual((tensor - wanted).abs().max().item(), SIZE * 2.0 / 127)

    def test_what_is_wrong_is_named(self):
        with process_group() as group:
            reduce = torch.ops.chainmail.int8_all_reduce_
            tensor = values_of(RANK)
            both = torch.zeros(3, 5000)
            cases = [
                ((tensor, torch.zeros(5000, 2).t(), 0, "avg"), "not contiguous"),
                ((both[0], both[0:2], 0, "avg"), "share memory"),
                ((both[1], both[0:2], 0, "avg"), "share memory"),
                ((tensor, torch.zeros(5000), 0, "avg"), "two rows of as many"),
                ((tensor, torch.zeros(2, 5000, dtype=torch.float64), 0, "avg"), "two rows of as many"),
                ((tensor, torch.zeros(2, 5000), 0, "max"), "takes sums and means"),
                ((tensor, torch.zeros(2, 5000), -1, "avg"), "exchanges counts"),
                ((tensor.double(), torch.zeros(2, 5000), 0, "avg"), "rounds float32"),
            ]
            for arguments, message in cases:
                with self.assertRaisesRegex((RuntimeError, ValueError), message):
                    reduce(*arguments, group.group_name)
            self.assertTrue(torch.equal(tensor, values_of(RANK)))
            dist.barrier()  # the group is alive

    def test_shapes(self):
        with process_group() as group:
            for wanted in (torch.zeros(0), torch.tensor(3.0), torch.zeros(2, 0)):
                tensor = wanted.clone()
                residual = torch.zeros(2, tensor.numel())
                torch.ops.chainmail.int8_all_reduce_(tensor, residual, 0, "avg", group.group_name)
                torch.testing.assert_close(tensor, wanted, atol=3.0 / 127, rtol=0)

    def test_opcheck(self):
        with process_group() as group:
            for name in ("int8_all_reduce_", "int4_all_reduce_"):
                results = torch.library.opcheck(
                    getattr(torch.ops.chainmail, name).default,
                    (values_of(RANK, 300), torch.zeros(2, 300), 0, "avg", group.group_name))
                self.assertEqual(set(results.values()), {"SUCCESS"}, results)

    def test_compiled_once(self):
        compiled = []

        def backend(graph, _):
            compiled.append(graph)
            return graph.forward

        with process_group() as group:
            def step(tensor, residual, exchanges):
                torch.ops.chainmail.int8_all_reduce_(tensor, residual, exchanges, "avg", group.group_name)
                return tensor * 2

            call = torch.compile(step, backend=backend, fullgraph=True)
            residual = torch.zeros(2, 5000)
            for exchange in range(12):
                result = call(values_of(RANK), residual, exchange)
                self.assertLessEqual((result / 2 - mean_of()).abs().max().item(), 3.0 / 127)
            self.assertLessEqual(len(compiled), 3)  # 0 and 1 are numbers of their own

    def test_ranks_that_differ_are_named(self):
        with process_group() as group:
            with self.assertRaisesRegex(RuntimeError, "feedback of 3 exchanges"):
                torch.ops.chainmail.int8_all_reduce_(values_of(RANK), torch.zeros(2, 5000),
                                                     3 if RANK == 0 else 4, "avg", group.group_name)
            self.assertEqual(chainmail.failure().kind, "MismatchError")


def gradient_of(parameter, rank):
    """In the order of indices, whatever that of memory is."""
    return values_of(rank, parameter.numel()).view(parameter.shape)


class HookTest(unittest.TestCase):
    """Plain SGD of rate 1 from zeros: parameters are minus the sums of the means."""

    STEPS = 30

    def train(self, wire, steps, state=None, model=None, **options):
        if model is None:
            model = torch.nn.Sequential(torch.nn.Linear(60, 50), torch.nn.Linear(50, 60))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        ddp = DistributedDataParallel(model, **options)
        kept = chainmail.IntegerWire(wire)
        if state is not None:
            kept.load_state_dict(model, state)
        ddp.register_comm_hook(kept, chainmail.integer_hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        for _ in range(steps):
            optimizer.zero_grad()
            loss = ddp(torch.zeros(1, 60)).sum() * 0  # so that DDP sees a forward
            for parameter in model.parameters():
                loss = loss + (parameter * gradient_of(parameter, RANK)).sum()
            loss.backward()
            optimizer.step()
        return model, kept

    def check(self, model, kept, wire, steps):
        """What parameters have got, and what all ranks owe, is what gradients were."""
        owed = kept.state_dict(model)
        for name, parameter in model.named_parameters():
            wanted = steps * mean_of(parameter.numel()).view(parameter.shape)
            error = parameter.detach().double() + wanted
            lost = owed.get(name, torch.zeros(parameter.shape)).double().contiguous()
            dist.all_reduce(lost)
            self.assertLessEqual((error - lost).abs().max().item(), 5e-4, f"{name} has lost something")
            if name.endswith("weight"):
                self.assertLessEqual(error.abs().max().item(), 3.0 / MOST[wire], name)
                self.assertGreater(error.abs().max().item(), 1e-3, "nothing was rounded")

    def test_nothing_is_lost_over_time(self):
        for wire in MOST:
            for options in ({}, {"bucket_cap_mb": 0.005}, {"gradient_as_bucket_view": True},
                            {"static_graph": True}):  # 0.005: some buckets, which DDP makes anew
                with self.subTest(wire=wire, options=options), process_group():
                    model, kept = self.train(wire, self.STEPS, **options)
                    self.check(model, kept, wire, self.STEPS)

    def test_what_is_owed_can_be_saved(self):
        with process_group():
            first, kept = self.train("int4", 10)
            state = kept.state_dict(first)
            second, kept = self.train("int4", 20, state)
            for name, parameter in second.named_parameters():
                with torch.no_grad():
                    parameter.add_(dict(first.named_parameters())[name])
            self.check(second, kept, "int4", 30)

    def test_looking_at_what_is_owed_changes_nothing(self):
        with process_group():
            model, kept = self.train("int4", 5)
            ranks = [kept.state_dict(model)] if RANK == 0 else []  # one rank alone
            again = kept.state_dict(model)
            for state in ranks:
                for name, value in state.items():
                    self.assertTrue(torch.equal(value, again[name]), name)
            self.check(model, kept, "int4", 5)

    def test_orders_of_memory(self):
        class Strided(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.zeros(60, 50).t())

            def forward(self, x):
                return x @ self.weight.t()

        with process_group():
            model, kept = self.train("int4", 10, model=Strided())
            self.check(model, kept, "int4", 10)
            state = {name: value.contiguous() for name, value in kept.state_dict(model).items()}
            again, kept = self.train("int4", 10, state, model=Strided())
            with torch.no_grad():
                again.weight.add_(model.weight)
            self.check(again, kept, "int4", 20)

    # DDP's own calls in backward go beside the hook's: of which parameters were used, of another
    # type's bucket, of statistics.
    def test_other_calls_in_backward(self):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first = torch.nn.Linear(40, 60)
                self.middle = torch.nn.Linear(60, 60, dtype=torch.bfloat16)
                self.left = torch.nn.Linear(60, 50)
                self.right = torch.nn.Linear(60, 50)

            def forward(self, x, uses_right):
                x = self.middle(self.first(x).bfloat16()).float()
                return self.left(x) + (self.right(x) if uses_right else 0)

        with process_group():
            torch.manual_seed(3)
            model = Net()
            ddp = DistributedDataParallel(model, find_unused_parameters=True, bucket_cap_mb=0.01)
            ddp.register_comm_hook(chainmail.IntegerWire("int8"), chainmail.integer_hook)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            for step in range(10):
                optimizer.zero_grad()
                ddp(torch.randn(5, 40), (step + RANK) % 2 == 0).square().mean().backward()
                optimizer.step()
            for parameter in model.parameters():
                everybody = [torch.empty_like(parameter) for _ in range(SIZE)]
                dist.all_gather(everybody, parameter.detach())
                for other in everybody:
                    self.assertTrue(torch.equal(other, parameter))

    def test_small_parameters_are_never_rounded(self):
        with process_group(pg_options=chainmail.Options(wire="int4")):
            model, _ = self.train("int8", 1)
            for name, parameter in model.named_parameters():
                if name.endswith("bias"):
                    torch.testing.assert_close(parameter.detach().double(), -mean_of(parameter.numel()),
                                               atol=1e-6, rtol=0)

    def test_a_loss_scale_that_changes(self):
        with process_group():
            model = torch.nn.Linear(60, 50, bias=False)
            with torch.no_grad():
                model.weight.zero_()
            ddp = DistributedDataParallel(model)
            kept = chainmail.IntegerWire("int4")
            ddp.register_comm_hook(kept, chainmail.integer_hook)
            scale = 1.0
            for step in range(20):
                model.zero_grad()
                ((ddp(torch.zeros(1, 60)).sum() * 0 +
                  (model.weight * gradient_of(model.weight, RANK)).sum()) * scale).backward()
                with torch.no_grad():
                    model.weight.sub_(model.weight.grad / scale)
                factor = 8.0 if step % 2 == 0 else 0.25
                kept.rescale(factor)
                scale *= factor
            kept.rescale(1 / scale)
            self.check(model, kept, "int4", 20)

    def test_errors_reach_backward(self):
        with process_group():
            model = torch.nn.Linear(60, 50)
            ddp = DistributedDataParallel(model)
            kept = chainmail.IntegerWire("int8")
            ddp.register_comm_hook(kept, chainmail.integer_hook)
            for _ in range(3):  # after the first one DDP makes its buckets anew
                ddp(torch.ones(1, 60)).sum().backward()
            if RANK == 0:
                kept.load_state_dict(model, {})  # its exchanges count from 0 again
            with self.assertRaisesRegex(RuntimeError, "feedback of"):
                ddp(torch.ones(1, 60)).sum().backward()
            self.assertEqual(chainmail.failure(kept.group).kind, "MismatchError")
            self.assertIsNone(chainmail.failure())

    def test_close_leaves_nothing(self):
        def descriptors():
            return len(os.listdir("/proc/self/fd"))

        with process_group():
            counts = []
            for _ in range(4):
                model, kept = self.train("int8", 2)
                owed = kept.state_dict(model)
                kept.close()
                kept.close()
                for name, value in kept.state_dict(model).items():
                    self.assertTrue(torch.equal(value, owed[name]), name)
                dist.barrier()
                counts.append(descriptors())
            self.assertEqual(counts[1], counts[-1])
            ddp = DistributedDataParallel(model)
            ddp.register_comm_hook(kept, chainmail.integer_hook)
            kept._owed = {id(model[0].weight): torch.ones_like(model[0].weight)}
            with self.assertRaisesRegex((RuntimeError, ValueError), "is closed"):
                ddp(torch.ones(1, 60)).sum().backward()
            self.assertIn("0.weight", kept.state_dict(model), "lost in a step that was not made")

    def test_sparse_gradients_are_refused_by_name(self):
        for name in ("mean_hook", "integer_hook"):
            with self.subTest(hook=name), process_group():
                ddp = DistributedDataParallel(torch.nn.Embedding(40, 60, sparse=True))
                state = chainmail.IntegerWire() if name == "integer_hook" else None
                ddp.register_comm_hook(state, getattr(chainmail, name))
                with self.assertRaisesRegex((RuntimeError, ValueError), f"{name}.*sparse=False"):
                    ddp(torch.tensor([1, 2, RANK])).sum().backward()

    def test_groups_of_some_ranks(self):
        with process_group():
            some = [0, SIZE - 1]  # one of each node
            pair = dist.new_group(some)
            other = dist.new_group([0])
            calls = dist.new_group(some)
            gloo = dist.new_group(some, backend="gloo")
            if RANK in some:
                with self.assertRaisesRegex(ValueError, rf"new_group\(\[0, {SIZE - 1}\].*calls="):
                    chainmail.IntegerWire("int8", pair)
                for wrong, message in ((pair, "own group"), (gloo, "'gloo'"), (dist.group.WORLD, "of ranks"),
                                       (other, "of ranks|not a member")):
                    with self.assertRaisesRegex(ValueError, message):
                        chainmail.IntegerWire("int8", pair, wrong)
                model = torch.nn.Linear(60, 50)
                ddp = DistributedDataParallel(model, process_group=pair)
                ddp.register_comm_hook(chainmail.IntegerWire("int8", pair, calls), chainmail.integer_hook)
                (model.weight * gradient_of(model.weight, RANK) + ddp(torch.zeros(1, 60)).sum() * 0
                 ).sum().backward()
                mean = (gradient_of(model.weight, 0) + gradient_of(model.weight, SIZE - 1)) / 2
                self.assertLessEqual((model.weight.grad - mean).abs().max().item(), 2.0 / 127)
            dist.barrier()
            dist.new_group()  # all ranks have seen as many

    def test_ranks_that_have_seen_other_groups_are_refused(self):
        with process_group():
            if RANK == 0:
                dist.distributed_c10d._world.group_count += 1
            with self.assertRaisesRegex(ValueError, "different numbers of groups"):
                chainmail.IntegerWire()
            if RANK == 0:
                dist.distributed_c10d._world.group_count -= 1

    def test_what_is_owed_waits_for_finite_gradients(self):
        with process_group():
            first, kept = self.train("int4", 5)
            state = kept.state_dict(first)
            model = torch.nn.Sequential(torch.nn.Linear(60, 50), torch.nn.Linear(50, 60))
            kept = chainmail.IntegerWire("int4")
            kept.load_state_dict(model, state)
            ddp = DistributedDataParallel(model)
            ddp.register_comm_hook(kept, chainmail.integer_hook)
            # On one rank, so that the others' gradients are finite and their mean is not.
            factor = torch.inf if RANK == 0 else 0.0
            (ddp(torch.zeros(1, 60)).sum() * 0 + sum((parameter * factor).sum() for parameter in
                                                     model.parameters())).backward()
            after = kept.state_dict(model)
            for name, owed in state.items():  # what was sent in vain has been rounded once
                error = (after[name] - owed).abs().max().item()
                self.assertLessEqual(error, owed.abs().max().item() / 12, name)
            everybody = [None] * SIZE
            dist.all_gather_object(everybody, len(state))
            self.assertGreater(sum(everybody), 0, "nobody owes anything")

    def test_a_forked_child_is_told(self):
        with process_group():
            model, kept = self.train("int8", 1)
            child = os.fork()
            if child == 0:
                code = 9
                try:
                    kept.state_dict(model)
                except RuntimeError as error:
                    code = 7 if "forked" in str(error) else 8
                finally:
                    os._exit(code)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
            self.check(model, kept, "int8", 1)

    def test_copies_are_refused(self):
        with process_group():
            with self.assertRaisesRegex(TypeError, "state_dict"):
                copy.deepcopy(chainmail.IntegerWire())

    def test_states_and_factors_that_are_wrong_are_named(self):
        with process_group():
            wire, model = chainmail.IntegerWire(), torch.nn.Linear(60, 50)
            for state, message in (({"module.weight": torch.zeros(50, 60)}, "no such parameter; it has 'weight'"),
                                   ({"weight": torch.zeros(3)}, r"'weight' the state has .* \(3,\)"),
                                   ({"weight": torch.zeros(50, 60).double()}, "float64"),
                                   ({"weight": torch.full((50, 60), torch.nan)}, "'weight' is not finite")):
                with self.assertRaisesRegex(ValueError, message):
                    wire.load_state_dict(model, state)
            with self.assertRaisesRegex(TypeError, "not None"):
                wire.load_state_dict(model, None)
            for factor in (0, -1, float("nan"), float("inf")):
                with self.assertRaisesRegex(ValueError, "positive factor"):
                    wire.rescale(factor)
            with self.assertRaisesRegex(TypeError, "takes a chainmail.IntegerWire"):
                chainmail.integer_hook(None, None)

    def test_wires_that_are_none(self):
        with process_group():
            with self.assertRaisesRegex(ValueError, "int8"):
                chainmail.IntegerWire("int7")
        with process_group("gloo"):
            with self.assertRaisesRegex(ValueError, "backend 'chainmail'"):
                chainmail.IntegerWire()


if __name__ == "__main__":
    assert SIZE > 1
    unittest.main()

# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""torch.distributed's collectives, of tensors and of objects, give Gloo's values."""

import unittest

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
from torch.profiler import ProfilerActivity, profile

from both import RANK, SIZE, BothTest, process_group

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE


def mine(*shape, dtype=torch.float32):
    values = torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape) * (RANK + 1)
    return values.to(dtype)


class CollectivesTest(BothTest):
    def test_tensors(self):
        def scenario():
            summed, largest = mine(3, 5), mine(4, dtype=torch.int64)
            dist.all_reduce(summed)
            work = dist.all_reduce(largest, dist.ReduceOp.MAX, async_op=True)
            work.wait()
            sent = mine(7)
            dist.broadcast(sent, src=SIZE - 1)
            gathered = [torch.empty(2, 3) for _ in range(SIZE)]
            dist.all_gather(gathered, mine(2, 3))
            stacked = torch.empty(SIZE * 2, 3)
            dist.all_gather_into_tensor(stacked, mine(2, 3))
            part = torch.empty(2)
            dist.reduce_scatter_tensor(part, mine(2 * SIZE))
            at_root = [torch.empty(3) for _ in range(SIZE)] if RANK == 0 else None
            dist.gather(mine(3), at_root, dst=0)
            scattered = torch.empty(3)
            dist.scatter(scattered, [mine(3) + i for i in range(SIZE)] if RANK == 0 else None)
            exchanged = torch.empty(SIZE)
            dist.all_to_all_single(exchanged, mine(SIZE))
            dist.barrier()
            return [summed, largest, sent, gathered, stacked, part, at_root, scattered, exchanged]

        self.assert_same(scenario)

    def test_send_and_receive(self):
        def scenario():
            received = torch.empty(4)
            if RANK % 2 == 0 and RANK + 1 < SIZE:
                dist.send(mine(4), RANK + 1, tag=3)
                dist.recv(received, RANK + 1, tag=4)
            elif RANK % 2 == 1:
                dist.recv(received, RANK - 1, tag=3)
                dist.send(mine(4), RANK - 1, tag=4)
            else:
                received.fill_(-1)
            return received

        self.assert_same(scenario)

    def test_parts_of_different_lengths(self):
        def scenario():
            part = torch.empty(RANK + 2)
            dist.reduce_scatter(part, [mine(rank + 2) for rank in range(SIZE)])
            return part

        self.assert_same(scenario)

    def test_equal_counts_in_different_shapes(self):
        def scenario():
            shape = [(4,), (2, 2), (1, 4)][RANK % 3]
            summed, sent = mine(*shape), mine(*shape)
            dist.all_reduce(summed)
            dist.broadcast(sent, src=0)
            number = torch.tensor(1.0) if RANK == 0 else torch.ones(1)
            dist.all_reduce(number)
            return [summed, sent, number]

        self.assert_same(scenario)

    def test_transfers_to_all_and_itself(self):
        # As NCCL allows them; Gloo has no way from a rank to itself.
        with process_group():
            received = [torch.empty(5) for _ in range(SIZE)]
            works = dist.batch_isend_irecv(
                [dist.P2POp(dist.irecv, received[rank], rank) for rank in range(SIZE)] +
                [dist.P2POp(dist.isend, mine(5) + rank, rank) for rank in range(SIZE)])
            for work in works:
                work.wait()
            for rank, values in enumerate(received):
                expected = torch.arange(1.0, 6.0) * (rank + 1) + RANK
                self.assertEqual(values.tolist(), expected.tolist())
            alone = torch.empty(3)
            for work in [dist.isend(mine(3), RANK), dist.irecv(alone, RANK)]:
                work.wait()
            self.assertEqual(alone.tolist(), mine(3).tolist())

    def test_ring_of_batched_transfers(self):
        def scenario():
            received = torch.empty(5)
            works = dist.batch_isend_irecv([dist.P2POp(dist.isend, mine(5), NEXT),
                                            dist.P2POp(dist.irecv, received, PREVIOUS)])
            for work in works:
                work.wait()
            return received

        self.assert_same(scenario)

    def test_functional(self):
        def scenario():
            group = dist.group.WORLD
            return [value.clone() for value in (
                functional.all_reduce(mine(3, 2), "sum", group),
                functional.all_reduce(mine(3, 2), "max", group),
                functional.all_gather_tensor(mine(2, 3), 0, group),
                functional.all_gather_tensor(mine(2, 3), 1, group),
                functional.reduce_scatter_tensor(mine(2 * SIZE, 3), "sum", 0, group),
                functional.broadcast(mine(6), 0, group),
                functional.all_to_all_single(mine(SIZE, 2), None, None, group),
                functional.permute_tensor(mine(4), [(i + 1) % SIZE for i in range(SIZE)], group),
                *functional.all_reduce_coalesced([mine(3), mine(2, 2)], "sum", group),
                *functional.all_gather_into_tensor_coalesced([mine(3), mine(2, 2)], group))]

        self.assert_same(scenario)

    def test_gradients_through_collectives(self):
        def scenario():
            x = mine(3, 2).requires_grad_()
            y = functional.all_gather_tensor_autograd(x, 0, dist.group.WORLD)
            z = differentiable.all_reduce(x * 2)
            (y.square().sum() + z.sum()).backward()
            return x.grad

        self.assert_same(scenario)

    def test_objects(self):
        def scenario():
            thing = {"rank": RANK, "text": "x" * (10 + 1000 * RANK), "tensor": mine(3)}
            everybody = [None] * SIZE
            dist.all_gather_object(everybody, thing)
            at_root = [None] * SIZE if RANK == 1 else None
            dist.gather_object(thing, at_root, dst=1)
            sent = [thing, RANK] if RANK == 0 else [None, None]
            dist.broadcast_object_list(sent, src=0)
            scattered = [None]
            dist.scatter_object_list(scattered,
                                     [f"for {i}" for i in range(SIZE)] if RANK == 0 else None)
            passed = [thing]
            if RANK == 0:
                dist.send_object_list(passed, dst=1)
            elif RANK == 1:
                dist.recv_object_list(passed, src=0)
            return [everybody, at_root, sent, scattered, passed]

        self.assert_same(scenario)

    def test_groups(self):
        def scenario():
            results = []
            for ranks in ([0, 1], [1, 0], list(range(SIZE)), [SIZE - 1]):
                group = dist.new_group(ranks)
                if RANK in ranks:
                    value = mine(4)
                    dist.all_reduce(value, group=group)
                    results += [value, dist.get_rank(group), dist.get_world_size(group)]
                    dist.destroy_process_group(group)
            half, _ = dist.new_subgroups_by_enumeration([[0], list(range(1, SIZE))])
            value = mine(4)
            dist.all_reduce(value, group=half)
            return results + [value]

        self.assert_same(scenario)

    @unittest.skipIf(TORCH < (2, 15), "split_group of torch 2.11 needs an accelerator")
    def test_split_group(self):
        with process_group():
            part = dist.split_group(split_ranks=[[0], list(range(1, SIZE))])
            value = mine(4)
            dist.all_reduce(value, group=part)
            others = 1 if RANK == 0 else sum(range(2, SIZE + 1))
            self.assert_equal(mine(4) / (RANK + 1) * others, value)

    def test_device_prefix_and_second_backend(self):
        for backend in ("cpu:chainmail", "cpu:chainmail,cuda:gloo"):
            with self.subTest(backend=backend), process_group(backend):
                value = mine(4)
                dist.all_reduce(value)
                self.assert_equal(mine(4) / (RANK + 1) * sum(range(1, SIZE + 1)), value)
        with process_group("cpu:chainmail", init_method="chainmail://"):
            group = dist.new_group(backend="gloo")
            ours, theirs = mine(4), mine(4)
            dist.all_reduce(ours)
            dist.all_reduce(theirs, group=group)
            self.assert_equal(theirs, ours)

    def test_receive_from_any_rank(self):
        def scenario():
            if RANK != 0:
                dist.send(mine(3), 0, tag=9)
                return [RANK]
            received = [torch.empty(3) for _ in range(SIZE - 1)]
            sources = [dist.recv(tensor, tag=9) for tensor in received]
            return [dict(sorted(zip(sources, received)))]

        self.assert_same(scenario)

    def test_profiler_shows_operations(self):
        with process_group():
            with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as found:
                dist.all_reduce(mine(3, 5))
                dist.broadcast(mine(7), src=0)
                dist.all_gather_into_tensor(torch.empty(2 * SIZE), mine(2))
                dist.barrier()
                if RANK == 0:
                    dist.recv(torch.empty(4))
                elif RANK == 1:
                    dist.send(mine(4), 0)
        shapes = {event.name: event.input_shapes for event in found.events()
                  if event.name.startswith("chainmail:")}
        for name, shape in {"all_reduce": [3, 5], "broadcast": [7]}.items():
            self.assertIn(shape, shapes.get(f"chainmail:{name}", []), shapes)
        self.assertIn("chainmail:barrier", shapes)
        if RANK == 0:  # as torch spells it for its own backends
            self.assertIn([4], shapes.get("chainmail:recvAnySource", []), shapes)

    def test_who_polls_while_a_profiler_ends_events(self):
        """Checkpointing and such leave objects of Python's in the thread that begins operations."""
        def untouched(tensor):
            return tensor

        value = torch.ones(10000)
        with process_group(), profile(activities=[ProfilerActivity.CPU]):
            with torch.autograd.graph.saved_tensors_hooks(untouched, untouched):
                for _ in range(300):
                    polled = dist.all_reduce(value, async_op=True)
                    while not polled.is_completed():
                        pass
                    awaited = dist.all_reduce(value, async_op=True)
                    awaited.get_future().wait()
                    self.assertTrue(awaited.is_success())
                    value.fill_(1)

    def test_operators_by_name(self):
        with process_group():
            value = mine(8)
            expected = mine(8) / (RANK + 1) * sum(range(1, SIZE + 1))
            torch.ops.chainmail.hierarchical_all_reduce_(value, "sum", dist.group.WORLD.group_name)
            self.assert_equal(expected, value)


if __name__ == "__main__":
    assert SIZE > 1
    unittest.main()

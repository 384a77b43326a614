# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""DistributedDataParallel in all its modes gives Gloo's numbers."""

import unittest

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from both import RANK, SIZE, BothTest

STEPS = 4


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 40)
        self.norm = torch.nn.BatchNorm1d(40)
        self.left = torch.nn.Linear(40, 3)
        self.right = torch.nn.Linear(40, 3)

    def forward(self, x, use_right=True):
        hidden = torch.relu(self.norm(self.first(x)))
        return self.left(hidden) + (self.right(hidden) if use_right else 0)


def batch(step):
    return torch.randn(5, 6, generator=torch.Generator().manual_seed(100 * step + RANK))


def wrap(**options):
    # Different parameters on every rank: DDP sends rank 0's. Small buckets, so that there are many.
    torch.manual_seed(RANK)
    return DistributedDataParallel(Net(), **{"bucket_cap_mb": 0.0005, **options})


def rounding(dtype):
    """How far apart parameters may be when gradients of about 1 were added in `dtype`."""
    return STEPS * SIZE * torch.finfo(dtype).eps


def train(model, inputs=batch, steps=STEPS, **arguments):
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        model(inputs(step), **arguments).square().mean().backward()
        optimizer.step()
    return list(model.state_dict().values())


class DdpTest(BothTest):
    def assert_trains(self, **options):
        parameters = self.assert_same(lambda: train(wrap(**options)))
        untrained = list(Net().state_dict().values())
        self.assertFalse(torch.equal(parameters[0], untrained[0]))

    def test_plain(self):
        self.assert_trains()

    def test_one_bucket(self):
        self.assert_trains(bucket_cap_mb=25)

    def test_gradient_as_bucket_view(self):
        self.assert_trains(gradient_as_bucket_view=True)

    def test_static_graph(self):
        self.assert_trains(static_graph=True)

    def test_find_unused_parameters(self):
        # Every rank leaves out `right` in other steps, and all of them in step 0.
        def scenario():
            model = wrap(find_unused_parameters=True)
            for step in range(STEPS):
                train(model, lambda _, step=step: batch(step), 1,
                      use_right=step > 0 and (step + RANK) % 2 == 0)
            return list(model.state_dict().values())

        self.assert_same(scenario)

    def test_no_sync(self):
        def scenario():
            model = wrap()
            with model.no_sync():
                for step in range(3):
                    model(batch(step)).square().mean().backward()
            alone = [parameter.grad.clone() for parameter in model.parameters()]
            model(batch(3)).square().mean().backward()
            return alone + [parameter.grad for parameter in model.parameters()]

        self.assert_same(scenario)

    def test_join_of_uneven_inputs(self):
        def scenario():
            model = wrap()
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            with Join([model]):
                for step in range(2 + RANK):
                    optimizer.zero_grad()
                    model(batch(step)).square().mean().backward()
                    optimizer.step()
            return list(model.state_dict().values())

        self.assert_same(scenario)

    def test_zero_redundancy_optimizer(self):
        def scenario():
            model = wrap()
            optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1,
                                                momentum=0.9)
            for step in range(STEPS):
                optimizer.zero_grad()
                model(batch(step)).square().mean().backward()
                optimizer.step()
            return list(model.state_dict().values())

        self.assert_same(scenario)

    def test_hooks(self):
        for hook, bits in ((default_hooks.allreduce_hook, torch.float32),
                           (default_hooks.fp16_compress_hook, torch.float16),
                           (default_hooks.bf16_compress_hook, torch.bfloat16)):
            def scenario(hook=hook):
                model = wrap()
                model.register_comm_hook(None, hook)
                return train(model)

            with self.subTest(hook=hook.__name__):
                self.assert_same(scenario, absolute=rounding(bits))

    def test_built_in_hooks(self):
        for kind, bits in ((dist.BuiltinCommHookType.ALLREDUCE, torch.float32),
                           (dist.BuiltinCommHookType.FP16_COMPRESS, torch.float16)):
            def scenario(kind=kind):
                model = wrap()
                model._register_builtin_comm_hook(kind)
                return train(model)

            with self.subTest(kind=kind):
                self.assert_same(scenario, absolute=rounding(bits))

    def test_power_sgd_hook(self):
        # Its callbacks wait for the futures of further all-reduces. One bucket, so that these come
        # in one order on all ranks.
        def scenario():
            model = wrap(bucket_cap_mb=1)
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2,
                                                start_powerSGD_iter=2, min_compression_rate=1)
            model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
            return train(model, steps=6)

        self.assert_same(scenario, absolute=1e-4)

    def test_sparse_gradients(self):
        def scenario():
            torch.manual_seed(RANK)
            net = torch.nn.Sequential(torch.nn.Embedding(30, 4, sparse=True), torch.nn.Linear(4, 2))
            model = DistributedDataParallel(net)
            for step in range(STEPS):
                model.zero_grad()
                model(torch.tensor([step, 3 + RANK, 20])).square().mean().backward()
                torch.optim.SGD(model.parameters(), 0.1).step()
            return list(model.state_dict().values())

        self.assert_same(scenario)

    def test_sync_batch_norm(self):
        # torch allows it on accelerators only; the refusal is the same.
        def scenario():
            norm = torch.nn.SyncBatchNorm(6)
            try:
                return norm(batch(0))
            except ValueError as error:
                return str(error)

        self.assert_same(scenario)


if __name__ == "__main__":
    assert SIZE > 1
    unittest.main()

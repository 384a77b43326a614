# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""FSDP2, meshes, tensor parallelism and distributed checkpoints give Gloo's numbers; 4 ranks."""

import os
import unittest

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)

from both import RANK, SIZE, BothTest, shared_folder

STEPS = 3


def make_net():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(7, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10),
                               torch.nn.ReLU(), torch.nn.Linear(10, 3))


def batch(step, place=RANK):
    return torch.randn(4, 7, generator=torch.Generator().manual_seed(100 * step + place))


def shard(net, **options):
    for layer in net:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, **options)
    return fully_shard(net, **options)


def train(net, place=RANK, steps=STEPS):
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for step in range(steps):
        optimizer.zero_grad()
        net(batch(step, place)).square().mean().backward()
        optimizer.step()
    return whole(net)


def whole(net):
    return [value.full_tensor() if isinstance(value, DTensor) else value
            for value in net.state_dict().values()]


class ShardingTest(BothTest):
    def test_fully_shard(self):
        self.assert_same(lambda: train(shard(make_net())))

    def test_fully_shard_keeps_parameters_between_forward_and_backward(self):
        self.assert_same(lambda: train(shard(make_net(), reshard_after_forward=False)))

    def test_fully_shard_trains_as_one_process(self):
        sharded = self.assert_same(lambda: train(shard(make_net())))
        net = make_net()
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        for step in range(STEPS):
            optimizer.zero_grad()
            net(torch.cat([batch(step, place) for place in range(SIZE)])).square().mean().backward()
            optimizer.step()
        self.assert_equal([value.detach() for value in net.state_dict().values()],
                          [value.detach() for value in sharded])

    def test_hybrid_shard_on_two_dimensions(self):
        def scenario():
            mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
            return train(shard(make_net(), mesh=mesh))

        self.assert_same(scenario)

    def test_tensor_parallel_and_fully_shard(self):
        def scenario():
            mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
            net = make_net()
            parallelize_module(net, mesh["model"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
            return train(shard(net, mesh=mesh["data"]), place=mesh["data"].get_local_rank())

        self.assert_same(scenario)

    def test_meshes(self):
        def scenario():
            mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("x", "y"))
            sums = []
            for name in ("x", "y"):
                value = torch.tensor([float(RANK + 1)])
                dist.all_reduce(value, group=mesh[name].get_group())
                sums.append(value)
            return sums + [mesh["x"].get_local_rank(), mesh["y"].get_local_rank()]

        sums = self.assert_same(scenario)
        self.assertEqual(sums[0].item(), {0: 4, 1: 6, 2: 4, 3: 6}[RANK])

    def test_distributed_tensors(self):
        def scenario():
            mesh = init_device_mesh("cpu", (SIZE,))
            torch.manual_seed(5)
            left = distribute_tensor(torch.randn(6, 9), mesh, [Shard(0)])
            right = distribute_tensor(torch.randn(9, 5), mesh, [Shard(1)])
            rows = left.redistribute(mesh, [Shard(1)])
            product = rows.redistribute(mesh, [Replicate()]) @ right
            return [rows.to_local(), product.full_tensor(), (left @ right).full_tensor(),
                    left.sum().full_tensor()]

        self.assert_same(scenario)

    def test_checkpoint_of_another_sharding(self):
        def scenario():
            net = shard(make_net())
            trained = train(net)
            with shared_folder() as folder:
                checkpoint.save({"model": get_model_state_dict(net)},
                                checkpoint_id=os.path.join(folder, "one"))
                mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
                other = shard(make_net(), mesh=mesh)
                state = {"model": get_model_state_dict(other)}
                checkpoint.load(state, checkpoint_id=os.path.join(folder, "one"))
                set_model_state_dict(other, state["model"])
            self.assert_equal(trained, whole(other))
            return trained

        self.assert_same(scenario)

    def test_asynchronous_checkpoint(self):
        def scenario():
            state = {"rank": torch.tensor([RANK]), "same": torch.arange(5)}
            with shared_folder() as folder:
                checkpoint.async_save({f"{RANK}": state}, checkpoint_id=folder).result(timeout=60)
                dist.barrier()
                loaded = {f"{RANK}": {"rank": torch.tensor([-1]), "same": torch.zeros(5).long()}}
                checkpoint.load(loaded, checkpoint_id=folder)
            return loaded

        loaded = self.assert_same(scenario)
        self.assertEqual(loaded[f"{RANK}"]["rank"].item(), RANK)


if __name__ == "__main__":
    assert SIZE == 4
    unittest.main()

# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""The MNIST program of examples/train_mnist for real ChainerMN, to be timed against it.

Run by against_chainermn.sh with mpiexec. Rank 0 prints one line per epoch: its seconds, training
and evaluation together, and the validation accuracy.
"""

import argparse
import gzip
import os
import time

import chainer
import chainermn
import numpy
from chainer import functions, links, training
from chainer.training import extensions


class Mlp(chainer.Chain):
    """784-units-units-10 with ReLU, as in train_mnist."""

    def __init__(self, units):
        super().__init__()
        with self.init_scope():
            self.first = links.Linear(None, units)
            self.second = links.Linear(None, units)
            self.last = links.Linear(None, 10)

    def forward(self, x):
        return self.last(functions.relu(self.second(functions.relu(self.first(x)))))


def read_idx(folder, name):
    """The bytes of an IDX file, gzip or not, without its header."""
    path = os.path.join(folder, name)
    opened = open(path, "rb") if os.path.exists(path) else gzip.open(path + ".gz", "rb")
    with opened as file:
        content = file.read()
    return numpy.frombuffer(content, numpy.uint8, offset=4 + 4 * content[3])


def read_set(folder, part):
    images = read_idx(folder, part + "-images-idx3-ubyte").reshape(-1, 784)
    labels = read_idx(folder, part + "-labels-idx1-ubyte")
    return chainer.datasets.TupleDataset(
        images.astype(numpy.float32) / 255, labels.astype(numpy.int32)
    )


class EpochTimes(training.Extension):
    """After evaluator and log, so that both count."""

    trigger = (1, "epoch")
    priority = -100

    def __init__(self, log):
        self._log = log
        self._began = None

    def initialize(self, trainer):
        self._began = time.perf_counter()

    def __call__(self, trainer):
        now = time.perf_counter()
        accuracy = self._log.log[-1]["validation/main/accuracy"]
        print(f"{now - self._began:.3f} {accuracy:.4f}", flush=True)
        self._began = now


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--units", type=int, default=1000)
    parser.add_argument("--batchsize", type=int, default=100)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()

    comm = chainermn.create_communicator("naive")
    train, test = (
        (read_set(args.data, "train"), read_set(args.data, "t10k"))
        if comm.rank == 0
        else (None, None)
    )
    train = chainermn.scatter_dataset(train, comm, shuffle=True, seed=0)
    test = chainermn.scatter_dataset(test, comm)
    model = links.Classifier(Mlp(args.units))
    optimizer = chainermn.create_multi_node_optimizer(chainer.optimizers.Adam(), comm)
    optimizer.setup(model)
    updater = training.StandardUpdater(
        chainer.iterators.SerialIterator(train, args.batchsize), optimizer
    )
    trainer = training.Trainer(updater, (args.epochs, "epoch"), out=args.out)
    evaluator = extensions.Evaluator(
        chainer.iterators.SerialIterator(test, args.batchsize, repeat=False, shuffle=False), model
    )
    trainer.extend(chainermn.create_multi_node_evaluator(evaluator, comm))
    if comm.rank == 0:
        log = extensions.LogReport()
        trainer.extend(log)
        trainer.extend(EpochTimes(log))
    trainer.run()


if __name__ == "__main__":
    main()

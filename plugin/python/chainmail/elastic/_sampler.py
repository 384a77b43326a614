# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Which samples a rank computes: each one in one committed step per epoch, whoever is there."""

import torch


class Sampler:
    """Divides an epoch into steps and a step among the ranks of the world.

    `samples` is their number, or something that has a len(). `batch` is the batch of all ranks
    together: steps have at most so many samples, and differ by one at most. The order depends on
    `seed` and the epoch alone. The place moves when the job commits a step, and not before.
    """

    def __init__(self, samples, batch, *, shuffle=True, seed=0):
        self._samples = samples if isinstance(samples, int) else len(samples)
        if self._samples < 1 or batch < 1:
            raise ValueError(f"chainmail.elastic.Sampler of {self._samples} samples with batch {batch}: "
                             "both are at least 1")
        self._steps = -(-self._samples // batch)
        self._shuffle, self._seed = shuffle, seed
        self._epoch = self._position = 0
        self._rank, self._size = 0, 1
        self._order = (-1, None)  # the epoch that it is of
        self._under_way = None  # of the step under way: its samples

    @property
    def epoch(self):
        """The epoch, from 0, of the next sample that is not committed."""
        return self._epoch

    @property
    def position(self):
        """How many samples of the epoch are committed."""
        return self._position

    def __len__(self):
        """Steps of an epoch."""
        return self._steps

    def __iter__(self):
        return iter(self.indices())

    def indices(self):
        """This rank's samples of the step under way (within `with step`, also after its commit)."""
        begin, end = self._part()
        return self._order_of_epoch()[begin:end].tolist() if self._under_way is None else (
            self._under_way[2])

    @property
    def weight(self):
        """len(indices()) times the ranks over the samples of the step, 1 where ranks have equally many.

        DDP averages the ranks' gradients; of losses that are means over a rank's samples,
        (loss * sampler.weight).backward() gives the mean over all samples of the step.
        """
        begin, end = self._part()
        first, last = self._bounds()
        return (end - begin) * self._size / (last - first)

    def state_dict(self):
        return {"epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state):
        self._epoch, self._position = state["epoch"], state["position"]

    def describe(self):
        """What must be equal on all ranks."""
        return (f"{self._samples} samples in {self._steps} steps, "
                f"{'shuffled by ' + str(self._seed) if self._shuffle else 'in order'}")

    # What follows is the job's.

    def check_ranks(self, most):
        """Whether each of so many ranks has a sample in every step."""
        fewest = self._samples // self._steps
        if fewest < most:
            raise ValueError(f"chainmail.elastic.Sampler: steps of {fewest} samples for up to {most} ranks, which "
                             "launcher --elastic allows: ask for a batch of at least twice as many samples as there "
                             "will ever be ranks, or allow fewer ranks")

    def enter_world(self, rank, size):
        self._rank, self._size = rank, size

    def begin_step(self):
        self._under_way = None
        bounds, part = self._bounds(), self._part()
        self._under_way = (bounds, part, self._order_of_epoch()[part[0]:part[1]].tolist())

    def commit_step(self):
        end = self._under_way[0][1]
        self._position = end % self._samples
        self._epoch += end == self._samples

    def end_step(self):
        self._under_way = None

    def _bounds(self):
        """The samples of the step, as places in the epoch's order."""
        if self._under_way is not None:
            return self._under_way[0]
        step = self._position * self._steps // self._samples
        while self._samples * step // self._steps <= self._position:
            step += 1
        return self._position, self._samples * step // self._steps

    def _part(self):
        if self._under_way is not None:
            return self._under_way[1]
        begin, end = self._bounds()
        count = end - begin
        if count < self._size:
            raise ValueError(f"a step of {count} samples for {self._size} ranks: ask for a batch of at "
                             "least twice as many samples as there will ever be ranks")
        return (begin + count * self._rank // self._size,
                begin + count * (self._rank + 1) // self._size)

    def _order_of_epoch(self):
        if self._order[0] != self._epoch:
            generator = torch.Generator().manual_seed((self._seed * 1000003 + self._epoch) % 2**63)
            order = (torch.randperm(self._samples, generator=generator) if self._shuffle
                     else torch.arange(self._samples))
            self._order = (self._epoch, order)
        return self._order[1]

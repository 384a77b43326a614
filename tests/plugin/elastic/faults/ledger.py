# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""The ledger of an elastic job (elastic_ledger): which samples have come into which step, and when."""

import collections
import math
import statistics

BATCH = 36

World = collections.namedtuple("World", "time member rank next_step pid")
Kill = collections.namedtuple("Kill", "time member point")


class Ledger:
    """Reads a file that grows."""

    def __init__(self, path):
        self.path = path
        self._done = 0
        self.sizes = {}  # of worlds, by generation
        self.worlds = collections.defaultdict(list)  # World of each member, by generation
        self.tries = collections.defaultdict(dict)  # (step, generation): samples by member
        self.begins = collections.defaultdict(set)  # generations by member and step
        self.epochs = {}  # of a step
        self.commits = collections.defaultdict(dict)  # (step, generation): time by member
        self.kills = []
        self.damages = collections.Counter()  # (member, point)
        self.waits = set()  # (member, point)
        self.holding = set()  # members, before they run
        self.sent = {}  # bytes by generation and member
        self.totals = {}  # messages and words to the launcher, by member
        self.ordered = collections.Counter()  # of members
        self.evaluated = collections.defaultdict(set)  # values by step
        self.saves = collections.defaultdict(set)  # digests by step
        self.loaded = (0, "")
        self.newest = 0

    def read(self):
        try:
            with open(self.path, "rb") as file:
                file.seek(self._done)
                text = file.read()
        except FileNotFoundError:
            return self
        text = text[:text.rfind(b"\n") + 1]
        self._done += len(text)
        for line in text.decode().splitlines():
            time, member, kind, *rest = line.split(" ")
            getattr(self, "_" + kind)(int(time), int(member), *rest)
        return self

    def _world(self, time, member, generation, rank, size, next_step, pid):
        generation = int(generation)
        assert self.sizes.setdefault(generation, int(size)) == int(size), f"world {generation}"
        self.worlds[generation].append(World(time, member, int(rank), int(next_step), int(pid)))

    def _try(self, _, member, step, generation, epoch, indices):
        step = int(step)
        assert self.epochs.setdefault(step, int(epoch)) == int(epoch), f"epoch of step {step}"
        samples = [int(index) for index in indices.rstrip(",").split(",")]
        tries = self.tries[step, int(generation)]
        assert member not in tries, f"member {member} tries step {step} twice in one world"
        tries[member] = samples

    def _commit(self, time, member, step, generation):
        self.commits[int(step), int(generation)][member] = time
        self.newest = max(self.newest, int(step))

    def _begin(self, _, member, step, generation):
        self.begins[member, int(step)].add(int(generation))

    def _again(self, _, member, step, generation):
        """What follows a commit, and no step."""
        self.begins[member, int(step)].discard(int(generation))

    def _ordered(self, _, member, __):
        self.ordered[member] += 1

    def _damaged(self, _, member, point):
        self.damages[member, point] += 1

    def _waits(self, _, member, point):
        self.waits.add((member, point))

    def _holds(self, _, member):
        self.holding.add(member)

    def _sent(self, _, member, count):
        generation = max(key for key, worlds in self.worlds.items()
                         if any(world.member == member for world in worlds))
        self.sent[generation, member] = int(count)

    def _killed(self, time, member, point):
        self.kills.append(Kill(time, member, point))

    def _evaluated(self, _, __, step, value):
        self.evaluated[int(step)].add(value)

    def _saves(self, _, __, step, digest):
        self.saves[int(step)].add(digest)

    def _loaded(self, _, __, step, digest):
        self.loaded = (int(step), digest)

    def _totals(self, _, member, messages, words):
        self.totals[member] = (int(messages), int(words))

    def _end(self, *_):
        pass

    def complete_worlds(self):
        """Generations whose members have all come."""
        return sorted(generation for generation, members in self.worlds.items()
                      if len(members) == self.sizes[generation])

    def members(self, generation):
        """World of each, by rank."""
        return sorted(self.worlds.get(generation, []), key=lambda world: world.rank)

    def check(self, steps, steps_per_epoch):
        """Each step once, in order, each sample of an epoch in exactly one of them; what somebody has
        committed who lives on is not done again. Returns the most steps that one world did again."""
        generations = collections.defaultdict(list)
        for step, generation in sorted(self.commits):
            generations[step].append(generation)
        assert sorted(generations) == list(range(1, steps + 1)), (
            f"not steps 1 to {steps}: {sorted(set(range(1, steps + 1)) ^ set(generations))}")
        last_world = collections.defaultdict(int)
        for generation, members in self.worlds.items():
            for world in members:
                last_world[world.member] = max(last_world[world.member], generation)
        samples = collections.defaultdict(list)
        before = 0
        for step in range(1, steps + 1):
            *lost, counts = generations[step]
            for generation in lost:
                for member in self.commits[step, generation]:
                    assert last_world[member] <= generation, (
                        f"step {step}, which member {member} has committed in world {generation}, "
                        f"is done again in world {counts}")
            assert counts >= before, f"step {step} is of world {counts}, the one before of {before}"
            before = counts
            tries = self.tries[step, counts]
            size = self.sizes[counts]
            assert len(tries) == size, f"step {step}: {len(tries)} of {size} ranks"
            samples[self.epochs[step]] += [index for part in tries.values() for index in part]
        self._check_samples(samples, steps, steps_per_epoch)
        return self._most_redone()

    def _check_samples(self, samples, steps, steps_per_epoch):
        of_epoch = steps_per_epoch * BATCH - 7
        for epoch, indices in samples.items():
            counted = collections.Counter(indices)
            twice = [index for index, count in counted.items() if count > 1]
            assert not twice, f"epoch {epoch}: samples twice: {twice[:10]}"
            is_whole = (epoch + 1) * steps_per_epoch <= steps
            wanted = of_epoch if is_whole else (steps - epoch * steps_per_epoch) * BATCH
            assert len(counted) == wanted and max(counted) < of_epoch, (
                f"epoch {epoch}: {len(counted)} of {wanted} samples")

    def _most_redone(self):
        again = collections.defaultdict(set)
        for (_, step), generations in self.begins.items():
            for generation in sorted(generations)[1:]:
                again[generation].add(step)
        return max((len(steps) for steps in again.values()), default=0)

    def check_ends(self):
        """Who is not in a world commits nothing once that world's first step has begun."""
        first = {}
        for (step, generation), members in self.commits.items():
            first[generation] = min(min(members.values()), first.get(generation, math.inf))
        for (step, generation), members in self.commits.items():
            for member, time in members.items():
                later = [newer for newer, begin in first.items() if newer > generation and time > begin]
                assert not later, f"member {member} commits step {step} of world {generation} after {later}"

    def recoveries(self):
        """Seconds from each death to the moment when all who live on are together again, with the
        place of the death."""
        found = []
        for kill in self.kills:
            for generation in self.complete_worlds():
                members = self.worlds[generation]
                is_later = all(world.time > kill.time for world in members)
                if is_later and all(world.member != kill.member for world in members):
                    found.append((max(world.time for world in members) / 1e9 - kill.time / 1e9,
                                  kill.point))
                    break
        return found

    def commit_times(self):
        """Of each step, when the first rank had it."""
        times = {}
        for (step, _), members in sorted(self.commits.items()):
            times[step] = min(members.values())
        return [times[step] / 1e9 for step in sorted(times)]

    def pauses(self):
        """For each world but the first: seconds by which its first step came later than usual."""
        times = dict(enumerate(self.commit_times(), 1))
        usual = statistics.median(times[step] - times[step - 1] for step in list(times)[1:])
        found = {}
        for generation in self.complete_worlds()[1:]:
            step = self.worlds[generation][0].next_step
            if step > 1 and step in times:
                found[generation] = max(0.0, times[step] - times[step - 1] - usual)
        return found

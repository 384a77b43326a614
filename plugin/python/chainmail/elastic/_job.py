# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Job: the steps of a program whose ranks may change between them."""

import dataclasses
import logging
import os

import torch
import torch.distributed as dist

from chainmail.elastic._sampler import Sampler
from chainmail.elastic._state import State, StateError
from chainmail.elastic._world import DefaultGroup

_log = logging.getLogger("chainmail.elastic")

# What ElasticMember.wait() returns, and how long it may hold up the handlers of signals.
_NOTHING, _STEP, _WORLD, _END = range(4)
_PATIENCE_MS = 200
# Steps before which states are compared: the first ones of a world, in which what a newcomer was not
# given shows, and now and then.
_STEPS_TO_LOOK = 3
_STEPS_BETWEEN_LOOKS = 100
_NAME = "job"


@dataclasses.dataclass(frozen=True)
class World:
    """Who is there; on_world() is called with it."""

    generation: int
    """Counts worlds from 1; 0 in a job of fixed size."""
    rank: int
    size: int
    next_step: int
    """The number of the step that comes."""


class Step:
    """One step: `with step:` computes it, and its optimizer.step() commits it."""

    def __init__(self, job, number):
        self._job = job
        self.number = number
        """From 1; the same again when a change of the world has interrupted the step."""
        self.is_committed = False
        """Whether it counts: from the beginning of optimizer.step() on."""
        self._is_over = False
        self._is_half_done = False  # in optimizer.step()

    def __enter__(self):
        self._job._begin_step(self)
        return self

    def __exit__(self, kind, error, _):
        if error is None and not self.is_committed:
            self._job._allow_without_optimizer(self)
            try:
                self._job._commit(self)
            except RuntimeError as own:
                if not self._is_interrupted(own):
                    raise
                error = own
        elif error is not None and not self._is_interrupted(error):
            self._job._has_failed = True
            return False
        self._is_over = True
        self._job._end_step(self, error)
        return True

    def _is_interrupted(self, error):
        # torch makes RuntimeErrors of the library's errors.
        return (isinstance(error, RuntimeError) and not isinstance(error, StateError)
                and not self._is_half_done and self._job._is_world_over())


class Job:
    """What a program with DistributedDataParallel needs to train on while ranks come and go.

    `state`: name=object with state_dict() and load_state_dict(), all that a rank that joins must be
    given: modules, one optimizer of torch.optim, samplers, schedules, scalers. pg_options and timeout
    are those of init_process_group("chainmail"), which the job calls. Until the first step the group
    is of this process alone in an elastic job (launcher --elastic).
    """

    def __init__(self, *, pg_options=None, timeout=None, **state):
        if not state or _NAME in state:
            raise ValueError(f"chainmail.elastic.Job: name what ranks that join must be given, as in "
                             f"Job(net=net, optimizer=optimizer); '{_NAME}' is the job's own name")
        self._next = self._first = 1
        self._state = State({**state, _NAME: self})
        self._has_scaler = any(hasattr(part, "unscale_") for part in state.values())
        self._samplers = [part for part in state.values() if isinstance(part, Sampler)]
        if len(self._state.optimizers) > 1:
            raise ValueError("chainmail.elastic.Job with more than one optimizer: optimizer.step() commits "
                             "the step, so there is one; torch.optim takes several groups of parameters")
        self._step = None
        self._copies = None
        self._digests = {}
        self._callbacks = []
        self._is_running = False
        self._has_failed = False  # in a step, which says why
        self._steps_in_world = 0
        is_elastic = bool(os.environ.get("CHAINMAIL_JOB_FD")) and torch.ops.chainmail.is_elastic()
        if is_elastic:
            for sampler in self._samplers:
                sampler.check_ranks(int(os.environ["CHAINMAIL_ELASTIC"].split(":")[1]))
        self._member = torch.classes.chainmail.ElasticMember() if is_elastic else None
        self._group = DefaultGroup(self._member, pg_options, timeout)
        for optimizer in self._state.optimizers:
            optimizer.register_step_pre_hook(self._before_optimizer)
            optimizer.register_step_post_hook(self._after_optimizer)

    @property
    def is_elastic(self):
        """Whether ranks may come and go: whether launcher --elastic has started this process."""
        return self._member is not None

    @property
    def world(self):
        generation = self._member.generation() if self._member is not None else 0
        return World(generation, dist.get_rank(), dist.get_world_size(), self._next)

    def on_world(self, callback):
        """Calls callback(World) before the first step and after each change, on all ranks: for groups
        of torch.distributed, which end with their world."""
        self._callbacks.append(callback)

    def ddp(self, module, **options):
        """DistributedDataParallel(module, **options), which moves from world to world."""
        if not any(module is own for part in self._state.modules for own in part.modules()):
            raise ValueError("job.ddp() of a module that is no part of the job's state: name it in "
                             "Job(net=net, ...), so that ranks that join are given its parameters")
        return self._group.wrap(module, options)

    def state_dict(self):
        return {"next_step": self._next}

    def load_state_dict(self, state):
        self._next = state["next_step"]

    def steps(self, until):
        """Yields the steps to be computed, each to be entered by `with step:`, until the one with the
        number `until` is committed, or until the function `until` returns true, which it has to do on
        all ranks after the same step.

        In an elastic job a rank that is drained ends here with SystemExit(0).
        """
        if self._is_running:
            raise RuntimeError("steps() of this job is under way already")
        is_done = until if callable(until) else lambda: self._next > until
        self._is_running = True
        try:
            yield from self._fixed_steps(is_done) if self._member is None else self._elastic_steps(is_done)
        except GeneratorExit:
            if self._has_failed: raise
            _log.warning("the loop over steps() is left after step %d, before its end. If it is left by break or "
                         "return: until= ends it on all ranks together", self._next - 1)
            raise
        self._is_running = False

    def _fixed_steps(self, is_done):
        self._tell_world()
        while not is_done():
            yield from self._one_step()
        self._end_together()

    def _elastic_steps(self, is_done):
        self._first = self._next
        self._member.announce(self._state.describe(), self._first - 1)
        while self._wait():
            if is_done():  # nothing is left to do
                if self._end_together():
                    self._member.commit(False)
                    self._member.returned(True)
                continue
            yield from self._one_step()
            is_last = is_done()
            if is_last:
                self._end_together()
            self._member.returned(is_last)
        if not self._member.is_finished():
            _log.info("this rank is not needed any more")
            raise SystemExit(0)

    def _end_together(self):
        """A rank that ended alone would be waited for in the next step of the others. False where the
        world is over before all were there."""
        if dist.get_world_size() == 1:
            return True
        try:
            dist.barrier()
            return True
        except RuntimeError as error:
            if not self._is_world_over():
                raise RuntimeError(f"the loop over steps() has ended here after step {self._next - 1}, and not on "
                                   f"all ranks: {error}") from error
            _log.info("the end of the loop is interrupted: %s", error)
            return False

    def _one_step(self):
        step = Step(self, self._next)
        yield step
        if not step._is_over:
            raise RuntimeError(f"step {step.number} was left by an error, or not computed: the loop over "
                               "steps() needs 'with step:'")

    def _wait(self):
        """Whether there is a step to be computed, rather than this member to end."""
        while True:
            what = self._member.wait(_PATIENCE_MS)
            if what in (_STEP, _END):
                return what == _STEP
            if what == _WORLD:
                try:
                    self._enter_world()
                except RuntimeError as error:
                    if isinstance(error, StateError) or not self._is_world_over():
                        raise
                    _log.info("a world cannot begin: %s", error)

    def _enter_world(self):
        self._member.enter()
        self._group.enter_world()
        if self._member.begins_anew():
            self._next = self._first  # also where a checkpoint was being read when somebody was lost
        if self._member.has_transfer():
            is_donor = self._member.is_donor()
            own = self._state.save() if is_donor else torch.empty(0, dtype=torch.uint8)
            saved = self._member.transfer(own)
            if not is_donor:
                self._state.load(saved)
        self._steps_in_world = 0
        before = self._next
        try:
            self._tell_world()
        finally:
            if self._next != before:
                self._member.on_loading()
        self._member.begun(self._next - 1)

    def _tell_world(self):
        world = self.world
        for sampler in self._samplers:
            sampler.enter_world(world.rank, world.size)
        for callback in self._callbacks:
            callback(world)

    def _is_world_over(self):
        return self._member is not None and self._member.is_world_over()

    def _begin_step(self, step):
        if self._step is not None or step.is_committed or step.number != self._next:
            raise RuntimeError(f"step {step.number} is entered while step {self._next} is to be computed")
        self._step = step
        looks = self._steps_in_world < _STEPS_TO_LOOK or step.number % _STEPS_BETWEEN_LOOKS == 0
        self._digests = self._state.digests() if self._member is not None and looks else {}
        if self._member is not None:
            self._copies = self._state.take_copy(of_all=not self._state.optimizers)
        for part in self._state.modules + self._state.optimizers:
            part.zero_grad()  # also of a step that was interrupted
        for sampler in self._samplers:
            sampler.begin_step()

    def _end_step(self, step, error):
        self._step = None
        for sampler in self._samplers:
            sampler.end_step()
        if error is not None:
            _log.info("step %d is interrupted%s: %s", step.number,
                      " after its commit" if step.is_committed else "", error)
            if not step.is_committed:
                self._state.put_back(self._copies)
        self._copies = None

    def _allow_without_optimizer(self, step):
        # A scaler of losses leaves the optimizer out where a gradient is not finite.
        if self._state.optimizers and not self._has_scaler:
            raise RuntimeError(f"step {step.number} has ended without optimizer.step(), so that its samples "
                               "would count, and nothing be learned from them")

    def _before_optimizer(self, _, arguments, named):
        if self._step is None:
            raise RuntimeError("optimizer.step() outside of a step of the job: it would be the program's "
                               "alone, which ranks that join are not told of")
        if self._step.is_committed:
            raise RuntimeError(f"step {self._step.number} is committed already: one optimizer.step() in each")
        if any(callable(one) for one in (*arguments[1:], *named.values())):
            raise ValueError("optimizer.step(closure) in a step of the job: what it computes would come after "
                             "the commit")
        self._commit(self._step)
        self._step._is_half_done = True

    def _after_optimizer(self, *_):
        if self._step is not None:
            self._step._is_half_done = False

    def _commit(self, step):
        """All that may fail because of others, and then what counts."""
        buffers = self._state.buffers()
        if buffers and dist.get_world_size() > 1:
            # Those of rank 0, as DistributedDataParallel would before the next forward.
            dist._broadcast_coalesced(dist.group.WORLD, buffers, 1 << 28, 0)
        if self._member is not None:
            place = [step.number] + [number for sampler in self._samplers
                                     for number in (sampler.epoch, sampler.position)]
            own = [int(self._member.wants_change()), *place, *self._digests.values()]
            said = self._member.gather(own)
            self._compare(said, place)
            self._member.commit(any(words[0] for words in said))
        for sampler in self._samplers:
            sampler.commit_step()
        self._next += 1
        self._steps_in_world += 1
        step.is_committed = True

    def _compare(self, said, place):
        first, names = said[0][1:], list(self._digests)
        for rank, words in enumerate(said):
            other = words[1:]
            if other[:len(place)] != first[:len(place)] or len(other) != len(first):
                raise StateError(
                    f"ranks are not at the same step of the same data: member {self._member.number_of(0)} is "
                    f"at {first[:len(place)]}, member {self._member.number_of(rank)} at {other[:len(place)]} "
                    "(step, then epoch and position of each sampler)")
            for name, one, two in zip(names, other[len(place):], first[len(place):]):
                if one != two:
                    raise StateError(
                        f"the state of an elastic job differs: '{name}' is not the same on member "
                        f"{self._member.number_of(0)} and on member {self._member.number_of(rank)} before step "
                        f"{place[0]}. Ranks that join are given what Job(...) was told of: is something "
                        "missing there, or does the program change something outside of the steps?")

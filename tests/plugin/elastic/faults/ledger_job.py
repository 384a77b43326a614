# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Elastic jobs of elastic_ledger, whose ranks die where they are told to."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../../launcher/faults"))
sys.path.insert(0, HERE)

from elastic_job import SHELL, HostsJob  # noqa: E402
from ledger import Ledger  # noqa: E402
from outside import patient  # noqa: E402

# Where a rank dies in a step of its own, where it does when the world changes, and where only one
# that joins can.
IN_STEP = ["forward", "backward", "first_byte", "between_buckets", "complete", "committed", "returned"]
IN_DEATH = ["state", "stated", "group", "world"]
IN_JOIN = ["held", "fetch_begin", "fetch_middle"]
# Who dies there gives its state to others. If the death before it has interrupted the commit of a
# step, the last member may be among them, with half of an old state: nobody has the job's state any
# more (docs/decisions/0018). So that death comes in the computation, when all have committed.
OF_DONOR = ["fetch_begin", "fetch_middle"]
OF_NEWCOMER = ["group", "fetch_middle", "fetch_end", "fetched", "world"]


class LedgerJob(HostsJob):
    """Ends in step `steps`, or where finish() says."""

    def __init__(self, launcher, program, lines, *options, steps=10**6, steps_per_epoch=100,
                 pause_ms=10, save_every=0, optimizer="adam", sizes="1:5", cooldown="1:1",
                 gates=(), shards=8, window=0.1, mib=4, shell=SHELL):
        self.steps = steps
        self.steps_per_epoch = steps_per_epoch
        self.save_every, self.optimizer, self.mib, self.shards = save_every, optimizer, mib, shards
        self.launcher, self.program = launcher, program
        self.scratch = tempfile.TemporaryDirectory(prefix="chainmail-scratch.")

        def command(folder):
            self.data = os.path.join(folder, "data")
            os.mkdir(self.data)
            for host in gates: pathlib.Path(folder, f"prepare_data_success_{host}").touch()
            return [program, self.data, steps, steps_per_epoch, pause_ms, save_every, optimizer, mib]

        super().__init__(launcher, lines, ["--shards", shards, "--cooldown", cooldown, *options], command,
                         sizes, window=window, shell=shell, environment={"TMPDIR": self.scratch.name})
        self.ledger = Ledger(os.path.join(self.data, "ledger"))

    def __exit__(self, *error):
        super().__exit__(*error)
        self.scratch.cleanup()

    def fail(self, text):
        raise AssertionError(f"{text}: {self.text('err')[-4000:]}")

    def wait_until(self, is_true, what, seconds=30):
        limit = time.monotonic() + patient(seconds)
        while not is_true():
            if self.process.poll() is not None:
                self.fail(f"ended with {self.process.returncode} before {what}")
            if time.monotonic() > limit:
                self.fail(f"not {what} after {seconds} s, in step {self.ledger.newest}")
            time.sleep(0.005)
            self.ledger.read()

    def world(self):
        """The newest that all have come to, and its generation."""
        generation = max(self.ledger.read().complete_worlds(), default=0)
        return generation, self.ledger.members(generation)

    def wait_for_world(self, size=None, after=0, seconds=30, without=()):
        """One of `size` members after generation `after`, in which a step is committed."""

        def is_there():
            generation, members = self.world()
            if generation <= after or size not in (None, len(members)): return False
            if any(world.member in without for world in members): return False
            return any(key[1] == generation for key in list(self.ledger.commits)[-20:])

        self.wait_until(is_there, f"a world of {size or 'any'} after {after}", seconds)
        return self.world()

    def wait_for_step(self, step, seconds=60):
        self.wait_until(lambda: self.ledger.newest >= step, f"step {step}", seconds)

    def order(self, member, point):
        path = os.path.join(self.data, f"fault.{member}")
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(point + "\n")
        os.rename(path + ".new", path)

    def wait_at(self, member, point):
        """The member waits there until go_on()."""
        self.order(member, "wait " + point)

    def is_waiting(self, member, point):
        return (member, point) in self.ledger.waits

    def go_on(self, member):
        pathlib.Path(self.data, f"go.{member}").touch()

    def has_died(self, member, point):
        return any(kill.member == member and kill.point == point for kill in self.ledger.kills)

    def die_in_step(self, point, rank):
        """The member of `rank` dies there, and the others go on."""
        generation, members = self.world()
        victim = members[rank % len(members)].member
        self.order(victim, point)
        self.wait_until(lambda: self.has_died(victim, point), f"member {victim} dead in {point}")
        return self.wait_for_world(after=generation, without=(victim,))

    def kill(self, member):
        """From outside, wherever it is."""
        pids = [world.pid for world in self.world()[1] if world.member == member]
        if pids: os.kill(pids[0], signal.SIGKILL)

    def die_in_change(self, point, rank):
        """The member of `rank` dies there, in a change that the death of another one brings about, or
        the return of that one's host."""
        generation, members = self.world()
        at = rank % len(members)
        victim, other = members[at].member, members[at - 1].member
        before = self.ledger.ordered[victim]
        self.order(victim, point)
        self.wait_until(lambda: self.ledger.ordered[victim] > before, "an order read")
        if point in OF_DONOR:
            self.order(other, "forward")
            self.wait_until(lambda: self.has_died(other, "forward"), f"member {other} dead in forward")
        else:
            self.kill(other)
        self.wait_until(lambda: self.has_died(victim, point), f"member {victim} dead in {point}")
        return self.wait_for_world(after=generation, without=(victim, other))

    def die_while_joining(self, point):
        """The one that joins next dies there; its place is opened by the death of another one."""
        generation, members = self.world()
        newest = max(world.member for worlds in self.ledger.worlds.values() for world in worlds)
        for member in range(newest + 1, newest + 4): self.order(member, point)
        self.kill(members[-1].member)
        self.wait_until(lambda: any(kill.member > newest for kill in self.ledger.kills),
                        f"a newcomer dead in {point}")
        for member in range(newest + 1, newest + 4):
            pathlib.Path(self.data, f"fault.{member}").unlink(missing_ok=True)
        return self.wait_for_world(after=generation, without=(members[-1].member,))

    def hold(self, count, edit):
        """As many newcomers as `edit` brings are ready at the same moment."""
        path = pathlib.Path(self.data, "hold")
        path.touch()
        edit()
        self.wait_until(lambda: len(self.ledger.holding) == count, f"{count} newcomers", 120)
        path.unlink()

    def finish(self, margin=60):
        """Ends the job in a step that no rank is near."""
        self.steps = self.ledger.read().newest + margin
        path = os.path.join(self.data, "last")
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(f"{self.steps}\n")
        os.rename(path + ".new", path)

    def rows(self):
        with open(os.path.join(self.data, "log"), encoding="utf-8") as file:
            return json.load(file)

    def ends_well(self, seconds=120):
        """With the bits and the rows of a calm job of as many steps, each sample once, logs without
        gaps and nothing left. Returns the most steps that a world did again."""
        self.ends_with(0, seconds)
        redone = self.ledger.read().check(self.steps, self.steps_per_epoch)
        assert redone <= 1, f"{redone} steps done again in one world"
        bits = re.findall(r"^bits \w+$", self.text("out"), re.M)
        with calm(self) as (calm_bits, calm_rows, evaluated):
            assert bits == [calm_bits], f"{bits}, not {calm_bits}"
            rows = self.rows() if self.steps >= self.steps_per_epoch else []
            assert rows == calm_rows, f"{rows}, not {calm_rows}"
            for step, values in self.ledger.evaluated.items():
                assert values == evaluated[step], f"evaluation of step {step}: {values}"
        self.has_gapless_log()
        self.leaves_nothing()
        left = os.listdir(self.scratch.name)
        assert not left, f"left in TMPDIR: {left}"
        return redone


class calm:  # noqa: N801
    """A job of fixed size with as many steps as `job` had: its bits, rows and evaluations."""

    def __init__(self, job):
        self.job = job
        self.folder = tempfile.TemporaryDirectory(prefix="chainmail-calm.")

    def __enter__(self):
        job, folder = self.job, self.folder.name
        out = subprocess.run(
            [job.launcher, "-H", "localhost:2", "-n", "2", "--shards", str(job.shards), job.program, folder,
             str(job.steps), str(job.steps_per_epoch), "0", str(job.save_every), job.optimizer, str(job.mib)],
            stdout=subprocess.PIPE, text=True, check=True).stdout
        log = pathlib.Path(folder, "log")
        rows = json.loads(log.read_text()) if log.exists() else []
        evaluated = Ledger(os.path.join(folder, "ledger")).read().evaluated
        return re.search(r"^bits \w+$", out, re.M).group(), rows, evaluated

    def __exit__(self, *_):
        self.folder.cleanup()

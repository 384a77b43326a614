#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Elastic jobs of chainmail.elastic: a DistributedDataParallel loop goes on while ranks join, are drained and
killed. Those that stay keep their processes, all end with the same parameters, and every sample is in one
committed step of its epoch.

usage: elastic_test.py LAUNCHER PYTHON [CASE...]
       elastic_test.py LAUNCHER PYTHON --long KILLS JOINS [SEED]
"""

import collections
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../elastic"))

from elastic_changes_test import SHELL, Arguments, ElasticJob, Job, main, patient  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLES = 230
# More than there will be: a case says when it is over.
LONG = 1000000
# Steps that no rank can be ahead of the others.
AHEAD = 20


class PythonJob(ElasticJob):
    """Two ranks at first, on hosts n1 and n2."""

    def __init__(self, launcher, python, mode=(), *more):
        self.files = tempfile.TemporaryDirectory(prefix="chainmail-elastic.")
        self.hosts = os.path.join(self.files.name, "host_worker")
        self.lines = ["n1", "n2"]
        self.write()
        self.generation = 0
        Job.__init__(
            self, launcher, "-H", self.hosts, "--rsh", SHELL, "-n", 2, "--elastic", "1:4",
            "--elastic-window", 0.1, "--cooldown", "0.2:1", *more, python, "-B",
            os.path.join(HERE, "elastic_rank.py"), self.files.name, LONG, 20, *mode,
            environment={"OMP_NUM_THREADS": "1"})
        self.wait_for_world(2, seconds=60)

    def records(self):
        """Of each member: the lines of its file, as words, but for one that is being written."""
        found = {}
        for name in os.listdir(self.files.name):
            if name.startswith("member"):
                with open(os.path.join(self.files.name, name), encoding="utf-8") as file:
                    found[int(name[6:])] = [line.split() for line in file if line.endswith("\n")]
        return found

    def redone(self):
        """(member, step) of all that was begun more than once."""
        begun = collections.Counter(
            (member, words[2]) for member, lines in self.records().items()
            for words in lines if words[0] == "try")
        return {one for one, times in begun.items() if times > 1}

    def check_ledger(self, steps):
        """Each step was committed, and each sample of an epoch is in one of its steps."""
        records = [record for of_member in self.records().values() for record in of_member]
        committed = {}
        for words in records:
            if words[0] == "commit":
                committed[int(words[2])] = max(int(words[1]), committed.get(int(words[2]), 0))
        assert sorted(committed) == list(range(1, steps + 1)), f"steps {sorted(committed)}"
        epochs = collections.defaultdict(list)
        tries = 0
        for words in records:
            if words[0] == "try":
                tries += 1
                if committed[int(words[2])] == int(words[1]):
                    epochs[int(words[3])] += map(int, words[4].split(","))
        last = max(epochs)
        for epoch, samples in epochs.items():
            assert len(set(samples)) == len(samples), f"epoch {epoch}: a sample was taken twice"
            assert len(samples) == SAMPLES or epoch == last, f"epoch {epoch}: {len(samples)} samples"
        return len(epochs)

    def check_usage(self):
        """What a member holds does not grow from world to world, where they are equally large and its rank is even in
        both, or odd."""
        worst = collections.Counter()
        for lines in self.records().values():
            least = {}  # by size and kind of rank, then world: the least that was seen of each
            for words in lines:
                if words[0] != "usage":
                    continue
                counts = {name: int(count) for name, count in (word.split("=") for word in words[3:])}
                seen = least.setdefault(words[2], {}).setdefault(int(words[1]), dict(counts))
                seen.update({name: min(count, seen[name]) for name, count in counts.items()})
            for worlds in least.values():
                first, last = worlds[min(worlds)], worlds[max(worlds)]
                for name, count in last.items():
                    worst[name] = max(worst[name], count - first[name])
        # Threads begin with the first work and end without; who gives others the state has more sockets.
        bounds = {"threads": 6, "files": 6, "mappings": 6}
        too_many = {name: more for name, more in worst.items() if more > bounds.get(name, 0)}
        assert not too_many, f"grew by {too_many}"
        return dict(worst)

    def ends_well(self):
        steps = AHEAD + max(int(words[2]) for lines in self.records().values() for words in lines
                            if words[0] == "commit")
        name = os.path.join(self.files.name, "last")
        with open(name + ".new", "w", encoding="utf-8") as file:
            file.write(str(steps))
        os.rename(name + ".new", name)
        self.ends_with(0, 120)
        same = re.findall(r"^same \w+ on (\d+) ranks after (\d+) steps$", self.text("out"), re.M)
        assert len(same) == 1 and int(same[0][1]) == steps, self.all()
        epochs = self.check_ledger(steps)
        usage = self.check_usage()
        self.leaves_nothing()
        return f"{steps} steps, {epochs} epochs, growth {usage}"


def kill_one(job, chance, spared=0):
    """Any of the members but the oldest `spared`; the others go on, in the same processes."""
    members = job.members()
    victim = chance.choice(members[spared:])
    os.kill(victim, signal.SIGKILL)
    now = job.wait_for_world(seconds=60)
    staying = [pid for pid in members if pid != victim]
    assert now[:len(staying)] == staying, f"{members} without {victim}: {now}: {job.all()}"


def ranks_come_and_go(launcher, python):
    chance = random.Random(os.urandom(4))
    with PythonJob(launcher, python) as job:
        first = job.members()
        job.join("n3")
        assert job.wait_for_world(3, seconds=60)[:2] == first, job.all()
        for _ in range(2):
            kill_one(job, chance)
            staying = job.members()
            # The host is tried again.
            if len(staying) < 3:
                now = job.wait_for_world(3, seconds=60)
                assert now[:len(staying)] == staying, job.all()
        before = job.members()
        redone = job.redone()
        job.drain("n3")
        now = job.wait_for_world(2, seconds=60)
        assert set(now) < set(before), job.all()
        more = job.redone() - redone
        assert not more, f"(member, step) {more} was done again for a drain: {job.all()}"
        job.ends_well()
        assert " REMOVED n3 " in job.log(), job.log()


def what_was_forgotten_is_named(launcher, python):
    with PythonJob(launcher, python, ["forget"]) as job:
        job.join("n3")
        job.wait_for("the state of an elastic job differs: 'net/", where="err", seconds=60)
        worlds = re.findall(r"^world (\d+) rank 0 of 3", job.text("out"), re.M)
        assert worlds, job.all()
        # Within three steps of the world with the rank that lacks something.
        steps = job.records()[0]
        in_world = [words for words in steps if words[0] == "commit" and words[1] == worlds[0]]
        assert len(in_world) < 3, f"{in_world}: {job.all()}"
        job.says("before step ")


def run_fixed(launcher, python, mode, *more):
    """Five steps of two ranks that stay."""
    with tempfile.TemporaryDirectory(prefix="chainmail-elastic.") as folder:
        return subprocess.run(
            [launcher, "-n", "2", *(more or ("--shards", "2")), python, "-B", os.path.join(HERE, "elastic_rank.py"),
             folder, "5", "0", mode],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            timeout=patient(120))


def steps_that_are_too_small_for_all_are_refused(launcher, python):
    """Before a rank more makes them so."""
    refused = run_fixed(launcher, python, "small_steps", "--elastic", "1:4")
    assert refused.returncode == 1, refused.stdout
    assert "steps of 3 samples for up to 4 ranks, which launcher --elastic allows" in refused.stdout, refused.stdout
    assert "step 1" not in refused.stdout, refused.stdout


def a_step_without_its_optimizer_is_refused(launcher, python):
    refused = run_fixed(launcher, python, "no_step")
    assert refused.returncode == 1, refused.stdout
    assert "step 2 has ended without optimizer.step()" in refused.stdout, refused.stdout
    # A scaler leaves it out where a gradient is not finite.
    scaled = run_fixed(launcher, python, "scaled")
    assert scaled.returncode == 0, scaled.stdout
    assert re.search(r"^same \w+ on 2 ranks after 5 steps$", scaled.stdout, re.M), scaled.stdout


def a_rank_that_ends_before_the_others_ends_all(launcher, python):
    early = run_fixed(launcher, python, "early")
    assert early.returncode == 1, early.stdout
    assert "ended here after step 4, and not on all ranks" in early.stdout, early.stdout
    with PythonJob(launcher, python, ["early"]) as job:
        job.wait_for("ended here after step 4, and not on all ranks", where="err", seconds=60)


def a_loop_that_is_left_by_break_says_so(launcher, python):
    left = run_fixed(launcher, python, "break")
    assert left.returncode == 1, left.stdout
    # The other one fails in the next step, which is no break. The launcher repeats what the first to fail wrote.
    said = re.findall(r"^member (\d): the loop over steps\(\) is left after step 4, before its end", left.stdout, re.M)
    assert said == ["1"], left.stdout
    with PythonJob(launcher, python, ["break"]) as job:
        job.wait_for("member 1: the loop over steps() is left after step 4, before its end", where="err", seconds=60)


def a_rank_of_another_shape_is_refused(launcher, python):
    with PythonJob(launcher, python, ["other_shape"]) as job:
        first = job.members()
        job.join("n3")
        job.wait_for("Refused host:n3", where="err", seconds=60)
        job.says("'net/0.weight' is torch.float32 [20, 6]")
        job.wait_for_log(" REFUSED n3 ")
        assert job.members() == first, job.all()
        job.ends_well()


def groups_of_the_program_are_made_anew(launcher, python):
    with PythonJob(launcher, python, ["groups"]) as job:
        job.join("n3")
        job.wait_for_world(3, seconds=60)
        kill_one(job, random.Random(os.urandom(4)))
        job.ends_well()


def wait_for_checkpoint(job):
    """One that no member has begun with."""
    newest = max(int(words[2]) for lines in job.records().values() for words in lines if words[0] == "commit")
    job.wait_for(f"\nstep {newest + 7 - newest % 5}\n", seconds=60)


def all_ranks_may_die_again_and_again(launcher, python):
    """Three times without a newer checkpoint would end the job."""
    with PythonJob(launcher, python, ["save"]) as job:
        for _ in range(4):
            wait_for_checkpoint(job)
            os.kill(job.members()[0], signal.SIGKILL)
            for pid in job.wait_for_world(1, seconds=60):
                os.kill(pid, signal.SIGKILL)
            job.wait_for_world(2, seconds=60)
        job.ends_well()


def a_checkpoint_whose_reading_was_interrupted_is_read_again(launcher, python):
    with PythonJob(launcher, python, ["save"], "--elastic", "2:4") as job:
        wait_for_checkpoint(job)
        pathlib.Path(job.files.name, "die_reading").touch()
        for pid in job.members():
            os.kill(pid, signal.SIGKILL)
        job.wait_for_world(2, seconds=60)
        reads = [(int(words[1]), member) for member, lines in job.records().items() for words in lines
                 if words[0] == "read"]
        # Both in the world that one of them has not lived through, the other one again.
        first = min(generation for generation, _ in reads)
        assert {member for generation, member in reads if generation > first} & {
            member for generation, member in reads if generation == first}, reads
        job.ends_well()


def the_same_program_runs_alone(_, python):
    with tempfile.TemporaryDirectory(prefix="chainmail-elastic.") as folder:
        alone = subprocess.run(
            [python, "-B", os.path.join(HERE, "elastic_rank.py"), folder, "30", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        assert alone.returncode == 0, alone.stdout
        assert re.search(r"^world 0 rank 0 of 1 pid \d+$", alone.stdout, re.M), alone.stdout
        assert re.search(r"^same \w+ on 1 ranks after 30 steps$", alone.stdout, re.M), alone.stdout


CASES = [ranks_come_and_go, what_was_forgotten_is_named,
         steps_that_are_too_small_for_all_are_refused, a_step_without_its_optimizer_is_refused,
         a_rank_that_ends_before_the_others_ends_all, a_loop_that_is_left_by_break_says_so,
         a_rank_of_another_shape_is_refused, groups_of_the_program_are_made_anew,
         all_ranks_may_die_again_and_again, a_checkpoint_whose_reading_was_interrupted_is_read_again,
         the_same_program_runs_alone]


def long_form(launcher, python, kills, joins, seed):
    """Kills and joins in random order, of which each waits for the world that it makes. The oldest member is
    spared but for the last kills: it sees most of the worlds."""
    chance = random.Random(seed)
    todo = ["kill"] * kills + ["join"] * joins
    chance.shuffle(todo)
    drains = deaths = taken_in = 0
    pauses = []
    with PythonJob(launcher, python, [], "--spares", 2) as job:
        for what in todo:
            time.sleep(chance.random() * 0.5)
            if what == "join":
                if len(job.lines) == 4:
                    while len(job.members()) < 4:  # a host that has no member is drained without a world
                        job.wait_for_world(seconds=60)
                    job.drain(job.lines[-1])
                    job.wait_for_world(seconds=60)
                    drains += 1
                job.join(f"n{len(job.lines) + 1}")
                job.wait_for_world(seconds=60)
                taken_in += 1
            else:
                while len(job.members()) < 2:
                    job.wait_for_world(seconds=60)
                began = time.monotonic()
                kill_one(job, chance, spared=int(deaths < kills - 3))
                pauses.append(time.monotonic() - began)
                deaths += 1
        result = job.ends_well()
    pauses.sort()
    print(f"seed {seed}: {deaths} kills, {taken_in} joins, {drains} drains, {job.generation} worlds: {result}; from a "
          f"kill to the step after next: median {pauses[len(pauses) // 2]:.2f} s, at most {pauses[-1]:.2f} s")


if __name__ == "__main__":
    if sys.argv[3:4] == ["--long"]:
        numbers = [int(word) for word in sys.argv[4:]]
        long_form(sys.argv[1], sys.argv[2], *numbers[:2], numbers[2] if len(numbers) > 2 else 1)
        sys.exit(0)
    sys.exit(main(CASES, Arguments(2)))

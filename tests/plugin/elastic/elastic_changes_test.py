#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Elastic jobs that train: whatever ranks join, are drained, stop or are killed, the result has the bits
of a calm job, and who stays keeps running.

usage: elastic_changes_test.py LAUNCHER ELASTIC_BITS [CASE...]
       elastic_changes_test.py LAUNCHER ELASTIC_BITS --histories N [SEED]   (random ones, for each wire)
"""

import datetime
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../launcher/faults"))

from outside import Arguments, Job, fields_of, main, patient  # noqa: E402

SHARDS = 8
# As many steps as the changes of a case take: ElasticJob.ends() says which one is the last.
OPEN = None
# All of them are this machine.
SHELL = "env IGNORED=%h"
WORLD = re.compile(r"^world (\d+) rank (\d+) of (\d+) pid (\d+)$", re.M)


def calm_output(launcher, program, wire, steps, *more):
    return subprocess.run(
        [launcher, "-H", "localhost:2", "-n", "2", "--shards", str(SHARDS), program, "auto", wire,
         str(SHARDS), str(steps), *more], stdout=subprocess.PIPE, text=True, check=True).stdout


def calm_bits(launcher, program, wire, steps):
    return re.search(r"^bits .*$", calm_output(launcher, program, wire, steps), re.M).group()


def hear_signals():
    """Whoever started this test may have it ignore them, and so the launcher."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class ElasticJob(Job):
    """Two ranks at first, on hosts n1 and n2, or more; every step takes a little longer than it would."""

    def __init__(self, launcher, program, wire="float32", steps=100, pause_ms=25, mode=(),
                 shards=SHARDS, waits=True, hosts=None, options=(), ranks=2, sizes="1:4"):
        self.files = tempfile.TemporaryDirectory(prefix="chainmail-elastic.")
        self.hosts = hosts or os.path.join(self.files.name, "host_worker")
        self.last_step = os.path.join(self.files.name, "last_step")
        self.lines = [f"n{rank + 1}" for rank in range(ranks)]
        self.write()
        self.generation = 0
        super().__init__(
            launcher, "-H", self.hosts, "--rsh", SHELL, "-n", ranks, "--elastic", sizes, "--shards",
            shards, "--elastic-window", 0.1, "--cooldown", "1:5", *options, program, "auto", wire, SHARDS,
            self.last_step if steps is OPEN else steps, pause_ms, *mode, preexec_fn=hear_signals)
        if waits:
            self.wait_for_world(ranks)

    def __exit__(self, *error):
        super().__exit__(*error)
        self.files.cleanup()

    def write(self):
        with open(self.hosts + ".new", "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in self.lines))
        os.rename(self.hosts + ".new", self.hosts)

    def worlds(self):
        """The members of each world that all of its ranks have entered: process ids by rank."""
        worlds = {}
        for generation, rank, size, pid in WORLD.findall(self.text("out")):
            worlds.setdefault((int(generation), int(size)), {})[int(rank)] = int(pid)
        return {generation: [ranks[rank] for rank in sorted(ranks)]
                for (generation, size), ranks in sorted(worlds.items()) if len(ranks) == size}

    def wait_for_world(self, size=None, seconds=30):
        """A newer one, which has done a step; its process ids."""
        limit = time.monotonic() + patient(seconds)
        while time.monotonic() < limit:
            worlds = self.worlds()
            newest = max(worlds, default=0)
            if newest > self.generation and size in (None, len(worlds[newest])):
                self.generation = newest
                steps = self.text("out").count("\nstep ")
                self.wait_for("\nstep ", steps + 1)
                return worlds[newest]
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        raise AssertionError(f"no world of {size} after {self.generation}: {self.all()}")

    def join(self, host):
        self.lines.append(host)
        self.write()

    def drain(self, host):
        self.lines.remove(host)
        self.write()

    def log(self):
        with open(self.hosts + "_log", encoding="utf-8") as file:
            return file.read()

    def wait_for_log(self, text, seconds=10):
        """A thread of the launcher's writes it."""
        limit = time.monotonic() + patient(seconds)
        while text not in self.log():
            assert time.monotonic() < limit, f"no '{text}' in {self.log()}: {self.all()}"
            time.sleep(0.02)

    def members(self):
        return self.worlds()[max(self.worlds())]

    def ends(self, launcher, program):
        """Of an OPEN job: after some steps more, with the bits of a calm one. Returns how many."""
        steps = self.tell_last_step()
        self.ends_with_bits(calm_bits(launcher, program, "float32", steps))
        return steps

    def tell_last_step(self):
        steps = max(int(step) for step in re.findall(r"^step (\d+)$", self.text("out"), re.M)) + 60
        with open(self.last_step + ".new", "w", encoding="utf-8") as file:
            file.write(str(steps))
        os.rename(self.last_step + ".new", self.last_step)
        return steps

    def ends_with_bits(self, expected):
        self.ends_with(0, 60)
        got = re.findall(r"^bits (\w+) losses (.*)$", self.text("out"), re.M)
        assert len(got) == 1, self.all()
        digest, losses = re.fullmatch(r"bits (\w+) losses (.*)", expected).groups()
        # Rank 0 tells of the epochs since it joined.
        same = got[0][0] == digest and got[0][1] and losses.endswith(got[0][1])
        assert same, f"{got}, not {expected}: {self.all()}"
        self.leaves_nothing()


def ranks_come_and_go(launcher, program):
    with ElasticJob(launcher, program, steps=OPEN) as job:
        first = job.members()
        job.join("n3")
        assert job.wait_for_world(3)[:2] == first, job.all()
        job.drain("n3")
        assert job.wait_for_world(2) == first, job.all()
        job.ends(launcher, program)


def check_scales(steps, ramp, batch=5, samples=75):
    """`steps` of a job with a batch for each rank: (number, ranks, scale, samples) of each; the scale is as in
    docs/elastic.md, and every epoch has all samples."""
    assert [number for number, *_ in steps] == list(range(1, len(steps) + 1)), steps
    first = before = steps[0][1]
    scale = start = 1.0
    done = position = 0
    for _, ranks, told, count in steps:
        if ranks != before: before, start, done = ranks, scale, 0
        done = min(done + 1, ramp)
        aim = ranks / first
        scale = aim if done >= ramp else start + (aim - start) * (done / ramp)
        assert told == scale, (told, scale, steps)
        assert count == min(batch * ranks, samples - position), steps
        position = (position + count) % samples


def a_batch_for_each_rank_grows_with_them(launcher, program):
    with ElasticJob(launcher, program, steps=OPEN, mode=("per_rank:10",)) as job:
        job.join("n3")
        job.wait_for_world(3)
        job.says("batches of 15 samples on 3 ranks, after 10 on 2; batch_scale() moves from 1 to 1.5 within 10 steps")
        job.join("n4")
        job.wait_for_world(4)
        # Who comes has the state of a ramp, and who is killed takes nothing of it along.
        os.kill(job.members()[1], signal.SIGKILL)
        job.wait_for_world(3)
        job.tell_last_step()
        job.ends_with(0, 60)
        found = re.findall(r"^scale (\d+) (\d+) (\S+) (\d+)$", job.text("out"), re.M)
        check_scales([(int(step), int(ranks), float(scale), int(count)) for step, ranks, scale, count in found], 10)
        # What a change has interrupted after its commit is done once more, and the step is the same.
        scales = {step: scale for step, _, scale, _ in found}
        for step, scale in re.findall(r"^again (\d+) \d+ (\S+) \d+$", job.text("out"), re.M):
            assert scales[step] == scale, job.all()


def a_slow_start_is_no_pause(launcher, program):
    # Twenty times as long as it would be waited for.
    with ElasticJob(launcher, program, steps=OPEN, mode=("slow_start",)) as job:
        first = job.members()
        job.join("n3")
        assert job.wait_for_world(3)[:2] == first, job.all()


def the_others_go_on_without_a_rank_that_is_killed(launcher, program):
    with ElasticJob(launcher, program, steps=OPEN) as job:
        job.join("n3")
        first = job.wait_for_world(3)
        os.kill(first[1], signal.SIGKILL)
        second = job.wait_for_world(2)
        assert second == [first[0], first[2]], job.all()
        # Rank 0 as well: the oldest that is left takes its place.
        os.kill(second[0], signal.SIGKILL)
        assert job.wait_for_world()[0] == first[2], job.all()
        job.ends(launcher, program)


def a_job_whose_ranks_all_die_begins_anew(launcher, program):
    with ElasticJob(launcher, program, steps=40) as job:
        for pid in job.members():
            os.kill(pid, signal.SIGKILL)
        job.wait_for_world()
        job.ends_with_bits(calm_bits(launcher, program, "float32", 40))


def a_rank_that_stands_still_is_given_up(launcher, program):
    with ElasticJob(launcher, program, steps=60) as job:
        first = job.members()
        os.kill(first[1], signal.SIGSTOP)
        assert job.wait_for_world(1) == first[:1], job.all()
        # It can never go on: it has been ended meanwhile.
        limit = time.monotonic() + patient(2)
        while fields_of(first[1])[:1] not in ([], ["Z"]):
            assert time.monotonic() < limit, job.all()
            time.sleep(0.02)
        job.ends_with_bits(calm_bits(launcher, program, "float32", 60))


def shards_move_away_from_a_slow_rank(launcher, program):
    with tempfile.TemporaryDirectory(prefix="chainmail-elastic.") as folder:
        # Of eight shards it has four at first, and needs 0.6 s longer for them.
        with ElasticJob(launcher, program, steps=OPEN, pause_ms=1, mode=("slow:1:150",),
                        options=("--output", folder)) as job:
            first = job.members()
            assert job.wait_for_world(2, seconds=60) == first, job.all()
            job.says("Moving shards: one takes ")
            steps = job.ends(launcher, program)
        with open(os.path.join(folder, "events.jsonl"), encoding="utf-8") as file:
            events = [line for line in map(json.loads, file) if "event" in line]
        began, moved, *_ = [line for line in events if line["event"] == "world_changed"]
        assert began["cut"] == [0, 4, 8] and moved["cut"] == [0, 7, 8], events
        assert moved["cause"] == "shards divided anew" and moved["redone"] == 0, moved
        before = seconds_between(began, moved) / moved["step"]
        after = seconds_between(moved, events[-1]) / (steps - moved["step"])
        print(f"shards have moved in step {moved['step']}; a step took {before:.3f} s, and then {after:.3f} s")
        assert after < before / 1.5, f"{before} s, then {after} s"


def seconds_between(event, later):
    moments = [datetime.datetime.fromisoformat(one["time"].rstrip("Z")) for one in (event, later)]
    return (moments[1] - moments[0]).total_seconds()


def an_evaluation_that_is_interrupted_is_repeated(launcher, program):
    with ElasticJob(launcher, program, steps=OPEN, pause_ms=60, mode=("evaluate",)) as job:
        for _ in range(2):
            # Most of the time goes into evaluations.
            os.kill(job.members()[-1], signal.SIGKILL)
            job.wait_for_world(1)
            job.wait_for_world(2)
        steps = job.tell_last_step()
        calm = dict(re.findall(r"^evaluated (\d+) (\S+)$",
                               calm_output(launcher, program, "float32", steps, "1", "evaluate"), re.M))
        job.ends_with(0, 60)
        evaluated = re.findall(r"^evaluated (\d+) (\S+)$", job.text("out"), re.M)
        wrong = [line for line in evaluated if calm[line[0]] != line[1]]
        assert not wrong and {step for step, _ in evaluated} == set(calm), f"{wrong}: {job.all()}"
        job.leaves_nothing()


def a_part_that_is_no_state_is_named(launcher, program):
    with ElasticJob(launcher, program, steps=OPEN, mode=("forget",)) as job:
        job.join("n3")
        job.ends_with(1, 60)
        job.says("the state of an elastic job differs: 'model/0.bias' is not the same on "
                 "member 0 and on member 2")
        job.leaves_nothing()


def not_taken_in(launcher, program, mode, *says):
    with ElasticJob(launcher, program, steps=OPEN, mode=(mode,)) as job:
        first = job.members()
        job.join("n3")
        job.wait_for("Refused host:n3", where="err")
        for text in says:
            job.says(text)
        job.wait_for_log(" REFUSED n3 ")
        assert job.members() == first, job.all()
        job.ends(launcher, program)


def a_rank_with_other_data_is_not_taken_in(launcher, program):
    not_taken_in(launcher, program, "other_data", "and one of the two is refused: here: 'samples' of ", "; in the job: 'samples' of ")


def a_rank_with_another_optimizer_is_not_taken_in(launcher, program):
    not_taken_in(launcher, program, "other_optimizer", "here: 'optimizer' is torch::optim::SGD with 1 groups",
                 "; in the job: 'optimizer' is torch::optim::Adam with 1 groups")


def a_rank_that_throws_is_told_by_its_exit_code(launcher, program):
    with ElasticJob(launcher, program, steps=60, mode=("throw",), waits=False) as job:
        job.wait_for(" exited with code 1", where="err")
        job.says("out of luck")
        job.ends_with_bits(calm_bits(launcher, program, "float32", 60))
        lost = re.findall(r" LOST n2 (?:\d+ ){4}(.*)", job.log())
        assert lost and lost[0] == "exited with code 1", job.log()


def a_program_that_always_fails_ends_the_job(launcher, program):
    with ElasticJob(launcher, program, steps=60, mode=("throw_all",), waits=False) as job:
        job.ends_with(1, 60)
        job.says("members died 3 times")
        job.leaves_nothing()


def a_program_that_goes_on_after_its_own_error_does(launcher, program):
    for mode in "retry", "retry_all", "retry_late":
        with ElasticJob(launcher, program, steps=20, mode=(mode,), waits=False) as job:
            job.ends_with_bits(calm_bits(launcher, program, "float32", 20))
            job.says_not("LOST")


def a_program_that_goes_on_where_it_has_not_entered_is_told(launcher, program):
    with ElasticJob(launcher, program, steps=OPEN, mode=("retry_world",)) as job:
        job.join("n3")
        job.wait_for("run() is called again after an exception of on_world()", where="err")
        job.wait_for_world()
        job.ends(launcher, program)


def a_sample_that_kills_its_rank_ends_the_job(launcher, program):
    # All four ranks from the first step on: the third death leaves one, which has the state.
    with ElasticJob(launcher, program, steps=60, pause_ms=0, mode=("killer:40",), waits=False, ranks=4,
                    options=("--cooldown", "100:100")) as job:
        job.ends_with(137, 60)
        deaths = re.findall(r"^dies of shard (\d+) in step (\d+)$", job.text("out"), re.M)
        assert len(deaths) == 3 and len(set(deaths)) == 1, job.all()
        shard, step = map(int, deaths[0])
        named = re.search(r"members died 3 times in the step after (\d+): .*; each that died had shards? "
                          r"(\d+)(?: to (\d+))?$", job.text("err"), re.M)
        assert named, job.all()
        before, first, last = (int(number or named.group(2)) for number in named.groups())
        # Of four ranks each has two of the eight.
        assert before == step - 1 and first <= shard <= last <= first + 1, job.all()
        job.leaves_nothing()


def communicators_that_each_world_makes_are_right(launcher, program):
    with ElasticJob(launcher, program, steps=OPEN, pause_ms=5, mode=("split",), ranks=3) as job:
        job.join("n4")
        job.wait_for_world(4)
        for victim in (1, 0):
            os.kill(job.members()[victim], signal.SIGKILL)
            job.wait_for_world(3)
            job.wait_for_world(4)
        job.drain("n4")
        job.wait_for_world(3)
        job.ends(launcher, program)


def a_communicator_of_another_world_says_so(launcher, program):
    with ElasticJob(launcher, program, steps=OPEN, mode=("split_once",), ranks=3) as job:
        os.kill(job.members()[2], signal.SIGKILL)
        job.wait_for("this communicator was made by split() in another world: the job goes on in world 2, "
                     "where on_world() has to make it anew", times=2, where="err")


def a_program_with_other_shards_is_told_what_to_give(launcher, program):
    with ElasticJob(launcher, program, shards=4, waits=False) as job:
        job.ends_with(1, 30)
        job.says("give launcher the option --shards 8")
        job.leaves_nothing()


def a_rank_that_leaves_before_its_first_step_is_not_waited_for(launcher, program):
    with ElasticJob(launcher, program, steps=20, mode=("leave",), waits=False) as job:
        job.ends_with_bits(calm_bits(launcher, program, "float32", 20))
        job.says("Refused host:n2: ended before it had joined: exited with code 0")


def a_program_with_nothing_left_to_do_ends_well(launcher, program):
    with ElasticJob(launcher, program, mode=("done",), waits=False) as job:
        job.ends_with(0, 30)
        job.leaves_nothing()


CASES = [ranks_come_and_go, a_batch_for_each_rank_grows_with_them, shards_move_away_from_a_slow_rank, an_evaluation_that_is_interrupted_is_repeated,
         a_slow_start_is_no_pause, a_part_that_is_no_state_is_named, a_rank_with_other_data_is_not_taken_in,
         a_rank_with_another_optimizer_is_not_taken_in,
         a_rank_that_throws_is_told_by_its_exit_code, a_program_that_always_fails_ends_the_job,
         a_program_that_goes_on_after_its_own_error_does,
         a_program_that_goes_on_where_it_has_not_entered_is_told,
         a_sample_that_kills_its_rank_ends_the_job, communicators_that_each_world_makes_are_right,
         a_communicator_of_another_world_says_so,
         a_program_with_other_shards_is_told_what_to_give,
         a_rank_that_leaves_before_its_first_step_is_not_waited_for,
         a_program_with_nothing_left_to_do_ends_well, the_others_go_on_without_a_rank_that_is_killed,
         a_job_whose_ranks_all_die_begins_anew, a_rank_that_stands_still_is_given_up]


def random_history(launcher, program, wire, seed, expected, pauses):
    """Six changes at random moments, of which each waits for the world that the one before has made."""
    chance = random.Random(seed)
    told = []
    with ElasticJob(launcher, program, wire, steps=250, pause_ms=15) as job:
        for _ in range(6):
            time.sleep(chance.random() * 0.4)
            may_join = len(job.lines) < 4
            what = chance.choice(["kill", "join" if may_join else "drain", "drain" if len(job.lines) > 2 else "join"])
            told.append(what)
            if what == "join":
                job.join(f"n{len(job.lines) + 1}")
            elif what == "drain":
                job.drain(job.lines[-1])
            elif len(job.members()) > 1:
                began = time.monotonic()
                os.kill(chance.choice(job.members()), signal.SIGKILL)
                job.wait_for_world()
                pauses.append(time.monotonic() - began)
                continue
            try:
                job.wait_for_world(seconds=4)
            except AssertionError:
                if job.process.poll() is not None:
                    break
        try:
            job.ends_with_bits(expected)
        except AssertionError:
            print(f"FAILED: {wire}, seed {seed}: {told}")
            raise


def histories(launcher, program, count, seed):
    pauses = []
    for wire in ("float32", "float16", "bfloat16"):
        expected = calm_bits(launcher, program, wire, 250)
        for i in range(count):
            random_history(launcher, program, wire, seed + i, expected, pauses)
        print(f"{wire}: {count} histories from seed {seed} on: {expected[:21]}", flush=True)
    if pauses:
        print(f"from a kill to the end of the step after next: median {statistics.median(pauses):.3f} s, "
              f"at most {max(pauses):.3f} s, of {len(pauses)}")


if __name__ == "__main__":
    if sys.argv[3:4] == ["--histories"]:
        histories(sys.argv[1], sys.argv[2], int(sys.argv[4]), int((sys.argv[5:] or ["1"])[0]))
        sys.exit(0)
    sys.exit(main(CASES, Arguments(2)))

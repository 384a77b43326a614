#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""What an elastic job leaves on disk, by the clock and when it has to end, and that it goes on from there.

usage: elastic_saves_test.py LAUNCHER ELASTIC_BITS [CASE...]
       elastic_saves_test.py LAUNCHER ELASTIC_BITS --wills N   (a launcher killed N times, at random)
"""

import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from elastic_changes_test import ElasticJob, OPEN, SHARDS, calm_bits

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../launcher/faults"))

from outside import Arguments, main, patient, wait_until  # noqa: E402

# Steps until the launcher has ended in each case, at 25 ms and more.
MANY = 100000


def fixed(launcher, program, ranks, steps, mode):
    return subprocess.run(
        [launcher, "-H", "localhost:3", "-n", str(ranks), "--shards", str(SHARDS), program, "auto",
         "float32", str(SHARDS), str(steps), "1", mode],
        stdout=subprocess.PIPE, text=True, check=True).stdout


def saved_steps(folder):
    return sorted(int(place.name[4:]) for place in pathlib.Path(folder, "run").glob("gen-*")
                  if "." not in place.name)


def steps_of(job):
    return [int(step) for step in re.findall(r"^step (\d+)$", job.text("out"), re.M)]


def origins(job):
    return [int(step) for step in re.findall(r"^from (\d+)$", job.text("out"), re.M)]


def checkpoints_are_the_same_on_any_number_of_ranks(launcher, program):
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for ranks in (1, 3):
            place = os.path.join(folder, str(ranks))
            fixed(launcher, program, ranks, 20, f"save:{place}:8")
            assert saved_steps(place) == [8, 16, 20], os.listdir(place)
            files.append([pathlib.Path(place, "run", f"gen-{step:012}", "set-0.bin").read_bytes()
                          for step in saved_steps(place)])
            assert not list(pathlib.Path(place, "run").glob("*/rank-*"))
        assert files[0] == files[1]
        # Another number goes on from there.
        out = fixed(launcher, program, 2, 40, f"save:{folder}/3:8")
        assert "from 21" in out, out
        bits = re.search(r"^bits \w+", out, re.M).group()
        assert bits == calm_bits(launcher, program, "float32", 40)[:len(bits)], out


def a_job_whose_ranks_all_die_goes_on_from_its_checkpoint(launcher, program):
    with tempfile.TemporaryDirectory() as folder:
        with ElasticJob(launcher, program, steps=OPEN, mode=(f"save:{folder}:10",)) as job:
            # It is written beside the steps that come.
            wait_until(lambda: 20 in saved_steps(folder), job.all)
            newest = saved_steps(folder)[-1]
            for pid in job.members():
                os.kill(pid, signal.SIGKILL)
            job.wait_for_world()
            assert origins(job)[-1] in (newest + 1, newest + 11), job.all()
            job.ends(launcher, program)


def saved_at_the_end(job, folder, unheard=2):
    """The step; none that the job has told of is lost, and so many may be that nobody has heard of."""
    last = steps_of(job)[-1]
    saved = saved_steps(folder)
    assert saved and last <= saved[-1] <= last + unheard and len(saved) <= 2, (saved, last)
    assert not list(pathlib.Path(folder, "run").glob(".will*")), os.listdir(folder + "/run")
    return saved[-1]


def end_of_launcher(launcher, program, after):
    """What is left of a job whose launcher is killed goes on to the calm bits."""
    with tempfile.TemporaryDirectory() as folder:
        mode = (f"save:{folder}:{MANY}",)
        with ElasticJob(launcher, program, steps=MANY, mode=mode) as job:
            job.wait_for(f"\nstep {after}\n")
            job.kill_launcher()
            job.wait_until_gone(7)  # --grace, and 2 s
            saved = saved_at_the_end(job, folder, unheard=20)  # by a launcher that is dead
            before = job.log().splitlines()
            hosts = job.hosts
            steps = saved + 30
            with ElasticJob(launcher, program, steps=steps, mode=mode, waits=False, hosts=hosts,
                            options=("--resume",)) as next_job:
                next_job.ends_with_bits(calm_bits(launcher, program, "float32", steps))
                assert origins(next_job) == [saved + 1], next_job.all()
            lines = pathlib.Path(hosts + "_log").read_text().splitlines()
            assert lines[:len(before)] == before, lines
            numbers = [int(line.split()[0]) for line in lines]
            assert numbers == list(range(len(lines))), lines
            generations = [int(line.split()[4]) for line in lines]
            assert generations == sorted(generations) and generations[-1] > generations[0], lines


def no_committed_step_is_lost_with_a_launcher_that_is_killed(launcher, program):
    end_of_launcher(launcher, program, 20)


def a_launcher_that_stands_still_goes_on_with_what_was_saved(launcher, program):
    with tempfile.TemporaryDirectory() as folder:
        with ElasticJob(launcher, program, steps=MANY, mode=(f"save:{folder}:{MANY}",)) as job:
            job.wait_for("\nstep 20\n")
            os.kill(job.process.pid, signal.SIGSTOP)
            job.wait_until_gone(12)  # the lease as well
            os.kill(job.process.pid, signal.SIGCONT)
            job.wait_for("\nfrom ", 2, seconds=30)
            assert origins(job)[1] == saved_steps(folder)[-1] + 1, job.all()


def signals_to_the_launcher_save_before_the_end(launcher, program):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with tempfile.TemporaryDirectory() as folder:
            mode = (f"save:{folder}:{MANY}",)
            with ElasticJob(launcher, program, steps=MANY, mode=mode) as job:
                job.wait_for("\nstep 20\n")
                job.process.send_signal(number)
                job.ends_with(128 + number, 40)
                saved = saved_at_the_end(job, folder)
                job.says(f"launcher: the state after step {saved} is saved")
                job.leaves_nothing()
                steps = saved + 10
                with ElasticJob(launcher, program, steps=steps, mode=mode, waits=False,
                                hosts=job.hosts, options=("--resume",)) as next_job:
                    next_job.ends_with_bits(calm_bits(launcher, program, "float32", steps))
                    assert origins(next_job) == [saved + 1], next_job.all()


def a_time_limit_saves_before_the_end(launcher, program):
    with tempfile.TemporaryDirectory() as folder:
        with ElasticJob(launcher, program, steps=MANY, mode=(f"save:{folder}:{MANY}",),
                        options=("--timeout", min(patient(8), 60))) as job:
            job.wait_for("\nstep 2\n")
            job.ends_with(124, 80)
            saved_at_the_end(job, folder)


def a_launcher_that_is_killed_while_it_ends_the_job_loses_nothing(launcher, program):
    with tempfile.TemporaryDirectory() as folder:
        with ElasticJob(launcher, program, steps=MANY, mode=(f"save:{folder}:{MANY}",)) as job:
            job.wait_for("\nstep 20\n")
            job.process.send_signal(signal.SIGTERM)
            job.kill_launcher()
            job.wait_until_gone(7)
            saved_at_the_end(job, folder, unheard=20)


def too_few_ranks_end_with_their_state_on_disk(launcher, program):
    with tempfile.TemporaryDirectory() as folder:
        options = ("--elastic", "2:4", "--elastic-timeout", min(patient(4), 20), "--cooldown", "1h:1h")
        with ElasticJob(launcher, program, steps=MANY, mode=(f"save:{folder}:{MANY}",),
                        options=options) as job:
            job.wait_for("\nstep 20\n")
            os.kill(job.members()[0], signal.SIGKILL)
            job.ends_with(125, 40)
            job.says("fewer ranks than the minimum for too long")
            last = steps_of(job)[-1]
            saved = saved_steps(folder)
            assert len(saved) == 1 and last <= saved[0] <= last + 1, (saved, last)
            job.leaves_nothing()
        out = fixed(launcher, program, 1, saved[0] + 5, f"save:{folder}:{MANY}")
        bits = re.search(r"^bits \w+", out, re.M).group()
        expected = calm_bits(launcher, program, "float32", saved[0] + 5)
        assert f"from {saved[0] + 1}\n" in out and expected.startswith(bits), out


def a_state_that_is_saved_nowhere_is_said_to_be_lost(launcher, program):
    options = ("--elastic", "2:4", "--elastic-timeout", min(patient(4), 20), "--cooldown", "1h:1h")
    with ElasticJob(launcher, program, steps=MANY, options=options) as job:
        job.wait_for("\nstep 5\n")
        os.kill(job.members()[0], signal.SIGKILL)
        job.ends_with(125, 40)
        job.says("is lost: call ElasticJob::checkpoint()")
        job.leaves_nothing()


def a_checkpoint_whose_reading_was_interrupted_is_read_again(launcher, program):
    """A rank dies in it: the others have read a part, or all but what they do together."""
    for mode in ("lost", "own"):
        with tempfile.TemporaryDirectory() as folder:
            fixed(launcher, program, 2, 40, f"save:{folder}:{MANY}")
            with ElasticJob(launcher, program, steps=70, waits=False,
                            mode=(f"{mode}:{folder}:{MANY}",)) as job:
                job.ends_with_bits(calm_bits(launcher, program, "float32", 70))
                job.says("killed by signal 9")
                assert steps_of(job)[0] == 41, job.all()


def ends_at_once(job, number=signal.SIGTERM):
    """Long before --grace, which is 30 s."""
    began = time.monotonic()
    job.process.send_signal(number)
    job.ends_with(128 + number, 30)
    took = time.monotonic() - began
    assert took < min(patient(12), 25), f"{took:.1f} s: {job.all()}"
    job.leaves_nothing()


def files_of(folder):
    return {path: path.stat().st_mtime_ns for path in pathlib.Path(folder).rglob("*") if path.is_file()}


def the_last_step_is_saved_where_the_next_call_ends_the_run(launcher, program):
    with tempfile.TemporaryDirectory() as folder:
        mode = f"save_late:{folder}:4"
        bits = fixed(launcher, program, 2, 7, mode)
        assert saved_steps(folder) == [4, 7], os.listdir(folder)
        before = files_of(folder)
        # It is done: nothing is computed or written.
        again = fixed(launcher, program, 3, 7, mode)
        assert files_of(folder) == before
        assert re.search(r"^bits (\w+)", bits, re.M).group(1) in again, again
        with ElasticJob(launcher, program, steps=9, waits=False, mode=(mode,)) as job:
            job.ends_with(0, 60)
        assert saved_steps(folder)[-1] == 9, os.listdir(folder)


def the_last_step_is_saved_again_where_its_writer_dies(launcher, program):
    with tempfile.TemporaryDirectory() as folder:
        with ElasticJob(launcher, program, steps=30, waits=False, mode=(f"save_die:{folder}:{MANY}",)) as job:
            job.ends_with_bits(calm_bits(launcher, program, "float32", 30))
            job.says("killed by signal 9")
        assert saved_steps(folder) == [30], os.listdir(folder)


def who_has_no_state_is_not_waited_for(launcher, program):
    for mode in ("idle", "idle_end"):
        with ElasticJob(launcher, program, steps=3, waits=False, mode=(mode,)) as job:
            job.wait_for("idles\n", 2 if mode == "idle" else 1, seconds=60)
            ends_at_once(job)
            assert "is saved" not in job.text("err"), job.all()


def a_state_before_the_first_step_is_not_saved(launcher, program):
    with tempfile.TemporaryDirectory() as folder:
        with ElasticJob(launcher, program, steps=MANY, pause_ms=1500, waits=False,
                        mode=(f"save:{folder}:{MANY}",)) as job:
            job.wait_for("\nfrom 1\n", seconds=60)
            ends_at_once(job)
            assert "is saved" not in job.text("err"), job.all()
            assert not saved_steps(folder), os.listdir(folder)


def without_a_place_no_rank_is_asked_to_save(launcher, program):
    with ElasticJob(launcher, program, steps=MANY) as job:
        job.wait_for("\nstep 5\n")
        ends_at_once(job)
        assert "is saved" not in job.text("err"), job.all()
        # One of them says so, and none dies of it.
        assert job.text("err").count("is lost: call ElasticJob::checkpoint()") == 1, job.all()
        assert "exited with code" not in job.text("err"), job.all()


def there_must_be_a_job_to_go_on_with(launcher, program):
    with ElasticJob(launcher, program, waits=False, options=("--resume",)) as job:
        job.ends_with(2, 20)
        job.says("--resume: no elastic job has written into ")
        assert not os.path.exists(job.hosts + "_log"), "a log of no job"


CASES = [
    checkpoints_are_the_same_on_any_number_of_ranks,
    a_job_whose_ranks_all_die_goes_on_from_its_checkpoint,
    no_committed_step_is_lost_with_a_launcher_that_is_killed,
    a_launcher_that_stands_still_goes_on_with_what_was_saved,
    signals_to_the_launcher_save_before_the_end,
    a_time_limit_saves_before_the_end,
    a_launcher_that_is_killed_while_it_ends_the_job_loses_nothing,
    too_few_ranks_end_with_their_state_on_disk,
    a_state_that_is_saved_nowhere_is_said_to_be_lost,
    a_checkpoint_whose_reading_was_interrupted_is_read_again,
    the_last_step_is_saved_where_the_next_call_ends_the_run,
    the_last_step_is_saved_again_where_its_writer_dies,
    who_has_no_state_is_not_waited_for,
    a_state_before_the_first_step_is_not_saved,
    without_a_place_no_rank_is_asked_to_save,
    there_must_be_a_job_to_go_on_with,
]


def wills(launcher, program, count):
    for i in range(count):
        end_of_launcher(launcher, program, random.randint(2, 60))
        print(f"{i + 1} of {count}", flush=True)


if __name__ == "__main__":
    if sys.argv[3:4] == ["--wills"]:
        wills(sys.argv[1], sys.argv[2], int(sys.argv[4]))
        sys.exit(0)
    sys.exit(main(CASES, Arguments(2)))

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""What agents of elastic jobs do when those are ended, or their launcher is gone: ranks save what they have, and end.

usage: elastic_will_test.py LAUNCHER ELASTIC_PROBE SIMULATE [CASE...]
"""

import os
import pathlib
import signal
import subprocess
import sys
import time

from elastic_job import SHELL, ElasticJob, program
from outside import Arguments, main, patient


def saved(job):
    """(step, state) by member."""
    return {int(path.suffix[1:]): (int(path.read_text().split()[0]), path.read_text().split()[1])
            for path in pathlib.Path(job.files.name).glob("saved.*")}


def end_launcher(job, number=signal.SIGKILL, seconds=7):
    """All are gone within --grace and 2 s; what they have saved."""
    if number == signal.SIGKILL:
        job.kill_launcher()
    else:
        os.kill(job.process.pid, number)
    job.wait_until_gone(seconds)
    return saved(job)


def check_traces(job):
    files = [os.path.join(job.logs, "events.jsonl"),
             *sorted(map(str, pathlib.Path(job.files.name).glob("member.*.jsonl")))]
    check = subprocess.run([job.simulate, "check", *files], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, check=False)
    assert check.returncode == 0, check.stdout


def a_rank_of_each_host_saves_its_state(*programs):
    with ElasticJob(programs, ["n1 slots=2", "n2"], "-n", 3, probe=("--steps", 9999)) as job:
        job.wait_for_commit(job.wait_for_world(3))
        job.wait_for("commit 1 5 ", times=3)
        wills = end_launcher(job)
        # One of the two on n1, and the one on n2; and nothing committed is lost.
        assert len(wills) == 2 and len(wills.keys() & {0, 1}) == 1 and 2 in wills, wills
        newest = max(int(step) for _, step, _ in job.commits())
        states = dict((int(step), state) for _, step, state in job.commits())
        assert max(step for step, _ in wills.values()) >= newest, (wills, newest)
        for step, state in wills.values():
            assert states.get(step, state) == state, (wills, states)
        check_traces(job)


def one_that_does_not_answer_holds_nobody_up(*programs):
    with ElasticJob(programs, ["n1 slots=2"], "-n", 2, probe=("--steps", 9999)) as job:
        job.wait_for_commit(job.wait_for_world(2))
        os.kill(job.pids()[0], signal.SIGSTOP)
        wills = end_launcher(job)
        assert list(wills) == [1], wills


def a_launcher_that_stands_still_is_as_good_as_gone(*programs):
    with ElasticJob(programs, ["n1"], "-n", 1, "--lease", 2.5, "--grace", 1,
                    probe=("--steps", 9999)) as job:
        job.wait_for_commit(job.wait_for_world(1))
        wills = end_launcher(job, signal.SIGSTOP, 2.5 + 1 + 3)
        assert list(wills) == [0], wills
        os.kill(job.process.pid, signal.SIGCONT)
        job.process.terminate()
        job.process.wait(patient(20))


def who_has_no_state_saves_none(*programs):
    with ElasticJob(programs, ["n1"], "-n", 1, probe=("--steps", 9999, "--ready-after", 60000)) as job:
        job.wait_for("up 0 ")
        assert not end_launcher(job, seconds=7)


def a_job_that_is_ended_by_its_user_saves_its_state(*programs):
    with ElasticJob(programs, ["n1", "n2"], "-n", 2, probe=("--steps", 9999)) as job:
        job.wait_for_commit(job.wait_for_world(2))
        job.process.send_signal(signal.SIGTERM)
        job.ends_with(143)
        states = saved(job)
        assert len(states) == 2, states  # one on each host
        newest = max(step for step, _ in states.values())
        assert all(newest - step <= 1 for step, _ in states.values()), states
        job.says(f"launcher: the state after step {newest} is saved")
        job.leaves_nothing()


def a_state_that_is_not_saved_within_the_grace_is_said_to_be_lost(*programs):
    with ElasticJob(programs, ["n1", "n2"], "-n", 2, "--grace", 1, probe=("--steps", 9999)) as job:
        job.wait_for_commit(job.wait_for_world(2))
        for member in (0, 1): os.kill(job.pids()[member], signal.SIGSTOP)
        job.process.send_signal(signal.SIGTERM)
        job.ends_with(143)
        job.says("no rank has saved its state in time")
        job.leaves_nothing()


def a_state_that_cannot_be_saved_is_said_to_be_lost(*programs):
    with ElasticJob(programs, ["n1", "n2"], "-n", 2, probe=("--steps", 9999)) as job:
        job.wait_for_commit(job.wait_for_world(2))
        for member in (0, 1): pathlib.Path(job.files.name, f"saved.{member}").mkdir()
        job.process.send_signal(signal.SIGTERM)
        job.ends_with(143)
        job.says("launcher: no rank has saved its state, since that failed; what the newest checkpoint does not have is lost")
        job.leaves_nothing()


def who_has_said_nothing_has_lost_nothing(*programs):
    launcher, probe, simulate = programs
    with program(f"[ $RANK = 1 ] && exec sleep 1000\nexec {os.path.abspath(probe)} \"$@\"") as one_sleeps:
        with ElasticJob((launcher, one_sleeps, simulate), ["n1", "n2"], "-n", 2, "--grace", 1,
                        probe=("--steps", 9999)) as job:
            job.wait_for("up 0 ")
            job.process.send_signal(signal.SIGTERM)
            job.ends_with(143)
            job.says_not("no rank has saved its state")
            job.leaves_nothing()


def a_second_signal_waits_for_nobody(*programs):
    with ElasticJob(programs, ["n1", "n2"], "-n", 2, probe=("--steps", 9999)) as job:
        job.wait_for_commit(job.wait_for_world(2))
        for member in (0, 1):
            os.kill(job.pids()[member], signal.SIGSTOP)
        job.process.send_signal(signal.SIGTERM)
        job.wait_for("ending the job", where="err")
        time.sleep(0.5)
        job.process.send_signal(signal.SIGTERM)
        job.ends_with(143, 10)  # the grace is 30 s
        job.says("no rank has saved its state in time")
        job.leaves_nothing()


def the_next_job_waits_for_ranks_that_still_save(*programs):
    with ElasticJob(programs, ["n1", "n2"], "-n", 2, "--grace", 3, probe=("--steps", 9999)) as job:
        job.wait_for_commit(job.wait_for_world(2))
        for member in (0, 1): os.kill(job.pids()[member], signal.SIGSTOP)
        job.kill_launcher()
        begin = time.monotonic()
        command = [programs[0], "-H", job.hosts, "--rsh", SHELL, "--elastic", "1:4", "--resume", job.probe,
                   "--steps", "3"]
        after = subprocess.run(command, capture_output=True, text=True, timeout=patient(60),
                               stdin=subprocess.DEVNULL, check=False)
        assert after.returncode == 0 and time.monotonic() > begin + 3, after
        assert "its ranks may still save their state: waiting for its end" in after.stderr, after
        # One that has ended by itself is not waited for.
        after = subprocess.run(command, capture_output=True, text=True, timeout=patient(60),
                               stdin=subprocess.DEVNULL, check=False)
        assert after.returncode == 0 and "waiting for its end" not in after.stderr, after


CASES = [
    the_next_job_waits_for_ranks_that_still_save,
    a_rank_of_each_host_saves_its_state,
    one_that_does_not_answer_holds_nobody_up,
    a_launcher_that_stands_still_is_as_good_as_gone,
    who_has_no_state_saves_none,
    a_job_that_is_ended_by_its_user_saves_its_state,
    a_state_that_is_not_saved_within_the_grace_is_said_to_be_lost,
    a_state_that_cannot_be_saved_is_said_to_be_lost,
    who_has_said_nothing_has_lost_nothing,
    a_second_signal_waits_for_nobody,
]

if __name__ == "__main__":
    sys.exit(main(CASES, Arguments(3)))

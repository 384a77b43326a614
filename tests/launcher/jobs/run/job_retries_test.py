#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Jobs of job files whose hosts are lost, whose programs and preparations fail.

usage: job_retries_test.py LAUNCHER PROBE_RANK [CASE...]
"""

import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from jobs_here import Jobs, duration_of, short_lease  # noqa: E402
from outside import Arguments, main  # noqa: E402
from patience import patient  # noqa: E402


def lost_hosts_are_replaced_and_failures_are_not(launcher, probe):
    with Jobs(launcher, ["n1", "n2", "n3"]) as jobs:
        name = jobs.detach({"program": [probe, "steps", str(jobs.folder)], "ranks": 2,
                            "hosts": {"count": 2}, "retry": {"losses": 3, "wait": 0.1}, "options": short_lease()})
        for number in 1, 2, 3:
            jobs.wait_for_attempt(name, number)
            used = [host["name"] for host in jobs.state(name)["hosts"] if host["state"] == "used"]
            jobs.lose_host(used[-1])
        jobs.wait_for_attempt(name, 4)
        (jobs.folder / "done").touch()
        assert jobs.wait(name) == 0
        state = jobs.state(name)
        assert (state["state"], state["attempt"], state["losses"], state["failures"]) == ("succeeded", 4, 3, 0), state
        jobs.leaves_nothing()


def the_last_loss_ends_the_job(launcher, probe):
    with Jobs(launcher, ["n1", "n2", "n3"]) as jobs:
        name = jobs.detach({"program": [probe, "steps", str(jobs.folder)], "ranks": 2,
                            "hosts": {"count": 2}, "retry": {"losses": 1, "wait": 0.1}, "options": short_lease()})
        for number in 1, 2:
            jobs.wait_for_attempt(name, number)
            jobs.lose_host([host["name"] for host in jobs.state(name)["hosts"] if host["state"] == "used"][0])
        assert jobs.wait(name) not in (0, 124)
        state = jobs.state(name)
        assert (state["state"], state["losses"], state["failures"]) == ("failed", 2, 0), state
        assert "host n" in state["reason"], state
        jobs.leaves_nothing()


def a_host_that_is_lost_before_the_first_step_is_a_failure(launcher, _):
    with Jobs(launcher, ["n1", "n2"]) as jobs:
        name = jobs.detach({"program": ["/bin/sleep", "300"], "ranks": 2, "retry": {"losses": 20, "wait": 0.1}})
        jobs.wait_until(lambda: len(jobs.ranks()) == 2, "two ranks")
        jobs.lose_host("n2")
        assert jobs.wait(name) not in (0, 124)
        state = jobs.state(name)
        assert (state["attempt"], state["losses"], state["failures"]) == (1, 0, 1), state
        jobs.leaves_nothing()


def a_program_that_fails_is_tried_as_often_as_asked(launcher, _):
    with Jobs(launcher) as jobs:
        job = {"program": ["/bin/sh", "-c", "exit 7"], "retry": {"wait": 0}}
        assert jobs.run("--job", jobs.write(job), *jobs.of_hosts()).returncode == 7
        assert jobs.state(jobs.jobs()[0])["attempt"] == 1
        job = {"name": "twice", "program": ["/bin/sh", "-c", "exit 7"], "retry": {"failures": 2, "wait": 0}}
        assert jobs.run("--job", jobs.write(job), *jobs.of_hosts()).returncode == 7
        state = jobs.state(next(name for name in jobs.jobs() if name.startswith("twice")))
        assert (state["attempt"], state["failures"]) == (3, 3) and "7" in state["reason"], state
        jobs.leaves_nothing()


def an_end_that_is_asked_for_is_no_retry(launcher, _):
    """Also where the attempt ends by itself in that moment."""
    with Jobs(launcher) as jobs:
        tries = jobs.folder / "tries"
        program = (f'echo >> {tries}; trap "" TERM; until [ -e {jobs.folder}/both ]; do sleep 0.05; done; '
                   '[ $$RANK = 0 ] || exit 7; sleep 300')
        job = {"program": ["/bin/sh", "-c", program], "ranks": 2, "limits": {"grace": "20s"},
               "retry": {"failures": 3, "wait": 2}}
        running = jobs.start("--job", jobs.write(job), *jobs.of_hosts(), "--oversubscribe")
        jobs.wait_until(lambda: len(jobs.ranks()) == 2, "two ranks")
        (jobs.folder / "both").touch()
        name, = jobs.jobs()
        jobs.wait_until(lambda: "rank_exited" in jobs.file(name, "events.jsonl"), "a rank has failed")
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=patient(30))
        # 130 where the other rank had been killed by then, and the next attempt was waited for.
        assert running.returncode in (7, 130), running.returncode
        assert jobs.state(name)["attempt"] == 1, jobs.state(name)
        assert len(tries.read_text().splitlines()) == 2
        jobs.leaves_nothing()


def a_failed_preparation_names_host_and_lines(launcher, probe):
    with Jobs(launcher, ["n1", "n2", "n3"]) as jobs:
        prepare = '[ "$IGNORED" != n2 ] || { echo cannot mount; echo really >&2; exit 9; }; sleep 1'
        job = {"program": [probe, "steps", str(jobs.folder)], "ranks": 3, "prepare": {"command": prepare}}
        done = jobs.run("--job", jobs.write(job), *jobs.of_hosts())
        assert done.returncode == 9, done
        assert "n2" in done.stderr and "cannot mount" in done.stderr, done.stderr
        name, = jobs.jobs()
        assert "cannot mount" in jobs.run("logs", "--prepare", name).stdout
        assert jobs.file(name, "stdout.txt") == ""
        jobs.leaves_nothing()


def a_preparation_that_hangs_is_ended(launcher, probe):
    with Jobs(launcher, ["n1", "n2"]) as jobs:
        job = {"program": [probe, "steps", str(jobs.folder)], "ranks": 2,
               "prepare": {"command": '[ "$IGNORED" != n2 ] || sleep 300', "timeout": 1}}
        seconds, done = duration_of(lambda: jobs.run("--job", jobs.write(job), *jobs.of_hosts()))
        assert done.returncode == 124 and "n2" in done.stderr, done
        assert seconds < patient(6), seconds
        jobs.leaves_nothing()


def preparation_and_ranks_share_a_folder(launcher, _):
    with Jobs(launcher, ["n1", "n2"]) as jobs:
        job = {"program": ["/bin/sh", "-c", 'cat "$$AZ_BATCHAI_JOB_TEMP/made"; echo; ls "$$AZ_BATCHAI_JOB_MOUNT_ROOT/data"'],
               "ranks": 2, "mounts": {"data": str(jobs.folder / "data")},
               "prepare": {"command": 'printf "$IGNORED" > "$AZ_BATCHAI_JOB_TEMP/made"'}}
        (jobs.folder / "data").mkdir()
        (jobs.folder / "data" / "images").touch()
        done = jobs.run("--job", jobs.write(job), *jobs.of_hosts())
        assert sorted(done.stdout.split()) == ["images", "images", "n1", "n2"], done
        jobs.leaves_nothing()


def a_hangup_that_is_ignored_ends_no_job_that_waits(launcher, _):
    with Jobs(launcher) as jobs:
        job = {"program": ["/bin/sh", "-c", "[ -e again ] || { touch again; exit 7; }"],
               "retry": {"failures": 1, "wait": 2}}
        name = jobs.run("--job", jobs.write(job), *jobs.of_hosts(), "--detach", "--no-wait").stdout.strip()
        jobs.wait_until(lambda: jobs.state(name)["state"] == "retrying", "retrying")
        os.kill(jobs.supervisor(name), signal.SIGHUP)
        assert jobs.wait(name) == 0
        jobs.leaves_nothing()


CASES = [lost_hosts_are_replaced_and_failures_are_not, the_last_loss_ends_the_job,
         a_host_that_is_lost_before_the_first_step_is_a_failure, a_program_that_fails_is_tried_as_often_as_asked,
         an_end_that_is_asked_for_is_no_retry, a_failed_preparation_names_host_and_lines,
         a_preparation_that_hangs_is_ended, preparation_and_ranks_share_a_folder,
         a_hangup_that_is_ignored_ends_no_job_that_waits]

if __name__ == "__main__":
    sys.exit(main(CASES, Arguments(2)))

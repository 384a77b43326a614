#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Jobs of job files whose hosts are lost, whose preparation fails, whose machines come and go.

usage: job_retries_test.py LAUNCHER PROBE_RANK [CASE...]
"""

import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from jobs_here import Jobs, duration_of  # noqa: E402
from outside import Arguments, environment_of, main  # noqa: E402
from patience import patient  # noqa: E402


def lose_host(jobs, host):
    """Everything of the job that runs there is killed at once, as with the machine."""
    victims = [pid for pid in jobs.processes() if f"IGNORED={host}".encode() in environment_of(pid)]
    assert victims, f"nothing runs on {host}"
    for pid in victims:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def attempt(jobs, name, number):
    jobs.wait_until(lambda: jobs.state(name)["state"] == "running" and jobs.state(name)["attempt"] == number,
                    f"attempt {number}")
    generation = number - 1
    jobs.wait_until(lambda: jobs.file(name, "stdout.txt").count(f"generation {generation} ") == 2,
                    f"two ranks of attempt {number}")


def lost_hosts_are_replaced_and_failures_are_not(launcher, probe):
    with Jobs(launcher, ["n1", "n2", "n3"]) as jobs:
        name = jobs.detach({"program": [probe, "steps", str(jobs.folder)], "ranks": 2,
                            "hosts": {"count": 2}, "retry": {"losses": 3, "wait": 0.1}})
        for number in 1, 2, 3:
            attempt(jobs, name, number)
            used = [host["name"] for host in jobs.state(name)["hosts"] if host["state"] == "used"]
            lose_host(jobs, used[-1])
        attempt(jobs, name, 4)
        (jobs.folder / "done").touch()
        assert jobs.wait(name) == 0
        state = jobs.state(name)
        assert (state["state"], state["attempt"], state["losses"], state["failures"]) == ("succeeded", 4, 3, 0), state
        jobs.leaves_nothing()


def the_last_loss_ends_the_job(launcher, probe):
    with Jobs(launcher, ["n1", "n2", "n3"]) as jobs:
        name = jobs.detach({"program": [probe, "steps", str(jobs.folder)], "ranks": 2,
                            "hosts": {"count": 2}, "retry": {"losses": 1, "wait": 0.1}})
        for number in 1, 2:
            attempt(jobs, name, number)
            lose_host(jobs, [host["name"] for host in jobs.state(name)["hosts"] if host["state"] == "used"][0])
        assert jobs.wait(name) not in (0, 124)
        state = jobs.state(name)
        assert (state["state"], state["losses"], state["failures"]) == ("failed", 2, 0), state
        assert "host n" in state["reason"], state
        jobs.leaves_nothing()


def a_host_that_is_lost_before_the_first_step_is_a_failure(launcher, _):
    with Jobs(launcher, ["n1", "n2"]) as jobs:
        name = jobs.detach({"program": ["/bin/sleep", "300"], "ranks": 2, "retry": {"losses": 20, "wait": 0.1}})
        jobs.wait_until(lambda: len(jobs.ranks()) == 2, "two ranks")
        lose_host(jobs, "n2")
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


def machines_are_asked_for_and_given_back(launcher, _):
    with Jobs(launcher, []) as jobs:
        log = jobs.folder / "resized"
        resize = jobs.folder / "resize"
        resize.write_text(f'#!/bin/sh\necho $1 >> {log}\n[ $1 = 0 ] || printf "n1\\nn2\\nn3\\n" > {jobs.hosts}\n')
        resize.chmod(0o755)
        job = {"program": ["/bin/sleep", "1"], "ranks": 3,
               "hosts": {"count": 3, "resize": ["./resize"], "idle": 2, "wait": 20}}
        first = jobs.start("--job", jobs.write(job, "one.json"), *jobs.of_hosts())
        second = jobs.start("--job", jobs.write(job, "two.json"), *jobs.of_hosts())
        for running in first, second:
            running.communicate(timeout=patient(40))
            assert running.returncode == 0
        jobs.wait_until(lambda: log.read_text().split()[-1] == "0", "given back", 15)
        jobs.leaves_nothing()
        called = log.read_text().split()
        assert called.count("0") == 1 and set(called) == {"3", "0"}, called


def machines_that_take_long_can_be_called_off(launcher, _):
    with Jobs(launcher, []) as jobs:
        job = {"program": ["/bin/true"], "hosts": {
            "count": 1, "idle": 0, "resize": ["/bin/sh", "-c", "[ $0 = 0 ] || exec sleep 300"]}}
        done = jobs.run("--job", jobs.write(job), *jobs.of_hosts(), "--detach", "--no-wait")
        assert done.returncode == 0, done
        seconds, stopped = duration_of(lambda: jobs.run("stop", "--now", done.stdout.strip()))
        assert stopped.returncode == 0 and seconds < patient(5), (seconds, stopped)
        assert jobs.state(done.stdout.strip())["state"] == "stopped"
        refused = jobs.run("--job", jobs.write({"program": ["true"], "hosts": {"resize": ["true"]}}), *jobs.of_hosts())
        assert refused.returncode == 2 and "'count'" in refused.stderr, refused
        jobs.leaves_nothing()


def a_hosts_file_that_is_being_written_ends_no_job(launcher, probe):
    with Jobs(launcher, ["n1", "n2"]) as jobs:
        name = jobs.detach({"program": [probe, "steps", str(jobs.folder)], "ranks": 2, "retry": {"wait": 0.1}})
        attempt(jobs, name, 1)
        jobs.set_hosts("n1", "n2 slots=nonsense")
        lose_host(jobs, "n2")
        jobs.wait_until(lambda: jobs.state(name)["state"] == "queued", "queued")
        jobs.set_hosts("n1", "n2")
        attempt(jobs, name, 2)
        (jobs.folder / "done").touch()
        assert jobs.wait(name) == 0
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


def hosts_that_do_not_answer_are_waited_for(launcher, _):
    with Jobs(launcher, ["n1"]) as jobs:
        job = {"program": ["/bin/true"], "ranks": 2, "hosts": {"count": 2, "wait": 1.5}}
        seconds, done = duration_of(lambda: jobs.run("--job", jobs.write(job), *jobs.of_hosts()))
        assert done.returncode == 125 and "2 hosts" in done.stderr, done
        assert 1.4 < seconds < patient(6), seconds
        job["hosts"]["wait"] = 30
        waiting = jobs.start("--job", jobs.write(job), *jobs.of_hosts())
        jobs.wait_until(lambda: "queued" in jobs.run("ps").stdout, "queued")
        jobs.set_hosts("n1", "n2")
        waiting.communicate(timeout=patient(30))
        assert waiting.returncode == 0
        # What is wrong with a host that was reached stays so.
        broken = jobs.folder / "broken"
        broken.write_text("#!/bin/sh\necho nothing works here >&2\nexit 127\n")
        broken.chmod(0o755)
        seconds, done = duration_of(lambda: jobs.run("--job", jobs.write(job), "-H", jobs.hosts, "--rsh", broken))
        assert done.returncode == 125 and "nothing works here" in done.stderr, done
        assert seconds < patient(8), seconds
        # A spare takes the place of one that cannot be reached.
        jobs.set_hosts("no-such-host", "n1", "n2")
        shell = jobs.folder / "shell"
        shell.write_text('#!/bin/sh\n[ "$1" != no-such-host ] || { echo no route >&2; exit 255; }\nshift\n'
                         'IGNORED=x exec "$@"\n')
        shell.chmod(0o755)
        done = jobs.run("--job", jobs.write(job), "-H", jobs.hosts, "--rsh", shell)
        assert done.returncode == 0, done
        jobs.leaves_nothing()


CASES = [lost_hosts_are_replaced_and_failures_are_not, the_last_loss_ends_the_job,
         a_host_that_is_lost_before_the_first_step_is_a_failure, a_program_that_fails_is_tried_as_often_as_asked,
         a_failed_preparation_names_host_and_lines, a_preparation_that_hangs_is_ended,
         preparation_and_ranks_share_a_folder, machines_are_asked_for_and_given_back,
         machines_that_take_long_can_be_called_off, a_hosts_file_that_is_being_written_ends_no_job,
         a_hangup_that_is_ignored_ends_no_job_that_waits, hosts_that_do_not_answer_are_waited_for]

if __name__ == "__main__":
    sys.exit(main(CASES, Arguments(2)))

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Hosts of job files: that are waited for, asked for, given back.

usage: job_hosts_test.py LAUNCHER PROBE_RANK [CASE...]
"""

import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from jobs_here import Jobs, SHELL, duration_of, short_lease  # noqa: E402
from outside import Arguments, main  # noqa: E402
from patience import patient  # noqa: E402


def masked(pid):
    """The numbers of signals that it has blocked."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        mask = next(int(line.split()[1], 16) for line in status if line.startswith("SigBlk"))
    return {str(number) for number in range(1, 32) if mask >> (number - 1) & 1}


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


def the_time_limit_is_for_asking_as_well(launcher, _):
    with Jobs(launcher, []) as jobs:
        job = {"program": ["/bin/true"], "limits": {"time": 2}, "hosts": {
            "count": 1, "idle": 0, "resize": ["/bin/sh", "-c", "[ $0 = 0 ] || exec sleep 300"]}}
        seconds, done = duration_of(lambda: jobs.run("--job", jobs.write(job), *jobs.of_hosts()))
        assert done.returncode == 124 and "time limit of 2 s" in done.stderr, done
        assert seconds < patient(8), seconds
        jobs.leaves_nothing()


def a_hosts_file_that_is_being_written_ends_no_job(launcher, probe):
    with Jobs(launcher, ["n1", "n2"]) as jobs:
        name = jobs.detach({"program": [probe, "steps", str(jobs.folder)], "ranks": 2, "retry": {"wait": 0.1}, "options": short_lease()})
        jobs.wait_for_attempt(name, 1)
        jobs.set_hosts("n1", "n2 slots=nonsense")
        jobs.lose_host("n2")
        jobs.wait_until(lambda: jobs.state(name)["state"] == "queued", "queued")
        jobs.set_hosts("n1", "n2")
        jobs.wait_for_attempt(name, 2)
        (jobs.folder / "done").touch()
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
        # A spare takes the place of one that cannot be reached, and no program has run before.
        job["program"] = ["/bin/sh", "-c", "echo generation $$CHAINMAIL_GENERATION"]
        jobs.set_hosts("no-such-host", "n1", "n2")
        shell = jobs.folder / "shell"
        shell.write_text('#!/bin/sh\n[ "$1" != no-such-host ] || { echo no route >&2; exit 255; }\nshift\n'
                         'IGNORED=x exec "$@"\n')
        shell.chmod(0o755)
        done = jobs.run("--job", jobs.write(job), "-H", jobs.hosts, "--rsh", shell)
        assert done.returncode == 0 and done.stdout == "generation 0\n" * 2, done
        jobs.leaves_nothing()


def machines_are_asked_for_while_others_give_them_back(launcher, _):
    """Who begins meanwhile asks after that, and has them; and what the program prints ends it not."""
    with Jobs(launcher, []) as jobs:
        log = jobs.folder / "resized"
        resize = jobs.folder / "resize"
        resize.write_text(
            f'#!/bin/sh\necho "begins $1" >> {log}\nyes | head -c 300000\nif [ $1 = 0 ]; then sleep 2; rm -f {jobs.hosts};'
            f' touch {jobs.hosts}; else echo n1 > {jobs.hosts}; fi\necho "ends $1" >> {log}\n')
        resize.chmod(0o755)
        # The program is beside the file, whatever folder the ranks have.
        job = {"program": ["/bin/sh", "-c", "pwd"], "directory": str(jobs.folder / "elsewhere"),
               "hosts": {"count": 1, "resize": ["./resize"], "idle": 0, "wait": 20}}
        (jobs.folder / "elsewhere").mkdir()
        first = jobs.run("--job", jobs.write(job), *jobs.of_hosts())
        assert first.returncode == 0 and first.stdout.strip() == job["directory"], first
        jobs.wait_until(lambda: "begins 0" in log.read_text(), "giving back")
        second = jobs.run("--job", jobs.write(job), *jobs.of_hosts())
        assert second.returncode == 0, second
        assert log.read_text().splitlines()[:6] == ["begins 1", "ends 1", "begins 0", "ends 0", "begins 1", "ends 1"], \
            log.read_text()
        jobs.leaves_nothing()
        assert sum("for 0 hosts: done" in jobs.file(name, "execution.log") for name in jobs.jobs()) == 2


def who_gives_back_later_can_be_ended(launcher, _):
    with Jobs(launcher) as jobs:
        job = {"program": ["/bin/true"], "hosts": {"count": 1, "resize": ["true"], "idle": "1h"}}
        done = jobs.run("--job", jobs.write(job), *jobs.of_hosts(), "--detach")
        assert done.returncode == 0 and jobs.wait(done.stdout.strip()) == 0, done
        left, = jobs.processes()
        # One that comes while the job ends is for the job.
        jobs.wait_until(lambda: f"{signal.SIGTERM:d}" not in masked(left), "signals are taken again")
        os.kill(left, signal.SIGTERM)
        jobs.leaves_nothing()


def hosts_may_come_from_a_pipe(launcher, probe):
    """Which can be read once, and a loss needs them again."""
    with Jobs(launcher) as jobs:
        job = {"program": ["/bin/sh", "-c", "[ -e again ] || { touch again; exit 7; }"],
               "retry": {"failures": 1, "wait": 0}}
        command = f"exec '{launcher}' --job {jobs.write(job)} -H <(echo n1) --rsh '{SHELL}'"
        done = subprocess.run(["bash", "-c", command], env=jobs.variables, stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, timeout=patient(30), check=False)
        assert done.returncode == 0, done
        assert jobs.state(jobs.jobs()[0])["attempt"] == 2
        jobs.leaves_nothing()


def one_host_that_may_come_back_is_enough_to_wait(launcher, _):
    """Whatever is wrong with the others, and in whatever order they are tried."""
    for hosts in ["away", "broken"], ["broken", "away"]:
        with Jobs(launcher, hosts) as jobs:
            shell = jobs.folder / "shell"
            shell.write_text(f'#!/bin/sh\n[ "$1" != broken ] || {{ echo nothing works here >&2; exit 127; }}\n'
                             f'[ -e {jobs.folder}/back ] || {{ echo no route >&2; exit 255; }}\nshift\n'
                             'IGNORED=x exec "$@"\n')
            shell.chmod(0o755)
            job = {"program": ["/bin/true"], "hosts": {"count": 1, "wait": 60}}
            waiting = jobs.start("--job", jobs.write(job), "-H", jobs.hosts, "--rsh", shell)
            jobs.wait_until(lambda: "away" in jobs.run("ps").stdout, "queued for the one that is away")
            (jobs.folder / "back").touch()
            _, err = waiting.communicate(timeout=patient(40))
            assert waiting.returncode == 0, err
            jobs.leaves_nothing()


CASES = [machines_are_asked_for_and_given_back, machines_that_take_long_can_be_called_off,
         the_time_limit_is_for_asking_as_well,
         machines_are_asked_for_while_others_give_them_back, who_gives_back_later_can_be_ended,
         a_hosts_file_that_is_being_written_ends_no_job, hosts_that_do_not_answer_are_waited_for,
         hosts_may_come_from_a_pipe, one_host_that_may_come_back_is_enough_to_wait]

if __name__ == "__main__":
    sys.exit(main(CASES, Arguments(2)))

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Job files of jobs whose hosts come and go.

usage: job_elastic_test.py LAUNCHER ELASTIC_PROBE [CASE...]
"""

import os
import re
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from jobs_here import Jobs, short_lease  # noqa: E402
from outside import Arguments, command_of, main  # noqa: E402

TOKEN = "token-5ab1e1"


def worlds(jobs, name):
    """Sizes, by generation."""
    return {int(world): int(size)
            for world, size in re.findall(r"^world (\d+) \d+ (\d+)", jobs.file(name, "stdout.txt"), re.M)}


def begin_training(jobs, probe):
    """The id of a job whose ranks are in a world."""
    name = jobs.detach({"name": "train", "program": [probe, "--steps", "5000"], "elastic": {"min": 1, "max": 3},
                        "outputs": {"MODEL": "results"}, "options": short_lease()})
    jobs.wait_until(lambda: worlds(jobs, name).values(), "a world")
    return name


def hosts_are_prepared_and_join(launcher, probe):
    with Jobs(launcher, ["n1"]) as jobs:
        # A shell's own loop, variables and secrets, which nobody reads before it.
        prepare = ('for part in a b; do printf "$part" >> "$OUT/$IGNORED"; done; printf "%s" "$TOKEN" >> "$OUT/$IGNORED"; '
                   'until [ -e "$OUT/go" ]; do sleep 0.1; done')
        out = jobs.folder / "prepared"
        out.mkdir()
        (out / "go").touch()
        name = jobs.detach({"program": [probe, "--steps", "400", "--ms", "20"], "elastic": {"min": 1, "max": 3},
                            "environment": {"OUT": str(out)}, "secrets": {"TOKEN": TOKEN},
                            "prepare": {"command": prepare, "timeout": "1m"}, "outputs": {"MODEL": "results"}})
        jobs.wait_until(lambda: worlds(jobs, name).values(), "a world")
        (out / "go").unlink()
        jobs.set_hosts("n1", "n2")
        jobs.wait_until(lambda: (out / "n2").exists(), "n2 is being prepared")
        for pid in jobs.processes():
            text = b" ".join(command_of(pid)).decode(errors="replace")
            assert TOKEN not in text, text
        (out / "go").touch()
        jobs.wait_until(lambda: 2 in worlds(jobs, name).values(), "a world of two")
        assert (out / "n2").read_text() == "ab" + TOKEN, (out / "n2").read_text()
        assert jobs.wait(name) == 0, jobs.file(name, "execution.log")
        assert jobs.state(name)["state"] == "succeeded"
        jobs.leaves_nothing()


def a_lost_one_goes_on_in_its_folders(launcher, probe):
    with Jobs(launcher, ["n1"]) as jobs:
        name = begin_training(jobs, probe)
        os.kill(jobs.supervisor(name), signal.SIGKILL)
        jobs.wait_until(lambda: not jobs.ranks(), "ranks gone", 12)
        again = jobs.run("--job", jobs.folder / "job.json", *jobs.of_hosts(), "--resume", "--detach")
        assert again.returncode == 0, again
        newest = again.stdout.strip()
        assert jobs.state(newest)["uuid"] == jobs.state(name)["uuid"]
        assert jobs.run("stop", "--now", newest).returncode == 0
        jobs.leaves_nothing()


def one_that_dies_meanwhile_is_waited_for(launcher, probe):
    with Jobs(launcher, ["n1"]) as jobs:
        name = begin_training(jobs, probe)
        victims = jobs.processes()
        with jobs.start("--job", jobs.folder / "job.json", *jobs.of_hosts(), "--resume", "--detach") as again:
            time.sleep(0.1)
            for pid in victims:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            newest, error = again.communicate(timeout=60)
        assert again.returncode == 0, error
        assert jobs.state(newest.strip())["uuid"] == jobs.state(name)["uuid"]
        assert jobs.run("stop", "--now", newest.strip()).returncode == 0
        jobs.leaves_nothing()


CASES = [hosts_are_prepared_and_join, a_lost_one_goes_on_in_its_folders, one_that_dies_meanwhile_is_waited_for]

if __name__ == "__main__":
    sys.exit(main(CASES, Arguments(2)))

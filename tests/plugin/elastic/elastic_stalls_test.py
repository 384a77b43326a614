#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Elastic jobs of which a rank is there and does not go on: who is given up, and who is waited for.

usage: elastic_stalls_test.py LAUNCHER ELASTIC_BITS [CASE...]
"""

import math
import os
import pathlib
import re
import signal
import sys
import tempfile

from elastic_changes_test import ElasticJob, OPEN, calm_bits

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../launcher/faults"))

from outside import Arguments, main, parent_of, patient  # noqa: E402


class HangingJob(ElasticJob):
    """Member 1 hangs in its own code after a step, where it holds up no collective that has begun."""

    def __init__(self, launcher, program, *options, **more):
        self.place = tempfile.TemporaryDirectory(prefix="chainmail-hang.")
        self.file = pathlib.Path(self.place.name, "now")
        self.output = pathlib.Path(self.place.name, "output")
        super().__init__(launcher, program, steps=OPEN, mode=(f"hang:{self.file}",),
                         options=("--output", self.output, *options), **more)

    def __exit__(self, *error):
        super().__exit__(*error)
        self.place.cleanup()

    def hang(self):
        self.file.touch()
        self.wait_for("hangs\n")


def stall_limit(seconds):
    """Seconds after which this machine may call a rank stalled: joining is no stall."""
    return math.ceil(min(patient(seconds), 12))


def a_rank_that_hangs_while_another_dies_is_given_up(launcher, program):
    limit = stall_limit(4)
    with HangingJob(launcher, program, "--stall-timeout", limit, ranks=3) as job:
        victim = job.members()[2]
        job.hang()
        os.kill(victim, signal.SIGKILL)
        job.wait_for(f"has not come to the end of its step within {limit} s, while the next world waited for it",
                     where="err")
        job.wait_for_world(3, seconds=60)
        job.ends(launcher, program)


def a_rank_that_hangs_is_given_up_and_not_a_newcomer(launcher, program):
    limit = stall_limit(3)
    with HangingJob(launcher, program, "--stall-timeout", limit) as job:
        job.wait_for("\nstep 40\n")
        job.join("n3")
        job.wait_for_world(3)
        job.hang()
        job.wait_for(f"member 1 on host n2 has stalled: no progress for {limit} s: stands at world ", where="err",
                     seconds=30)
        job.wait_for_world(3, seconds=60)
        job.ends(launcher, program)
        named = re.findall(r"^launcher: member (\d+) on host \S+ has stalled", job.text("err"), re.M)
        assert named == ["1"], job.all()


def a_spare_hides_no_rank_that_hangs(launcher, program):
    # Two of three make a world; the third waits since it has done some steps.
    limit = stall_limit(3)
    with HangingJob(launcher, program, "--stall-timeout", limit, "--cooldown", "100:100", sizes="2:4:2",
                    ranks=4) as job:
        os.kill(job.members()[3], signal.SIGKILL)
        job.wait_for_world(2)
        # Longer than the limit, of the spare.
        steps = job.text("out").count("\nstep ")
        job.wait_for("\nstep ", steps + 54 * limit, seconds=60)
        assert '"stalled"' not in (job.output / "events.jsonl").read_text(), job.all()
        job.hang()
        job.wait_for("member 1 on host n2 has stalled: ", where="err", seconds=30)
        job.wait_for_world(2)
        job.ends(launcher, program)


def a_job_that_is_done_is_not_ended_by_the_notice_of_one_host(launcher, program):
    with tempfile.TemporaryDirectory(prefix="chainmail-end.") as folder:
        file = pathlib.Path(folder, "now")
        with ElasticJob(launcher, program, steps=20, mode=(f"end:{file}",), waits=False) as job:
            job.wait_for("waits\n", 2, seconds=60)
            os.kill(parent_of(job.members()[1]), signal.SIGTERM)
            job.wait_for("is about to end", where="err")
            file.touch()
            job.ends_with_bits(calm_bits(launcher, program, "float32", 20))


CASES = [a_rank_that_hangs_while_another_dies_is_given_up, a_rank_that_hangs_is_given_up_and_not_a_newcomer,
         a_spare_hides_no_rank_that_hangs, a_job_that_is_done_is_not_ended_by_the_notice_of_one_host]

if __name__ == "__main__":
    sys.exit(main(CASES, Arguments(2)))

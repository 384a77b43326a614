#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Ranks of an elastic job that die at every point of a step and of a change: the others are together
again at once, no committed step is lost, each sample counts once, and the result is that of a calm job.

usage: elastic_faults_test.py LAUNCHER ELASTIC_LEDGER [CASE...]
       elastic_faults_test.py LAUNCHER ELASTIC_LEDGER --all ROUNDS   (each rank at each point)
"""

import os
import pathlib
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "faults"))

from ledger_job import IN_DEATH, IN_JOIN, IN_STEP, OF_NEWCOMER, LedgerJob  # noqa: E402
from outside import Arguments, main  # noqa: E402
from patience import patience  # noqa: E402

HOSTS = ["n1", "n2", "n3"]
# Of the points in a change, those that the suite has time for.
SOME_IN_CHANGE = ["state", "group", "held", "fetch_middle"]
SOME_OF_NEWCOMER = ["fetch_middle", "fetched"]


def are_soon_together(recoveries):
    """From a death until all others have the new world: three tenths of a second, at most one."""
    times = [time for time, _ in recoveries]
    longest, point = max(recoveries)
    slower = patience()
    print(f"{len(times)} deaths at a point; all others together again after {statistics.median(times):.3f} s "
          f"(median), at most {longest:.3f} s (in {point}); this machine is {slower:.1f} times slower "
          "than an idle one", flush=True)
    assert statistics.median(times) < 0.3 * slower and longest < slower, sorted(recoveries)


def ranks_die_in_a_step(launcher, program):
    with LedgerJob(launcher, program, HOSTS, "-n", 3, pause_ms=40, optimizer="own") as job:
        job.wait_for_world(3)
        for number, point in enumerate(IN_STEP):
            if len(job.world()[1]) < 2: job.wait_for_world(3)
            job.die_in_step(point, number)
        job.finish()
        job.ends_well()
        are_soon_together(job.ledger.recoveries())


def ranks_die_in_a_change(launcher, program):
    with LedgerJob(launcher, program, HOSTS, "-n", 3, pause_ms=40) as job:
        for number, point in enumerate(SOME_IN_CHANGE):
            job.wait_for_world(3)
            job.die_in_change(point, number)
        for point in SOME_OF_NEWCOMER:
            job.wait_for_world(3)
            job.die_while_joining(point)
        job.finish()
        job.ends_well()
        are_soon_together(job.ledger.recoveries())


def what_a_dead_rank_has_not_reported_another_one_reports(launcher, program):
    with LedgerJob(launcher, program, HOSTS, "-n", 3, pause_ms=40, steps_per_epoch=1) as job:
        job.wait_for_world(3)
        job.die_in_step("committed", 0)
        job.finish(margin=20)
        job.ends_well()


def a_rank_that_dies_as_the_job_ends_keeps_nobody_in_it(launcher, program):
    """Nor the one that takes its place, and does not know that the others have ended."""
    with LedgerJob(launcher, program, [*HOSTS, "n4"], "-n", 3, "--spares", 1, pause_ms=20, steps=80,
                   sizes="1:3") as job:
        pathlib.Path(job.data, "late").touch()
        job.wait_for_world(3)
        job.order(1, f"from {job.steps + 1} holding")  # a change in which shards move may come before
        job.ends_well(60)
        deaths = [kill.time / 1e9 for kill in job.ledger.kills if (kill.member, kill.point) == (1, "holding")]
        assert deaths and deaths[0] > job.ledger.commit_times()[80 - 1], job.all()
        assert [line[1] for line in job.log()].count("LOST") == 1, job.log()


CASES = [ranks_die_in_a_step, ranks_die_in_a_change, what_a_dead_rank_has_not_reported_another_one_reports,
         a_rank_that_dies_as_the_job_ends_keeps_nobody_in_it]


def everywhere(launcher, program, rounds):
    """Each rank at each point, `rounds` times, in jobs of three ranks."""
    recoveries = []
    for number in range(rounds):
        for rank in range(3):
            with LedgerJob(launcher, program, HOSTS, "-n", 3, pause_ms=40, optimizer="own") as job:
                for point in IN_STEP:
                    job.wait_for_world(3)
                    job.die_in_step(point, rank)
                job.finish()
                job.ends_well()
            with LedgerJob(launcher, program, HOSTS, "-n", 3, pause_ms=40) as change:
                for point in IN_DEATH + IN_JOIN:
                    change.wait_for_world(3)
                    change.die_in_change(point, rank)
                for point in OF_NEWCOMER:
                    change.wait_for_world(3)
                    change.die_while_joining(point)
                change.finish()
                change.ends_well()
            recoveries += job.ledger.recoveries() + change.ledger.recoveries()
            print(f"round {number + 1}, rank {rank}: {job.steps + change.steps} steps, "
                  f"{len(job.ledger.kills) + len(change.ledger.kills)} deaths at a point, ok", flush=True)
    are_soon_together(recoveries)


if __name__ == "__main__":
    if sys.argv[3:4] == ["--all"]:
        everywhere(*map(os.path.abspath, sys.argv[1:3]), int(sys.argv[4]))
        sys.exit(0)
    sys.exit(main(CASES, Arguments(2)))

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Elastic jobs whose program knows nothing of them, in moments that are rare: while hosts are prepared, while
nobody has said anything yet, while ranks are being started anew, and when hosts are about to end.

usage: moments_test.py LAUNCHER PROBE_RANK [CASE...]
"""

import contextlib
import os
import pathlib
import signal
import sys
import time

from fixed_job import RANK, UNTIL_DONE, FixedJob, probe, program, script, short_start
from outside import Arguments, main

# Ends slowly, so that something can happen meanwhile.
SLOW_TO_END = f"trap 'sleep 3; exit 0' TERM; {UNTIL_DONE}"
BY_HOST = "env CHAINMAIL_TEST_HOST=%h"


def notice(job, host):
    os.kill(job.agents(host)[-1], signal.SIGTERM)


def worlds(job):
    """Ranks by generation."""
    return {int(match[0]): len(job.ranks_of(int(match[0]))) for match in RANK.findall(job.text("out"))}


@contextlib.contextmanager
def discovery(text):
    with program('cat "$0.hosts"') as path:
        pathlib.Path(path + ".hosts").write_text(text)
        yield path


def hosts_are_prepared_one_after_the_other(launcher, path):
    with program("[ $CHAINMAIL_TEST_HOST = n1 ] || sleep 2") as prepare:
        with FixedJob(launcher, ["n1", "n2"], probe(path), "-n", 2, "--prepare", prepare, "--rsh",
                      BY_HOST) as job:
            job.wait_for_ranks(2)
            job.finish()


def a_preparation_may_take_longer_than_hosts_are_waited_for(launcher, path):
    with program("sleep 4") as prepare:
        with FixedJob(launcher, ["n1"], probe(path), "-n", 1, "--prepare", prepare,
                      "--elastic-timeout", 1) as job:
            job.wait_for_ranks(1)
            job.finish()


def where_no_success_file_can_be_made_hosts_are_prepared_once(launcher, path):
    with program("echo $CHAINMAIL_TEST_HOST >>$0.runs; [ $CHAINMAIL_TEST_HOST = n1 ] || sleep 2") as prepare:
        with FixedJob(launcher, ["n1"], probe(path), "-n", 1, "--prepare", prepare, "--rsh",
                      BY_HOST) as job:
            for host in "n1", "n2":
                os.symlink("/nowhere/at/all", os.path.join(job.files.name, f"prepare_data_success_{host}"))
            job.append("n2")
            last = job.wait_for_ranks(2)
            job.says("the next job prepares that host again")
            time.sleep(4)
            job.finish()
            assert max(worlds(job)) == last, job.all()
            runs = pathlib.Path(prepare + ".runs").read_text().split()
            # That of n2 may have been ended by a change, and begun anew.
            assert runs.count("n1") == 1 and runs.count("n2") <= 2, runs


def a_program_may_be_silent_for_longer_than_hosts_are_waited_for(launcher, _):
    with FixedJob(launcher, ["n1"], script(UNTIL_DONE), "-n", 1, "--elastic-timeout", 1) as job:
        job.wait_for_ranks(1, 0)
        time.sleep(4)
        pathlib.Path(job.files.name, "done").touch()
        job.ends_with(0)
        assert worlds(job) == {0: 1}, job.all()


def a_silent_program_that_loses_a_host_is_started_anew(launcher, _):
    for pause in 0, 3:
        with FixedJob(launcher, ["n1", "n2"], script(UNTIL_DONE), "-n", 2, "--start-timeout", 2,
                      "--lease", 3) as job:
            job.wait_for_ranks(2, 0)
            time.sleep(pause)
            os.kill(job.agents("n2")[-1], signal.SIGKILL)
            job.wait_for_ranks(2, 1)
            job.says("lost host n2: ")
            job.finish()
            assert worlds(job) == {0: 2, 1: 2}, job.all()


def a_rank_that_fails_beside_one_that_ends_well_is_started_anew(launcher, _):
    text = f"[ $CHAINMAIL_GENERATION != 0 ] || exit $((RANK * 5)); {UNTIL_DONE}"
    with FixedJob(launcher, ["n1", "n2"], script(text), "-n", 2) as job:
        job.wait_for_ranks(2, 1, seconds=20)
        job.says("exited with code 5")
        job.finish()


def a_host_that_is_prepared_while_a_program_is_silent_is_a_change(launcher, _):
    with program("[ $CHAINMAIL_TEST_HOST = n1 ] || sleep 1") as prepare:
        with FixedJob(launcher, ["n1", "n2"], script(UNTIL_DONE), "-n", 1, "--prepare", prepare, "--rsh",
                      BY_HOST, "--start-timeout", 4) as job:
            job.wait_for_ranks(1, 0)
            job.wait_for_ranks(2, 1)
            job.finish()
            assert worlds(job) == {0: 1, 1: 2}, job.all()


def one_that_does_not_answer_holds_nobody_up(launcher, path):
    shell = 'host=$1; shift; [ $host != n2 ] || exec sleep 300; exec "$@"'
    with program(shell) as remote:
        with FixedJob(launcher, ["n1", "n2"], probe(path), "-n", 1, "--rsh", remote,
                      "--elastic-timeout", 2) as job:
            job.wait_for_ranks(1, seconds=15)
            job.finish()


def notices_may_come_while_ranks_end(launcher, _):
    with FixedJob(launcher, ["n1", "n2", "n3"], script(SLOW_TO_END), "-n", 1, "--start-timeout", short_start()) as job:
        job.wait_for_ranks(3, 0)
        time.sleep(2)
        notice(job, "n3")
        job.wait_for("a host is about to end", where="err")
        time.sleep(0.5)
        notice(job, "n2")
        job.wait_for_ranks(1, 1)
        job.finish()
        assert worlds(job) == {0: 3, 1: 1}, job.all()


def notices_to_all_hosts_end_the_job(launcher, path):
    with FixedJob(launcher, ["n1", "n2"], probe(path), "-n", 1) as job:
        job.wait_for_ranks(2)
        for host in "n1", "n2": notice(job, host)
        job.ends_with(143, 40)
        assert worlds(job) == {1: 2}, job.all()
        job.leaves_nothing()
    # The last of them while ranks end.
    with FixedJob(launcher, ["n1", "n2"], script(SLOW_TO_END), "-n", 1, "--start-timeout", short_start()) as job:
        job.wait_for_ranks(2, 0)
        time.sleep(2)
        notice(job, "n2")
        job.wait_for("a host is about to end", where="err")
        time.sleep(0.5)
        notice(job, "n1")
        job.ends_with(143, 40)
        assert worlds(job) == {0: 2}, job.all()


def a_host_that_is_prepared_may_end(launcher, path):
    with program("[ $CHAINMAIL_TEST_HOST = n1 ] || sleep 300") as prepare:
        with FixedJob(launcher, ["n1"], probe(path), "-n", 1, "--prepare", prepare, "--rsh",
                      BY_HOST) as job:
            first = job.wait_for_ranks(1)
            job.append("n2")
            job.wait_for("prepare_data_success_n2 not found yet", where="err")
            job.wait_for_agent("n2")
            notice(job, "n2")
            job.wait_for("Got notice that host:n2 is about to end", where="err")
            time.sleep(1)
            job.finish()
            assert set(worlds(job)) == {first}, job.all()


def who_is_about_to_end_stays_away_until_somebody_edits_the_file(launcher, path):
    with FixedJob(launcher, ["n1", "n2"], probe(path), "-n", 1) as job:
        first = job.wait_for_ranks(2)
        notice(job, "n2")
        second = job.wait_for_ranks(1, first + 1)
        os.kill(job.ranks_of(second)[0][-1], signal.SIGKILL)
        job.wait_for_ranks(1, second + 1)
        job.edit("n1", "n2", "# it is there again")
        job.wait_for_ranks(2, second + 2)
        job.finish()


def or_discovers_other_hosts(launcher, path):
    with discovery("n1\nn2\n") as hosts:
        with FixedJob(launcher, None, probe(path), "-n", 1, "--host-discovery", hosts,
                      "--discovery-interval", 0.5) as job:
            first = job.wait_for_ranks(2)
            notice(job, "n2")
            second = job.wait_for_ranks(1, first + 1)
            time.sleep(3)
            assert max(worlds(job)) == second, job.all()
            pathlib.Path(hosts + ".hosts").write_text("n1\nn2\nn3\n")
            job.wait_for_ranks(3, second + 1)
            pathlib.Path(job.files.name, "done").touch()
            job.ends_with(0)


def a_program_that_has_ended_on_a_rank_is_not_begun_again(launcher, _):
    text = f"[ $CHAINMAIL_GENERATION.$RANK != 1.0 ] || exit 0; {UNTIL_DONE}"
    start = short_start()
    with FixedJob(launcher, ["n1", "n2"], script(text), "-n", 2, "--start-timeout", start) as job:
        job.wait_for_ranks(2, 0)
        job.append("n3")
        second = job.wait_for_ranks(3, 1)
        job.append("n4")
        time.sleep(start + 3)
        job.finish()
        assert worlds(job) == {0: 2, second: 3}, job.all()


def a_notice_ends_nobody_where_the_program_is_about_to_end(launcher, _):
    text = f"[ $CHAINMAIL_GENERATION.$RANK != 1.0 ] || exit 0; {UNTIL_DONE}"
    with FixedJob(launcher, ["n1", "n2"], script(text), "-n", 2, "--start-timeout", short_start()) as job:
        job.wait_for_ranks(2, 0)
        job.append("n3")
        second = job.wait_for_ranks(3, 1)
        job.wait_for_event("rank_exited", lambda event: event["rank"] == 0 and event.get("code") == 0)
        notice(job, "n1")
        job.wait_for("Got notice that host:n1 is about to end", where="err")
        time.sleep(1)
        job.finish()
        assert worlds(job) == {0: 2, second: 3}, job.all()


CASES = [
    hosts_are_prepared_one_after_the_other,
    a_preparation_may_take_longer_than_hosts_are_waited_for,
    where_no_success_file_can_be_made_hosts_are_prepared_once,
    a_program_may_be_silent_for_longer_than_hosts_are_waited_for,
    a_silent_program_that_loses_a_host_is_started_anew,
    a_rank_that_fails_beside_one_that_ends_well_is_started_anew,
    a_host_that_is_prepared_while_a_program_is_silent_is_a_change,
    one_that_does_not_answer_holds_nobody_up,
    notices_may_come_while_ranks_end,
    notices_to_all_hosts_end_the_job,
    a_host_that_is_prepared_may_end,
    who_is_about_to_end_stays_away_until_somebody_edits_the_file,
    or_discovers_other_hosts,
    a_program_that_has_ended_on_a_rank_is_not_begun_again,
    a_notice_ends_nobody_where_the_program_is_about_to_end,
]

if __name__ == "__main__":
    sys.exit(main(CASES, Arguments(2)))

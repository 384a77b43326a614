#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Elastic jobs whose program knows nothing of them: a change of hosts starts all ranks anew.

usage: changes_test.py LAUNCHER PROBE_RANK [CASE...]
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from fixed_job import ADVICE, RANK, UNTIL_DONE, FixedJob, probe, program, script, short_start
from outside import Arguments, Job, command_of, main, patient


def a_change_of_hosts_starts_all_anew(launcher, path):
    with FixedJob(launcher, ["n1", "n2"], probe(path), "-n", 2) as job:
        first = job.wait_for_ranks(2)
        assert first == 1, job.all()
        job.says("has asked for a communicator of fixed size: " + ADVICE)
        before = {rank[-1] for rank in job.ranks_of(first)}
        job.append("n3 slots=2")
        second = job.wait_for_ranks(4, first + 1)
        assert second == first + 1, job.all()
        ranks = job.ranks_of(second)
        assert [rank[2:5] for rank in ranks] == [(0, 1, 0), (0, 1, 1), (0, 2, 2), (1, 2, 2)], ranks
        assert before.isdisjoint(rank[-1] for rank in ranks), ranks
        assert job.members() == ["n1", "n2", "n3", "n3"], job.log()
        job.says("launcher: the hosts have changed: all ranks are ended, to be started anew")
        job.edit("n1", "n2")
        third = job.wait_for_ranks(2, second + 1)
        assert third == second + 1, job.all()
        job.finish()
        assert job.members() == ["n1", "n2"], job.log()


def hosts_beyond_the_first_ones_are_there_at_once(launcher, path):
    with FixedJob(launcher, ["n1", "n2 slots=2"], probe(path), "-n", 1, sizes="1:2") as job:
        assert job.wait_for_ranks(2) == 1, job.all()
        job.finish()


def a_list_of_hosts_will_do(launcher, path):
    with Job(launcher, "-H", "localhost:2", "--elastic", "1:2", path, "fixed", "/") as job:
        job.wait_for("generation 1 rank 1 of 2")
        os.kill(job.ranks()[0], signal.SIGKILL)
        job.wait_for("generation 2 rank 1 of 2")
        job.process.terminate()
        job.ends_with(143, 10)
        job.leaves_nothing()


def base_hosts_and_unclear_files_change_nothing(launcher, path):
    with FixedJob(launcher, ["n1", "n2"], probe(path), "-n", 2) as job:
        first = job.wait_for_ranks(2)
        job.edit("n1")
        job.wait_for("Refused host:n2: the hosts of -n stay", where="err")
        job.write("n1\nn")
        job.wait_for("the last line has no end", where="err")
        job.write("")
        job.wait_for("Refused the hosts file: an empty hosts file drains no host", where="err")
        time.sleep(3)
        job.finish()
        assert {match[0] for match in RANK.findall(job.text("out"))} == {str(first)}, job.all()


def reapers(job):
    """Those who outlive the launcher, by what they do; agents have some, too, which end at any time."""
    found = {}
    for pid in job.processes():
        name, *words = command_of(pid) or [b""]
        if name == b"job-reaper" and words and words[0] in (b"--keep-lock", b"--outlive"): found[words[0]] = pid
    return found


def who_outlives_the_launcher_is_there_again_after_the_loss_of_its_own_agent(launcher, path):
    """With which all children of the launcher end."""
    with FixedJob(launcher, ["localhost", "n2"], probe(path), "-n", 2) as job:
        first = job.wait_for_ranks(2)
        before = reapers(job)
        assert set(before) == {b"--keep-lock", b"--outlive"}, before
        os.kill(job.agents("localhost")[-1], signal.SIGKILL)
        job.wait_for_ranks(2, first + 1)
        after = reapers(job)
        assert after.keys() == before.keys() and not set(after.values()) & set(before.values()), (before, after)
        job.finish()


def a_failure_starts_all_anew_and_three_end_the_job(launcher, path):
    with FixedJob(launcher, ["n1", "n2"], probe(path), "-n", 2) as job:
        for generation in 1, 2, 3:
            assert job.wait_for_ranks(2, generation) == generation, job.all()
            os.kill(job.ranks_of(generation)[1][-1], signal.SIGKILL)
            job.wait_for("launcher: rank 1 on host n2 was killed by signal 9", generation, where="err")
        job.ends_with(137, 20)
        job.says("launcher: all ranks are started anew (failure 2; 3 in a row end the job)")
        job.says("launcher: that was the failure number 3 in a row, each within 10 minutes: the job ends")
        job.leaves_nothing()


def changes_are_limited(launcher, path):
    with FixedJob(launcher, ["n1"], probe(path), "-n", 1, "--max-changes", 1) as job:
        first = job.wait_for_ranks(1)
        job.append("n2")
        second = job.wait_for_ranks(2, first + 1)
        refused = subprocess.run([launcher, "add", job.hosts, "n3"], capture_output=True, text=True, check=False,
                                 timeout=patient(60))
        assert refused.returncode == 2 and "no change is left of --max-changes" in refused.stderr, refused
        job.append("n3")
        time.sleep(3)
        os.kill(job.ranks_of(second)[0][-1], signal.SIGKILL)
        job.ends_with(137, 20)
        job.says("launcher: no change is left of --max-changes 1: the job ends")


def a_lost_host_is_lost_and_comes_back(launcher, path):
    with FixedJob(launcher, ["n1", "n2"], probe(path), "-n", 2, "--lease", 3) as job:
        first = job.wait_for_ranks(2)
        os.kill(job.agents("n2")[-1], signal.SIGKILL)
        job.wait_for_ranks(2, first + 1)
        job.says("launcher: lost host n2: ")
        job.finish()


def a_host_out_of_reach_holds_nobody_up(launcher, path):
    shell = "case $1 in n2) test -e $0.up || { echo 'ssh: connect to host n2 port 22: No route to " \
            "host' >&2; exit 255; } ;; esac; shift; exec \"$@\""
    with program(shell) as remote:
        with FixedJob(launcher, ["n1", "n2"], probe(path), "-n", 2, "--rsh", remote, "--cooldown",
                      "1:1") as job:
            first = job.wait_for_ranks(1)
            job.says("| ssh: connect to host n2 port 22: No route to host")
            pathlib.Path(remote + ".up").touch()
            job.wait_for_ranks(2, first + 1)
            job.finish()


def a_host_that_is_about_to_end_is_left(launcher, path):
    with FixedJob(launcher, ["n1", "n2"], probe(path), "-n", 2) as job:
        first = job.wait_for_ranks(2)
        os.kill(job.agents("n2")[-1], signal.SIGTERM)
        job.wait_for("Got notice that host:n2 is about to end", where="err")
        job.wait_for("the hosts have changed: all ranks are ended", where="err")
        second = job.wait_for_ranks(1, first + 1)
        assert second == first + 1 and job.members() == ["n1"], job.log()
        # Whoever edits the file says that it is there.
        job.edit("n1", "n2", "n3")
        job.wait_for_ranks(3, second + 1)
        job.finish()
    with FixedJob(launcher, ["n1", "n2"], script(UNTIL_DONE), "-n", 2, "--start-timeout", short_start()) as job:
        job.wait_for_ranks(2, 0)
        time.sleep(2)
        os.kill(job.agents("n2")[-1], signal.SIGTERM)
        job.wait_for_ranks(1, 1)
        job.says("launcher: a host is about to end, and no rank has said anything: " + ADVICE)
        job.finish()


def the_gate_is_respected(launcher, path):
    with FixedJob(launcher, ["n1"], probe(path), "-n", 1, "--prepare-only-file") as job:
        job.wait_for("prepare_data_success_n1 not found yet", where="err")
        pathlib.Path(job.files.name, "prepare_data_success_n1").touch()
        first = job.wait_for_ranks(1)
        job.append("n2")
        job.wait_for("prepare_data_success_n2 not found yet", where="err")
        time.sleep(2)
        assert job.ranks_of(first + 1) == [], job.all()
        pathlib.Path(job.files.name, "prepare_data_success_n2").touch()
        assert job.wait_for_ranks(2, first + 1) == first + 1, job.all()
        job.finish()


def a_job_ends_while_a_host_is_prepared(launcher, path):
    with program("case $CHAINMAIL_TEST_HOST in n1) exit 0 ;; esac; sleep 300") as prepare:
        with FixedJob(launcher, ["n1"], probe(path), "-n", 1, "--prepare", prepare, "--rsh",
                      "env CHAINMAIL_TEST_HOST=%h") as job:
            job.wait_for_ranks(1)
            job.append("n2")
            job.wait_for("prepare_data_success_n2 not found yet", where="err")
            job.finish()


def a_preparation_that_makes_its_file_itself_ends_nothing(launcher, path):
    # Its agent may say that it has ended well when the gate has let it go: no rank has.
    with program("case $CHAINMAIL_TEST_HOST in n1) exit 0 ;; esac; "
                 "exec touch $(cat $0.folder)/prepare_data_success_$CHAINMAIL_TEST_HOST") as prepare:
        with FixedJob(launcher, ["n1"], probe(path), "-n", 1, "--prepare", prepare, "--rsh",
                      "env CHAINMAIL_TEST_HOST=%h") as job:
            pathlib.Path(prepare + ".folder").write_text(job.files.name)
            generation = job.wait_for_ranks(1)
            for size in 2, 3, 4:
                job.append(f"n{size}")
                generation = job.wait_for_ranks(size, generation + 1)
            job.finish()


def a_program_that_says_nothing_is_one_of_them(launcher, _):
    with FixedJob(launcher, ["n1", "n2"], script(UNTIL_DONE), "-n", 2, "--start-timeout", 3) as job:
        job.wait_for_ranks(2, 0)
        job.append("n3")
        # A program that is slow to start may say something yet.
        second = job.wait_for_ranks(3, 1)
        assert second == 1 and len(job.ranks_of(0)) == 2, job.all()
        job.says("launcher: the hosts have changed, and no rank has said anything: " + ADVICE)
        job.edit("n1", "n2")
        job.wait_for_ranks(2, second + 1)
        job.finish()


def one_that_says_nothing_and_fails_is_started_anew(launcher, _):
    for seconds in 0, 5:
        text = f"[ $CHAINMAIL_GENERATION.$RANK != 0.1 ] || {{ sleep {seconds}; exit 3; }}; {UNTIL_DONE}"
        with FixedJob(launcher, ["n1", "n2"], script(text), "-n", 2, "--start-timeout", 3) as job:
            job.wait_for_ranks(2, 0)
            job.wait_for_ranks(2, 1)
            assert len(job.ranks_of(0)) == 2, job.all()
            job.says("launcher: no rank has said anything: " + ADVICE)
            job.says("member 1 on host n2 exited with code 3")
            job.finish()


def commands_go_to_whoever_runs_now(launcher, path):
    def command(*words):
        return subprocess.run([launcher, *words], capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL, check=False)

    with FixedJob(launcher, ["n1", "n2"], probe(path), "-n", 2) as job:
        first = job.wait_for_ranks(2)
        added = command("add", job.hosts, "n3")
        assert added.returncode == 0, added
        second = job.wait_for_ranks(3, first + 1)
        status = command("status", job.hosts)
        assert status.returncode == 0 and "member 2 is rank 2" in status.stdout, status
        drained = command("drain", job.hosts, "n3")
        assert drained.returncode == 0, drained
        job.wait_for_ranks(2, second + 1)
        job.finish()


def one_that_ends_well_ends_the_job(launcher, _):
    with FixedJob(launcher, ["n1", "n2"], script("exit 0"), "-n", 2) as job:
        job.ends_with(0)
        assert len(job.ranks_of(0)) == 2, job.all()
        job.leaves_nothing()


def ranks_have_time_to_save(launcher, _):
    text = f"trap 'sleep 2; echo saved $RANK; exit 0' TERM; {UNTIL_DONE}"
    with FixedJob(launcher, ["n1", "n2"], script(text), "-n", 2, "--start-timeout", short_start()) as job:
        job.wait_for_ranks(2, 0)
        job.append("n3")
        job.wait_for_ranks(3, 1)
        assert sorted(re.findall(r"saved (\d)", job.text("out"))) == ["0", "1"], job.all()
        job.finish()


def those_that_do_not_end_are_killed(launcher, _):
    text = f"trap '' TERM; {UNTIL_DONE}"
    with FixedJob(launcher, ["n1"], script(text), "-n", 1, "--start-timeout", short_start(), "--grace", 1) as job:
        job.wait_for_ranks(1, 0)
        job.append("n2")
        job.wait_for_ranks(2, 1)
        job.finish()


def a_signal_ends_all(launcher, path):
    with FixedJob(launcher, ["n1", "n2"], probe(path), "-n", 2, "--grace", 1) as job:
        job.wait_for_ranks(2)
        job.process.terminate()
        job.ends_with(143, 10)
        assert job.ranks_of(2) == [], job.all()
        job.leaves_nothing()
    # While ranks are ended for another reason.
    text = f"trap 'echo ending $RANK; sleep 100' TERM; {UNTIL_DONE}"
    with FixedJob(launcher, ["n1"], script(text), "-n", 1, "--start-timeout", short_start(), "--grace", 60) as job:
        job.wait_for_ranks(1, 0)
        job.append("n2")
        job.wait_for("ending 0")
        job.process.terminate()
        job.ends_with(143, 20)
        job.says_not("generation 1")
        job.leaves_nothing()


def too_few_for_too_long_end_the_job(launcher, path):
    shell = "test $1.$(test -e $0.down; echo $?) != n2.0 || exit 255; shift; exec \"$@\""
    with program(shell) as remote:
        with FixedJob(launcher, ["n1", "n2"], probe(path), "-n", 2, "--rsh", remote, "--lease", 3,
                      "--elastic-timeout", 2, sizes="2:4") as job:
            job.wait_for_ranks(2)
            pathlib.Path(remote + ".down").touch()
            os.kill(job.agents("n2")[-1], signal.SIGKILL)
            job.ends_with(125, 60)
            job.says("launcher: fewer ranks than the minimum for too long")
            job.leaves_nothing()


CASES = [
    a_change_of_hosts_starts_all_anew,
    hosts_beyond_the_first_ones_are_there_at_once,
    a_list_of_hosts_will_do,
    base_hosts_and_unclear_files_change_nothing,
    who_outlives_the_launcher_is_there_again_after_the_loss_of_its_own_agent,
    a_failure_starts_all_anew_and_three_end_the_job,
    changes_are_limited,
    a_lost_host_is_lost_and_comes_back,
    a_host_out_of_reach_holds_nobody_up,
    a_host_that_is_about_to_end_is_left,
    the_gate_is_respected,
    a_job_ends_while_a_host_is_prepared,
    a_preparation_that_makes_its_file_itself_ends_nothing,
    a_program_that_says_nothing_is_one_of_them,
    one_that_says_nothing_and_fails_is_started_anew,
    commands_go_to_whoever_runs_now,
    one_that_ends_well_ends_the_job,
    ranks_have_time_to_save,
    those_that_do_not_end_are_killed,
    a_signal_ends_all,
    too_few_for_too_long_end_the_job,
]

if __name__ == "__main__":
    sys.exit(main(CASES, Arguments(2)))

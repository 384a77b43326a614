#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Elastic jobs from outside: hosts that come and go, and members that end as they should not.

usage: elastic_test.py LAUNCHER ELASTIC_PROBE SIMULATE [CASE...]
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys

from elastic_job import ElasticJob, SHELL, program
from outside import Arguments, Job, main


def a_job_without_changes_ends_when_its_members_do(*programs):
    with ElasticJob(programs, ["n1", "n2"], "-n", 2) as job:
        job.ends_with(0)
        assert [line[1:3] for line in job.log()] == [("ADDED", "n1"), ("ADDED", "n2")], job.log()
        notes = job.notes()
        assert notes == [
            f"Created worker host file {job.hosts}", f"Created worker host log file {job.hosts}_log",
            "Launching worker node at ip: n1", "Launching worker node at ip: n2",
            "Added host:n1 to new worker host", "Added host:n2 to new worker host"], notes
        assert len(job.events("world_changed")) == 1, job.events("world_changed")
        job.is_sound()


def a_job_without_a_file_has_the_hosts_of_the_list(*programs):
    launcher, probe, _ = programs
    with Job(launcher, "-H", "localhost:3", "--elastic", "1:2", probe) as job:
        job.ends_with(0)
        assert job.text("out").count("world 1 ") == 2, job.all()
        assert job.text("out").count("left") == 2, job.all()


def a_line_more_is_a_member_more(*programs):
    with ElasticJob(programs, ["n1", "n2"], "-n", 2, probe=("--steps", 100)) as job:
        job.wait_for_commit(1)
        before = job.pids()
        job.append("n3")
        world = job.wait_for_world(3)
        job.wait_for_commit(world)
        assert {member: job.pids()[member] for member in before} == before, job.all()
        job.ends_with(0, 40)
        joined = [line for line in job.log() if line[2] == "n3"]
        assert [line[1] for line in joined] == ["ADDED"] and joined[0][6] == "joined", job.log()
        change = job.events("world_changed")[-1]
        assert change["size"] == 3 and change["redone"] == 0 and change["donors"] == [0, 1], change
        assert job.events("member_pending")[-1]["member"] == 2, job.events("member_pending")
        job.is_sound()


def a_line_less_drains_its_member(*programs):
    with ElasticJob(programs, ["n1", "n2"], "-n", 1, probe=("--steps", 120)) as job:
        world = job.wait_for_world(2)
        job.wait_for_commit(world)
        job.edit("n1")
        world = job.wait_for_world(1, world + 1)
        job.wait_for("left")
        job.ends_with(0, 40)
        last = job.log()[-1]
        assert last[1:3] == ("REMOVED", "n2") and last[6] == "drained", job.log()
        notes = job.notes()
        assert "Got removing line for host:n2" in notes, notes
        assert any(re.fullmatch(r"Removed host:n2 at step \d+", note) for note in notes), notes
        exits = [event for event in job.events("rank_exited") if event["rank"] == 1]
        assert [event["code"] for event in exits] == [0], exits
        job.is_sound()


def slots_are_lines_as_well(*programs):
    with ElasticJob(programs, ["n1 slots=1"], probe=("--steps", 150)) as job:
        job.wait_for_commit(job.wait_for_world(1))
        job.edit("n1 slots=3")
        world = job.wait_for_world(3, 2)
        job.wait_for_commit(world)
        # Each takes a place of its own, and all count the same number of threads.
        ups = re.findall(r"^up (\d+) \d+ of (\d)/(\d) threads (\d+)", job.text("out"), re.M)
        assert sorted(up[1] for up in ups) == ["0", "1", "2"], ups
        assert len({up[3] for up in ups}) == 1, ups
        job.edit("n1 slots=2")
        job.wait_for_world(2, world + 1)
        job.ends_with(0, 40)
        job.is_sound()


def base_hosts_stay(*programs):
    with ElasticJob(programs, ["n1", "n2"], "-n", 2, probe=("--steps", 160)) as job:
        job.wait_for_commit(job.wait_for_world(2))
        job.edit("n1")
        job.wait_for("Refused host:n2: the hosts of -n stay", where="err")
        job.write("")
        job.wait_for("Refused the hosts file: an empty hosts file drains no host", where="err")
        job.ends_with(0, 40)
        assert {generation for generation, _, _ in job.commits()} == {"1"}, job.all()
        assert [line[1] for line in job.log()] == ["ADDED", "ADDED", "REFUSED", "REFUSED"]
        job.is_sound()


def a_file_that_cannot_be_read_with_certainty_is_ignored(*programs):
    with ElasticJob(programs, ["n1", "n2"], "-n", 1, probe=("--steps", 120)) as job:
        job.wait_for_commit(job.wait_for_world(2))
        job.write("n1\nn")
        job.wait_for(f"{job.hosts}:2:2: the last line has no end", where="err")
        job.write("n1\nn2 slots=x\n")
        job.wait_for(f"{job.hosts}:2:10: ", where="err")
        job.write("n1\nn2\nn1\n")
        job.wait_for(f"{job.hosts}:3:1: host n1 is named again", where="err")
        os.remove(job.hosts)
        job.wait_for(f"cannot open hosts file {job.hosts}", where="err")
        job.write("n1\r\nn2\r\nn3\r\n")
        job.wait_for_world(3)
        job.ends_with(0, 40)
        assert [line[1] for line in job.log()] == ["ADDED"] * 3, job.log()
        assert len(job.events("hosts_file_ignored")) == 3, job.events("hosts_file_ignored")
        job.is_sound()


def the_others_go_on_without_one_that_was_killed(*programs):
    with ElasticJob(programs, ["n1", "n2", "n3"], "-n", 3, "--cooldown", "1:1",
                    probe=("--steps", 200)) as job:
        job.wait_for_commit(job.wait_for_world(3))
        before = job.pids()
        os.kill(before[1], signal.SIGKILL)
        world = job.wait_for_world(2, 2)
        job.wait_for_commit(world)
        # Its host is tried again.
        world = job.wait_for_world(3, world + 1)
        job.wait_for_commit(world)
        pids = job.pids()
        assert pids[0] == before[0] and pids[2] == before[2] and 3 in pids, job.all()
        job.ends_with(0, 60)
        lost = [line for line in job.log() if line[1] == "LOST"]
        assert [(line[2], line[6]) for line in lost] == [
            ("n2", "was killed by signal 9 (Killed)")], job.log()
        assert job.events("world_changed")[1]["redone"] == 1, job.events("world_changed")
        job.is_sound()


def one_that_is_stopped_is_expelled(*programs):
    with ElasticJob(programs, ["n1", "n2"], "-n", 2, "--cooldown", "100:100",
                    probe=("--steps", 100)) as job:
        job.wait_for_commit(job.wait_for_world(2))
        os.kill(job.pids()[1], signal.SIGSTOP)
        job.wait_for("member 1 on host n2 has been stopped", where="err")
        job.wait_for_commit(job.wait_for_world(1, 2))
        job.ends_with(0, 40)
        lost = [line for line in job.log() if line[1] == "LOST"]
        assert [line[6] for line in lost] == ["stopped by a signal for too long"], job.log()
        job.says("member 1 on host n2 has been ended by the launcher")
        job.is_sound()


def fewer_than_the_minimum_wait(*programs):
    with ElasticJob(programs, ["n1", "n2"], "-n", 2, "--cooldown", "2:2", sizes="2:4",
                    probe=("--steps", 60)) as job:
        job.wait_for_commit(job.wait_for_world(2))
        os.kill(job.pids()[1], signal.SIGKILL)
        world = job.wait_for_world(2, 2)
        job.ends_with(0, 40)
        # The one that was left said what it had committed, and went on with another from there.
        assert world == 3, job.all()
        assert {generation for generation, _, _ in job.commits()} == {"1", "3"}, job.all()
        job.is_sound()


def too_few_for_too_long_save_and_end(*programs):
    with ElasticJob(programs, ["n1", "n2"], "-n", 2, "--cooldown", "100:100", "--elastic-timeout",
                    1, sizes="2:4", probe=("--steps", 1000)) as job:
        job.wait_for_commit(job.wait_for_world(2))
        os.kill(job.pids()[1], signal.SIGKILL)
        job.ends_with(125, 30)
        job.says("launcher: fewer ranks than the minimum for too long")
        assert re.search(r"^saved \d+", job.text("out"), re.M), job.all()
        assert len(job.events("last_will")) == 1, job.events("last_will")
        job.is_sound()


def three_deaths_at_one_step_end_the_job(*programs):
    with ElasticJob(programs, ["n1 slots=4"], "-n", 4, "--cooldown", "100:100",
                    probe=("--steps", 1000, "--crash", "5:3")) as job:
        job.ends_with(3, 40)
        job.says("launcher: members died 3 times in the step after 4: exited with code 3")
        job.says("member 3 on host n1 exited with code 3; the last lines of its stderr:\n"
                 "  | no more at step 5")
        job.is_sound()


def a_host_that_is_about_to_end_is_drained(*programs):
    with ElasticJob(programs, ["n1", "n2"], "-n", 2, probe=("--steps", 120)) as job:
        job.wait_for_commit(job.wait_for_world(2))
        agents = [event["pid"] for event in job.events("agent_up") if event["host"] == "n2"]
        os.kill(agents[0], signal.SIGTERM)
        job.wait_for_commit(job.wait_for_world(1, 2))
        job.ends_with(0, 40)
        last = job.log()[-1]
        assert last[1:3] == ("REMOVED", "n2") and last[6] == "drained", job.log()
        job.is_sound()


def notice_to_the_last_host_waits_for_one_that_starts_again(*programs):
    with ElasticJob(programs, ["n1", "n2"], "-n", 2, "--cooldown", "3:3", probe=("--steps", 200)) as job:
        job.wait_for_commit(job.wait_for_world(2))
        agents = [event["pid"] for event in job.events("agent_up") if event["host"] == "n2"]
        os.kill(job.pids()[0], signal.SIGKILL)
        job.wait_for_commit(job.wait_for_world(1, 2))
        os.kill(agents[0], signal.SIGTERM)
        job.ends_with(0, 60)
        changes = [(line[1], line[2]) for line in job.log()]
        assert changes[2:] == [("LOST", "n1"), ("ADDED", "n1"), ("REMOVED", "n2")], job.log()
        job.is_sound()


def notice_for_all_hosts_is_the_end(*programs):
    with ElasticJob(programs, ["n1", "n2"], "-n", 2, "--grace", 1, probe=("--steps", 1000)) as job:
        job.wait_for_commit(job.wait_for_world(2))
        for event in job.events("agent_up"):
            os.kill(event["pid"], signal.SIGTERM)
        job.ends_with(143, 20)
        job.says("SIGTERM to the agent on host ")
        job.leaves_nothing()


def a_spare_takes_the_place_of_a_lost_member(*programs):
    with ElasticJob(programs, ["n1", "n2", "n3"], "-n", 2, "--spares", 1, "--cooldown", "100:100",
                    sizes="1:2", probe=("--steps", 80)) as job:
        job.wait_for_commit(job.wait_for_world(2))
        job.wait_for("up 2 ")
        os.kill(job.pids()[1], signal.SIGKILL)
        world = job.wait_for_world(2, 2)
        job.wait_for_commit(world)
        job.ends_with(0, 40)
        assert job.log()[-1][1:3] == ("ADDED", "n3"), job.log()
        job.is_sound()


def sizes_are_multiples(*programs):
    with ElasticJob(programs, ["n1 slots=2"], "-n", 2, sizes="2:4:2",
                    probe=("--steps", 140)) as job:
        job.wait_for_commit(job.wait_for_world(2))
        job.append("n2")
        job.wait_for("up 2 ")
        job.edit("n1 slots=2", "n2 slots=2")
        world = job.wait_for_world(4, 2)
        assert world == 2, job.all()
        job.ends_with(0, 40)
        job.is_sound()


def a_lost_host_is_lost_and_comes_back(*programs):
    with ElasticJob(programs, ["n1", "n2 slots=2"], "-n", 3, "--cooldown", "1:1",
                    probe=("--steps", 160)) as job:
        job.wait_for_commit(job.wait_for_world(3))
        agents = [event["pid"] for event in job.events("agent_up") if event["host"] == "n2"]
        os.kill(agents[0], signal.SIGKILL)
        world = job.wait_for_world(1, 2)
        job.wait_for_commit(world)
        job.wait_for_commit(job.wait_for_world(3, world + 1))
        job.ends_with(0, 40)
        job.says("launcher: lost host n2: ")
        assert [line[1:3] for line in job.log()][3:] == [
            ("LOST", "n2"), ("LOST", "n2"), ("ADDED", "n2"), ("ADDED", "n2")], job.log()
        job.is_sound()


def a_host_that_cannot_be_reached_holds_nobody_up(*programs):
    with ElasticJob(programs, ["n1"], "-n", 1, "--cooldown", "1:1", probe=("--steps", 100)) as job:
        job.wait_for_commit(job.wait_for_world(1))
        job.append("n2 port=22")
        job.wait_for("launcher: user and port of host n2 are for ssh", where="err")
        job.ends_with(0, 40)
        assert {generation for generation, _, _ in job.commits()} == {"1"}, job.all()
        job.is_sound()


def a_host_that_is_down_is_named_and_tried_again(*programs):
    shell = "case $1 in n2) test -e $0.up || { echo 'ssh: connect to host n2 port 22: No route to " \
            "host' >&2; exit 255; } ;; esac; shift; exec \"$@\""
    with program(shell) as path:
        with ElasticJob(programs, ["n1", "n2"], "-n", 2, "--rsh", path, "--cooldown", "1:1",
                        probe=("--steps", 120)) as job:
            # The first world begins with those that are there.
            job.wait_for_commit(job.wait_for_world(1))
            job.says("launcher: there is no route to host n2")
            job.says("| ssh: connect to host n2 port 22: No route to host")
            pathlib.Path(path + ".up").touch()
            job.wait_for_commit(job.wait_for_world(2, 2))
            job.ends_with(0, 40)
            job.is_sound()


@contextlib.contextmanager


def a_program_that_cannot_be_run_ends_the_job(*programs):
    launcher, _, _ = programs
    with Job(launcher, "-H", "localhost:2", "--elastic", "1:2", "./no-such-program") as job:
        job.ends_with(127)
        job.says("program not found on host localhost: ./no-such-program")
    with Job(launcher, "-H", "localhost:2", "--elastic", "1:2", "sh", "-c",
             "echo bad >&2; exit 4") as job:
        job.ends_with(4)
        job.says("no rank has come to create_elastic_job")
    # As of any other program, the code of the one that fails.
    with Job(launcher, "-H", "localhost:2", "--elastic", "1:2", "sh", "-c",
             "sleep 0.$RANK; exit $((RANK * 5))") as job:
        job.ends_with(5)


def a_signal_ends_all(*programs):
    with ElasticJob(programs, ["n1", "n2"], "-n", 2, "--grace", 1, probe=("--steps", 1000)) as job:
        job.wait_for_commit(job.wait_for_world(2))
        job.process.terminate()
        job.ends_with(143, 10)
        job.leaves_nothing()


def a_hosts_file_is_of_one_job(*programs):
    with ElasticJob(programs, ["n1", "n2"], "-n", 2, probe=("--steps", 200)) as job:
        job.wait_for_commit(1)
        again = subprocess.run([programs[0], "-H", job.hosts, "--rsh", SHELL, "--elastic", "1:4",
                                job.probe], capture_output=True, text=True, timeout=60,
                               stdin=subprocess.DEVNULL, check=False)
        assert again.returncode == 2 and "another elastic job runs on" in again.stderr, again
        assert f"(launcher {job.process.pid})" in again.stderr, again
        link = job.hosts + ".link"
        os.symlink(job.hosts, link)
        again = subprocess.run([programs[0], "-H", link, "--rsh", SHELL, "--elastic", "1:4", job.probe],
                               capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
                               check=False)
        assert again.returncode == 2 and "another elastic job runs on" in again.stderr, again
        job.ends_with(0, 40)
        assert len(job.log()) == 2, job.log()
        job.is_sound()


def a_hosts_file_is_of_one_job_in_another_container_too(*programs):
    if os.geteuid() != 0:
        print("skipped: only root can make a container")
        return
    with ElasticJob(programs, ["n1"], "-n", 1, "--grace", 1, probe=("--steps", 10000)) as job:
        job.wait_for_commit(1)
        words = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", programs[0], "-H", job.hosts,
                 "--rsh", SHELL, "--elastic", "1:4", "--grace", "1", job.probe, "--steps", "3"]
        again = subprocess.run(words, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
                               check=False)
        assert again.returncode == 2 and "another elastic job runs on" in again.stderr, again
        assert "(launcher" not in again.stderr, again
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              stdin=subprocess.DEVNULL) as later:
            told = later.stderr.readline()
            assert "cannot be seen from here (killed, in another container" in told, told
            job.process.terminate()
            job.ends_with(143, 10)
            assert later.wait(60) == 0, told + later.stderr.read()


def a_second_job_counts_on(*programs):
    with ElasticJob(programs, ["n1", "n2"], "-n", 2) as job:
        job.ends_with(0)
        first = len(job.log())
        again = subprocess.run([programs[0], "-H", job.hosts, "--rsh", SHELL, "--elastic", "1:4",
                                job.probe, "--steps", "3"], capture_output=True, timeout=60,
                               stdin=subprocess.DEVNULL, check=False)
        assert again.returncode == 0, again
        log = job.log()
        assert [int(line[0]) for line in log] == list(range(len(log))), log
        assert [line[1] for line in log[first:]] == ["LOST", "LOST", "ADDED", "ADDED"], log


CASES = [
    a_job_without_changes_ends_when_its_members_do,
    a_job_without_a_file_has_the_hosts_of_the_list,
    a_line_more_is_a_member_more,
    a_line_less_drains_its_member,
    slots_are_lines_as_well,
    base_hosts_stay,
    a_file_that_cannot_be_read_with_certainty_is_ignored,
    the_others_go_on_without_one_that_was_killed,
    one_that_is_stopped_is_expelled,
    fewer_than_the_minimum_wait,
    too_few_for_too_long_save_and_end,
    three_deaths_at_one_step_end_the_job,
    a_host_that_is_about_to_end_is_drained,
    notice_to_the_last_host_waits_for_one_that_starts_again,
    notice_for_all_hosts_is_the_end,
    a_spare_takes_the_place_of_a_lost_member,
    sizes_are_multiples,
    a_lost_host_is_lost_and_comes_back,
    a_host_that_cannot_be_reached_holds_nobody_up,
    a_host_that_is_down_is_named_and_tried_again,
    a_program_that_cannot_be_run_ends_the_job,
    a_signal_ends_all,
    a_hosts_file_is_of_one_job, a_hosts_file_is_of_one_job_in_another_container_too,
    a_second_job_counts_on,
]

if __name__ == "__main__":
    sys.exit(main(CASES, Arguments(3)))

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Hosts of elastic jobs that are prepared before their first rank, or are not.

usage: elastic_prepare_test.py LAUNCHER ELASTIC_PROBE SIMULATE [CASE...]
"""

import os
import pathlib
import signal
import sys
import time

from elastic_job import ElasticJob, program
from outside import Arguments, command_of, main, patient


def hosts_are_prepared_before_their_first_rank(*programs):
    with program("echo prepared >> $0.runs; sleep 0.2") as prepare:
        with ElasticJob(programs, ["n1", "n2"], "-n", 1, "--prepare", prepare,
                        probe=("--steps", 160)) as job:
            job.wait_for_commit(job.wait_for_world(2))
            job.ends_with(0, 40)
            runs = pathlib.Path(prepare + ".runs").read_text()
            assert runs == "prepared\n" * 2, runs
            for host in ("n1", "n2"):
                name = f"{job.hosts[:-len('host_worker')]}prepare_data_success_{host}"
                assert os.path.exists(name), os.listdir(job.files.name)
                notes = job.notes()
                first = notes.index(f"Prepare data success file {name} not found yet.")
                found = notes.index(f"Found prepare data success file:{name}. Adding "
                                    f"privateip:{host} to current_valid_elastic_worker")
                launched = notes.index(f"Launching worker node at ip: {host}")
                assert first < found < launched, notes
            assert len(job.events("prepare_started")) == 2, job.events("prepare_started")
            assert len(job.events("prepare_done")) == 2, job.events("prepare_done")
            job.is_sound()


def a_success_file_saves_the_run(*programs):
    with program("echo prepared >> $0.runs") as prepare:
        with ElasticJob(programs, ["n1"], "-n", 1, "--prepare", prepare,
                        probe=("--steps", 100)) as job:
            job.wait_for_commit(job.wait_for_world(1))
            pathlib.Path(job.files.name, "prepare_data_success_n2").touch()
            job.append("n2")
            job.wait_for_commit(job.wait_for_world(2, 2))
            job.ends_with(0, 40)
            assert pathlib.Path(prepare + ".runs").read_text() == "prepared\n"
            job.is_sound()


def a_host_that_is_not_prepared_never_joins(*programs):
    with program("echo no disk; test -e $0.good") as prepare:
        pathlib.Path(prepare + ".good").touch()
        with ElasticJob(programs, ["n1"], "-n", 1, "--prepare", prepare,
                        probe=("--steps", 80)) as job:
            job.wait_for_commit(job.wait_for_world(1))
            os.remove(prepare + ".good")
            job.append("n2")
            job.wait_for("--prepare on host n2 exited with code 1; its last lines:\n  | no disk",
                         where="err")
            job.ends_with(0, 40)
            assert job.log()[-1][1:3] == ("REFUSED", "n2"), job.log()
            assert {generation for generation, _, _ in job.commits()} == {"1"}, job.all()
            job.is_sound()


def a_preparation_that_fails_everywhere_ends_the_job(*programs):
    with program("echo no disk; exit 3") as prepare:
        with ElasticJob(programs, ["n1", "n2"], "-n", 2, "--prepare", prepare) as job:
            job.ends_with(125)
            job.says("launcher: no host of -n could be prepared: preparation failed: exited with code 3")
            job.leaves_nothing()


def a_host_that_cannot_be_asked_for_is_explained_once(*programs):
    with program("true") as prepare:
        with ElasticJob(programs, ["n1"], "-n", 1, "--prepare", prepare, "--cooldown", "0.2:0.2",
                        probe=("--steps", 80)) as job:
            job.wait_for_commit(job.wait_for_world(1))
            job.append("n2 user=somebody")
            job.wait_for("user and port of host n2 are for ssh", where="err")
            job.ends_with(0, 40)
            assert job.text("err").count("user and port of host n2") == 2, job.all()  # once in the log of changes
            job.is_sound()


def a_preparation_that_hangs_is_ended(*programs):
    with program("test -e $0.fast || sleep 1000") as prepare:
        pathlib.Path(prepare + ".fast").touch()
        with ElasticJob(programs, ["n1"], "-n", 1, "--prepare", prepare, "--prepare-timeout", 3,
                        probe=("--steps", 999999)) as job:
            job.wait_for_commit(job.wait_for_world(1))
            os.remove(prepare + ".fast")
            job.append("n2")
            job.wait_for("Refused host:n2: preparation failed: took longer", where="err")
            limit = time.monotonic() + patient(5)
            while any(command_of(pid)[:2] == [b"sleep", b"1000"] for pid in job.processes()):
                assert time.monotonic() < limit, "it still runs"
                time.sleep(0.05)
            # Its line goes and comes back: it is prepared anew.
            pathlib.Path(prepare + ".fast").touch()
            job.edit("n1")
            time.sleep(patient(1))
            job.append("n2")
            job.wait_for_commit(job.wait_for_world(2, 2))
            job.process.terminate()
            job.ends_with(143)
            job.is_sound()


def the_end_waits_for_no_preparation_and_no_spare(*programs):
    with program("test -e $0.fast || sleep 1000") as prepare:
        pathlib.Path(prepare + ".fast").touch()
        with ElasticJob(programs, ["n1", "n2"], "-n", 1, "--prepare", prepare, "--spares", 2,
                        "--grace", 1, sizes="1:1", probe=("--steps", 160)) as job:
            job.wait_for("up 1 ")
            os.kill(job.pids()[1], signal.SIGSTOP)
            os.remove(prepare + ".fast")
            job.edit("n1", "n2", "n3")
            job.wait_for("Prepare data success file " + job.hosts[:-len("host_worker")]
                         + "prepare_data_success_n3 not found yet", where="err")
            job.ends_with(0, 20)
            job.leaves_nothing()


def a_gate_without_a_command_is_opened_by_others(*programs):
    with ElasticJob(programs, ["n1", "n2"], "-n", 1, "--prepare-only-file",
                    probe=("--steps", 160)) as job:
        job.wait_for("prepare_data_success_n1 not found yet", where="err")
        pathlib.Path(job.files.name, "prepare_data_success_n1").touch()
        job.wait_for_commit(job.wait_for_world(1))
        pathlib.Path(job.files.name, "prepare_data_success_n2").touch()
        job.wait_for_commit(job.wait_for_world(2, 2))
        job.ends_with(0, 40)
        job.is_sound()


def a_login_that_fails_loses_no_rank_that_is_there(*programs):
    """Those of n1 are of the first ones, and stay without its line; it is prepared anew when that comes back, and once
    more after a login that fails."""
    with program("echo prepared") as prepare, program(
            '[ $1 != n1 ] || ! [ -e $0.bad ] || exit 255; shift; exec "$@"') as shell:
        with ElasticJob(programs, ["n1", "n2"], "-n", 2, "--prepare", prepare, "--start-timeout", 5,
                        "--cooldown", "1:2", probe=("--steps", 400), shell=shell) as job:
            job.wait_for_commit(job.wait_for_world(2))
            job.edit("n2")
            job.wait_for("Refused host:n1: the hosts of -n stay", where="err")
            os.remove(os.path.join(job.files.name, "prepare_data_success_n1"))
            pathlib.Path(shell + ".bad").touch()
            job.edit("n1 slots=2", "n2")
            job.wait_for("the agent on host n1 did not start", where="err")
            os.remove(shell + ".bad")
            job.wait_for_world(3)
            job.ends_with(0, 60)
            # That of the base host's line.
            assert [line[1] for line in job.log() if line[1] in ("LOST", "REFUSED")] == ["REFUSED"], job.log()
            assert len(job.events("prepare_started")) >= 4, job.all()
            job.is_sound()


CASES = [
    hosts_are_prepared_before_their_first_rank,
    a_success_file_saves_the_run,
    a_host_that_is_not_prepared_never_joins,
    a_preparation_that_fails_everywhere_ends_the_job,
    a_host_that_cannot_be_asked_for_is_explained_once,
    a_preparation_that_hangs_is_ended,
    the_end_waits_for_no_preparation_and_no_spare,
    a_gate_without_a_command_is_opened_by_others,
    a_login_that_fails_loses_no_rank_that_is_there,
]

if __name__ == "__main__":
    sys.exit(main(CASES, Arguments(3)))

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Hosts of elastic jobs that change by command, and by a program that is asked.

usage: elastic_hosts_test.py LAUNCHER ELASTIC_PROBE SIMULATE [CASE...]
"""

import contextlib
import glob
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

from elastic_job import ElasticJob, SHELL, program
from outside import Arguments, Job, fields_of, main, patient, wait_until


def ask(launcher, *words):
    done = subprocess.run([launcher, *map(str, words)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False, timeout=patient(60))
    return done.returncode, done.stdout, done.stderr


def said(launcher, *words):
    code, out, err = ask(launcher, *words)
    assert code == 0, f"{words}: code {code}: {err}"
    return out


def refused(launcher, *words):
    code, out, err = ask(launcher, *words)
    assert code == 2 and not out, f"{words}: code {code}: {out}{err}"
    return err


def status(launcher, job):
    return json.loads(said(launcher, "status", job, "--json"))["status"]


def hosts_come_and_go_by_command(*programs):
    launcher = programs[0]
    with ElasticJob(programs, ["# ours", "n1", "n2"], "-n", 2, "--max-changes", 3,
                    probe=("--steps", 400)) as job:
        world = job.wait_for_world(2)
        job.wait_for_commit(world)
        before = job.pids()
        out = said(launcher, "add", job.hosts, "n3")
        assert f"n3 is in {job.hosts} with 1 slot;" in out, out
        world = job.wait_for_world(3, world + 1)
        job.wait_for_commit(world)
        assert pathlib.Path(job.hosts).read_text() == "# ours\nn1\nn2\nn3\n"
        said(launcher, "add", job.process.pid, "n3:2")
        world = job.wait_for_world(4, world + 1)
        job.wait_for_commit(world)
        assert pathlib.Path(job.hosts).read_text() == "# ours\nn1\nn2\nn3:2\n"
        said(launcher, "drain", job.hosts, "n3")
        world = job.wait_for_world(2, world + 1)
        assert pathlib.Path(job.hosts).read_text() == "# ours\nn1\nn2\n"
        assert {member: job.pids()[member] for member in before} == before, job.all()
        assert "no change is left of --max-changes" in refused(launcher, "add", job.hosts, "n4")
        job.process.terminate()
        job.process.wait()
        changes = [line[1:3] for line in job.log()][2:6]
        assert changes == [("ADDED", "n3"), ("ADDED", "n3"), ("REMOVED", "n3"),
                           ("REMOVED", "n3")], job.log()
        job.leaves_nothing()


def a_status_says_what_a_job_does(*programs):
    launcher = programs[0]
    with ElasticJob(programs, ["n1", "n2 slots=2"], "-n", 2, probe=("--steps", 300)) as job:
        job.wait_for_commit(job.wait_for_world(3))
        wait_until(lambda: status(launcher, job.process.pid)["state"] == "runs",
                   lambda: str(status(launcher, job.process.pid)))
        now = status(launcher, job.hosts)
        assert now["pid"] == job.process.pid and now["hosts_file"] == job.hosts, now
        assert (now["size"], now["sizes"]) == (3, "1:4") and now["world"] >= 1, now
        assert [(host["host"], host["slots"], host["state"]) for host in now["hosts"]] == [
            ("n1", 1, "of -n"), ("n2", 2, "of -n")], now
        assert [host["members"] for host in now["hosts"]] == [
            ["member 0 is rank 0"], ["member 1 is rank 1", "member 2 is rank 2"]], now
        text = said(launcher, "status", job.hosts)
        assert f"job of launcher {job.process.pid}: {job.probe}" in text, text
        assert "runs: 3 of 1:4 ranks" in text and "n2    2 slots  of -n; member 1 is" in text, text
        assert text in said(launcher, "status"), said(launcher, "status")
        job.process.terminate()
        job.process.wait()
        assert f"'{job.hosts}'" in refused(launcher, "status", job.hosts)


def commands_that_make_no_sense_are_refused(*programs):
    launcher = programs[0]
    with ElasticJob(programs, ["n1", "n2", "n3"], "-n", 2, probe=("--steps", 400)) as job:
        job.wait_for_commit(job.wait_for_world(3))
        hosts = pathlib.Path(job.hosts)
        before = hosts.read_text()
        cases = [
            (("drain", job.hosts, "n1"), "host n1 is one of the hosts of -n"),
            (("drain", job.hosts, "n9"), "there is no host n9 in " + job.hosts),
            (("drain", job.hosts, "n3:1"), "its name alone"),
            (("add", job.hosts, "n3"), "host n3 is in " + job.hosts + " already, with 1 slot"),
            (("add", job.hosts, "n4:*"), "slots"),
            (("add", job.hosts, "n4\nn5"), "not one host"),
            (("add", job.hosts), "needs a job"),
            (("add",), "needs a job"),
            (("add", "4711000", "n4"), "no elastic job of yours on this machine"),
            (("status", job.hosts, "n4"), "takes one job"),
            (("drain", "--all", job.hosts), "knows no option '--all'"),
        ]
        for words, expected in cases:
            err = refused(launcher, *words)
            assert expected in err, f"{words}: {err}"
        assert hosts.read_text() == before
        # A file that somebody else is writing.
        hosts.write_text(before + "n")
        assert ":4:2: the last line has no end" in refused(launcher, "add", job.hosts, "n4")
        assert hosts.read_text() == before + "n"
        hosts.write_text(before)
        job.process.terminate()
        job.process.wait()


def a_file_behind_a_link_stays_behind_it(*programs):
    launcher = programs[0]
    with ElasticJob(programs, ["n1", "n2"], "-n", 1, probe=("--steps", 300)) as job:
        real = os.path.join(job.files.name, "elsewhere")
        os.link(job.hosts, real)
        os.symlink(real, job.hosts + ".link")
        os.rename(job.hosts + ".link", job.hosts)
        os.chmod(real, 0o640)
        job.wait_for_commit(job.wait_for_world(2))
        said(launcher, "drain", job.hosts, "n2")
        assert os.path.islink(job.hosts), os.listdir(job.files.name)
        assert pathlib.Path(real).read_text() == "n1\n"
        assert os.stat(real).st_mode & 0o777 == 0o640
        job.wait_for_world(1, 2)
        job.process.terminate()
        job.process.wait()
        left = [name for name in os.listdir(job.files.name) if name.startswith("elsewhere")]
        assert set(left) <= {"elsewhere", "elsewhere_log"}, left  # locked by its own name


def a_log_lies_beside_the_link_that_the_job_was_given(*programs):
    """The file was moved away since."""
    with ElasticJob(programs, ["n1"], probe=("--steps", 20)) as job:
        job.ends_with(0, 40)
        real = os.path.join(job.files.name, "elsewhere", "hosts")
        os.mkdir(os.path.dirname(real))
        os.rename(job.hosts, real)
        os.symlink(real, job.hosts)
        launcher, *words = job.process.args
        with Job(launcher, "--resume", *words) as again:
            again.ends_with(0, 40)
        job.has_gapless_log()
        assert [line[1] for line in job.log()].count("ADDED") == 2, job.log()


def a_job_without_a_file_takes_commands_too(*programs):
    launcher, probe, _ = programs
    with Job(launcher, "-H", "n1,n2:2", "--rsh", SHELL, "-n", 1, "--elastic", "1:4",
             "--elastic-window", 0.2, probe, "--steps", 400) as job:
        job.wait_for(" 3\n", seconds=30)
        said(launcher, "drain", job.process.pid, "n2")
        wait_until(lambda: status(launcher, job.process.pid)["size"] == 1, job.all)
        said(launcher, "add", job.process.pid, "n3")
        wait_until(lambda: status(launcher, job.process.pid)["size"] == 2, job.all)
        job.process.terminate()
        job.process.wait()
        job.leaves_nothing()


def strange_words_on_the_socket_end_nothing(*programs):
    launcher = programs[0]
    with ElasticJob(programs, ["n1"], probe=("--steps", 300)) as job:
        job.wait_for_commit(job.wait_for_world(1))
        places = {os.environ.get("TMPDIR", "/tmp"), "/tmp"}
        found = [path for place in places
                 for path in glob.glob(f"{place}/chainmail-job.{job.process.pid}.*/control")]
        assert len(found) == 1, found
        assert os.stat(os.path.dirname(found[0])).st_mode & 0o777 == 0o700
        for words in (b"\n", b"{}\n", b"[1]\n", b'{"verb":"end","hosts":[]}\n', b"\xff\xfe\n",
                      b'{"verb":"add","hosts":[3]}\n', b'{"verb":"add","hosts":"n2"}\n'):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(found[0])
                client.sendall(words)
                answer = json.loads(client.makefile().readline())
                assert answer["error"], (words, answer)
        with contextlib.ExitStack() as held:
            for _ in range(40):
                client = held.enter_context(socket.socket(socket.AF_UNIX))
                client.connect(found[0])
        assert status(launcher, job.hosts)["size"] == 1
        job.process.terminate()
        job.process.wait()
        job.leaves_nothing()
        assert not os.path.exists(found[0])


def a_program_says_which_hosts_there_are(*programs):
    launcher, probe, _ = programs
    with tempfile.TemporaryDirectory() as folder:
        lines = pathlib.Path(folder, "lines")
        lines.write_text("n1:1\nn2:1\n")
        with program(f'[ -e {folder}/broken ] && {{ echo "out of order" >&2; exit 3; }}\n'
                     f"cat {lines}\n") as discovery:
            with Job(launcher, "--host-discovery", discovery, "--discovery-interval", 0.2,
                     "--rsh", SHELL, "-n", 1, "--elastic", "1:4", "--elastic-window", 0.2, probe,
                     "--steps", 600) as job:
                pid = job.process.pid
                job.wait_for(" 0 2\n")
                lines.write_text("n1:1\nn2:1\nn3:1")
                wait_until(lambda: status(launcher, pid)["size"] == 3, job.all)
                pathlib.Path(folder, "broken").touch()
                job.wait_for("exited with code 3: out of order; the hosts stay as they were",
                             where="err")
                time.sleep(1)
                assert job.text("err").count("out of order") == 1, job.all()
                assert status(launcher, pid)["size"] == 3, job.all()
                os.remove(os.path.join(folder, "broken"))
                lines.write_text("n1:1\nn2:x\n")
                job.wait_for("output of --host-discovery:2:", where="err")
                lines.write_text("n1:1\nn2:1\n")
                wait_until(lambda: status(launcher, pid)["size"] == 2, job.all)
                err = refused(launcher, "add", pid, "n4")
                assert "are those that --host-discovery" in err, err
                job.process.terminate()
                job.process.wait()
                job.leaves_nothing()


def what_a_program_leaves_behind_becomes_no_zombie(*programs):
    launcher, probe, _ = programs
    with tempfile.TemporaryDirectory() as folder:
        with program(f"sleep 0.01 >/dev/null 2>&1 &\necho x >> {folder}/looks\necho n1\n") as discovery:
            with Job(launcher, "--host-discovery", discovery, "--discovery-interval", 0.1,
                     "--rsh", SHELL, "--elastic", "1:4", probe, "--steps", 100000) as job:
                looks = pathlib.Path(folder, "looks")
                wait_until(lambda: looks.exists() and looks.read_text().count("x") > 20, job.all)
                ended = [pid for pid in os.listdir("/proc") if pid.isdigit()
                         and fields_of(pid)[:2] == ["Z", str(job.process.pid)]]
                assert len(ended) <= 2, ended
                job.process.terminate()
                job.process.wait()
                job.leaves_nothing()


def a_program_whose_hosts_would_be_ignored_is_refused(*programs):
    launcher, probe, _ = programs
    with program("echo n1; echo n1") as discovery:
        err = refused(launcher, "--host-discovery", discovery, "--rsh", SHELL, "--elastic", "1:4", probe)
        assert f"output of {discovery}:2:1: host n1 is named again" in err, err
    with program("echo 'n1:*'") as discovery:
        err = refused(launcher, "--host-discovery", discovery, "--rsh", SHELL, "--elastic", "1:4", probe)
        assert f"output of {discovery}:1:1: host n1 has '*' slots" in err, err


def a_launcher_that_is_stopped_is_not_missing(*programs):
    launcher = programs[0]
    with ElasticJob(programs, ["n1"], "-n", 1, "--lease", 60, probe=("--steps", 4000)) as job:
        job.wait_for_commit(job.wait_for_world(1))
        job.process.send_signal(signal.SIGSTOP)
        try:
            err = refused(launcher, "add", job.hosts, "n2")
        finally:
            job.process.send_signal(signal.SIGCONT)
        assert re.search(rf"launchers that do not answer may have it: (\d+, )*{job.process.pid}\b", err), err
        job.process.terminate()
        job.process.wait()
        job.leaves_nothing()


def a_program_that_never_ends_holds_nothing_up(*programs):
    launcher, probe, _ = programs
    with tempfile.TemporaryDirectory() as folder:
        with program(f"[ -e {folder}/asked ] && sleep 1000\ntouch {folder}/asked\n"
                     "echo n1\n") as discovery:
            with Job(launcher, "--host-discovery", discovery, "--discovery-interval", 0.2,
                     "--rsh", SHELL, "--elastic", "1:4", probe, "--steps", 40) as job:
                job.ends_with(0, 40)
                job.leaves_nothing()


CASES = [
    hosts_come_and_go_by_command,
    a_status_says_what_a_job_does,
    commands_that_make_no_sense_are_refused,
    a_file_behind_a_link_stays_behind_it,
    a_log_lies_beside_the_link_that_the_job_was_given,
    a_job_without_a_file_takes_commands_too,
    strange_words_on_the_socket_end_nothing,
    a_program_says_which_hosts_there_are,
    what_a_program_leaves_behind_becomes_no_zombie,
    a_program_whose_hosts_would_be_ignored_is_refused,
    a_launcher_that_is_stopped_is_not_missing,
    a_program_that_never_ends_holds_nothing_up,
]

if __name__ == "__main__":
    sys.exit(main(CASES, Arguments(3)))

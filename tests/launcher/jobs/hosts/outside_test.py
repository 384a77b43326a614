#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""A job that somebody looks at from outside: its phases, its end, requests to stop, and copies of
its output.

usage: outside_test.py LAUNCHER JOB_PROBE PROBE_RANK [CASE...]
"""

import contextlib
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../faults"))

from outside import Arguments, Job, Skipped, main, parent_of, patient, wait_until  # noqa: E402

QUEUED, PREPARING, RUNNING, STOPPING = "0", "1", "2", "4"
SUCCESS, RANK_FAILED, HOST_LOST, NOT_STARTED, STOPPED, TIME_LIMIT = 0, 1, 2, 3, 5, 6


class Desk:
    def __init__(self, launcher, probe):
        self.holder = tempfile.TemporaryDirectory(prefix="chainmail-watched.")
        self.folder = pathlib.Path(self.holder.name)
        self.words = [probe, launcher, f"told={self.folder}/told", f"stop={self.folder}/stop"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.holder.cleanup()

    def job(self, *words, options=(), hosts="localhost:2", **how):
        (self.folder / "told").write_text("")
        return Job(*self.words, *options, "--", "-H", hosts, *words, **how)

    def phases(self):
        return [line.split()[1] for line in self.told() if line.startswith("phase ")]

    def told(self):
        return (self.folder / "told").read_text().splitlines()

    def end(self):
        text = (self.folder / "told").read_text()
        return text[text.index("end kind "):]

    def text(self, name):
        return (self.folder / name).read_bytes().decode(errors="replace")


def check_end(desk, kind, reason):
    end = desk.end()
    assert end.startswith(f"end kind {kind} ") and reason in end, end


def phases_and_ends_are_told(launcher, probe, rank):
    with Desk(launcher, probe) as desk:
        with desk.job("-n", 2, "true") as job:
            job.ends_with(0)
            assert desk.phases() == [PREPARING, RUNNING], desk.told()
            check_end(desk, SUCCESS, "ran 1 lost [] reason []")
        with desk.job("-n", 2, "sh", "-c", "exit $((RANK * 7))") as job:
            job.ends_with(7)
            check_end(desk, RANK_FAILED, "reason [rank 1 on host localhost exited with code 7]")
        with desk.job("-n", 2, "/no/such/program") as job:
            job.ends_with(127)
            assert desk.phases() == [PREPARING], desk.told()
            check_end(desk, NOT_STARTED, "program not found on host localhost")
            assert "ran 0" in desk.end()
        with desk.job("-n", 2, "--timeout", 1, "sleep", 100) as job:
            job.ends_with(124)
            check_end(desk, TIME_LIMIT, "the time limit of 1 s")
        with desk.job("-n", 2, "sh", "-c", "echo up; sleep 100") as job:
            job.wait_for("up", 2)
            job.process.send_signal(signal.SIGINT)
            job.ends_with(130)
            assert desk.phases() == [PREPARING, RUNNING, STOPPING], desk.told()
            check_end(desk, STOPPED, "Ctrl-C")
        with desk.job("-n", 2, rank, "store") as job:
            job.ends_with(0)
            check_end(desk, SUCCESS, "steps 0")


def a_lost_host_is_named(launcher, probe, _rank):
    with Desk(launcher, probe) as desk:
        with desk.job("-n", 2, "sh", "-c", "echo up; sleep 100") as job:
            job.wait_for("up", 2)
            os.kill(job.agent(), signal.SIGKILL)
            job.ends_with(125)
            check_end(desk, HOST_LOST, "lost [localhost] reason [lost host localhost: ")


def who_asks_for_the_end_gets_it(launcher, probe, _rank):
    saves = "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    with Desk(launcher, probe) as desk:
        with desk.job("-n", 2, "sh", "-c", saves) as job:
            job.wait_for("up", 2)
            (desk.folder / "stop").write_text("")
            job.ends_with(143)
            assert job.text("out").count("saved") == 2, job.all()
            check_end(desk, STOPPED, "reason [launcher stop]")
            assert desk.phases()[-1] == STOPPING
            job.leaves_nothing()
        (desk.folder / "stop").unlink()
        with desk.job("-n", 2, "sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done") as job:
            job.wait_for("up", 2)
            (desk.folder / "stop").write_text("")
            job.wait_for("launcher stop: ending the job", where="err")
            (desk.folder / "stop").write_text("now")
            job.ends_with(143)
            job.leaves_nothing()
        with desk.job("-n", 2, "sh", "-c", saves) as job:
            job.ends_with(137)  # asked for before it has begun
            check_end(desk, STOPPED, "launcher stop --now")


def copies_have_every_byte(launcher, probe, _rank):
    script = "seq 1 20000; seq 1 5000 >&2; printf end"
    with Desk(launcher, probe) as desk:
        for options in ((), ("silent",)):
            for name in ("stdout.txt", "stderr.txt", "launcher.log"):
                with contextlib.suppress(FileNotFoundError):
                    (desk.folder / name).unlink()
            with desk.job("-n", 2, "sh", "-c", script,
                          options=(f"copies={desk.folder}", *options)) as job:
                job.ends_with(0)
                numbers = desk.text("stdout.txt").replace("end", "").split()
                assert sorted(numbers, key=int) == sorted(2 * [*map(str, range(1, 20001))], key=int)
                assert desk.text("stdout.txt").count("end") == 2
                assert len(desk.text("stderr.txt").splitlines()) == 10000
                if options:
                    assert job.text("out") == "" and job.text("err") == "", job.all()[:500]
                else:
                    assert job.text("out") == desk.text("stdout.txt")
        with desk.job("-n", 2, "sh", "-c", "exit 3", options=(f"copies={desk.folder}", "silent")) as job:
            job.ends_with(3)
            assert "exited with code 3" in desk.text("launcher.log"), desk.text("launcher.log")
            assert "exited with code 3" in desk.text("stderr.txt")
            assert desk.text("launcher.log")[:2] == "20", "lines have their time"


def a_full_disk_is_said_once_and_the_code_stays(launcher, probe, _rank):
    limit = 100_000

    def full():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    with Desk(launcher, probe) as desk:
        for code in (0, 4):
            for name in ("stdout.txt", "stderr.txt", "launcher.log"):
                with contextlib.suppress(FileNotFoundError):
                    (desk.folder / name).unlink()
            with desk.job("-n", 1, "sh", "-c", f"seq 1 40000; echo kept >&2; exit {code}",
                          options=(f"copies={desk.folder}", "silent"), preexec_fn=full) as job:
                job.ends_with(code)
                log = desk.text("launcher.log")
                assert log.count("cannot write") == 1 and "stdout.txt: File too large" in log, log
                assert "kept" in desk.text("stderr.txt")
                assert f"output [cannot write {desk.folder}/stdout.txt" in desk.end()


def a_terminal_changes_nothing_in_the_copies(launcher, probe, _rank):
    script = r"printf '10%%\r20%%\r'; echo error >&2; printf '30%%\n'"
    with Desk(launcher, probe) as desk:
        words = [*desk.words, f"copies={desk.folder}", "--", "-H", "localhost:1", "--tag-output", "sh",
                 "-c", script]
        try:
            result = subprocess.run(["script", "-qec", " ".join(f"'{word}'" for word in map(
                lambda word: str(word).replace("'", "'\\''"), words)), "/dev/null"],
                stdin=subprocess.DEVNULL, capture_output=True, timeout=patient(20))
        except FileNotFoundError:
            raise Skipped("there is no script(1) here") from None
        assert result.returncode == 0, result
        assert desk.text("stderr.txt") == "[localhost/0] error\n", repr(desk.text("stderr.txt"))
        tag = "[localhost/0] "
        assert desk.text("stdout.txt") == f"{tag}10%\r{tag}20%\r{tag}30%\n", repr(desk.text("stdout.txt"))


if __name__ == "__main__":
    CASES = [phases_and_ends_are_told, a_lost_host_is_named, who_asks_for_the_end_gets_it,
             copies_have_every_byte, a_full_disk_is_said_once_and_the_code_stays,
             a_terminal_changes_nothing_in_the_copies]
    sys.exit(main(CASES, Arguments(3)))

# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Jobs seen from outside: a launcher that is started by a test, its processes, and cases to run."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))

from patience import cost_of_sanitizers, patient  # noqa: E402

MARK = "CHAINMAIL_OUTSIDE_TEST"

# Of programs with the address sanitizer: these tests preload libraries, which come before its own.
os.environ["ASAN_OPTIONS"] = ":".join(
    filter(None, (os.environ.get("ASAN_OPTIONS"), "verify_asan_link_order=0")))


def fields_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def parent_of(pid):
    fields = fields_of(pid)
    return int(fields[1]) if fields else -1


def environment_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return []


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def is_lock_keeper(pid):
    return b"--keep-lock" in command_of(pid)


def wait_until(condition, what, seconds=20):
    """what() says what there is instead."""
    limit = time.monotonic() + patient(seconds)
    while not condition():
        assert time.monotonic() < limit, what()
        time.sleep(0.02)


class Job:
    """A launcher with these arguments; a context that leaves nothing behind."""

    count = 0

    def __init__(self, launcher, *arguments, environment=None, **how):
        Job.count += 1
        self.mark = f"{MARK}={os.getpid()}-{Job.count}"
        self.is_killed = False
        self.folder = tempfile.TemporaryDirectory(prefix="chainmail-outside.")
        self.out = pathlib.Path(self.folder.name, "out")
        self.err = pathlib.Path(self.folder.name, "err")
        variables = dict(os.environ, **{MARK: self.mark.partition("=")[2]}, **(environment or {}))
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(
                [launcher, *map(str, arguments)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=variables, **how)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.folder.cleanup()

    def kill_launcher(self):
        """What keeps a lock of the launcher's for a while is none of its processes from here on."""
        self.is_killed = True
        self.process.kill()

    def processes(self):
        """All of the job but the launcher and zombies."""
        return [
            int(pid) for pid in os.listdir("/proc")
            if pid.isdigit() and int(pid) != self.process.pid
            and self.mark.encode() in environment_of(pid) and fields_of(pid)[:1] not in ([], ["Z"])
            and not (self.is_killed and is_lock_keeper(pid))
        ]

    def is_gone(self):
        """All of the job, but for the process that tidies up after a launcher that is stopped."""
        return all(fields_of(pid)[1:2] == [str(self.process.pid)] and name_of(pid) == "job-reaper"
                   for pid in self.processes())

    def wait_until_gone(self, seconds):
        limit = time.monotonic() + patient(seconds)
        while not self.is_gone():
            assert time.monotonic() < limit, f"{self.processes()} after {seconds} s: {self.all()}"
            time.sleep(0.02)

    def ranks(self):
        """Processes that the agents started as ranks."""
        return [
            pid for pid in self.processes()
            if any(entry.startswith(b"RANK=") for entry in environment_of(pid))
            and not any(entry.startswith(b"RANK=") for entry in environment_of(parent_of(pid)))
        ]

    def agent(self):
        ranks = self.ranks()
        found = parent_of(ranks[0]) if ranks else -1
        assert found > 1, f"no agent: {self.all()}"  # kill(-1) would be for all processes
        return found

    def wait_for(self, text, times=1, seconds=20, where="out"):
        limit = time.monotonic() + patient(seconds)
        while time.monotonic() < limit:
            if self.text(where).count(text) >= times:
                return
            time.sleep(0.02)
        raise AssertionError(f"no {times} times '{text}' after {seconds} s: {self.all()}")

    def text(self, where):
        return getattr(self, where).read_text(errors="replace")

    def all(self):
        return f"out: {self.text('out')} err: {self.text('err')}"

    def ends_with(self, code, seconds=20):
        try:
            got = self.process.wait(patient(seconds))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still runs after {seconds} s: {self.all()}") from None
        assert got == code, f"code {got}, wanted {code}: {self.all()}"

    def says(self, text):
        assert text in self.text("err"), f"no '{text}' in: {self.all()}"

    def says_not(self, text):
        assert text not in self.all(), f"'{text}' in: {self.all()}"

    def leaves_nothing(self, seconds=5):
        limit = time.monotonic() + patient(seconds)
        while self.processes() and time.monotonic() < limit:
            time.sleep(0.05)
        left = self.processes()
        assert not left, f"left: {left}"


class Skipped(Exception):
    """A case that cannot run here."""


def main(cases, arguments):
    """usage: TEST LAUNCHER ... [CASE...]: runs functions that take (launcher, ...)."""
    wanted = [case for case in cases if not arguments.cases or case.__name__ in arguments.cases]
    failures = 0
    for case in wanted:
        started = time.monotonic()
        try:
            case(*arguments.given)
            result = "ok"
        except Skipped as reason:
            result = f"skipped: {reason}"
        except AssertionError as wrong:
            failures += 1
            result = f"FAILED: {wrong}"
        print(f"{case.__name__:44} {time.monotonic() - started:6.2f} s  {result}", flush=True)
    return 1 if failures else 0


class Arguments:
    def __init__(self, count):
        self.given = [os.path.abspath(word) for word in sys.argv[1:1 + count]]
        self.cases = sys.argv[1 + count:]

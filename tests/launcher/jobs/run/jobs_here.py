# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Jobs of job files, with a state folder, a host file and processes of the test's own."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../faults"))
sys.path.insert(0, os.path.join(HERE, "../../../support"))

from outside import MARK, environment_of, fields_of  # noqa: E402
from patience import patience, patient  # noqa: E402

# All hosts are this machine.
SHELL = "env IGNORED=%h"


class Jobs:
    """A context; everything that was started in it is ended with it."""

    count = 0

    def __init__(self, launcher, hosts=("n1",)):
        Jobs.count += 1
        self.launcher = launcher
        self.mark = f"{os.getpid()}-jobs-{Jobs.count}"
        self.scratch = tempfile.TemporaryDirectory(prefix="chainmail-jobs.")
        self.folder = pathlib.Path(self.scratch.name)
        self.hosts = self.folder / "hosts"
        self.set_hosts(*hosts)
        self.variables = dict(os.environ, **{MARK: self.mark}, CHAINMAIL_STATE=str(self.folder / "state"),
                              XDG_CONFIG_HOME=str(self.folder / "config"))
        self.variables.pop("XDG_SESSION_ID", None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        limit = time.monotonic() + 10
        while self.processes() and time.monotonic() < limit: time.sleep(0.02)
        self.scratch.cleanup()

    def set_hosts(self, *lines):
        self.hosts.write_text("".join(line + "\n" for line in lines))

    def processes(self):
        wanted = f"{MARK}={self.mark}".encode()
        return [int(pid) for pid in os.listdir("/proc")
                if pid.isdigit() and wanted in environment_of(pid) and fields_of(pid)[:1] not in ([], ["Z"])]

    def write(self, job, name="job.json"):
        """The path of a file with this job, in the modern form unless it has properties."""
        if "properties" not in job: job = {"chainmail": 1, **job}
        path = self.folder / name
        path.write_text(json.dumps(job, indent=2) + "\n")
        return path

    def run(self, *arguments, seconds=60, environment=None, **how):
        """To its end."""
        return subprocess.run([self.launcher, *map(str, arguments)], stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=patient(seconds),
                              env={**self.variables, **(environment or {})}, **how)

    def start(self, *arguments, environment=None, **how):
        return subprocess.Popen([self.launcher, *map(str, arguments)], stdin=subprocess.DEVNULL, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env={**self.variables, **(environment or {})}, **how)

    def of_hosts(self):
        return ["-H", self.hosts, "--rsh", SHELL]

    def detach(self, job, *options, seconds=60, **how):
        """The id of a job whose ranks run."""
        done = self.run("--job", self.write(job), *self.of_hosts(), "--detach", *options, seconds=seconds, **how)
        assert done.returncode == 0, f"code {done.returncode}: {done.stdout} {done.stderr}"
        return done.stdout.strip()

    def state(self, job):
        return json.loads((self.folder / "state" / "jobs" / job / "state.json").read_text())

    def file(self, job, name):
        return (self.folder / "state" / "jobs" / job / name).read_text(errors="replace")

    def jobs(self):
        try:
            return sorted(os.listdir(self.folder / "state" / "jobs"))
        except FileNotFoundError:
            return []

    def wait_until(self, is_true, what, seconds=30):
        limit = time.monotonic() + patient(seconds)
        while not is_true():
            assert time.monotonic() < limit, f"not {what} after {seconds} s"
            time.sleep(0.02)

    def wait(self, job, seconds=60):
        """The exit code that `launcher wait` has for it."""
        return self.run("wait", job, seconds=seconds).returncode

    def ranks(self):
        """By rank, the pids of ranks that run."""
        found = {}
        for pid in self.processes():
            for entry in environment_of(pid):
                if entry.startswith(b"RANK="): found.setdefault(int(entry[5:]), []).append(pid)
        return found

    def lose_host(self, host):
        """Everything of the job that runs there is killed at once, as with the machine."""
        victims = [pid for pid in self.processes() if f"IGNORED={host}".encode() in environment_of(pid)]
        assert victims, f"nothing runs on {host}"
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def wait_for_attempt(self, job, number, ranks=2):
        """Of probe_rank's "steps"."""
        self.wait_until(lambda: self.state(job)["state"] == "running" and self.state(job)["attempt"] == number,
                        f"attempt {number}")
        self.wait_until(lambda: self.file(job, "stdout.txt").count(f"generation {number - 1} ") == ranks,
                        f"{ranks} ranks of attempt {number}")

    def supervisor(self, job):
        return self.state(job)["launcher"]["pid"]

    def leaves_nothing(self, seconds=10):
        self.wait_until(lambda: not self.processes(), "all processes gone", seconds)


def short_lease():
    """Options of a job whose lost hosts are waited for no longer than need be."""
    return {"lease": f"{min(2.5 * patience(), 8):.1f}s"}


def duration_of(function):
    began = time.monotonic()
    result = function()
    return time.monotonic() - began, result


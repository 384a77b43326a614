# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Pods behind the stand-in for kubectl, and jobs in them."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "launcher/faults"))

from outside import Arguments, Job, Skipped, main, patient, wait_until  # noqa: E402, F401


class Pods:
    """A folder for the stand-in; a context that leaves nothing behind."""

    def __init__(self, **rules):
        """Names with '_' in the place of '-', and what the stand-in's file of each says."""
        self.holder = tempfile.TemporaryDirectory(prefix="chainmail-pods.", ignore_cleanup_errors=True)
        self.folder = pathlib.Path(self.holder.name)
        # The stand-in is run often, and python3 may be a shell script that looks for the interpreter.
        path = f"{HERE}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
        self.environment = {"KUBECTL_FOLDER": str(self.folder), "PATH": path}
        self.processes = []
        for name, rule in rules.items():
            self.write(name.replace("_", "-"), rule)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()  # process 1 of its namespace: all others end with it
            process.wait()
        self.holder.cleanup()

    def write(self, name, rule):
        part = self.folder / f"{name}.part"
        part.write_text(json.dumps(rule))
        part.rename(self.folder / f"{name}.json")

    def run(self, name, command):
        """A pod of namespaces of its own whose main process is this command."""
        process = subprocess.Popen(["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child",
                                    "--mount-proc", "sh", "-c", 'hostname "$0" && exec "$@"', name, *command])
        self.processes.append(process)
        inside = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_until(lambda: inside.read_text().split(), lambda: "no process in the pod")
        first = inside.read_text().split()[0]
        wait_until(lambda: self.is_ready(first, name), lambda: f"pod {name} has not come up")
        self.write(name, {"namespaces": int(first)})
        return self.enter(first)

    @staticmethod
    def enter(first):
        return ["nsenter", "--target", first, "--mount", "--uts", "--ipc", "--pid"]

    @classmethod
    def is_ready(cls, first, name):
        told = subprocess.run([*cls.enter(first), "hostname"], capture_output=True, text=True, check=False)
        return told.stdout.strip() == name

    def job(self, launcher, hosts, *words, rsh="kubectl exec -i %h --", **how):
        return Job(launcher, "-H", hosts, "--rsh", rsh, "--output", self.folder / "logs", *words,
                   environment=self.environment, **how)

    def events(self, kind):
        lines = (self.folder / "logs/events.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def execs(self, name):
        """An empty list while the stand-in has not got as far as to write down the first one."""
        written = self.folder / f"{name}.execs"
        return [json.loads(line) for line in written.read_text().splitlines()] if written.exists() else []

    def traffic(self, name, direction):
        """Times at which bytes have gone there."""
        lines = [line.split() for line in (self.folder / f"{name}.traffic").read_text().splitlines()]
        return [float(line[1]) for line in lines if line[0] == direction]

    def cut(self, name):
        (self.folder / f"{name}.cut").touch()

    def longest_silence(self, name, direction, begin, end):
        times = [begin, *[when for when in self.traffic(name, direction) if begin < when < end], end]
        return max(later - sooner for sooner, later in zip(times, times[1:]))


def now():
    return time.monotonic()

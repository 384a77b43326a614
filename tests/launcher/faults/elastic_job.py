# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Elastic jobs seen from outside, of a program that is a member and nothing else (elastic_probe)."""

import contextlib
import glob
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

from outside import Job, patient

# All of them are this machine.
SHELL = "env IGNORED=%h"
LOG_LINE = re.compile(r"(\d+) (ADDED|REMOVED|LOST|REFUSED) (\S+) \d+ (\d+) (\d+) (\d+) (.*)")
NOTE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO (.*)")


class HostsJob(Job):
    """An elastic job on a hosts file with these lines, or without one; `command` makes the program's words
    of the folder in which all of the job's files are."""

    def __init__(self, launcher, lines, options, command, sizes="1:4", window=0.2, shell=SHELL, **how):
        self.files = tempfile.TemporaryDirectory(prefix="chainmail-elastic.")
        self.hosts = os.path.join(self.files.name, "host_worker")
        self.logs = os.path.join(self.files.name, "logs")
        named = [] if lines is None else ["-H", self.hosts]
        if lines is not None: self.edit(*lines)
        super().__init__(
            launcher, *named, "--rsh", shell, "--elastic", sizes, "--output", self.logs,
            "--elastic-window", window, *options, *command(self.files.name), **how)

    def __exit__(self, *error):
        super().__exit__(*error)
        self.files.cleanup()

    def write(self, text):
        """As an editor does it: nobody ever sees half of it."""
        with open(self.hosts + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(self.hosts + ".new", self.hosts)

    def edit(self, *lines):
        self.write("".join(line + "\n" for line in lines))

    def append(self, line):
        with open(self.hosts, "a", encoding="utf-8") as file:
            file.write(line + "\n")

    def log(self):
        path = pathlib.Path(self.hosts + "_log")
        found = [LOG_LINE.fullmatch(line) for line in path.read_text().splitlines()]
        assert all(found), path.read_text()
        return [match.groups() for match in found]

    def notes(self):
        path = pathlib.Path(self.hosts + ".log")
        found = [NOTE.fullmatch(line) for line in path.read_text().splitlines()]
        assert all(found), path.read_text()
        return [match.group(1) for match in found]

    def records(self):
        """Of events.jsonl, to which another line may be on its way."""
        with open(os.path.join(self.logs, "events.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    def events(self, name):
        """Of a job that nothing has started anew."""
        lines = self.records()
        assert [line["sequence"] for line in lines] == list(range(len(lines))), lines
        return [line for line in lines if line.get("event") == name]

    def wait_for_event(self, name, is_meant, seconds=20):
        limit = time.monotonic() + patient(seconds)
        while not any(line.get("event") == name and is_meant(line) for line in self.records()):
            assert time.monotonic() < limit, f"no such event {name}: {self.all()}"
            time.sleep(0.02)

    def has_gapless_log(self):
        sequence = [int(line[0]) for line in self.log()]
        assert sequence == list(range(sequence[0], sequence[0] + len(sequence))), sequence


class ElasticJob(HostsJob):
    """Of elastic_probe; what it writes is looked at when it ends."""

    def __init__(self, programs, lines, *options, sizes="1:4", probe=(), **how):
        launcher, self.probe, self.simulate = programs
        super().__init__(launcher, lines, options,
                         lambda folder: [self.probe, "--trace", folder, *probe], sizes, **how)

    def pids(self):
        """By member."""
        return {int(member): int(pid)
                for member, pid in re.findall(r"^up (\d+) (\d+) ", self.text("out"), re.M)}

    def wait_for_world(self, size, generation=1, seconds=20):
        """All its members are in it."""
        limit = time.monotonic() + patient(seconds)
        while time.monotonic() < limit:
            worlds = re.findall(r"^world (\d+) (\d+) (\d+)", self.text("out"), re.M)
            for number in sorted({int(world[0]) for world in worlds if int(world[0]) >= generation}):
                ranks = [world for world in worlds if int(world[0]) == number]
                if len(ranks) == size and all(int(world[2]) == size for world in ranks):
                    return number
            time.sleep(0.02)
        raise AssertionError(f"no world of {size} from {generation} on: {self.all()}")

    def wait_for_commit(self, generation, seconds=20):
        self.wait_for(f"commit {generation} ", seconds=seconds)

    def commits(self):
        """(generation, step, state) as members say it."""
        return re.findall(r"^commit (\d+) (\d+) (\w+)", self.text("out"), re.M)

    def is_sound(self):
        """Logs without gaps, one state for each step, and a trace that the machines accept."""
        self.has_gapless_log()
        states = {}
        for _, step, state in self.commits():
            assert states.setdefault(step, state) == state, f"step {step}: {self.all()}"
        files = [os.path.join(self.logs, "events.jsonl"),
                 *sorted(glob.glob(os.path.join(self.files.name, "member.*.jsonl")))]
        check = subprocess.run([self.simulate, "check", *files], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, check=False)
        assert check.returncode == 0, check.stdout + self.all()
        self.leaves_nothing()


@contextlib.contextmanager
def program(text):
    """The path of a shell script with these lines."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "prepare")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + text)
        os.chmod(path, 0o755)
        yield path

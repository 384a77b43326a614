# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Elastic jobs of programs that know nothing of them: `probe_rank fixed`, and shell scripts."""

import os
import pathlib
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

from elastic_job import HostsJob, program  # noqa: E402, F401
from outside import patient  # noqa: E402
from patience import patience  # noqa: E402

ADVICE = "this program does not call create_elastic_job"
RANK = re.compile(r"^generation (\d+) rank (\d+) of (\d+) local (\d+) of (\d+) node (\d+) pid (\d+)$",
                  re.M)


def short_start():
    """For --start-timeout, in seconds: as short as can be, but so that hosts on this machine answer in time."""
    return max(1, min(10, round(patience() / 3)))


class FixedJob(HostsJob):
    """Of `probe_rank fixed`, or of a script that prints such lines."""

    def __init__(self, launcher, lines, command, *options, **how):
        super().__init__(launcher, lines, options, command, **how)

    def ranks_of(self, generation):
        """(rank, size, local rank, local size, node, pid), by rank."""
        found = [tuple(map(int, match)) for match in RANK.findall(self.text("out"))]
        return sorted(line[1:] for line in found if line[0] == generation)

    def wait_for_ranks(self, size, generation=1, seconds=40):
        """The first generation from this one on that has that many."""
        limit = time.monotonic() + patient(seconds)
        while time.monotonic() < limit and self.process.poll() is None:
            known = {int(match[0]) for match in RANK.findall(self.text("out"))}
            for number in sorted(known):
                ranks = self.ranks_of(number)
                if number >= generation and [rank[:2] for rank in ranks] == [
                        (rank, size) for rank in range(size)]:
                    return number
            time.sleep(0.02)
        raise AssertionError(f"no {size} ranks from {generation} on: {self.all()}")

    def finish(self, seconds=20):
        pathlib.Path(self.files.name, "done").touch()
        self.ends_with(0, seconds)
        assert self.text("err").count(ADVICE) == 1, self.all()
        self.has_gapless_log()
        self.leaves_nothing()

    def members(self):
        """By what hosts_log says."""
        members = []
        for line in self.log():
            if line[1] == "ADDED":
                members.append(line[2])
            elif line[1] in ("REMOVED", "LOST"):
                members.remove(line[2])
        return sorted(members)

    def wait_for_agent(self, host, seconds=20):
        limit = time.monotonic() + patient(seconds)
        while not self.agents(host):
            assert time.monotonic() < limit, f"no agent on {host}: {self.all()}"
            time.sleep(0.05)

    def agents(self, host):
        return [line["pid"] for line in self.records() if line.get("event") == "agent_up" and line["host"] == host]


def probe(path):
    return lambda folder: [path, "fixed", folder]


def script(text):
    """A program that never says anything to the launcher."""
    line = ("echo generation $CHAINMAIL_GENERATION rank $RANK of $WORLD_SIZE local $LOCAL_RANK of "
            "$LOCAL_WORLD_SIZE node $NODE_RANK pid $$; ")
    return lambda folder: ["sh", "-c", f"done={folder}/done; {line}{text}"]


UNTIL_DONE = "while ! [ -e $done ]; do sleep 0.1; done"

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""An elastic job to which everything happens at once: ranks are killed, wherever they are and at the
points of a step, stopped and continued, hosts join, are drained, have other slots, are lost with their
agent or get notice of their end, hosts files are torn, hosts cannot be prepared.

usage: chaos.py [--events N] [--seed S] [--gap STEPS] [--epochs N] [--kinds KIND,...]

What happens, and to whom, is drawn by seed and step, so that a seed can be repeated. At the end: each
sample in exactly one committed step of an epoch, steps without gaps, no step that a living member had
committed done again, bits and rows of a calm job, both logs, a trace that the launcher's machine accepts,
and nothing left. BIN names another folder than build/bin.
"""

import argparse
import collections
import contextlib
import os
import pathlib
import random
import secrets
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/plugin/elastic/faults"))

from ledger_job import IN_STEP, LedgerJob  # noqa: E402
from outside import environment_of, parent_of  # noqa: E402
from patience import patience  # noqa: E402

BIN = pathlib.Path(os.environ.get("BIN", ROOT / "build/bin"))
BASE = ["n1", "n2"]
OTHERS = ["n3", "n4"]
MOST = 5
KINDS = {"kill": 6, "point": 6, "stop": 3, "expel": 1, "join": 5, "drain": 4, "slots": 3, "torn": 3,
         "agent": 1, "notice": 1, "unprepared": 2}


class Chaos:
    """Events in a job; `lines` are the slots of hosts, as the file should have them."""

    def __init__(self, job, seed, kinds):
        self.job = job
        self.seed = seed
        self.kinds = kinds
        self.lines = {host: 1 for host in BASE + OTHERS[:1]}
        self.counts = collections.Counter()
        self.later = []  # (time, function), of events that last
        self.unprepared = 0
        self.hidden = set()  # hosts whose line has to go for a while
        self.is_any_leaving = False  # by notice; where the last host has notice, too, the job ends
        self.condemned = set()  # members that are to die

    def text(self):
        return "".join(f"{host} slots={slots}\n" for host, slots in self.lines.items()
                       if host not in self.hidden)

    def write(self):
        self.job.write(self.text())

    def members(self):
        return self.job.world()[1]

    def signal(self, pid, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def after(self, seconds, function):
        self.later.append((time.monotonic() + seconds, function))

    def do_later(self, everything=False):
        due = [entry for entry in self.later if everything or entry[0] <= time.monotonic()]
        self.later = [entry for entry in self.later if entry not in due]
        for _, function in due: function()

    def happen(self, number):
        """Event `number`; one that cannot be in this world is replaced by the next that is drawn."""
        chance = random.Random(f"{self.seed}/{number}")
        for _ in range(20):
            kind = chance.choices(list(self.kinds), list(self.kinds.values()))[0]
            rank, detail = chance.random(), chance.random()
            if getattr(self, "do_" + kind)(rank, detail):
                self.counts[kind] += 1
                return kind
        return "nothing"

    def condemn(self, victims):
        """Whether somebody who has the state is left without them: else the job would begin anew."""
        left = [member for member in self.members()
                if member.member not in self.condemned and member not in victims]
        if left: self.condemned |= {victim.member for victim in victims}
        return bool(left)

    def victim(self, rank):
        members = self.members()
        victim = members[int(rank * len(members))]
        return victim if self.condemn([victim]) else None

    def do_kill(self, rank, _):
        victim = self.victim(rank)
        if victim: self.signal(victim.pid, signal.SIGKILL)
        return victim is not None

    def do_point(self, rank, detail):
        victim = self.victim(rank)
        if victim: self.job.order(victim.member, IN_STEP[int(detail * len(IN_STEP))])
        return victim is not None

    def do_stop(self, rank, detail):
        victim = self.members()[int(rank * len(self.members()))]
        self.signal(victim.pid, signal.SIGSTOP)
        self.after(0.1 + detail * 1.5, lambda: self.signal(victim.pid, signal.SIGCONT))
        return True

    def do_expel(self, rank, _):
        victim = self.victim(rank)
        if victim:
            self.signal(victim.pid, signal.SIGSTOP)
            self.after(10, lambda: self.signal(victim.pid, signal.SIGCONT))
        return victim is not None

    def do_join(self, _, detail):
        free = [host for host in OTHERS if host not in self.lines]
        if not free or sum(self.lines.values()) >= MOST: return False
        self.lines[free[int(detail * len(free))]] = 1
        self.write()
        return True

    def do_drain(self, _, detail):
        going = [host for host in self.lines if host not in BASE]
        if not going: return False
        del self.lines[going[int(detail * len(going))]]
        self.write()
        return True

    def do_slots(self, _, detail):
        host = list(self.lines)[int(detail * len(self.lines))]
        if self.lines[host] == 1 and sum(self.lines.values()) >= MOST: return False
        self.lines[host] = 3 - self.lines[host]
        self.write()
        return True

    def do_torn(self, _, detail):
        """Half of a file, as an editor that writes in place leaves it for a moment."""
        text = self.text()
        torn = text[:1 + int(detail * (len(text) - 2))]
        with open(self.job.hosts, "w", encoding="utf-8") as file:
            file.write(torn if not torn.endswith("\n") else torn + "n9 slots=")
        self.after(0.4, self.write)
        return True

    def agent_of(self, rank):
        """Of some rank, with its ranks; none where it has all of them."""
        members = self.members()
        agent = parent_of(members[int(rank * len(members))].pid)
        ranks = [member for member in members if parent_of(member.pid) == agent]
        is_there = agent > 1 and len(ranks) < len(members)
        return (agent, ranks) if is_there else (None, [])

    def do_agent(self, rank, _):
        agent, ranks = self.agent_of(rank)
        if agent is None or not self.condemn(ranks): return False
        self.signal(agent, signal.SIGKILL)
        return True

    def do_notice(self, rank, _):
        """The host is drained, and comes back when its line has gone and is there again."""
        agent, _ = self.agent_of(rank)
        words = [word.decode() for word in environment_of(agent or -1)]
        host = next((word[8:] for word in words if word.startswith("IGNORED=")), None)
        if host is None or self.is_any_leaving: return False
        self.is_any_leaving = True
        self.signal(agent, signal.SIGTERM)

        def hide():
            self.hidden.add(host)
            self.write()
            self.after(0.5, show)

        def show():
            self.hidden.discard(host)
            self.is_any_leaving = False
            self.write()

        self.after(3, hide)
        return True

    def do_unprepared(self, _, __):
        self.unprepared += 1
        host = f"bad{self.unprepared}"
        self.lines[host] = 1
        self.write()

        def goes():
            self.lines.pop(host, None)
            self.write()

        self.after(2, goes)
        return True


def settle(job, chaos, seconds=60):
    """The hosts of the beginning, and all that happens is over."""
    while chaos.later: chaos.do_later(everything=True)
    chaos.lines = {host: 1 for host in BASE + OTHERS[:1]}
    chaos.write()

    def is_settled():
        _, members = job.world()
        return sorted(members_by_log(job)) == sorted(chaos.lines) and len(members) == len(chaos.lines)

    job.wait_until(is_settled, f"members {sorted(chaos.lines)}", seconds)


def members_by_log(job):
    """The hosts that the log for programs leaves when it is replayed."""
    members = []
    for line in job.log():
        if line[1] == "ADDED": members.append(line[2])
        elif line[1] in ("REMOVED", "LOST") and line[2] in members: members.remove(line[2])
    return members


def run(arguments):
    kinds = {kind: KINDS[kind] for kind in (arguments.kinds or ",".join(KINDS)).split(",")}
    print(f"seed {arguments.seed}", flush=True)
    steps = arguments.events * arguments.gap + arguments.gap
    with LedgerJob(BIN / "launcher", BIN / "elastic_ledger", ["n1", "n2", "n3"], "-n", 2, "--prepare",
                   "/bin/false", "--elastic-timeout", 60, steps=10**6,
                   steps_per_epoch=max(1, steps // arguments.epochs), pause_ms=arguments.pause,
                   sizes=f"1:{MOST}", gates=BASE + OTHERS) as job:
        job.wait_for_world(3)
        chaos = Chaos(job, arguments.seed, kinds)
        began = time.monotonic()
        told = []
        try:
            for number in range(arguments.events):
                at = (number + 1) * arguments.gap
                job.wait_until(lambda: chaos.do_later() or job.ledger.newest >= at, f"step {at}", 90)
                told.append(f"{job.ledger.newest} {chaos.happen(number)}")
            job.wait_until(lambda: chaos.do_later() or not chaos.later, "events over", 60)
            settle(job, chaos)
            job.finish()
            redone = job.ends_well(300)
        except AssertionError:
            print(f"FAILED: seed {arguments.seed}; events {told}", flush=True)
            if arguments.keep: subprocess.run(["cp", "-r", job.files.name, arguments.keep], check=False)
            raise
        lasted = time.monotonic() - began
        check = subprocess.run([BIN / "membership_simulate", "check-launcher",
                                os.path.join(job.logs, "events.jsonl")], stdout=subprocess.PIPE, text=True,
                               check=False)
        assert check.returncode == 0, check.stdout
        lost = [line for line in job.log() if line[1] == "LOST"]
        worlds = len(job.events("world_changed"))
        recoveries = [seconds for seconds, _ in job.ledger.recoveries()]
        print(f"seed {arguments.seed}: {sum(chaos.counts.values())} events in {lasted:.0f} s: "
              + ", ".join(f"{count} {kind}" for kind, count in sorted(chaos.counts.items())))
        print(f"{job.steps} steps in {-(-job.steps // job.steps_per_epoch)} epochs, {worlds} worlds, "
              f"{len(lost)} members lost, at most {redone} step done again; trace: {check.stdout.strip()}")
        if recoveries:
            print(f"together again after {statistics.median(recoveries):.3f} s (median of "
                  f"{len(recoveries)} deaths at a point), at most {max(recoveries):.3f} s; the machine is "
                  f"{patience():.1f} times slower than an idle one")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("--events", type=int, default=120)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--gap", type=int, default=100)
    parser.add_argument("--pause", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--kinds")
    parser.add_argument("--keep", help="a folder for the files of a job that fails")
    run(parser.parse_args())

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""A host of an elastic job that is cut off, whole, in one direction, or from the other hosts while its
launcher hears it: one world goes on, who is cut off commits nothing more, and the host comes back.
Started by netns_nodes.sh run 3, which sets NODES_DIR.

usage: cuts.py LAUNCHER ELASTIC_LEDGER [--slots N] [CUT:POINT...]
       cuts.py LAUNCHER ELASTIC_LEDGER [--slots N] --all ROUNDS   (each cut at each point)
N: ranks on each host (1)
"""

import collections
import contextlib
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tests/plugin/elastic/faults"))

from ledger_job import LedgerJob  # noqa: E402
from patience import patience  # noqa: E402

NODES = pathlib.Path(os.environ["NODES_DIR"])
PROGRAM = "elastic_ledger"
HOSTS = ["n1", "n2", "n3"]
# Computing, exchanging, between steps, told of a change, giving a newcomer the state.
POINTS = ["forward", "between_buckets", "committed", "held", "fetch_middle"]
IN_CHANGE = ["held", "fetch_middle"]
CUTS = ["node", "inward", "outward", "data"]
SOME = ["data:between_buckets", "outward:held"]


def of_node(name, what):
    return (NODES / f"{name}.{what}").read_text().strip()


def rules(*lines):
    subprocess.run(["ip", "netns", "exec", of_node("n2", "netns"), "nft", "-f", "-"],
                   input="\n".join(lines), text=True, check=True)


def link(state):
    subprocess.run(["ip", "link", "set", of_node("n2", "link"), state], check=True)


def cut(how):
    """Takes n2 from the others."""
    if how == "node": return link("down")
    hooks = {"inward": ["input"], "outward": ["output"], "data": ["input", "output"]}[how]
    others = ", ".join(of_node(name, "address") for name in ("n1", "n3"))
    match = {"input": "iifname eth0", "output": "oifname eth0"}
    if how == "data": match = {"input": f"ip saddr {{ {others} }}", "output": f"ip daddr {{ {others} }}"}
    rules("table inet cut {",
          *(f"chain {hook} {{ type filter hook {hook} priority 0; {match[hook]} drop; }}" for hook in hooks),
          "}")
    return None


def mend():
    link("up")
    rules("flush ruleset")


def has_ranks(node):
    """Whether the program runs in that node's namespace."""
    pids = subprocess.run(["ip", "netns", "pids", of_node(node, "netns")], stdout=subprocess.PIPE, text=True,
                          check=True).stdout.split()
    for pid in pids:
        with contextlib.suppress(OSError):  # it has just ended
            if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == PROGRAM: return True
    return False


def is_cut_off_at(job, how, point):
    """A member on n2 is at that point when it is cut off. Seconds until the others go on."""
    everywhere = sorted(HOSTS * job.slots)
    job.wait_until(lambda: sorted(map(job.host_of, job.world()[1])) == everywhere, "ranks on each host", 90)
    generation, members = job.world()
    theirs = [world.member for world in members if job.host_of(world) == "n2"]
    victim = theirs[0]
    ordered = job.ledger.ordered[victim]
    job.wait_at(victim, point)
    if point in IN_CHANGE:
        job.wait_until(lambda: job.ledger.ordered[victim] > ordered, "an order read")
        job.edit(*job.lines_with(n3=job.slots + 1))
    job.wait_until(lambda: job.is_waiting(victim, point), f"member {victim} in {point}")
    began = time.monotonic()
    cut(how)
    job.go_on(victim)
    _, members = job.wait_for_world(after=generation, without=theirs, seconds=60)
    took = max(world.time for world in members) / 1e9 - began
    step = job.ledger.newest
    job.wait_for_step(step + 20)
    job.wait_until(lambda: not has_ranks("n2") or how == "data", "the end of what is cut off", 60)
    mend()
    job.edit(*job.lines_with())
    return took


class NodesJob(LedgerJob):
    def __init__(self, launcher, program, slots):
        self.slots = slots
        ranks = slots * len(HOSTS)
        super().__init__(launcher, program, self.lines_with(), "-n", ranks, "--lease", 4, pause_ms=30,
                         steps_per_epoch=300, sizes=f"1:{ranks + 2}", shards=max(8, ranks + 2),
                         shell=(NODES / "rsh").read_text().strip())

    def lines_with(self, **others):
        return [f"{host} slots={others.get(host, self.slots)}" for host in HOSTS]

    def host_of(self, world):
        """The node whose process that is."""
        with contextlib.suppress(OSError):  # it has ended
            inode = os.stat(f"/proc/{world.pid}/ns/net").st_ino
            for name in HOSTS:
                if os.stat(f"/run/netns/{of_node(name, 'netns')}").st_ino == inode: return name
        return ""

    def __exit__(self, *error):
        mend()
        super().__exit__(*error)


def run(launcher, program, slots, cases):
    times = collections.defaultdict(list)
    with NodesJob(launcher, program, slots) as job:
        for case in cases:
            how, point = case.split(":")
            took = is_cut_off_at(job, how, point)
            times[how].append(took)
            print(f"{how:8} {point:16} the others went on after {took:.2f} s", flush=True)
        job.finish()
        redone = job.ends_well()
        job.ledger.check_ends()
        assert not any(map(has_ranks, HOSTS)), "a rank is left"
    everything = [took for some in times.values() for took in some]
    print(f"{len(everything)} cuts, {job.steps} steps, at most {redone} done again; the others went on after "
          f"{statistics.median(everything):.2f} s (median), at most {max(everything):.2f} s; this machine is "
          f"{patience():.1f} times slower than an idle one", flush=True)
    # A rank and an agent are silent for 4 s before they are given up.
    assert max(everything) < 4 + patience(), times


if __name__ == "__main__":
    if shutil.which("nft") is None:
        print("skipped: nft is missing: install nftables", file=sys.stderr)
        sys.exit(77)
    given, words = list(map(os.path.abspath, sys.argv[1:3])), sys.argv[3:]
    given.append(int(words[1]) if words[:1] == ["--slots"] else 1)
    if words[:1] == ["--slots"]: words = words[2:]
    if words[:1] == ["--all"]:
        for _ in range(int(words[1])):
            for kind in CUTS: run(*given, [f"{kind}:{place}" for place in POINTS])
    else:
        run(*given, words or SOME)

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""A rank that joins behind a fast link is given the state by one host behind a slow link, and by three, of which
one dies in the middle at the end: how long the others wait for it.

usage: tests/support/netns_nodes.sh run --rate 200mbit 4 tests/soak/elastic/donors.py JOINS [MIB]
"""

import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/plugin/elastic/faults"))

from ledger_job import LedgerJob  # noqa: E402
from patience import patience  # noqa: E402

BIN = pathlib.Path(os.environ.get("BIN", ROOT / "build/bin"))
NODES = pathlib.Path(os.environ["NODES_DIR"])
NEWCOMER = "n4"


def of_node(name, what):
    return (NODES / f"{name}.{what}").read_text().strip()


def make_fast(name):
    for tc in (["tc", "-n", of_node(name, "netns"), "qdisc", "del", "dev", "eth0", "root"],
               ["tc", "qdisc", "del", "dev", of_node(name, "link"), "root"]):
        subprocess.run(tc, check=True)


def joins(count, donors, mib, dies=False):
    """Pauses of `count` joins, and the most that one donor has sent for each, in MB."""
    hosts = [f"n{number + 1}" for number in range(donors)]
    with LedgerJob(BIN / "launcher", BIN / "elastic_ledger", hosts, "-n", donors, pause_ms=20, mib=mib,
                   sizes="1:4", steps_per_epoch=300, shell=(NODES / "rsh").read_text().strip()) as job:
        generation, members = job.wait_for_world(donors, seconds=60)
        grown = []
        for _ in range(count):
            job.wait_for_step(job.ledger.newest + 20)
            if dies:
                victim = members[1].member
                job.order(victim, "fetch_middle")
                job.wait_until(lambda: job.ledger.ordered[victim] > 0, "an order read")
            job.edit(*hosts, NEWCOMER)
            if dies:
                job.wait_until(lambda: job.has_died(victim, "fetch_middle"), "a donor dead", 60)
            generation, _ = job.wait_for_world(donors + 1, generation, seconds=90)
            grown.append(generation)
            job.wait_for_step(job.ledger.newest + 20)
            job.edit(*hosts)
            generation, members = job.wait_for_world(donors, generation, seconds=60)
        job.finish()
        job.ends_well(300)
        most = [max(count for (of, _), count in job.ledger.sent.items() if of == number) / 1e6
                for number in grown]
        pauses = job.ledger.pauses()
        return [pauses[number] for number in grown], most


def main():
    count, mib = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 64
    make_fast(NEWCOMER)
    medians = {}
    for donors in 1, 3:
        pauses, most = joins(count, donors, mib)
        medians[donors] = statistics.median(pauses)
        print(f"{donors} donors, {mib} MiB: a join takes {medians[donors]:.3f} s (median of {count}), at most "
              f"{max(pauses):.3f} s; the busiest donor sent {max(most):.1f} MB at most", flush=True)
    print(f"three donors are {medians[1] / medians[3]:.2f} times as fast as one; this machine is "
          f"{patience():.1f} times slower than an idle one", flush=True)
    joins(1, 3, mib, dies=True)
    print("one of three donors died in the middle: the newcomer got the rest from the others, and the bits are "
          "those of a calm job", flush=True)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3): sys.exit(__doc__)
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""What a worker without a job takes of its processors: the alarm of deploy/aws/cluster.yaml gives workers back that use less
than 1 %, so that the watch of deploy/node must stay well below, also on a machine with two processors. Five minutes.

usage: tests/deploy/node/isolated.sh tests/soak/deploy/idle_worker.py
"""

import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "deploy/node"))

from aws_cloud import AwsCluster  # noqa: E402
from cluster import main  # noqa: E402

SECONDS = 305  # one check of what is stored, and all polls for notices
MOST = 0.015  # of one processor: three quarters of what the alarm lets pass on two
cluster = AwsCluster(1)


def processor_seconds(machine):
    """Of the watch and of all that it has called."""
    watch = machine.read("/run/chainmail/watch.pid").strip()
    code, text, _ = machine.run("cat", f"/proc/{watch}/stat")
    assert code == 0, "no watch runs"
    return sum(int(ticks) for ticks in text.rpartition(")")[2].split()[11:15]) / os.sysconf("SC_CLK_TCK")


def an_idle_worker_looks_idle():
    cluster.boot()
    worker, = cluster.workers()
    cluster.wait_for_hosts(worker)
    took, began = processor_seconds(worker), time.monotonic()
    time.sleep(SECONDS)
    share = (processor_seconds(worker) - took) / (time.monotonic() - began)
    assert share < MOST, f"the watch takes {share:.2%} of a processor, and may take {MOST:.0%}"
    return f"{share:.2%} of a processor"


if __name__ == "__main__":
    sys.exit(main([an_idle_worker_looks_idle]))

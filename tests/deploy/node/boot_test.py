#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Three machines become a cluster, and its user types one line.

usage: isolated.sh boot_test.py LAUNCHER TRAIN_MNIST
"""

import base64
import os
import pathlib
import subprocess
import sys
import time

from aws_cloud import AwsCluster
from cluster import main, patient

LAUNCHER, TRAIN_MNIST = [os.path.abspath(word) for word in sys.argv[1:3]]
HOME = "/shared/chainmail"
LINE = ["launcher", "-n", "6", "--per-node", "2", "./train_mnist", "--communicator", "hierarchical",
        "--allreduce_grad_dtype", "float16", "--double_buffering", "--epoch", "1", "--unit", "50", "--dataset",
        "fashion_mnist"]
cluster = AwsCluster(2, programs=(LAUNCHER, TRAIN_MNIST))


def three_machines_become_a_cluster():
    begun = time.monotonic()
    cluster.boot()
    cluster.wait_for_hosts(*cluster.workers())
    took = time.monotonic() - begun
    for machine in cluster.machines.values():
        machine.path("/usr/local/bin/launcher").symlink_to(LAUNCHER)
    cluster.master.run("ln", "-s", TRAIN_MNIST, HOME + "/train_mnist")
    job = subprocess.Popen(cluster.master.command("sh", "-c", f'cd {HOME} && exec "$@"', "sh", *LINE, user="chainmail"),
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = []
    try:
        for line in job.stdout:
            said.append(line)
            if line.startswith("Num process"): seconds = time.monotonic() - begun
        code = job.wait(patient(60))
    finally:
        job.kill()
    assert code == 0, "".join(said)
    assert "Num process (COMM_WORLD): 6\n" in said and "Using hierarchical communicator\n" in said, "".join(said)
    assert seconds < patient(60), f"{seconds:.1f} s"
    assert cluster.signals().count(("Workers", "SUCCESS")) == 2 and ("Master", "SUCCESS") in cluster.signals()
    return f"(hostfile after {took:.1f} s, 'Num process' after {seconds:.1f} s)"


CASES = [three_machines_become_a_cluster]
if __name__ == "__main__":
    sys.exit(main(CASES))

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Three machines become a cluster, and its user types one line.

usage: isolated.sh boot_test.py LAUNCHER TRAIN_MNIST [--all]
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


def host_keys_are_checked():
    worker = cluster.workers()[0]
    master = cluster.master
    code, out, err = master.run("ssh", worker.instance, "hostname", user="chainmail")
    assert (code, out) == (0, worker.name + "\n"), err
    _, settings, _ = master.run("ssh", "-G", worker.instance, user="chainmail")
    assert "stricthostkeychecking true\n" in settings and "userknownhostsfile /etc/chainmail/known_hosts\n" in settings
    # Another machine at its address.
    worker.run("sh", "-c", "rm /etc/ssh/ssh_host_*; ssh-keygen -A && kill -HUP $(cat /run/sshd.pid)")
    # It listens anew, so the first connection may be refused.
    code, _, err = master.run("ssh", "-o", "ConnectionAttempts=30", worker.instance, "true", user="chainmail")
    assert code == 255 and "REMOTE HOST IDENTIFICATION HAS CHANGED" in err, err


def only_the_master_gets_in():
    """A worker has no key, and the master's would not help where another one stands."""
    one, other = cluster.workers()
    key = cluster.master.read("/etc/chainmail/login/id_ed25519")
    assert f'from="{cluster.master.address}",restrict,pty ssh-ed25519 ' in other.read("/etc/chainmail/authorized_keys")
    one.write("/tmp/stolen", key, 0o600)
    try:
        code, _, err = one.run("ssh", "-i", "/tmp/stolen", "-o", "StrictHostKeyChecking=no", "-o", "BatchMode=yes",
                               f"chainmail@{other.address}", "true")
        assert code == 255 and "Permission denied" in err, err
    finally:
        one.path("/tmp/stolen").unlink()
    # What runs as the cluster's user cannot let somebody in.
    other.run("sh", "-c", "umask 077; mkdir -p ~/.ssh; ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id;"
              " cp ~/.ssh/id.pub ~/.ssh/authorized_keys", user="chainmail")
    code, _, err = cluster.master.run("ssh", "-i", f"{HOME}/.ssh/id", "-F", "none", "-o", "StrictHostKeyChecking=no",
                                      f"chainmail@{other.address}", "true", user="chainmail")
    assert code == 255 and "Permission denied" in err, err


def contents(folder):
    for path, _, names in os.walk(folder):
        for name in names:
            file = pathlib.Path(path, name)
            if file.is_file() and not file.is_symlink(): yield file, file.read_bytes()


def the_private_key_is_on_the_master_alone():
    """In no file of another machine or of the shared folder, in nothing that was said to the cloud or printed."""
    text = cluster.master.read("/etc/chainmail/login/id_ed25519")
    lines = text.splitlines()[1:-1]
    tail = base64.b64decode("".join(lines)).rpartition(b"ssh-ed25519")[2]  # each with its length: public half, private
    seed = tail[40:72]
    assert tail[4:36] == tail[72:104], "the form of the key is another one"
    marks = [line.encode() for line in lines[2:]] + [seed, seed.hex().encode(), base64.b64encode(seed)[:40]]
    assert len(lines) > 4
    places = {"the cloud's requests": [("", body) for _, body in cluster.aws.requests],
              "the store": [(name, value.encode()) for name, value in cluster.aws.parameters().items()],
              "the shared folder": contents("/tmp/shared")}
    for machine in cluster.machines.values():
        for folder in ("changes", "home", "run", "tmp"):
            places[f"{machine.name}'s {folder}"] = contents(machine.upper / folder)
    found = {(place, str(name)) for place, each in places.items() for name, text in each
             if any(mark in text for mark in marks)}
    key = cluster.master.upper / "changes/etc/chainmail/login/id_ed25519"
    assert found == {("master's changes", str(key))}, found
    assert cluster.master.path("/etc/chainmail/login/id_ed25519").stat().st_mode & 0o777 == 0o600


CASES = [three_machines_become_a_cluster, only_the_master_gets_in, the_private_key_is_on_the_master_alone,
         host_keys_are_checked]
if __name__ == "__main__":
    sys.exit(main(CASES))

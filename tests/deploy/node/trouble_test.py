#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Nodes that boot twice, or whose cloud is slow, refuses, or is not there.

usage: isolated.sh trouble_test.py [--all]
"""

import os
import sys
import time

from aws_cloud import GROUP, STACK, AwsCluster
from cluster import ended_well, main, patient, wait_until
from metadata import Imds

CREDENTIALS = ("AWS_ACCESS_KEY_ID=AKIDNODE", "AWS_SECRET_ACCESS_KEY=none")
FILES = ("/etc/chainmail/hosts", "/etc/chainmail/known_hosts", "/etc/chainmail/login/id_ed25519", "/etc/hosts",
         "/etc/ssh/ssh_config.d/50-chainmail.conf", "/etc/chainmail/authorized_keys", "/etc/ssh/sshd_config",
         "/etc/ssh/sshd_config.d/50-chainmail.conf", "/etc/ssh/ssh_host_ed25519_key", "/etc/passwd")
cluster = AwsCluster(1)
master, worker = cluster.master, cluster.workers()[0]


def fails(machine, name, *, reconfigure=None, seconds=30, variables=()):
    """Its boot ends with this error, which the stack is told, and nothing runs afterwards."""
    before = machine.read("/etc/chainmail/node.conf")
    machine.write("/etc/chainmail/node.conf", before + "RETRY_FOR=4\n" + (reconfigure or ""))
    told = len(cluster.aws.signals)
    boot = machine.boot(variables=variables)
    said, _ = boot.communicate(timeout=patient(seconds))
    machine.write("/etc/chainmail/node.conf", before)
    assert boot.returncode == 1 and f"boot: {name}: " in said, f"code {boot.returncode}: {said}"
    assert [status for _, _, status in cluster.aws.signals[told:]] == ["FAILURE"], f"{cluster.aws.signals}: {said}"
    return said


def state(machine):
    paths = [machine.path(name) for name in FILES]
    return [(str(path), path.read_text(), path.stat().st_ino) for path in paths if path.exists()]


def watches(machine):
    """Not the subshells of one, whose parent it is."""
    found = []
    for folder in machine.path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if words[1:3] == [b"/usr/share/chainmail/node/boot", b"watch"] and parent == "1": found.append(folder.name)
    return found


def failures_before_there_is_a_master():
    fails(worker, "no-login", reconfigure="WAIT=3\n")
    fails(worker, "no-shared", reconfigure="SHARED=/nowhere\nWAIT=2\n")
    fails(worker, "bad-config", reconfigure="SLOTS=many\n")
    fails(worker, "bad-config", reconfigure="NODE_USER='a b'\n")
    said = fails(master, "no-group", reconfigure=f"GROUP={GROUP}-none\n")
    assert f"there is no auto-scaling group '{GROUP}-none'" in said, said
    worker.path("/etc/chainmail/node.conf").chmod(0o666)
    code, _, err = worker.run("/usr/share/chainmail/node/boot")
    assert code == 1 and "bad-config: others than root may write to /etc/chainmail/node.conf" in err, err
    worker.path("/etc/chainmail/node.conf").chmod(0o644)


def a_slow_cloud_that_refuses_at_first():
    """Metadata take their time; every other call is throttled until six were."""
    refused = []

    def refuse(action):
        if action == "SignalResource" or len(refused) >= 6: return False
        is_refused = len(refused) == 0 or refused[-1] != "passed"
        refused.append(action if is_refused else "passed")
        return is_refused

    cluster.aws.is_refused = refuse
    for metadata in cluster.metadata.values(): metadata.delay = 0.4
    ended_well(master.boot(), worker.boot(), seconds=120)
    cluster.wait_for_hosts(worker, seconds=30)
    assert len(refused) == 6, refused
    for metadata in cluster.metadata.values(): metadata.delay = 0.0
    cluster.aws.is_refused = lambda action: False
    assert all(metadata.refused == 0 for metadata in cluster.metadata.values()), "asked without a token"


def tokens_run_out_and_the_region_is_asked_for_once():
    """Also where two calls at once find that out."""
    metadata = cluster.metadata[master.instance]
    conf = master.read("/etc/chainmail/node.conf")
    master.write("/etc/chainmail/node.conf", conf.replace("REGION=eu-central-1", "REGION=''"))
    metadata.asked.clear()
    ended_well(master.boot())
    looks = lambda: [action for action, _ in cluster.aws.requests].count("DescribeAutoScalingGroups")  # noqa: E731
    for _ in range(2):
        metadata.expire()
        before = looks()
        wait_until(lambda: looks() >= before + 2, master.log, 60)
    said = master.log()
    assert said.count("the cluster does not answer") == 0, said
    # One for boot, one for the watch.
    assert metadata.asked.count("meta-data/placement/region") == 2, metadata.asked
    # What is no token is not sent.
    metadata.token_text = "<html>\nlog in {}</html>"
    metadata.expire()
    said = fails(master, "no-metadata", variables=CREDENTIALS)
    assert "the metadata server gives no token" in said, said
    metadata.token_text = "token-{}"
    assert not [name for name in os.listdir(master.path("/run/chainmail")) if name.startswith("token.")]
    master.write("/etc/chainmail/node.conf", conf)
    metadata.expire()
    ended_well(master.boot())


def boot_again_changes_nothing():
    before = state(master), state(worker), cluster.aws.parameters()
    told = len(cluster.aws.signals)
    somebodys = "/etc/chainmail/node.conf.backup"
    master.write(somebodys, "somebody's\n")
    ended_well(master.boot(), worker.boot())
    assert master.read(somebodys) == "somebody's\n"
    assert (state(master), state(worker), cluster.aws.parameters()) == before
    for machine in (master, worker):
        assert watches(machine) == machine.read("/run/chainmail/watch.pid").split(), watches(machine)
    assert [status for _, _, status in cluster.aws.signals[told:]] == ["SUCCESS"] * 2
    code, out, err = master.run("ssh", worker.instance, "hostname", user="chainmail")
    assert (code, out) == (0, worker.name + "\n"), err


def boot_mends_what_was_broken():
    before = state(master)
    good = master.read("/etc/hosts")
    master.write("/etc/hosts", "127.0.0.1 localhost\n127.0.1.1 master\n")
    master.write("/etc/chainmail/known_hosts", "")
    wait_until(lambda: [text for _, text, _ in state(master)] == [text for _, text, _ in before],
               lambda: master.read("/etc/hosts"), 20)
    assert master.read("/etc/hosts") == good


def a_watch_outlives_a_cloud_that_fails():
    hosts = master.path("/etc/chainmail/hosts")
    before = hosts.read_text(), hosts.stat().st_ino
    cluster.aws.is_refused = lambda action: True
    said = lambda: master.log().count("the cluster does not answer")  # noqa: E731
    wait_until(lambda: said() == 1, master.log, 30)
    time.sleep(12)
    assert said() == 1, "it is said once"
    assert (hosts.read_text(), hosts.stat().st_ino) == before
    assert "ThrottlingException" in master.log() or "Rate exceeded" in master.log()
    cluster.aws.is_refused = lambda action: False
    wait_until(lambda: "the cluster answers again" in master.log(), master.log, 30)
    assert (hosts.read_text(), hosts.stat().st_ino) == before


def throttled_for_good():
    cluster.aws.is_refused = lambda action: action in ("GetParameter", "PutParameter")
    said = fails(worker, "no-login", reconfigure="WAIT=4\n")
    assert "ThrottlingException" in said, said
    said = fails(master, "no-store")
    assert "ThrottlingException" in said, said
    cluster.aws.is_refused = lambda action: False
    for machine in (worker, master):
        wait_until(lambda: len(watches(machine)) == 1, lambda: f"{machine.name} is not watched: {machine.log()}", 10)


def no_metadata():
    """On a real instance there are no credentials then, and the stack sees its time limit instead."""
    cluster.metadata.pop(worker.instance).end()
    said = fails(worker, "no-metadata", variables=CREDENTIALS)
    assert "169.254.169.254" in said or "no token" in said, said
    # Without a word from it, the other services are asked in vain.
    worker.write("/etc/chainmail/node.conf", worker.read("/etc/chainmail/node.conf") + "RETRY_FOR=4\n")
    code, _, err = worker.run("/usr/share/chainmail/node/boot")
    assert code == 1 and "the stack could not be told of the failure: Unable to locate credentials" in err, err
    cluster.metadata[worker.instance] = Imds(worker, worker.instance)
    ended_well(worker.boot())
    assert f"/chainmail/{STACK}/node/{worker.instance}" in cluster.aws.parameters()


SYSTEMCTL = """#!/bin/sh
# What systemd does for boot.
echo "$*" >>/tmp/systemctl
case $* in
  "stop chainmail-node" | "restart chainmail-node")
    [ ! -f /tmp/unit ] || kill "$(cat /tmp/unit)" ;;
esac
case $* in
  "restart chainmail-node")
    setsid $(sed -n 's/^ExecStart=//p' /etc/systemd/system/chainmail-node.service) </dev/null >/dev/null 2>&1 3>&- 8>&- &
    echo $! >/tmp/unit ;;
  "reload-or-restart ssh") kill -HUP "$(cat /run/sshd.pid)" ;;
esac
"""


def under_systemd_the_watch_is_a_unit():
    ended_well(worker.boot())
    worker.write("/usr/local/bin/systemctl", SYSTEMCTL, 0o755)
    worker.path("/run/systemd/system").mkdir(parents=True)
    worker.run("sh", "-c", "kill $(cat /run/chainmail/watch.pid)")
    wait_until(lambda: not watches(worker), lambda: str(watches(worker)), 10)
    ended_well(worker.boot())
    before = watches(worker)
    ended_well(worker.boot())
    after = watches(worker)
    assert len(before) == len(after) == 1 and before != after and [worker.read("/tmp/unit").strip()] == after
    asked = [line for line in worker.read("/tmp/systemctl").splitlines() if "ssh" not in line]
    assert asked[-4:] == ["stop chainmail-node", "daemon-reload", "enable chainmail-node", "restart chainmail-node"], asked
    unit = "/etc/systemd/system/chainmail-node.service"
    code, out, err = worker.run("sh", "-c", f"! command -v systemd-analyze || systemd-analyze verify {unit}")
    assert code == 0 and unit not in err, out + err
    worker.path("/run/systemd/system").rmdir()
    ended_well(worker.boot())


def an_sshd_without_folders_of_configuration():
    config = worker.read("/etc/ssh/sshd_config")
    worker.write("/etc/ssh/sshd_config", "".join(line + "\n" for line in config.splitlines() if "Include" not in line))
    worker.path("/etc/ssh/sshd_config.d/50-chainmail.conf").unlink()
    for _ in range(2): ended_well(worker.boot())
    assert worker.read("/etc/ssh/sshd_config").count("AuthorizedKeysFile /etc/chainmail/authorized_keys") == 1
    for user, file in (("chainmail", "/etc/chainmail/authorized_keys"), ("root", ".ssh/authorized_keys .ssh/authorized_keys2")):
        _, out, err = worker.run("sshd", "-T", "-C", f"user={user},host=master,addr={master.address}")
        assert f"authorizedkeysfile {file}\n" in out, out + err
    code, out, err = master.run("ssh", worker.instance, "hostname", user="chainmail")
    assert (code, out) == (0, worker.name + "\n"), err


def slots_are_gpus_or_processors():
    for machine, script in ((master, "#!/bin/sh\nexit 9\n"), (worker, "#!/bin/sh\nfor n in 0 1 2; do echo GPU $n: H100; done\n")):
        machine.write("/usr/local/bin/nvidia-smi", script, 0o755)
        machine.write("/etc/chainmail/node.conf", machine.read("/etc/chainmail/node.conf") + "SLOTS=auto\n")
    master.path("/etc/openmpi").mkdir(exist_ok=True)
    ended_well(master.boot(), worker.boot())
    processors = len(os.sched_getaffinity(0))
    wanted = f"master slots={processors}\n{worker.instance} slots=3\n"
    wait_until(lambda: master.read("/etc/chainmail/hosts") == wanted, lambda: master.read("/etc/chainmail/hosts"), 70)
    assert master.path("/etc/openmpi/openmpi-default-hostfile").readlink().as_posix() == "/etc/chainmail/hosts"


CASES = [failures_before_there_is_a_master, a_slow_cloud_that_refuses_at_first, boot_again_changes_nothing,
         throttled_for_good, no_metadata]
LONG = [tokens_run_out_and_the_region_is_asked_for_once, boot_mends_what_was_broken, a_watch_outlives_a_cloud_that_fails, under_systemd_the_watch_is_a_unit,
        an_sshd_without_folders_of_configuration, slots_are_gpus_or_processors]
if __name__ == "__main__":
    sys.exit(main(CASES, LONG))

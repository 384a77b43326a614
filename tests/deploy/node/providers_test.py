#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Clusters of Google Cloud, of Azure, and of machines that share a folder: they boot, grow, and hear of an end that is
called off.

usage: isolated.sh providers_test.py [--all]
"""

import os
import pathlib
import sys

from cluster import Machine, Network, ended_well, main, wait_until
from other_clouds import Azure, Gcp

network = Network()
index = 0


class Folder:
    """No cloud: a folder of root's that all machines see."""

    def __init__(self):
        # Of its own: for a while the machines of another cluster count as running.
        name = f"store{index}"
        pathlib.Path("/tmp/shared", name).mkdir(parents=True, mode=0o755)
        self.master_conf = self.worker_conf = {"STORE": f"/shared/{name}"}
        self.machines = {}

    def add(self, machine, _):
        self.machines[machine.name] = machine
        return machine.name

    def announce_end(self, name):
        self.machines[name].write("/etc/chainmail/leaving", "is needed elsewhere\n")

    def call_off(self, name):
        self.machines[name].path("/etc/chainmail/leaving").unlink()

    def forget(self, name):
        self.machines[name].switch_off()


def machine_of(cloud, provider, role, conf):
    global index
    index += 1
    machine = Machine(network, "master" if role == "master" else f"worker{index}", f"10.77.0.{index}", shared="/tmp/shared")
    machine.number = cloud.add(machine, role == "master")
    api = {"ENDPOINT": cloud.api.url} if hasattr(cloud, "api") else {}
    machine.configure({"ROLE": role, "PROVIDER": provider, "CLUSTER": "demo", "SLOTS": 4, **api, **conf})
    return machine


def hosts_become(master, *lines, seconds=15):
    wanted = "master slots=4\n" + "".join(f"{line.name} slots=4\n" for line in lines)
    return wait_until(lambda: master.read("/etc/chainmail/hosts") == wanted,
                      lambda: f"{master.read('/etc/chainmail/hosts')} not {wanted}: {master.log()}", seconds)


def boots_and_follows(cloud, provider, gone_within=15):
    """Without `gone_within` nobody goes."""
    master = machine_of(cloud, provider, "master", cloud.master_conf)
    one, two = [machine_of(cloud, provider, "worker", cloud.worker_conf) for _ in range(2)]
    try:
        ended_well(master.boot(), one.boot(), two.boot())
        wait_until(lambda: len(master.read("/etc/chainmail/hosts").splitlines()) == 3, master.log, 15)
        for worker in (one, two):
            code, out, err = master.run("ssh", worker.name, "hostname", user="chainmail", variables=["HOME=/home/chainmail"])
            assert (code, out) == (0, worker.name + "\n"), err
        cloud.announce_end(one.number)
        notice = hosts_become(master, two)
        cloud.call_off(one.number)
        hosts_become(master, two, one)  # as a new one
        gone = 0.0
        if gone_within:
            cloud.forget(two.number)
            gone = hosts_become(master, one, seconds=gone_within)
        assert "stays after all" in one.log(), one.log()
        key = master.read("/etc/chainmail/login/id_ed25519").splitlines()[2]
        assert len(key) > 40 and not any(key in path.read_text() for path in pathlib.Path("/tmp/shared").rglob("*")
                                         if path.is_file())
        return f"(notice {notice:.1f} s, gone {gone:.1f} s)"
    finally:
        for machine in (master, one, two): machine.switch_off()


def google_cloud():
    return boots_and_follows(Gcp(), "gcp")


def azure():
    cloud = Azure()
    said = boots_and_follows(cloud, "azure")
    assert any("chainmail-login" in machine["tags"] for machine in cloud.machines.values())
    return said


def a_shared_folder():
    return boots_and_follows(Folder(), "files", gone_within=None)


def a_shared_folder_and_a_machine_that_is_switched_off():
    """It is gone when it has not renewed its record for 20 s."""
    return boots_and_follows(Folder(), "files", gone_within=40)


def a_folder_of_somebody_elses_is_refused():
    cloud = Folder.__new__(Folder)
    cloud.machines = {}
    machine = machine_of(cloud, "files", "worker", {"STORE": "/shared/open", "RETRY_FOR": 2})
    pathlib.Path("/tmp/shared/open").mkdir()
    os.chmod("/tmp/shared/open", 0o777)
    code, _, err = machine.run("/usr/share/chainmail/node/boot")
    assert code == 1 and "boot: no-metadata: " in err and "others than root may write to /shared/open" in err, err
    machine.configure({"ROLE": "worker", "PROVIDER": "files", "CLUSTER": "demo", "STORE": "/shared/none", "RETRY_FOR": 2})
    code, _, err = machine.run("/usr/share/chainmail/node/boot")
    assert code == 1 and "there is no folder STORE=/shared/none: is it mounted?" in err, err
    machine.switch_off()


CASES = [google_cloud, azure, a_shared_folder, a_folder_of_somebody_elses_is_refused]
LONG = [a_shared_folder_and_a_machine_that_is_switched_off]
if __name__ == "__main__":
    sys.exit(main(CASES, LONG))

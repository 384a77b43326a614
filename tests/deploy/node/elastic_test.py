#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""An elastic job on the hosts of a cluster: instances that join the group join the job, those that are about to end are
drained.

usage: isolated.sh elastic_test.py LAUNCHER ELASTIC_PROBE
"""

import os
import re
import subprocess
import sys
import threading

from aws_cloud import AwsCluster
from cluster import ended_well, main, patient, wait_until

LAUNCHER, PROBE = [os.path.abspath(word) for word in sys.argv[1:3]]
HOME = "/shared/chainmail"
PREPARE = "#!/bin/sh\nhostname >>prepared\n[ ! -e /etc/no_data ] || { echo 'no data here' >&2; exit 3; }\n"
LINE = ["launcher", "--elastic", "2:8", "--prepare", "./prepare", "--elastic-window", "0.2", PROBE, "--steps", "1000000"]
cluster = AwsCluster(1, programs=(LAUNCHER, PROBE))


class Job:
    """What the user of the cluster typed on its master."""

    def __init__(self):
        master = cluster.master
        self.process = subprocess.Popen(
            master.command("sh", "-c", f'cd {HOME} && echo $$ >/tmp/job && exec "$@"', "sh", *LINE, user="chainmail"),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = []
        self.reader = threading.Thread(target=lambda: self.lines.extend(iter(self.process.stdout.readline, "")))
        self.reader.start()

    def text(self):
        return "".join(self.lines)

    def wait_for(self, pattern, times=1, seconds=30):
        return wait_until(lambda: len(re.findall(pattern, self.text(), re.M)) >= times,
                          lambda: f"no {times} times {pattern}: {self.text()[-3000:]}{cluster.master.log()}", seconds)

    def worlds(self):
        """Their numbers of ranks, one after the other, as far as all ranks have begun them."""
        sizes = {}
        for number, _, size in re.findall(r"^world (\d+) (\d+) (\d+)$", self.text(), re.M):
            sizes.setdefault(int(number), []).append(int(size))
        return [each[0] for _, each in sorted(sizes.items()) if len(each) == each[0]]

    def wait_for_size(self, size, seconds=30):
        return wait_until(lambda: self.worlds()[-1:] == [size],
                          lambda: f"worlds {self.worlds()}: {self.text()[-3000:]}{cluster.master.log()}", seconds)

    def end(self):
        # The process that is a child here is nsenter, which passes nothing on.
        cluster.master.run("sh", "-c", "kill $(cat /tmp/job)")
        try:
            return self.process.wait(patient(40))
        finally:
            cluster.master.run("sh", "-c", "kill -9 $(cat /tmp/job)")
            self.reader.join()


def equip(machine):
    machine.path("/usr/local/bin/launcher").symlink_to(LAUNCHER)


def instances_join_and_leave_a_running_job():
    for machine in cluster.machines.values(): equip(machine)
    cluster.boot()
    [first] = cluster.workers()
    cluster.wait_for_hosts(first)
    master = cluster.master
    master.write(f"{HOME}/prepare", PREPARE, 0o755)
    before = {path.name for path in master.path("/etc/chainmail").iterdir()}
    job = Job()
    took = {}
    try:
        job.wait_for_size(4)
        good, bad = [cluster.add(f"ip-10-77-0-{index}", cluster.group.grow(), index) for index in (3, 4)]
        for machine in (good, bad): equip(machine)
        bad.write("/etc/no_data", "")
        ended_well(good.boot(), bad.boot())
        took["joined"] = job.wait_for_size(6)
        # One whose preparation fails stays out, and is named.
        job.wait_for(f"--prepare on host {bad.instance} exited with code 3")
        job.wait_for(f"Refused host:{bad.instance}")

        cluster.metadata[first.instance].interrupt()
        took["drained"] = job.wait_for_size(4)
        job.wait_for("^left$", times=2)

        # The group takes one away: its lifecycle hook gives it time, as a notice does.
        cluster.group.terminate(good.instance)
        took["left"] = job.wait_for_size(2)

        code, _, err = master.run("launcher", "add", "/etc/chainmail/hosts", "n9", user="chainmail")
        assert code == 2 and "which the cluster keeps up to date" in err, err
        code, out, err = master.run("launcher", "status", "/etc/chainmail/hosts", user="chainmail")
        assert code == 0 and "runs: 2 of 2:8 ranks" in out, out + err
    finally:
        code = job.end()
    assert code == 143, f"{code}: {job.text()[-2000:]}"
    said = job.text()
    assert "LOST" not in said and "Lost host" not in said, said
    prepared = sorted(master.read(f"{HOME}/prepared").split())
    assert prepared == ["ip-10-77-0-2", "ip-10-77-0-3", "ip-10-77-0-4", "master"], prepared
    assert {path.name for path in master.path("/etc/chainmail").iterdir()} == before, "something stands beside the file"
    assert "cannot make" not in said and "without this log" not in said, said
    return f"({', '.join(f'{what} after {seconds:.1f} s' for what, seconds in took.items())})"


CASES = [instances_join_and_leave_a_running_job]
if __name__ == "__main__":
    sys.exit(main(CASES))

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Workers that come, go, announce their end, and take over the address of one that has gone.

usage: isolated.sh changes_test.py [--all]
"""

import re
import sys
import threading
import time

from aws_cloud import STACK, AwsCluster
from cluster import ended_well, main, patience, wait_until

LINE = re.compile(r"[A-Za-z0-9.-]+ slots=2\n")
WITHIN = 10  # seconds
cluster = AwsCluster(2)


def host_key_of(machine):
    return machine.read("/etc/ssh/ssh_host_ed25519_key.pub").split()[1]


def reads(master):
    """Of one whom any reader might be: every read is whole, and each of its hosts has a key and an address by then."""

    def read_on():
        while not state["is_over"] or state["count"] < 10_000:
            hosts = master.read("/etc/chainmail/hosts")
            known = master.read("/etc/chainmail/known_hosts")
            names = master.read("/etc/hosts")
            state["count"] += 1
            lines = hosts.splitlines(keepends=True)
            listed = [line.split()[0] for line in lines]
            time.sleep(0.001)  # the cloud answers in this process, too
            if not lines or listed[0] != "master" or not all(LINE.fullmatch(line) for line in lines):
                state["torn"].append(hosts)
            # They may have been taken away since.
            if listed != [line.split()[0] for line in master.read("/etc/chainmail/hosts").splitlines()]: continue
            for name in listed[1:]:
                if name + " ssh-ed25519 " not in known or f" {name}\n" not in names:
                    state["unknown"].append((name, hosts, known, names))

    state = {"count": 0, "torn": [], "unknown": [], "is_over": False}
    state["thread"] = threading.Thread(target=read_on)
    state["thread"].start()
    return state


def hosts_are_right_within_ten_seconds():
    cluster.boot()
    first, second = cluster.workers()
    cluster.wait_for_hosts(first, second)
    reader = reads(cluster.master)
    took = {}
    try:
        third = cluster.add("ip-10-77-0-4", cluster.group.grow(), 4)
        ended_well(third.boot())
        took["added"] = cluster.wait_for_hosts(first, second, third, seconds=WITHIN)

        cluster.group.terminate(second.instance)
        took["terminated"] = cluster.wait_for_hosts(first, third, seconds=WITHIN)
        cluster.switch_off(second)

        # Its address is given to a machine that has other keys.
        heir = cluster.add("ip-10-77-0-3", cluster.group.grow(), 3)
        ended_well(heir.boot())
        took["address re-used"] = cluster.wait_for_hosts(first, third, heir, seconds=WITHIN)
        assert heir.address == second.address and second.instance not in cluster.master.read("/etc/chainmail/known_hosts")
        assert f"{heir.instance} ssh-ed25519 {host_key_of(heir)}\n" in cluster.master.read("/etc/chainmail/known_hosts")
        code, out, err = cluster.master.run("ssh", heir.instance, "hostname", user="chainmail")
        assert (code, out) == (0, heir.name + "\n"), err

        cluster.metadata[third.instance].interrupt()
        took["interrupted"] = cluster.wait_for_hosts(first, heir, seconds=WITHIN)
        assert "spot interruption" in cluster.aws.parameters()[f"/chainmail/{STACK}/leaving/{third.instance}"]

        cluster.metadata[first.instance].recommend_rebalance()
        took["rebalance"] = cluster.wait_for_hosts(heir, seconds=WITHIN)
    finally:
        reader["is_over"] = True
        reader["thread"].join()
    assert not reader["torn"] and not reader["unknown"], f"{reader['torn'][:2]} {reader['unknown'][:2]}"
    assert reader["count"] >= 10_000
    # What has been done is logged after that.
    wait_until(lambda: f"removed {first.instance}: rebalance" in cluster.master.log(), cluster.master.log, WITHIN)
    said = cluster.master.log()
    assert f"removed {third.instance}: spot interruption" in said, said
    assert said.count(f"added {heir.instance} (10.77.0.3, slots=2)") == 1, said
    return (f"({', '.join(f'{what} {seconds:.1f} s' for what, seconds in took.items())}; {reader['count']} reads; "
            f"things take {patience():.1f} times as long here as on an idle machine)")


def a_record_that_is_none_is_left_out():
    """A worker may write what it likes into its own record: lines, options, and names of others."""
    heir = next(machine for machine in cluster.workers() if machine.instance in cluster.hosts())
    ssm = cluster.aws.client("ssm")
    name = f"/chainmail/{STACK}/node/"
    good = ssm.get_parameter(Name=name + heir.instance)["Parameter"]["Value"]
    ours = cluster.master.read("/etc/chainmail/hosts")
    for index, bad in enumerate((
            good.replace(heir.instance, "master"), good + "\nmaster ssh-ed25519 AAAA", good.replace("10.77", "$(id)"),
            good.replace(" 2 ", " 2000 "), good.replace("ssh-ed25519", "ssh-rsa"), "@cert-authority " + good, "-oProxyCommand=id")):
        instance = f"i-bad{index}"
        ssm.put_parameter(Name=name + instance, Value=bad, Type="String")
    members = cluster.master.path("/usr/share/chainmail/node/aws.sh")
    text = members.read_text()
    # The cloud counts them, too.
    members.write_text(text + "\nmembers() { printf '%s\\n' '" + heir.instance + " " + heir.instance + "'; "
                       "for n in 0 1 2 3 4 5 6; do echo \"i-bad$n i-bad$n\"; done; echo 'i-bad0 master'; }\n")
    ended_well(cluster.master.boot())
    members.write_text(text)
    assert cluster.master.read("/etc/chainmail/hosts") == ours
    assert cluster.known_hosts() == {heir.instance}, cluster.master.read("/etc/chainmail/known_hosts")
    ended_well(cluster.master.boot())


def what_is_stored_of_gone_workers_is_removed():
    """After a quarter of an hour; here after three seconds."""
    script = cluster.master.path("/usr/share/chainmail/node/master.sh")
    script.write_text(script.read_text().replace("absent_for=900", "absent_for=3"))
    ended_well(cluster.master.boot())
    members = {f"/chainmail/{STACK}/node/{instance}" for instance in cluster.group.instances()}
    wait_until(lambda: {name for name in cluster.aws.parameters() if "/node/" in name} == members,
               lambda: f"{cluster.aws.parameters()} but {members}", 60)


CASES = [hosts_are_right_within_ten_seconds, a_record_that_is_none_is_left_out]
LONG = [what_is_stored_of_gone_workers_is_removed]
if __name__ == "__main__":
    sys.exit(main(CASES, LONG))

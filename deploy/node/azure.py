# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""What azure.sh asks the metadata service's answers and Azure Resource Manager for.

usage: azure.py whoami               "ID NAME ADDRESS" of this machine
       azure.py notice EVENTS        why this machine is about to end, of the answer about scheduled events
       azure.py members GROUP        a line "ID NAME" for each machine of RESOURCE_GROUP/SCALE_SET
       azure.py all GROUP KEY        a line "ID VALUE" for each of them that has this tag
       azure.py one MACHINE KEY      this tag of RESOURCE_GROUP/NAME, or of this machine where it is empty
       azure.py put KEY VALUE        gives this machine the tag; an empty value is none
Environment: CHAINMAIL_API, CHAINMAIL_TOKEN, CHAINMAIL_OWN (the metadata service's answer about this machine).
"""

import json
import os
import sys

from rest import NotThere, ask, main, say

API = os.environ["CHAINMAIL_API"]
COMPUTE_VERSION = "?api-version=2024-07-01"
TAGS_VERSION = "?api-version=2021-04-01"
ENDS = ("Preempt", "Terminate", "Redeploy", "Reboot")


def own():
    return json.loads(os.environ["CHAINMAIL_OWN"])


def machines_of(resource_group):
    return (f"{API}/subscriptions/{own()['compute']['subscriptionId']}/resourceGroups/{resource_group}"
            "/providers/Microsoft.Compute/virtualMachines")


def is_of(machine, scale_set):
    its_set = (machine["properties"].get("virtualMachineScaleSet") or {}).get("id", "")
    return its_set.rpartition("/")[2].lower() == scale_set.lower()


def group_members(group):
    resource_group, _, scale_set = group.partition("/")
    url = machines_of(resource_group) + COMPUTE_VERSION
    while url:
        answer = ask(url)
        for machine in answer["value"]:
            # Tags that are written make it "Updating" for a moment.
            is_there = machine["properties"].get("provisioningState") in ("Succeeded", "Updating")
            if is_there and is_of(machine, scale_set): yield machine
        url = answer.get("nextLink")


def host_name(profile, name):
    """A machine of a specialised image has no profile, and the host name that is on its disk: that of the resource is
    its own among these."""
    return (profile or {}).get("computerName") or name


def tag(machine, key):
    return (machine.get("tags") or {}).get(key, "")


def whoami():
    compute = own()["compute"]
    address = own()["network"]["interface"][0]["ipv4"]["ipAddress"][0]["privateIpAddress"]
    say(compute["vmId"], host_name(compute.get("osProfile"), compute["name"]), address)


def notice(events):
    """Freezes are over after seconds, and take nothing away."""
    for event in json.loads(events).get("Events") or []:
        if event["EventType"] in ENDS and own()["compute"]["name"] in (event.get("Resources") or []):
            say(f"scheduled event: {event['EventType']} {event.get('NotBefore', '')}")
            return


def members(group):
    for machine in group_members(group):
        say(machine["properties"]["vmId"], host_name(machine["properties"].get("osProfile"), machine["name"]))


def all_of(group, key):
    for machine in group_members(group):
        value = tag(machine, key)
        if value: say(machine["properties"]["vmId"], value)


def one(machine, key):
    resource_group, _, name = machine.partition("/")
    url = f"{machines_of(resource_group)}/{name}" if machine else API + own()["compute"]["resourceId"]
    value = tag(ask(url + COMPUTE_VERSION), key)
    if not value: raise NotThere
    say(value)


def put(key, value):
    url = f"{API}{own()['compute']['resourceId']}/providers/Microsoft.Resources/tags/default{TAGS_VERSION}"
    ask(url, {"operation": "Merge", "properties": {"tags": {key: value}}}, "PATCH")


if __name__ == "__main__":
    words = {"whoami": whoami, "notice": notice, "members": members, "all": all_of, "one": one, "put": put}
    sys.exit(main(words, "Azure Resource Manager"))

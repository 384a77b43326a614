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

from rest import NotThere, ask, main

API = os.environ["CHAINMAIL_API"]
OWN = json.loads(os.environ["CHAINMAIL_OWN"])
COMPUTE_VERSION = "?api-version=2024-07-01"
TAGS_VERSION = "?api-version=2021-04-01"
ENDS = ("Preempt", "Terminate", "Redeploy", "Reboot")


def machines_of(resource_group):
    return (f"{API}/subscriptions/{OWN['compute']['subscriptionId']}/resourceGroups/{resource_group}"
            "/providers/Microsoft.Compute/virtualMachines")


def is_of(machine, scale_set):
    its_set = machine["properties"].get("virtualMachineScaleSet", {}).get("id", "")
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


def whoami():
    compute = OWN["compute"]
    address = OWN["network"]["interface"][0]["ipv4"]["ipAddress"][0]["privateIpAddress"]
    print(compute["vmId"], compute["osProfile"]["computerName"], address)


def notice(events):
    """Freezes are over after seconds, and take nothing away."""
    for event in json.loads(events).get("Events", []):
        if event["EventType"] in ENDS and OWN["compute"]["name"] in event.get("Resources", []):
            print(f"scheduled event: {event['EventType']} {event.get('NotBefore', '')}".rstrip())
            return


def members(group):
    for machine in group_members(group):
        print(machine["properties"]["vmId"], machine["properties"]["osProfile"]["computerName"])


def all_of(group, key):
    for machine in group_members(group):
        value = machine.get("tags", {}).get(key, "")
        if value: print(machine["properties"]["vmId"], value)


def one(machine, key):
    resource_group, _, name = machine.partition("/")
    url = f"{machines_of(resource_group)}/{name}" if machine else API + OWN["compute"]["resourceId"]
    value = ask(url + COMPUTE_VERSION).get("tags", {}).get(key, "")
    if not value: raise NotThere
    print(value)


def put(key, value):
    url = f"{API}{OWN['compute']['resourceId']}/providers/Microsoft.Resources/tags/default{TAGS_VERSION}"
    ask(url, {"operation": "Merge", "properties": {"tags": {key: value}}}, "PATCH")


if __name__ == "__main__":
    words = {"whoami": whoami, "notice": notice, "members": members, "all": all_of, "one": one, "put": put}
    sys.exit(main(words, "Azure Resource Manager"))

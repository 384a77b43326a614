# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""What gcp.sh asks Compute Engine for.

usage: gcp.py members GROUP       a line "ID NAME" for each instance that runs and is not about to go
       gcp.py one INSTANCE KEY    this guest attribute of an instance in the same zone
       gcp.py all GROUP KEY       a line "ID VALUE" for each of the members that has it
Environment: CHAINMAIL_API, CHAINMAIL_TOKEN, CHAINMAIL_ZONE (projects/NUMBER/zones/ZONE), CHAINMAIL_REGION (empty: the
group is one of the zone).
"""

import os
import sys
import urllib.error

from rest import NotThere, ask, main

API = os.environ["CHAINMAIL_API"]
_, PROJECT, _, ZONE = os.environ["CHAINMAIL_ZONE"].split("/")
REGION = os.environ["CHAINMAIL_REGION"]
STAYING = ("NONE", "REFRESHING", "VERIFYING")


def group_members(group):
    """(id, name, zone)"""
    place = f"regions/{REGION}" if REGION else f"zones/{ZONE}"
    url = f"{API}/projects/{PROJECT}/{place}/instanceGroupManagers/{group}/listManagedInstances?maxResults=500"
    page = ""
    while True:
        answer = ask(url + page, {}, "POST")
        for each in answer.get("managedInstances", []):
            if each.get("instanceStatus") != "RUNNING" or each.get("currentAction") not in STAYING: continue
            words = each["instance"].split("/")  # .../zones/ZONE/instances/NAME
            yield each["id"], words[-1], words[-3]
        if not answer.get("nextPageToken"): return
        page = "&pageToken=" + answer["nextPageToken"]


def attribute(zone, instance, key):
    """Empty where there is none."""
    url = f"{API}/projects/{PROJECT}/zones/{zone}/instances/{instance}/getGuestAttributes?queryPath=chainmail/"
    try:
        answer = ask(url)
    except urllib.error.HTTPError as error:
        if error.code == 404: return ""  # it has stored nothing yet
        raise
    found = {each["key"]: each["value"] for each in answer.get("queryValue", {}).get("items", [])}
    return found.get(key, "")


def members(group):
    for number, name, _ in group_members(group): print(number, name)


def one(instance, key):
    value = attribute(ZONE, instance, key)
    if not value: raise NotThere
    print(value)


def all_of(group, key):
    for number, name, zone in group_members(group):
        value = attribute(zone, name, key)
        if value: print(number, value)


if __name__ == "__main__":
    sys.exit(main({"members": members, "one": one, "all": all_of}, "Compute Engine"))

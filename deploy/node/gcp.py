# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""What gcp.sh asks Compute Engine for.

usage: gcp.py members GROUP       a line "ID NAME" for each instance that runs and is not about to go
       gcp.py one INSTANCE KEY    this guest attribute of an instance in the same zone
       gcp.py all GROUP KEY       a line "ID VALUE" for each of the members that has it
Environment: CHAINMAIL_API, CHAINMAIL_TOKEN, CHAINMAIL_ZONE (projects/NUMBER/zones/ZONE), CHAINMAIL_REGION (empty: the
group is one of the zone), CHAINMAIL_CACHE (a file of this program's own, for `all`).
"""

import concurrent.futures
import json
import os
import pathlib
import sys
import time
import urllib.error

from rest import NotThere, ask, main, say

API = os.environ["CHAINMAIL_API"]
REGION = os.environ["CHAINMAIL_REGION"]
STAYING = ("NONE", "REFRESHING", "VERIFYING")
# No request lists attributes of several instances. A project has some 1500 requests a minute, and `all` is called every
# five seconds: so many are asked at a time, those first that were asked the longest ago.
AT_A_TIME = 50
AT_ONCE = 10
FRESH = 4  # seconds


def project_and_zone():
    _, project, _, zone = os.environ["CHAINMAIL_ZONE"].split("/")
    return project, zone


def group_members(group):
    """(id, name, zone)"""
    project, zone = project_and_zone()
    place = f"regions/{REGION}" if REGION else f"zones/{zone}"
    url = f"{API}/projects/{project}/{place}/instanceGroupManagers/{group}/listManagedInstances?maxResults=500"
    page = ""
    while True:
        answer = ask(url + page, {}, "POST")
        for each in answer.get("managedInstances") or []:
            if each.get("instanceStatus") != "RUNNING" or each.get("currentAction") not in STAYING: continue
            words = each["instance"].split("/")  # .../zones/ZONE/instances/NAME
            yield each["id"], words[-1], words[-3]
        if not answer.get("nextPageToken"): return
        page = "&pageToken=" + answer["nextPageToken"]


def attributes(zone, instance):
    """By key; none where it has stored nothing yet."""
    project, _ = project_and_zone()
    url = f"{API}/projects/{project}/zones/{zone}/instances/{instance}/getGuestAttributes?queryPath=chainmail/"
    try:
        answer = ask(url)
    except urllib.error.HTTPError as error:
        if error.code == 404: return {}
        raise
    return {each["key"]: each["value"] for each in (answer.get("queryValue") or {}).get("items") or []}


def members(group):
    for number, name, _ in group_members(group): say(number, name)


def one(instance, key):
    _, zone = project_and_zone()
    value = attributes(zone, instance).get(key)
    if not value: raise NotThere
    say(value)


def known():
    """id: [when it was asked, attributes]; of an earlier start of the machine, or half a file, is nothing."""
    try:
        found = json.loads(pathlib.Path(os.environ["CHAINMAIL_CACHE"]).read_text())
        return {number: entry for number, entry in found.items() if entry[0] <= time.monotonic()}
    except (OSError, ValueError, TypeError, AttributeError, LookupError):
        return {}


def all_of(group, key):
    entries = known()
    there = {number: (zone, name) for number, name, zone in group_members(group)}
    asked_at = {number: entries[number][0] if number in entries else float("-inf") for number in there}
    now = time.monotonic()
    due = sorted((number for number in there if now - asked_at[number] > FRESH), key=asked_at.get)[:AT_A_TIME]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for number, found in zip(due, pool.map(lambda number: attributes(*there[number]), due)):
            entries[number] = [now, found]
    entries = {number: entry for number, entry in entries.items() if number in there}
    for number, (_, found) in entries.items():
        if found.get(key): say(number, found[key])
    new = pathlib.Path(os.environ["CHAINMAIL_CACHE"] + ".new")
    new.write_text(json.dumps(entries))
    new.replace(os.environ["CHAINMAIL_CACHE"])


if __name__ == "__main__":
    sys.exit(main({"members": members, "one": one, "all": all_of}, "Compute Engine"))

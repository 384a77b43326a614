# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Google Cloud and Azure for tests: the metadata servers of machines, and the interfaces that list machines and their
attributes or tags. They refuse what lacks the headers and tokens that the real ones ask for."""

import http.server
import json
import threading
import urllib.parse

from cluster import GATEWAY
from metadata import Handler, Server

TOKEN = json.dumps({"access_token": "token-of-a-node", "expires_in": 3000, "token_type": "Bearer"})


class Api:
    """An HTTP server at the gateway; `answer(method, path, query, body)` returns what is sent as JSON, or None: 404."""

    def __init__(self, answer):
        class ApiHandler(Handler):
            def do_GET(self):
                if self.headers.get("Authorization") != "Bearer token-of-a-node": return self.reply(401, "{}")
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                url = urllib.parse.urlsplit(self.path)
                found = answer(self.command, url.path, dict(urllib.parse.parse_qsl(url.query)),
                               json.loads(body) if body else None)
                return self.reply(404, "{}") if found is None else self.reply(200, json.dumps(found))

            do_POST = do_PATCH = do_GET

        self.server = http.server.ThreadingHTTPServer((GATEWAY, 0), ApiHandler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://{GATEWAY}:{self.server.server_port}"


class GcpMetadata(Server):
    def __init__(self, machine, number):
        super().__init__(machine, GcpHandler)
        self.guest = {}
        self.paths = {"id": number, "name": machine.name, "network-interfaces/0/ip": machine.address,
                      "zone": "projects/4711/zones/europe-west3-a", "service-accounts/default/token": TOKEN,
                      "preempted": "FALSE", "maintenance-event": "NONE"}


class GcpHandler(Handler):
    def do_GET(self):
        path = self.path.removeprefix("/computeMetadata/v1/instance/")
        if self.headers.get("Metadata-Flavor") != "Google": return self.reply(403, "forbidden")
        if path.startswith("guest-attributes/"):
            return self.do_guest(path.removeprefix("guest-attributes/"))
        return self.reply(200, self.server.paths[path]) if path in self.server.paths else self.reply(404, "not found")

    def do_guest(self, name):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        if self.command == "PUT":
            self.server.guest[name] = body
        elif name not in self.server.guest:
            return self.reply(404, "not found")
        elif self.command == "DELETE":
            del self.server.guest[name]
        return self.reply(200, self.server.guest.get(name, ""))

    do_PUT = do_DELETE = do_GET


class Gcp:
    """A managed instance group of one zone. Pages of one instance each, as the real ones are of 500."""

    def __init__(self):
        self.machines = {}  # by number
        self.group = []
        self.api = Api(self.answer)
        self.master_conf = {"GROUP": "workers"}
        self.worker_conf = {"MASTER": "master"}

    def add(self, machine, is_master):
        number = str(4251834526534635000 + len(self.machines))  # one double, whichever it is
        self.machines[number] = GcpMetadata(machine, number)
        if not is_master: self.group.append(number)
        return number

    def announce_end(self, number):
        self.machines[number].paths["maintenance-event"] = "TERMINATE_ON_HOST_MAINTENANCE"

    def call_off(self, number):
        self.machines[number].paths["maintenance-event"] = "NONE"

    def forget(self, number):
        self.group.remove(number)

    def answer(self, method, path, query, _):
        zone = "/compute/v1/projects/4711/zones/europe-west3-a/"
        if method == "POST" and path == zone + "instanceGroupManagers/workers/listManagedInstances":
            at, of = int(query.get("pageToken", 0)), query.get("pages_of", 1)
            page = {"managedInstances": [
                {"id": number, "instanceStatus": "RUNNING", "currentAction": "NONE", "instance":
                 f"https://www.googleapis.com{zone}instances/{self.machines[number].paths['name']}"}
                for number in self.group[at:at + of]]}
            if at + of < len(self.group): page["nextPageToken"] = str(at + of)
            return page
        for machine in self.machines.values():
            if path == f"{zone}instances/{machine.paths['name']}/getGuestAttributes" and machine.guest:
                assert query["queryPath"] == "chainmail/"
                items = [{"namespace": name.split("/")[0], "key": name.split("/")[1], "value": value}
                         for name, value in machine.guest.items()]
                return {"queryValue": {"items": items}}
        return None


class AzureMetadata(Server):
    def __init__(self, machine, number, resource):
        super().__init__(machine, AzureHandler)
        self.events = []
        self.instance = {
            "compute": {"vmId": number, "name": machine.name + "_vm", "osProfile": {"computerName": machine.name},
                        "subscriptionId": "sub", "resourceId": resource},
            "network": {"interface": [{"ipv4": {"ipAddress": [{"privateIpAddress": machine.address}]}}]}}


class AzureHandler(Handler):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if self.headers.get("Metadata") != "true" or "api-version" not in query: return self.reply(400, "bad request")
        if url.path == "/metadata/instance": return self.reply(200, json.dumps(self.server.instance))
        if url.path == "/metadata/scheduledevents":
            return self.reply(200, json.dumps({"DocumentIncarnation": 1, "Events": self.server.events}))
        is_token = url.path == "/metadata/identity/oauth2/token" and query["resource"] == "https://management.azure.com/"
        return self.reply(200, TOKEN) if is_token else self.reply(404, "not found")


class Azure:
    """A scale set of flexible orchestration in a resource group of its own, beside a machine of none."""

    def __init__(self):
        self.machines = {}  # by number: metadata, tags, resource
        self.api = Api(self.answer)
        self.master_conf = {"GROUP": "rg-workers/workers"}
        self.worker_conf = {"MASTER": "rg-master/master_vm"}
        self.machines["other"] = {"name": "other", "tags": {"chainmail-node": "other 10.0.0.9 8 ssh-ed25519 AAAA"},
                                  "set": "another", "group": "rg-workers"}

    def add(self, machine, is_master):
        number = f"vm-{len(self.machines)}"
        group = "rg-master" if is_master else "rg-workers"
        resource = f"/subscriptions/sub/resourceGroups/{group}/providers/Microsoft.Compute/virtualMachines/{machine.name}_vm"
        self.machines[number] = {
            "metadata": AzureMetadata(machine, number, resource), "name": machine.name, "tags": {}, "group": group,
            "set": None if is_master else "Workers"}
        return number

    def announce_end(self, number):
        machine = self.machines[number]
        machine["metadata"].events = [
            {"EventId": "1", "EventType": "Freeze", "Resources": [machine["name"] + "_vm"]},
            {"EventId": "2", "EventType": "Preempt", "Resources": ["somebody_else"]},
            {"EventId": "3", "EventType": "Preempt", "Resources": [machine["name"] + "_vm"], "NotBefore": "soon"}]

    def call_off(self, number):
        self.machines[number]["metadata"].events = []

    def forget(self, number):
        del self.machines[number]

    def described(self, number, machine):
        found = {"name": machine["name"] + "_vm", "tags": machine["tags"], "properties": {
            "vmId": number, "provisioningState": "Succeeded", "osProfile": {"computerName": machine["name"]}}}
        if machine["set"]:
            found["properties"]["virtualMachineScaleSet"] = {"id": "/subscriptions/sub/.../" + machine["set"]}
        return found

    def answer(self, method, path, _, body):
        words = path.split("/")  # "", subscriptions, sub, resourceGroups, GROUP, providers, ..., virtualMachines, NAME
        if len(words) < 8 or words[7] != "virtualMachines": return None
        found = {number: machine for number, machine in self.machines.items() if machine["group"] == words[4]}
        if len(words) == 8: return {"value": [self.described(*each) for each in found.items()]}
        for number, machine in found.items():
            if words[8] != machine["name"] + "_vm": continue
            if method == "PATCH" and path.endswith("/providers/Microsoft.Resources/tags/default"):
                assert body["operation"] == "Merge"
                machine["tags"].update(body["properties"]["tags"])
                assert all(len(value) <= 256 for value in machine["tags"].values()), "Azure's limit"
            return self.described(number, machine)
        return None

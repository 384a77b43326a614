#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Clusters of Google Cloud, of Azure, and of machines that share a folder: they boot, grow, and hear of an end that is
called off. What their programs make of answers that are none.

usage: isolated.sh providers_test.py [--all]
"""

import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

from cluster import PROJECT, Machine, Network, ended_well, main, patient, wait_until
from other_clouds import TOKEN, Api, Azure, Gcp

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


class Raw:
    """An interface that answers with these bytes, whatever it is asked for, and closes."""

    def __init__(self, answer):
        self.asked = []
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        threading.Thread(target=self.serve, args=(answer,), daemon=True).start()

    def serve(self, answer):
        while True:
            with self.listening.accept()[0] as connection:
                self.asked.append(connection.recv(65536))
                connection.sendall(answer)


def http_answer(body, code=200, head=""):
    return f"HTTP/1.1 {code} X\r\nContent-Length: {len(body)}\r\n{head}\r\n{body}".encode()


def asks(program, words, url, **variables):
    """(exit code, stdout, lines on stderr) of azure.py or gcp.py."""
    own = {"compute": {"subscriptionId": "s", "resourceId": "/r", "vmId": "v", "name": "n"}}
    environment = {**os.environ, "CHAINMAIL_API": url, "CHAINMAIL_OWN": json.dumps(own), "CHAINMAIL_REGION": "",
                   "CHAINMAIL_ZONE": "projects/1/zones/z", "CHAINMAIL_TOKEN": '{"access_token": "secret"}',
                   "CHAINMAIL_CACHE": "/tmp/cache", **variables}
    done = subprocess.run([sys.executable, "-B", PROJECT / "deploy/node" / program, *words], env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=patient(60), check=False)
    return done.returncode, done.stdout, done.stderr.splitlines()


QUESTIONS = (("azure.py", ("members", "g/w")), ("azure.py", ("one", "g/m", "k")), ("gcp.py", ("members", "w")),
             ("gcp.py", ("one", "m", "k")))


def an_answer_that_is_none_is_a_failure():
    """And never "there is no such key", after which a master would store its key again and a worker forget its end."""
    answers = (http_answer("<html>Log in</html>"), http_answer('{"value": [{"na'), http_answer("[]"), http_answer("null"),
               http_answer("[" * 100_000), http_answer("{}", 429), http_answer("{}", 500), b"",
               b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{}", b"HTTP/1.1 503 X\r\nContent-Length: 9\r\n\r\n{",
               b"\0\1 no HTTP\r\n\r\n")
    for index, answer in enumerate(answers):
        url = Raw(answer).url
        for program, words in QUESTIONS[index % 2::2]:
            code, out, err = asks(program, words, url)
            assert (code, out, len(err)) == (2, "", 1), f"{answer[:60]} to {program} {words}: {code} {out} {err}"
    for variable in ("CHAINMAIL_OWN", "CHAINMAIL_ZONE", "CHAINMAIL_TOKEN"):
        program = "gcp.py" if variable == "CHAINMAIL_ZONE" else "azure.py"
        code, _, err = asks(program, ("one", "g/m", "k"), url, **{variable: "<html>"})
        assert (code, len(err)) == (2, 1), f"{variable}: {code} {err}"


def the_token_goes_to_nobody_else():
    other = Raw(http_answer("{}"))
    for program, words in QUESTIONS:
        code, _, err = asks(program, words, Raw(http_answer("", 302, f"Location: {other.url}/\r\n")).url)
        assert code == 2 and "answers 302" in err[0], err
    assert not other.asked, other.asked


def a_worker_speaks_for_no_other_one():
    """What it has stored is one line of its own, also where it has written two."""
    words = "x 10.0.0.1 4 ssh-ed25519 AAAA\n2 y 10.0.0.1 4 ssh-ed25519 AAAA"
    azure = {"value": [{"name": "x", "tags": {"chainmail-node": words}, "properties": {
        "vmId": "1", "provisioningState": "Succeeded", "virtualMachineScaleSet": {"id": "/w"}}}]}
    _, out, err = asks("azure.py", ("all", "g/w", "chainmail-node"), Raw(http_answer(json.dumps(azure))).url)
    assert out == f"1 {words}\n".replace("\n2", " 2"), (out, err)
    cloud = Gcp()
    cloud.machines["1"] = argparse.Namespace(paths={"name": "x"}, guest={"chainmail/node": words})
    cloud.group.append("1")
    zone = {"CHAINMAIL_ZONE": "projects/4711/zones/europe-west3-a", "CHAINMAIL_TOKEN": TOKEN}
    _, out, err = asks("gcp.py", ("all", "workers", "node"), cloud.api.url + "/compute/v1", **zone)
    assert out == f"1 {words}\n".replace("\n2", " 2"), (out, err)


def machines_of_specialised_images():
    """Azure says no host name of theirs."""
    machine = {"name": "workers_ab12", "tags": None, "properties": {
        "vmId": "1", "provisioningState": "Succeeded", "virtualMachineScaleSet": {"id": "/w"}}}
    lone = {**machine, "properties": {**machine["properties"], "virtualMachineScaleSet": None}}
    url = Raw(http_answer(json.dumps({"value": [lone, machine]}))).url
    assert asks("azure.py", ("members", "g/w"), url) == (0, "1 workers_ab12\n", [])
    assert asks("azure.py", ("all", "g/w", "chainmail-node"), url) == (0, "", [])
    own = {"compute": {"vmId": "1", "name": "workers_ab12", "osProfile": {"computerName": ""}},
           "network": {"interface": [{"ipv4": {"ipAddress": [{"privateIpAddress": "10.0.0.4"}]}}]}}
    assert asks("azure.py", ("whoami",), url, CHAINMAIL_OWN=json.dumps(own)) == (0, "1 workers_ab12 10.0.0.4\n", [])


def two_hundred_instances():
    """Fifty at a time, ten at once, so that all are known after four calls; of one that has gone nothing is left."""
    cloud = Gcp()
    state = {"now": 0, "most": 0, "asked": []}
    lock = threading.Lock()

    def answer(method, path, query, body):
        if "getGuestAttributes" not in path: return cloud.answer(method, path, {**query, "pages_of": 500}, body)
        with lock:
            state["now"] += 1
            state["most"] = max(state["most"], state["now"])
            state["asked"].append(path.split("/")[-2])
        time.sleep(0.02)
        with lock: state["now"] -= 1
        return cloud.answer(method, path, query, body)

    for number in range(200):
        cloud.machines[str(number)] = argparse.Namespace(paths={"name": f"w{number}"}, guest={"chainmail/node": "x"})
        cloud.group.append(str(number))
    url = Api(answer).url + "/compute/v1"
    pathlib.Path("/tmp/cache").write_text('{"7": [')  # a disk was full
    zone = {"CHAINMAIL_ZONE": "projects/4711/zones/europe-west3-a", "CHAINMAIL_TOKEN": TOKEN}
    for count in (50, 100, 150, 200):
        code, out, err = asks("gcp.py", ("all", "workers", "node"), url, **zone)
        assert code == 0 and len(out.splitlines()) == len(set(state["asked"])) == count, f"{len(out.splitlines())} {err}"
    assert 1 < state["most"] <= 10, state["most"]
    cloud.group.remove("7")
    _, out, _ = asks("gcp.py", ("all", "workers", "node"), url, **zone)
    assert len(out.splitlines()) == 199 and "7 x" not in out.splitlines()


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


CASES = [an_answer_that_is_none_is_a_failure, the_token_goes_to_nobody_else, a_worker_speaks_for_no_other_one,
         machines_of_specialised_images, two_hundred_instances, google_cloud, azure, a_shared_folder,
         a_folder_of_somebody_elses_is_refused]
LONG = [a_shared_folder_and_a_machine_that_is_switched_off]
if __name__ == "__main__":
    sys.exit(main(CASES, LONG))

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""deploy/aws/parallelcluster-install on machines of their own (machine.py), and what parallelcluster.yaml may not have.
tests/soak/deploy/parallelcluster.py reads that file as ParallelCluster does. usage: parallelcluster_test.py; exit code
77: it needs root"""

import hashlib
import os
import tarfile
import tempfile
import unittest

import yaml

from machine import HOSTS, make_certificate, run_tests, start
from template import ROOT, walk

PROGRAM = os.path.join(ROOT, "deploy/aws/parallelcluster-install")
CONFIG = os.path.join(ROOT, "deploy/aws/parallelcluster.yaml")
ARCHIVE = "chainmail-0.2.0-linux-x86_64.tar.gz"
URL = f"https://{HOSTS[0]}/{ARCHIVE}"
LAUNCHER = "/opt/chainmail/bin/launcher"
LINK = "/usr/local/bin/launcher"
TEXT = "#!/bin/sh\necho version 0.2.0\n"
OLD = "#!/bin/sh\necho version 0.1.0\n"


class InstallTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.certificates = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="chainmail-tls-"))
        make_certificate(cls.certificates)

    def install(self, text=TEXT, url=URL, digest=None, old=False, **options):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="chainmail-machine-"))
        os.mkdir(folder + "/serve")
        for name, content in (("launcher", text), ("old", OLD)):
            with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
                file.write(content)
            os.chmod(f"{folder}/{name}", 0o755)
        with tarfile.open(f"{folder}/serve/{ARCHIVE}", "w:gz") as archive:
            archive.add(folder + "/launcher", "chainmail-0.2.0/bin/launcher")
        with open(f"{folder}/serve/{ARCHIVE}", "rb") as file:
            digest = digest or hashlib.sha256(file.read()).hexdigest()
        result = start(folder, self.certificates, command=[PROGRAM, url, digest], texts=[LAUNCHER, LINK],
                       files={LAUNCHER: "old"} if old else {}, folders=["/opt"], **options)
        left = [name for name in result["folders"]["/opt"] if name.startswith("chainmail")]
        return result["code"], result["text"], result["texts"][LAUNCHER], result["texts"][LINK], left

    def test_new_and_again(self):
        for runs, old in ((1, False), (2, False), (1, True)):
            with self.subTest(runs=runs, old=old):
                code, text, launcher, link, left = self.install(runs=runs, old=old)
                self.assertEqual((code, launcher, link, left), (0, TEXT, TEXT, ["chainmail"]), text)

    def test_what_is_refused(self):
        for arguments, wanted in [
                ({"digest": "0" * 64}, f"{URL} has the SHA-256 "), ({"url": URL + "x.tar.gz"}, "could not fetch"),
                ({"url": f"http://{HOSTS[0]}/{ARCHIVE}"}, "is not the https address of a .tar.gz"),
                ({"url": f"https://{HOSTS[0]}/moved/{ARCHIVE}"}, "could not fetch"),
                ({"text": "#!/bin/sh\nexit 1\n"}, f"bin/launcher of {URL} does not run here")]:
            with self.subTest(arguments=arguments):
                code, text, launcher, link, left = self.install(old=True, **arguments)
                self.assertEqual((code, launcher, link, left), (1, OLD, None, ["chainmail"]), text)
                self.assertIn(wanted, text)

    def test_usage(self):
        self.assertEqual(self.install(digest="abc")[0], 2)


class ConfigTest(unittest.TestCase):
    def test_closed_and_encrypted(self):
        with open(CONFIG, encoding="utf-8") as file:
            config = yaml.safe_load(file)
        self.assertEqual(config["HeadNode"]["Ssh"], {"AllowedIps": "10.0.0.0/8"})
        self.assertEqual(config["Imds"]["ImdsSupport"], "v2.0")
        for storage in config["SharedStorage"]:
            self.assertTrue(storage["EfsSettings"]["Encrypted"] and storage["EfsSettings"]["EncryptionInTransit"])
        for queue in config["Scheduling"]["SlurmQueues"]:
            self.assertEqual([resource["MinCount"] for resource in queue["ComputeResources"]], [0])

    def test_same_on_all_nodes(self):
        with open(CONFIG, encoding="utf-8") as file:
            found = [node["OnNodeConfigured"] for _, node in walk(yaml.safe_load(file)) if "OnNodeConfigured" in node]
        self.assertEqual(len(found), 2)
        self.assertEqual(found[0], found[1])
        self.assertEqual(os.path.basename(found[0]["Script"]), os.path.basename(PROGRAM))
        self.assertEqual(len(found[0]["Args"]), 2)


if __name__ == "__main__":
    run_tests()

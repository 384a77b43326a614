#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""What the nodes of the AWS cluster run first, on machines of their own (machine.py): what they install and mount, what they
tell boot, and what they refuse. usage: user_data_test.py; exit code 77: it needs root"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from machine import HOSTS, INSTANCE, make_certificate, run_tests, start
from template import PSEUDO, ROOT, Stack, read, user_data

NODE = os.path.join(ROOT, "deploy/node")
SHARED = "/srv/shared"
CONF = "/etc/chainmail/node.conf"
BOOT = "/usr/share/chainmail/node/boot"
PACKAGE = "chainmail-launcher_0.2.0_amd64.deb"
URL = f"https://{HOSTS[0]}/{PACKAGE}"
SIGNAL = (f"aws cloudformation signal-resource --region {PSEUDO['AWS::Region']} --stack-name {PSEUDO['AWS::StackId']} "
          f"--logical-resource-id Master --unique-id {INSTANCE} --status FAILURE")
# In place of the real one, which has tests of its own.
BOOT_TEXT = """#!/bin/sh
grep -q "^SIGNAL=" /etc/chainmail/node.conf && mountpoint -q /srv/shared && echo "boot $*" >>"$FOLDER/calls"
exit CODE
"""


def make_package(folder, path, files):
    """A Debian package with these files, {path: text}."""
    root = os.path.join(folder, "package")
    for name, text in {"/DEBIAN/control": "Package: a\nVersion: 1\nArchitecture: all\nMaintainer: a <a@example.org>\n"
                                          "Description: a\n", **files}.items():
        os.makedirs(os.path.dirname(root + name), exist_ok=True)
        with open(root + name, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(root + name, 0o755)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", root, path], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(root)


class UserDataTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.certificates = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="chainmail-tls-"))
        make_certificate(cls.certificates)

    def run_on_machine(self, template, boot_code=0, is_in_image=False, url=URL, digest=None, agent=True, before="", **options):
        """What has become of a machine. `digest`: in place of the package's; `before`: commands that it has run before."""
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="chainmail-machine-"))
        text = BOOT_TEXT.replace("CODE", str(boot_code))
        package = os.path.join(folder, "serve", PACKAGE)
        make_package(folder, package, {BOOT: text})
        with open(package, "rb") as file:
            own_digest = hashlib.sha256(file.read()).hexdigest()
        if agent:
            architecture = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True)
            make_package(folder, f"{folder}/serve/amazon-ssm-{PSEUDO['AWS::Region']}/latest/debian_"
                                 f"{architecture.stdout.strip()}/amazon-ssm-agent.deb", {"/usr/share/agent": ""})
        with open(folder + "/boot", "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(folder + "/boot", 0o755)

        parameters = {"SharedFolder": SHARED, "Slots": "4"}
        if url:
            parameters.update(PackageUrl=url, PackageSha256=digest or own_digest)
        with open(folder + "/user-data", "w", encoding="utf-8") as file:
            file.write(user_data(Stack(read(), parameters), template).replace("<FileSystem>", "fs-12345678"))
        result = start(folder, self.certificates, command=["sh", "-c", f"{before}\nexec sh {folder}/user-data"],
                       files={BOOT: "boot"} if is_in_image else {}, texts=[BOOT, CONF, "/etc/fstab"], **options)
        result.update(boot=result["texts"][BOOT], conf=result["texts"][CONF], fstab=result["texts"]["/etc/fstab"],
                      is_mounted=SHARED in result["mounts"])
        self.assertEqual(result["left"], [], "files in the temporary folder")
        return result

    def assert_ready(self, result, role, signal):
        self.assertEqual(result["code"], 0, result)
        self.assertEqual(result["conf"].splitlines(), [
            f"ROLE='{role}'", "PROVIDER='aws'", "CLUSTER='mnist'", "REGION='eu-central-1'", "SLOTS='4'", f"SHARED='{SHARED}'",
            "NODE_USER='chainmail'", "GROUP='mnist-workers'", f"SIGNAL='{signal}'"])
        self.assertEqual(result["calls"][-1], "boot ", "boot is last, with node.conf and the folder there")
        self.assertTrue(result["is_mounted"])
        self.assertNotIn(SIGNAL, result["calls"])

    def assert_refused(self, result, *wanted):
        self.assertEqual(result["code"], 1, result)
        for text in wanted:
            self.assertIn(text, result["text"])
        self.assertEqual(result["calls"].count(SIGNAL), 1, result["calls"])

    def installed(self, result):
        return [call.rpartition("/")[2] for call in result["calls"] if call.startswith("apt-get ") and call.endswith(".deb")]

    def test_master(self):
        result = self.run_on_machine("MasterTemplate")
        self.assert_ready(result, "master", "Master")
        self.assertEqual(self.installed(result), ["agent.deb", "chainmail-launcher.deb"])
        line, = (line for line in result["fstab"].splitlines() if SHARED in line)
        self.assertEqual(line.split()[:3], ["fs-12345678.efs.eu-central-1.amazonaws.com:/", SHARED, "nfs4"])
        for option in ("nfsvers=4.1", "hard", "noresvport", "_netdev", "nofail"):
            self.assertIn(option, line.split()[3].split(","))

    def test_worker(self):
        result = self.run_on_machine("WorkerTemplate", agent=False)
        self.assert_ready(result, "worker", "")
        self.assertEqual(self.installed(result), ["chainmail-launcher.deb"])

    @unittest.skipUnless(os.path.exists(NODE + "/common.sh"), f"there is no {NODE}/common.sh")
    def test_boot_takes_what_is_written(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="chainmail-conf-"))
        for template, role in (("MasterTemplate", "master"), ("WorkerTemplate", "worker")):
            conf = os.path.join(folder, role)
            with open(conf, "w", encoding="utf-8") as file:
                file.write(self.run_on_machine(template)["conf"])
            os.chmod(conf, 0o644)
            done = subprocess.run(
                ["sh", "-c", f"here={NODE} run={folder} conf={conf} log_file={folder}/log\n. $here/common.sh\nread_config\n"
                 'echo "$ROLE $PROVIDER $CLUSTER $REGION $SLOTS $SHARED $NODE_USER $GROUP $SIGNAL"'],
                capture_output=True, text=True, timeout=60,
                env={**os.environ, "PATH": os.path.dirname(sys.executable) + ":/usr/sbin:/usr/bin:/sbin:/bin"})
            self.assertEqual((done.returncode, done.stdout.split()), (0, [
                role, "aws", "mnist", "eu-central-1", "4", SHARED, "chainmail", "mnist-workers",
                *(["Master"] if role == "master" else [])]), done.stderr)

    def test_again(self):
        result = self.run_on_machine("MasterTemplate", runs=2)
        self.assert_ready(result, "master", "Master")
        self.assertEqual(result["fstab"].count(SHARED), 1)

    def test_image_of_another_clusters_node(self):
        line = f"fs-87654321.efs.eu-central-1.amazonaws.com:/ {SHARED} nfs4 nofail 0 0"
        result = self.run_on_machine("WorkerTemplate", before=f"echo '{line}' >>/etc/fstab; mkdir -p {SHARED}; "
                                                              f"/bin/mount -t tmpfs other {SHARED}")
        self.assert_ready(result, "worker", "")
        self.assertNotIn("fs-87654321", result["fstab"])
        self.assertEqual(result["fstab"].count(f"fs-12345678.efs.eu-central-1.amazonaws.com:/ {SHARED} nfs4 "), 1)
        self.assertIn(f"mount {SHARED}", result["calls"])

    @unittest.skipUnless(os.path.exists("/dev/fuse"), "no FUSE here")
    def test_image_of_another_clusters_node_whose_file_system_is_away(self):
        line = f"fs-87654321.efs.eu-central-1.amazonaws.com:/ {SHARED} nfs4 nofail 0 0"
        away = os.path.abspath(f"{NODE}/../../tests/support/away.py")
        result = self.run_on_machine("WorkerTemplate", before=f"""echo '{line}' >>/etc/fstab; mkdir -p {SHARED}
            {away} {SHARED} >/dev/null 2>&1 &
            until grep -q ' {SHARED} ' /proc/self/mounts; do /bin/sleep 0.1; done""")
        self.assert_ready(result, "worker", "")
        self.assertEqual(result["mounts"].count(SHARED), 1)

    def test_image_that_has_it(self):
        self.assert_ready(self.run_on_machine("WorkerTemplate", is_in_image=True, url=""), "worker", "")

    def test_wrong_checksum(self):
        result = self.run_on_machine("MasterTemplate", digest="0" * 64)
        self.assert_refused(result, f"{URL} has the SHA-256 ", f", not {'0' * 64}: not installed")
        self.assertEqual(self.installed(result), ["agent.deb"])
        self.assertEqual((result["boot"], result["conf"], result["is_mounted"]), (None, None, False))

    def test_wrong_checksum_of_a_worker(self):
        result = self.run_on_machine("WorkerTemplate", digest="0" * 64)
        self.assertEqual((result["code"], result["boot"], result["conf"]), (1, None, None))
        self.assertNotIn("signal-resource", "\n".join(result["calls"]))

    def test_no_package_at_all(self):
        result = self.run_on_machine("MasterTemplate", url="")
        self.assert_refused(result, f"there is no {BOOT}: give PackageUrl")
        self.assertEqual((result["conf"], result["is_mounted"]), (None, False))

    def test_package_that_is_not_there(self):
        url = f"https://{HOSTS[0]}/gone.deb"
        self.assert_refused(self.run_on_machine("MasterTemplate", url=url), f"could not fetch {url}")

    def test_sent_to_a_server_without_encryption(self):
        url = f"https://{HOSTS[0]}/moved/{PACKAGE}"
        result = self.run_on_machine("MasterTemplate", url=url)
        self.assert_refused(result, f"could not fetch {url}")
        self.assertIsNone(result["boot"])

    def test_no_agent(self):
        self.assert_refused(self.run_on_machine("MasterTemplate", agent=False), "amazon-ssm-agent.deb")

    def test_file_system_that_is_late(self):
        result = self.run_on_machine("WorkerTemplate", failing_mounts=3)
        self.assert_ready(result, "worker", "")
        self.assertEqual(result["calls"].count("sleep 10"), 3)

    def test_file_system_that_never_comes(self):
        result = self.run_on_machine("MasterTemplate", failing_mounts=1000)
        self.assert_refused(result, "could not mount fs-12345678.efs.eu-central-1.amazonaws.com on /srv/shared")
        self.assertEqual((result["calls"].count("sleep 10"), result["conf"]), (11, None))

    def test_boot_that_fails(self):
        self.assert_refused(self.run_on_machine("MasterTemplate", boot_code=3), f"{BOOT} ended with code 3")

    def test_lists_that_are_locked_for_a_while(self):
        result = self.run_on_machine("WorkerTemplate", failing_updates=3)
        self.assert_ready(result, "worker", "")
        self.assertEqual(result["calls"].count("sleep 10"), 3)

    @unittest.skipIf(shutil.which("mount.nfs4"), "nfs-common is installed here")
    def test_package_of_the_system_that_cannot_be_had(self):
        """The stack learns it at once, and not by its time limit."""
        result = self.run_on_machine("MasterTemplate", refused_package="nfs-common")
        self.assert_refused(result, "could not install: awscli nfs-common")

    def test_no_metadata(self):
        result = self.run_on_machine("MasterTemplate", metadata=403)
        self.assertEqual((result["code"], result["conf"]), (1, None))
        self.assertIn("the metadata service gives no token", result["text"])


if __name__ == "__main__":
    run_tests()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""The template of the AWS cluster is one: cfn-lint for several regions and sets of parameters, every name in it leads
somewhere, and what nodes run first is sound shell. usage: lint_test.py"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from template import PARAMETER_SETS, PATH, ROOT, Stack, dangling, read, user_data

REGIONS = ["us-east-1", "eu-central-1", "ap-northeast-1", "cn-north-1"]
MOST_USER_DATA = 16384
# The image is looked up by CloudFormation before anything else; a linter has to be given one.
GIVEN = {"VpcId": "vpc-12345678", "SubnetId": "subnet-12345678"}
IMAGE = "ImageId=ami-12345678"


def cfn_lint(*words):
    """What it has to say: errors and warnings, of a list of (rule, message)."""
    done = subprocess.run([os.path.join(os.path.dirname(sys.executable), "cfn-lint"), "--format", "json",
                           "--template", *words], capture_output=True, text=True, timeout=120)
    found = json.loads(done.stdout or "[]")
    if done.returncode not in (0, 2, 4, 6) or done.stderr:
        raise RuntimeError(f"cfn-lint: {done.returncode} {done.stderr}")
    return [(problem["Rule"]["Id"], problem["Message"]) for problem in found]


class CfnLintTest(unittest.TestCase):
    def test_clean_everywhere(self):
        self.assertEqual(cfn_lint(PATH, "--regions", *REGIONS), [])

    def test_clean_with_parameters(self):
        self.assertGreaterEqual(len(PARAMETER_SETS), 6)
        for name, parameters in PARAMETER_SETS.items():
            with self.subTest(parameters=name):
                words = [f"{key}={value}" for key, value in parameters.items()]
                self.assertEqual(cfn_lint(PATH, "--regions", *REGIONS, "--parameters", IMAGE, *words), [])

    def test_it_would_say_so(self):
        with open(PATH, encoding="utf-8") as file:
            text = file.read()
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(text.replace("Encrypted: true\n", "Encripted: true\n", 1))
            file.flush()
            self.assertEqual([rule for rule, _ in cfn_lint(file.name, "--regions", REGIONS[0])], ["E3002"])


class NamesTest(unittest.TestCase):
    def test_all_lead_somewhere(self):
        self.assertEqual(list(dangling(read())), [])

    def test_breaks_are_found(self):
        with open(PATH, encoding="utf-8") as file:
            text = file.read()
        for old, new, wanted in [
                ("Count: 1, Timeout: PT30M", "Count: !Ref Nodes, Timeout: PT30M", "no name Nodes"),
                ("!GetAtt MasterProfile.Arn", "!GetAtt Profile.Arn", "no resource Profile"),
                ("SLOTS='${Slots}'", "SLOTS='${Slotz}'", "no name Slotz"),
                ("DependsOn: Master\n", "DependsOn: Boss\n", "no resource Boss"),
                ("Condition: Placed", "Condition: Placd", "no condition Placd"),
                ("!Condition NewNetwork]", "!Condition New]", "no condition New"),
                ("!If [UseEfa,", "!If [Useefa,", "no condition Useefa"),
                ("[Node, Start, Script]", "[Node, Start, Text]", "no mapping Node/Start/Text"),
                ("Slots, IdleHours]", "Slots, IdleDays]", "no parameter IdleDays")]:
            with self.subTest(broken=new):
                self.assertIn(old, text)
                found = list(dangling(read(text.replace(old, new, 1))))
                self.assertEqual(len(found), 1, found)
                self.assertTrue(found[0].endswith(wanted), found)

    def test_nothing_refers_to_what_a_stack_has_not(self):
        for name, parameters in PARAMETER_SETS.items():
            with self.subTest(parameters=name):
                stack = Stack(read(), parameters)
                self.assertEqual(stack.rules(), [])
                for resource in stack.resources.values():
                    for other in resource.get("DependsOn", []) if isinstance(resource.get("DependsOn"), list) else []:
                        self.assertIn(other, stack.resources)


class RulesTest(unittest.TestCase):
    def test_what_goes_together(self):
        for parameters, wanted in [
                ({"PackageUrl": "https://example.org/a.deb"}, "PackageUrl and PackageSha256 go together"),
                ({"PackageSha256": "0" * 64}, "PackageUrl and PackageSha256 go together"),
                ({"VpcId": "vpc-12345678"}, "VpcId and SubnetId go together"),
                ({"SubnetId": "subnet-12345678"}, "VpcId and SubnetId go together"),
                ({"PublicAddress": "no"}, "PublicAddress=no needs VpcId"),
                ({"FileSystemId": "fs-12345678"}, "FileSystemId needs VpcId"),
                ({"ExtraSecurityGroupId": "sg-12345678"}, "ExtraSecurityGroupId needs VpcId"),
                ({**GIVEN, "AvailabilityZone": "eu-central-1a"}, "AvailabilityZone is of a new subnet"),
                ({**GIVEN, "VpcCidr": "10.1.0.0/20"}, "VpcCidr is of a new network"),
                ({"AlternativeInstanceType": "c6a.xlarge"}, "AlternativeInstanceType needs Purchase=spot")]:
            with self.subTest(parameters=parameters):
                broken, = Stack(read(), parameters).rules()
                self.assertTrue(broken.startswith(wanted), broken)

    def test_signed_address(self):
        url = "https://mine.s3.eu-central-1.amazonaws.com/a_1~rc1_amd64.deb?X-Amz-Credential=A%2F1&X-Amz-Signature=0a"
        self.assertEqual(Stack(read(), {"PackageUrl": url, "PackageSha256": "0" * 64}).rules(), [])

    def test_refused_values(self):
        quote = "https://example.org/a'b.deb"
        for name, value in [("PackageUrl", "http://example.org/a.deb"), ("PackageUrl", quote), ("PackageSha256", "ab"),
                            ("SharedFolder", "shared"), ("SharedFolder", "/a b"), ("Slots", "0"), ("InstanceType", "c6i"),
                            ("SshLocation", "0.0.0.0/0"), ("SshLocation", "1.2.3.4"), ("SshLocation", "0.0.0.0/1"),
                            ("SshLocation", "::/0"), ("FileSystemId", "fs-1;reboot"), ("RootDevice", "xvda")]:
            with self.subTest(name=name, value=value), self.assertRaisesRegex(ValueError, name):
                Stack(read(), {name: value})

    def test_folders_of_the_system_are_not_shared(self):
        for folder in ("/usr", "/usr/share", "/etc", "/etc/ssh", "/var/lib", "/home", "/opt", "/root", "/lib64", "/tmp/shared"):
            with self.subTest(folder=folder), self.assertRaisesRegex(ValueError, "SharedFolder"):
                Stack(read(), {"SharedFolder": folder})
        for folder in ("/shared", "/home/shared", "/opt/data", "/mnt/efs", "/etc2", "/library", "/variable/x"):
            with self.subTest(folder=folder):
                Stack(read(), {"SharedFolder": folder})


class UserDataTest(unittest.TestCase):
    def test_size_and_shell(self):
        self.assertIsNotNone(shutil.which("shellcheck"), "shellcheck is missing: install shellcheck")
        for name, parameters in PARAMETER_SETS.items():
            stack = Stack(read(), parameters)
            for template in ("MasterTemplate", "WorkerTemplate"):
                with self.subTest(parameters=name, template=template):
                    text = user_data(stack, template)
                    self.assertTrue(text.startswith("#!/bin/sh\n"))
                    self.assertLess(len(text.encode()), MOST_USER_DATA)
                    for command in (["shellcheck", "-s", "sh", "-"], ["dash", "-n"]):
                        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
                        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_roles_differ_in_the_role_alone(self):
        stack = Stack(read(), {})
        master, worker = (user_data(stack, name).split("\n") for name in ("MasterTemplate", "WorkerTemplate"))
        differ = {line.split("=")[0] for line in set(master) ^ set(worker) if not line.startswith("# after ")}
        self.assertEqual(differ, {"ROLE", "SIGNAL", "AGENT_FOLDER"})


if __name__ == "__main__":
    unittest.main()

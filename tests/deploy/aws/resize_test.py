#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""deploy/aws/resize-aws against the auto-scaling groups of moto, by itself and from a job file.
usage: resize_test.py [LAUNCHER]"""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from moto_server import REGION, MotoServer, free_port
from template import ROOT

PROGRAM = os.path.join(ROOT, "deploy/aws/resize-aws")
GROUP = "mnist-workers"
MOST = 5
TOOLS = os.path.dirname(sys.executable)
LAUNCHER = ""  # of the build
PATIENCE_S = 60


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class ResizeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(MotoServer())

    def setUp(self):
        self.server.forget()
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="chainmail-resize-"))
        self.server.client("ec2").create_launch_template(
            LaunchTemplateName="worker", LaunchTemplateData={"ImageId": "ami-12345678", "InstanceType": "c6i.large"})
        self.scaling = self.server.client("autoscaling")
        self.scaling.create_auto_scaling_group(
            AutoScalingGroupName=GROUP, MinSize=0, MaxSize=MOST, DesiredCapacity=0, AvailabilityZones=[REGION + "a"],
            LaunchTemplate={"LaunchTemplateName": "worker", "Version": "1"})

    def conf(self, **changes):
        values = {"ROLE": "master", "PROVIDER": "aws", "CLUSTER": "mnist", "REGION": REGION, "GROUP": GROUP,
                  "ENDPOINT": self.server.url, **changes}
        path = os.path.join(self.folder, "node.conf")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{key}='{value}'\n" for key, value in values.items())
        return path

    def resize(self, *words, path=None, **changes):
        environment = {key: value for key, value in self.server.environment.items() if key != "AWS_ENDPOINT_URL"}
        environment["PATH"] = path or f"{TOOLS}:{os.environ['PATH']}"
        done = subprocess.run([PROGRAM, "--conf", self.conf(**changes), *words], env=environment,
                              capture_output=True, text=True, timeout=150)
        return done.returncode, done.stdout + done.stderr

    def workers(self):
        group, = self.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])["AutoScalingGroups"]
        return len(group["Instances"])

    def test_up_and_down(self):
        for hosts, workers, wanted in [
                ("1", 0, "has 0 workers already"), ("4", 3, "from 0 to 3 workers"), ("4", 3, "has 3 workers already"),
                # The others may be busy with somebody else's job.
                ("2", 3, "has 3 workers already"), ("6", 5, "from 3 to 5 workers"), ("0", 0, "from 5 to 0 workers")]:
            with self.subTest(hosts=hosts, wanted=wanted):
                code, text = self.resize(hosts)
                self.assertEqual((code, self.workers()), (0, workers), text)
                self.assertIn(wanted, text)

    def test_two_at_once(self):
        """What one has asked for is not taken back by another one that had read the size before."""
        slow = os.path.join(self.folder, "slow")
        os.mkdir(slow)
        with open(slow + "/aws", "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\n{TOOLS}/aws "$@" || exit\ncase $2 in describe*) sleep "$SLOWNESS" ;; esac\n')
        os.chmod(slow + "/aws", 0o755)
        environment = {**self.server.environment, "PATH": f"{slow}:{os.environ['PATH']}"}
        conf = self.conf()
        first = self.enterContext(subprocess.Popen([PROGRAM, "--conf", conf, "3"], env={**environment, "SLOWNESS": "4"}))
        time.sleep(1.5)
        subprocess.run([PROGRAM, "--conf", conf, "6"], env={**environment, "SLOWNESS": "0"}, check=True, timeout=60)
        self.assertEqual((first.wait(60), self.workers()), (0, 5))

    def test_file_without_a_folder(self):
        environment = {**self.server.environment, "PATH": f"{TOOLS}:{os.environ['PATH']}"}
        done = subprocess.run([PROGRAM, "--conf", os.path.basename(self.conf()), "4"], env=environment, cwd=self.folder,
                              capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, self.workers()), (0, 3), done.stderr)

    def test_answers_that_are_none(self):
        other = os.path.join(self.folder, "other")
        os.mkdir(other)
        with open(other + "/aws", "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\necho "5 $ANSWER"\n')
        os.chmod(other + "/aws", 0o755)
        for answer in ("None", "<html>", "-1"):
            done = subprocess.run([PROGRAM, "--conf", self.conf(), "4"], capture_output=True, text=True, timeout=60,
                                  env={**os.environ, "PATH": f"{other}:{os.environ['PATH']}", "ANSWER": answer})
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertTrue(done.stderr.startswith(f"resize-aws: aws says '5 {answer}' of {GROUP}"), done.stderr)

    def test_more_than_there_may_be(self):
        code, text = self.resize("7")
        self.assertEqual((code, self.workers()), (1, 0))
        self.assertIn(f"7 hosts are the master and 6 workers, but {GROUP} has at most 5", text)
        self.assertIn("MaxWorkers=6", text)

    def test_usage(self):
        for words in [(), ("",), ("-1",), ("1.5",), ("00",), ("03",), ("three",), ("1", "2"), ("1234567",)]:
            with self.subTest(words=words):
                code, text = self.resize(*words)
                self.assertEqual(code, 2, text)
                self.assertIn("usage: resize-aws", text)

    def test_what_is_wrong_is_named(self):
        bare = os.path.join(self.folder, "bin")
        os.mkdir(bare)
        for tool in ("sh", "timeout", "flock"):
            os.symlink(shutil.which(tool), os.path.join(bare, tool))
        for changes, wanted in [
                ({"ROLE": "worker"}, "only the master may resize its cluster"),
                ({"PROVIDER": "azure"}, "PROVIDER='azure' is not aws"), ({"GROUP": ""}, "GROUP='': neither may be empty"),
                ({"GROUP": "other"}, f"there is no auto-scaling group other in {REGION}"),
                ({"ENDPOINT": f"http://127.0.0.1:{free_port()}"}, "describe-auto-scaling-groups of group"),
                ({"path": bare}, "there is no aws command")]:
            with self.subTest(changes=changes):
                began = time.monotonic()
                code, text = self.resize("2", **changes)
                self.assertEqual(code, 1, text)
                self.assertIn(wanted, text)
                self.assertLess(time.monotonic() - began, 140)
        done = subprocess.run([PROGRAM, "--conf", self.folder + "/none", "2"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"cannot read {self.folder}/none: run this on the master", done.stderr)

    def test_from_a_job_file(self):
        if not LAUNCHER:
            self.skipTest("no launcher was given")
        # Hosts that are there at once, so that the job itself does not wait: this machine by three names.
        with open(os.path.join(self.folder, "hosts"), "w", encoding="utf-8") as file:
            file.write("localhost slots=1\n127.0.0.1 slots=1\n127.0.1.1 slots=1\n")
        job = {"chainmail": 1, "name": "resize", "program": ["/bin/true"],
               "hosts": {"from": "hosts", "count": 3, "wait": "1m", "idle": "8s",
                         "resize": [PROGRAM, "--conf", self.conf()]}}
        with open(os.path.join(self.folder, "job.json"), "w", encoding="utf-8") as file:
            json.dump(job, file)
        environment = {**self.server.environment, "CHAINMAIL_STATE": self.folder + "/state",
                       "PATH": f"{TOOLS}:{os.environ['PATH']}"}
        done = subprocess.run([LAUNCHER, "--job", self.folder + "/job.json", "--rsh", "sh -c 'exec \"$@\"' %h"],
                              env=environment, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("hosts.resize for 3 hosts: done", done.stderr)
        self.assertEqual(self.workers(), 2)
        log, = glob.glob(self.folder + "/state/jobs/*/execution.log")
        end = time.monotonic() + PATIENCE_S
        while "hosts.resize for 0 hosts" not in text_of(log) and time.monotonic() < end:
            time.sleep(0.2)
        self.assertIn("hosts.resize for 0 hosts: done", text_of(log))
        self.assertEqual(self.workers(), 0)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-") and os.path.exists(sys.argv[1]):
        LAUNCHER = os.path.abspath(sys.argv.pop(1))
    unittest.main()

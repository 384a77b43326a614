#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""deploy/aws/parallelcluster.yaml as AWS ParallelCluster's own schema reads it, without a network. No validator of its own
runs: these ask AWS. aws-parallelcluster wants other versions of what the tests use, so it has an environment of its own:

    python3 -m venv ENVIRONMENT && ENVIRONMENT/bin/pip install aws-parallelcluster==3.16.1

usage: parallelcluster.py ENVIRONMENT"""

import os
import subprocess
import sys
import unittest

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))
CONFIG = os.path.join(ROOT, "deploy/aws/parallelcluster.yaml")
READ = """
import sys, yaml
from pcluster.schemas.cluster_schema import ClusterSchema
config = ClusterSchema(cluster_name="mnist").load(yaml.safe_load(sys.stdin))
queue, = config.scheduling.queues
storage, = config.shared_storage
print(config.scheduling.scheduler, config.head_node.ssh.allowed_ips, config.imds.imds_support, queue.capacity_type.value,
      [(resource.min_count, resource.max_count) for resource in queue.compute_resources],
      len(queue.custom_actions.on_node_configured.args), storage.mount_dir, storage.encrypted,
      storage.encryption_in_transit)
"""


def read(text):
    command = [sys.argv[1] + "/bin/python", "-B", "-c", READ]
    if os.geteuid() == 0:
        command = ["unshare", "--net", "--", *command]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120,
                          env={**os.environ, "AWS_DEFAULT_REGION": "eu-central-1"})


class SchemaTest(unittest.TestCase):
    def setUp(self):
        with open(CONFIG, encoding="utf-8") as file:
            self.text = file.read()

    def test_accepted(self):
        done = read(self.text)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "slurm 10.0.0.0/8 v2.0 ONDEMAND [(0, 8)] 2 /shared True True\n")

    def test_breaks_are_refused(self):
        for old, new, wanted in [("MinCount:", "MinimumCount:", "MinimumCount"), ("Scheduler: slurm", "Scheduler: pbs", "Scheduler"),
                                 ("ImdsSupport: v2.0", "ImdsSupport: v3.0", "ImdsSupport"),
                                 ("subnet-00000000 ", "net-0 ", "SubnetId"), ("MountDir: /shared", "MountDir: ''", "MountDir"),
                                 ("AllowedIps: 10.0.0.0/8", "AllowedIps: all", "AllowedIps")]:
            with self.subTest(broken=new):
                self.assertIn(old, self.text)
                done = read(self.text.replace(old, new, 1))
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(wanted, done.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 2 or not os.path.exists(sys.argv[1] + "/bin/python"):
        sys.exit(__doc__)
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])

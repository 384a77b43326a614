#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""The template of the AWS cluster opens nothing and gives nobody more than the cluster needs; and whoever changes it so
that it does is told. usage: scan_test.py"""

import os
import re
import unittest

from scan import ROLES, problems
from template import PARAMETER_SETS, PATH, ROOT, read

PROVIDER = os.path.join(ROOT, "deploy/node/aws.sh")
CALL = re.compile(r"of_aws ([a-z]+) ([a-z-]+)")

BUCKET = "Resources:\n  Keys:\n    Type: AWS::S3::Bucket\n"
# (what is there, what somebody makes of it, what they are told)
BREAKS = [
    ("Resources:\n", BUCKET, "/Resources/Keys is a bucket"),
    ("CidrIp: !Ref SshLocation", "CidrIp: 0.0.0.0/0", "FromOutside lets in 0.0.0.0/0"),
    ("CidrIp: !Ref SshLocation", 'CidrIpv6: "::/0"', "FromOutside lets in ::/0"),
    ("CidrIp: !Ref SshLocation", "CidrIp: 198.51.100.0/24", "FromOutside lets in more than SshLocation on port 22"),
    ("ToPort: 22\n", "ToPort: 65535\n", "FromOutside lets in more than SshLocation on port 22"),
    ("          SourceSecurityGroupId: !GetAtt NodeGroup.GroupId\n          Desc", "          CidrIp: 0.0.0.0/0\n          Desc",
     "FileGroup lets in 0.0.0.0/0"),
    ("      GroupId: !GetAtt NodeGroup.GroupId\n      IpProtocol: \"-1\"\n      DestinationSecurityGroupId",
     "      GroupId: !GetAtt OutGroup.GroupId\n      IpProtocol: \"-1\"\n      DestinationSecurityGroupId",
     "<OutGroup.GroupId> loses its rule for 0.0.0.0/0"),
    ("              - [!GetAtt NodeGroup.GroupId, !GetAtt OutGroup.GroupId]", "              - [!GetAtt NodeGroup.GroupId]",
     "MasterTemplate has no way out, or none to the other nodes"),
    ("HttpTokens: required", "HttpTokens: optional", "MasterTemplate gives metadata without a token"),
    ("      Encrypted: true\n", "", "FileSystem is a file system in clear"),
    ("VolumeType: gp3, Encrypted: true", "VolumeType: gp3", "MasterTemplate has a disk in clear"),
    ("      LaunchTemplate:\n        LaunchTemplateId: !Ref MasterTemplate",
     "      LaunchTemplate:\n        LaunchTemplateId: !Ref WorkerTemplate", "Master has no launch template"),
    ("Action: autoscaling:SetDesiredCapacity", 'Action: "autoscaling:*"', "MasterRole may do autoscaling:*"),
    ("Action: [ssm:PutParameter, ssm:DeleteParameter]", "Action: [ssm:PutParameter, ssm:Delete*]", "WorkerRole may do ssm:Delete*"),
    ("Resource: !Sub arn:${AWS::Partition}:cloudformation:${AWS::Region}:${AWS::AccountId}:stack/${AWS::StackName}/*", 'Resource: "*"', "MasterRole may do cloudformation:SignalResource to *"),
    ("Action: cloudformation:SignalResource", "Action: ec2:TerminateInstances",
     "MasterRole may do ec2:TerminateInstances to arn:aws:cloudformation:eu-central-1:123456789012:stack/mnist/*"),
    ("IgnoreUnmodifiedGroupSizeProperties: true", "IgnoreUnmodifiedGroupSizeProperties: false",
     "WorkerGroup loses workers by any change of the stack"),
    ('MinSize: "0"', 'MinSize: "1"', "WorkerGroup cannot shrink to nothing"),
    ("  KeyName:\n    Type: String\n", "  KeyName:\n    Type: String\n    NoEcho: true\n", "parameter KeyName is a secret"),
    ("Description: Chainmail cluster", "Transform: AWS::LanguageExtensions\nDescription: Chainmail cluster", "/ is transformed"),
    ("Value: none", "Value: -----BEGIN OPENSSH PRIVATE KEY-----", "a private key"),
    ("        NODE_USER=chainmail\n", "        NODE_USER=chainmail\n" + "        : 0123456789abcdef\n" * 700,
     "MasterTemplate has more user data than EC2 takes"),
]


class ScanTest(unittest.TestCase):
    def setUp(self):
        with open(PATH, encoding="utf-8") as file:
            self.text = file.read()

    def test_clean(self):
        self.assertEqual(problems(read(), PARAMETER_SETS), [])

    def test_breaks_are_found(self):
        for old, new, wanted in BREAKS:
            with self.subTest(broken=new):
                self.assertIn(old, self.text)
                self.assertIn(wanted, problems(read(self.text.replace(old, new, 1)), PARAMETER_SETS))

    def test_worker_that_writes_the_login_key(self):
        start = self.text.index("  WorkerRole:")
        text = self.text[:start] + self.text[start:].replace("/node/*", "/*")
        self.assertTrue(any(problem.startswith("WorkerRole may do ssm:PutParameter to ")
                            for problem in problems(read(text), PARAMETER_SETS)))

    @unittest.skipUnless(os.path.exists(PROVIDER), f"there is no {PROVIDER}")
    def test_nodes_may_do_what_they_do(self):
        with open(PROVIDER, encoding="utf-8") as file:
            calls = set(CALL.findall(file.read()))
        self.assertGreater(len(calls), 4)
        actions = {service + ":" + "".join(word.capitalize() for word in operation.split("-")) for service, operation in calls}
        self.assertLessEqual(actions, set(ROLES["MasterRole"]))
        # The group and the stack are the master's business, and the list of nodes.
        self.assertEqual(actions - set(ROLES["WorkerRole"]), {
            "autoscaling:DescribeAutoScalingGroups", "ssm:GetParametersByPath", "cloudformation:SignalResource"})

    def test_managed_policy(self):
        text = self.text.replace("  MasterRole:\n    Type: AWS::IAM::Role\n    Properties:\n",
                                 "  MasterRole:\n    Type: AWS::IAM::Role\n    Properties:\n      ManagedPolicyArns: [a]\n")
        self.assertEqual(problems(read(text), PARAMETER_SETS), ["MasterRole has rights that are not written here"])


if __name__ == "__main__":
    unittest.main()

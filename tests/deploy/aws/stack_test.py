#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""A stack of deploy/aws/cluster.yaml in moto: made, scaled from 3 to 5 to 0, deleted, with nothing left. What moto cannot do
is a list that is compared, so that nothing is skipped unseen. usage: stack_test.py"""

import base64
import os
import re
import subprocess
import sys
import tempfile
import unittest

from moto_server import MotoServer
from template import PARAMETER_SETS, PATH, PSEUDO, ROOT, Stack, read, user_data

PAGE = "docs/cluster/aws.md"
BLOCK = re.compile(r"<!-- run by tests/deploy/aws/stack_test.py -->\n```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STACK = "mnist"
IMAGE = "ami-12345678"
# moto has no image of Debian's. Its change sets look a value up that has been looked up already.
IMAGE_PARAMETERS = ("/images/debian", IMAGE)
DEBIAN = "/aws/service/debian/release/12/latest/amd64"
LISTINGS = [
    ("ec2", "describe_vpcs", "Vpcs", "VpcId"), ("ec2", "describe_subnets", "Subnets", "SubnetId"),
    ("ec2", "describe_internet_gateways", "InternetGateways", "InternetGatewayId"),
    ("ec2", "describe_route_tables", "RouteTables", "RouteTableId"),
    ("ec2", "describe_security_groups", "SecurityGroups", "GroupId"),
    ("ec2", "describe_launch_templates", "LaunchTemplates", "LaunchTemplateId"),
    ("ec2", "describe_addresses", "Addresses", "AllocationId"),
    ("ec2", "describe_nat_gateways", "NatGateways", "NatGatewayId"),
    ("ec2", "describe_vpc_endpoints", "VpcEndpoints", "VpcEndpointId"),
    ("ec2", "describe_volumes", "Volumes", "VolumeId"), ("ec2", "describe_key_pairs", "KeyPairs", "KeyPairId"),
    ("autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups", "AutoScalingGroupName"),
    ("autoscaling", "describe_policies", "ScalingPolicies", "PolicyName"),
    ("autoscaling", "describe_launch_configurations", "LaunchConfigurations", "LaunchConfigurationName"),
    ("cloudwatch", "describe_alarms", "MetricAlarms", "AlarmName"),
    ("efs", "describe_file_systems", "FileSystems", "FileSystemId"), ("iam", "list_roles", "Roles", "RoleName"),
    ("iam", "list_instance_profiles", "InstanceProfiles", "InstanceProfileName"),
    ("ssm", "describe_parameters", "Parameters", "Name"), ("s3", "list_buckets", "Buckets", "Name"),
]
UNKNOWN = ["AWS::AutoScaling::ScalingPolicy", "AWS::CloudWatch::Alarm", "AWS::EC2::SecurityGroupEgress"]
PLACED = ["AWS::EC2::PlacementGroup"]


def warnings_for(kinds):
    """What moto says of kinds of resources that it does not know."""
    return {f"No Moto CloudFormation support for {kind}" for kind in kinds} | {
        f"UserWarning: Tried to parse {kind} but it's not supported by moto's CloudFormation implementation"
        for kind in kinds}


class StackTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(MotoServer())

    def setUp(self):
        self.server.forget()
        ssm = self.server.client("ssm")
        for name in IMAGE_PARAMETERS:
            ssm.put_parameter(Name=name, Value=IMAGE, Type="String")
        with open(PATH, encoding="utf-8") as file:
            text = file.read()
        self.assertEqual(text.count(DEBIAN), 1)
        self.template = self.enterContext(tempfile.NamedTemporaryFile("w", suffix=".yaml"))
        self.template.write(text.replace(DEBIAN, IMAGE_PARAMETERS[0]))
        self.template.flush()
        self.before = self.resources()

    def aws(self, *words):
        done = self.server.aws(*words)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr + self.server.text()[-2000:])
        return done.stdout

    def create(self, parameters):
        self.formation = self.server.client("cloudformation")
        with open(self.template.name, encoding="utf-8") as file:
            self.formation.create_stack(
                StackName=STACK, Capabilities=["CAPABILITY_IAM"], TemplateBody=file.read(),
                Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()])
        stack, = self.formation.describe_stacks(StackName=STACK)["Stacks"]
        self.assertEqual(stack["StackStatus"], "CREATE_COMPLETE")
        return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}

    def delete(self):
        self.aws("cloudformation", "delete-stack", "--stack-name", STACK)
        self.aws("cloudformation", "wait", "stack-delete-complete", "--stack-name", STACK)

    def instances(self):
        found = self.server.client("ec2").describe_instances()["Reservations"]
        return {instance["InstanceId"] for reservation in found for instance in reservation["Instances"]
                if instance["State"]["Name"] != "terminated"}

    def workers(self):
        group, = self.server.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
        return {instance["InstanceId"] for instance in group["Instances"]}

    def resources(self):
        """All that an account could be left with, by service."""
        found = set()
        for service, operation, items, key in LISTINGS:
            client = self.server.client(service)
            pages = client.get_paginator(operation).paginate() if client.can_paginate(operation) else [
                getattr(client, operation)()]
            found |= {(key, item[key]) for page in pages for item in page[items]}
        for key, system in list(found):
            if key == "FileSystemId":
                targets = self.server.client("efs").describe_mount_targets(FileSystemId=system)["MountTargets"]
                found |= {("MountTargetId", target["MountTargetId"]) for target in targets}
        return found | {("InstanceId", instance) for instance in self.instances()}

    def assert_warnings(self, kinds):
        said = {text.rpartition(".py:")[2].partition(": ")[2] if ".py:" in text else text
                for text in self.server.warnings()}
        self.assertEqual(said, warnings_for(kinds))

    def test_made_scaled_and_deleted(self):
        outputs = self.create({"Workers": "3", "MaxWorkers": "5"})
        group, = self.server.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
        self.assertEqual((group["MinSize"], group["MaxSize"]), (0, 5))
        self.assertEqual(outputs["Group"], f"{STACK}-workers")
        self.assertIn(outputs["MasterId"], outputs["Login"])
        self.assertNotIn(outputs["MasterId"], self.workers())
        self.assertEqual(len(self.workers()), 3)
        for count in (5, 0):
            # As the stack itself says, and the page.
            self.aws(*outputs["Scale"].split()[1:-1], str(count))
            self.assertEqual(len(self.workers()), count)
            self.assertEqual(self.instances(), self.workers() | {outputs["MasterId"]})
        kinds = {kind for kind, _ in self.resources() - self.before}
        self.assertLessEqual({"VpcId", "SubnetId", "InternetGatewayId", "RouteTableId", "GroupId", "LaunchTemplateId",
                              "AutoScalingGroupName", "FileSystemId", "MountTargetId", "RoleName", "InstanceProfileName",
                              "Name", "InstanceId"}, kinds)
        self.assertEqual(self.server.client("s3").list_buckets()["Buckets"], [])
        self.delete()
        self.assertEqual(self.resources(), self.before)
        self.assert_warnings(UNKNOWN)

    def test_placed(self):
        self.create({"Workers": "1", "PlacementStrategy": "cluster"})
        self.delete()
        self.assertEqual(self.resources(), self.before)
        self.assert_warnings(UNKNOWN + PLACED)

    def test_commands_of_the_page(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="chainmail-page-"))
        os.makedirs(folder + "/deploy/aws")
        os.symlink(self.template.name, folder + "/deploy/aws/cluster.yaml")
        with open(os.path.join(ROOT, PAGE), encoding="utf-8") as file:
            up, outputs, scale, down, forget = BLOCK.findall(file.read())
        self.shell(folder, up)
        self.assertEqual(len(self.workers()), 3)
        self.shell(folder, outputs)
        self.shell(folder, scale)
        self.assertEqual(len(self.workers()), 5)
        # As nodes do, and those of another cluster.
        names = [f"/chainmail/mnist/{kind}/i-{number}" for kind in ("node", "leaving") for number in range(6)]
        for name in [*names, "/chainmail/mnist2/login"]:
            self.server.client("ssm").put_parameter(Name=name, Value="a", Type="String")
        self.shell(folder, down)
        self.assertEqual(self.resources() - self.before, {("Name", name) for name in [*names, "/chainmail/mnist2/login"]})
        for _ in range(2):
            self.shell(folder, forget)
            self.assertEqual(self.resources() - self.before, {("Name", "/chainmail/mnist2/login")})

    def shell(self, folder, commands):
        environment = {**self.server.environment,
                       "PATH": f"{os.path.dirname(sys.executable)}:{self.server.environment['PATH']}"}
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", commands], cwd=folder, env=environment,
                              capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr + self.server.text()[-2000:])

    def test_spot(self):
        self.create(PARAMETER_SETS["spot"])
        group, = self.server.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
        policy = group["MixedInstancesPolicy"]
        self.assertEqual([override["InstanceType"] for override in policy["LaunchTemplate"]["Overrides"]],
                         ["c6i.xlarge", "c6a.xlarge"])
        self.assertEqual(policy["InstancesDistribution"]["OnDemandPercentageAboveBaseCapacity"], 0)
        self.assertEqual(policy["InstancesDistribution"]["SpotAllocationStrategy"], "price-capacity-optimized")

    def test_given_network_and_files(self):
        ec2, efs = self.server.client("ec2"), self.server.client("efs")
        vpc = ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
        subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.1.0.0/24")["Subnet"]["SubnetId"]
        system = efs.create_file_system(CreationToken="a", Encrypted=True)["FileSystemId"]
        given = self.resources()
        outputs = self.create({"VpcId": vpc, "SubnetId": subnet, "FileSystemId": system, "Workers": "2"})
        self.assertEqual(outputs["FileSystemId"], system)
        kinds = {kind for kind, _ in self.resources() - given}
        self.assertFalse(kinds & {"VpcId", "SubnetId", "InternetGatewayId", "RouteTableId", "FileSystemId", "MountTargetId"})
        group, = self.server.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
        self.assertEqual(group["VPCZoneIdentifier"], subnet)
        self.delete()
        self.assertEqual(self.resources(), given)

    def test_user_data_is_what_the_other_tests_read(self):
        outputs = self.create({})
        ec2 = self.server.client("ec2")
        made = set()
        for template in ec2.describe_launch_templates()["LaunchTemplates"]:
            version, = ec2.describe_launch_template_versions(
                LaunchTemplateId=template["LaunchTemplateId"])["LaunchTemplateVersions"]
            text = base64.b64decode(version["LaunchTemplateData"]["UserData"]).decode()
            made.add("\n".join(line for line in text.split("\n") if not line.startswith(("# after ", "STACK_ID="))))
        stack = Stack(read(), {})
        ours = {"\n".join(line for line in user_data(stack, name).split("\n")
                          if not line.startswith(("# after ", "STACK_ID="))).replace("<FileSystem>", outputs["FileSystemId"])
                for name in ("MasterTemplate", "WorkerTemplate")}
        self.assertEqual(PSEUDO["AWS::StackName"], STACK)
        self.assertEqual(made, ours)


if __name__ == "__main__":
    os.umask(0o077)
    unittest.main()

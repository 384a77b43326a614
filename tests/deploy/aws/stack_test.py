#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""A stack of deploy/aws/cluster.yaml in moto: made, scaled from 3 to 5 to 0, deleted, with nothing left. What moto cannot do
is a list that is compared, so that nothing is skipped unseen. usage: stack_test.py"""

import base64
import os
import tempfile
import unittest

from moto_server import MotoServer
from template import PARAMETER_SETS, PATH, PSEUDO, Stack, read, user_data

STACK = "mnist"
IMAGE = "ami-12345678"
# moto has no image of Debian's. Its change sets look a value up that has been looked up already.
IMAGE_PARAMETERS = ("/images/debian", IMAGE)
DEBIAN = "/aws/service/debian/release/12/latest/amd64"
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
        ec2, efs, iam = (self.server.client(name) for name in ("ec2", "efs", "iam"))
        autoscaling, cloudwatch = self.server.client("autoscaling"), self.server.client("cloudwatch")
        listings = {
            "VpcId": ec2.describe_vpcs()["Vpcs"], "SubnetId": ec2.describe_subnets()["Subnets"],
            "InternetGatewayId": ec2.describe_internet_gateways()["InternetGateways"],
            "RouteTableId": ec2.describe_route_tables()["RouteTables"],
            "GroupId": ec2.describe_security_groups()["SecurityGroups"],
            "LaunchTemplateId": ec2.describe_launch_templates()["LaunchTemplates"],
            "AllocationId": ec2.describe_addresses()["Addresses"],
            "NatGatewayId": ec2.describe_nat_gateways()["NatGateways"],
            "VpcEndpointId": ec2.describe_vpc_endpoints()["VpcEndpoints"],
            "VolumeId": ec2.describe_volumes()["Volumes"],
            "KeyPairId": ec2.describe_key_pairs()["KeyPairs"],
            "AutoScalingGroupName": autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"],
            "PolicyName": autoscaling.describe_policies()["ScalingPolicies"],
            "LaunchConfigurationName": autoscaling.describe_launch_configurations()["LaunchConfigurations"],
            "AlarmName": cloudwatch.describe_alarms()["MetricAlarms"],
            "FileSystemId": efs.describe_file_systems()["FileSystems"],
            "RoleName": iam.list_roles()["Roles"],
            "InstanceProfileName": iam.list_instance_profiles()["InstanceProfiles"],
            "Name": self.server.client("ssm").describe_parameters()["Parameters"],
            "BucketName": self.server.client("s3").list_buckets()["Buckets"],
        }
        found = {(key, item[key]) for key, items in listings.items() for item in items}
        found |= {("MountTargetId", target["MountTargetId"]) for system in listings["FileSystemId"]
                  for target in efs.describe_mount_targets(FileSystemId=system["FileSystemId"])["MountTargets"]}
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
        self.assertNotIn("BucketName", kinds)
        self.delete()
        self.assertEqual(self.resources(), self.before)
        self.assert_warnings(UNKNOWN)

    def test_one_command(self):
        # As docs/cluster/aws.md has it.
        self.aws("cloudformation", "deploy", "--template-file", self.template.name, "--stack-name", STACK,
                 "--capabilities", "CAPABILITY_IAM", "--parameter-overrides", "Workers=1", "PlacementStrategy=cluster")
        self.assertEqual(len(self.workers()), 1)
        self.delete()
        self.assertEqual(self.resources(), self.before)
        self.assert_warnings(UNKNOWN + PLACED)

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

# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""AWS for tests: moto's SSM, EC2 and Auto Scaling behind a front that writes down what is asked, refuses what a test
wants refused, and takes CloudFormation's signals, which moto does not know. A cluster of machines in it."""

import io
import os
import re
import threading
import urllib.parse

import boto3
import werkzeug.serving
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

from cluster import GATEWAY, PROJECT, Machine, Network, ended_well, visible_folders, wait_until
from metadata import Imds

STACK = "demo"
GROUP = "demo-Workers-1"
SIGNAL_ANSWER = """<SignalResourceResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/">
<ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></SignalResourceResponse>"""
THROTTLED = '{"__type":"ThrottlingException","message":"Rate exceeded"}'


class Aws:
    def __init__(self):
        os.environ.update(AWS_ACCESS_KEY_ID="AKIDTEST", AWS_SECRET_ACCESS_KEY="none", AWS_DEFAULT_REGION="eu-central-1")
        self.requests = []  # (action, body)
        self.signals = []  # (resource, id, status)
        self.is_refused = lambda action: False
        self.moto = DomainDispatcherApplication(create_backend_app)
        server = werkzeug.serving.make_server(GATEWAY, 0, self.answer, threaded=True,
                                              request_handler=QuietHandler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://{GATEWAY}:{server.server_port}"

    def answer(self, environ, start):
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        form = urllib.parse.parse_qs(body.decode(errors="replace"))
        action = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2] or form.get("Action", [""])[0]
        self.requests.append((action, body))
        if self.is_refused(action):
            start("400 Bad Request", [("Content-Type", "application/x-amz-json-1.1")])
            return [THROTTLED.encode()]
        if action == "SignalResource":
            self.signals.append((form["LogicalResourceId"][0], form["UniqueId"][0], form["Status"][0]))
            start("200 OK", [("Content-Type", "text/xml")])
            return [SIGNAL_ANSWER.encode()]
        return self.moto(environ, start)

    def client(self, service):
        return boto3.client(service, endpoint_url=self.url)

    def parameters(self):
        pages = self.client("ssm").get_paginator("get_parameters_by_path").paginate(Path="/", Recursive=True)
        return {found["Name"]: found["Value"] for page in pages for found in page["Parameters"]}


class QuietHandler(werkzeug.serving.WSGIRequestHandler):
    def log(self, *_, **__):
        pass


class Group:
    """The auto-scaling group."""

    def __init__(self, aws, size):
        ec2 = aws.client("ec2")
        image = ec2.describe_images()["Images"][0]["ImageId"]
        self.scaling = aws.client("autoscaling")
        self.scaling.create_launch_configuration(LaunchConfigurationName="lc", ImageId=image, InstanceType="c5.large")
        self.scaling.create_auto_scaling_group(
            AutoScalingGroupName=GROUP, LaunchConfigurationName="lc", MinSize=0, MaxSize=10, DesiredCapacity=size,
            AvailabilityZones=["eu-central-1a"])

    def instances(self):
        found = self.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])["AutoScalingGroups"][0]
        return [each["InstanceId"] for each in found["Instances"] if each["LifecycleState"] == "InService"]

    def grow(self):
        """The new one."""
        before = set(self.instances())
        self.scaling.set_desired_capacity(AutoScalingGroupName=GROUP, DesiredCapacity=len(before) + 1)
        return (set(self.instances()) - before).pop()

    def terminate(self, instance):
        self.scaling.terminate_instance_in_auto_scaling_group(InstanceId=instance, ShouldDecrementDesiredCapacity=True)


class AwsCluster:
    """A master and workers that have not booted. `programs`: what the cluster user finds in its home."""

    slots = 2

    def __init__(self, workers, programs=()):
        self.network = Network()
        self.aws = Aws()
        self.group = Group(self.aws, workers)
        self.programs = programs
        self.machines = {}
        self.metadata = {}
        self.master = self.add("master", "i-0000000000master0", 1, ROLE="master", SIGNAL="Master")
        for index, instance in enumerate(self.group.instances(), 2):
            self.add(f"ip-10-77-0-{index}", instance, index)

    def add(self, name, instance, index, metadata=Imds, **conf):
        aws = PROJECT / ".deps/checks/bin/aws"
        machine = Machine(self.network, name, f"10.77.0.{index}", shared="/tmp/shared",
                          visible=visible_folders(*self.programs))
        machine.path("/usr/local/bin/aws").symlink_to(aws)
        machine.configure({
            "ROLE": "worker", "PROVIDER": "aws", "CLUSTER": STACK, "REGION": "eu-central-1", "SLOTS": self.slots,
            "SHARED": "/shared", "NODE_USER": "chainmail", "GROUP": GROUP, "SIGNAL": "Workers", "ENDPOINT": self.aws.url,
            **conf})
        machine.instance = instance
        self.machines[instance] = machine
        if metadata: self.metadata[instance] = metadata(machine, instance)
        return machine

    def workers(self):
        return [machine for machine in self.machines.values() if machine is not self.master]

    def boot(self, seconds=60):
        ended_well(*[machine.boot() for machine in self.machines.values()], seconds=seconds)

    def switch_off(self, machine):
        machine.switch_off()
        self.machines.pop(machine.instance)
        self.metadata.pop(machine.instance).end()

    def hosts(self):
        """Names in the hostfile but for the master's."""
        lines = self.master.read("/etc/chainmail/hosts").splitlines()
        return {line.split()[0] for line in lines[1:]}

    def known_hosts(self):
        return {line.split()[0] for line in self.master.read("/etc/chainmail/known_hosts").splitlines()}

    def wait_for_hosts(self, *machines, seconds=10):
        """How long it took until these are the workers of the hostfile."""
        wanted = {machine.instance for machine in machines}
        return wait_until(lambda: self.hosts() == wanted and self.known_hosts() == wanted,
                          lambda: f"{self.hosts()} and keys of {self.known_hosts()}, not {wanted}: {self.master.log()}",
                          seconds)

    def signals(self):
        return [(re.sub("[^A-Za-z]", "", resource), status) for resource, _, status in self.aws.signals]

# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""What a template must not have, as a list of problems: buckets, ports open to the world, metadata without tokens, file
systems in clear, rights without bounds, private keys."""

import json

from template import PSEUDO, Stack, user_data, walk

MOST_USER_DATA = 16384
TEMPLATES = ("MasterTemplate", "WorkerTemplate")
# AWS knows no resource for these.
WITHOUT_RESOURCE = {
    "autoscaling:DescribeAutoScalingGroups", "ssm:UpdateInstanceInformation", "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel", "ssmmessages:OpenControlChannel", "ssmmessages:OpenDataChannel",
}
STORE = f"arn:aws:ssm:{PSEUDO['AWS::Region']}:{PSEUDO['AWS::AccountId']}:parameter/chainmail/{PSEUDO['AWS::StackName']}"
GROUP = f"arn:aws:autoscaling:{PSEUDO['AWS::Region']}:{PSEUDO['AWS::AccountId']}:autoScalingGroup:*:autoScalingGroupName/mnist-workers"
SELF = f"arn:aws:cloudformation:{PSEUDO['AWS::Region']}:{PSEUDO['AWS::AccountId']}:stack/{PSEUDO['AWS::StackName']}/*"
# Role -> action -> what it may be done to. Nothing else is allowed.
ROLES = {
    "MasterRole": {
        **{action: {"*"} for action in WITHOUT_RESOURCE},
        "ssm:GetParameter": {STORE, STORE + "/*"}, "ssm:GetParametersByPath": {STORE, STORE + "/*"},
        "ssm:PutParameter": {STORE + "/login"}, "ssm:DeleteParameter": {STORE + "/node/*", STORE + "/leaving/*"},
        "autoscaling:SetDesiredCapacity": {GROUP}, "cloudformation:SignalResource": {SELF},
    },
    "WorkerRole": {
        "ssm:GetParameter": {STORE + "/login", STORE + "/node/*", STORE + "/leaving/*"},
        "ssm:PutParameter": {STORE + "/node/*", STORE + "/leaving/*"},
        "ssm:DeleteParameter": {STORE + "/node/*", STORE + "/leaving/*"},
    },
}


def as_list(value):
    return value if isinstance(value, list) else [value]


def ingress(stack):
    """(where, rule) of all ways in."""
    for name, group in stack.of_type("AWS::EC2::SecurityGroup").items():
        for rule in group["Properties"].get("SecurityGroupIngress", []):
            yield name, rule
    for name, rule in stack.of_type("AWS::EC2::SecurityGroupIngress").items():
        yield name, rule["Properties"]


def network_problems(stack):
    for name, rule in ingress(stack):
        if "SourceSecurityGroupId" in rule:
            continue
        if rule.get("CidrIp", "").endswith("/0") or "CidrIpv6" in rule:
            yield f"{name} lets in {rule.get('CidrIp', rule.get('CidrIpv6'))}"
        elif (rule.get("CidrIp"), rule["FromPort"], rule["ToPort"]) != (stack.values["SshLocation"], 22, 22):
            yield f"{name} lets in more than SshLocation on port 22"


def way_out_problems(stack):
    """CloudFormation drops a group's rule for everything when a resource adds another one."""
    has_more = {rule["Properties"]["GroupId"] for rule in stack.of_type("AWS::EC2::SecurityGroupEgress").values()}
    ways_out = {f"<{name}.GroupId>" for name, group in stack.of_type("AWS::EC2::SecurityGroup").items()
                if any(rule.get("CidrIp") == "0.0.0.0/0" for rule in group["Properties"].get("SecurityGroupEgress", []))}
    for group in sorted(ways_out & has_more):
        yield f"{group} loses its rule for 0.0.0.0/0"
    for name in TEMPLATES:
        groups = stack.resources[name]["Properties"]["LaunchTemplateData"]["NetworkInterfaces"][0]["Groups"]
        if not ways_out & set(groups) or "<NodeGroup.GroupId>" not in groups:
            yield f"{name} has no way out, or none to the other nodes"


def machine_problems(stack):
    for name, template in stack.of_type("AWS::EC2::LaunchTemplate").items():
        data = template["Properties"]["LaunchTemplateData"]
        if data.get("MetadataOptions", {}).get("HttpTokens") != "required":
            yield f"{name} gives metadata without a token"
        for device in data["BlockDeviceMappings"]:
            if device["Ebs"].get("Encrypted") is not True:
                yield f"{name} has a disk in clear"
    for name, instance in stack.of_type("AWS::EC2::Instance").items():
        if instance["Properties"].get("LaunchTemplate", {}).get("LaunchTemplateId") != "<MasterTemplate>":
            yield f"{name} has no launch template"
    for name, group in stack.of_type("AWS::AutoScaling::AutoScalingGroup").items():
        if "<WorkerTemplate>" not in json.dumps(group):
            yield f"{name} has no launch template"
        scheduled = group.get("UpdatePolicy", {}).get("AutoScalingScheduledAction", {})
        if scheduled.get("IgnoreUnmodifiedGroupSizeProperties") is not True:
            yield f"{name} loses workers by any change of the stack"
        if group["Properties"]["MinSize"] != "0":
            yield f"{name} cannot shrink to nothing"
    for name in TEMPLATES:
        text = user_data(stack, name)
        if len(text.encode()) > MOST_USER_DATA:
            yield f"{name} has more user data than EC2 takes"


def role_problems(stack):
    for name, role in stack.of_type("AWS::IAM::Role").items():
        if "ManagedPolicyArns" in role["Properties"]:
            yield f"{name} has rights that are not written here"
        allowed = ROLES.get(name, {})
        for policy in role["Properties"]["Policies"]:
            for statement in policy["PolicyDocument"]["Statement"]:
                for action in as_list(statement["Action"]):
                    yield from action_problems(name, action, as_list(statement["Resource"]), allowed)


def action_problems(role, action, resources, allowed):
    if "*" in action:
        yield f"{role} may do {action}"
    elif not set(resources) <= allowed.get(action, set()):
        yield f"{role} may do {action} to {' '.join(resources)}"


def text_problems(template):
    text = json.dumps(template)
    if "PRIVATE KEY" in text:
        yield "a private key"
    for name, slot in template["Parameters"].items():
        if slot.get("NoEcho") or "private" in name.lower():
            yield f"parameter {name} is a secret"
    for path, node in walk(template):
        if str(node.get("Type", "")).startswith("AWS::S3"):
            yield f"{path} is a bucket"
        # What CloudFormation makes of it is not what is checked here.
        if "Fn::Transform" in node or "Transform" in node:
            yield f"{path or '/'} is transformed"


def problems(template, parameter_sets):
    """All of them, once."""
    found = list(text_problems(template))
    for parameters in parameter_sets.values():
        stack = Stack(template, parameters)
        for check in (network_problems, way_out_problems, machine_problems, role_problems):
            found += check(stack)
        found += [f"{name} is a file system in clear" for name, system in stack.of_type("AWS::EFS::FileSystem").items()
                  if system["Properties"].get("Encrypted") is not True]
    return list(dict.fromkeys(found))

# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""CloudFormation templates as the tests read them: names that lead nowhere, and what a stack with certain
parameters would have in it."""

import base64
import os
import re

from cfnlint.decode import cfn_yaml

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))
PATH = os.path.join(ROOT, "deploy/aws/cluster.yaml")
VARIABLE = re.compile(r"\$\{([^!}][^}]*)\}")
PSEUDO = {
    "AWS::Region": "eu-central-1", "AWS::Partition": "aws", "AWS::AccountId": "123456789012", "AWS::StackName": "mnist",
    "AWS::StackId": "arn:aws:cloudformation:eu-central-1:123456789012:stack/mnist/1", "AWS::URLSuffix": "amazonaws.com",
    "AWS::NoValue": None,
}

# The ways to use it that docs/cluster/aws.md names.
SUM = "0123456789abcdef" * 4
PARAMETER_SETS = {
    "defaults": {},
    "spot": {"Purchase": "spot", "AlternativeInstanceType": "c6a.xlarge", "Workers": "0", "MaxWorkers": "32"},
    "gpu": {"InstanceType": "p4d.24xlarge", "RootDevice": "/dev/sda1", "PlacementStrategy": "cluster", "Efa": "yes",
            "Slots": "8", "RootVolumeSize": "200"},
    "given network and files": {"VpcId": "vpc-12345678", "SubnetId": "subnet-12345678", "PublicAddress": "no",
                                "FileSystemId": "fs-12345678", "ExtraSecurityGroupId": "sg-12345678"},
    "ssh and package": {"SshLocation": "203.0.113.7/32", "KeyName": "mine", "MasterInstanceType": "c6i.2xlarge",
                        "PackageUrl": "https://example.org/chainmail-launcher_0.2.0_amd64.deb", "PackageSha256": SUM},
    "given network, no alarm": {"VpcId": "vpc-0123456789abcdef0", "SubnetId": "subnet-0123456789abcdef0",
                                "IdleHours": "0", "Purchase": "spot", "SharedFolder": "/data/shared"},
}


def read(text=None):
    """The template, with short forms such as !Ref written out. `text`: in place of the file's."""
    if text is None:
        with open(PATH, encoding="utf-8") as file:
            text = file.read()
    return cfn_yaml.loads(text, PATH)


def walk(node, path=""):
    """Every (path, mapping) below."""
    if isinstance(node, dict):
        yield path, node
        for key, value in node.items():
            yield from walk(value, f"{path}/{key}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from walk(value, f"{path}/{index}")


def _used(function, value):
    """(kind, name) of all that an intrinsic function refers to."""
    if function == "Ref":
        yield "name", value
    elif function == "Fn::GetAtt":
        yield "resource", value.split(".")[0] if isinstance(value, str) else value[0]
    elif function == "Fn::Sub":
        text, own = value if isinstance(value, list) else (value, {})
        for name in VARIABLE.findall(text):
            if name not in own:
                yield ("resource", name.split(".")[0]) if "." in name else ("name", name)
    elif function == "Fn::If":
        yield "condition", value[0]
    elif function == "Fn::FindInMap":
        yield "mapping", "/".join(value)


def dangling(template):
    """What refers to something that is not there, wherever it stands, one line each."""
    resources, parameters = template["Resources"], template.get("Parameters", {})
    known = {"resource": resources, "name": {**resources, **parameters, **PSEUDO},
             "condition": template.get("Conditions", {}),
             "mapping": [f"{name}/{first}/{second}" for name, tops in template.get("Mappings", {}).items()
                         for first, seconds in tops.items() for second in seconds]}
    for path, node in walk(template):
        used = []
        for key, value in node.items():
            if key == "Ref" or key.startswith("Fn::"):
                used += _used(key, value)
            # On its own in Conditions, beside Type in a resource.
            elif key == "Condition" and isinstance(value, str):
                used.append(("condition", value))
            elif key == "DependsOn":
                used += [("resource", name) for name in ([value] if isinstance(value, str) else value)]
        for kind, name in used:
            if name not in known[kind]:
                yield f"{path or '/'}: no {kind} {name}"
    interface = template.get("Metadata", {}).get("AWS::CloudFormation::Interface", {})
    for group in interface.get("ParameterGroups", []):
        yield from (f"Interface: no parameter {name}" for name in group["Parameters"] if name not in parameters)


class Stack:
    """What a template makes of parameters. Values that only a cloud knows are NAME or NAME.ATTRIBUTE in <>."""

    def __init__(self, template, parameters):
        unknown = set(parameters) - set(template["Parameters"])
        if unknown:
            raise KeyError(f"no parameters {unknown}")
        self.template = template
        self.values = {name: str(parameters.get(name, slot.get("Default")))
                       for name, slot in template["Parameters"].items()}
        for name, value in self.values.items():
            pattern = template["Parameters"][name].get("AllowedPattern")
            if pattern is not None and not re.fullmatch(pattern, value):
                raise ValueError(f"{name}={value} is not allowed")
        self.resources = {name: self.value(resource) for name, resource in template["Resources"].items()
                          if "Condition" not in resource or self.is_true({"Condition": resource["Condition"]})}
        self.outputs = {name: self.value(output["Value"]) for name, output in template["Outputs"].items()}

    def of_type(self, kind):
        return {name: resource for name, resource in self.resources.items() if resource["Type"] == kind}

    def rules(self):
        """The descriptions of those that do not hold."""
        return [assertion["AssertDescription"] for rule in self.template["Rules"].values()
                for assertion in rule["Assertions"] if not self.is_true(assertion["Assert"])]

    def is_true(self, node):
        (function, value), = node.items()
        if function == "Condition":
            return self.is_true(self.template["Conditions"][value])
        if function == "Fn::Equals":
            one, other = (str(self.value(item)) for item in value)
            return one == other
        if function == "Fn::Not":
            return not self.is_true(value[0])
        return {"Fn::And": all, "Fn::Or": any}[function](self.is_true(item) for item in value)

    def _name(self, name):
        if name in PSEUDO:
            return PSEUDO[name]
        return self.values[name] if name in self.values else self._resource(name)

    def _resource(self, name, attribute=""):
        resource = self.template["Resources"][name]
        if "Condition" in resource and not self.is_true({"Condition": resource["Condition"]}):
            raise KeyError(f"{name} is not in this stack")
        return f"<{name}.{attribute}>" if attribute else f"<{name}>"

    def _sub(self, value):
        text, own = value if isinstance(value, list) else (value, {})

        def replace(match):
            name = match.group(1)
            if name in own:
                return str(self.value(own[name]))
            return self._resource(*name.split(".", 1)) if "." in name else str(self._name(name))

        return VARIABLE.sub(replace, text).replace("${!", "${")

    def value(self, node):
        if isinstance(node, list):
            return [item for item in map(self.value, node) if item is not None]
        if not isinstance(node, dict):
            return node
        if len(node) == 1:
            (function, value), = node.items()
            if function == "Ref":
                return self._name(value)
            if function.startswith("Fn::"):
                return self._call(function, value)
        found = ((key, self.value(value)) for key, value in node.items())
        return {key: value for key, value in found if value is not None}

    def _call(self, function, value):
        if function == "Fn::If":
            return self.value(value[1] if self.is_true({"Condition": value[0]}) else value[2])
        if function == "Fn::Sub":
            return self._sub(value)
        if function == "Fn::GetAtt":
            return self._resource(*(value.split(".", 1) if isinstance(value, str) else value))
        if function == "Fn::Join":
            return value[0].join(str(item) for item in self.value(value[1]))
        if function == "Fn::FindInMap":
            return self.template["Mappings"][value[0]][value[1]][value[2]]
        if function == "Fn::Base64":
            return base64.b64encode(self.value(value).encode()).decode()
        if function == "Fn::Select":
            return self.value(value[1])[int(value[0])]
        if function == "Fn::GetAZs":
            return [PSEUDO["AWS::Region"] + letter for letter in "abc"]
        raise NotImplementedError(function)


def user_data(stack, name):
    """What the machines of launch template `name` run first."""
    return base64.b64decode(stack.resources[name]["Properties"]["LaunchTemplateData"]["UserData"]).decode()

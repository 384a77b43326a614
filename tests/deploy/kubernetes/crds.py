#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Checks the objects of operators in deploy/kubernetes, and those that `launcher job export` prints,
against the operators' own CustomResourceDefinitions.

usage: crds.py LAUNCHER [FOLDER...]

Folders, or $CHAINMAIL_CRDS (with ':' between them), have the projects' files; the repository has no
copy. They are in kubeflow/mpi-operator manifests/base, kubernetes-sigs/jobset
config/components/crd/bases and kubeflow/trainer manifests/base/crds. Without them: 77, and why.

An API server drops fields that a schema does not have without a word. Here they are errors. Rules
in CEL (x-kubernetes-validations) are counted, not evaluated.
"""

import copy
import os
import pathlib
import sys
import tempfile

import jsonschema
import yaml

import manifests

SKIPPED = 77
KINDS = {"MPIJob", "TrainJob", "ClusterTrainingRuntime", "JobSet"}


def closed(schema, is_root=False):
    """As a JSON schema in which fields that nobody has declared are mistakes."""
    made = {key: value for key, value in schema.items() if not key.startswith("x-kubernetes-")}
    for key in ("properties", "additionalProperties", "items"):
        if isinstance(schema.get(key), dict):
            made[key] = ({name: closed(part) for name, part in schema[key].items()} if key == "properties"
                         else closed(schema[key]))
    is_open = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-embedded-resource")
    # Also one without properties: all that stands in it is dropped.
    if schema.get("type") == "object" and "additionalProperties" not in schema and not is_open:
        made["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
        made["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if schema.get("nullable") and "type" in made:
        made["type"] = [made.pop("type"), "null"]
    if is_root:
        # The API server's own, whatever the schema says; schemas_test.py looks at names.
        made["properties"]["metadata"] = {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63},
            "namespace": {"type": "string"}, "labels": {"additionalProperties": {"type": "string"}},
            "annotations": {"additionalProperties": {"type": "string"}}}, "additionalProperties": False}
    return made


def rules_in(schema):
    if isinstance(schema, list):
        return sum(map(rules_in, schema))
    if not isinstance(schema, dict):
        return 0
    return len(schema.get("x-kubernetes-validations", ())) + sum(map(rules_in, schema.values()))


def read_schemas(folders):
    """{(apiVersion, kind): (schema, CEL rules)} of all definitions in these folders."""
    schemas = {}
    for path in sorted(path for folder in folders for path in pathlib.Path(folder).rglob("*.yaml")):
        for document in yaml.load_all(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if not document or document.get("kind") != "CustomResourceDefinition":
                continue
            spec = document["spec"]
            for version in spec["versions"]:
                schema = version["schema"]["openAPIV3Schema"]
                schemas[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = (
                    jsonschema.Draft202012Validator(closed(schema, is_root=True)), rules_in(schema))
    return schemas


def mistakes(document, schemas):
    validator, _ = schemas[document["apiVersion"], document["kind"]]
    return [f"{'.'.join(map(str, wrong.path))}: {wrong.message[:300]}" for wrong in validator.iter_errors(document)]


def first_container(document):
    """Of the first template inside, where an operator's object has one."""
    if isinstance(document, dict):
        if "containers" in document:
            return document["containers"][0]
        document = list(document.values())
    if isinstance(document, list):
        return next(filter(None, map(first_container, document)), None)
    return None


def breaks(document):
    """Copies that must not pass: (what is wrong, object)."""
    def copied():
        return copy.deepcopy(document)

    for what, change in {
        "a field of spec that is not known": lambda made: made["spec"].update(replicaz=1),
        "a spec that is a list": lambda made: made.update(spec=[]),
        "a field beside spec": lambda made: made.update(specs={}),
        "a label that is a number": lambda made: made["metadata"].update(labels={"a": 1}),
    }.items():
        made = copied()
        change(made)
        yield what, made
    if first_container(document) is not None:
        for what, field, value in (("a field of a container that is not known", "imagePullPolice", "Never"),
                                   ("a command that is a text", "command", "sleep"),
                                   ("a port that is a text", "ports", [{"containerPort": "ssh"}])):
            made = copied()
            first_container(made)[field] = value
            yield what, made
    at = {"MPIJob": ("mpiReplicaSpecs", {"Launcher": {"template": {"metadata": {"lables": {}}}}}),
          "JobSet": ("failurePolicy", {"rules": [{"name": "lost", "action": "Restart"}]}),
          "TrainJob": ("trainer", {"numNodes": "two"}),
          "ClusterTrainingRuntime": ("mlPolicy", {"mpi": {"sshAuthMountPaths": "/x"}})}[document["kind"]]
    made = copied()
    made["spec"][at[0]] = at[1]
    yield f"a wrong {at[0]}", made


def main():
    folders = sys.argv[2:] or list(filter(None, os.environ.get("CHAINMAIL_CRDS", "").split(":")))
    if not folders:
        print("skipped: $CHAINMAIL_CRDS names no folders with the operators' definitions")
        return SKIPPED
    schemas = read_schemas(folders)
    missing = KINDS - {kind for _, kind in schemas}
    if missing:
        print(f"FAILED: {' '.join(folders)} have no definition of {', '.join(sorted(missing))}")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        documents = manifests.shipped() + manifests.exported(os.path.abspath(sys.argv[1]), folder)
    failures = planted = 0
    for name, document in documents:
        if not manifests.is_custom(document):
            continue
        found = mistakes(document, schemas)
        rules = schemas[document["apiVersion"], document["kind"]][1]
        print(f"{'FAILED' if found else 'ok    '}  {name}: {document['kind']} ({rules} rules in CEL not evaluated)",
              *found, sep="\n    ")
        failures += len(found)
        for what, broken in breaks(document):
            planted += 1
            if not mistakes(broken, schemas):
                print(f"FAILED  {name}: {what} has not been found")
                failures += 1
    print(f"{planted} planted mistakes")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

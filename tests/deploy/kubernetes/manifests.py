# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""The Kubernetes objects that the repository ships, and those that `launcher job export` prints."""

import copy
import json
import pathlib
import subprocess

import yaml

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "deploy/kubernetes"
EXPORTS = ("mpijob", "trainjob", "jobset")

# With every key that leaves a trace in a manifest, and with as few as there can be.
JOBS = {
    "all": {
        "name": "My.Job", "ranks": 4, "per_node": 2, "hosts": {"count": 2, "wait": "5m"},
        "program": ["./train", "--id=$AZ_BATCHAI_TASK_INDEX", "${output.MODEL}", "$$(5)"],
        "environment": {"MODE": "a \"b\" $$c", "LANG": None}, "secrets": {"KEY": "hunter2-literal"},
        "inputs": {"D": "/data"}, "outputs": {"MODEL": {"path": "/shared/o", "suffix": "m"}},
        "logs": {"path": "/shared/logs", "tag": True}, "prepare": {"command": "echo $KEY", "timeout": "5m"},
        "limits": {"time": "26h", "stall": "10m", "grace": "45s"}, "retry": {"failures": 2, "losses": 3},
        "container": {"engine": "docker", "image": "img:1", "mounts": ["/scratch:/scratch:ro"],
                      "gpus": "all", "shm_size": "8g"},
    },
    "least": {
        "ranks": 3, "program": ["./train"], "retry": {"losses": 0},
        "container": {"engine": "podman", "image": "img:1"},
    },
}


def shipped():
    """(file name, object) of every document of every file."""
    found = []
    for path in sorted(FOLDER.glob("*.yaml")):
        found += [(path.name, document) for document in yaml.safe_load_all(path.read_text())]
    return found


def exported(launcher, folder):
    """(job and target, object) of what the launcher prints."""
    found = []
    for name, job in JOBS.items():
        path = pathlib.Path(folder, f"{name}.json")
        path.write_text(json.dumps({"chainmail": 1, **job}))
        for target in EXPORTS:
            made = subprocess.run([launcher, "job", "export", path, "--to", target], text=True, timeout=60,
                                  capture_output=True, check=False)
            assert made.returncode == 0, f"{name} to {target}: {made.stderr}"
            found += [(f"{name} to {target}", document) for document in yaml.safe_load_all(made.stdout)]
    return found


def is_custom(document):
    """Of an operator, whose schema is in its own CustomResourceDefinition."""
    return any(group in document["apiVersion"] for group in ("kubeflow.org/", "jobset.x-k8s.io/"))


def _wrapped(kind, api, template):
    template = copy.deepcopy(template)
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "x", **template.pop("metadata", {})}, **template}


def core_parts(document):
    """Core objects as operators make them of the templates in theirs: pods, and jobs with pods."""
    spec, kind = document["spec"], document["kind"]
    if kind == "MPIJob":
        return [_wrapped("Pod", "v1", replicas["template"]) for replicas in spec["mpiReplicaSpecs"].values()]
    if kind == "ClusterTrainingRuntime":
        return core_parts({"kind": "JobSet", "spec": spec["template"]["spec"]})
    if kind == "JobSet":
        return [_wrapped("Job", "batch/v1", job["template"]) for job in spec["replicatedJobs"]]
    assert kind == "TrainJob", f"{kind} has no rule here: add where its templates are"
    # Its resources are a container's.
    container = {"name": "node", "image": "x", "resources": spec["trainer"].get("resourcesPerNode", {}),
                 "env": spec["trainer"].get("env", [])}
    return [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": [container]}}]


def pods_of(document):
    """Specifications of all pods that an object, shipped or exported, has in it."""
    if is_custom(document):
        return [spec for part in core_parts(document) for spec in pods_of(part)]
    if document["kind"] == "Pod":
        return [document["spec"]]
    template = document.get("spec", {}).get("template")
    return [template["spec"]] if template else []

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Checks deploy/kubernetes and the manifests of `launcher job export` against the strict schemas of
Kubernetes' own kinds, where a field that is not known is an error, and against each other.

usage: schemas_test.py LAUNCHER

Templates inside objects of operators are checked as the pods and jobs that they become; crds.py
checks the objects themselves.
"""

import copy
import sys
import tempfile
import unittest

import kubernetes_validate
import yaml

import manifests

VERSIONS = [f"1.{minor}" for minor in range(30, 38)]
LAUNCHER = ""
NAMES = ("pods.yaml", "launcher.yaml", "mpijob.yaml", "runtime.yaml", "trainjob.yaml", "jobset.yaml",
         "indexed-job.yaml")


def core(document):
    return manifests.core_parts(document) if manifests.is_custom(document) else [document]


def mistakes(document, versions=None):
    """What the schemas say against it."""
    found = []
    for part in core(document):
        for version in versions or VERSIONS:
            try:
                kubernetes_validate.validate(part, version, strict=True)
            except kubernetes_validate.ValidationError as wrong:
                place = ".".join(map(str, wrong.path))
                found.append(f"{version}: {part['kind']}.{place}: {wrong.message}")
    return found


def shipped(name):
    return [document for file, document in manifests.shipped() if file == name]


def of_kind(kind, name="pods.yaml"):
    found = [document for document in shipped(name) if document["kind"] == kind]
    assert len(found) == 1, f"{len(found)} of kind {kind} in {name}"
    return found[0]


def worker_names():
    workers = of_kind("StatefulSet")
    return [f"{workers['metadata']['name']}-{index}" for index in range(workers["spec"]["replicas"])]


class Schemas(unittest.TestCase):
    def test_all_schemas_are_there(self):
        self.assertEqual(sorted({file for file, _ in manifests.shipped()}), sorted(NAMES))
        # Where one is missing the one before it would be taken.
        for version in VERSIONS:
            self.assertEqual(kubernetes_validate.validate(of_kind("Service"), version, strict=True), version)

    def test_every_document_of_every_file(self):
        for file, document in manifests.shipped():
            with self.subTest(file=file, kind=document["kind"]):
                self.assertEqual(mistakes(document), [])

    def test_what_the_launcher_exports(self):
        with tempfile.TemporaryDirectory() as folder:
            found = manifests.exported(LAUNCHER, folder)
        self.assertEqual(len(found), len(manifests.JOBS) * len(manifests.EXPORTS))
        for name, document in found:
            with self.subTest(name=name):
                self.assertEqual(mistakes(document), [])
                self.assertNotIn("hunter2", yaml.safe_dump(document))

    def test_breaks_are_found(self):
        """In every object: a field that is not known, and one of a wrong type."""
        for file, document in manifests.shipped():
            for pod in range(len(manifests.pods_of(document))):
                for field, value in (("imagePullPolice", "Never"), ("command", "sleep")):
                    broken = copy.deepcopy(document)
                    # Parts of operators' objects are copies.
                    parts = core(broken)
                    specs = [spec for part in parts for spec in manifests.pods_of(part)]
                    specs[pod]["containers"][0][field] = value
                    with self.subTest(file=file, field=field):
                        self.assertTrue([wrong for part in parts for wrong in mistakes(part, ["1.30"])])
        for kind, field in (("Role", "rulez"), ("NetworkPolicy", "specs"), ("ConfigMap", "dota")):
            self.assertTrue(mistakes({**of_kind(kind), field: []}), kind)


class Security(unittest.TestCase):
    def test_every_pod_runs_as_nobody_special(self):
        for file, document in manifests.shipped():
            for spec in manifests.pods_of(document):
                if document["kind"] == "TrainJob":
                    continue  # the runtime has its pods
                with self.subTest(file=file, kind=document["kind"]):
                    person = spec["securityContext"]
                    self.assertTrue(person["runAsNonRoot"])
                    self.assertEqual(person["seccompProfile"], {"type": "RuntimeDefault"})
                    self.assertNotIn("hostNetwork", spec)
                    self.assertNotIn("hostPath", yaml.safe_dump(spec["volumes"]))
                    for container in spec["containers"]:
                        self.assertEqual(container["securityContext"], {
                            "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}})
                        self.assertEqual(set(container["resources"]), {"requests", "limits"})

    def test_tokens_are_the_launchers_alone(self):
        with_token = [file for file, document in manifests.shipped() for spec in manifests.pods_of(document)
                      if document["kind"] != "TrainJob" and spec["automountServiceAccountToken"]]
        self.assertEqual(with_token, ["launcher.yaml"])
        self.assertNotIn("Secret", [document["kind"] for _, document in manifests.shipped()])

    def test_the_role_is_for_these_pods(self):
        role = of_kind("Role")
        for rule in role["rules"]:
            self.assertNotIn("*", rule["verbs"] + rule["resources"] + rule["apiGroups"])
            names = worker_names() if rule["apiGroups"] == [""] else [of_kind("StatefulSet")["metadata"]["name"]]
            self.assertEqual(rule["resourceNames"], names)
        execs = [rule for rule in role["rules"] if rule["resources"] == ["pods/exec"]]
        self.assertEqual([rule["verbs"] for rule in execs], [["get", "create"]])
        binding = of_kind("RoleBinding")
        self.assertEqual(binding["roleRef"]["name"], role["metadata"]["name"])
        account = of_kind("ServiceAccount")["metadata"]["name"]
        self.assertEqual([subject["name"] for subject in binding["subjects"]], [account])
        self.assertEqual(of_kind("Job", "launcher.yaml")["spec"]["template"]["spec"]["serviceAccountName"], account)


class Agreement(unittest.TestCase):
    """Names that stand in two places."""

    def test_of_the_hostfile_and_the_pods(self):
        lines = of_kind("ConfigMap")["data"]["hosts"].splitlines()
        self.assertEqual([line.split()[0] for line in lines], worker_names())
        volumes = of_kind("Job", "launcher.yaml")["spec"]["template"]["spec"]["volumes"]
        self.assertIn(of_kind("ConfigMap")["metadata"]["name"],
                      [volume.get("configMap", {}).get("name") for volume in volumes])

    def test_of_labels_and_services(self):
        workers = of_kind("StatefulSet")["spec"]
        labels = workers["template"]["metadata"]["labels"]
        self.assertEqual(workers["selector"]["matchLabels"], labels)
        self.assertEqual(of_kind("Service")["spec"]["selector"], labels)
        self.assertEqual(of_kind("NetworkPolicy")["spec"]["podSelector"]["matchLabels"], labels)
        self.assertEqual(workers["serviceName"], of_kind("Service")["metadata"]["name"])
        job, service = of_kind("Job", "indexed-job.yaml"), of_kind("Service", "indexed-job.yaml")
        self.assertEqual(service["spec"]["selector"], {"batch.kubernetes.io/job-name": job["metadata"]["name"]})
        self.assertEqual(job["spec"]["template"]["spec"]["subdomain"], service["metadata"]["name"])

    def check_ranks(self, job, master, names):
        container = job["spec"]["template"]["spec"]["containers"][0]
        variables = {variable["name"]: variable for variable in container["env"]}
        self.assertLessEqual(names, set(variables))
        self.assertEqual(variables["WORLD_SIZE"]["value"], str(job["spec"]["completions"]))
        self.assertEqual(job["spec"]["completions"], job["spec"]["parallelism"])
        self.assertEqual(variables["MASTER_ADDR"]["value"], master)
        self.assertEqual(job["spec"]["completionMode"], "Indexed")

    def test_of_ranks_without_a_launcher(self):
        self.check_ranks(of_kind("Job", "indexed-job.yaml"), "mnist-0.mnist",
                         {"WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
        of_job_set = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                      "TORCHELASTIC_RESTART_COUNT"}
        self.check_ranks(core(of_kind("JobSet", "jobset.yaml"))[0], "mnist-ranks-0-0.mnist", of_job_set)
        with tempfile.TemporaryDirectory() as folder:
            sets = [document for name, document in manifests.exported(LAUNCHER, folder)
                    if name == "least to jobset"]
        # The file and the export are one recipe.
        self.check_ranks(core(sets[0])[0], "least-ranks-0-0.least", of_job_set)
        policy = of_kind("JobSet", "jobset.yaml")["spec"]["failurePolicy"]
        self.assertEqual(policy["restartStrategy"], sets[0]["spec"]["failurePolicy"]["restartStrategy"])

    def test_of_job_and_runtime(self):
        runtime, job = of_kind("ClusterTrainingRuntime", "runtime.yaml"), of_kind("TrainJob", "trainjob.yaml")
        self.assertEqual(job["spec"]["runtimeRef"]["name"], runtime["metadata"]["name"])
        names = [part["name"] for part in runtime["spec"]["template"]["spec"]["replicatedJobs"]]
        # By these names Trainer finds them.
        self.assertEqual(names, ["node", "launcher"])
        for part in core(runtime):
            self.assertEqual(part["spec"]["template"]["spec"]["containers"][0]["name"], "node")

    def test_of_shared_memory(self):
        for file, document in manifests.shipped():
            for spec in manifests.pods_of(document):
                has_ranks = any(name in container["name"] for container in spec["containers"]
                                for name in ("worker", "rank", "node"))
                if document["kind"] == "TrainJob" or not has_ranks:
                    continue
                with self.subTest(file=file):
                    mounts = {mount["mountPath"]: mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
                    volumes = {volume["name"]: volume for volume in spec["volumes"]}
                    self.assertEqual(volumes[mounts["/dev/shm"]]["emptyDir"]["medium"], "Memory")


if __name__ == "__main__":
    LAUNCHER = sys.argv.pop(1)
    unittest.main()

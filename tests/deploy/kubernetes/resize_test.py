#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""deploy/kubernetes/resize-kubectl, by itself and named by a job file.

usage: resize_test.py LAUNCHER [CASE...]
"""

import json
import os
import subprocess
import sys

import manifests
from pods import Arguments, Job, Pods, main, now, patient, wait_until

RESIZE = manifests.FOLDER / "resize-kubectl"


def of_set(replicas, **more):
    pods = Pods()
    state = {"name": "chainmail", "replicas": replicas, **more}
    (pods.folder / "set.json").write_text(json.dumps(state))
    return pods


def size_of(pods):
    return json.loads((pods.folder / "set.json").read_text())["replicas"]


def calls_of(pods, verb):
    lines = (pods.folder / "calls").read_text().splitlines()
    return [call for call in map(json.loads, lines) if call[0] == verb]


def resize(pods, *words, shell="sh", **environment):
    return subprocess.run([shell, RESIZE, *map(str, words)], capture_output=True, text=True, check=False,
                          timeout=patient(120), env={**os.environ, **pods.environment, **environment})


def refused(pods, code, *texts, words=("chainmail", 4), **how):
    result = resize(pods, *words, **how)
    assert result.returncode == code, result
    for text in texts:
        assert text in result.stderr, f"no '{text}' in {result}"
    assert result.stderr.startswith("resize-kubectl: ") and not result.stdout, result


def pods_are_added_and_taken_away(_launcher):
    for shell in ("dash", "bash"):
        with of_set(0) as pods:
            for words, size in ((("chainmail", 4), 4), (("chainmail", 4), 4),
                                # Others' jobs have the rest.
                                (("chainmail", 2), 4), (("--max=6", "-n", "train", "chainmail", 6), 6),
                                (("--min", 1, "chainmail", 0), 1), (("chainmail", 0), 0),
                                # What takes pods away adds none.
                                (("--min", 1, "chainmail", 0), 0)):
                result = resize(pods, *words, shell=shell)
                assert result.returncode == 0 and size_of(pods) == size, (words, result)
            assert len(calls_of(pods, "scale")) == 4
            assert [call[2].get("namespace") for call in calls_of(pods, "scale")] == [None, "train", None, None]
            assert all("current" in call[2] and "limit" in call[2] for call in calls_of(pods, "scale"))


def warnings_are_no_numbers(_launcher):
    with of_set(3, warns="W1128 09:00:00.000000 7 warnings.go:70] a 12 is deprecated\n") as pods:
        result = resize(pods, "chainmail", 4)
        assert result.returncode == 0 and size_of(pods) == 4, result
    for answer in ("", "<html>12</html>", "(replicas=)"):
        with of_set(3, answers=answer) as pods:
            refused(pods, 1, "kubectl does not say how many pods StatefulSet chainmail has: " + answer)
            assert size_of(pods) == 3


def who_scales_at_the_same_time_is_heeded(_launcher):
    with of_set(0, races=2) as pods:
        assert resize(pods, "chainmail", 4).returncode == 0
        assert size_of(pods) == 4 and len(calls_of(pods, "scale")) == 3
    with of_set(0, races=99) as pods:
        quick = pods.folder / "quick"
        quick.mkdir()
        (quick / "sleep").write_text("#!/bin/sh\n")
        (quick / "sleep").chmod(0o755)
        refused(pods, 1, "StatefulSet chainmail could not be scaled: error: Expected replicas",
                words=("chainmail", 400), PATH=f"{quick}:{pods.environment['PATH']}")


def mistakes_are_named(_launcher):
    with of_set(0) as pods:
        refused(pods, 1, "wants 9 pods, but StatefulSet chainmail may have 8 (--max)",
                words=("--max", 8, "chainmail", 9))
        refused(pods, 2, "'four' is no number of pods", words=("chainmail", "four"))
        for words in (("chainmail", "010"), ("--min", "08", "chainmail", 9), ("--max=", "chainmail", 9)):
            refused(pods, 2, "is no number of pods", words=words)
        refused(pods, 2, "--min 9 is more than --max 4", words=("--min", 9, "--max", 4, "chainmail", 0))
        refused(pods, 2, "there is no option '--mix'", words=("--mix", 8, "chainmail", 9))
        refused(pods, 2, "--max needs a value", words=("--max",))
        refused(pods, 2, "usage: resize-kubectl", words=("chainmail",))
        refused(pods, 2, "is no name of a StatefulSet", words=("Chain mail", 4))
        for wait in ("soon", "0s", "5xm", "10", "s", "1h30m"):
            refused(pods, 2, f"--wait '{wait}' is no time", words=("--wait", wait, "chainmail", 4))
        refused(pods, 1, "there is no StatefulSet workers in namespace train", "not found",
                words=("-n", "train", "workers", 4))
        empty = pods.folder / "bin"
        empty.mkdir()
        refused(pods, 127, "there is no kubectl in PATH", shell="/bin/sh", PATH=str(empty))
        assert size_of(pods) == 0
    forbidden = ('Error from server (Forbidden): statefulsets.apps "chainmail" is forbidden: User "u" cannot patch '
                 'resource "statefulsets/scale"')
    with of_set(0, fails={"scale": forbidden}) as pods:
        refused(pods, 1, "get, patch and update on statefulsets/scale", forbidden)
    down = "The connection to the server 10.96.0.1:443 was refused - did you specify the right host or port?"
    # None of these is about the set or the rights to it.
    for trouble in (down, 'error: context "not found" does not exist', "proxy says 403 Forbidden",
                    "Unable to connect to the server: getting credentials: exec: executable aws not found",
                    'Error from server (Forbidden): admission webhook "quota" denied the request: Forbidden'):
        with of_set(0, fails={"get": trouble}) as pods:
            refused(pods, 1, "could not be read: " + trouble)


def nothing_is_waited_for_without_a_bound(_launcher):
    with of_set(0, hangs=["get"]) as pods:
        # A kubectl that hangs takes a minute; here the clock is quicker.
        quick = pods.folder / "quick"
        quick.mkdir()
        (quick / "timeout").write_text('#!/bin/sh\nshift 3\nexec /usr/bin/timeout -k 1 1 "$@"\n')
        (quick / "timeout").chmod(0o755)
        began = now()
        refused(pods, 1, "did not answer in time", PATH=f"{quick}:{pods.environment['PATH']}")
        assert now() - began < patient(10)
    with of_set(0) as pods:
        refused_late = resize(pods, "--wait", "5m", "chainmail", 4)
        assert refused_late.returncode == 1 and "not all pods of StatefulSet chainmail are ready after 5m" in (
            refused_late.stderr), refused_late
        # A limit of one request, or of all kubectls, would end the watch.
        assert calls_of(pods, "rollout")[0][2] == {"timeout": "5m"}, calls_of(pods, "rollout")
        told = pods.folder / "told"
        told.mkdir()
        (told / "timeout").write_text(f'#!/bin/sh\necho "$3" >>{told}/limits\nexec /usr/bin/timeout "$@"\n')
        (told / "timeout").chmod(0o755)
        resize(pods, "--wait", "2h", "chainmail", 4, PATH=f"{told}:{pods.environment['PATH']}")
        assert (told / "limits").read_text().split()[-1] == "7260", (told / "limits").read_text()
    with of_set(0, ready=True) as pods:
        assert resize(pods, "--wait", "5m", "chainmail", 4).returncode == 0
        assert resize(pods, "--wait", "5m", "chainmail", 0).returncode == 0
        assert len(calls_of(pods, "rollout")) == 1, "0 pods are ready at once"


def of_file(pods, launcher, resize_words, **job):
    path = pods.folder / "job.json"
    path.write_text(json.dumps({
        "chainmail": 1, "name": "mnist", "program": ["sh", "-c", "echo here"],
        "hosts": {"from": "chainmail-0,chainmail-1,chainmail-2", "count": 3, "wait": "1m", "idle": "1s",
                  "resize": [str(RESIZE), *resize_words]}, **job}))
    return Job(launcher, "--job", path, "--rsh", "kubectl exec -i %h --",
               environment={**pods.environment, "CHAINMAIL_STATE": str(pods.folder / "state")})


def a_job_file_has_its_pods(launcher):
    """0 pods, 3 for the job, 0 when it has been over for a while."""
    with of_set(0, makes_pods=True) as pods:
        with of_file(pods, launcher, ["--max", "8", "chainmail"]) as job:
            job.ends_with(0, 60)
            assert job.text("out") == "here\n" * 3, job.all()
            wait_until(lambda: size_of(pods) == 0, lambda: f"{size_of(pods)} pods: {job.all()}", 30)
        sizes = [call[2]["replicas"] for call in calls_of(pods, "scale")]
        assert sizes == ["3", "0"], sizes


def what_it_cannot_do_is_in_the_log(launcher):
    with of_set(0) as pods:
        with of_file(pods, launcher, ["--max", "2", "chainmail"], name="small",
                     hosts={"from": "chainmail-0", "count": 1, "wait": "1s", "idle": "1s",
                            "resize": [str(RESIZE), "--max", "0", "chainmail"]}) as job:
            job.ends_with(125, 60)
            job.says("may have 0 (--max)")
            job.says("there is no pod chainmail-0")


if __name__ == "__main__":
    sys.exit(main([
        pods_are_added_and_taken_away,
        warnings_are_no_numbers,
        who_scales_at_the_same_time_is_heeded,
        mistakes_are_named,
        nothing_is_waited_for_without_a_bound,
        a_job_file_has_its_pods,
        what_it_cannot_do_is_in_the_log,
    ], Arguments(1)))

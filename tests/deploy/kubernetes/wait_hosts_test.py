#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""--wait-hosts through `kubectl exec`: pods that are not there yet, are tried again; what is refused is
not; the wait is bounded, and names them.

usage: wait_hosts_test.py LAUNCHER [CASE...]
"""

import sys

from pods import Arguments, Pods, main, now, patient

# What kubectl says of a pod, and a part of what the launcher makes of it.
PASSING = {
    "unknown": ('Error from server (NotFound): pods "{}" not found', "there is no pod {}"),
    "created": ("Error from server (BadRequest): pod {} does not have a host assigned",
                "the container of pod {} does not run"),
    "starting": ('error: Internal error occurred: unable to upgrade connection: container not found ("worker")',
                 "the container of pod {} does not run"),
    "stopped": ("error: Internal error occurred: error executing command in container: container is not running",
                "the container of pod {} does not run"),
    "done": ("error: cannot exec into a container in a completed pod; current phase is Succeeded",
             "the container of pod {} does not run"),
    "nodeless": ("Error from server: error dialing backend: dial tcp 10.0.0.5:10250: connect: connection refused",
                 "the node of pod {} does not answer"),
    "serverless": ("The connection to the server 10.96.0.1:443 was refused - did you specify the right host or port?",
                   "kubectl does not reach the API server"),
    "timed": ("Unable to connect to the server: dial tcp 10.96.0.1:443: i/o timeout",
              "kubectl does not reach the API server"),
}
REFUSED = {
    "forbidden": ('Error from server (Forbidden): pods "{}" is forbidden: User "system:serviceaccount:train:default" '
                  'cannot create resource "pods/exec" in API group "" in the namespace "train"',
                  "needs get on pods, and get and create on pods/exec"),
    "stranger": ("error: You must be logged in to the server (Unauthorized)", "does not know who runs kubectl"),
    "elsewhere": ('Error from server (NotFound): namespaces "train" not found', "no such namespace"),
}


def failing(kinds, times):
    """Pods that answer so; the first one is fine."""
    pods = {"fine_0": {}}
    for kind, (message, _) in kinds.items():
        pods[f"{kind}_0"] = {"fails": [times, 1, message.format(f"{kind}-0")]}
    return pods


def hosts_of(pods):
    return ",".join(f"{name.replace('_', '-')}:1" for name in pods)


def pods_that_come_are_waited_for(launcher):
    rules = failing(PASSING, 2)
    with Pods(**rules) as pods, pods.job(launcher, hosts_of(rules), "--wait-hosts", "2m", "echo", "here") as job:
        job.ends_with(0, 60)
        assert job.text("out") == "here\n" * len(rules), job.all()
        job.says("cannot be reached yet; they are tried again for at most")
        for kind in PASSING:
            assert len(pods.execs(f"{kind}-0")) == 3, kind
        assert len(pods.execs("fine-0")) == 1


def pods_that_do_not_come_are_named(launcher):
    lack = lack_after(launcher, 6)
    if lack:  # a busy machine may take as long to start one stand-in for each
        lack = lack_after(launcher, 60)
    assert not lack, lack


def lack_after(launcher, wait):
    """What has not been said or done of pods that have not come in so many seconds; nothing: all was."""
    rules = failing(PASSING, -1)
    with Pods(**rules) as pods:
        began = now()
        with pods.job(launcher, hosts_of(rules), "--wait-hosts", f"{wait}s", "echo", "never") as job:
            job.ends_with(125, wait + 14)
            assert wait - 1 < now() - began < patient(wait + 6), f"{now() - began} s"
            job.says_not("never\n")
            job.leaves_nothing()
            told, _, end = job.text("err").rpartition("(--wait-hosts)")
            for kind, (_, meaning) in PASSING.items():
                if f"{kind}-0" not in told:
                    return f"the line of progress has no {kind}: {job.all()}"
                if meaning.format(f"{kind}-0") not in end:
                    return f"the end has no '{meaning}' of {kind}: {job.all()}"
        asked = sum(len(pods.execs(f"{kind}-0")) for kind in PASSING)
        return "" if asked > len(PASSING) else "nobody was asked again"


def a_pod_that_does_not_answer_is_given_up(launcher):
    assert any(gives_up_and_asks_again(launcher, limit) for limit in (1, 10)), "it was asked once"


def gives_up_and_asks_again(launcher, limit):
    """Whether it asked again: a busy machine may take a short limit to start one stand-in."""
    with Pods(fine_0={}, silent_0={"hangs": True}) as pods:
        began = now()
        with pods.job(launcher, "fine-0,silent-0", "--wait-hosts", f"{3 * limit}s", "--start-timeout", f"{limit}s",
                      "true") as job:
            job.ends_with(125, 3 * limit + 17)
            assert now() - began < patient(3 * limit + 6), f"{now() - began} s"
            job.says(f"pod silent-0 did not answer within {limit} s: do the API server and the pod's node answer?")
            job.leaves_nothing()
        return len(pods.execs("silent-0")) > 1


def a_stream_that_is_cut_is_begun_again(launcher):
    """Before the agent speaks, and before all hosts are there."""
    for moment in ([0, "before"], [256, "after"]):
        rules = {"cut_0": {"cut": moment, "cuts": 1, "keeps": 2},
                 "late_0": {"fails": [2, 1, 'Error from server (NotFound): pods "late-0" not found']}}
        with Pods(**rules) as pods, pods.job(launcher, "cut-0,late-0", "--wait-hosts", "1m", "echo", "here") as job:
            job.ends_with(0, 60)
            assert job.text("out") == "here\nhere\n", job.all()
            assert len(pods.execs("cut-0")) == 2, job.all()


def what_is_refused_is_not_waited_for(launcher):
    for kind, (message, meaning) in REFUSED.items():
        name = f"{kind}-0"
        with Pods(fine_0={}, **{f"{kind}_0": {"fails": [-1, 1, message.format(name)]}}) as pods:
            began = now()
            with pods.job(launcher, f"fine-0,{name}", "--wait-hosts", "5m", "true") as job:
                job.ends_with(125, 20)
                assert now() - began < patient(10), f"{now() - began} s"
                job.says(meaning)
                assert len(pods.execs(name)) == 1, job.all()


def an_image_without_a_shell_is_not_waited_for(launcher):
    said = ('error: Internal error occurred: OCI runtime exec failed: exec failed: unable to start container '
            'process: exec: "/bin/sh": stat /bin/sh: no such file or directory\n'
            'command terminated with exit code 127')
    with Pods(bare_0={"fails": [-1, 127, said]}) as pods:
        with pods.job(launcher, "bare-0", "--wait-hosts", "5m", "true") as job:
            job.ends_with(125, 20)
            job.says("the agent needs /bin/sh")
    # And kubectl without -i, which ends with 0 like a stream that was cut.
    with Pods(fine_0={}) as pods:
        with pods.job(launcher, "fine-0", "--wait-hosts", "5m", "true", rsh="kubectl exec %h --") as job:
            job.ends_with(125, 20)
            job.says("kubectl exec needs -i")


if __name__ == "__main__":
    sys.exit(main([
        pods_that_come_are_waited_for,
        pods_that_do_not_come_are_named,
        a_pod_that_does_not_answer_is_given_up,
        a_stream_that_is_cut_is_begun_again,
        what_is_refused_is_not_waited_for,
        an_image_without_a_shell_is_not_waited_for,
    ], Arguments(1)))

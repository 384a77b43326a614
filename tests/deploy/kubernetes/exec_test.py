#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Jobs through `kubectl exec`, whose streams may be cut at any moment with exit code 0.

usage: exec_test.py LAUNCHER PROBE_RANK [CASE...]

A stand-in for kubectl runs agents on this machine; where there is root, in namespaces as well.
"""

import os
import signal
import subprocess
import sys
import time

import manifests
from pods import Arguments, Pods, Skipped, main, now, patient

HELLO, RANK_STARTED, RANK_EXITED, OUTPUT, ALL_EXITED = 256, 257, 259, 261, 262
LEASE = 2.5
# Seconds. An agent that has heard no word yet gives a busy launcher a minute.
FEW = 1
PODS = "mnist-0:2,mnist-1:2"


def ranks_run_in_pods(launcher, probe):
    with Pods(mnist_0={"namespace": "train"}, mnist_1={"namespace": "train"}) as pods:
        with pods.job(launcher, PODS, probe, "store",
                      rsh="kubectl -n train exec -c worker -i %h --") as job:
            job.ends_with(0, 40)
            secrets = job.text("out").splitlines()
            assert len(secrets) == 4 and len(set(secrets)) == 1, job.all()
            # Nothing but a shell is asked for, so that no list of processes shows more.
            assert pods.execs("mnist-0") == pods.execs("mnist-1") == [["train", ["/bin/sh"]]]
            job.leaves_nothing()


def cut(launcher, rule, *program, loses=True, keeps=30):
    """A job on a pod that stays and one whose stream is cut; its agent's streams stay open."""
    with Pods(mnist_0={}, mnist_1={"cut": rule, "keeps": keeps}) as pods:
        with pods.job(launcher, PODS, "--lease", LEASE, *program) as job:
            job.ends_with(125, 30)
            if loses:
                job.says("lost host mnist-1")
                assert [event["host"] for event in pods.events("host_lost")] == ["mnist-1"], job.all()
                assert pods.events("verdict")[0]["code"] == 125
            assert pods.events("job_ended")[0]["code"] == 125, job.all()
            # The agent over there sees no end of its input; it misses the launcher's heartbeats.
            job.leaves_nothing(LEASE + 6)
            return job.all()


def a_cut_before_the_agent_speaks_is_named(launcher, _probe):
    assert "the connection to pod mnist-1 was cut before the agent spoke" in cut(
        launcher, [0, "before"], "sleep", "30", loses=False, keeps=FEW)


def a_cut_while_agents_and_ranks_start_is_a_lost_host(launcher, _probe):
    cut(launcher, [HELLO, "middle"], "sleep", "30", loses=False, keeps=FEW)
    cut(launcher, [HELLO, "after"], "sleep", "30", keeps=FEW)
    cut(launcher, [RANK_STARTED, "middle"], "sleep", "30")


def a_cut_in_the_output_is_a_lost_host(launcher, _probe):
    said = cut(launcher, [OUTPUT, "middle"], "sh", "-c", "echo of $RANK; sleep 30")
    # Of a message that has come half nothing is shown.
    assert "of 2" not in said and "of 3" not in said and "of 0" in said, said
    cut(launcher, [OUTPUT, "before"], "sh", "-c", "seq 1 20000; echo done")


def a_cut_at_the_end_is_no_success(launcher, _probe):
    """All ranks have ended with 0; that they have is what has not arrived."""
    cut(launcher, [RANK_EXITED, "before"], "true")
    cut(launcher, [RANK_EXITED, "middle"], "true")
    # Of one of its two ranks.
    cut(launcher, [RANK_EXITED, "after"], "true")


def a_cut_behind_the_end_changes_nothing(launcher, _probe):
    with Pods(mnist_0={}, mnist_1={"cut": [ALL_EXITED, "after"]}) as pods:
        with pods.job(launcher, PODS, "--lease", LEASE, "echo", "done") as job:
            job.ends_with(0, 30)
            assert job.text("out") == "done\n" * 4, job.all()
            job.leaves_nothing(LEASE + 6)


def a_cut_at_any_later_time_is_a_lost_host(launcher, _probe):
    with Pods(mnist_0={}, mnist_1={}) as pods:
        with pods.job(launcher, PODS, "--lease", LEASE, "sh", "-c", "echo up; sleep 60") as job:
            job.wait_for("up", 4, 40)
            time.sleep(1)
            pods.cut("mnist-1")
            job.ends_with(125, 10)
            job.says("lost host mnist-1")
            job.leaves_nothing(LEASE + 6)


def a_job_goes_on_without_the_stream_that_was_cut(launcher, _probe):
    """--max-restarts starts agents in all pods again."""
    with Pods(mnist_0={}, mnist_1={"cut": [RANK_STARTED, "after"], "cuts": 1}) as pods:
        with pods.job(launcher, PODS, "--lease", LEASE, "--max-restarts", 1, "sh", "-c",
                      "echo world $CHAINMAIL_GENERATION; [ $CHAINMAIL_GENERATION = 1 ] || sleep 30") as job:
            job.ends_with(0, 60)
            assert job.text("out").count("world 1") == 4, job.all()


def idle_streams_are_busy(launcher, _probe):
    """A message per lease at least, each way; proxies cut what is silent for minutes."""
    with Pods(mnist_0={}) as pods:
        with pods.job(launcher, "mnist-0:1", "--lease", LEASE, "sh", "-c", "echo up; sleep 60") as job:
            job.wait_for("up", 1, 40)
            begin = now()
            time.sleep(3 * LEASE)
            end = now()
            job.process.send_signal(signal.SIGTERM)
            job.ends_with(143)
        for direction in ("in", "out"):
            silence = pods.longest_silence("mnist-0", direction, begin, end)
            print(f"  {direction}: silent for at most {silence:.2f} s")
            assert silence < LEASE, f"{direction}: {silence} s"


def _stop_command(workers):
    hook = workers["spec"]["template"]["spec"]["containers"][0]["lifecycle"]["preStop"]
    return hook["exec"]["command"]


def pods_that_are_ended_tell_their_ranks(launcher, _probe):
    """What stands in pods.yaml, in namespaces: its command sleeps, its hook is the notice."""
    if os.geteuid() != 0:
        raise Skipped("needs root for namespaces")
    workers = [document for _, document in manifests.shipped() if document["kind"] == "StatefulSet"][0]
    sleep = workers["spec"]["template"]["spec"]["containers"][0]["command"]
    with Pods() as pods:
        pods.run("chainmail-0", sleep)
        inside = pods.run("chainmail-1", sleep)
        with pods.job(launcher, "chainmail-0:1,chainmail-1:1", "sh", "-c",
                      "trap 'echo saved of $RANK; exit 0' TERM; echo up on $(hostname); "
                      "while :; do sleep 0.1; done") as job:
            job.wait_for("up on chainmail-", 2, 40)
            assert "up on chainmail-0" in job.text("out") and "up on chainmail-1" in job.text("out")
            began = now()
            # As the kubelet does for one of them.
            hook = subprocess.run([*inside, *_stop_command(workers)], capture_output=True, text=True,
                                  timeout=patient(40), check=False)
            assert hook.returncode == 0, hook
            took = now() - began
            job.ends_with(143)
            assert sorted(line for line in job.text("out").splitlines() if "saved" in line) == [
                "saved of 0", "saved of 1"], job.all()
            grace = workers["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
            assert took < grace, f"{took} s"
            job.leaves_nothing()
        # Where no job runs there is nothing to wait for.
        began = now()
        subprocess.run([*inside, *_stop_command(workers)], check=True, timeout=patient(10))
        assert now() - began < patient(5), f"{now() - began} s"


if __name__ == "__main__":
    sys.exit(main([
        ranks_run_in_pods,
        a_cut_before_the_agent_speaks_is_named,
        a_cut_while_agents_and_ranks_start_is_a_lost_host,
        a_cut_in_the_output_is_a_lost_host,
        a_cut_at_the_end_is_no_success,
        a_cut_behind_the_end_changes_nothing,
        a_cut_at_any_later_time_is_a_lost_host,
        a_job_goes_on_without_the_stream_that_was_cut,
        idle_streams_are_busy,
        pods_that_are_ended_tell_their_ranks,
    ], Arguments(2)))

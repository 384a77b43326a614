# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""The ways in which faults.py breaks jobs, and what must come of each."""

import os
import random
import re
import signal
import subprocess
import time

import jobs

MEMORY = "/sys/fs/cgroup/memory"


class Fault:
    """What a case did: when, which ranks were hit, and which others must get an error."""

    def __init__(self, at, victims, survivors, note=""):
        self.at = at
        self.victims = victims
        self.survivors = survivors
        self.note = note


def kill(pid, number=signal.SIGKILL):
    at = time.time()
    os.kill(pid, number)
    return at


def others(job, victims):
    return [rank for rank in range(job.size) if rank not in victims]


def ranks_of_node(job, rank):
    if job.shape == "local":
        return list(range(job.size))
    half = job.size // 2
    return list(range(half)) if rank < half else list(range(half, job.size))


def kill_rank(job):
    rank = random.randrange(job.size)
    return Fault(kill(job.pid_of(rank)), [rank], others(job, [rank]))


def kill_agent(job):
    rank = random.randrange(job.size)
    victims = ranks_of_node(job, rank)
    return Fault(kill(job.agent_of(rank)), victims, others(job, victims))


def kill_reaper(job):
    rank = random.randrange(job.size)
    victims = ranks_of_node(job, rank)
    return Fault(kill(job.reaper_of(rank)), victims, others(job, victims))


def kill_two(job):
    """Of the three processes of a node: the one that is left ends everything there."""
    rank = random.randrange(job.size)
    victims = ranks_of_node(job, rank)
    three = [job.agent_of(rank), job.reaper_of(rank), job.supervisor_of(rank)]
    first, second = random.sample(three, 2)
    at = kill(first)
    kill(second)
    return Fault(at, victims, others(job, victims))


def kill_supervisor(job):
    rank = random.randrange(job.size)
    victims = ranks_of_node(job, rank)
    return Fault(kill(job.supervisor_of(rank)), victims, others(job, victims))


def kill_shell(job):
    shell = random.choice(job.children("ssh"))
    host = re.search(r" -- (?:\S+@)?(n\d)|\b(n[12])\b", jobs.command_of(shell))
    victims = [0, 1] if (host.group(1) or host.group(2)) == "n1" else [2, 3]
    return Fault(kill(shell), victims, others(job, victims))


def kill_helper(job):
    """Open MPI's server on one node. Nobody is lost, and all of them must learn of it."""
    agent = job.agent_of(random.randrange(job.size))
    return Fault(kill(jobs.children_of(agent, "chainmail-pmix")[0]), [-1], list(range(job.size)))


def kill_plain_helper(job):
    fault = kill_helper(job)
    fault.survivors = []  # MPI has no errors that a program could see
    return fault


def kill_launcher(job):
    return Fault(kill(job.process.pid), list(range(job.size)), [])


def stop_rank(job):
    rank = random.randrange(job.size)
    return Fault(kill(job.pid_of(rank), signal.SIGSTOP), [rank], others(job, [rank]))


def hang_rank(job):
    rank = random.randrange(job.size)
    return Fault(kill(job.pid_of(rank), signal.SIGUSR2), [rank], others(job, [rank]))


def stop_agent(job):
    victims = ranks_of_node(job, random.randrange(job.size))
    agent = job.agent_of(victims[0])
    return Fault(kill(agent, signal.SIGSTOP), victims, others(job, victims), str(agent))


def stop_launcher(job):
    """It goes on when its agents have given it up, and must then find out by itself."""
    pid = job.process.pid
    os.kill(pid, signal.SIGSTOP)
    limit = time.time() + 15
    while job.processes() != [pid] and time.time() < limit:
        time.sleep(0.02)
    return Fault(kill(pid, signal.SIGCONT), list(range(job.size)), [])


def set_link(state):
    subprocess.run(["ip", "link", "set", jobs.node_file("n2", "link"), state], check=True)


def cut_link(job):
    at = time.time()
    set_link("down")
    return Fault(at, [2, 3], [0, 1])


def drop(hook, interface):
    in_n2 = ["ip", "netns", "exec", jobs.node_file("n2", "netns"), "nft"]
    rules = (
        f"add table inet fault; add chain inet fault loss {{ type filter hook {hook} priority 0; }};"
        f" add rule inet fault loss {interface} eth0 drop"
    )
    at = time.time()
    subprocess.run(in_n2 + [rules], check=True)
    return at


def deafen(job):
    return Fault(drop("input", "iifname"), [2, 3], [0, 1])


def mute(job):
    return Fault(drop("output", "oifname"), [2, 3], [0, 1])


def mend():
    if jobs.NODES:
        set_link("up")
        in_n2 = ["ip", "netns", "exec", jobs.node_file("n2", "netns"), "nft"]
        subprocess.run(in_n2 + ["flush ruleset"], check=False)


def exhaust_memory(job):
    """A memory limit around one rank, which then takes more."""
    rank = random.randrange(job.size)
    pid = job.pid_of(rank)
    group = f"{MEMORY}/chainmail-fault-{os.getpid()}"
    os.makedirs(group, exist_ok=True)
    with open(f"{group}/memory.limit_in_bytes", "w", encoding="ascii") as file:
        file.write(str(64 << 20))
    with open(f"{group}/cgroup.procs", "w", encoding="ascii") as file:
        file.write(str(pid))
    time.sleep(1.2)  # as a rank that was started there
    os.kill(pid, signal.SIGUSR1)
    # Filling the memory takes a moment; what counts is when the kernel has had enough.
    while jobs.is_alive(pid):
        time.sleep(0.001)
    return Fault(time.time(), [rank], others(job, [rank]))


def remove_memory_group():
    group = f"{MEMORY}/chainmail-fault-{os.getpid()}"
    for _ in range(50):
        try:
            os.rmdir(group)
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.02)


def interrupt(job):
    return Fault(kill(job.process.pid, signal.SIGINT), [], [])


def terminate(job):
    return Fault(kill(job.process.pid, signal.SIGTERM), [], [])


class Case:
    def __init__(
        self, action, code, message, cause, detect=0.5, end=2.0, at_start=False, options=(),
        program=jobs.ENGINE, size=4, shapes=("local", "nodes"),
    ):
        self.action = action
        self.code = code
        self.message = message  # of the launcher
        self.cause = cause  # in the survivors' errors
        self.detect = detect
        self.end = end
        self.at_start = at_start
        self.options = options  # of the launcher
        self.program = program
        self.size = size
        self.shapes = shapes


ON_NODES = ("nodes",)
LEASE = 9.0  # and the heartbeat with which it shows
KILLED = r"rank \d on host \S+ was killed by signal 9"
STOPPED = r"rank \d on host \S+ has been stopped"
NO_HELPER = r"MPI cannot be served on host \S+: the MPI helper"
LOST = r"lost host (n[12]|localhost): "
# A cut link may be noticed first by the data's own connections, whose error names the peer's rank.
CUT = r"lost|connection|no answer|not answer|cut|silent|heard"
CASES = {
    "rank": Case(kill_rank, 137, KILLED, "signal 9"),
    "python": Case(kill_rank, 137, KILLED, "signal 9", program=jobs.PYTHON, size=2),
    "agent": Case(kill_agent, 125, r"lost host ", "host lost"),
    "reaper": Case(kill_reaper, 125, r"lost host ", "host lost"),
    "supervisor": Case(kill_supervisor, 125, r"lost host ", "host lost"),
    "two": Case(kill_two, 125, r"lost host ", "host lost"),
    "helper": Case(kill_helper, 125, NO_HELPER, NO_HELPER, program=jobs.MPI),
    "mpi-helper": Case(kill_plain_helper, 125, NO_HELPER, "", program=jobs.PLAIN_MPI),
    "ssh": Case(kill_shell, 125, LOST, "host lost", shapes=ON_NODES),
    "launcher": Case(kill_launcher, -9, "", ""),
    "stop": Case(stop_rank, 147, STOPPED, "stopped", 5.0),
    "python-stop": Case(stop_rank, 147, STOPPED, "stopped", 5.0, program=jobs.PYTHON, size=2),
    "stop-agent": Case(stop_agent, 125, LOST, "host lost", LEASE, 5.0, shapes=ON_NODES),
    "stop-launcher": Case(stop_launcher, 125, LOST, ""),
    "cut": Case(cut_link, 125, LOST, CUT, LEASE, 5.0, shapes=ON_NODES),
    "deaf": Case(deafen, 125, LOST, CUT, LEASE, 5.0, shapes=ON_NODES),
    "mute": Case(mute, 125, LOST, CUT, LEASE, 5.0, shapes=ON_NODES),
    "oom": Case(exhaust_memory, 137, r"out-of-memory", "out-of-memory"),
    "stall": Case(
        hang_rank, 124, r"rank \d on host \S+ has stalled", "stalled: no progress for 2 s", 5.0,
        options=("--stall-timeout", "2"),
    ),
    "start-int": Case(interrupt, 130, "", "", at_start=True),
    "start-term": Case(terminate, 143, "", "", at_start=True),
}


def why_not(case):
    """Why a case cannot be had here; empty when it can."""
    if case.action is exhaust_memory and not os.access(MEMORY, os.W_OK):
        return "no memory control group can be made here (cgroup v1)"
    return jobs.why_not(case.program)

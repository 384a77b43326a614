# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Breaks running jobs in every way there is and looks how they end; see launcher_faults.sh."""

import argparse
import os
import random
import re
import signal
import subprocess
import sys
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
    return [0, 1] if rank < 2 else [2, 3]


def kill_rank(job):
    rank = random.randrange(job.size)
    return Fault(kill(job.pid_of(rank)), [rank], others(job, [rank]))


def kill_agent(job):
    rank = random.randrange(job.size)
    victims = ranks_of_node(job, rank)
    return Fault(kill(job.agent_of(rank)), victims, others(job, victims))


def kill_warden(job):
    rank = random.randrange(job.size)
    victims = ranks_of_node(job, rank)
    return Fault(kill(job.warden_of(rank)), victims, others(job, victims))


def kill_shell(job):
    shell = random.choice(job.children("ssh"))
    host = re.search(r" -- (?:\S+@)?(n\d)|\b(n[12])\b", jobs.command_of(shell))
    victims = [0, 1] if (host.group(1) or host.group(2)) == "n1" else [2, 3]
    return Fault(kill(shell), victims, others(job, victims))


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
    limit = time.time() + 10
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
        self, action, code, message, cause, detect=0.5, end=2.0, at_start=False, options=()
    ):
        self.action = action
        self.code = code
        self.message = message  # of the launcher
        self.cause = cause  # in the survivors' errors
        self.detect = detect
        self.end = end
        self.at_start = at_start
        self.options = options  # of the launcher


LOST = r"lost host (n[12]|localhost): "
# A cut link may be noticed first by the data's own connections, whose error names the peer's rank.
CUT = r"lost|connection|no answer|not answer|cut|silent|heard"
CASES = {
    "rank": Case(kill_rank, 137, r"rank \d on host \S+ was killed by signal 9", "signal 9"),
    "agent": Case(kill_agent, 125, r"lost host ", "host lost"),
    "warden": Case(kill_warden, 125, r"lost host ", "host lost"),
    "ssh": Case(kill_shell, 125, LOST, "host lost"),
    "launcher": Case(kill_launcher, -9, "", ""),
    "stop": Case(stop_rank, 147, r"rank \d on host \S+ has been stopped", "stopped", 5.0),
    "stop-agent": Case(stop_agent, 125, LOST, "host lost", 5.0, 5.0),
    "stop-launcher": Case(stop_launcher, 125, LOST, ""),
    "cut": Case(cut_link, 125, LOST, CUT, 5.0, 5.0),
    "deaf": Case(deafen, 125, LOST, CUT, 5.0, 5.0),
    "mute": Case(mute, 125, LOST, CUT, 5.0, 5.0),
    "oom": Case(exhaust_memory, 137, r"out-of-memory", "out-of-memory"),
    "stall": Case(
        hang_rank, 124, r"rank \d on host \S+ has stalled", "stalled: no progress for 2 s", 5.0,
        options=("--stall-timeout", "2"),
    ),
    "start-int": Case(interrupt, 130, "", "", at_start=True),
    "start-term": Case(terminate, 143, "", "", at_start=True),
}
LOCAL = ["rank", "agent", "warden", "launcher", "stop", "stop-launcher", "oom", "stall", "start-int", "start-term"]
NODES = list(CASES)


def begin(case, shape):
    job = jobs.Job(shape, options=case.options)
    if case.at_start:
        # A start takes some 30 ms on this machine and a second over ssh.
        time.sleep(random.uniform(0, 0.1 if shape == "local" else 1.5))
        return job, ""
    return job, "" if job.wait_until_running() else "the job did not start: " + job.messages()


def check_survivors(case, job, fault):
    """Errors found, and the longest time until one was told."""
    bad = []
    longest = 0.0
    for rank in fault.survivors:
        error = job.entry(rank, "error")
        if error is None:
            bad.append(f"rank {rank} got no error")
            continue
        kind, peer, text = error[2].split(" ", 2)
        longest = max(longest, error[1] - fault.at)
        if kind != "PeerError" or int(peer) not in fault.victims:
            bad.append(f"rank {rank} got {kind} of rank {peer}: {text}")
        elif "all_reduce" not in text or not re.search(r"on host |\(n\d|localhost", text):
            bad.append(f"rank {rank}: the error names no operation or no host: {text}")
        elif not re.search(case.cause, text):
            bad.append(f"rank {rank}: the error has another cause: {text}")
    if longest > case.detect * SLACK:
        bad.append(f"the last error came after {longest:.2f} s")
    return bad, longest


def one_round(name, case, shape):
    before = jobs.files()
    job, failure = begin(case, shape)
    if failure:
        job.end()
        return [failure], 0.0, 0.0, 0
    fault = case.action(job)
    gone = job.wait_until_gone(15)
    bad, detected = check_survivors(case, job, fault)
    left = job.processes()
    if gone is None:
        commands = [f"{pid} {jobs.command_of(pid)}" for pid in left]
        bad.append("left running: " + "; ".join(commands))
        gone = time.time()
    ended = gone - fault.at - detected
    if ended > case.end * SLACK:
        bad.append(f"all were gone only {ended:.2f} s after the last error")
    if job.process.returncode != case.code and not (
        case.at_start and job.process.returncode == 128 - case.code
    ):
        bad.append(f"exit code {job.process.returncode}, wanted {case.code}")
    if case.message and not re.search(case.message, job.messages()):
        bad.append("no such message")
    for pid in left:
        job.end()
    mend()
    leftovers = [name for name in jobs.files() - before if not name.startswith("/tmp/work")]
    leftovers += [str(port) for port in jobs.listening_ports()]
    for group in os.listdir(os.environ["WORK"]):
        if not group.startswith(("faults.", "chainmail-nodes.")):
            leftovers.append(f"$TMPDIR/{group}")
    if leftovers:
        bad.append("left over: " + ", ".join(leftovers))
    if bad:
        bad.append("the launcher said: " + job.messages().strip()[-1500:])
    job.close()
    return bad, detected, ended, len(left) + len(leftovers)


def run_case(name, shape, times):
    case = CASES[name]
    failed = 0
    worst_detection = worst_end = 0.0
    left = 0
    for _ in range(times):
        bad, detected, ended, remains = one_round(name, case, shape)
        worst_detection = max(worst_detection, detected)
        worst_end = max(worst_end, ended)
        left += remains
        if bad:
            failed += 1
            print(f"BAD {shape} {name}: " + "\n    ".join(bad), file=sys.stderr, flush=True)
    print(
        f"{shape + ' ' + name:<20} {times:>5} {failed:>5} {worst_detection:>13.2f} "
        f"{worst_end:>10.2f} {left:>9}",
        flush=True,
    )
    return failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("times", type=int)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--slack", type=float, default=1.0)
    arguments = parser.parse_args()
    global SLACK
    SLACK = arguments.slack
    wanted = arguments.cases or [f"local:{c}" for c in LOCAL] + [f"nodes:{c}" for c in NODES]
    print(
        f"{'case':<20} {'runs':>5} {'bad':>5} {'detection s':>13} {'end s':>10} {'left':>9}",
        flush=True,
    )
    failed = 0
    for word in wanted:
        shape, _, name = word.rpartition(":")
        if name not in CASES:
            sys.exit(f"no such case: {name}; there are {', '.join(CASES)}")
        if name == "oom" and not os.access(MEMORY, os.W_OK):
            print(f"{word}: skipped: no memory control group can be made here (cgroup v1)")
            continue
        for each in [shape] if shape else ["local"] * (name in LOCAL) + ["nodes"]:
            failed += run_case(name, each, arguments.times)
            remove_memory_group()
    return 1 if failed else 0


SLACK = 1.0
if __name__ == "__main__":
    sys.exit(main())

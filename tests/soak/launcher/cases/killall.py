# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Ends all that is named like the launcher on one host; see killall.sh."""

import os
import re
import signal
import subprocess
import sys
import time

import jobs
from jobs import patient

NAMED = re.compile("launcher|chainmail")
# In the name of a control group: the process namespace and the process that have made it.
OWNER = re.compile(r"^chainmail.*owner-[0-9a-f]+-(\d+)-(\d+)-\d+")
LIMIT = 5.0
# A rank, a child in its process group, one in a session of its own, and an orphaned one there.
TREE = (
    "trap '' TERM HUP; exec >/dev/null 2>&1; sleep 300 & setsid sleep 300 & (setsid sleep 300 &);"
    " sleep 300"
)
RANKS_PER_HOST = 2


def is_of(pid, mark):
    return f"{jobs.MARK}={mark}".encode() in jobs.read(f"/proc/{pid}/environ").split(b"\0")


def processes(mark):
    """All that lives of the job: what ranks start on the nodes has the mark, too, by -x."""
    return [int(pid) for pid in os.listdir("/proc")
            if pid.isdigit() and is_of(pid, mark) and jobs.is_alive(pid)]


def on_nodes():
    """Whatever lives in a node, its sshd's listener left out."""
    networks = jobs.node_networks()
    return [int(pid) for pid in os.listdir("/proc")
            if pid.isdigit() and jobs.network_of(pid) in networks and jobs.is_alive(pid)
            and jobs.name_of(pid) not in ("sshd", "ip")]


def control_groups(pids):
    """Those that these processes have made: other jobs on this machine have some, too."""
    own_namespace = re.search(r"\d+", os.readlink("/proc/self/ns/pid")).group()
    found = set()
    for line in jobs.read("/proc/self/mountinfo", "r").splitlines():
        if " - cgroup2 " not in line: continue
        for folder, below, _ in os.walk(line.split()[4]):
            for name in below:
                owner = OWNER.search(name)
                if owner and owner.group(1) == own_namespace and int(owner.group(2)) in pids:
                    found.add(os.path.join(folder, name))
    return found


def may_make_groups():
    """Whether the launcher may in its own one, as launcher/cgroup sees it; where systemd is, it seldom may."""
    own = re.search(r"^0::(/.*)$", jobs.read("/proc/self/cgroup", "r"), re.M)
    if not own or os.path.exists("/run/systemd/system"): return False
    for line in jobs.read("/proc/self/mountinfo", "r").splitlines():
        if " - cgroup2 " not in line: continue
        folder = line.split()[4] + own.group(1).removeprefix(line.split()[3].rstrip("/"))
        return (os.access(f"{folder}/cgroup.procs", os.W_OK)
                and not jobs.read(f"{folder}/cgroup.subtree_control", "r").strip())
    return False


def kill_named(host, mark, by_name):
    """As pkill does: what there is at that moment, one after the other. Of this job alone: by its
    mark where the launcher is, which other work shares, and by the network on the node, which is
    all the job's."""
    if host == "head":
        candidates = [pid for pid in processes(mark)
                      if jobs.network_of(pid) == jobs.network_of("self")]
    else:
        candidates = on_nodes()
    found = []
    for pid in sorted(candidates):
        text = jobs.name_of(pid) if by_name else jobs.name_of(pid) + " " + jobs.command_of(pid)
        if NAMED.search(text) and jobs.name_of(pid) not in ("bash", "sshd", "ssh"):
            found.append(pid)
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return len(found)


def started(mark):
    return len([pid for pid in processes(mark) if jobs.name_of(pid) == "sleep"])


def check(host, by_name, number):
    """(what was left, seconds until nothing was)."""
    before = jobs.files()
    mark = f"{os.getpid()}-{number}"
    with open(f"{jobs.NODES}/rsh", encoding="utf-8") as file:
        rsh = file.read().strip()
    with open(os.path.join(os.environ["WORK"], "said"), "wb") as said:
        launcher = subprocess.Popen(
            [jobs.LAUNCHER, "-H", f"localhost:{RANKS_PER_HOST},n1:{RANKS_PER_HOST}", "--rsh", rsh,
             "-x", jobs.MARK, "sh", "-c", TREE],
            stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            env=dict(os.environ, **{jobs.MARK: mark}), start_new_session=True)
    limit = time.time() + 30
    while started(mark) < 4 * 2 * RANKS_PER_HOST:
        if time.time() > limit or launcher.poll() is not None:
            launcher.kill()
            return ["the job did not start: " + jobs.read(said.name, "r")], LIMIT
        time.sleep(0.05)
    time.sleep(1.2)  # it has a folder by now
    of_job = set(processes(mark) + on_nodes() + [launcher.pid])
    made = len(control_groups(of_job))  # none where the system allows none
    if made == 0 and may_make_groups(): return ["no control group of the job was found"], LIMIT
    at = time.time()
    killed = kill_named(host, mark, by_name)
    if killed < (3 if host == "head" else 2):
        return [f"only {killed} processes were found to kill"], LIMIT
    left, limit = ["?"], at + patient(LIMIT)
    while left and time.time() < limit:
        launcher.poll()
        left = [f"{pid} {jobs.command_of(pid)}" for pid in set(processes(mark) + on_nodes())]
        left += [name for name in jobs.files() - before if not name.startswith("/tmp/work")]
        left += [f"$TMPDIR/{name}" for name in os.listdir(os.environ["WORK"])
                 if name.startswith("chainmail-") and not name.startswith("chainmail-nodes.")]
        left += sorted(control_groups(of_job))
        time.sleep(0.02)
    took = time.time() - at
    for pid in set(processes(mark) + on_nodes()):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    launcher.wait()
    print(f"{host}: {killed} processes killed, {made} control groups", flush=True)
    return left, took


def main():
    words = sys.argv[1:]
    by_name = "--names" in words
    words = [word for word in words if word != "--names"]
    times, hosts = int(words[0]), words[1:] or ["head", "far"]
    failed = False
    for host in hosts:
        good, longest = 0, 0.0
        for number in range(times):
            left, took = check(host, by_name, f"{host}-{number}")
            good += not left
            longest = max(longest, took)
            if left:
                print(f"BAD {host}: left: " + "\n    ".join(left), flush=True)
        failed = failed or good < times
        print(f"{host:<4}: nothing left {good} of {times} times, the longest after "
              f"{longest:.2f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

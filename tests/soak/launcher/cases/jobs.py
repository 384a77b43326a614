# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Jobs of fault_rank under the launcher, seen from outside: which processes belong to one, what its
ranks wrote down, and what it leaves behind.

For scripts in a mount namespace of their own (with_nodes.sh), so that /tmp and /dev/shm hold
nothing but what the job made.
"""

import functools
import os
import signal
import subprocess
import sys
import tempfile
import time

# Before this folder, which has another patience.py.
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../support"))

from patience import patient  # noqa: E402

LAUNCHER = os.environ["LAUNCHER"]
FAULT_RANK = os.environ["FAULT_RANK"]
NODES = os.environ.get("NODES_DIR", "")
MARK = "FAULT_JOB"
# What ranks run; all of them take the folder to write into, and --pause-us.
ENGINE = (FAULT_RANK, "{folder}")
MPI = (FAULT_RANK, "{folder}", "--mpi", "1")
PLAIN_MPI = (os.environ.get("MPI_PROBE", ""), "run", "{folder}")
PYTHON = (
    os.environ.get("FAULT_PYTHON", ""), "-B",
    os.path.join(os.path.dirname(__file__), "../fault_rank.py"), "{folder}",
)


@functools.cache
def why_not(program):
    """Why jobs of that program cannot be had here; empty when they can."""
    if program in (MPI, PLAIN_MPI):
        if not os.access(os.path.join(os.path.dirname(LAUNCHER), "chainmail-pmix"), os.X_OK):
            return "chainmail-pmix is not built: install libpmix-dev"
        if not os.access(PLAIN_MPI[0], os.X_OK):
            return "Open MPI is missing: install libopenmpi-dev"
    if program == PYTHON:
        command = [PYTHON[0], "-c", "import chainmail"]
        if not os.access(PYTHON[0], os.X_OK) or subprocess.run(command, capture_output=True).returncode:
            return f"{PYTHON[0]} cannot import chainmail: run tools/setup.sh --python"
    return ""


def node_file(node, kind):
    with open(f"{NODES}/{node}.{kind}", encoding="utf-8") as file:
        return file.read().strip()


def read(path, mode="rb"):
    """What is in a file of /proc; empty when its process has gone."""
    try:
        with open(path, mode) as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return b"" if "b" in mode else ""


def parent_of(pid):
    fields = read(f"/proc/{pid}/stat", "r").rpartition(")")[2].split()
    return int(fields[1]) if len(fields) > 1 else -1


def is_alive(pid):
    fields = read(f"/proc/{pid}/stat", "r").rpartition(")")[2].split()
    return bool(fields) and fields[0] not in "ZX"


def name_of(pid):
    return read(f"/proc/{pid}/comm", "r").strip()


def children_of(parent, name):
    return [
        int(pid)
        for pid in os.listdir("/proc")
        if pid.isdigit() and parent_of(pid) == parent and name_of(pid) == name
    ]


def command_of(pid):
    return read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def network_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""


def node_networks():
    """The network namespaces of the nodes, as /proc names them."""
    if not NODES:
        return set()
    return {
        f"net:[{os.stat('/run/netns/' + node_file(node, 'netns')).st_ino}]" for node in ("n1", "n2")
    }


def listening_ports():
    """(node, port) of all TCP sockets that listen on the nodes, sshd's left out."""
    ports = set()
    for node in ("n1", "n2") if NODES else ():
        command = ["ip", "netns", "exec", node_file(node, "netns"), "cat", "/proc/net/tcp"]
        for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines()[1:]:
            fields = line.split()
            port = int(fields[1].rpartition(":")[2], 16)
            if fields[3] == "0A" and port != 22:
                ports.add((node, port))
    return ports


def files():
    """What lies in the folders where jobs might leave something."""
    found = set()
    for folder in ("/tmp", "/dev/shm", "/run/user"):
        if os.path.isdir(folder):
            found.update(f"{folder}/{name}" for name in os.listdir(folder))
    return found


class Job:
    """One launcher with its ranks. shape: "local" (all here) or "nodes" (half on each of n1, n2)."""

    count = 0

    def __init__(self, shape, arguments=(), options=(), program=ENGINE, size=4):
        Job.count += 1
        self.shape = shape
        self.folder = tempfile.mkdtemp(prefix="faults.", dir=os.environ["WORK"])
        self.mark = f"{os.getpid()}-{Job.count}"
        self.size = size
        self.networks = node_networks()
        hosts = f"localhost:{size}" if shape == "local" else f"n1:{size // 2},n2:{size // 2}"
        command = [LAUNCHER, "-H", hosts]
        if shape == "nodes":
            with open(f"{NODES}/rsh", encoding="utf-8") as file:
                command += ["--rsh", file.read().strip()]
        command += ["-x", "PYTHONPATH"] if program == PYTHON else []
        command += list(options)
        command += [word.format(folder=self.folder) for word in program]
        command += list(arguments)
        environment = dict(os.environ, **{MARK: self.mark})
        self.out = open(f"{self.folder}/out", "wb")
        self.err = open(f"{self.folder}/err", "wb")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self.out,
            stderr=self.err,
            env=environment,
            start_new_session=True,
        )

    def close(self):
        self.out.close()
        self.err.close()

    def messages(self):
        return read(f"{self.folder}/err").decode(errors="replace")

    def log_of(self, rank):
        """[(kind, seconds since 1970, rest)] of what the rank wrote down."""
        lines = []
        for line in read(f"{self.folder}/rank.{rank}", "r").splitlines():
            kind, microseconds, rest = line.split(" ", 2)
            lines.append((kind, int(microseconds) / 1e6, rest))
        return lines

    def entry(self, rank, kind):
        """The newest line of that kind, or None."""
        found = [line for line in self.log_of(rank) if line[0] == kind]
        return found[-1] if found else None

    def wait_until_running(self, seconds=30):
        """Until every rank has made a step."""
        limit = time.time() + patient(seconds)
        while time.time() < limit:
            if all(self.entry(rank, "steps") for rank in range(self.size)):
                return True
            if self.process.poll() is not None:
                return False
            time.sleep(0.02)
        return False

    def pid_of(self, rank):
        return int(self.entry(rank, "up")[2])

    def agent_of(self, rank):
        return parent_of(self.pid_of(rank))

    def reaper_of(self, rank):
        return parent_of(self.agent_of(rank))

    def supervisor_of(self, rank):
        return parent_of(self.reaper_of(rank))

    def children(self, name):
        """Children of the launcher with that name: remote shells, local supervisors."""
        return children_of(self.process.pid, name)

    def processes(self):
        """All that lives of the job: by its environment here, by the network on the nodes."""
        mark = f"{MARK}={self.mark}".encode()
        found = []
        for pid in os.listdir("/proc"):
            if not pid.isdigit() or not is_alive(pid):
                continue
            is_marked = mark in read(f"/proc/{pid}/environ").split(b"\0")
            on_node = network_of(pid) in self.networks and name_of(pid) not in ("sshd", "ip")
            if is_marked or (self.shape == "nodes" and on_node):
                found.append(int(pid))
        return found

    def wait_until_gone(self, seconds):
        """When the last process had gone, or None."""
        limit = time.time() + seconds
        known = []
        while True:
            # To look at all processes takes a while, and the time of the job's own.
            known = [pid for pid in known if is_alive(pid)] or self.processes()
            if not known:
                gone = time.time()
                self.process.wait(timeout=5)  # what has ended, but for its zombie
                return gone
            if time.time() > limit:
                return None
            time.sleep(0.005)

    def end(self):
        """For a job that went wrong: nothing of it may disturb the next one."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.poll()

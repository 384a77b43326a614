# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Machines for tests of deploy/node, on one machine: each has a network, processes, a file system and a host name of its
own. Runs inside isolated.sh, whose end takes all of them away."""

import ctypes
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parents[2]
sys.path.insert(0, str(PROJECT / "tests/support"))

from patience import patience, patient  # noqa: E402

SUBNET = "10.77.0"
GATEWAY = f"{SUBNET}.254"  # this side of the network: where the cloud's interfaces listen
METADATA = ("169.254.169.254", 80)
CLONE_NEWNET = 0x40000000


# What machines are made of: this one, or a Debian that tests/soak/deploy/node.sh has made.
LOWER = os.environ.get("CHAINMAIL_NODE_ROOT", "/")


def run(*words, **how):
    return subprocess.run([str(word) for word in words], check=True, **how)


class Network:
    def __init__(self):
        # One that is not told its address takes that of another port now and then, which machines do not notice at once.
        run("ip", "link", "add", "br0", "address", "02:00:00:00:00:fe", "type", "bridge")
        run("ip", "addr", "add", f"{GATEWAY}/24", "dev", "br0")
        run("ip", "link", "set", "br0", "up")
        self.links = 0

    def join(self, pid, address):
        self.links += 1
        link = f"veth{self.links}"
        run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        run("ip", "link", "set", link, "master", "br0", "up")
        inside = ("nsenter", "-t", pid, "-n", "ip")
        run(*inside, "addr", "add", f"{address}/24", "dev", "eth0")
        run(*inside, "link", "set", "eth0", "up")


class Machine:
    """One that has been switched on and has not booted. `visible`: folders that are the same on all machines."""

    def __init__(self, network, name, address, *, shared, visible=()):
        self.name, self.address = name, address
        self.upper = pathlib.Path("/tmp/machines", f"{name}-{network.links}")
        self.upper.mkdir(parents=True)
        pathlib.Path(shared).mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--propagation",
             "private", HERE / "node_init.sh", LOWER, self.upper, name, shared, *visible],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n", f"machine {name} has not started"
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        self.pid = int(children[0])
        network.join(self.pid, address)
        self.root = self.upper / "root"
        self.copy(PROJECT / "deploy/node", "/usr/share/chainmail/node")

    def path(self, name):
        """As this side sees it: what lies in the changes or on a folder of the machine's own."""
        return pathlib.Path(f"/proc/{self.pid}/root{name}")

    def copy(self, source, target):
        target = self.path(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        if pathlib.Path(source).is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)

    def write(self, name, text, mode=0o644):
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def read(self, name):
        path = self.path(name)
        return path.read_text() if path.exists() else ""

    def command(self, *words, user=None, variables=()):
        as_user = ["setpriv", "--reuid", user, "--regid", user, "--init-groups"] if user else []
        home = f"/shared/{user}" if user else "/root"
        environment = ["env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", f"HOME={home}",
                       "LANG=C.UTF-8", *variables]
        return ["nsenter", "-t", str(self.pid), "-m", "-n", "-u", "-i", "-p", "-r", "-w", *as_user, *environment,
                *map(str, words)]

    def run(self, *words, seconds=60, **how):
        """(exit code, stdout, stderr)"""
        done = subprocess.run(self.command(*words, **how), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, errors="replace", timeout=patient(seconds), check=False)
        return done.returncode, done.stdout, done.stderr

    def start(self, *words, **how):
        return subprocess.Popen(self.command(*words, **how), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, errors="replace")

    def configure(self, variables):
        lines = "".join(f"{key}={shlex.quote(str(value))}\n" for key, value in variables.items())
        self.write("/etc/chainmail/node.conf", lines)

    def boot(self, **how):
        return self.start("/usr/share/chainmail/node/boot", **how)

    def log(self):
        return self.read("/var/log/chainmail-node.log")

    def switch_off(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def listen_in(pid, address):
    """A listening socket in the network of this process; sockets stay where they were made."""
    made = []

    def make():
        with open(f"/proc/{pid}/ns/net", "rb") as network:
            if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), CLONE_NEWNET) != 0:
                return
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(64)
        made.append(listening)

    thread = threading.Thread(target=make)  # what setns() changes is the thread's alone
    thread.start()
    thread.join()
    assert made, f"nothing listens at {address} of process {pid}"
    return made[0]


def wait_until(condition, what, seconds):
    """The time that it took; what() says what there is instead."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < patient(seconds), f"after {time.monotonic() - begun:.1f} s: {what()}"
        time.sleep(0.05)
    return time.monotonic() - begun


def ended_well(*boots, seconds=60):
    """Waits for processes of Machine.boot()."""
    limit = time.monotonic() + patient(seconds)
    for boot in boots:
        said, _ = boot.communicate(timeout=max(1, limit - time.monotonic()))
        assert boot.returncode == 0, said


def main(cases, more=()):
    """`more` are those that take long, for --all."""
    # The first process of a namespace is not ended by what it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    failures = 0
    for case in [*cases, *(more if sys.argv[-1] == "--all" else ())]:
        begun = time.monotonic()
        try:
            said = case()
            result = f"ok {said or ''}"
        except AssertionError as wrong:
            failures += 1
            result = f"FAILED: {wrong}"
        print(f"{case.__name__:44} {time.monotonic() - begun:6.2f} s  {result}", flush=True)
    return 1 if failures else 0


def visible_folders(*programs):
    """Folders that programs built here need, and the cloud's command line, which is Python's."""
    found = {str(PROJECT), os.environ.get("LIBTORCH", str(PROJECT)), os.path.realpath(sys.base_prefix)}
    found -= {"/usr"}  # a system's own
    found |= {str(pathlib.Path(program).resolve().parent) for program in programs}
    return sorted(folder for folder in found
                  if not any(folder != other and folder.startswith(other + "/") for other in found))

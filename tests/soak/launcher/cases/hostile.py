# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Strangers at every port of a running job; see faults/hostile.sh."""

import argparse
import ctypes
import os
import signal
import socket
import statistics
import struct
import sys
import threading
import time

import jobs
from jobs import patient

LIBC = ctypes.CDLL(None, use_errno=True)
KINDS = ("silent", "one byte", "2^63 length", "random", "replayed hello")


class Recorder(threading.Thread):
    """Records the first bytes that each connection to n2 carries, from the outside."""

    def __init__(self):
        super().__init__(daemon=True)
        self.first = {}  # (port, other address, other port): bytes
        # All protocols: only then does the kernel show what a bridge forwards.
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.bind((jobs.node_file("n2", "link"), 0))
        self.socket.settimeout(0.2)
        self.is_on = True

    def run(self):
        while self.is_on:
            try:
                frame = self.socket.recv(65535)
            except TimeoutError:
                continue
            packet = frame[14:]
            if frame[12:14] != b"\x08\x00" or len(packet) < 40 or packet[9] != socket.IPPROTO_TCP:
                continue
            tcp = packet[(packet[0] & 15) * 4 : struct.unpack("!H", packet[2:4])[0]]
            source, port = struct.unpack("!HH", tcp[:4])
            payload = tcp[(tcp[12] >> 4) * 4 :]
            if payload:
                self.first.setdefault((port, packet[12:16], source), payload)
        self.socket.close()

    def hello_to(self, port):
        found = [data for (to, _, _), data in self.first.items() if to == port]
        return found[0] if found else None


def sockets_of(pid):
    inodes = set()
    try:
        for number in os.listdir(f"/proc/{pid}/fd"):
            target = os.readlink(f"/proc/{pid}/fd/{number}")
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    except OSError:
        pass
    return inodes


def open_ports(pid):
    """(address, port) of the sockets on which this process listens."""
    inodes = sockets_of(pid)
    found = set()
    for line in jobs.read(f"/proc/{pid}/net/tcp", "r").splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            address, _, port = fields[1].rpartition(":")
            text = socket.inet_ntoa(struct.pack("<I", int(address, 16)))
            found.add((text, int(port, 16)))
    if any(
        line.split()[3] == "0A" and line.split()[9] in inodes
        for line in jobs.read(f"/proc/{pid}/net/tcp6", "r").splitlines()[1:]
    ):
        sys.exit("hostile: an IPv6 port is open; teach this script to connect to it")
    return found


def memory_of(pids):
    total = 0
    for pid in pids:
        for line in jobs.read(f"/proc/{pid}/status", "r").splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1])
    return total / 1024


class Network:
    """The network namespace of a process, from which its loopback ports can be reached."""

    def __init__(self, pid):
        self.own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self.its = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)

    def socket(self):
        """A new socket there: it stays where it was made."""
        self._enter(self.its)
        try:
            return socket.socket()
        finally:
            self._enter(self.own)

    @staticmethod
    def _enter(namespace):
        if LIBC.setns(namespace, 0) != 0:
            sys.exit(f"hostile: no way into a node's network: {os.strerror(ctypes.get_errno())}")


def connect(network, target, kind, hello, held):
    """One stranger. Silent ones stay until the end."""
    stranger = network.socket()
    stranger.settimeout(2)
    try:
        stranger.connect(target)
        if kind == "one byte":
            stranger.send(b"c")
        elif kind == "2^63 length":
            stranger.send(struct.pack("<Q", 1 << 63) + struct.pack(">Q", 1 << 63) + b"\0" * 64)
        elif kind == "random":
            stranger.send(os.urandom(1024))
        elif kind == "replayed hello":
            stranger.send(hello)
    except OSError:
        stranger.close()
        return False
    held.append(stranger)
    return True


def attack(ports, network_of, hello_of, kind, count, seconds, held):
    """`count` strangers, evenly over the time."""
    start = time.time()
    refused = 0
    for i in range(count):
        target = ports[i % len(ports)]
        time.sleep(max(0.0, start + seconds * i / count - time.time()))
        if not connect(network_of[target], target, kind, hello_of[target], held):
            refused += 1
    time.sleep(max(0.0, start + seconds - time.time()))
    return refused


def mean_between(job, begin, end):
    """Microseconds per step of rank 0 in the seconds that lie wholly inside."""
    means = [
        float(rest.split()[1])
        for kind, at, rest in job.log_of(0)
        if kind == "steps" and begin + 1 <= at <= end + 0.1
    ]
    return statistics.mean(means) if means else None


def mean_since(job, begin):
    """With the first such line that is there by now; rank 0 of a busy machine writes it late."""
    limit = time.time() + patient(10)
    while True:
        mean = mean_between(job, begin, time.time())
        if mean is not None or time.time() > limit: return mean
        time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("connections", type=int, nargs="?", default=1000)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--bound", type=float, default=1.05)
    arguments = parser.parse_args()
    recorder = Recorder()
    recorder.start()
    job = jobs.Job("nodes", ("--pause-us", "2000"))
    if not job.wait_until_running():
        sys.exit("hostile: the job did not start: " + job.messages())
    time.sleep(2)
    recorder.is_on = False
    pids = job.processes()
    network_of = {target: Network(pid) for pid in pids for target in open_ports(pid)}
    ports = sorted(network_of)
    print(f"{len(pids)} processes, ports: " + ", ".join(f"{a}:{p}" for a, p in ports))
    if not ports:
        sys.exit("hostile: the job has no port; nothing was shown")
    recorded = recorder.hello_to(next((p for a, p in ports if recorder.hello_to(p)), 0))
    if recorded is None:
        sys.exit("hostile: no hello was recorded")
    hello_of = {target: recorder.hello_to(target[1]) or recorded for target in ports}
    held = []
    ratios = []
    before = memory_of(pids)
    most = before
    per_kind = arguments.connections // len(KINDS)
    refused = 0
    for kind in KINDS:
        begin = time.time()
        time.sleep(arguments.seconds)
        quiet = mean_since(job, begin)
        middle = time.time()
        refused += attack(
            ports, network_of, hello_of, kind, per_kind, arguments.seconds, held
        )
        loud = mean_since(job, middle)  # they are held open
        most = max(most, memory_of(pids))
        if quiet is None or loud is None:
            sys.exit(f"hostile: no steps while {kind}: {job.messages()}")
        ratios.append(loud / quiet)
        print(f"{kind:<15} {per_kind:>5} connections, step {quiet:7.0f} us before, "
              f"{loud:7.0f} us meanwhile: x {loud / quiet:.3f}", flush=True)
    grown = most - before
    failed = [rank for rank in range(job.size) if job.entry(rank, "error")]
    running = job.process.poll() is None
    ratio = statistics.median(ratios)
    print(f"median x {ratio:.3f}, memory + {grown:.1f} MiB, {refused} not accepted, "
          f"{len(failed)} ranks with errors")
    if running:
        job.process.send_signal(signal.SIGTERM)
    gone = job.wait_until_gone(10)
    bad = failed or not running or job.process.returncode != 143 or not gone
    if bad:
        print("the launcher said: " + job.messages())
    job.end()
    # Sanitizers keep what was freed.
    is_sanitized = float(os.environ.get("CHAINMAIL_TEST_PATIENCE", "1")) > 1
    return 1 if bad or ratio > arguments.bound or (grown > 16 and not is_sanitized) else 0


if __name__ == "__main__":
    sys.exit(main())

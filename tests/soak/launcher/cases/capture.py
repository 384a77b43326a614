# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""What goes over the wire between two nodes in jobs that encrypt, authenticate and do neither:
records every packet and looks for a tensor whose elements are known. Then jobs that must not run.

Started by with_nodes.sh; see encryption.sh.
"""

import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

LAUNCHER = os.environ["LAUNCHER"]
FAULT_RANK = os.environ["FAULT_RANK"]
NODES = os.environ["NODES_DIR"]
ELEMENTS, STEPS, VALUE = 1 << 18, 20, 12344
# What ranks 0 and 1 begin with and what their mean is, as it would stand in a packet.
MARKS = [struct.pack("<f", VALUE * factor) * 4 for factor in (1, 1.5, 2, 3)]
ETH_P_ALL = 3


class Recorder:
    """All packets of an interface, in both directions."""

    def __init__(self, interface):
        self.packets = []
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, 33, 256 << 20)  # SO_RCVBUFFORCE
        self._socket.bind((interface, 0))
        self._socket.settimeout(0.1)
        self._must_stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while True:
            try:
                self.packets.append(self._socket.recv(1 << 17))
            except TimeoutError:
                if self._must_stop.is_set():
                    return

    def stop(self):
        self._must_stop.set()
        self._thread.join()
        self._socket.close()


def launch(folder, *words):
    rsh = open(f"{NODES}/rsh", encoding="utf-8").read().strip()
    command = [LAUNCHER, "-H", "n1:1,n2:1", "--rsh", rsh, *words]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - began


def rank_words(folder, steps=STEPS):
    return [FAULT_RANK, folder, "--elements", str(ELEMENTS), "--steps", str(steps), "--value",
            str(VALUE), "--pause-us", "1000"]


def captured(words):
    """Bytes on the wire, and how many packets show the tensor."""
    with open(f"{NODES}/n1.link", encoding="utf-8") as file:
        recorder = Recorder(file.read().strip())
    try:
        with tempfile.TemporaryDirectory() as folder:
            code, output, _ = launch(folder, *words, *rank_words(folder))
    finally:
        recorder.stop()
    if code != 0:
        sys.exit(f"capture: {words} ended with {code}: {output}")
    shown = sum(any(mark in packet for mark in MARKS) for packet in recorder.packets)
    return sum(map(len, recorder.packets)), shown, len(recorder.packets)


def check_captures():
    failures = 0
    for words, may_show in (([], True), (["--authenticate"], True), (["--encrypt"], False)):
        total, shown, packets = captured(words)
        # Each rank sends half of the tensor twice in a step.
        is_good = total > 2 * STEPS * ELEMENTS * 4 * 9 // 10 and (shown > 0) == may_show
        failures += not is_good
        print(f"{' '.join(words) or 'neither':15} {total:10} bytes in {packets} packets, "
              f"{shown} show the tensor{'' if is_good else '   WRONG'}", flush=True)
    return failures


def refused(name, words, patterns):
    """A job that must end soon, with an error that says all of that."""
    with tempfile.TemporaryDirectory() as folder:
        replaced = [folder if word == "{folder}" else word for word in words]
        code, output, seconds = launch(folder, *replaced)
    missing = [pattern for pattern in patterns if not re.search(pattern, output)]
    is_good = code not in (0, 124) and seconds < 20 and not missing
    print(f"{name:15} exit code {code} after {seconds:.1f} s{'' if is_good else '   WRONG: '}"
          f"{'' if is_good else f'{missing} are not in {output}'}", flush=True)
    return not is_good


def main():
    failures = check_captures()
    rank = [FAULT_RANK, "{folder}", "--steps", "3"]
    failures += refused(
        "one encrypts", ["-n", "1", "-x", "CHAINMAIL_ENCRYPT=encrypt", *rank, ":", "-n", "1", *rank],
        [r"rank 0 on host n1 has (encryption )?\"encrypt\"",
         r"rank 1 on host n2 has (encryption )?\"off\"", "set CHAINMAIL_ENCRYPT alike"])
    failures += refused("over MPI", ["--encrypt", "-x", "CHAINMAIL_CROSS=mpi", *rank],
                        ["is to encrypt data between nodes, and MPI would carry them over 2 nodes"])
    trainer = os.path.join(os.path.dirname(LAUNCHER), "train_mnist")
    if os.access(trainer, os.X_OK):
        failures += refused(
            "torch's Gloo", ["--authenticate", trainer, "--communicator", "gloo", "--out", "{folder}"],
            ["is to authenticate data between nodes, and torch's Gloo would carry them"])
    failures += refused("misspelt", ["-x", "CHAINMAIL_ENCRYPT=encyrpt", *rank],
                        ["CHAINMAIL_ENCRYPT=\"encyrpt\" is none of encrypt, authenticate and off"])
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

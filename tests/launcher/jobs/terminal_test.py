#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""What ranks find when the launcher writes to a terminal: terminal_test.py LAUNCHER

Progress that is redrawn after carriage returns comes through while the program runs, the terminal of
a rank has the size of the launcher's, also after that has changed, and without a terminal nothing of
this happens.
"""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios

# Each step waits for the next word on standard input, so that nothing depends on time.
PROGRAM = r"""
echo "watched $CHAINMAIL_TERMINAL $TERM"
exec 3>&1
echo "size $(stty size <&3)"
trap 'resized=yes' WINCH
printf '50 %%\r'
read -r _
while [ -z "$resized" ]; do sleep 0.05; done
echo "now $(stty size <&3)"
"""


def set_size(terminal, rows, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Terminal:
    def __init__(self):
        self.ours, self.theirs = pty.openpty()
        set_size(self.ours, 40, 100)
        self.text = ""

    def read_until(self, wanted):
        while wanted not in self.text:
            piece = os.read(self.ours, 4096).decode()
            assert piece, f"no {wanted!r} in {self.text!r}"
            self.text += piece


def on_a_terminal(launcher):
    terminal = Terminal()
    job = subprocess.Popen([launcher, "-n", "1", "sh", "-c", PROGRAM], stdin=subprocess.PIPE,
                           stdout=terminal.theirs, env=dict(os.environ, TERM="xterm"))
    try:
        terminal.read_until("watched 1 xterm")
        terminal.read_until("size 40 100")
        terminal.read_until("50 %\r")  # no line has ended
        set_size(terminal.ours, 50, 120)
        job.send_signal(signal.SIGWINCH)
        job.stdin.write(b"go\n")
        job.stdin.close()
        terminal.read_until("now 50 120")
        assert job.wait(60) == 0
    finally:
        job.kill()


def without_a_terminal(launcher):
    program = 'echo "watched $CHAINMAIL_TERMINAL"; printf "50 %%\\rdone\\n"; stty size <&1'
    result = subprocess.run([launcher, "-n", "1", "sh", "-c", program], stdin=subprocess.DEVNULL,
                            capture_output=True, timeout=60)
    assert result.stdout == b"watched 0\n50 %\rdone\n0 0\n", repr(result.stdout)


signal.alarm(100)  # whatever a step waits for and does not get
for case in (on_a_terminal, without_a_terminal):
    case(sys.argv[1])
    print(f"{case.__name__}: passed")

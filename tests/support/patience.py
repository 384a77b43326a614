# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""How much longer than on an idle machine things may take here and now; see patience.h.

CHAINMAIL_TEST_PATIENCE says what sanitizers cost the programs that a test starts.
"""

import os
import time

_WORK_SECONDS = 0.02  # some time slices of the scheduler
_LONGEST_WAIT = 0.25  # what is longer is a pause of the whole machine, and no measure of how busy it is
_largest = 1.0


def cost_of_sanitizers():
    """How much longer programs take, and how much more memory, with a sanitizer; 1 without."""
    return float(os.environ.get("CHAINMAIL_TEST_PATIENCE", "1"))


def patience():
    """At least 1: the time that passes for each second of the processor, the largest seen so far."""
    global _largest
    last, used, passed = time.monotonic(), time.thread_time(), 0.0
    while time.thread_time() - used < _WORK_SECONDS:
        now = time.monotonic()
        passed += min(now - last, _LONGEST_WAIT)
        last = now
    _largest = max(_largest, passed / _WORK_SECONDS)
    return _largest * cost_of_sanitizers()


def patient(seconds):
    """`seconds`, stretched by patience()."""
    return seconds * patience()

# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Breaks running jobs in every way there is and looks how they end; see faults/faults.sh."""

import argparse
import os
import random
import re
import signal
import sys
import time

import jobs
from fault_cases import CASES, mend, remove_memory_group, why_not
from jobs import patient

HEAD = f"{'case':<20} {'rounds':>6} {'error s':>8} {'gone s':>7} {'bad':>4} {'left':>5} {'s each':>7}"


def begin(case, shape):
    job = jobs.Job(shape, ("--pause-us", "4000"), case.options, case.program, case.size)
    if case.at_start:
        # A start takes some 30 ms on this machine and a second over ssh.
        time.sleep(random.uniform(0, 0.1 if shape == "local" else 1.5))
        return job, ""
    return job, "" if job.wait_until_running() else "the job did not start: " + job.messages()


def check_survivors(case, job, fault, slack):
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
    if longest > case.detect * slack:
        bad.append(f"the last error came after {longest:.2f} s")
    return bad, longest


def leftovers_of(before):
    left = [name for name in jobs.files() - before if not name.startswith("/tmp/work")]
    left += [str(port) for port in jobs.listening_ports()]
    left += [
        f"$TMPDIR/{name}"
        for name in os.listdir(os.environ["WORK"])
        if not name.startswith(("faults.", "chainmail-nodes."))
    ]
    return left


class Round:
    """One job, broken once."""

    def __init__(self, case, shape, slack):
        before = jobs.files()
        self.bad = []
        self.detected = self.ended = 0.0
        self.left = 0
        self.job, failure = begin(case, shape)
        try:
            if failure:
                self.bad.append(failure)
            else:
                self.break_it(case, slack, before)
        finally:
            self.job.end()
            self.job.close()

    def break_it(self, case, slack, before):
        job, bad = self.job, self.bad
        fault = case.action(job)
        gone = job.wait_until_gone(patient(15))
        slack = patient(slack)  # the largest that was seen, also while it ended
        errors, self.detected = check_survivors(case, job, fault, slack)
        bad += errors
        left = job.processes()
        if gone is None:
            commands = [f"{pid} {jobs.command_of(pid)}" for pid in left]
            bad.append("left running: " + "; ".join(commands))
            gone = time.time()
        self.ended = gone - fault.at - self.detected
        if self.ended > case.end * slack:
            bad.append(f"all were gone only {self.ended:.2f} s after the last error")
        code = job.process.returncode
        if code != case.code and not (case.at_start and code == 128 - case.code):
            bad.append(f"exit code {code}, wanted {case.code}")
        if case.message and not re.search(case.message, job.messages()):
            bad.append("no such message")
        job.end()
        mend()
        leftovers = leftovers_of(before)
        if leftovers:
            bad.append("left over: " + ", ".join(leftovers))
        if bad:
            bad.append("the launcher said: " + job.messages().strip()[-1500:])
        self.left = len(left) + len(leftovers)


class Row:
    """What came of the rounds of one case."""

    def __init__(self, shape, name):
        self.shape = shape
        self.name = name
        self.rounds = self.bad = self.left = 0
        self.detected = self.ended = self.seconds = 0.0

    def run(self, times, slack):
        for _ in range(times):
            begun = time.time()
            result = Round(CASES[self.name], self.shape, slack)
            self.rounds += 1
            self.seconds += time.time() - begun
            self.detected = max(self.detected, result.detected)
            self.ended = max(self.ended, result.ended)
            self.left += result.left
            if result.bad:
                self.bad += 1
                text = "\n    ".join(result.bad)
                print(f"BAD {self.shape} {self.name}: {text}", file=sys.stderr, flush=True)

    def __str__(self):
        return (
            f"{self.shape + ' ' + self.name:<20} {self.rounds:>6} {self.detected:>8.2f} "
            f"{self.ended:>7.2f} {self.bad:>4} {self.left:>5} "
            f"{self.seconds / max(self.rounds, 1):>7.2f}"
        )


def wanted_rows(words):
    """`words` as on the command line; "local:" and "nodes:" alone mean all of that shape."""
    rows = []
    for word in words or ["local:", "nodes:"]:
        shape, _, name = word.rpartition(":")
        if (name and name not in CASES) or shape not in ("", "local", "nodes"):
            sys.exit(f"no such case: {word}; there are {', '.join(CASES)}")
        for each in [name] if name else list(CASES):
            shapes = [s for s in CASES[each].shapes if shape in ("", s)]
            if name and not shapes:
                sys.exit(f"{word}: this case needs nodes")
            rows += [Row(s, each) for s in shapes]
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("times", type=int)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--slack", type=float, default=1.0)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A shell's background job ignores it, and so would the launcher until it has its own handler.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rows = []
    was_interrupted = False
    try:
        for row in wanted_rows(arguments.cases):
            reason = why_not(CASES[row.name])
            if reason:
                print(f"{row.shape} {row.name}: skipped: {reason}", file=sys.stderr, flush=True)
                continue
            rows.append(row)
            row.run(arguments.times, arguments.slack)
            remove_memory_group()
            print(f"done: {row}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        was_interrupted = True
    finally:
        mend()
        remove_memory_group()
        print("\n".join([HEAD, *map(str, rows)]), flush=True)
    if was_interrupted:
        return 130
    return 1 if any(row.bad for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""A slow rank on a slow network is no fault; see faults/patience.sh."""

import argparse
import os
import signal
import sys
import time

import jobs

CPU = "/sys/fs/cgroup/cpu"
QUOTA = 0.2
RATE = 100e6 / 8  # bytes per second, as faults/patience.sh has set it
ELEMENTS = 2 << 20  # 8 MiB: two thirds of a second at that rate
WORK_US = 150000  # beside it, three quarters of a second at that quota


class Throttle:
    """Gives a process QUOTA of a core, by a control group (v1)."""

    def __init__(self, pid):
        self.group = f"{CPU}/chainmail-patience-{os.getpid()}"
        try:
            os.makedirs(self.group, exist_ok=True)
            period = 100000
            for name, value in (
                ("cpu.cfs_period_us", period),
                ("cpu.cfs_quota_us", int(period * QUOTA)),
                ("cgroup.procs", pid),
            ):
                with open(f"{self.group}/{name}", "w", encoding="ascii") as file:
                    file.write(str(value))
        except OSError as error:
            sys.exit(f"patience: no cpu quota can be set here: {error}")

    def held_back(self):
        """In which share of its periods, and for how many seconds, the kernel has held it back."""
        values = dict(
            line.split() for line in jobs.read(f"{self.group}/cpu.stat", "r").splitlines()
        )
        periods = max(1, int(values.get("nr_periods", 0)))
        return int(values.get("nr_throttled", 0)) / periods, int(values["throttled_time"]) / 1e9

    def remove(self):
        for _ in range(100):
            try:
                os.rmdir(self.group)
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.05)


class Meter:
    """What a process has had of its core and what its node has sent and received."""

    def __init__(self, pid, link):
        self.pid = pid
        self.statistics = f"/sys/class/net/{link}/statistics"
        self.first = self.last = self.now()
        self.busiest = 0.0

    def now(self):
        fields = jobs.read(f"/proc/{self.pid}/stat", "r").rpartition(")")[2].split()
        if not fields:
            return None
        seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        # Seen from the other end of the cable.
        sent, received = (
            int(jobs.read(f"{self.statistics}/{name}_bytes", "r")) for name in ("rx", "tx")
        )
        return time.time(), seconds, sent, received

    @staticmethod
    def rates(begin, end):
        return [(e - b) / (end[0] - begin[0]) for b, e in zip(begin[1:], end[1:])]

    def look(self):
        now = self.now()
        if now is None:
            return
        self.busiest = max(self.busiest, *self.rates(self.last, now)[1:])
        self.last = now

    def means(self):
        """Share of a core, bytes sent per second, bytes received per second."""
        return self.rates(self.first, self.last)


def alarms_of(job):
    """Whatever was said or recorded but that the job ends since it was told to."""
    wanted = "launcher: SIGTERM: ending the job\n"
    alarms = [line for line in job.messages().splitlines(True) if line != wanted]
    with open(os.environ["WORK"] + "/output/events.jsonl", encoding="utf-8") as file:
        for line in file:
            if '"event":"ending"' in line:
                break  # what ranks do from here on is an answer to the SIGTERM
            if any(word in line for word in ("lost", "stall", "stopped", "failed", "verdict")):
                alarms.append(line)
    return alarms


def doubts_of(share, periods, busiest):
    """Why the run shows nothing: the rank or the link had more than it should, or needed less."""
    doubts = []
    if not 0.85 * QUOTA <= share <= 1.05 * QUOTA:
        doubts.append(f"the rank had {share:.3f} of a core, not {QUOTA}")
    if periods < 0.5:
        doubts.append(f"the rank was held back in {periods:.0%} of its periods only")
    if not 0.8 * RATE <= busiest <= 1.1 * RATE:
        doubts.append(f"the link carried {busiest * 8e-6:.0f} Mbit/s at most, not 100")
    return doubts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("minutes", type=float)
    arguments = parser.parse_args()
    job = jobs.Job(
        "nodes",
        ("--elements", str(ELEMENTS), "--pause-us", "0", "--work-us", str(WORK_US)),
        ("--stall-timeout", "20", "--output", os.environ["WORK"] + "/output"),
    )
    if not job.wait_until_running(60):
        sys.exit("patience: the job did not start: " + job.messages())
    throttle = Throttle(job.pid_of(3))
    time.sleep(2)  # steps of before are over
    meter = Meter(job.pid_of(3), jobs.node_file("n2", "link"))
    limit = time.time() + 60 * arguments.minutes
    while time.time() < limit and job.process.poll() is None:
        time.sleep(1)
        meter.look()
    is_running = job.process.poll() is None
    steps, last_us = job.entry(0, "steps")[2].split()
    periods, seconds = throttle.held_back()
    share, sent, received = meter.means()
    if is_running:
        job.process.send_signal(signal.SIGTERM)
    job.wait_until_gone(35)
    throttle.remove()
    alarms = alarms_of(job)
    errors = [rank for rank in range(job.size) if job.entry(rank, "error")]
    print(
        f"{arguments.minutes:g} minutes: rank 3 had {share:.3f} of a core (held back in "
        f"{periods:.0%} of its periods, {seconds:.0f} s in all); its node sent "
        f"{sent * 8e-6:.1f} Mbit/s and received {received * 8e-6:.1f}, "
        f"{meter.busiest * 8e-6:.1f} in the busiest second; {steps} steps, the last ones of "
        f"{float(last_us) / 1000:.0f} ms; {len(alarms)} alarms"
    )
    if alarms or errors or not is_running:
        print("".join(alarms) or f"the job ended with {job.process.returncode}: {job.messages()}")
        return 1
    doubts = doubts_of(share, periods, meter.busiest)
    return "patience: nothing was shown: " + "; ".join(doubts) if doubts else 0


if __name__ == "__main__":
    sys.exit(main())

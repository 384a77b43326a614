#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""What those who join an elastic job are given: many at once, by all who have it, and never a state that
is damaged.

usage: elastic_newcomers_test.py LAUNCHER ELASTIC_LEDGER [CASE...]
       elastic_newcomers_test.py LAUNCHER ELASTIC_LEDGER --damages ROUNDS   (nine starts each)
"""

import os
import pathlib
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "faults"))

from ledger_job import LedgerJob  # noqa: E402
from outside import Arguments, main  # noqa: E402

HOSTS = ["n1", "n2", "n3"]
# Of a donor: a byte that is sent damaged, and damaged again, or other bytes than the others have.
DAMAGES = ["flip_once", "flip", "wrong"]
# Each starts a process that loads torch.
NEWCOMERS = 16 if os.environ.get("CHAINMAIL_LONG_TESTS") else 6


def many_newcomers_at_once_are_a_change(launcher, program):
    # Of every shard two samples, which the model needs, in an epoch that does not end.
    with LedgerJob(launcher, program, HOSTS[:2], "-n", 2, pause_ms=100, sizes="1:18", shards=18,
                   steps_per_epoch=20000, window=2) as job:
        first, donors = job.wait_for_world(2)
        job.hold(NEWCOMERS, lambda: job.edit("n1", "n2", f"n3 slots={NEWCOMERS}"))
        job.wait_for_world(2 + NEWCOMERS, seconds=240)
        job.finish(margin=10)
        job.ends_well()
        # On a busy machine shards may move between the first two.
        worlds = [event for event in job.events("world_changed")
                  if event["generation"] > first and event.get("cause") != "shards divided anew"]
        # In the next world, at the latest in the one after.
        assert len(worlds) <= 2, worlds
        sent = [job.ledger.sent[worlds[0]["generation"], donor.member] for donor in donors]
        newcomers, received = worlds[0]["size"] - 2, worlds[0]["bytes"]
        print(f"{newcomers} of {NEWCOMERS} newcomers in the first of {len(worlds)} changes have received {received} "
              f"bytes; the donors have sent {sent}", flush=True)
        assert newcomers > 0 and sum(sent) >= received > 0, worlds
        assert max(sent) <= 1.5 * min(sent), sent


def damaged_states_start_nobody(launcher, program, rounds=None):
    """Donors of three, with each damage: as many starts of a newcomer. All of them in each round."""
    ranks = [(0, 1), (0, 2), (0, 1)] if rounds is None else [range(3)] * 3
    starts = [(damage, rank) for damage, some in zip(DAMAGES, ranks) for rank in some] * (rounds or 1)
    with LedgerJob(launcher, program, HOSTS, "-n", 3, pause_ms=20) as job:
        for damage, rank in starts:
            start_with_damage(job, damage, rank)
        job.finish()
        job.ends_well()
        asked_again = job.text("err").count(": asked for again")
        # By itself, or by the launcher, which has heard of it before.
        ended = [event["rank"] for event in job.events("rank_exited")
                 if event.get("code") == 1 or event.get("signal") == 9]
    print(f"{len(starts)} starts from three donors of which one is damaged: pieces were asked for again in "
          f"{asked_again}, members {ended} ended", flush=True)
    assert len(ended) == sum(damage != "flip_once" for damage, _ in starts), ended


def start_with_damage(job, damage, rank):
    _, members = job.wait_for_world(3, seconds=120)
    donor = members[rank].member
    said = job.text("err")
    before = job.ledger.ordered[donor]
    job.order(donor, damage)
    job.wait_until(lambda: job.ledger.ordered[donor] > before, "an order read")
    job.edit(*HOSTS, "n4")
    job.wait_until(lambda: job.ledger.damages[donor, damage] == 1, f"{damage} on member {donor}", 120)
    is_bad = damage != "flip_once"
    job.wait_for_world(4, seconds=120, without=(donor,) if is_bad else ())
    news = job.text("err")[len(said):]
    wanted = f"pieces of the job's state have come damaged, the first from rank {rank}: asked for again"
    if damage == "wrong": wanted = f"rank {rank} has other bytes of the job's state than rank "
    assert wanted in news, f"{damage} on rank {rank}: {news}"
    if damage == "flip":
        assert f"rank {rank} has sent rank 3 piece " in news, news
        assert " 2 times: is its memory damaged?" in news, news
    has_ended = f"launcher: member {donor} on host " in news
    assert has_ended == is_bad, f"{damage} on member {donor}: {news}"
    job.edit(*HOSTS)


def of_two_states_neither_starts_anybody(launcher, program):
    with LedgerJob(launcher, program, HOSTS[:2], "-n", 2, pause_ms=20) as job:
        generation, members = job.wait_for_world(2)
        job.order(members[1].member, "wrong")
        job.edit(*HOSTS)
        job.wait_for("ranks 0 and 1 have other bytes of the job's state, and nobody can tell whose are right",
                     times=3, seconds=120, where="err")
        # There is no checkpoint.
        job.wait_for_world(3, after=generation, seconds=120, without=[world.member for world in members])
        job.finish()
        job.ends_well()


def memory_mib(pid, what):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{what}:\s+(\d+) kB", status)[1]) / 1024


def donors_give_back_the_memory_of_a_change(launcher, program):
    """What they send is an image of the state; of two senders neither needs it twice, and none keeps it."""
    mib = 256
    with LedgerJob(launcher, program, HOSTS[:2], "-n", 2, pause_ms=50, mib=mib, steps_per_epoch=300) as job:
        generation, donors = job.wait_for_world(2, seconds=120)
        job.wait_for_step(job.ledger.newest + 10)
        before = {donor.pid: memory_mib(donor.pid, "VmRSS") for donor in donors}
        for pid in before: pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")  # forgets VmHWM
        job.edit(*HOSTS)
        generation, _ = job.wait_for_world(3, after=generation, seconds=120)
        job.wait_for_step(job.ledger.newest + 10)
        peak = [memory_mib(pid, "VmHWM") - was for pid, was in before.items()]
        kept = [memory_mib(pid, "VmRSS") - was for pid, was in before.items()]
        sent = [job.ledger.sent[generation, donor.member] / 2**20 for donor in donors]
        job.finish(margin=10)
        job.ends_well()
    print(f"two donors of {mib} MiB have sent {sent[0]:.0f} and {sent[1]:.0f} MiB; for that they needed {peak[0]:.0f} "
          f"and {peak[1]:.0f} MiB, of which they keep {kept[0]:.0f} and {kept[1]:.0f} MiB", flush=True)
    assert min(sent) > mib / 4, sent
    assert max(peak) < 1.25 * mib, peak
    assert max(kept) < mib / 8, kept


CASES = [many_newcomers_at_once_are_a_change, damaged_states_start_nobody,
         of_two_states_neither_starts_anybody, donors_give_back_the_memory_of_a_change]

if __name__ == "__main__":
    if sys.argv[3:4] == ["--damages"]:
        damaged_states_start_nobody(*map(os.path.abspath, sys.argv[1:3]), int(sys.argv[4]))
        sys.exit(0)
    sys.exit(main(CASES, Arguments(2)))

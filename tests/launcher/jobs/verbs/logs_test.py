#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Output of jobs, as `launcher logs` and `launcher attach` pass it on.

    logs_test.py LAUNCHER FAKE_SUPERVISOR [CASE...]
"""

import json
import os
import signal
import subprocess
import sys
import time

from fake_jobs import Desk, seconds_since

from outside import Arguments, Skipped, main, patient

LOST = 125


def lines_up_to(count):
    return b"".join(b"%015d\n" % number for number in range(count))


# Reads numbered lines; the number of them, if none is missing, torn or twice there.
def count_lines(stream, slow=0.0):
    count, rest = 0, b""
    while True:
        block = stream.read1(1 << 20)
        if not block:
            assert not rest, rest
            return count
        block = rest + block
        whole = len(block) // 16 * 16
        block, rest = block[:whole], block[whole:]
        wanted = b"".join(b"%015d\n" % number for number in range(count, count + whole // 16))
        assert block == wanted, f"after line {count}: {block[:64]}"
        count += whole // 16
        time.sleep(slow)


# Before the first byte, over two attempts, to the last one.
def follows_from_before_the_first_byte(launcher, fake):
    with Desk(launcher, fake) as desk, desk.supervisor("mnist", desk.folder / "logs") as job:
        follower = desk.start("logs", "-f", "mnist")
        time.sleep(0.5)
        assert follower.poll() is None
        for number in range(5):
            job.do(f"append stdout.txt {number:015d}")
        job.do("phase retrying")
        job.do("attempt 2")
        job.do("phase running")
        for number in range(5, 10):
            job.do(f"append stdout.txt {number:015d}")
            time.sleep(0.1)
        job.do("append stderr.txt not this")
        job.end(3)
        out, err = follower.communicate(timeout=patient(5))
        assert (out, follower.returncode) == (lines_up_to(10), 0), (out, err)


# The last bytes come just before the state, again and again.
def misses_no_last_byte(launcher, fake):
    for number in range(20):
        with Desk(launcher, fake) as desk, desk.supervisor("mnist") as job:
            follower = desk.start("logs", "-f", job.id)
            time.sleep(0.01 * number)
            job.do(f"bulk stdout.txt {1 << 16}")
            job.end()
            assert count_lines(follower.stdout) == 4096
            assert follower.wait(patient(5)) == 0
            follower.communicate()


# Between a look that finds nothing new and one that finds the job's end there may be all of that.
def misses_no_last_byte_while_it_looks(launcher, fake):
    moments = os.environ.get("RARE_MOMENTS")
    if not moments:
        raise Skipped("RARE_MOMENTS names no library to preload")
    with Desk(launcher, fake) as desk:
        desk.environment.update(LD_PRELOAD=moments, MOMENT_END="1")
        for words in (["logs", "-f"], ["attach"]):
            with desk.supervisor("other") as other:
                other.do("append stdout.txt first")
                follower = desk.start(*words, other.id)
                assert follower.stdout.readline() == b"first\n"
                time.sleep(0.1)
                other.do("append stdout.txt last")
                other.end()
                out, _ = follower.communicate(timeout=patient(10))
                assert (out, follower.returncode) == (b"last\n", 0), (words, out)


def shows_what_comes_at_once(launcher, fake):
    with Desk(launcher, fake) as desk, desk.supervisor("mnist") as job:
        follower = desk.start("logs", "-f", job.id)
        slowest = 0.0
        for number in range(10):
            began = time.monotonic()
            job.do(f"append stdout.txt {number}")
            assert follower.stdout.readline() == b"%d\n" % number
            slowest = max(slowest, seconds_since(began))
            time.sleep(0.05 * number)
        print(f"  slowest line: {slowest:.3f} s")
        assert slowest < patient(0.5)
        job.end()
        follower.communicate()


# Ctrl-C leaves the job alone.
def leaves_the_job_alone(launcher, fake):
    with Desk(launcher, fake) as desk, desk.supervisor("mnist") as job:
        job.do("append stdout.txt 0")
        for words in (["logs", "-f"], ["attach"], ["wait"]):
            process = desk.start(*words, job.id)
            if words != ["wait"]:
                assert process.stdout.readline() == b"0\n"
            else:
                time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=patient(5))
            assert process.returncode == 130 and b"goes on" in err, (words, err)
            assert words == ["wait"] or b"launcher stop " + job.id.encode() in err
        assert job.do("signals", None) == "0" and "running" in desk.says(0, "ps").stdout
        # Where nobody reads, nobody stays.
        process = desk.start("logs", "-f", job.id)
        assert process.stdout.readline() == b"0\n"
        process.stdout.close()
        assert process.wait(patient(5)) == -signal.SIGPIPE
        process.communicate()
        job.end()


def attach_is_as_not_detached(launcher, fake):
    with Desk(launcher, fake) as desk, desk.supervisor("mnist", desk.folder / "logs") as job:
        job.do("append stdout.txt out1")
        process = desk.start("attach", job.id)
        job.do("append stderr.txt err1")
        time.sleep(0.3)
        job.do("append stdout.txt out2")
        job.end(9)
        out, err = process.communicate(timeout=patient(5))
        assert (out, err, process.returncode) == (b"out1\nout2\n", b"err1\n", 9), (out, err)
        assert desk.says(9, "attach", job.id).stdout == "out1\nout2\n"


def a_lost_job_ends_it(launcher, fake):
    with Desk(launcher, fake) as desk, desk.supervisor("mnist") as job:
        job.do("append stdout.txt 0")
        follower, attached = desk.start("logs", "-f", job.id), desk.start("attach", job.id)
        assert follower.stdout.readline() == attached.stdout.readline() == b"0\n"
        job.kill()
        for process in (follower, attached):
            _, err = process.communicate(timeout=patient(5))
            assert process.returncode == LOST and b"lost" in err, err
        assert desk.says(0, "logs", job.id).stdout == "0\n"
    with Desk(launcher, fake) as desk, desk.supervisor("mnist") as job:
        follower = desk.start("logs", "-f", job.id)
        job.end()
        desk.says(0, "wait", job.id)
        assert follower.wait(patient(5)) == 0
        assert b"there is no" in follower.communicate()[1]


def the_last_lines(launcher, fake):
    with Desk(launcher, fake) as desk, desk.supervisor("mnist") as job:
        assert "yet" in desk.says(0, "logs", job.id).stderr
        job.do(f"bulk stdout.txt {16 * 100000}")
        assert desk.says(0, "logs", "-n", "2", job.id).stdout == "000000000099998\n000000000099999\n"
        assert desk.says(0, "logs", "-n0", job.id).stdout == ""
        assert desk.says(0, "logs", "-n5000", job.id).stdout.encode() == lines_up_to(100000)[-80000:]
        assert desk.says(0, "logs", "-n", "200000", job.id).stdout.encode() == lines_up_to(100000)
        with open(job.folder / "stdout.txt", "a", encoding="ascii") as file:
            file.write("no end")
        assert desk.says(0, "logs", "-n1", job.id).stdout == "no end"
        follower = desk.start("logs", "-fn", "2", "mnist")
        assert follower.stdout.read(22) == b"000000000099999\nno end"
        # Somebody empties it; what comes then comes once.
        os.truncate(job.folder / "stdout.txt", 0)
        time.sleep(0.6)
        job.do("append stdout.txt more")
        job.end()
        assert follower.communicate(timeout=patient(5))[0] == b"more\n"


def other_files(launcher, fake):
    with Desk(launcher, fake) as desk, desk.supervisor("mnist", desk.folder / "logs") as job:
        job.do("append stderr.txt error")
        job.do("append ranks/rank.1/stdout one")
        job.do("append ranks/rank.1/stderr bad")
        job.do("append prepare.n2.txt two")
        job.do("append prepare.n1.txt one")
        (job.folder / "events.jsonl").write_text('{"event": 1}\n')
        assert desk.says(0, "logs", "--stderr", job.id).stdout == "error\n"
        assert desk.says(0, "logs", "--rank", "1", job.id).stdout == "one\n"
        assert desk.says(0, "logs", "--rank=1", "--stderr", job.id).stdout == "bad\n"
        assert "rank.7" in desk.says(2, "logs", "--rank", "7", job.id).stderr
        assert desk.says(0, "logs", "--events", job.id).stdout == '{"event": 1}\n'
        prepared = "==> n1 <==\none\n==> n2 <==\ntwo\n"
        assert desk.says(0, "logs", "--prepare", job.id).stdout == prepared
        follower = desk.start("logs", "-f", "--prepare", job.id)
        assert follower.stdout.read(len(prepared)) == prepared.encode()
        job.do("append prepare.n0.txt zero")
        time.sleep(0.6)
        job.do("append prepare.n1.txt more")
        job.end()
        out = follower.communicate(timeout=patient(5))[0]
        assert out == b"==> n0 <==\nzero\n==> n1 <==\nmore\n", out
        # A pipe in a file's place would be waited for.
        os.unlink(desk.folder / "logs/jobs/mnist" / shown(desk, job)["uuid"] / "stderr.txt")
        os.mkfifo(desk.folder / "logs/jobs/mnist" / shown(desk, job)["uuid"] / "stderr.txt")
        assert "not a file" in desk.says(LOST, "logs", "--stderr", job.id).stderr


def shown(desk, job):
    return json.loads(desk.says(0, "show", "--json", job.id).stdout)


def peak_kib(process):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


# $MIB of output, while it is written, to a reader that is slower.
def much_output(launcher, fake):
    mib = int(os.environ.get("MIB", "32"))
    with Desk(launcher, fake) as desk, desk.supervisor("mnist") as job:
        place = os.statvfs(desk.folder)
        if place.f_bavail * place.f_frsize < (mib + 64) << 20:
            raise Skipped(f"{desk.folder} has no room for {mib} MiB")
        follower = desk.start("logs", "-f", job.id, stderr=subprocess.DEVNULL)
        job.tell(f"bulk stdout.txt {mib << 20}")
        began = time.monotonic()
        peaks = []

        class Reader:
            """Notes the follower's memory on the way."""

            @staticmethod
            def read1(size):
                if len(peaks) * (1 << 20) < mib << 20:
                    peaks.append(peak_kib(follower))
                if job.answers == 0 and len(peaks) > mib // 4:
                    job.answers = 1
                    assert job.answer() == "ok"
                    job.end()
                return follower.stdout.read1(size)

        job.answers = 0
        assert count_lines(Reader, slow=0.001) == (mib << 20) // 16
        assert follower.wait(patient(10)) == 0
        follower.stdout.close()
        print(f"  {mib} MiB in {seconds_since(began):.1f} s, memory at most {max(peaks)} KiB")
        limit = 32 << 10
        if os.environ.get("CHAINMAIL_TEST_PATIENCE", "1") == "1":
            assert max(peaks) < limit, peaks


# What is written elsewhere wakes up nobody, as on a network file system.
def files_that_nobody_watches(launcher, fake):
    with Desk(launcher, fake) as desk, desk.supervisor("mnist") as job:
        elsewhere = desk.folder / "elsewhere"
        elsewhere.write_text("")
        (job.folder / "stdout.txt").symlink_to(elsewhere)
        follower = desk.start("logs", "-f", job.id)
        for number in range(5):
            time.sleep(0.07 * number)
            began = time.monotonic()
            job.do(f"append stdout.txt {number}")
            assert follower.stdout.readline() == b"%d\n" % number
            assert seconds_since(began) < patient(0.5)
        job.end()
        assert follower.communicate(timeout=patient(5))[0] == b""


if __name__ == "__main__":
    sys.exit(main([follows_from_before_the_first_byte, misses_no_last_byte,
                   misses_no_last_byte_while_it_looks, shows_what_comes_at_once,
                   leaves_the_job_alone, attach_is_as_not_detached, a_lost_job_ends_it,
                   the_last_lines, other_files, much_output, files_that_nobody_watches],
                  Arguments(2)))

# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""As fault_rank.cc, over torch.distributed: nothing but all-reduces, and what they end with.

usage: fault_rank.py DIRECTORY [--pause-us N]
"""

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist

import chainmail


class Log:
    def __init__(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def line(self, kind, rest):
        """One write, so that a reader never sees half a line."""
        os.write(self.file, f"{kind} {time.time_ns() // 1000} {rest}\n".encode())


def run(log, pause):
    value = torch.full((64 << 10,), float(dist.get_rank() + 1))
    wanted = (dist.get_world_size() + 1) / 2
    last_line = 0.0
    step = 0
    while True:
        step += 1
        mean = value.clone()
        begin = time.monotonic()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        end = time.monotonic()
        if not bool((mean == wanted).all()):
            sys.exit(f"the mean is wrong in step {step}")
        if end - last_line >= 1:
            log.line("steps", f"{step} {(end - begin) * 1e6}")
            last_line = end
        time.sleep(pause)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--pause-us", type=int, default=1000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    log = Log(f"{arguments.directory}/rank.{os.environ['RANK']}")
    log.line("up", os.getpid())
    dist.init_process_group("chainmail")
    try:
        run(log, arguments.pause_us / 1e6)
    except RuntimeError as error:
        failure = chainmail.failure()
        text = " ".join(str(error).split())
        if failure is None or failure.message not in str(error):
            sys.exit(f"all_reduce raised what its group does not know of: {text}")
        peer = failure.ranks[0] if len(failure.ranks) == 1 else -1
        log.line("error", f"{failure.kind} {peer} {text}")
        raise


main()

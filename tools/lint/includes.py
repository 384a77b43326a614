#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Checks who includes what. usage: includes.py [root]

A file below tests/ is judged as the folder that it mirrors: tests/ops/x_test.cc as ops/x_test.cc;
what tests/soak needs is judged as a tool.
"""

import re
import sys

import tree

# Header, folders that may include it, why. Patterns match from the start; "main" stands for files
# with a main(). The first rule whose header matches decides.
RULES = [
    # Libraries of others.
    (r"mpi\.h", [r"ops/comm/mpi/", r"tools/bench/mpi/", r"tests/launcher/mpi/"],
     "MPI stays behind one transport, in the benchmark's own MPI processes and in users' programs"),
    (r"nccl\.h", [r"ops/comm/nccl/"], "NCCL stays behind one transport"),
    (r"cuda(_runtime|_runtime_api)?\.h",
     [r"ops/kernels/cuda/", r"ops/comm/nccl/", r"ops/device/cuda/"], "all else builds without CUDA"),
    (r"torch/csrc/distributed/c10d/",
     [r"plugin/c10d/", r"plugin/include/chainmail/backend\.h", r"examples/cpp_ddp/", r"tools/bench/"],
     "c10d changes with every release of torch"),
    (r"torch/torch\.h",
     [r"examples/", r"plugin/(train|nn|data|pch)", r"tests/plugin/", r"tools/bench/"],
     "it takes 20 s to compile"),
    (r"(ATen|c10|torch)/", [r"plugin/", r"examples/", r"tools/(bench|info)/", r"tests/starters/"],
     "ops, launcher and base are free of torch"),
    (r"glog/", [r"base/log\.cc", "main"], "glog and torch both define LOG and CHECK"),
    (r"gflags/", [r"examples/common/flags\.h", "main"], "flags belong to programs"),
    (r"pmix.*\.h", [r"launcher/pmix/", r"tests/launcher/mpi/pmix_.*"], "one helper links libpmix"),
    (r"asio", [r"launcher/"], "the event loop is the launcher's"),
    (r"hwy/", [r"ops/kernels/cpu/"], "SIMD is compiled per target in the kernels"),
    (r"hwloc", [r"launcher/", r"base/", r"tools/info/"], "binding is the launcher's"),
    (r"(nlohmann|openssl|xxhash)", [r".*\.cc$"], "private to sources"),
    (r"(gtest|gmock)/", [r"tests/"], "tests only"),
    (r"benchmark/", [r"tools/bench/", r"tests/"], "benchmarks only"),
    # Our own, in the order base <- ops <- plugin <- tools, base <- launcher.
    (r"base/", [r"(base|ops|plugin(?!/include)|launcher|tools)/"],
     "public headers and examples see <chainmail/...> only"),
    (r"ops/", [r"(ops|plugin(?!/include)|tools)/"], "base and launcher are below or beside ops"),
    (r"plugin/", [r"(plugin(?!/include)|tools)/"], "only tools are above plugin"),
    (r"launcher/", [r"launcher/"], "the launcher is a program, not a library"),
    (r"chainmail/", [r"(plugin|examples|tools|tests/starters)/"], "base, ops and launcher are below the plugin"),
    (r"(tests|examples|tools)/", [r"(tests|examples|tools)/"], "nothing depends on these"),
]

# The launcher's folders from the bottom up: each may include itself and those before it. What is at
# the root is the top.
LAUNCHER_FLOORS = [
    "job",  # what a job is asked to be: values
    "process", "files", "cgroup", "channel",  # the machine
    "placement", "command_line", "hosts", "hosts/schedulers", "remote", "allocation",
    "mpi", "pmi1", "staging", "mpi/service", "pmix",
    "tree", "output", "agent",
    "controller/state", "controller/starting", "controller/ranks", "controller", "",
]

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)
MAIN = re.compile(r"^int main\(", re.MULTILINE)


def is_allowed(path, allowed, text):
    mirrored = path.removeprefix("tests/").replace("soak/", "tools/soak/", 1)
    for pattern in allowed:
        if pattern == "main":
            if MAIN.search(text):
                return True
        elif re.match(pattern, path) or re.match(pattern, mirrored):
            return True
    return False


def floor_problem(path, header):
    """Why a file of the launcher may not include another one; empty when it may."""
    if not (path.startswith("launcher/") and header.startswith("launcher/")):
        return ""
    own, other = (name.removeprefix("launcher").rpartition("/")[0].strip("/")
                  for name in (path, header))
    for folder in (own, other):
        if folder not in LAUNCHER_FLOORS:
            return f"launcher/{folder} has no place in LAUNCHER_FLOORS"
    if LAUNCHER_FLOORS.index(other) <= LAUNCHER_FLOORS.index(own):
        return ""
    return f"launcher/{other} is above launcher/{own}"


def check(root):
    problems = []
    for path in tree.files(root):
        if not path.endswith(tree.CODE):
            continue
        text = tree.read(root, path)
        for match in INCLUDE.finditer(text):
            header = match.group(1)
            if why := floor_problem(path, header):
                line = text.count("\n", 0, match.start()) + 1
                problems.append(f"{path}:{line}: may not include {header}: {why}")
            for pattern, allowed, reason in RULES:
                if not re.match(pattern, header):
                    continue
                if not is_allowed(path, allowed, text):
                    line = text.count("\n", 0, match.start()) + 1
                    problems.append(f"{path}:{line}: may not include {header}: {reason}; "
                                    f"allowed in {' '.join(allowed)}")
                break
    return problems


if __name__ == "__main__":
    sys.exit(tree.report(check(sys.argv[1] if len(sys.argv) > 1 else ".")))
